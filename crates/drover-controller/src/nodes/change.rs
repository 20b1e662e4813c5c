//! What changes of nodes and their Leases mean: who is ready, who is down, and what ClientNode status says.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::client_node::{
    ClientNodeStatus, CsiRequest, Drain, DrainState, DriverInfo, Eligibility, Fingerprint, NodeColumns,
    NodeConditionType as Type, NodeEvent, NodePhase, NodeReason as Reason, NodeResources,
};
use drover_api::condition::{Condition, Wanted, merged};
use drover_api::job::{EvalTrigger, JobType};
use drover_api::{Allocation, ClientNode, LEADER_LEASE};
use drover_core::ids::{JobKey, NodeName};
use drover_core::model::Node;
use drover_core::node::heartbeat::{self, Allowed, Expired, Ledger, SLOW_PAUSE, Slowed};
use drover_core::node::phase;
use drover_core::scheduler::feasible;
use drover_core::triggers::Consequences;
use drover_store::events::{Happening, Severity};
use drover_store::{Change, Key, Precondition, StoreError, convert};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::drain::Drains;
use super::status_queue::{StatusQueue, Turn};
use crate::actions::Action;
use crate::cache::Observed;
use crate::config::ControllerConfig;
use crate::finalizers;
use crate::shared::{Notice, RETRY, Shared};
use crate::status_writes::{self, Memo};
use crate::timers::{TimerId, Wake};
use crate::volumes::Volumes;

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
    pub(super) drain_request: Option<Drain>,
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
    Quietly {
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

/// The nodes of a leader.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(super) known: HashMap<NodeName, NodeKnowledge>,
    heartbeats: Heartbeats,
    pub(super) drains: Drains,
    /// Nodes whose status differs in what nobody waits for.
    status_queue: StatusQueue,
    /// When one of them is written next.
    status_queue_timer: Option<TimerId>,
}

/// Who is heard of.
#[derive(Debug)]
struct Heartbeats {
    ledger: Ledger,
    /// Nodes that were heard of in this term.
    heard: HashSet<NodeName>,
    /// Silent nodes that are marked later, with what is told of their pool.
    held: BTreeMap<NodeName, Arc<str>>,
    /// Nodes that are late beside nodes that were marked.
    suspects: BTreeSet<NodeName>,
    published_ttl: Option<Duration>,
}

impl Heartbeats {
    fn forget(&mut self, node: &NodeName) {
        self.ledger.forget(node);
        self.heard.remove(node);
        self.held.remove(node);
        self.suspects.remove(node);
    }
}

/// What a change of a node is to others.
#[derive(Debug)]
pub(crate) struct NodeChange {
    /// The node as the scheduler saw it before; none where it is new.
    pub(crate) before: Option<Arc<Node>>,
    /// As it is now, with its object; none where it is gone.
    pub(crate) now: Option<(Node, Arc<ClientNode>)>,
}

impl Nodes {
    /// The nodes of a leader that renews its Lease so often.
    pub(crate) fn new(config: &ControllerConfig, renew_period: Duration) -> Self {
        let allowed = Allowed { ttl: config.heartbeat.min_ttl(), grace: config.heartbeat.grace() };
        Self {
            known: HashMap::new(),
            heartbeats: Heartbeats {
                ledger: Ledger::new(allowed, renew_period * 2),
                heard: HashSet::new(),
                held: BTreeMap::new(),
                suspects: BTreeSet::new(),
                published_ttl: None,
            },
            drains: Drains::default(),
            status_queue: StatusQueue::default(),
            status_queue_timer: None,
        }
    }

    /// Whether a node is being drained.
    pub(crate) fn is_draining(&self, node: &NodeName) -> bool {
        self.drains.under_way.contains_key(node)
    }

    /// Takes in what changed of an allocation: its node may be back, a drain may go on.
    pub(crate) fn on_allocation(&mut self, shared: &mut Shared, object: &Allocation, consequences: &Consequences) {
        if consequences.is_reconnected {
            self.note_contact(shared, &NodeName::from(object.spec.node_name.as_str()));
        }
        if consequences.concerns_drain {
            let namespace = object.metadata.namespace.clone().unwrap_or_default();
            self.look_at_drains(shared, &JobKey::new(namespace, object.spec.job_name.clone()));
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

    fn on_node_there(&mut self, shared: &mut Shared, object: Arc<ClientNode>) -> NodeChange {
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

    /// Puts a node into the view, as far as its object and what is known besides say; returns how it was there before, and how it
    /// is now.
    fn show_node(&mut self, shared: &mut Shared, name: &NodeName, object: &ClientNode) -> (Option<Arc<Node>>, Node) {
        let mut node = convert::node(object);
        let is_back = self.known.get(name).is_some_and(NodeKnowledge::is_back);
        if node.phase == NodePhase::Disconnected && is_back {
            node.phase = NodePhase::Initializing;
        }
        node.is_eligible &= !self.heartbeats.held.contains_key(name) && !self.heartbeats.suspects.contains(name);
        let before = shared.view.node(name).cloned();
        shared.view.put_node(node.clone());
        (before, node)
    }

    fn is_marked(&self, name: &NodeName, phase: NodePhase) -> bool {
        self.known.get(name).is_some_and(|known| known.phase == Some(phase))
    }

    /// Evaluates the jobs that a change of a node concerns: those on it, those on every node, those that wait for room.
    fn evaluate_around(shared: &mut Shared, name: &NodeName) {
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
    fn on_lease(&mut self, shared: &mut Shared, lease: &Lease, has_changed: bool) {
        let name = lease.metadata.name.clone().unwrap_or_default();
        let elapsed = shared.elapsed();
        if name == LEADER_LEASE {
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
            if holder == Some(shared.identity.as_str()) {
                self.heartbeats.ledger.prove_live(elapsed);
                self.mark_silent(shared);
            }
            return;
        }
        let Some(node) = name.strip_prefix("node-").map(NodeName::from) else { return };
        if !has_changed {
            return;
        }
        self.heartbeats.ledger.beat(node.clone(), elapsed);
        self.heartbeats.heard.insert(node.clone());
        self.note_contact(shared, &node);
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
            // Its agent may report before the new phase is seen here: what comes is no allocation that is cut off anew.
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

    fn mark_silent(&mut self, shared: &mut Shared) {
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

    /// Notes which silent nodes are marked later, because most of their pool fell silent at once, and which are late beside nodes that
    /// are marked: nothing new is placed on them.
    fn hold(&mut self, shared: &mut Shared, expired: &Expired) {
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
    fn avoided(&self) -> BTreeSet<NodeName> {
        self.heartbeats.held.keys().chain(&self.heartbeats.suspects).cloned().collect()
    }

    fn report_slowed(shared: &mut Shared, pool: &Slowed) {
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
    fn put_node_again(&mut self, shared: &mut Shared, name: &NodeName) {
        shared.due.nodes.insert(name.clone());
        let Some(object) = shared.caches.nodes.get(&Key::cluster(name.as_str())).cloned() else { return };
        self.show_node(shared, name, &object);
    }

    /// A silent node is cut off while an allocation there may be away, and then down.
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

    fn set_phase(&mut self, shared: &mut Shared, name: &NodeName, phase: NodePhase, why: &str) {
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

    /// Looks at a node's status: a phase or a condition that differs is written at once, the rest when there is time.
    pub(crate) fn refresh_node(&mut self, shared: &mut Shared, volumes: &Volumes, name: &NodeName) {
        let Some((object, wanted, differs)) = self.compare_node(shared, volumes, name) else { return };
        match differs {
            Differs::Urgently => self.write_node_status(shared, name, &object, wanted),
            Differs::Quietly { .. } => self.status_queue.join(name),
        }
    }

    /// The time of the next queued status has come.
    pub(crate) const fn queue_is_due(&mut self) {
        self.status_queue_timer = None;
    }

    /// Writes the statuses whose turn it is.
    pub(crate) fn write_queued(&mut self, shared: &mut Shared, volumes: &Volumes) {
        let now = Instant::now();
        loop {
            match self.status_queue.next(shared.evaluations.n_plans > 0, now) {
                Turn::Nobody => return,
                Turn::At(at) => {
                    if self.status_queue_timer.is_none() {
                        self.status_queue_timer = Some(shared.wake_at(at, Wake::StatusQueue));
                    }
                    return;
                }
                Turn::Of(name) => match self.compare_node(shared, volumes, &name) {
                    Some((_, _, Differs::Quietly { not_before: Some(at) })) if at > now => {
                        shared.wake_at(at, Wake::NodeStatus(name));
                    }
                    Some((object, wanted, _)) => {
                        self.status_queue.begin(&name);
                        self.write_node_status(shared, &name, &object, wanted);
                    }
                    None => {}
                },
            }
        }
    }

    /// How a node's status differs from the one that was written last; none where it does not, or where a write is under way.
    fn compare_node(
        &mut self,
        shared: &mut Shared,
        volumes: &Volumes,
        name: &NodeName,
    ) -> Option<(Arc<ClientNode>, Arc<Value>, Differs)> {
        let object = shared.caches.nodes.get(&Key::cluster(name.as_str())).cloned()?;
        let wanted = self.wanted_node_status(shared, volumes, name, &object);
        let is_overwritten = volumes.are_overwritten(name, &object);
        let known = self.known.get_mut(name).filter(|known| !known.is_writing)?;
        let wanted = known.wanted.json(wanted);
        let stored = if known.sent.is_none() { stored_part(&object) } else { None };
        let (last, sent_at) = match &known.sent {
            Some((sent, at)) => (Some(&**sent), Some(*at)),
            None => (stored.as_ref(), None),
        };
        let differs = match last {
            // Another leader that is not gone yet may have put its own requests in the place of ours.
            Some(last) if status_writes::is_same(&wanted, last) && !is_overwritten => return None,
            // A volume waits for what is asked of an agent.
            Some(last) if !status_writes::is_urgent(&wanted, last) && wanted["csiRequests"] == last["csiRequests"] => {
                Differs::Quietly { not_before: sent_at.map(|at| at + status_writes::PAUSE) }
            }
            Some(_) | None => Differs::Urgently,
        };
        Some((object, wanted, differs))
    }

    fn write_node_status(&mut self, shared: &mut Shared, name: &NodeName, object: &ClientNode, wanted: Arc<Value>) {
        let Some(known) = self.known.get_mut(name) else { return };
        known.is_writing = true;
        known.sent = Some((Arc::clone(&wanted), Instant::now()));
        let precondition = Precondition::same_object(&object.metadata);
        shared.outbox.push(Action::NodeStatus(name.clone(), precondition, wanted));
    }

    fn wanted_node_status(&self, shared: &Shared, volumes: &Volumes, name: &NodeName, object: &ClientNode) -> Shown {
        let (no_status, no_print) = (ClientNodeStatus::default(), Fingerprint::default());
        let stored = object.status.as_ref().unwrap_or(&no_status);
        let print = stored.fingerprint.as_ref().unwrap_or(&no_print);
        let known = self.known.get(name);
        let phase = known.and_then(|known| known.phase).unwrap_or(stored.phase);
        let node = shared.view.node(name).map(|node| node.allocatable).unwrap_or_default();
        let (mut n, mut cpu, mut memory) = (0_i64, 0, 0);
        for alloc in shared.view.allocs_on_node(name).filter(|alloc| !alloc.is_client_terminal()) {
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
        let held = self.heartbeats.held.get(name).map(|why| &**why);
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
            csi_requests: volumes.requests_to(name),
            events: known.map(|known| known.events.clone()).unwrap_or_default(),
            columns,
            conditions: merged(&stored.conditions, wanted, generation, shared.clock.now()),
        }
    }

    pub(crate) fn on_node_status(
        &mut self,
        shared: &mut Shared,
        name: &NodeName,
        result: Result<ClientNode, StoreError>,
    ) {
        self.status_queue.end(name);
        if let Some(known) = self.known.get_mut(name) {
            known.is_writing = false;
            if result.is_err() {
                known.sent = None;
            }
        }
        match result {
            Ok(object) => {
                let observed = shared.caches.nodes.update(object);
                shared.notify_all(observed.map(Notice::Node));
                shared.due.nodes.insert(name.clone());
            }
            Err(StoreError::NotFound(_)) => {}
            Err(error) => {
                tracing::warn!(node = %name, %error, "a node's status was not written");
                shared.wake_in(RETRY, Wake::NodeStatus(name.clone()));
            }
        }
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
