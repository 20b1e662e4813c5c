//! Rules of the tree that no compiler checks. `cargo xtask tidy` applies them, `cargo xtask ci` too.

mod fault;
pub mod imports;
mod rules;
mod run;
mod tree;

pub use run::{TidyArgs, check, run};
