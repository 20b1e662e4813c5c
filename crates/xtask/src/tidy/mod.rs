//! Rules of the tree that no compiler checks. `cargo xtask tidy` applies them, `cargo xtask ci` too.

mod fault;
pub mod imports;
pub mod production;
mod rules;
mod run;
mod tree;

pub use run::{TidyArgs, check, run};
#[cfg(test)]
pub(crate) use tree::tests::tree_of;
pub(crate) use tree::{CodeFile, Tree};
