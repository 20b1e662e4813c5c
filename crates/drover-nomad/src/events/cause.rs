//! The write that caused a change, as far as the objects show it.
//!
//! Nomad names the write; objects record none. It is derived from what differs between an object before and after.
//! None: nothing differs that clients see.

use drover_api::allocation::AllocationStatus;
use drover_api::deployment::DeploymentStatus;
use drover_api::job::JobStatus;
use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, Job};

use crate::wire::node;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    JobRegistered,
    JobDeregistered,
    EvaluationUpdated,
    PlanResult,
    AllocationUpdated,
    AllocationUpdateDesiredStatus,
    DeploymentStatusUpdate,
    DeploymentPromotion,
    DeploymentAllocHealth,
    NodeRegistration,
    NodeDeregistration,
    NodeEligibility,
    NodeDrain,
    NodeStreamEvent,
    VolumeRegistered,
    VolumeDeregistered,
    VolumeClaim,
}

impl Cause {
    /// As events tell it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::JobRegistered => "JobRegistered",
            Self::JobDeregistered => "JobDeregistered",
            Self::EvaluationUpdated => "EvaluationUpdated",
            Self::PlanResult => "PlanResult",
            Self::AllocationUpdated => "AllocationUpdated",
            Self::AllocationUpdateDesiredStatus => "AllocationUpdateDesiredStatus",
            Self::DeploymentStatusUpdate => "DeploymentStatusUpdate",
            Self::DeploymentPromotion => "DeploymentPromotion",
            Self::DeploymentAllocHealth => "DeploymentAllocHealth",
            Self::NodeRegistration => "NodeRegistration",
            Self::NodeDeregistration => "NodeDeregistration",
            Self::NodeEligibility => "NodeEligibility",
            Self::NodeDrain => "NodeDrain",
            Self::NodeStreamEvent => "NodeStreamEvent",
            Self::VolumeRegistered => "CSIVolumeRegistered",
            Self::VolumeDeregistered => "CSIVolumeDeregistered",
            Self::VolumeClaim => "CSIVolumeClaim",
        }
    }
}

/// Of a change of a job, and whether it is one of the job itself: else it is one of its evaluations alone. A deletion
/// that waits is none yet: the job is told of when it is gone.
pub(super) fn of_job(before: &Job, after: &Job) -> Option<(Cause, bool)> {
    if before.spec != after.spec {
        let is_stopped = after.spec.stop && !before.spec.stop;
        return Some((if is_stopped { Cause::JobDeregistered } else { Cause::JobRegistered }, true));
    }
    let none = JobStatus::default();
    let (old, new) = (before.status.as_ref().unwrap_or(&none), after.status.as_ref().unwrap_or(&none));
    let is_new_state = (old.phase, old.version) != (new.phase, new.version);
    if old.stable != new.stable {
        return Some((Cause::DeploymentStatusUpdate, true));
    }
    if old.evaluations != new.evaluations || old.blocked != new.blocked {
        return Some((Cause::EvaluationUpdated, is_new_state));
    }
    is_new_state.then_some((Cause::PlanResult, true))
}

/// Of a change of an allocation.
pub(super) fn of_allocation(before: &Allocation, after: &Allocation) -> Option<Cause> {
    let wish = |it: &Allocation| (it.spec.desired_status, it.spec.desired_transition);
    if wish(before) != wish(after) {
        return Some(Cause::AllocationUpdateDesiredStatus);
    }
    let none = AllocationStatus::default();
    let (old, new) = (before.status.as_ref().unwrap_or(&none), after.status.as_ref().unwrap_or(&none));
    let is_updated = before.spec != after.spec
        || old.client_status != new.client_status
        || old.client_description != new.client_description
        || old.task_states != new.task_states
        || old.health != new.health
        || old.alloc_states != new.alloc_states
        || old.network != new.network;
    is_updated.then_some(Cause::AllocationUpdated)
}

/// Of a change of a deployment.
pub(super) fn of_deployment(before: &Deployment, after: &Deployment) -> Option<Cause> {
    let none = DeploymentStatus::default();
    let (old, new) = (before.status.as_ref().unwrap_or(&none), after.status.as_ref().unwrap_or(&none));
    let promoted = |it: &DeploymentStatus| it.groups.values().filter(|group| group.promoted).count();
    if promoted(new) > promoted(old) {
        return Some(Cause::DeploymentPromotion);
    }
    if (old.phase, old.description) != (new.phase, new.description) || old.rollback != new.rollback {
        return Some(Cause::DeploymentStatusUpdate);
    }
    let health = |it: &DeploymentStatus| -> Vec<(i64, i64)> {
        it.groups.values().map(|group| (group.healthy_allocs, group.unhealthy_allocs)).collect()
    };
    if health(old) != health(new) {
        return Some(Cause::DeploymentAllocHealth);
    }
    let placed = |it: &DeploymentStatus| -> Vec<(i64, usize)> {
        it.groups.values().map(|group| (group.placed_allocs, group.placed_canaries.len())).collect()
    };
    if placed(old) != placed(new) {
        return Some(Cause::PlanResult);
    }
    (old.groups != new.groups).then_some(Cause::AllocationUpdated)
}

/// Of a change of a node.
pub(super) fn of_node(before: &ClientNode, after: &ClientNode) -> Option<Cause> {
    if before.spec.drain != after.spec.drain {
        return Some(Cause::NodeDrain);
    }
    if before.spec.eligibility != after.spec.eligibility {
        return Some(Cause::NodeEligibility);
    }
    let shown = |it: &ClientNode| {
        let mut full = node::full(it);
        // It grows with what is not shown, too.
        if let Some(full) = full.as_object_mut() {
            full.remove("ModifyIndex");
        }
        full
    };
    (shown(before) != shown(after)).then_some(Cause::NodeStreamEvent)
}

/// Of a change of a volume.
pub(super) fn of_volume(before: &CSIVolume, after: &CSIVolume) -> Option<Cause> {
    let claims = |it: &CSIVolume| it.status.as_ref().map(|status| status.claims.clone()).unwrap_or_default();
    if claims(before) != claims(after) {
        return Some(Cause::VolumeClaim);
    }
    (before.spec != after.spec).then_some(Cause::VolumeRegistered)
}
