//! What changes of nodes and their Leases mean: who is ready, who is down, and what ClientNode status says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::client_node::{
    ClientNodeStatus, CsiRequest, Drain, DrainState, DriverInfo, Eligibility, Fingerprint, NodeColumns,
    NodeConditionType as Type, NodeEvent, NodePhase, NodeReason as Reason, NodeResources,
};
use drover_api::condition::{Condition, Wanted, merged};
use drover_api::job::{EvalTrigger, JobType};
use drover_api::{ClientNode, field_manager};
use drover_core::ids::{JobKey, NodeName};
use drover_core::model::Node;
use drover_core::node::heartbeat::{self, Allowed, Expired, SLOW_PAUSE, Slowed};
use drover_core::node::phase;
use drover_core::scheduler::feasible;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cache::Seen;
use crate::calm::Turn;
use crate::status::{self, Memo};
use crate::term::{Done, RETRY, Term, Wake};
use drover_api::LEADER_LEASE;
use drover_store::convert;
use drover_store::events::{Happening, Severity};
use drover_store::{Change, Key, Ownership, Part, Precondition, Store, StoreError, status_body};

/// The `ConfigMap` that carries the TTL, and its key.
pub(super) const HEARTBEAT_CONFIG: (&str, &str) = ("drover-heartbeat", "ttlSeconds");
/// Events that a node's status keeps.
const KEPT_EVENTS: usize = 10;

/// What the leader knows of a node besides its object.
#[derive(Debug, Default)]
pub(super) struct NodeKnowledge {
    phase: Option<NodePhase>,
    phase_changed_at: Option<Timestamp>,
    events: Vec<NodeEvent>,
    sent: Option<(Arc<Value>, Instant)>,
    /// The status as it was wanted last, with its JSON: mostly it is wanted so again.
    wanted: Memo<Shown>,
    is_writing: bool,
    /// The drain under way, or the last one.
    pub(super) drain: Option<DrainState>,
    /// What the drain under way was asked to do when its deadline was set.
    pub(super) drain_wish: Option<Drain>,
}

/// The controller's part of a node's status.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    observed_generation: i64,
    phase: NodePhase,
    phase_changed_at: Option<Timestamp>,
    allocatable: NodeResources,
    drain: Option<DrainState>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    csi_requests: BTreeMap<String, CsiRequest>,
    events: Vec<NodeEvent>,
    columns: NodeColumns,
    conditions: Vec<Condition<Type, Reason>>,
}

/// How a status differs from the one that was written last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Differs {
    /// In phase or a condition.
    Urgently,
    /// In what nobody waits for.
    Calmly {
        /// When the next one may be written.
        not_before: Option<Instant>,
    },
}

impl NodeKnowledge {
    /// Whether it was heard of again.
    fn is_back(&self) -> bool {
        matches!(self.phase, Some(NodePhase::Initializing | NodePhase::Ready))
    }
}

impl<S: Store> Term<S> {
    pub(super) fn on_node(&mut self, seen: Seen<ClientNode>) {
        self.numbers.node(&seen);
        match seen {
            Seen::Now(object, _) => self.on_node_there(&object),
            Seen::Gone(object) => {
                let name = NodeName::from(object.metadata.name.clone().unwrap_or_default());
                if let Some(node) = self.view.remove_node(&name) {
                    self.forget_plugins_of(&node);
                }
                self.known_nodes.remove(&name);
                self.ledger.forget(&name);
                self.heard.remove(&name);
                self.held.remove(&name);
                self.suspects.remove(&name);
                self.is_drain_due |= self.drains.remove(&name).is_some();
                self.evaluate_around(&name);
                self.settle_node(&name);
                self.publish_ttl();
            }
        }
    }

    fn on_node_there(&mut self, object: &ClientNode) {
        let name = NodeName::from(object.metadata.name.clone().unwrap_or_default());
        let stored = object.status.clone().unwrap_or_default();
        let is_new = !self.known_nodes.contains_key(&name);
        let known = self.known_nodes.entry(name.clone()).or_insert_with(|| NodeKnowledge {
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
                self.watch_absence(&name);
            } else {
                let elapsed = self.elapsed();
                self.ledger.expect(name.clone(), elapsed);
            }
            self.publish_ttl();
        }
        let (before, node) = self.show_node(&name, object);
        self.dirty_nodes.insert(name.clone());
        self.note_plugins(before.as_deref(), &node, object);
        self.note_drain(&name, object);
        if stored.phase != NodePhase::Ready {
            self.welcome(&name);
        }
        let is_other = before.as_deref().is_none_or(|before| !convert::is_same_to_scheduler(before, &node));
        if is_other && (convert::changed_sides(before.as_deref(), &node) || node.is_ready()) {
            self.evaluate_around(&name);
        }
    }

    /// Puts a node into the view, as far as its object and what is known besides say; returns how it was there before, and how it
    /// is now.
    fn show_node(&mut self, name: &NodeName, object: &ClientNode) -> (Option<Arc<Node>>, Node) {
        let mut node = convert::node(object);
        let is_back = self.known_nodes.get(name).is_some_and(NodeKnowledge::is_back);
        if node.phase == NodePhase::Disconnected && is_back {
            node.phase = NodePhase::Initializing;
        }
        node.is_eligible &= !self.held.contains_key(name) && !self.suspects.contains(name);
        let before = self.view.node(name).cloned();
        self.view.put_node(node.clone());
        (before, node)
    }

    fn is_marked(&self, name: &NodeName, phase: NodePhase) -> bool {
        self.known_nodes.get(name).is_some_and(|known| known.phase == Some(phase))
    }

    /// Evaluates the jobs that a change of a node concerns: those on it, those on every node, those that wait for room.
    fn evaluate_around(&mut self, name: &NodeName) {
        let mut jobs: Vec<JobKey> = self
            .view
            .allocs_on_node(name)
            .filter(|alloc| !alloc.is_client_terminal())
            .map(|alloc| alloc.job.clone())
            .collect();
        let covers = |definition| self.view.node(name).is_none_or(|node| feasible::is_covered(node, definition));
        let everywhere = self.view.jobs().filter(|job| {
            let is_per_node = matches!(job.definition.job_type(), JobType::System | JobType::Sysbatch);
            is_per_node && !job.stopped && covers(&job.definition)
        });
        jobs.extend(everywhere.map(|job| job.key.clone()));
        jobs.sort();
        jobs.dedup();
        for job in jobs {
            self.enqueue(&job, EvalTrigger::NodeUpdate);
        }
        self.free_node(name);
    }

    pub(super) fn on_lease_change(&mut self, change: Change<Lease>) {
        let was_synced = self.leases.is_synced();
        if was_synced && matches!(change, Change::Restarted) {
            let elapsed = self.elapsed();
            self.ledger.blink(elapsed);
        }
        for seen in self.leases.take(change) {
            if let Seen::Now(lease, before) = seen {
                self.on_lease(&lease, before.is_some() || was_synced);
            }
        }
    }

    /// A Lease that changed while this process watched is a beat; one that was merely there is not.
    fn on_lease(&mut self, lease: &Lease, has_changed: bool) {
        let name = lease.metadata.name.clone().unwrap_or_default();
        let elapsed = self.elapsed();
        if name == LEADER_LEASE {
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
            if holder == Some(self.identity.as_str()) {
                self.ledger.prove_live(elapsed);
                self.mark_silent();
            }
            return;
        }
        let Some(node) = name.strip_prefix("node-").map(NodeName::from) else { return };
        if !has_changed {
            return;
        }
        self.ledger.beat(node.clone(), elapsed);
        self.heard.insert(node.clone());
        self.welcome(&node);
    }

    /// Notes that a node is heard of: it is ready, or it is asked first how its allocations fare.
    pub(super) fn welcome(&mut self, node: &NodeName) {
        let Some(phase) = self.known_nodes.get(node).and_then(|known| known.phase) else { return };
        if !self.heard.contains(node) || phase == NodePhase::Ready {
            return;
        }
        if phase == NodePhase::Disconnected
            && let Some(known) = self.view.node(node)
        {
            // Its agent may report before the new phase is seen here: what comes is no allocation that is cut off anew.
            let known = Node { phase: NodePhase::Initializing, ..(**known).clone() };
            self.view.put_node(known);
        }
        match phase::after_beat(&self.view, node, phase) {
            next if next == phase => {}
            NodePhase::Initializing => {
                self.set_phase(node, NodePhase::Initializing, "it is back and has to report on its allocations");
            }
            next => self.set_phase(node, next, "heartbeats arrive"),
        }
    }

    fn mark_silent(&mut self) {
        let view = &self.view;
        let expired = self.ledger.expire(|node| view.node(node).map(|node| node.pool.as_str()));
        self.hold(&expired);
        for node in expired.nodes {
            self.heard.remove(&node);
            if !self.known_nodes.contains_key(&node) || self.is_marked(&node, NodePhase::Down) {
                continue;
            }
            tracing::warn!(%node, "a node has been silent for too long");
            self.numbers.silent(self.view.node(&node).map_or("", |known| known.pool.as_str()));
            self.judge_silent(&node);
        }
    }

    /// Notes which silent nodes are marked later, because most of their pool fell silent at once, and which are late beside nodes that
    /// are marked: nothing new is placed on them.
    fn hold(&mut self, expired: &Expired) {
        let mut held = BTreeMap::new();
        for pool in &expired.slowed {
            let why: Arc<str> = format!(
                "no heartbeat arrived in time, but most nodes of pool {} fell silent at once; look at their network first: \
                 until most are heard of again, one of them is marked down every {} s",
                pool.pool,
                SLOW_PAUSE.as_secs()
            )
            .into();
            if !self.held.values().any(|known| *known == why) {
                self.report_slowed(pool);
            }
            held.extend(pool.held.iter().map(|node| (node.clone(), Arc::clone(&why))));
        }
        let before = self.avoided();
        self.held = held;
        self.suspects.clone_from(&expired.suspects);
        let now = self.avoided();
        for node in now.difference(&before) {
            self.put_node_again(node);
        }
        // What is marked now stays as it is until its new phase is stored.
        for node in before.difference(&now).filter(|node| !expired.nodes.contains(node)) {
            self.put_node_again(node);
            self.evaluate_around(node);
        }
    }

    /// The nodes that are silent and not marked, on which nothing new is placed.
    fn avoided(&self) -> BTreeSet<NodeName> {
        self.held.keys().chain(&self.suspects).cloned().collect()
    }

    fn report_slowed(&mut self, pool: &Slowed) {
        let (name, n_silent, n_nodes) = (&pool.pool, pool.n_silent, pool.n_nodes);
        tracing::warn!(pool = %name, n_silent, n_nodes, "most nodes of a pool fell silent at once; they are marked one after the other");
        let Some(object) = pool.held.first().and_then(|node| self.nodes.get(&Key::cluster(node.as_str()))).cloned()
        else {
            return;
        };
        let note = format!(
            "{n_silent} of {n_nodes} nodes of pool {name} fell silent at once; look at their network first: until most are heard of \
             again, one of them is marked down every {} s",
            SLOW_PAUSE.as_secs()
        );
        let occasion = self.clock.now().to_string();
        let severity = Severity::Warning;
        self.report(
            &*object,
            &Happening { severity, reason: "PoolSilent", action: "Heartbeat", note, occasion: &occasion },
        );
    }

    /// Shows a node to the scheduler as it is stored; one that is held may take nothing new.
    fn put_node_again(&mut self, name: &NodeName) {
        self.dirty_nodes.insert(name.clone());
        let Some(object) = self.nodes.get(&Key::cluster(name.as_str())).cloned() else { return };
        self.show_node(name, &object);
    }

    /// A silent node is cut off while an allocation there may be away, and then down.
    pub(super) fn judge_silent(&mut self, node: &NodeName) {
        let Some(phase) = self.known_nodes.get(node).and_then(|known| known.phase) else { return };
        let now = self.clock.now();
        if self.heard.contains(node) || phase == NodePhase::Down {
            return;
        }
        let next = phase::after_silence(&self.view, node, phase, now);
        if next == NodePhase::Down {
            let why = if phase == NodePhase::Disconnected {
                "nothing there may be away any longer"
            } else {
                "no heartbeat arrived in time"
            };
            self.set_phase(node, next, why);
            return self.watch_absence(node);
        }
        if next != phase {
            self.set_phase(node, next, "no heartbeat arrived in time; allocations there may be away for a while");
        }
        if let Some(end) = phase::window_ends_at(&self.view, node, now) {
            let at = self.instant_of(end);
            self.wake_at(at, Wake::NodeSilent(node.clone()));
        }
    }

    /// Adds an event to a node's status.
    pub(super) fn note_event(&mut self, name: &NodeName, subsystem: &str, message: String) {
        let time = self.clock.now();
        let Some(known) = self.known_nodes.get_mut(name) else { return };
        known.events.push(NodeEvent { time, subsystem: subsystem.to_owned(), message });
        let over = known.events.len().saturating_sub(KEPT_EVENTS);
        known.events.drain(..over);
        self.dirty_nodes.insert(name.clone());
    }

    fn set_phase(&mut self, name: &NodeName, phase: NodePhase, why: &str) {
        let now = self.clock.now();
        let Some(known) = self.known_nodes.get_mut(name) else { return };
        known.phase = Some(phase);
        known.phase_changed_at = Some(now);
        self.note_event(name, "Cluster", format!("{phase}: {why}"));
        let Some(object) = self.nodes.get(&Key::cluster(name.as_str())).cloned() else { return };
        let (severity, reason) = match phase {
            NodePhase::Ready => (Severity::Normal, "Ready"),
            NodePhase::Down => (Severity::Warning, "Down"),
            NodePhase::Disconnected => (Severity::Warning, "Disconnected"),
            NodePhase::Initializing => (Severity::Normal, "Registered"),
        };
        let occasion = now.to_string();
        self.report(
            &*object,
            &Happening { severity, reason, action: "Heartbeat", note: why.to_owned(), occasion: &occasion },
        );
    }

    /// Looks at a node's status: a phase or a condition that differs is written at once, the rest when there is time.
    pub(super) fn refresh_node(&mut self, name: &NodeName) {
        let Some((object, wanted, differs)) = self.compare_node(name) else { return };
        match differs {
            Differs::Urgently => self.write_node_status(name, &object, wanted),
            Differs::Calmly { .. } => self.calm_nodes.join(name),
        }
    }

    /// Writes the statuses whose turn it is.
    pub(super) fn write_calm_nodes(&mut self) {
        let now = Instant::now();
        loop {
            match self.calm_nodes.next(self.n_plans > 0, now) {
                Turn::Nobody => return,
                Turn::At(at) => {
                    if self.calm_wake.is_none() {
                        self.calm_wake = Some(self.wake_at(at, Wake::CalmNodes));
                    }
                    return;
                }
                Turn::Of(name) => match self.compare_node(&name) {
                    Some((_, _, Differs::Calmly { not_before: Some(at) })) if at > now => {
                        self.wake_at(at, Wake::NodeStatus(name));
                    }
                    Some((object, wanted, _)) => {
                        self.calm_nodes.begin(&name);
                        self.write_node_status(&name, &object, wanted);
                    }
                    None => {}
                },
            }
        }
    }

    /// How a node's status differs from the one that was written last; none where it does not, or where a write is under way.
    fn compare_node(&mut self, name: &NodeName) -> Option<(Arc<ClientNode>, Arc<Value>, Differs)> {
        let object = self.nodes.get(&Key::cluster(name.as_str())).cloned()?;
        let wanted = self.wanted_node_status(name, &object);
        let is_overwritten = self.claims.are_overwritten(name, &object);
        let known = self.known_nodes.get_mut(name).filter(|known| !known.is_writing)?;
        let wanted = known.wanted.json(wanted);
        let stored = if known.sent.is_none() { stored_part(&object) } else { None };
        let (last, sent_at) = match &known.sent {
            Some((sent, at)) => (Some(&**sent), Some(*at)),
            None => (stored.as_ref(), None),
        };
        let differs = match last {
            // Another leader that is not gone yet may have put its own requests in the place of ours.
            Some(last) if status::is_same(&wanted, last) && !is_overwritten => return None,
            // A volume waits for what is asked of an agent.
            Some(last) if !status::is_urgent(&wanted, last) && wanted["csiRequests"] == last["csiRequests"] => {
                Differs::Calmly { not_before: sent_at.map(|at| at + status::PAUSE) }
            }
            Some(_) | None => Differs::Urgently,
        };
        Some((object, wanted, differs))
    }

    fn write_node_status(&mut self, name: &NodeName, object: &ClientNode, wanted: Arc<Value>) {
        let Some(known) = self.known_nodes.get_mut(name) else { return };
        known.is_writing = true;
        known.sent = Some((Arc::clone(&wanted), Instant::now()));
        let (store, name) = (self.store.clone(), name.clone());
        let precondition = Precondition::same_object(&object.metadata);
        self.writes.spawn(async move {
            let key = Key::cluster(name.as_str());
            let (manager, body) = (field_manager::CONTROLLER_NODE, status_body(Value::clone(&wanted)));
            let result = store.apply(&key, Part::Status, manager, Ownership::Force, &precondition, body).await;
            Done::NodeStatus(name, Box::new(result))
        });
    }

    fn wanted_node_status(&self, name: &NodeName, object: &ClientNode) -> Shown {
        let (no_status, no_print) = (ClientNodeStatus::default(), Fingerprint::default());
        let stored = object.status.as_ref().unwrap_or(&no_status);
        let print = stored.fingerprint.as_ref().unwrap_or(&no_print);
        let known = self.known_nodes.get(name);
        let phase = known.and_then(|known| known.phase).unwrap_or(stored.phase);
        let node = self.view.node(name).map(|node| node.allocatable).unwrap_or_default();
        let (mut n, mut cpu, mut memory) = (0_i64, 0, 0);
        for alloc in self.view.allocs_on_node(name).filter(|alloc| !alloc.is_client_terminal()) {
            n += 1;
            cpu += alloc.resources.tasks.values().map(|task| task.cpu).sum::<i64>();
            memory += alloc.resources.tasks.values().map(|task| task.memory_mb).sum::<i64>();
        }
        let healthy: Vec<&str> =
            print.drivers.iter().filter(|(_, info)| info.healthy).map(|(name, _)| name.as_str()).collect();
        let version = print.attributes.get("drover.version").cloned();
        let dash = || "-".to_owned();
        let columns = NodeColumns {
            drain: if object.spec.drain.is_some() { "true".to_owned() } else { "false".to_owned() },
            allocs: n.to_string(),
            cpu: format!("{cpu}/{}", node.cpu),
            memory: format!("{memory}/{}", node.memory_mb),
            drivers: if healthy.is_empty() { dash() } else { healthy.join(",") },
            version: version.unwrap_or_else(dash),
        };
        let generation = object.metadata.generation.unwrap_or(0);
        let held = self.held.get(name).map(|why| &**why);
        let wanted = conditions(phase, held, object.spec.eligibility, object.spec.drain.is_some(), &print.drivers);
        let allocatable = NodeResources {
            cpu: node.cpu,
            memory_mb: node.memory_mb,
            disk_mb: node.disk_mb,
            cores: (print.resources.cores - i64::try_from(print.reserved.cores.len()).unwrap_or(0)).max(0),
        };
        Shown {
            observed_generation: generation,
            phase,
            phase_changed_at: known.and_then(|known| known.phase_changed_at),
            allocatable,
            drain: known.and_then(|known| known.drain.clone()),
            csi_requests: self.claims.requests_to(name),
            events: known.map(|known| known.events.clone()).unwrap_or_default(),
            columns,
            conditions: merged(&stored.conditions, wanted, generation, self.clock.now()),
        }
    }

    pub(super) fn on_node_status(&mut self, name: &NodeName, result: Result<ClientNode, StoreError>) {
        self.calm_nodes.end(name);
        if let Some(known) = self.known_nodes.get_mut(name) {
            known.is_writing = false;
            if result.is_err() {
                known.sent = None;
            }
        }
        match result {
            Ok(object) => {
                if let Some(seen) = self.nodes.update(object) {
                    self.on_node(seen);
                }
                self.dirty_nodes.insert(name.clone());
            }
            Err(StoreError::NotFound(_)) => {}
            Err(error) => {
                tracing::warn!(node = %name, %error, "a node's status was not written");
                self.wake_in(RETRY, Wake::NodeStatus(name.clone()));
            }
        }
    }

    /// Publishes the TTL where the number of nodes changes it.
    pub(super) fn publish_ttl(&mut self) {
        let settings = self.config.heartbeat;
        let ttl = heartbeat::ttl(settings.min_ttl(), self.nodes.len(), settings.max_per_second);
        self.ledger.set_allowed(Allowed { ttl, grace: settings.grace() });
        if self.published_ttl == Some(ttl) {
            return;
        }
        self.published_ttl = Some(ttl);
        let (store, namespace) = (self.store.clone(), self.config.namespace.clone());
        self.writes.spawn(async move { Done::Ttl(Box::new(write_ttl(store, namespace, ttl).await)) });
    }

    pub(super) fn on_ttl_published(&mut self, result: Result<ConfigMap, StoreError>) {
        if let Err(error) = result {
            tracing::warn!(%error, "the heartbeat's TTL could not be published");
            self.published_ttl = None;
            self.wake_in(RETRY, Wake::Ttl);
        }
    }
}

async fn write_ttl<S: Store>(store: S, namespace: String, ttl: Duration) -> Result<ConfigMap, StoreError> {
    let (name, field) = HEARTBEAT_CONFIG;
    let key = Key::namespaced(namespace, name);
    let wanted = seconds(ttl);
    if let Some(map) = store.get::<ConfigMap>(&key).await? {
        if map.data.iter().flatten().any(|(known, value)| known == field && *value == wanted) {
            return Ok(map);
        }
        let body = json!({ "data": { field: wanted } });
        return store.merge(&key, Part::Spec, &Precondition::same_object(&map.metadata), body).await;
    }
    let map = ConfigMap {
        metadata: kube::core::ObjectMeta {
            name: Some(key.name.clone()),
            namespace: key.namespace.clone(),
            ..Default::default()
        },
        data: Some(BTreeMap::from([(field.to_owned(), wanted)])),
        ..ConfigMap::default()
    };
    store.create(&map).await
}

/// Seconds, with a fraction where there is one.
fn seconds(duration: Duration) -> String {
    let text = format!("{:.3}", duration.as_secs_f64());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The controller's part of a stored status, for comparison with what it would write.
fn stored_part(object: &ClientNode) -> Option<Value> {
    let status = object.status.as_ref().filter(|status| status.observed_generation >= 0)?;
    let mut stored = json!({
        "observedGeneration": status.observed_generation,
        "phase": status.phase,
        "phaseChangedAt": status.phase_changed_at,
        "allocatable": status.allocatable,
        "drain": status.drain,
        "events": status.events,
        "columns": status.columns,
        "conditions": status.conditions,
    });
    if !status.csi_requests.is_empty() {
        stored["csiRequests"] = json!(status.csi_requests);
    }
    Some(stored)
}

fn conditions(
    phase: NodePhase,
    held: Option<&str>,
    eligibility: Eligibility,
    is_draining: bool,
    drivers: &BTreeMap<String, DriverInfo>,
) -> Vec<Wanted<Type, Reason>> {
    let is_eligible = eligibility == Eligibility::Eligible;
    let (ready, rest) = match phase {
        NodePhase::Ready if is_draining => (
            Wanted::no(Type::Ready, Reason::Draining, "it is being drained"),
            Some((Type::Reconciling, Reason::Draining)),
        ),
        NodePhase::Ready if !is_eligible => {
            (Wanted::no(Type::Ready, Reason::Ineligible, "an operator made it ineligible"), None)
        }
        NodePhase::Ready => (Wanted::yes(Type::Ready, Reason::HeartbeatsArrive, "heartbeats arrive in time"), None),
        NodePhase::Initializing => (
            Wanted::unknown(Type::Ready, Reason::Initializing, "no heartbeat has arrived yet"),
            Some((Type::Reconciling, Reason::Initializing)),
        ),
        NodePhase::Disconnected => (
            Wanted::no(
                Type::Ready,
                Reason::Disconnected,
                "no heartbeat arrived in time; its allocations may be away for a while",
            ),
            Some((Type::Reconciling, Reason::Disconnected)),
        ),
        NodePhase::Down => (
            Wanted::no(
                Type::Ready,
                Reason::Down,
                "no heartbeat arrived in time; look at its agent, or delete the ClientNode",
            ),
            Some((Type::Stalled, Reason::Down)),
        ),
    };
    let (ready, rest) = match held {
        Some(why) if phase != NodePhase::Down => {
            (Wanted::unknown(Type::Ready, Reason::PoolSilent, why), Some((Type::Reconciling, Reason::PoolSilent)))
        }
        Some(_) | None => (ready, rest),
    };
    let mut all = vec![ready.clone()];
    if let Some((kind, reason)) = rest {
        all.push(Wanted::yes(kind, reason, ready.message));
    }
    all.push(if is_eligible {
        Wanted::yes(Type::Eligible, Reason::Eligible, "new allocations may be placed on it")
    } else {
        Wanted::no(
            Type::Eligible,
            Reason::Ineligible,
            "new allocations are kept away; set spec.eligibility to eligible to allow them",
        )
    });
    let sick: Vec<&str> =
        drivers.iter().filter(|(_, info)| info.detected && !info.healthy).map(|(name, _)| name.as_str()).collect();
    all.push(if sick.is_empty() {
        Wanted::yes(Type::DriversHealthy, Reason::AllHealthy, "all detected drivers are healthy")
    } else {
        Wanted::no(Type::DriversHealthy, Reason::DriverUnhealthy, format!("unhealthy: {}", sick.join(", ")))
    });
    all
}
