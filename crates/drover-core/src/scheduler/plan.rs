//! What one evaluation decides: stops, placements, updates, and why the rest could not be placed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use drover_api::allocation::{
    AllocatedResources, ClientStatus, DesiredStatus, FollowUp, LastReschedule, RescheduleTracker,
};
use drover_api::deployment::{DeploymentDescription, DeploymentPhase, GroupState};
use drover_api::job::EvalTrigger;
use drover_api::metric::{AllocMetric, NodeScore};
use jiff::Timestamp;

use crate::ids::{AllocKey, EvalId, JobKey, NodeName, ObjectKey};
use crate::model::Alloc;

/// One look at one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Which one.
    pub id: EvalId,
    /// The job.
    pub job: JobKey,
    /// What caused it.
    pub trigger: EvalTrigger,
    /// Its priority.
    pub priority: i64,
    /// The time at which it decides.
    pub now: Timestamp,
    /// The time for which it was delayed, if it was.
    pub wait_until: Option<Timestamp>,
}

impl Evaluation {
    /// Whether this is the delayed evaluation for which an allocation waits.
    pub fn is_follow_up_of(&self, alloc: &Alloc) -> bool {
        let awaited = alloc.follow_up.as_ref();
        awaited.is_some_and(|awaited| self.trigger == awaited.trigger && self.wait_until == Some(awaited.at))
    }
}

/// What to do, in this order: the deployment, stops, placements (each destructive update stops its predecessor in the
/// same step), updates.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Why nothing was decided, where the trigger is none that the job's type knows.
    pub refused: Option<String>,
    /// The deployment to make, or into which groups enter.
    pub deployment: Option<DeploymentPlan>,
    /// Deployments that end.
    pub deployment_updates: Vec<DeploymentUpdate>,
    /// Allocations to end.
    pub stops: Vec<Stop>,
    /// Allocations to make.
    pub placements: Vec<Placement>,
    /// Allocations that go on with the new version.
    pub in_place: Vec<InPlace>,
    /// Allocations that are disconnected and count as `unknown` from now on.
    pub disconnects: Vec<Disconnect>,
    /// Allocations that are back and go on.
    pub reconnects: Vec<Arc<Alloc>>,
    /// Allocations whose follow-up or reschedule outcome changes.
    pub attributes: Vec<AttributeUpdate>,
    /// Evaluations to make later.
    pub follow_ups: Vec<FollowUp>,
    /// For each group that found no place: why.
    pub failed: BTreeMap<String, AllocMetric>,
    /// Whether a group without a place waits for room, or for nodes. A system job whose rules exclude nodes does not.
    pub is_blocked: bool,
    /// For each group: how many allocations are wanted and not there.
    pub queued: BTreeMap<String, i64>,
    /// For each group: what was found and decided.
    pub desired: BTreeMap<String, DesiredUpdates>,
    /// How many destructive updates wait for earlier ones to be healthy.
    pub held_back: i64,
    /// For which nodes the groups without a place wait.
    pub waits_for: WaitsFor,
}

impl Plan {
    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.stops.is_empty()
            && self.placements.is_empty()
            && self.in_place.is_empty()
            && self.disconnects.is_empty()
            && self.reconnects.is_empty()
            && self.attributes.is_empty()
            && self.deployment.is_none()
            && self.deployment_updates.is_empty()
    }

    /// Stops that belong to placements.
    pub fn replaced(&self) -> impl Iterator<Item = &Stop> {
        self.placements.iter().filter_map(|placement| placement.replaces.as_ref())
    }

    /// Allocations that are evicted for placements, with the id of the evicting slot.
    pub fn preempted(&self) -> impl Iterator<Item = (&Arc<Alloc>, &Placement)> {
        self.placements.iter().flat_map(|placement| placement.preempts.iter().map(move |victim| (victim, placement)))
    }
}

/// What a blocked evaluation waits for (`spec/scheduler.md` 2.5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitsFor {
    /// For each class of nodes that was looked at: whether a node of it could take a group.
    pub classes: BTreeMap<String, bool>,
    /// Whether a rule depends on single nodes, so that no class can be ruled out.
    pub is_escaped: bool,
    /// Volumes that do not exist yet, or cannot be used as they are now, as `csi-volume:<namespace>:<id>` and
    /// `host-volume:<namespace>:<name>`.
    pub missing: BTreeSet<String>,
    /// Nodes of a system job that are full.
    pub nodes: BTreeSet<NodeName>,
}

/// A deployment to make, or to which groups are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentPlan {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it is to be made; else it is there, and the groups are new in it.
    pub is_new: bool,
    /// The version that it rolls out.
    pub job_version: i64,
    /// What it waits for.
    pub description: DeploymentDescription,
    /// Where each group stands.
    pub groups: BTreeMap<String, GroupState>,
}

/// The end of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentUpdate {
    /// Which one.
    pub deployment: ObjectKey,
    /// Where it stands from now on.
    pub phase: DeploymentPhase,
    /// Why.
    pub description: DeploymentDescription,
}

/// Why an allocation ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// It is no longer wanted.
    NotNeeded,
    /// The allocation that it replaced came back and is kept.
    Reconnected,
    /// It moves to another node.
    Migrating,
    /// A user stopped it, and another one takes its place.
    AllocStop,
    /// A new version takes its place.
    Updating,
    /// Its node is lost.
    Lost,
    /// It failed, and another one takes its place.
    Rescheduled,
    /// Its node is being drained.
    NodeTainted,
    /// An allocation of a higher priority takes its room.
    PreemptedBy(Arc<str>),
}

impl fmt::Display for StopReason {
    /// The code, as in `desiredDescription`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotNeeded => "NotNeeded",
            Self::Reconnected => "Reconnected",
            Self::Migrating => "Migrating",
            Self::AllocStop => "alloc-stop",
            Self::Updating => "Updating",
            Self::Lost => "Lost",
            Self::Rescheduled => "Rescheduled",
            Self::NodeTainted => "NodeTainted",
            Self::PreemptedBy(by) => return write!(f, "PreemptedBy:{by}"),
        })
    }
}

/// An allocation to end.
#[derive(Clone, Debug, PartialEq)]
pub struct Stop {
    /// Which one.
    pub alloc: Arc<Alloc>,
    /// stop or evict.
    pub desired: DesiredStatus,
    /// Why.
    pub reason: StopReason,
    /// The client status to set, where its agent cannot.
    pub client: Option<ClientStatus>,
    /// The delayed evaluation that brings its replacement.
    pub follow_up: Option<FollowUp>,
}

impl Stop {
    /// A stop for a reason.
    pub fn new(alloc: &Arc<Alloc>, reason: StopReason) -> Self {
        let desired = match (alloc.desired, &reason) {
            (_, StopReason::PreemptedBy(_)) => DesiredStatus::Evict,
            (DesiredStatus::Run, _) => DesiredStatus::Stop,
            (already, _) => already,
        };
        Self { alloc: Arc::clone(alloc), desired, reason, client: None, follow_up: None }
    }

    /// The stop of an allocation whose node is lost.
    pub fn lost(alloc: &Arc<Alloc>) -> Self {
        Self { client: Some(ClientStatus::Lost), ..Self::new(alloc, StopReason::Lost) }
    }
}

/// An allocation to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The group.
    pub group: Arc<str>,
    /// The slot.
    pub index: i64,
    /// The node.
    pub node: NodeName,
    /// The version.
    pub job_version: i64,
    /// Whether it is a canary.
    pub canary: bool,
    /// The deployment that it belongs to.
    pub deployment: Option<Arc<str>>,
    /// What it holds.
    pub resources: Arc<AllocatedResources>,
    /// The HostVolumes that it uses: their ids, by the names of the group's volumes.
    pub host_volumes: BTreeMap<String, String>,
    /// The allocation that it replaces.
    pub previous: Option<Arc<Alloc>>,
    /// The allocation that ends for it in the same step, only because it found a node.
    pub replaces: Option<Stop>,
    /// Whether it stands in for `replaces` because of a new version.
    pub is_destructive: bool,
    /// Allocations of other jobs that are evicted for it.
    pub preempts: Vec<Arc<Alloc>>,
    /// The reschedules that led to it.
    pub tracker: Option<RescheduleTracker>,
    /// What was known.
    pub metrics: Metrics,
}

impl Placement {
    /// The node's final score.
    pub fn score(&self) -> f64 {
        self.metrics.best.first().map_or(0.0, |(_, scores)| scores.normalised())
    }
}

/// What a placement knew. The counts are shared by placements between which nothing changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Counts of nodes.
    pub counts: Arc<AllocMetric>,
    /// The best nodes with their scores, best first; at most five.
    pub best: Vec<(NodeName, Scores)>,
}

impl Metrics {
    /// As it is stored with the allocation.
    pub fn to_api(&self) -> AllocMetric {
        let best = self.best.iter().map(|(node, scores)| scores.to_api(node)).collect();
        AllocMetric { score_meta_data: best, ..(*self.counts).clone() }
    }
}

/// The scores of a node (`spec/scheduler.md` 5.4). Those that did not contribute are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    /// How full (or empty, with the spread algorithm) the node is.
    pub binpack: f64,
    /// How well its devices match.
    pub devices: Option<f64>,
    /// Others of the same group on it.
    pub anti_affinity: Option<f64>,
    /// Whether it failed there before.
    pub penalty: Option<f64>,
    /// How well it matches preferences.
    pub affinity: Option<f64>,
    /// How even the spread becomes.
    pub spread: Option<f64>,
    /// How cheap the victims are.
    pub preemption: Option<f64>,
}

impl Scores {
    fn parts(&self) -> [Option<f64>; 7] {
        let Self { binpack, devices, anti_affinity, penalty, affinity, spread, preemption } = *self;
        [Some(binpack), devices, anti_affinity, penalty, affinity, spread, preemption]
    }

    /// The sum of the contributed scores and their number.
    pub fn sum(&self) -> (f64, u8) {
        self.parts().into_iter().flatten().fold((0.0, 0), |(sum, n), part| (sum + part, n + 1))
    }

    /// The mean of the contributed scores.
    pub fn normalised(&self) -> f64 {
        let (sum, n) = self.sum();
        sum / f64::from(n)
    }

    /// As it is stored: the scorers that always show are zero where they did not contribute.
    fn to_api(self, node: &NodeName) -> NodeScore {
        let always = [
            ("binpack", Some(self.binpack)),
            ("job-anti-affinity", self.anti_affinity.or(Some(0.0))),
            ("node-reschedule-penalty", self.penalty.or(Some(0.0))),
            ("node-affinity", self.affinity.or(Some(0.0))),
            ("devices", self.devices),
            ("allocation-spread", self.spread),
            ("preemption", self.preemption),
        ];
        let scores = always.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        NodeScore { node: node.to_string(), scores, norm_score: self.normalised() }
    }
}

/// An allocation that goes on with the new version.
#[derive(Clone, Debug, PartialEq)]
pub struct InPlace {
    /// Which one.
    pub alloc: Arc<Alloc>,
    /// The version.
    pub job_version: i64,
    /// The deployment that it belongs to from now on.
    pub deployment: Option<Arc<str>>,
    /// What it holds from now on.
    pub resources: Arc<AllocatedResources>,
}

/// An allocation that is disconnected.
#[derive(Clone, Debug, PartialEq)]
pub struct Disconnect {
    /// Which one.
    pub alloc: Arc<Alloc>,
    /// The delayed evaluation at which it counts as lost.
    pub follow_up: Option<FollowUp>,
}

/// A change of an allocation that its node does not act on.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributeUpdate {
    /// Which one.
    pub alloc: AllocKey,
    /// The delayed evaluation that it waits for.
    pub follow_up: Option<FollowUp>,
    /// How the last attempt to replace it went.
    pub last_reschedule: Option<LastReschedule>,
}

/// What was found of a group, and decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DesiredUpdates {
    /// Stay as they are.
    pub ignore: i64,
    /// Are made.
    pub place: i64,
    /// Move.
    pub migrate: i64,
    /// End.
    pub stop: i64,
    /// Go on with the new version.
    pub in_place_update: i64,
    /// Are replaced by the new version.
    pub destructive_update: i64,
    /// Are made to try the new version.
    pub canary: i64,
    /// Are evicted for this group.
    pub preemptions: i64,
    /// Are disconnected.
    pub disconnect: i64,
    /// Are back.
    pub reconnect: i64,
    /// Are replaced now, in a pass with disconnecting ones.
    pub reschedule_now: i64,
    /// Failed, and will be replaced later.
    pub reschedule_later: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::tests::{World, spec};

    #[test]
    fn a_plan_is_empty_when_it_writes_nothing_whatever_it_found() {
        let mut world = World::new(&spec(1));
        let placements = world.plan().placements;
        assert_eq!(placements.len(), 1);
        world.allocs(0..1, |_| {});
        let alloc = Arc::clone(world.view.allocs().next().unwrap());
        let in_place = InPlace {
            alloc: Arc::clone(&alloc),
            job_version: 1,
            deployment: None,
            resources: Arc::new(AllocatedResources::default()),
        };
        let attributes = AttributeUpdate { alloc: alloc.key.clone(), follow_up: None, last_reschedule: None };
        let deployment = DeploymentPlan {
            name: "d".into(),
            is_new: true,
            job_version: 1,
            description: DeploymentDescription::default(),
            groups: BTreeMap::new(),
        };
        let update = DeploymentUpdate {
            deployment: alloc.key.clone(),
            phase: DeploymentPhase::Cancelled,
            description: DeploymentDescription::default(),
        };
        let nothing = Plan::default;
        let cut = Disconnect { alloc: Arc::clone(&alloc), follow_up: None };
        for (what, plan) in [
            ("a stop", Plan { stops: vec![Stop::new(&alloc, StopReason::NotNeeded)], ..nothing() }),
            ("a placement", Plan { placements, ..nothing() }),
            ("an update in place", Plan { in_place: vec![in_place], ..nothing() }),
            ("a disconnect", Plan { disconnects: vec![cut], ..nothing() }),
            ("a reconnect", Plan { reconnects: vec![Arc::clone(&alloc)], ..nothing() }),
            ("attributes", Plan { attributes: vec![attributes], ..nothing() }),
            ("a deployment", Plan { deployment: Some(deployment), ..nothing() }),
            ("the end of a deployment", Plan { deployment_updates: vec![update], ..nothing() }),
        ] {
            assert!(!plan.is_empty(), "{what}");
        }
        let found = Plan {
            refused: Some("no".into()),
            failed: [("web".to_owned(), AllocMetric::default())].into(),
            is_blocked: true,
            queued: [("web".to_owned(), 1)].into(),
            desired: [("web".to_owned(), DesiredUpdates { ignore: 1, ..DesiredUpdates::default() })].into(),
            held_back: 1,
            ..nothing()
        };
        assert!(nothing().is_empty() && found.is_empty());
    }
}
