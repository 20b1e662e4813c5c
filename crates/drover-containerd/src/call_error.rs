//! Why a call was not carried out.

use tonic::{Code, Status};

/// A call that containerd refused or did not answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    code: Code,
    message: String,
}

impl CallError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// What was asked for does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code == Code::NotFound
    }

    /// What was to be made exists.
    pub fn is_existing(&self) -> bool {
        self.code == Code::AlreadyExists
    }

    /// containerd cannot be reached, or has not answered in time.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.code, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled)
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let code = status.code();
        let said = status.message().trim();
        // A connection that fails says only "transport error"; what was wrong is in its sources.
        let mut message = if said.is_empty() { format!("{code}") } else { said.to_owned() };
        let mut source = std::error::Error::source(&status);
        while let Some(error) = source {
            let text = error.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            source = error.source();
        }
        Self { code, message }
    }
}
