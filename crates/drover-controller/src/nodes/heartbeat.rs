//! Heartbeats: who is ready, who is disconnected, who is down, and how often agents have to beat.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::LEADER_LEASE;
use drover_api::client_node::{NodeEvent, NodePhase};
use drover_core::ids::NodeName;
use drover_core::model::Node;
use drover_core::node::heartbeat::{self, Allowed, Expired, SLOW_PAUSE, Slowed};
use drover_core::node::phase;
use drover_store::events::{Happening, Severity};
use drover_store::{Change, Key, StoreError};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;

use super::state::{KEPT_EVENTS, Nodes};
use crate::actions::Action;
use crate::cache::Observed;
use crate::finalizers;
use crate::shared::{RETRY, Shared};
use crate::timers::Wake;
impl Nodes {
    pub(crate) fn on_lease_change(&mut self, shared: &mut Shared, change: Change<Lease>) {
        let was_synced = shared.caches.leases.is_synced();
        if was_synced && matches!(change, Change::Restarted) {
            let elapsed = shared.elapsed();
            self.heartbeats.ledger.blink(elapsed);
        }
        for seen in shared.caches.leases.take(change) {
            if let Observed::Now(lease, before) = seen {
                self.on_lease(shared, &lease, before.is_some() || was_synced);
            }
        }
    }

    /// A Lease that changed while this process watched is a beat; one that was merely there is not.
    pub(super) fn on_lease(&mut self, shared: &mut Shared, lease: &Lease, has_changed: bool) {
        let name = lease.metadata.name.clone().unwrap_or_default();
        if name == LEADER_LEASE {
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
            if holder == Some(shared.identity.as_str()) {
                let elapsed = shared.elapsed();
                self.heartbeats.ledger.prove_live(elapsed);
                self.mark_silent(shared);
            }
            return;
        }
        let Some(node) = name.strip_prefix("node-").map(NodeName::from) else { return };
        if !has_changed {
            return;
        }
        self.take_beat(shared, &node);
    }

    /// A node has shown that it is there now, by a beat or a report.
    pub(super) fn take_beat(&mut self, shared: &mut Shared, node: &NodeName) {
        let elapsed = shared.elapsed();
        self.heartbeats.ledger.beat(node.clone(), elapsed);
        self.hear(shared, node);
    }

    /// A node is heard of, now or while no leader watched.
    pub(super) fn hear(&mut self, shared: &mut Shared, node: &NodeName) {
        self.heartbeats.heard.insert(node.clone());
        self.note_contact(shared, node);
    }

    /// Notes that a node is heard of: it is ready, or it is asked first how its allocations fare.
    pub(crate) fn note_contact(&mut self, shared: &mut Shared, node: &NodeName) {
        let Some(phase) = self.known.get(node).and_then(|known| known.phase) else { return };
        if !self.heartbeats.heard.contains(node) || phase == NodePhase::Ready {
            return;
        }
        if phase == NodePhase::Disconnected
            && let Some(known) = shared.view.node(node)
        {
            // Its agent may report before the new phase is seen here: what comes is no allocation that is disconnected
            // again.
            let known = Node { phase: NodePhase::Initializing, ..(**known).clone() };
            shared.view.put_node(known);
        }
        match phase::after_beat(&shared.view, node, phase) {
            next if next == phase => {}
            NodePhase::Initializing => {
                self.set_phase(
                    shared,
                    node,
                    NodePhase::Initializing,
                    "it is back and has to report on its allocations",
                );
            }
            next => self.set_phase(shared, node, next, "heartbeats arrive"),
        }
    }

    pub(super) fn mark_silent(&mut self, shared: &mut Shared) {
        let view = &shared.view;
        let expired = self.heartbeats.ledger.expire(|node| view.node(node).map(|node| node.pool.as_str()));
        self.hold(shared, &expired);
        for node in expired.nodes {
            self.heartbeats.heard.remove(&node);
            if !self.known.contains_key(&node) || self.is_marked(&node, NodePhase::Down) {
                continue;
            }
            tracing::warn!(%node, "a node has been silent for too long");
            shared.recorder.silent(shared.view.node(&node).map_or("", |known| known.pool.as_str()));
            self.judge_silent(shared, &node);
        }
    }

    /// Notes which silent nodes are marked later, because most of their pool fell silent at once, and which are late
    /// beside nodes that are marked: nothing new is placed on them.
    pub(super) fn hold(&mut self, shared: &mut Shared, expired: &Expired) {
        let mut held = BTreeMap::new();
        for pool in &expired.slowed {
            let why: Arc<str> = format!(
                "no heartbeat arrived in time, but most nodes of pool {} fell silent at once; look at their network first: \
                 until most are heard of again, one of them is marked down every {} s",
                pool.pool,
                SLOW_PAUSE.as_secs()
            )
            .into();
            if !self.heartbeats.held.values().any(|known| *known == why) {
                Self::report_slowed(shared, pool);
            }
            held.extend(pool.held.iter().map(|node| (node.clone(), Arc::clone(&why))));
        }
        let before = self.avoided();
        self.heartbeats.held = held;
        self.heartbeats.suspects.clone_from(&expired.suspects);
        let now = self.avoided();
        for node in now.difference(&before) {
            self.put_node_again(shared, node);
        }
        // What is marked now stays as it is until its new phase is stored.
        for node in before.difference(&now).filter(|node| !expired.nodes.contains(node)) {
            self.put_node_again(shared, node);
            Self::evaluate_around(shared, node);
        }
    }

    /// The nodes that are silent and not marked, on which nothing new is placed.
    pub(super) fn avoided(&self) -> BTreeSet<NodeName> {
        self.heartbeats.held.keys().chain(&self.heartbeats.suspects).cloned().collect()
    }

    pub(super) fn report_slowed(shared: &mut Shared, pool: &Slowed) {
        let (name, n_silent, n_nodes) = (&pool.pool, pool.n_silent, pool.n_nodes);
        tracing::warn!(pool = %name, n_silent, n_nodes, "most nodes of a pool fell silent at once; they are marked one after the other");
        let Some(object) =
            pool.held.first().and_then(|node| shared.caches.nodes.get(&Key::cluster(node.as_str()))).cloned()
        else {
            return;
        };
        let note = format!(
            "{n_silent} of {n_nodes} nodes of pool {name} fell silent at once; look at their network first: until most are heard of \
             again, one of them is marked down every {} s",
            SLOW_PAUSE.as_secs()
        );
        let occasion = shared.clock.now().to_string();
        let severity = Severity::Warning;
        shared.report(
            &*object,
            &Happening { severity, reason: "PoolSilent", action: "Heartbeat", note, occasion: &occasion },
        );
    }

    /// Shows a node to the scheduler as it is stored; one that is held may take nothing new.
    pub(super) fn put_node_again(&mut self, shared: &mut Shared, name: &NodeName) {
        shared.due.nodes.insert(name.clone());
        let Some(object) = shared.caches.nodes.get(&Key::cluster(name.as_str())).cloned() else { return };
        self.show_node(shared, name, &object);
    }

    /// A silent node is disconnected while an allocation there may be away, and then down.
    pub(crate) fn judge_silent(&mut self, shared: &mut Shared, node: &NodeName) {
        let Some(phase) = self.known.get(node).and_then(|known| known.phase) else { return };
        let now = shared.clock.now();
        if self.heartbeats.heard.contains(node) || phase == NodePhase::Down {
            return;
        }
        let next = phase::after_silence(&shared.view, node, phase, now);
        if next == NodePhase::Down {
            let why = if phase == NodePhase::Disconnected {
                "nothing there may be away any longer"
            } else {
                "no heartbeat arrived in time"
            };
            self.set_phase(shared, node, next, why);
            return finalizers::watch_absence(shared, node);
        }
        if next != phase {
            self.set_phase(
                shared,
                node,
                next,
                "no heartbeat arrived in time; allocations there may be away for a while",
            );
        }
        if let Some(end) = phase::window_ends_at(&shared.view, node, now) {
            let at = shared.instant_of(end);
            shared.wake_at(at, Wake::NodeSilent(node.clone()));
        }
    }

    /// Adds an event to a node's status.
    pub(crate) fn note_event(&mut self, shared: &mut Shared, name: &NodeName, subsystem: &str, message: String) {
        let time = shared.clock.now();
        let Some(known) = self.known.get_mut(name) else { return };
        known.events.push(NodeEvent { time, subsystem: subsystem.to_owned(), message });
        let over = known.events.len().saturating_sub(KEPT_EVENTS);
        known.events.drain(..over);
        shared.due.nodes.insert(name.clone());
    }

    pub(super) fn set_phase(&mut self, shared: &mut Shared, name: &NodeName, phase: NodePhase, why: &str) {
        let now = shared.clock.now();
        let Some(known) = self.known.get_mut(name) else { return };
        known.phase = Some(phase);
        known.phase_changed_at = Some(now);
        self.note_event(shared, name, "Cluster", format!("{phase}: {why}"));
        let Some(object) = shared.caches.nodes.get(&Key::cluster(name.as_str())).cloned() else { return };
        let (severity, reason) = match phase {
            NodePhase::Ready => (Severity::Normal, "Ready"),
            NodePhase::Down => (Severity::Warning, "Down"),
            NodePhase::Disconnected => (Severity::Warning, "Disconnected"),
            NodePhase::Initializing => (Severity::Normal, "Registered"),
        };
        let occasion = now.to_string();
        shared.report(
            &*object,
            &Happening { severity, reason, action: "Heartbeat", note: why.to_owned(), occasion: &occasion },
        );
    }

    /// Publishes the TTL where the number of nodes changes it.
    pub(crate) fn publish_ttl(&mut self, shared: &mut Shared) {
        let settings = shared.config.heartbeat;
        let ttl = heartbeat::ttl(settings.min_ttl(), shared.caches.nodes.len(), settings.max_per_second);
        self.heartbeats.ledger.set_allowed(Allowed { ttl, grace: settings.grace() });
        if self.heartbeats.published_ttl == Some(ttl) {
            return;
        }
        self.heartbeats.published_ttl = Some(ttl);
        shared.outbox.push(Action::Ttl(shared.config.namespace.clone(), ttl));
    }

    pub(crate) fn on_ttl_published(&mut self, shared: &mut Shared, result: Result<ConfigMap, StoreError>) {
        if let Err(error) = result {
            tracing::warn!(%error, "the heartbeat's TTL could not be published");
            self.heartbeats.published_ttl = None;
            shared.wake_in(RETRY, Wake::Ttl);
        }
    }
}
