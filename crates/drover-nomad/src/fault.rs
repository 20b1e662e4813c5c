//! Why a request is not answered with what it asks for.

/// A refusal: an HTTP code, and the text that Nomad's clients show.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// As in HTTP.
    pub code: u16,
    /// Which field or object, why, and what helps.
    pub message: String,
}

impl Fault {
    /// A refusal with its reason.
    pub fn new(code: u16, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The request itself is wrong.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    /// The request itself is wrong in all these ways: a line for each.
    pub fn all<T: ToString>(reasons: &[T]) -> Self {
        Self::bad(reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    /// There is no such object.
    pub fn missing(kind: &str, id: &str) -> Self {
        Self::new(404, format!("{kind} {id:?} not found"))
    }
}
