//! Rules of the tree that no compiler checks. `cargo xtask ci` runs them.

pub mod imports;
