//! What a job file holds once it is read.

use crate::value::Value;

/// A block, or the file itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    /// What it is, as `group`; nothing for the file.
    pub(crate) kind: String,
    pub(crate) labels: Vec<String>,
    /// Where it begins, in bytes.
    pub(crate) offset: usize,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) blocks: Vec<Block>,
}

/// An attribute with its value.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    pub(crate) name: String,
    pub(crate) value: Value,
    /// Where it begins, in bytes.
    pub(crate) offset: usize,
}
