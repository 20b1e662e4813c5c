//! A job file as blocks whose attributes have values: variables, locals and `dynamic` blocks are gone.

mod block;
mod expand;
mod read;
mod variables;
mod written;

pub(crate) use block::{Attribute, Block};
pub(crate) use read::read;
