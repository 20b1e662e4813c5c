//! Why an evaluation ends early. Must never know where in a template it happened: who evaluates adds that.

use serde::{Deserialize, Serialize};

/// What a template may have too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RenderLimit {
    /// Steps of evaluation: loops that do not end.
    Steps,
    /// Templates in templates, parentheses in parentheses, values in values.
    Depth,
    /// Bytes of the text.
    Output,
    /// Bytes of all values that are made on the way.
    Memory,
    /// The clock.
    Time,
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// As Go's or consul-template's error.
    Failed(String),
    /// The same, for a key that a map has not.
    MissingKey(String),
    /// Too much of something, and how much would be right.
    Limit(RenderLimit, String),
}

/// A result of evaluation.
pub(crate) type Outcome<T> = Result<T, Fault>;

/// An error with a text.
pub(crate) fn failed<T>(text: impl Into<String>) -> Outcome<T> {
    Err(Fault::Failed(text.into()))
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed(text) | Self::MissingKey(text) | Self::Limit(_, text) => f.write_str(text),
        }
    }
}
