//! A place that breaks a rule.

use std::fmt;
use std::path::PathBuf;

/// A place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fault {
    /// The file, from the root of the checkout.
    pub(super) file: PathBuf,
    /// The line, counted from 1.
    pub(super) line: usize,
    /// What is wrong.
    pub(super) reason: String,
    /// What to do about it.
    pub(super) remedy: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}: {}", self.file.display(), self.line, self.reason, self.remedy)
    }
}
