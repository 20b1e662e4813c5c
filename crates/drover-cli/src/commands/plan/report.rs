//! A plan as programs read it (`spec/simulate.md`, section 1): every list sorted by name, the same bytes for the same
//! input.

use std::collections::BTreeMap;

use drover_api::allocation::{
    AllocatedDevice, AllocatedResources, ClientStatus, DesiredStatus, FollowUp, LastReschedule,
};
use drover_api::deployment::{DeploymentDescription, DeploymentPhase, GroupState};
use drover_api::job::{EvalStatus, EvalTrigger};
use drover_api::metric::AllocMetric;
use drover_core::advice::Advice;
use drover_core::difference::{JobDiff, PieceChange};
use drover_core::model::Alloc;
use drover_core::scheduler::plan::{self, DesiredUpdates, Disconnect, Evaluation, Placement, Plan, Stop, StopReason};
use drover_core::snapshot::ClusterView;
use jiff::Timestamp;
use serde::Serialize;

/// What an evaluation decided.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) eval: Eval,
    /// What the manifest changes of the job; none for an evaluation of a job as it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) diff: Option<JobDiff>,
    pub(crate) stops: Vec<Stopped>,
    pub(crate) placements: Vec<Placed>,
    pub(crate) in_place: Vec<Updated>,
    pub(crate) destructive: Vec<Replaced>,
    pub(crate) disconnects: Vec<Disconnected>,
    pub(crate) reconnects: Vec<Reconnected>,
    pub(crate) attribute_updates: Vec<AttributeUpdate>,
    pub(crate) deployment: Option<Deployment>,
    /// The deployments that end, with the reason.
    pub(crate) deployment_updates: Vec<DeploymentEnd>,
    pub(crate) desired: BTreeMap<String, Desired>,
    pub(crate) failed: BTreeMap<String, AllocMetric>,
    /// What would help the groups without a place; for people only.
    #[serde(skip)]
    pub(crate) advice: BTreeMap<String, Vec<Advice>>,
}

/// The evaluation.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Eval {
    pub(crate) id: String,
    pub(crate) job: String,
    pub(crate) trigger: EvalTrigger,
    pub(crate) status: EvalStatus,
    /// Why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
    #[serde(rename = "blockedEval")]
    pub(crate) blocked: Option<BlockedEval>,
    pub(crate) follow_ups: Vec<DelayedEval>,
}

/// What the groups without a place wait for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BlockedEval {
    class_eligibility: BTreeMap<String, bool>,
    escaped: bool,
}

/// An evaluation to make later.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DelayedEval {
    pub(crate) trigger: EvalTrigger,
    pub(crate) wait_until: Timestamp,
}

/// An allocation that ends.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stopped {
    pub(crate) allocation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_status: Option<ClientStatus>,
    pub(crate) desired_description: String,
    pub(crate) desired_status: DesiredStatus,
}

/// An allocation that is made.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Placed {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) index: i64,
    pub(crate) node: String,
    pub(crate) canary: bool,
    pub(crate) previous_allocation: Option<String>,
    pub(crate) job_version: i64,
    pub(crate) preempts: Vec<String>,
    pub(crate) ports: Vec<Port>,
    pub(crate) devices: Vec<AllocatedDevice>,
    pub(crate) cores: Vec<i64>,
    pub(crate) score: f64,
}

/// A port of a placed allocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Port {
    pub(crate) label: String,
    pub(crate) value: i64,
}

/// An allocation that goes on with the new version.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Updated {
    pub(crate) allocation: String,
    pub(crate) name: String,
    pub(crate) node: String,
}

/// An allocation that the new version replaces.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Replaced {
    pub(crate) allocation: String,
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) replacement: Placed,
}

/// An allocation that is disconnected.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Disconnected {
    pub(crate) allocation: String,
    pub(crate) client_status: ClientStatus,
    pub(crate) follow_up: Option<FollowUp>,
}

/// An allocation that is back.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reconnected {
    pub(crate) allocation: String,
    pub(crate) client_status: ClientStatus,
}

/// An allocation that waits for another time, or whose reschedule came out otherwise.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AttributeUpdate {
    pub(crate) allocation: String,
    pub(crate) follow_up: Option<FollowUp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_reschedule: Option<LastReschedule>,
}

/// A deployment that is made or changed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Deployment {
    pub(crate) name: String,
    pub(crate) phase: DeploymentPhase,
    pub(crate) description: DeploymentDescription,
    pub(crate) groups: BTreeMap<String, GroupState>,
}

/// A deployment that ends.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeploymentEnd {
    pub(crate) name: String,
    pub(crate) phase: DeploymentPhase,
    pub(crate) description: DeploymentDescription,
}

/// What was found of a group, and decided.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Desired {
    pub(crate) ignore: i64,
    pub(crate) place: i64,
    pub(crate) stop: i64,
    pub(crate) migrate: i64,
    pub(crate) in_place_update: i64,
    pub(crate) destructive_update: i64,
    pub(crate) canary: i64,
    pub(crate) preemptions: i64,
    pub(crate) disconnect: i64,
    pub(crate) reconnect: i64,
    pub(crate) reschedule_now: i64,
    pub(crate) reschedule_later: i64,
}

impl Report {
    /// Describes a plan.
    pub(crate) fn new(view: &ClusterView, eval: &Evaluation, plan: &Plan) -> Self {
        let names = Names::new(view, eval);
        let (destructive, placements): (Vec<_>, Vec<_>) =
            plan.placements.iter().partition(|placement| placement.is_destructive && placement.replaces.is_some());
        let moved = placements.iter().filter_map(|placement| placement.replaces.as_ref());
        let victims = plan.preempted().map(|(victim, by)| {
            let by = names.name(&by.group, by.index);
            Stop::new(victim, StopReason::PreemptedBy(by.into()))
        });
        let mut report = Self {
            eval: evaluation(eval, plan),
            diff: None,
            stops: plan.stops.iter().chain(moved).map(stopped).chain(victims.map(|stop| stopped(&stop))).collect(),
            placements: placements.iter().map(|placement| names.placed(placement)).collect(),
            in_place: plan.in_place.iter().map(|update| names.updated(&update.alloc)).collect(),
            destructive: destructive.iter().filter_map(|placement| names.replaced(placement)).collect(),
            disconnects: plan.disconnects.iter().map(disconnected).collect(),
            reconnects: plan.reconnects.iter().map(|alloc| reconnected(alloc)).collect(),
            attribute_updates: plan.attributes.iter().map(attribute_update).collect(),
            deployment: deployment(view, eval, plan),
            deployment_updates: plan.deployment_updates.iter().map(DeploymentEnd::new).collect(),
            desired: plan.desired.iter().map(|(group, desired)| (group.clone(), (*desired).into())).collect(),
            failed: plan.failed.clone(),
            advice: BTreeMap::new(),
        };
        for metric in report.failed.values_mut() {
            // How long it took is another number each time.
            metric.allocation_time = None;
        }
        report.sort();
        report
    }

    fn sort(&mut self) {
        self.stops.sort_by(|one, other| one.allocation.cmp(&other.allocation));
        self.placements.sort_by(|one, other| {
            let of = |placed: &Placed| (placed.group.clone(), placed.index, placed.node.clone(), placed.canary);
            of(one).cmp(&of(other))
        });
        self.in_place.sort_by(|one, other| one.allocation.cmp(&other.allocation));
        self.destructive.sort_by(|one, other| one.allocation.cmp(&other.allocation));
        self.disconnects.sort_by(|one, other| one.allocation.cmp(&other.allocation));
        self.reconnects.sort_by(|one, other| one.allocation.cmp(&other.allocation));
        self.attribute_updates.sort_by(|one, other| one.allocation.cmp(&other.allocation));
        self.eval.follow_ups.sort_by_key(|later| (later.wait_until, later.trigger));
    }

    /// Whether the job becomes another, or anything is written or planned for later.
    pub(crate) fn changes(&self) -> bool {
        self.diff.as_ref().is_some_and(|diff| diff.r#type != PieceChange::None)
            || !(self.stops.is_empty()
                && self.placements.is_empty()
                && self.in_place.is_empty()
                && self.destructive.is_empty()
                && self.disconnects.is_empty()
                && self.reconnects.is_empty()
                && self.attribute_updates.is_empty()
                && self.deployment.is_none()
                && self.eval.follow_ups.is_empty())
    }
}

fn evaluation(eval: &Evaluation, plan: &Plan) -> Eval {
    let is_blocked = plan.is_blocked;
    let was_blocked = matches!(eval.trigger, EvalTrigger::QueuedAllocs | EvalTrigger::MaxPlanAttempts);
    let status = match (&plan.refused, is_blocked && was_blocked) {
        (Some(_), _) => EvalStatus::Failed,
        // One that was blocked stays itself; any other is done and leaves one that is.
        (None, true) => EvalStatus::Blocked,
        (None, false) => EvalStatus::Complete,
    };
    let blocked = is_blocked.then(|| BlockedEval {
        class_eligibility: if plan.waits_for.is_escaped { BTreeMap::new() } else { plan.waits_for.classes.clone() },
        escaped: plan.waits_for.is_escaped,
    });
    let follow_ups = plan.follow_ups.iter();
    Eval {
        id: eval.id.to_string(),
        job: eval.job.to_string(),
        trigger: eval.trigger,
        status,
        description: plan.refused.clone().unwrap_or_default(),
        blocked,
        follow_ups: follow_ups.map(|later| DelayedEval { trigger: later.trigger, wait_until: later.at }).collect(),
    }
}

fn stopped(stop: &Stop) -> Stopped {
    Stopped {
        allocation: stop.alloc.key.name.to_string(),
        client_status: stop.client,
        desired_description: stop.reason.to_string(),
        desired_status: stop.desired,
    }
}

fn disconnected(cut: &Disconnect) -> Disconnected {
    Disconnected {
        allocation: cut.alloc.key.name.to_string(),
        client_status: ClientStatus::Unknown,
        follow_up: cut.follow_up.clone(),
    }
}

fn reconnected(alloc: &Alloc) -> Reconnected {
    Reconnected { allocation: alloc.key.name.to_string(), client_status: alloc.client }
}

fn attribute_update(update: &plan::AttributeUpdate) -> AttributeUpdate {
    AttributeUpdate {
        allocation: update.alloc.name.to_string(),
        follow_up: update.follow_up.clone(),
        last_reschedule: update.last_reschedule,
    }
}

/// The deployment that is made or that groups enter, else the one that ends.
fn deployment(view: &ClusterView, eval: &Evaluation, plan: &Plan) -> Option<Deployment> {
    let stored = |name: &str| view.deployments_of_job(&eval.job).find(|stored| *stored.key.name == *name);
    if let Some(made) = &plan.deployment {
        let phase = stored(&made.name).map_or(DeploymentPhase::Running, |stored| stored.phase);
        let groups = made.groups.clone();
        return Some(Deployment { name: made.name.to_string(), phase, description: made.description, groups });
    }
    let ended = plan.deployment_updates.first()?;
    let groups = stored(&ended.deployment.name).map(|stored| stored.groups.clone()).unwrap_or_default();
    let name = ended.deployment.name.to_string();
    Some(Deployment { name, phase: ended.phase, description: ended.description, groups })
}

impl DeploymentEnd {
    fn new(update: &plan::DeploymentUpdate) -> Self {
        let name = update.deployment.name.to_string();
        Self { name, phase: update.phase, description: update.description }
    }
}

/// Nomad's names of a job's allocations.
struct Names<'a> {
    id: &'a str,
}

impl<'a> Names<'a> {
    fn new(view: &'a ClusterView, eval: &'a Evaluation) -> Self {
        Self { id: view.job(&eval.job).map_or(&eval.job.name, |job| job.definition.spec.id.as_str()) }
    }

    fn name(&self, group: &str, index: i64) -> String {
        format!("{}.{group}[{index}]", self.id)
    }

    fn updated(&self, alloc: &Alloc) -> Updated {
        Updated {
            allocation: alloc.key.name.to_string(),
            name: self.name(&alloc.group, alloc.index),
            node: alloc.node.to_string(),
        }
    }

    fn replaced(&self, placement: &Placement) -> Option<Replaced> {
        let Updated { allocation, name, node } = self.updated(&placement.replaces.as_ref()?.alloc);
        Some(Replaced { allocation, name, node, replacement: self.placed(placement) })
    }

    fn placed(&self, placement: &Placement) -> Placed {
        let preempts = placement.preempts.iter().map(|victim| victim.key.name.to_string());
        Placed {
            name: self.name(&placement.group, placement.index),
            group: placement.group.to_string(),
            index: placement.index,
            node: placement.node.to_string(),
            canary: placement.canary,
            previous_allocation: placement.previous.as_ref().map(|alloc| alloc.key.name.to_string()),
            job_version: placement.job_version,
            preempts: preempts.collect(),
            ports: ports(&placement.resources),
            devices: placement.resources.tasks.values().flat_map(|task| task.devices.clone()).collect(),
            cores: cores(&placement.resources),
            score: placement.score(),
        }
    }
}

fn ports(resources: &AllocatedResources) -> Vec<Port> {
    let mut ports: Vec<Port> =
        resources.ports.iter().map(|port| Port { label: port.label.clone(), value: port.value }).collect();
    ports.sort_unstable();
    ports
}

fn cores(resources: &AllocatedResources) -> Vec<i64> {
    let mut cores: Vec<i64> = resources.tasks.values().flat_map(|task| task.cores.iter().copied()).collect();
    cores.sort_unstable();
    cores
}

impl From<DesiredUpdates> for Desired {
    fn from(updates: DesiredUpdates) -> Self {
        Self {
            ignore: updates.ignore,
            place: updates.place,
            stop: updates.stop,
            migrate: updates.migrate,
            in_place_update: updates.in_place_update,
            destructive_update: updates.destructive_update,
            canary: updates.canary,
            preemptions: updates.preemptions,
            disconnect: updates.disconnect,
            reconnect: updates.reconnect,
            reschedule_now: updates.reschedule_now,
            reschedule_later: updates.reschedule_later,
        }
    }
}
