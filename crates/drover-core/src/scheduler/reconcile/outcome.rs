//! What should become of a job and its groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::allocation::{AllocatedResources, FollowUp};
use drover_api::deployment::GroupState;
use drover_api::group::Group;

use crate::model::Alloc;
use crate::scheduler::plan::{AttributeUpdate, DeploymentPlan, DeploymentUpdate, DesiredUpdates, Disconnect, Stop};

/// An allocation that should exist and does not.
#[derive(Clone, Debug)]
pub struct Missing {
    /// Its slot.
    pub index: i64,
    /// The allocation that it replaces.
    pub previous: Option<Arc<Alloc>>,
    /// Whether it replaces one that failed or is disconnected.
    pub is_reschedule: bool,
    /// Whether it is a canary.
    pub canary: bool,
    /// The allocation that ends only if a node is found.
    pub replaces: Option<Stop>,
    /// Whether it brings a new version to the slot of `replaces`.
    pub is_destructive: bool,
    /// The version that it is to run, where that is not the job's.
    pub job_version: Option<i64>,
}

impl Missing {
    /// A missing allocation of a slot.
    pub fn new(index: i64, previous: Option<Arc<Alloc>>) -> Self {
        Self {
            index,
            previous,
            is_reschedule: false,
            canary: false,
            replaces: None,
            is_destructive: false,
            job_version: None,
        }
    }
}

/// What should become of one group.
#[derive(Debug, Default)]
pub struct GroupOutcome {
    /// Allocations to end.
    pub stops: Vec<Stop>,
    /// Allocations to make: destructive updates first.
    pub missing: Vec<Missing>,
    /// Allocations that go on with the new version where they are, and what they hold there.
    pub in_place: Vec<(Arc<Alloc>, Arc<AllocatedResources>)>,
    /// Allocations that are disconnected.
    pub disconnects: Vec<Disconnect>,
    /// Allocations that are back.
    pub reconnects: Vec<Arc<Alloc>>,
    /// Destructive updates that wait.
    pub held_back: i64,
    /// Follow-ups to note on allocations.
    pub attributes: Vec<AttributeUpdate>,
    /// Evaluations to make later.
    pub follow_ups: Vec<FollowUp>,
    /// Counters.
    pub desired: DesiredUpdates,
    /// Where the group stands in a deployment that it newly enters.
    pub enters: Option<GroupState>,
    /// Whether nothing of it is under way.
    pub is_complete: bool,
}

/// What should become of a job.
#[derive(Debug, Default)]
pub struct JobOutcome {
    /// Each group of the job, and groups that only allocations name.
    pub groups: BTreeMap<Arc<str>, GroupOutcome>,
    /// Deployments that end.
    pub deployment_updates: Vec<DeploymentUpdate>,
    /// A deployment to make, or to enter.
    pub deployment: Option<DeploymentPlan>,
    /// The active deployment that new allocations join.
    pub joins: Option<Arc<str>>,
}

/// Says whether an allocation can go on where it is under the job's version, and what it holds then. The flag says
/// whether its node must still suit.
pub type Fits<'a> = dyn FnMut(&Group, &Arc<Alloc>, bool) -> Option<Arc<AllocatedResources>> + 'a;
