//! What was found to be wrong, collected.

use std::fmt;

/// Most violations that are told one by one.
const LIMIT: usize = 1000;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// Its name, as in `spec/scheduler.md` 1.3.
    pub code: &'static str,
    /// The field, as `spec.groups[0].count`.
    pub field: String,
    /// What is wrong, and how to mend it.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.field, self.message, self.code)
    }
}

/// All violations as one text.
pub fn texts(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Where a block is in the spec. Written out only when something is wrong there.
pub(crate) type At<'a> = fmt::Arguments<'a>;

/// The violations so far.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    told: Vec<Violation>,
    untold: usize,
    patterns: usize,
}

/// How many looks at regular expressions a job may cost for each node. On 5,000 nodes that is a plan of well under a
/// second, with the most costly expressions that are taken.
pub(super) const PATTERN_LOOKS_LIMIT: usize = 128;

impl Violations {
    /// Adds a violation when something is wrong.
    pub(crate) fn when(&mut self, is_wrong: bool, code: &'static str, field: At<'_>, message: impl fmt::Display) {
        if !is_wrong {
            return;
        }
        if self.told.len() < LIMIT {
            self.told.push(Violation { code, field: field.to_string(), message: message.to_string() });
        } else {
            self.untold += 1;
        }
    }

    /// Whether one more regular expression is compiled: not one of those that are too many anyway.
    pub(super) fn takes_pattern(&mut self) -> bool {
        self.patterns += 1;
        self.patterns <= PATTERN_LOOKS_LIMIT
    }

    /// All of them, with a last one that counts those which were too many.
    pub(crate) fn finish(mut self) -> Vec<Violation> {
        if self.untold > 0 {
            let message = format!("has {} more violations; mend these first", self.untold);
            self.told.push(Violation { code: "TooManyViolations", field: "spec".to_owned(), message });
        }
        self.told
    }
}

/// At most the first 64 characters of a value from outside, for a message.
pub(super) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(64).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Whether it is lower case letters, digits and `-`, beginning and ending with a letter or digit.
pub(super) fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(is_inner)
}
