//! What people see: tables, trees, JSON and YAML, and the live view of a roll-out.

pub(crate) mod canvas;
pub(crate) mod fit;
pub(crate) mod follow;
pub(crate) mod jsonpath;
pub(crate) mod keys;
pub(crate) mod natural;
pub(crate) mod output;
pub(crate) mod prefixed;
pub(crate) mod stdio;
pub(crate) mod table;
pub(crate) mod tree;
