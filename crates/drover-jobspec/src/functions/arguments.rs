//! Arguments of a function, converted as HCL converts them.

use std::collections::BTreeMap;

use crate::value::{Number, Value};

/// The arguments of one call.
pub(super) struct Arguments<'a>(&'a [Value]);

impl<'a> Arguments<'a> {
    pub(super) fn new(values: &'a [Value]) -> Self {
        Self(values)
    }

    pub(super) fn all(&self) -> &'a [Value] {
        self.0
    }

    /// Exactly so many arguments.
    pub(super) fn count(&self, n: usize) -> Result<(), String> {
        self.between(n, n)
    }

    /// At least and at most so many arguments.
    pub(super) fn between(&self, min: usize, max: usize) -> Result<(), String> {
        let n = self.0.len();
        if (min..=max).contains(&n) {
            return Ok(());
        }
        Err(match (min, max) {
            (min, max) if min == max => format!("takes {min} arguments, not {n}"),
            (min, usize::MAX) => format!("takes at least {min} arguments, not {n}"),
            (min, max) => format!("takes {min} to {max} arguments, not {n}"),
        })
    }

    pub(super) fn value(&self, at: usize) -> Result<&'a Value, String> {
        self.0.get(at).ok_or_else(|| format!("lacks argument {}", at + 1))
    }

    fn wrong(&self, at: usize, wanted: &str) -> String {
        let kind = self.0.get(at).map_or("missing", Value::kind);
        format!("argument {} must be {wanted}, and is {kind}", at + 1)
    }

    pub(super) fn text(&self, at: usize) -> Result<String, String> {
        self.value(at)?.to_text().ok_or_else(|| self.wrong(at, "a string"))
    }

    pub(super) fn number(&self, at: usize) -> Result<Number, String> {
        self.value(at)?.to_number().ok_or_else(|| self.wrong(at, "a number"))
    }

    pub(super) fn whole(&self, at: usize) -> Result<i128, String> {
        self.number(at)?.whole().ok_or_else(|| self.wrong(at, "a whole number"))
    }

    /// A whole number of at least 0.
    pub(super) fn index(&self, at: usize) -> Result<usize, String> {
        usize::try_from(self.whole(at)?).map_err(|_| self.wrong(at, "a whole number of at least 0"))
    }

    pub(super) fn list(&self, at: usize) -> Result<&'a [Value], String> {
        self.value(at)?.elements().ok_or_else(|| self.wrong(at, "a list"))
    }

    pub(super) fn texts(&self, at: usize) -> Result<Vec<String>, String> {
        let texts: Option<Vec<String>> = self.list(at)?.iter().map(Value::to_text).collect();
        texts.ok_or_else(|| self.wrong(at, "a list of strings"))
    }

    pub(super) fn map(&self, at: usize) -> Result<&'a BTreeMap<String, Value>, String> {
        match self.value(at)? {
            Value::Map(values) => Ok(values),
            _ => Err(self.wrong(at, "a map")),
        }
    }
}
