//! The controller's part of a node's status: at once what others wait for, the rest when there is time.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::ClientNode;
use drover_api::client_node::{
    ClientNodeStatus, DriverInfo, Eligibility, Fingerprint, NodeColumns, NodeConditionType as Type, NodePhase,
    NodeReason as Reason, NodeResources,
};
use drover_api::condition::{Wanted, merged};
use drover_core::host_volume::request::requests;
use drover_core::ids::NodeName;
use drover_store::{Key, Precondition, StoreError};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::state::{Differs, Nodes, Shown};
use super::status_queue::QueueTurn;
use crate::actions::Action;
use crate::shared::{Notice, RETRY, Shared};
use crate::status_writes::{self};
use crate::timers::Wake;
use crate::volumes::Volumes;
impl Nodes {
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
                QueueTurn::Nobody => return,
                QueueTurn::At(at) => {
                    if self.status_queue_timer.is_none() {
                        self.status_queue_timer = Some(shared.wake_at(at, Wake::StatusQueue));
                    }
                    return;
                }
                QueueTurn::Of(name) => match self.compare_node(shared, volumes, &name) {
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

    /// How a node's status differs from the one that was written last; none where it does not, or where a write is
    /// under way.
    pub(super) fn compare_node(
        &mut self,
        shared: &mut Shared,
        volumes: &Volumes,
        name: &NodeName,
    ) -> Option<(Arc<ClientNode>, Arc<Value>, Differs)> {
        let object = shared.caches.nodes.get(&Key::cluster(name.as_str())).cloned()?;
        let wanted = self.wanted_node_status(shared, volumes, name, &object);
        let asked = object.status.as_ref().map(|status| &status.volume_requests);
        let is_overwritten =
            volumes.are_overwritten(name, &object) || asked.is_some_and(|asked| *asked != wanted.volume_requests);
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
            // A volume waits for what is asked of an agent, and the end of a drain for its last allocation.
            Some(last)
                if !status_writes::is_urgent(&wanted, last)
                    && (wanted["drain"] == last["drain"] || wanted["drain"]["remaining"] != 0)
                    && ["csiRequests", "volumeRequests"].iter().all(|asked| wanted[asked] == last[asked]) =>
            {
                Differs::Quietly { not_before: sent_at.map(|at| at + status_writes::PAUSE) }
            }
            Some(_) | None => Differs::Urgently,
        };
        Some((object, wanted, differs))
    }

    pub(super) fn write_node_status(
        &mut self,
        shared: &mut Shared,
        name: &NodeName,
        object: &ClientNode,
        wanted: Arc<Value>,
    ) {
        let Some(known) = self.known.get_mut(name) else { return };
        known.is_writing = true;
        known.sent = Some((Arc::clone(&wanted), Instant::now()));
        let precondition = Precondition::same_object(&object.metadata);
        shared.outbox.push(Action::NodeStatus(name.clone(), precondition, wanted));
    }

    pub(super) fn wanted_node_status(
        &self,
        shared: &Shared,
        volumes: &Volumes,
        name: &NodeName,
        object: &ClientNode,
    ) -> Shown {
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
        let ignored = known.map(|known| &known.ignored_plugins[..]).unwrap_or_default();
        let mut wanted = conditions(phase, held, object.spec.eligibility, object.spec.drain.is_some());
        wanted.push(drivers_healthy(&print.drivers, ignored));
        wanted.extend(impaired(&print.agent_problems));
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
            volume_requests: requests(&shared.view, name),
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
    if !status.volume_requests.is_empty() {
        stored["volumeRequests"] = json!(status.volume_requests);
    }
    Some(stored)
}

fn conditions(
    phase: NodePhase,
    held: Option<&str>,
    eligibility: Eligibility,
    is_draining: bool,
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
    all
}

/// What the agent itself is kept from, if it is from anything.
fn impaired(problems: &BTreeMap<String, String>) -> Option<Wanted<Type, Reason>> {
    let reason = if problems.contains_key("port") { Reason::PortTaken } else { Reason::NetworkModeUnavailable };
    let problems: Vec<String> = problems.iter().map(|(part, reason)| format!("{part}: {reason}")).collect();
    (!problems.is_empty()).then(|| Wanted::yes(Type::AgentImpaired, reason, problems.join("; ")))
}

/// Whether all drivers are well, and all that the node says of CSI plugins counts.
fn drivers_healthy(drivers: &BTreeMap<String, DriverInfo>, ignored: &[String]) -> Wanted<Type, Reason> {
    let sick: Vec<&str> =
        drivers.iter().filter(|(_, info)| info.detected && !info.healthy).map(|(name, _)| name.as_str()).collect();
    let mut wrong = Vec::new();
    if !sick.is_empty() {
        wrong.push(format!("unhealthy: {}", sick.join(", ")));
    }
    wrong.extend(ignored.iter().map(|why| format!("not counted: {why}")));
    if wrong.is_empty() {
        return Wanted::yes(Type::DriversHealthy, Reason::AllHealthy, "all detected drivers are healthy");
    }
    Wanted::no(Type::DriversHealthy, Reason::DriverUnhealthy, wrong.join("; "))
}
