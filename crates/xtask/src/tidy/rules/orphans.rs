//! Every file beside the `main.rs` of a test binary is part of it.

use std::path::Path;

use crate::tidy::fault::Fault;
use crate::tidy::tree::{CodeFile, Tree};

/// Names the files that no test binary compiles.
pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Fault> {
    let orphans = tree.code.iter().filter_map(|code| Some((code, main_without(&code.file.path, tree)?)));
    let fault = |(code, main): (&CodeFile, &CodeFile)| {
        let remedy = format!("name it in {}", main.file.path.display());
        code.file.fault(1, "in no module", remedy)
    };
    orphans.map(fault).collect()
}

/// The `main.rs` beside a file of a test binary, when it does not name that file as a module.
fn main_without<'a>(file: &Path, tree: &'a Tree) -> Option<&'a CodeFile> {
    let (folder, name) = (file.parent()?, file.file_stem()?.to_str()?);
    if !folder.parent()?.ends_with("tests") || name == "main" {
        return None;
    }
    let main = tree.code.iter().find(|code| code.file.path == folder.join("main.rs"))?;
    let is_named = main.syntax.items.iter().any(|item| matches!(item, syn::Item::Mod(module) if module.ident == name));
    (!is_named).then_some(main)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::tests::{reasons, tree_of};

    #[test]
    fn a_test_outside_of_its_binary_is_named() {
        let tree = tree_of(&[
            ("tests/it/main.rs", "mod used;"),
            ("tests/it/used.rs", ""),
            ("tests/it/used/part.rs", ""),
            ("tests/it/forgotten.rs", ""),
            ("src/free.rs", ""),
        ]);
        assert_eq!(reasons(&check(&tree)), ["tests/it/forgotten.rs:1: in no module"]);
    }
}
