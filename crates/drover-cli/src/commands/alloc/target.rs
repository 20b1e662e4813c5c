//! Which allocation of this node a command is about.

use drover_api::Allocation;

use crate::completion::names;

/// An allocation of this node.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LocalAlloc {
    /// The allocation: its name, its uid or the beginning of it, or `namespace/name`.
    #[arg(add = names::<Allocation>())]
    allocation: String,
    /// Its namespace; needed where allocations of several namespaces have that name.
    #[arg(short, long)]
    namespace: Option<String>,
}

impl LocalAlloc {
    /// The allocation as the agent finds it.
    pub(super) fn id(&self) -> String {
        match &self.namespace {
            Some(namespace) if !self.allocation.contains('/') => format!("{namespace}/{}", self.allocation),
            Some(_) | None => self.allocation.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_belongs_to_a_name() {
        let id = |allocation: &str, namespace: Option<&str>| {
            LocalAlloc { allocation: allocation.to_owned(), namespace: namespace.map(str::to_owned) }.id()
        };
        assert_eq!(id("web-g-0-1f", Some("shop")), "shop/web-g-0-1f");
        assert_eq!(id("web-g-0-1f", None), "web-g-0-1f");
        assert_eq!(id("shop/web-g-0-1f", Some("other")), "shop/web-g-0-1f");
    }
}
