//! Collects what is wrong with a job.

use crate::source::{Fault, Source};

/// Faults of one file that are told at most: a file can have hundreds of thousands.
const LIMIT: usize = 100;

/// Collects what is wrong.
pub(super) struct Report<'a> {
    source: Source<'a>,
    faults: Vec<Fault>,
}

impl<'a> Report<'a> {
    pub(super) fn new(source: Source<'a>) -> Self {
        Self { source, faults: Vec::new() }
    }

    /// One thing more, at a byte of the file.
    pub(super) fn add(&mut self, offset: usize, message: impl Into<String>) {
        match self.faults.len() {
            ..LIMIT => self.faults.push(self.source.fault(offset, message)),
            LIMIT => self.faults.push(self.source.fault(offset, "and more is wrong; correct the other places first")),
            _ => {}
        }
    }

    pub(super) fn len(&self) -> usize {
        self.faults.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// In the order of the file.
    pub(super) fn into_faults(mut self) -> Vec<Fault> {
        self.faults.sort();
        self.faults
    }
}
