//! No struct of many fields but plain data.
//!
//! Plain data is what is filled in once and read: its type has no method that takes `&mut self`, and no field holds a
//! handle on something that lives (a channel, a lock, a task, a connection, an open file, a trait object). Anything
//! else with many fields does several things at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{FnArg, Ident, ImplItem, Item, ItemImpl, ItemStruct, ReceiverKind, Type};

use crate::tidy::fault::Fault;
use crate::tidy::tree::Tree;

/// How many fields anything else than plain data may have.
const MAX_FIELDS: usize = 15;

const REMEDY: &str = "group the fields that change together into types of their own, with the methods that change them";

/// Types that stand for something that lives.
const HANDLES: &[&str] = &[
    "Sender",
    "Receiver",
    "UnboundedSender",
    "UnboundedReceiver",
    "JoinHandle",
    "JoinSet",
    "TaskTracker",
    "CancellationToken",
    "Notify",
    "Semaphore",
    "Mutex",
    "RwLock",
    "RefCell",
    "Cell",
    "OnceCell",
    "OnceLock",
    "OwnedFd",
    "File",
    "Child",
    "Client",
];

/// A type's name, within its package.
type TypeName = (PathBuf, String);

/// Names the structs with too many fields.
pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Fault> {
    let mut changed = Changed::default();
    for code in tree.code.iter().filter(|code| !code.is_for_tests()) {
        changed.package = code.package();
        changed.visit_file(&code.syntax);
    }
    let mut faults = Vec::new();
    for code in tree.code.iter().filter(|code| !code.is_for_tests()) {
        let structs = code.syntax.items.iter().filter_map(|item| match item {
            Item::Struct(item) if item.fields.len() > MAX_FIELDS => Some(item),
            _ => None,
        });
        for item in structs {
            if let Some(why) = why_not_data(item, &changed, &code.package()) {
                let reason = format!("{} has {} fields and {why}", item.ident, item.fields.len());
                faults.push(code.file.fault(item.ident.span().start().line, reason, REMEDY));
            }
        }
    }
    faults
}

fn why_not_data(item: &ItemStruct, changed: &Changed, package: &Path) -> Option<String> {
    if changed.names.contains(&(package.to_path_buf(), item.ident.to_string())) {
        return Some("changes itself".to_owned());
    }
    let mut handles = Handles::default();
    handles.visit_fields(&item.fields);
    handles.found.map(|found| format!("holds a {found}"))
}

/// The types that have methods with `&mut self`.
#[derive(Default)]
struct Changed {
    package: PathBuf,
    names: BTreeSet<TypeName>,
}

impl<'ast> Visit<'ast> for Changed {
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let changes = item.items.iter().any(|item| {
            matches!(item, ImplItem::Fn(method) if method.sig.inputs.first().is_some_and(takes_itself_to_change))
        });
        if changes && item.trait_.is_none() {
            self.names.extend(name_of(&item.self_ty).map(|name| (self.package.clone(), name)));
        }
    }
}

fn takes_itself_to_change(argument: &FnArg) -> bool {
    matches!(argument, FnArg::Receiver(itself) if matches!(itself.kind, ReceiverKind::Reference(.., Some(_))))
}

fn name_of(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

/// Looks for a handle among fields.
#[derive(Default)]
struct Handles {
    found: Option<String>,
}

impl<'ast> Visit<'ast> for Handles {
    fn visit_ident(&mut self, name: &'ast Ident) {
        if HANDLES.iter().any(|handle| name == handle) {
            self.found.get_or_insert_with(|| name.to_string());
        }
    }

    fn visit_type_trait_object(&mut self, object: &'ast syn::TypeTraitObject) {
        self.found.get_or_insert_with(|| "trait object".to_owned());
        visit::visit_type_trait_object(self, object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::tests::{reasons, tree_of};

    fn fields(count: usize, last: &str) -> String {
        let fields: Vec<String> = (1..count).map(|index| format!("f{index}: u8")).collect();
        format!("struct S {{ {}, last: {last} }}", fields.join(", "))
    }

    #[test]
    fn what_changes_itself_or_holds_something_alive_has_few_fields() {
        let changed = format!("impl S {{ fn f(&mut self) {{}} }}\n{}", fields(16, "u8"));
        let holds = fields(16, "Option<mpsc::Sender<u8>>");
        let object = fields(16, "Box<dyn Fn()>");
        let tree = tree_of(&[("src/a.rs", &changed), ("crates/b/src/b.rs", &holds), ("crates/c/src/c.rs", &object)]);
        assert_eq!(
            reasons(&check(&tree)),
            [
                "src/a.rs:2: S has 16 fields and changes itself",
                "crates/b/src/b.rs:1: S has 16 fields and holds a Sender",
                "crates/c/src/c.rs:1: S has 16 fields and holds a trait object",
            ]
        );
    }

    #[test]
    fn methods_in_another_file_of_the_package_count_and_those_of_another_package_do_not() {
        let data = fields(16, "u8");
        let method = "impl<'a> super::S<'a> { fn f(&mut self) {} }";
        assert_eq!(check(&tree_of(&[("src/a.rs", &data), ("src/a/b.rs", method)])).len(), 1);
        assert_eq!(check(&tree_of(&[("src/a.rs", &data), ("crates/b/src/b.rs", method)])).len(), 0);
    }

    #[test]
    fn plain_data_and_few_fields_are_fine() {
        let data =
            format!("{}\nimpl S {{ fn f(&self) {{}} fn g(self) -> Self {{ self }} }}", fields(40, "Vec<String>"));
        let few = format!("{}\nimpl S {{ fn f(&mut self) {{}} }}", fields(15, "Mutex<u8>"));
        assert_eq!(reasons(&check(&tree_of(&[("src/a.rs", &data), ("crates/b/src/b.rs", &few)]))), [""; 0]);
    }
}
