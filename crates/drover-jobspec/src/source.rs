//! A job file's text, and where in it something is wrong.

use std::fmt;
use std::ops::Range;

use crate::tree::Tree;

/// What is wrong with a job file, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The name of the file as its reader gave it.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// What is wrong, why, and what to write instead.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

/// A file's name and text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    name: &'a str,
    pub(crate) text: &'a str,
    /// Of a file in JSON.
    tree: Option<&'a Tree>,
}

impl<'a> Source<'a> {
    /// A byte order mark, as editors of one system write it, belongs to no name in the file.
    pub(crate) fn new(name: &'a str, text: &'a str) -> Self {
        Self { name, text: text.strip_prefix('\u{feff}').unwrap_or(text), tree: None }
    }

    /// The same of a file in JSON: faults name the path to the value.
    pub(crate) fn with(self, tree: &'a Tree) -> Self {
        Self { tree: Some(tree), ..self }
    }

    /// A fault at a byte of the text.
    pub(crate) fn fault(&self, offset: usize, message: impl Into<String>) -> Fault {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let path = self.tree.map(|tree| tree.path(offset)).filter(|path| !path.is_empty());
        let message = message.into();
        Fault {
            file: self.name.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: path.map_or(message.clone(), |path| format!("{path}: {message}")),
        }
    }

    /// The text between two bytes, as it was written.
    pub(crate) fn slice(&self, span: &Range<usize>) -> &'a str {
        self.text.get(span.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_in_lines_and_characters_from_one() {
        let source = Source::new("web.hcl", "\u{feff}job \"ü\" {\n  x = 1\n}\n");
        assert_eq!(source.fault(0, "a").to_string(), "web.hcl:1:1: a");
        assert_eq!(source.fault(8, "a").to_string(), "web.hcl:1:8: a");
        let at = source.text.find('x').unwrap();
        assert_eq!(source.fault(at, "b").to_string(), "web.hcl:2:3: b");
        assert_eq!(source.fault(1_000, "end").line, 4);
    }
}
