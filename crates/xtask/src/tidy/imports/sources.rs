//! The modules of a crate, read from its root file: which names each defines, imports and re-exports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use syn::{Item, ItemMod, UseTree};

use super::attributes;

/// Number of a module within its crate.
pub(super) type ModuleId = usize;
/// Number of a file within its crate.
pub(super) type FileId = usize;

/// The production code of one crate.
#[derive(Default)]
pub(super) struct Sources {
    /// Module 0 is the crate's root.
    pub(super) modules: Vec<Module>,
    /// The files, in the order in which `mod` lines name them.
    pub(super) files: Vec<PathBuf>,
    /// The file of each `macro_rules!`, for use without a path.
    pub(super) macros: BTreeMap<String, FileId>,
}

/// A module: a file, or a part of one.
pub(super) struct Module {
    pub(super) file: FileId,
    pub(super) parent: Option<ModuleId>,
    pub(super) children: BTreeMap<String, ModuleId>,
    /// The names that it defines itself.
    pub(super) defined: BTreeSet<String>,
    /// Names that it takes from elsewhere, with their paths: one name may be a type and a function.
    pub(super) imported: BTreeMap<String, Vec<Vec<String>>>,
    /// What it takes all names from.
    pub(super) globs: Vec<Vec<String>>,
    /// Its items, without modules and what is for tests.
    pub(super) items: Vec<Item>,
}

/// Where modules that a file declares are looked for.
struct Place<'a> {
    root: &'a Path,
    file: FileId,
    folder: PathBuf,
}

/// Reads a crate from its root file. Paths are shown from `root`.
///
/// # Errors
/// Names a file that is missing or cannot be parsed.
pub(super) fn read(root: &Path, root_file: &Path) -> Result<Sources> {
    let mut sources = Sources::default();
    let folder = root_file.parent().unwrap_or(root).to_path_buf();
    sources.read_file(root, root_file, folder, None)?;
    Ok(sources)
}

impl Sources {
    fn read_file(&mut self, root: &Path, path: &Path, folder: PathBuf, parent: Option<ModuleId>) -> Result<ModuleId> {
        let shown = path.strip_prefix(root).unwrap_or(path).to_path_buf();
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", shown.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("parsing {}", shown.display()))?;
        let file = self.files.len();
        self.files.push(shown);
        self.add_module(&Place { root, file, folder }, parent, parsed.items)
    }

    fn add_module(&mut self, place: &Place<'_>, parent: Option<ModuleId>, items: Vec<Item>) -> Result<ModuleId> {
        let id = self.modules.len();
        self.modules.push(Module {
            file: place.file,
            parent,
            children: BTreeMap::new(),
            defined: BTreeSet::new(),
            imported: BTreeMap::new(),
            globs: Vec::new(),
            items: Vec::new(),
        });
        for item in items {
            if attributes::is_for_tests(attributes::of_item(&item)) {
                continue;
            }
            match item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let child = self.add_child(place, id, module)?;
                    self.modules[id].children.insert(name, child);
                }
                item => self.add_item(id, place.file, item),
            }
        }
        Ok(id)
    }

    fn add_child(&mut self, place: &Place<'_>, parent: ModuleId, module: ItemMod) -> Result<ModuleId> {
        let name = module.ident.to_string();
        let folder = place.folder.join(&name);
        if let Some((_, items)) = module.content {
            return self.add_module(&Place { folder, ..*place }, Some(parent), items);
        }
        let beside = place.folder.join(format!("{name}.rs"));
        let within = folder.join("mod.rs");
        let Some(path) = [beside, within].into_iter().find(|path| path.is_file()) else {
            bail!("{} declares `mod {name};`, and there is no file of it", self.files[place.file].display());
        };
        self.read_file(place.root, &path, folder, Some(parent))
    }

    fn add_item(&mut self, id: ModuleId, file: FileId, item: Item) {
        let module = &mut self.modules[id];
        match &item {
            Item::Use(item) => {
                for import in imports(&item.tree) {
                    match import {
                        Import::Name { name, path } => module.imported.entry(name).or_default().push(path),
                        Import::All { path } => module.globs.push(path),
                    }
                }
            }
            Item::Macro(item) => {
                if let Some(name) = item.ident.as_ref().filter(|_| item.mac.path.is_ident("macro_rules")) {
                    let name = name.to_string();
                    module.defined.insert(name.clone());
                    self.macros.insert(name, file);
                }
            }
            item => module.defined.extend(name_of(item)),
        }
        self.modules[id].items.push(item);
    }
}

fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// One name, or all names, that a `use` takes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Import {
    /// A name, and the path of what it stands for.
    Name { name: String, path: Vec<String> },
    /// All names of a path.
    All { path: Vec<String> },
}

/// Takes a tree of a `use` apart.
pub(super) fn imports(tree: &UseTree) -> Vec<Import> {
    let mut imports = Vec::new();
    collect(tree, &mut Vec::new(), &mut imports);
    imports
}

fn collect(tree: &UseTree, path: &mut Vec<String>, imports: &mut Vec<Import>) {
    match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            collect(&part.tree, path, imports);
            path.pop();
        }
        UseTree::Name(part) => imports.extend(named(path, &part.ident.to_string(), None)),
        UseTree::Rename(part) => imports.extend(named(path, &part.ident.to_string(), Some(part.rename.to_string()))),
        UseTree::Glob(_) => imports.push(Import::All { path: path.clone() }),
        UseTree::Group(group) => group.items.iter().for_each(|tree| collect(tree, path, imports)),
    }
}

/// `self` at the end of a path stands for the path itself.
fn named(path: &[String], last: &str, renamed: Option<String>) -> Option<Import> {
    let mut path = path.to_vec();
    if last != "self" {
        path.push(last.to_owned());
    }
    let name = renamed.or_else(|| path.last().cloned())?;
    Some(Import::Name { name, path })
}
