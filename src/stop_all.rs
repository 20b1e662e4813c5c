//! `droverd stop-all`: what the chart runs before it is uninstalled, where that is asked for. Every node is drained by
//! force, and nothing else happens until no task runs any more.
//!
//! Input: nodes and allocations. Output: one request per node; the controller and the agents do the rest, so they must
//! still be there. Nodes stay ineligible: else the controller would place everything again before it is deleted. Must
//! never touch allocations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use drover_api::allocation::ClientStatus;
use drover_api::client_node::{Eligibility, NodePhase};
use drover_api::{Allocation, ClientNode};
use futures::StreamExt;
use serde_json::json;

use drover_store::{Change, Key, KubeStore, Object, Part, Precondition, Selection, Store};

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// More names than that are not useful.
const MOST_NAMED: usize = 5;

/// The command as a process.
///
/// # Errors
/// When tasks still run after `patience`, or the API server refuses.
pub fn main(kubeconfig: Option<&Path>, patience: Duration) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        let store = KubeStore::new(drover_connect::to(kubeconfig).await?, REQUEST_TIMEOUT);
        stop_all(&store, patience).await
    })
}

async fn stop_all<S: Store>(store: &S, patience: Duration) -> anyhow::Result<()> {
    let nodes = store.list::<ClientNode>(&Selection::default()).await.context("listing nodes")?;
    let (reached, silent): (Vec<ClientNode>, Vec<ClientNode>) = nodes.into_iter().partition(answers);
    for node in &silent {
        tracing::warn!(node = node.key().name, "the agent of this node is not heard of: what runs there goes on");
    }
    for node in &reached {
        drain(store, node).await.with_context(|| format!("draining cnode/{}", node.key().name))?;
        tracing::info!(node = node.key().name, "everything on the node is to stop");
    }
    let mut running = Running::on(reached.iter().map(|node| node.key().name));
    let mut changes = store.watch::<Allocation>(Selection::default());
    let stopped = async {
        while let Some(change) = changes.next().await {
            if running.take(change) == Known::NothingRuns {
                return;
            }
        }
    };
    if tokio::time::timeout(patience, stopped).await.is_err() {
        bail!(
            "after {}s tasks still run: {}; look with `kubectl describe alloc`, then uninstall again, or with `helm uninstall --no-hooks`, which leaves them running",
            patience.as_secs(),
            running.names()
        );
    }
    tracing::info!("nothing runs any more; the nodes take nothing new until they are made eligible again");
    Ok(())
}

/// Whether the node's agent can do what it is told.
fn answers(node: &ClientNode) -> bool {
    let phase = node.status.as_ref().map_or(NodePhase::Initializing, |status| status.phase);
    !matches!(phase, NodePhase::Down | NodePhase::Disconnected)
}

async fn drain<S: Store>(store: &S, node: &ClientNode) -> anyhow::Result<()> {
    // A merge leaves what is not named: an operator's gentler request goes as a whole.
    let drain = json!({ "force": true, "deadline": null, "ignoreSystemJobs": null });
    let request = json!({ "spec": { "drain": drain, "eligibility": Eligibility::Ineligible } });
    let same = Precondition::same_object(&node.metadata);
    store.merge::<ClientNode>(&node.key(), Part::Spec, &same, request).await?;
    Ok(())
}

/// What is known of the allocations after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Not all of them, or some run.
    SomethingMayRun,
    NothingRuns,
}

/// The allocations whose tasks may run on these nodes.
#[derive(Debug)]
struct Running {
    nodes: BTreeSet<String>,
    allocs: BTreeMap<Key, String>,
    is_synced: bool,
}

impl Running {
    fn on(nodes: impl Iterator<Item = String>) -> Self {
        Self { nodes: nodes.collect(), allocs: BTreeMap::new(), is_synced: false }
    }

    fn take(&mut self, change: Change<Allocation>) -> Known {
        match change {
            Change::Restarted => {
                self.allocs.clear();
                self.is_synced = false;
            }
            Change::Present(alloc) => {
                let status = alloc.status.as_ref();
                let is_over = status
                    .is_some_and(|status| status.ended_at.is_some() || status.client_status == ClientStatus::Lost);
                if is_over || !self.nodes.contains(&alloc.spec.node_name) {
                    self.allocs.remove(&alloc.key());
                } else {
                    self.allocs.insert(alloc.key(), alloc.spec.node_name.clone());
                }
            }
            Change::Gone(alloc) => drop(self.allocs.remove(&alloc.key())),
            Change::InSync => self.is_synced = true,
            Change::Malformed(key, reason) => {
                tracing::error!(allocation = %key, reason, "an allocation cannot be read and is not waited for");
            }
            Change::Interrupted(reason) => tracing::warn!(reason, "the watch of allocations restarts"),
        }
        if self.is_synced && self.allocs.is_empty() { Known::NothingRuns } else { Known::SomethingMayRun }
    }

    fn names(&self) -> String {
        let mut names: Vec<String> =
            self.allocs.iter().take(MOST_NAMED).map(|(key, node)| format!("alloc {key} on {node}")).collect();
        if self.allocs.len() > MOST_NAMED {
            names.push(format!("{} more", self.allocs.len() - MOST_NAMED));
        }
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alloc(name: &str, node: &str, status: &serde_json::Value) -> Box<Allocation> {
        Box::new(
            serde_json::from_value(json!({
                "apiVersion": "drover.dev/v1alpha1", "kind": "Allocation",
                "metadata": { "name": name, "namespace": "shop" },
                "spec": { "jobName": "web", "jobUID": "u", "jobVersion": 0, "group": "g", "index": 0, "nodeName": node, "resources": {} },
                "status": status,
            }))
            .expect("an allocation"),
        )
    }

    #[test]
    fn it_is_over_when_all_are_known_and_nothing_is_left_on_the_nodes_that_answer() {
        let mut running = Running::on(["n-1".to_owned()].into_iter());
        let (up, over) = (json!({ "clientStatus": "running" }), json!({ "endedAt": "2026-01-01T00:00:00Z" }));
        for (change, known) in [
            (Change::Restarted, Known::SomethingMayRun),
            (Change::Present(alloc("a", "n-1", &up)), Known::SomethingMayRun),
            (Change::Present(alloc("b", "n-1", &up)), Known::SomethingMayRun),
            (Change::Present(alloc("c", "silent", &up)), Known::SomethingMayRun),
            (Change::InSync, Known::SomethingMayRun),
            (Change::Present(alloc("a", "n-1", &over)), Known::SomethingMayRun),
            (Change::Gone(alloc("b", "n-1", &up)), Known::NothingRuns),
            (Change::Restarted, Known::SomethingMayRun),
            (Change::Present(alloc("d", "n-1", &json!({ "clientStatus": "lost" }))), Known::SomethingMayRun),
            (Change::InSync, Known::NothingRuns),
        ] {
            let said = format!("{change:?}");
            assert_eq!(running.take(change), known, "{said}");
        }
    }

    #[test]
    fn of_many_that_still_run_a_few_are_named() {
        let mut running = Running::on(["n-1".to_owned()].into_iter());
        for n in 0..7 {
            running.take(Change::Present(alloc(&format!("a-{n}"), "n-1", &json!({}))));
        }
        let names = running.names();
        assert!(names.starts_with("alloc shop/a-0 on n-1, alloc") && names.ends_with("a-4 on n-1, 2 more"), "{names}");
    }
}
