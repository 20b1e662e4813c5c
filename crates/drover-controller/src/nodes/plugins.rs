//! Which of the CSI plugins that nodes report count: whenever what they are judged by changes, the node is shown again.
//!
//! Allocations and versions of jobs that run plugins, `CSIDriver`s and `CSINode`s are what `drover_core` judges by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::ClientNode;
use drover_api::client_node::CsiInfo;
use drover_core::ids::{AllocKey, JobKey, NodeName};
use drover_core::volume::instances::{CountedPlugins, DriverWord, Records, counted};
use drover_store::{Change, Key};
use k8s_openapi::api::storage::v1::CSINode;

use super::state::Nodes;
use crate::cache::Observed;
use crate::shared::{Notice, Shared};

impl Nodes {
    /// What counts of the plugins that a node says it runs.
    pub(super) fn counted_plugins(
        shared: &Shared,
        node: &NodeName,
        said: &BTreeMap<String, CsiInfo>,
    ) -> CountedPlugins {
        let on_node: BTreeSet<&str> = shared
            .caches
            .csi_nodes
            .get(&Key::cluster(node.as_str()))
            .into_iter()
            .flat_map(|known| &known.spec.drivers)
            .map(|driver| driver.name.as_str())
            .collect();
        let driver = |id: &str| DriverWord {
            has_object: shared.caches.drivers.get(&Key::cluster(id)).is_some(),
            is_on_node: on_node.contains(id),
        };
        let namespaces = &shared.config.volumes.plugin_namespaces;
        counted(&Records { view: &shared.view, node, namespaces }, driver, said)
    }

    /// An allocation is new, over or about to be forgotten: if it runs plugins, its node is shown again.
    pub(crate) fn review_plugins_of(shared: &mut Shared, alloc: &AllocKey) {
        let Some(alloc) = shared.view.alloc(alloc).cloned() else { return };
        let group = shared.view.definition_of(&alloc).and_then(|definition| definition.group(&alloc.group));
        if group.is_some_and(|group| group.tasks.iter().any(|task| task.csi_plugin.is_some())) {
            show_again(shared, &alloc.node);
        }
    }

    /// A version of a job is known: what its allocations run is too.
    pub(crate) fn review_plugins_of_job(shared: &mut Shared, job: &JobKey) {
        let allocs: Vec<AllocKey> = shared.view.allocs_of_job(job).map(|alloc| alloc.key.clone()).collect();
        for alloc in allocs {
            Self::review_plugins_of(shared, &alloc);
        }
    }

    /// The cluster has a driver, or has it no longer. That happens when one is installed: all nodes are gone through.
    pub(crate) fn review_plugin(shared: &mut Shared, id: &str) {
        let says_it = |node: &ClientNode| plugins_of(node).is_some_and(|said| said.contains_key(id));
        show_those_again(shared, says_it);
    }

    /// The first look at everything.
    pub(crate) fn review_all_plugins(shared: &mut Shared) {
        show_those_again(shared, |node| plugins_of(node).is_some_and(|said| !said.is_empty()));
    }

    pub(crate) fn on_csi_node_change(shared: &mut Shared, change: Change<CSINode>) {
        for seen in shared.caches.csi_nodes.take(change) {
            let (Observed::Now(node, _) | Observed::Gone(node)) = seen;
            show_again(shared, &NodeName::from(node.metadata.name.clone().unwrap_or_default()));
        }
    }
}

fn plugins_of(node: &ClientNode) -> Option<&BTreeMap<String, CsiInfo>> {
    Some(&node.status.as_ref()?.fingerprint.as_ref()?.csi)
}

fn show_those_again(shared: &mut Shared, is_concerned: impl Fn(&ClientNode) -> bool) {
    let concerned = shared.caches.nodes.values().filter(|node| is_concerned(node));
    let mut names: Vec<NodeName> =
        concerned.filter_map(|node| node.metadata.name.as_deref()).map(NodeName::from).collect();
    names.sort();
    for name in names {
        show_again(shared, &name);
    }
}

/// Before the first look at everything nothing is judged.
fn show_again(shared: &mut Shared, name: &NodeName) {
    if !shared.has_begun {
        return;
    }
    if let Some(node) = shared.caches.nodes.get(&Key::cluster(name.as_str())).cloned() {
        shared.notify(Notice::Node(Observed::Now(Arc::clone(&node), Some(node))));
    }
}
