//! An allocation by what people call it.

use anyhow::Context as _;
use drover_api::Allocation;
use kube::api::ListParams;

use crate::cluster::objects::{Objects, named, starting};

/// The fewest characters of a uid that may stand for it.
const SHORTEST_UID: usize = 4;

/// The allocation of that name, the only one whose name starts so, or the only one whose uid does.
pub(super) async fn find(allocs: &Objects<Allocation>, name: &str) -> anyhow::Result<Allocation> {
    // Most names are whole, and a namespace may hold many allocations.
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    if let Some(exact) = named(&allocs.list(&params).await?, name) {
        return Ok(exact.clone());
    }
    let all = allocs.list(&ListParams::default()).await?;
    let namespace = allocs.namespace.as_deref().unwrap_or_default();
    let by_uid = || {
        let is = |it: &&Allocation| it.metadata.uid.as_deref().is_some_and(|uid| uid.starts_with(name));
        let mut found = all.iter().filter(is);
        let first = found.next().filter(|_| name.len() >= SHORTEST_UID);
        first.filter(|_| found.next().is_none())
    };
    starting(&all, name)?.or_else(by_uid).cloned().with_context(|| {
        format!("no allocation {name} in namespace {namespace}; `kubectl get alloc -n {namespace}` shows all")
    })
}
