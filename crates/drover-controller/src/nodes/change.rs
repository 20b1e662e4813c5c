//! What changes of nodes mean: the view follows them, and jobs that they concern are evaluated.

use std::sync::Arc;

use drover_api::allocation::ClientStatus;
use drover_api::client_node::NodePhase;
use drover_api::job::{EvalTrigger, JobType};
use drover_api::{Allocation, ClientNode};
use drover_core::ids::{JobKey, NodeName};
use drover_core::model::Node;
use drover_core::scheduler::feasible;
use drover_core::triggers::Consequences;
use drover_store::convert;

use super::state::{NodeChange, NodeKnowledge, Nodes};
use crate::cache::Observed;
use crate::finalizers;
use crate::shared::Shared;
impl Nodes {
    /// Whether a node is being drained.
    pub(crate) fn is_draining(&self, node: &NodeName) -> bool {
        self.drains.under_way.contains_key(node)
    }

    /// Takes in what changed of an allocation: its node may be back, a drain may go on.
    pub(crate) fn on_allocation(&mut self, shared: &mut Shared, object: &Allocation, consequences: &Consequences) {
        // That one is lost is a leader's word, everything else its agent's.
        let is_lost = object.status.as_ref().is_some_and(|status| status.client_status == ClientStatus::Lost);
        if consequences.is_reconnected && !is_lost {
            // An agent that reports is there: its next heartbeat may be seconds away.
            self.take_beat(shared, &NodeName::from(object.spec.node_name.as_str()));
        }
        if consequences.concerns_drain {
            let namespace = object.metadata.namespace.clone().unwrap_or_default();
            self.look_at_drains(shared, &JobKey::new(namespace, object.spec.job_name.clone()));
        }
    }

    /// Hears of the nodes whose agents have reported, while no leader watched, on what was disconnected: they are back
    /// as far as anyone knows, and nothing of theirs is disconnected once more.
    pub(crate) fn begin(&mut self, shared: &mut Shared) {
        let is_back = |node: &NodeName| {
            let mut there = shared.view.allocs_on_node(node);
            there.any(|alloc| alloc.needs_reconnect() && alloc.client == ClientStatus::Running)
        };
        let disconnected = self.known.iter().filter(|(_, known)| known.phase == Some(NodePhase::Disconnected));
        let mut back: Vec<NodeName> = disconnected.map(|(node, _)| node.clone()).filter(is_back).collect();
        back.sort();
        for node in back {
            self.hear(shared, &node);
        }
    }

    /// Takes in a node that is new, changed or gone.
    pub(crate) fn on_change(&mut self, shared: &mut Shared, observed: Observed<ClientNode>) -> NodeChange {
        shared.recorder.node(&observed);
        match observed {
            Observed::Now(object, _) => self.on_node_there(shared, object),
            Observed::Gone(object) => {
                let name = NodeName::from(object.metadata.name.clone().unwrap_or_default());
                let before = shared.view.remove_node(&name);
                self.known.remove(&name);
                self.heartbeats.forget(&name);
                self.drains.is_due |= self.drains.under_way.remove(&name).is_some();
                Self::evaluate_around(shared, &name);
                finalizers::settle_node(shared, &name);
                self.publish_ttl(shared);
                NodeChange { before, now: None }
            }
        }
    }

    pub(super) fn on_node_there(&mut self, shared: &mut Shared, object: Arc<ClientNode>) -> NodeChange {
        let name = NodeName::from(object.metadata.name.clone().unwrap_or_default());
        let stored = object.status.clone().unwrap_or_default();
        let is_new = !self.known.contains_key(&name);
        let known = self.known.entry(name.clone()).or_insert_with(|| NodeKnowledge {
            phase: Some(stored.phase),
            phase_changed_at: stored.phase_changed_at,
            events: stored.events.clone(),
            drain: stored.drain.clone(),
            ..NodeKnowledge::default()
        });
        if known.phase.is_none() {
            known.phase = Some(stored.phase);
        }
        if is_new {
            if stored.phase == NodePhase::Down {
                finalizers::watch_absence(shared, &name);
            } else {
                let elapsed = shared.elapsed();
                self.heartbeats.ledger.expect(name.clone(), elapsed);
            }
            self.publish_ttl(shared);
        }
        let (before, node) = self.show_node(shared, &name, &object);
        shared.due.nodes.insert(name.clone());
        self.note_drain(shared, &name, &object);
        if stored.phase != NodePhase::Ready {
            self.note_contact(shared, &name);
        }
        let is_other = before.as_deref().is_none_or(|before| !convert::is_same_to_scheduler(before, &node));
        if is_other && (convert::changed_sides(before.as_deref(), &node) || node.is_ready()) {
            Self::evaluate_around(shared, &name);
        }
        NodeChange { before, now: Some((node, object)) }
    }

    /// Puts a node into the view, as far as its object and what is known besides say; returns how it was there before,
    /// and how it is now.
    pub(super) fn show_node(
        &mut self,
        shared: &mut Shared,
        name: &NodeName,
        object: &ClientNode,
    ) -> (Option<Arc<Node>>, Node) {
        let mut node = convert::node(object);
        let counted = Self::counted_plugins(shared, name, &node.csi);
        node.csi = counted.csi;
        if let Some(known) = self.known.get_mut(name) {
            known.ignored_plugins = counted.ignored;
        }
        let is_back = self.known.get(name).is_some_and(NodeKnowledge::is_back);
        if node.phase == NodePhase::Disconnected && is_back {
            node.phase = NodePhase::Initializing;
        }
        node.is_eligible &= !self.heartbeats.held.contains_key(name) && !self.heartbeats.suspects.contains(name);
        let before = shared.view.node(name).cloned();
        shared.view.put_node(node.clone());
        (before, node)
    }

    pub(super) fn is_marked(&self, name: &NodeName, phase: NodePhase) -> bool {
        self.known.get(name).is_some_and(|known| known.phase == Some(phase))
    }

    /// Evaluates the jobs that a change of a node concerns: those on it, those on every node, those that wait for room.
    pub(super) fn evaluate_around(shared: &mut Shared, name: &NodeName) {
        let mut jobs: Vec<JobKey> = shared
            .view
            .allocs_on_node(name)
            .filter(|alloc| !alloc.is_client_terminal())
            .map(|alloc| alloc.job.clone())
            .collect();
        let covers = |definition| shared.view.node(name).is_none_or(|node| feasible::is_covered(node, definition));
        let everywhere = shared.view.jobs().filter(|job| {
            let is_per_node = matches!(job.definition.job_type(), JobType::System | JobType::Sysbatch);
            is_per_node && !job.stopped && covers(&job.definition)
        });
        jobs.extend(everywhere.map(|job| job.key.clone()));
        jobs.sort();
        jobs.dedup();
        for job in jobs {
            shared.enqueue(&job, EvalTrigger::NodeUpdate);
        }
        shared.free_node(name);
    }
}
