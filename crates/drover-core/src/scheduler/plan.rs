//! What one evaluation decides: stops, placements, updates, and why the rest could not be placed.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::allocation::{
    AllocatedResources, ClientStatus, DesiredStatus, FollowUp, LastReschedule, RescheduleTracker,
};
use drover_api::job::EvalTrigger;
use drover_api::metric::AllocMetric;
use jiff::Timestamp;

use crate::ids::{AllocKey, EvalId, JobKey, NodeName};
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

/// What to do, in this order: stops, placements (each destructive update stops its predecessor in the same step), updates.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Allocations to end.
    pub stops: Vec<Stop>,
    /// Allocations to make.
    pub placements: Vec<Placement>,
    /// Allocations that go on with the new version.
    pub in_place: Vec<InPlace>,
    /// Allocations whose follow-up or reschedule outcome changes.
    pub attributes: Vec<AttributeUpdate>,
    /// Evaluations to make later.
    pub follow_ups: Vec<FollowUp>,
    /// For each group that found no place: why.
    pub failed: BTreeMap<String, AllocMetric>,
    /// For each group: how many allocations are wanted and not there.
    pub queued: BTreeMap<String, i64>,
    /// For each group: what was found and decided.
    pub desired: BTreeMap<String, DesiredUpdates>,
    /// How many destructive updates wait for earlier ones to be healthy.
    pub held_back: i64,
}

impl Plan {
    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.stops.is_empty() && self.placements.is_empty() && self.in_place.is_empty() && self.attributes.is_empty()
    }
}

/// Why an allocation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// Nobody wants it any more.
    NotNeeded,
    /// It moves to another node.
    Migrating,
    /// A new version takes its place.
    Updating,
    /// Its node is lost.
    Lost,
    /// It failed, and another one takes its place.
    Rescheduled,
    /// Its node is being drained.
    NodeTainted,
}

impl StopReason {
    /// The code, as in `desiredDescription`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotNeeded => "NotNeeded",
            Self::Migrating => "Migrating",
            Self::Updating => "Updating",
            Self::Lost => "Lost",
            Self::Rescheduled => "Rescheduled",
            Self::NodeTainted => "NodeTainted",
        }
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
}

/// An allocation to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The group.
    pub group: String,
    /// The slot.
    pub index: i64,
    /// The node.
    pub node: NodeName,
    /// The version.
    pub job_version: i64,
    /// What it holds.
    pub resources: AllocatedResources,
    /// The allocation that it replaces.
    pub previous: Option<Arc<Alloc>>,
    /// The allocation that ends for it in the same step (destructive update).
    pub replaces: Option<Stop>,
    /// The reschedules that led to it.
    pub tracker: Option<RescheduleTracker>,
    /// What was known.
    pub metrics: AllocMetric,
    /// The node's final score.
    pub score: f64,
}

/// An allocation that goes on with the new version.
#[derive(Clone, Debug, PartialEq)]
pub struct InPlace {
    /// Which one.
    pub alloc: Arc<Alloc>,
    /// The version.
    pub job_version: i64,
    /// What it holds from now on.
    pub resources: AllocatedResources,
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
    /// Failed, and will be replaced later.
    pub reschedule_later: i64,
    /// Failed, and are replaced now.
    pub reschedule_now: i64,
}
