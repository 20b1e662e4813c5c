//! The functions of templates: Go's own, and consul-template's.

mod arguments;
mod builtin;
mod data;
mod encode;
mod maths;
mod table;
mod texts;

pub(crate) use data::{Host, scratch};
pub(crate) use table::{Function, find, is_known};
