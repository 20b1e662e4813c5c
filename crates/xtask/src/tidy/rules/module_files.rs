//! `mod.rs` and `lib.rs` show what there is: documentation, `mod` lines, re-exports. Code has a file with a name.

use syn::{Ident, Item, ItemMod};

use crate::tidy::fault::Fault;
use crate::tidy::tree::Tree;

const REMEDY: &str = "move it to a file that is named after it, and re-export it from here";

/// Names every other item of such files.
pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for code in tree.code.iter().filter(|code| !code.is_for_tests()) {
        let path = &code.file.path;
        if path.ends_with("mod.rs") || path.ends_with("lib.rs") && path.parent().is_some_and(|at| at.ends_with("src")) {
            let misplaced = code.syntax.items.iter().filter_map(misplaced);
            faults.extend(misplaced.map(|(what, line)| code.file.fault(line, format!("holds {what}"), REMEDY)));
        }
    }
    faults
}

/// Says what an item is, and where, when it does not belong into such a file.
fn misplaced(item: &Item) -> Option<(String, usize)> {
    let named = |kind: &str, name: &Ident| Some((format!("{kind} {name}"), name.span().start().line));
    match item {
        Item::Use(_) | Item::ExternCrate(_) => None,
        Item::Mod(module) if is_declared(module) => None,
        Item::Mod(module) => named("the inside of mod", &module.ident),
        Item::Const(item) => named("const", &item.ident),
        Item::Enum(item) => named("enum", &item.ident),
        Item::Fn(item) => named("fn", &item.sig.ident),
        Item::Impl(item) => Some(("an impl".to_owned(), item.impl_token.span.start().line)),
        Item::Macro(item) if is_generated(item) => None,
        Item::Macro(item) => item.mac.path.segments.last().and_then(|name| named("the macro", &name.ident)),
        Item::Static(item) => named("static", &item.ident),
        Item::Struct(item) => named("struct", &item.ident),
        Item::Trait(item) => named("trait", &item.ident),
        Item::Type(item) => named("type", &item.ident),
        Item::Union(item) => named("union", &item.ident),
        _ => Some(("an item".to_owned(), 1)),
    }
}

/// A module that lies in a file, of ours or generated.
fn is_declared(module: &ItemMod) -> bool {
    let is_generated = |item: &Item| matches!(item, Item::Macro(item) if is_generated(item));
    module.content.as_ref().is_none_or(|(_, items)| items.iter().all(is_generated))
}

/// What a build script wrote is taken in by a macro.
fn is_generated(item: &syn::ItemMacro) -> bool {
    item.mac.path.segments.last().is_some_and(|name| name.ident == "include" || name.ident == "include_proto")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::tests::{reasons, tree_of};

    #[test]
    fn everything_but_modules_and_re_exports_is_named() {
        let text = "//! Docs.\n#![allow(dead_code)]\nmod a;\npub use a::A;\n#[cfg(test)]\nmod tests;\n\
                    pub mod v1 { tonic::include_proto!(\"v1\"); }\nconst N: u8 = 1;\nfn f() {}\nimpl A {}\nmacro_rules! m { () => {} }\nmod b { fn g() {} }";
        let tree = tree_of(&[
            ("src/a/mod.rs", text),
            ("src/lib.rs", "struct S;"),
            ("src/a/lib.rs", "struct S;"),
            ("src/a/tests/mod.rs", "struct S;"),
            ("src/a.rs", "struct S;"),
        ]);
        assert_eq!(
            reasons(&check(&tree)),
            [
                "src/a/mod.rs:8: holds const N",
                "src/a/mod.rs:9: holds fn f",
                "src/a/mod.rs:10: holds an impl",
                "src/a/mod.rs:11: holds the macro macro_rules",
                "src/a/mod.rs:12: holds the inside of mod b",
                "src/lib.rs:1: holds struct S",
            ]
        );
    }
}
