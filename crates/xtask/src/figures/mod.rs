//! `cargo xtask figures`: what is in the tree, counted.

mod command;
mod imports;
mod tests_to_code;

pub use command::{FiguresArgs, run};
