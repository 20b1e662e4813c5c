//! Finds what a path means, as the compiler does: by the names in scope, through re-exports.

use std::collections::BTreeSet;

use super::sources::{FileId, ModuleId, Sources};

/// What a path means.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathTarget {
    /// A module.
    Module(ModuleId),
    /// An item, or a part of one.
    Item {
        /// Where it is defined.
        file: FileId,
        /// Its name there.
        name: String,
    },
}

/// The questions that are under way: imports may go in circles.
type Asked = BTreeSet<(ModuleId, String)>;

impl Sources {
    /// Everything in this crate that a path may mean, seen from a module. Empty for a local name, or a name of another
    /// crate.
    pub(super) fn resolve(&self, from: ModuleId, path: &[String]) -> Vec<PathTarget> {
        self.resolve_unless_asked(from, path, &mut Asked::new())
    }

    fn resolve_unless_asked(&self, from: ModuleId, path: &[String], asked: &mut Asked) -> Vec<PathTarget> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        match first.as_str() {
            "crate" => self.below(0, rest, asked),
            "self" => self.below(from, rest, asked),
            "super" => self.modules[from].parent.map_or_else(Vec::new, |parent| self.above(parent, rest, asked)),
            _ => self.below(from, path, asked),
        }
    }

    /// `super::super::x` climbs further.
    fn above(&self, parent: ModuleId, rest: &[String], asked: &mut Asked) -> Vec<PathTarget> {
        match (rest.first().map(String::as_str), self.modules[parent].parent) {
            (Some("super"), Some(grandparent)) => self.above(grandparent, &rest[1..], asked),
            _ => self.below(parent, rest, asked),
        }
    }

    fn below(&self, module: ModuleId, path: &[String], asked: &mut Asked) -> Vec<PathTarget> {
        let Some((name, rest)) = path.split_first() else { return vec![PathTarget::Module(module)] };
        let found = self.in_module(module, name, asked);
        if rest.is_empty() {
            return items_first(found);
        }
        let within = found.iter().filter_map(|target| match target {
            PathTarget::Module(child) => Some(self.below(*child, rest, asked)),
            PathTarget::Item { .. } => None,
        });
        let within: Vec<PathTarget> = within.flatten().collect();
        // No module has it: the rest names a variant or an associated function.
        if within.is_empty() {
            found.into_iter().filter(|target| matches!(target, PathTarget::Item { .. })).collect()
        } else {
            within
        }
    }

    fn in_module(&self, module: ModuleId, name: &str, asked: &mut Asked) -> Vec<PathTarget> {
        let content = &self.modules[module];
        let mut found: Vec<PathTarget> =
            content.children.get(name).copied().map(PathTarget::Module).into_iter().collect();
        if content.defined.contains(name) {
            found.push(PathTarget::Item { file: content.file, name: name.to_owned() });
        }
        // `pub use plan::plan`: the module is what its own name stands for on the way to the function.
        if !asked.insert((module, name.to_owned())) {
            return found;
        }
        for path in content.imported.get(name).into_iter().flatten() {
            found.extend(self.resolve_unless_asked(module, path, asked));
        }
        if found.is_empty() {
            for path in &content.globs {
                let scopes = self.resolve_unless_asked(module, path, asked);
                let scopes = scopes.iter().filter_map(|scope| match scope {
                    PathTarget::Module(scope) => Some(*scope),
                    PathTarget::Item { .. } => None,
                });
                for scope in scopes {
                    found.extend(self.in_module(scope, name, asked));
                }
            }
        }
        asked.remove(&(module, name.to_owned()));
        found.sort();
        found.dedup();
        found
    }
}

/// `plan` may be a module and the function that it re-exports: who names it last means the function.
fn items_first(found: Vec<PathTarget>) -> Vec<PathTarget> {
    let (items, modules): (Vec<PathTarget>, Vec<PathTarget>) =
        found.into_iter().partition(|target| matches!(target, PathTarget::Item { .. }));
    if items.is_empty() { modules } else { items }
}
