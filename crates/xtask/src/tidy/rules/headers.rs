//! Every Rust file begins with what it is for.

use crate::tidy::fault::Fault;
use crate::tidy::tree::Tree;

/// Names the files without a header.
pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Fault> {
    let without = tree.code.iter().filter(|code| !code.file.text.trim_start().starts_with("//!"));
    without
        .map(|code| code.file.fault(1, "no header", "begin the file with `//!` and what it decides or does"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::tests::{reasons, tree_of};

    #[test]
    fn a_file_without_one_is_named() {
        let tree = tree_of(&[("src/lib.rs", "//! Library.\n"), ("src/bare.rs", "fn f() {}\n")]);
        assert_eq!(reasons(&check(&tree)), ["src/bare.rs:1: no header"]);
    }
}
