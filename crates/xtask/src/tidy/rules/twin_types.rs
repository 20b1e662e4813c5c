//! No two types of one name in a package: a name says which one is meant.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proc_macro2::Ident;
use syn::Item;

use crate::tidy::fault::Fault;
use crate::tidy::tree::{CodeFile, Tree};

const REMEDY: &str = "name each for what it is about";

/// Names the types that have the name of another one. Types of tests may: they are seen in one file only.
pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Fault> {
    let mut named: BTreeMap<(PathBuf, String), Vec<(&CodeFile, usize)>> = BTreeMap::new();
    for code in tree.code.iter().filter(|code| !code.is_for_tests()) {
        for name in code.syntax.items.iter().filter_map(name) {
            let line = name.span().start().line;
            if !code.is_test_line(line) {
                named.entry((code.package(), name.to_string())).or_default().push((code, line));
            }
        }
    }
    let twins = named.into_iter().filter(|(_, places)| places.len() > 1);
    let each = twins.flat_map(|((_, name), places)| {
        let (first, _) = places[0];
        let first = first.file.path.display().to_string();
        let others = places.into_iter().skip(1);
        let fault = |(code, line): (&CodeFile, usize)| {
            code.file.fault(line, format!("{name} is the name of a type of {first} too"), REMEDY)
        };
        others.map(fault).collect::<Vec<_>>()
    });
    each.collect()
}

fn name(item: &Item) -> Option<&Ident> {
    match item {
        Item::Struct(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::tests::{reasons, tree_of};

    #[test]
    fn two_types_of_one_name_are_named_within_a_package_alone() {
        let tree = tree_of(&[
            ("crates/a/src/a.rs", "struct Step;\nenum Cause {}"),
            ("crates/a/src/b.rs", "fn f() {}\ntrait Step {}\n#[cfg(test)]\nmod tests { struct Cause; }"),
            ("crates/b/src/a.rs", "type Step = u8;"),
            ("crates/b/src/tests.rs", "struct Step;"),
        ]);
        assert_eq!(
            reasons(&check(&tree)),
            ["crates/a/src/b.rs:2: Step is the name of a type of crates/a/src/a.rs too"]
        );
    }
}
