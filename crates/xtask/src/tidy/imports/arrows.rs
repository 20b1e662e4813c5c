//! Which file of a crate uses which, and by what names.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Field, ImplItem, Item, ItemUse, Macro, Meta, Path, Visibility};

use super::attributes;
use super::resolve::PathTarget;
use super::sources::{self, FileId, Import, ModuleId, Sources};

/// From a file to another, with the names that make the arrow.
pub(super) type Arrows = BTreeMap<(FileId, FileId), BTreeSet<String>>;

/// Finds all arrows of a crate.
pub(super) fn all(sources: &Sources) -> Arrows {
    let mut finder = Finder { sources, module: 0, arrows: Arrows::new() };
    for (id, module) in sources.modules.iter().enumerate() {
        finder.module = id;
        module.items.iter().for_each(|item| finder.visit_item(item));
    }
    finder.arrows
}

struct Finder<'a> {
    sources: &'a Sources,
    module: ModuleId,
    arrows: Arrows,
}

impl Finder<'_> {
    fn name(&mut self, path: &[String]) {
        for target in self.sources.resolve(self.module, path) {
            if let PathTarget::Item { file, name } = target {
                self.point(file, name);
            }
        }
    }

    fn point(&mut self, to: FileId, name: String) {
        let from = self.sources.modules[self.module].file;
        if from != to {
            self.arrows.entry((from, to)).or_default().insert(name);
        }
    }

    /// The inside of a macro's call is no program text yet: all that looks like a path may be one.
    fn names_in(&mut self, tokens: TokenStream, strings: Strings) {
        for path in paths_in(tokens, strings) {
            self.name(&path);
        }
    }
}

/// Whether strings may hold paths, as in `#[serde(with = "crate::duration")]`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strings {
    AreText,
    MayBePaths,
}

/// What stands before a word.
#[derive(Clone, Copy)]
enum Before {
    Colons,
    /// A dot before a field or a method, or the mark of a lifetime: the word is no name of a module.
    Dot,
    Other,
}

fn paths_in(tokens: TokenStream, strings: Strings) -> Vec<Vec<String>> {
    let mut paths = vec![Vec::new()];
    let mut before = Before::Other;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        before = match token {
            TokenTree::Ident(word) => {
                match (before, paths.last_mut()) {
                    (Before::Colons, Some(path)) => path.push(word.to_string()),
                    (Before::Dot, _) => {}
                    (Before::Other, _) | (Before::Colons, None) => paths.push(vec![word.to_string()]),
                }
                Before::Other
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' && tokens.next_if(is_colon).is_some() => Before::Colons,
            TokenTree::Punct(mark) if matches!(mark.as_char(), '.' | '\'') => Before::Dot,
            TokenTree::Punct(_) => Before::Other,
            TokenTree::Group(group) => {
                paths.extend(paths_in(group.stream(), strings));
                Before::Other
            }
            TokenTree::Literal(literal) => {
                if strings == Strings::MayBePaths {
                    paths.push(path_in(&literal.to_string()));
                }
                Before::Other
            }
        };
    }
    paths
}

fn is_colon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(mark) if mark.as_char() == ':')
}

fn path_in(literal: &str) -> Vec<String> {
    let text = literal.trim_matches('"');
    let is_path = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':');
    if is_path { text.split("::").map(str::to_owned).collect() } else { Vec::new() }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes::is_for_tests(attributes::of_item(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !attributes::is_for_tests(attributes::of_impl_item(item)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast Field) {
        if !attributes::is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        // A re-export is not a use. Where its own file uses the name, the name's path says so.
        if !matches!(item.vis, Visibility::Inherited) {
            return;
        }
        for import in sources::imports(&item.tree) {
            let (Import::Name { path, .. } | Import::All { path }) = import;
            self.name(&path);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.name(&segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        if let Some(name) = call.path.get_ident().map(ToString::to_string)
            && self.sources.resolve(self.module, std::slice::from_ref(&name)).is_empty()
            && let Some(file) = self.sources.macros.get(&name)
        {
            self.point(*file, name);
        }
        self.visit_path(&call.path);
        self.names_in(call.tokens.clone(), Strings::AreText);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        match &attribute.meta {
            Meta::List(list) if !list.path.is_ident("doc") => self.names_in(list.tokens.clone(), Strings::MayBePaths),
            _ => {}
        }
    }
}
