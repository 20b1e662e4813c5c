//! Which change triggers which evaluation, and what else follows from it.
//!
//! Input: an object before and after a change. Output: triggers, in the order in which they are queued, and what others
//! have to look at. Source: `docs/spec/scheduler.md`, section 2. Must never know how a change became known.

use drover_api::allocation::{AllocationSpec, AllocationStatus, ClientStatus, DesiredStatus};
use drover_api::job::EvalTrigger;

use crate::evaluation_id::Point;

/// An allocation as far as evaluations follow from it.
#[derive(Clone, Copy, Debug)]
pub struct AllocationFacts<'a> {
    /// What the controller wants of it.
    pub spec: &'a AllocationSpec,
    /// What its agent says of it.
    pub status: &'a AllocationStatus,
    /// Whether its object is being deleted.
    pub is_deleting: bool,
}

/// What is around an allocation that changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// Its node is being drained.
    pub is_node_draining: bool,
    /// Its deployment is under way.
    pub is_rolled_out: bool,
    /// Its job has updates that wait for earlier ones.
    pub is_update_held_back: bool,
}

/// What follows from a change of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Consequences {
    /// Why its job is evaluated.
    pub triggers: Vec<EvalTrigger>,
    /// It ended, with all that it ran.
    pub has_ended: bool,
    /// There may be room on its node.
    pub frees_room: bool,
    /// Its node was disconnected and has reported on it.
    pub is_reconnected: bool,
    /// A drain may go on.
    pub concerns_drain: bool,
    /// Its deployment has to be looked at.
    pub concerns_deployment: bool,
}

/// What follows from a change of an allocation.
pub fn of_allocation(before: AllocationFacts<'_>, now: AllocationFacts<'_>, around: Around) -> Consequences {
    let (old, new) = (before.status, now.status);
    let mut triggers = Vec::new();
    let has_ended = new.client_status.is_terminal() && !old.client_status.is_terminal();
    if has_ended {
        triggers.push(EvalTrigger::AllocFailure);
    }
    let is_cleaned_up = new.ended_at.is_some() && old.ended_at.is_none();
    let is_reconnected = old.client_status == ClientStatus::Unknown && new.client_status != ClientStatus::Unknown;
    if is_reconnected {
        triggers.push(EvalTrigger::Reconnect);
    }
    let is_stopped = now.is_deleting && !before.is_deleting;
    if is_stopped || now.spec.desired_transition != before.spec.desired_transition {
        triggers.push(if around.is_node_draining { EvalTrigger::NodeDrain } else { EvalTrigger::AllocStop });
    }
    let is_settled = new.health != old.health || new.client_status != old.client_status;
    if is_settled && !around.is_rolled_out && around.is_update_held_back {
        triggers.push(EvalTrigger::DeploymentWatcher);
    }
    if now.spec.desired_status == DesiredStatus::Evict && before.spec.desired_status != DesiredStatus::Evict {
        triggers.push(EvalTrigger::Preemption);
    }
    Consequences {
        triggers,
        has_ended,
        frees_room: has_ended || is_cleaned_up || now.spec.resources != before.spec.resources,
        is_reconnected,
        concerns_drain: is_settled,
        concerns_deployment: is_settled && around.is_rolled_out,
    }
}

/// A job as far as evaluations follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobFacts<'a> {
    /// Which incarnation and generation of its spec it is.
    pub uid: &'a str,
    /// Which state of it that asks for an evaluation.
    pub point: Point,
    /// Its object is being deleted.
    pub is_deleting: bool,
    /// Its spec says that it is stopped.
    pub is_stopped: bool,
    /// A periodic job launched it.
    pub is_launch: bool,
}

/// Why a job is evaluated after a change; none where nothing of it is different for the scheduler.
pub fn of_job(before: Option<JobFacts<'_>>, now: JobFacts<'_>) -> Option<EvalTrigger> {
    let is_other = before
        .is_none_or(|before| (before.uid, before.point, before.is_deleting) != (now.uid, now.point, now.is_deleting));
    is_other.then(|| match (now.is_stopped || now.is_deleting, before.is_none() && now.is_launch) {
        (true, _) => EvalTrigger::JobDeregister,
        (false, true) => EvalTrigger::PeriodicJob,
        (false, false) => EvalTrigger::JobRegister,
    })
}

#[cfg(test)]
mod tests {
    use drover_api::allocation::{DesiredTransition, Health};
    use jiff::Timestamp;

    use super::*;

    /// What an allocation is changed into, from one that runs.
    type Change = fn(&mut AllocationSpec, &mut AllocationStatus);

    fn consequences(first: Change, then: Change, around: Around) -> Consequences {
        let (mut spec, mut status) = (AllocationSpec::default(), AllocationStatus::default());
        status.client_status = ClientStatus::Running;
        first(&mut spec, &mut status);
        let (old_spec, old_status) = (spec.clone(), status.clone());
        then(&mut spec, &mut status);
        let before = AllocationFacts { spec: &old_spec, status: &old_status, is_deleting: false };
        of_allocation(before, AllocationFacts { spec: &spec, status: &status, is_deleting: false }, around)
    }

    fn triggers(first: Change, then: Change, around: Around) -> Vec<EvalTrigger> {
        consequences(first, then, around).triggers
    }

    const RUNS: Change = |_, _| {};
    const ENDS: Change = |_, status| status.client_status = ClientStatus::Failed;
    const IS_CLEANED_UP: Change = |_, status| status.ended_at = Some(Timestamp::UNIX_EPOCH);
    const IS_UNKNOWN: Change = |_, status| status.client_status = ClientStatus::Unknown;
    const IS_BACK: Change = |_, status| status.client_status = ClientStatus::Running;
    const IS_TO_MIGRATE: Change = |spec, _| {
        spec.desired_transition = DesiredTransition { migrate: true, ..DesiredTransition::default() };
    };
    const IS_EVICTED: Change = |spec, _| spec.desired_status = DesiredStatus::Evict;
    const IS_HEALTHY: Change = |_, status| {
        status.health =
            Some(Health { healthy: true, timestamp: Timestamp::UNIX_EPOCH, deployment_name: String::new() });
    };

    #[test]
    fn each_change_of_an_allocation_has_its_triggers() {
        let (calm, drained) = (Around::default(), Around { is_node_draining: true, ..Around::default() });
        let held_back = Around { is_update_held_back: true, ..Around::default() };
        let rolled_out = Around { is_rolled_out: true, is_update_held_back: true, ..Around::default() };
        for (name, first, then, around, wanted) in [
            ("nothing", RUNS, RUNS, calm, &[][..]),
            ("it ends", RUNS, ENDS, calm, &[EvalTrigger::AllocFailure]),
            ("it has ended before", ENDS, ENDS, calm, &[]),
            ("its node is done with it", ENDS, IS_CLEANED_UP, calm, &[]),
            ("it is cut off", RUNS, IS_UNKNOWN, calm, &[]),
            ("it is back", IS_UNKNOWN, IS_BACK, calm, &[EvalTrigger::Reconnect]),
            ("it ended while away", IS_UNKNOWN, ENDS, calm, &[EvalTrigger::AllocFailure, EvalTrigger::Reconnect]),
            ("it is to move", RUNS, IS_TO_MIGRATE, calm, &[EvalTrigger::AllocStop]),
            ("a drain moves it", RUNS, IS_TO_MIGRATE, drained, &[EvalTrigger::NodeDrain]),
            ("it makes way", RUNS, IS_EVICTED, calm, &[EvalTrigger::Preemption]),
            ("it is healthy", RUNS, IS_HEALTHY, calm, &[]),
            ("it is healthy and others wait", RUNS, IS_HEALTHY, held_back, &[EvalTrigger::DeploymentWatcher]),
            ("its deployment looks itself", RUNS, IS_HEALTHY, rolled_out, &[]),
        ] {
            assert_eq!(triggers(first, then, around), wanted, "{name}");
        }
    }

    #[test]
    fn room_is_free_when_it_ends_and_again_when_its_node_is_done_with_it() {
        let frees = |first, then| consequences(first, then, Around::default()).frees_room;
        assert!(frees(RUNS, ENDS) && frees(ENDS, IS_CLEANED_UP));
        assert!(frees(RUNS, |spec, _| spec.resources.disk_mb = 7), "it takes less, or more");
        assert!(!frees(RUNS, IS_HEALTHY) && !frees(RUNS, IS_UNKNOWN) && !frees(RUNS, IS_TO_MIGRATE));
    }

    #[test]
    fn a_deletion_stops_it_once() {
        let (spec, status) = (AllocationSpec::default(), AllocationStatus::default());
        let facts = |is_deleting| AllocationFacts { spec: &spec, status: &status, is_deleting };
        let of = |before, now| of_allocation(facts(before), facts(now), Around::default()).triggers;
        assert_eq!(of(false, true), [EvalTrigger::AllocStop]);
        assert!(of(true, true).is_empty());
    }

    #[test]
    fn drains_and_deployments_look_at_verdicts_and_client_statuses_only() {
        let rolled_out = Around { is_rolled_out: true, ..Around::default() };
        for (then, concerns) in [(IS_HEALTHY, true), (ENDS, true), (IS_TO_MIGRATE, false), (IS_CLEANED_UP, false)] {
            let found = consequences(RUNS, then, rolled_out);
            assert_eq!((found.concerns_drain, found.concerns_deployment), (concerns, concerns));
            assert!(!consequences(RUNS, then, Around::default()).concerns_deployment);
        }
    }

    #[test]
    fn each_change_of_a_job_has_one_trigger_or_none() {
        let point = |generation, asked| Point { generation, asked };
        let web = JobFacts { uid: "u", point: point(1, 0), is_deleting: false, is_stopped: false, is_launch: false };
        let launch = JobFacts { is_launch: true, ..web };
        for (before, now, wanted) in [
            (None, web, Some(EvalTrigger::JobRegister)),
            (None, launch, Some(EvalTrigger::PeriodicJob)),
            (Some(web), web, None),
            (Some(web), JobFacts { point: point(2, 0), ..web }, Some(EvalTrigger::JobRegister)),
            (Some(launch), JobFacts { point: point(2, 0), ..launch }, Some(EvalTrigger::JobRegister)),
            (Some(web), JobFacts { point: point(1, 1), ..web }, Some(EvalTrigger::JobRegister)),
            (Some(web), JobFacts { uid: "v", ..web }, Some(EvalTrigger::JobRegister)),
            (Some(web), JobFacts { is_deleting: true, ..web }, Some(EvalTrigger::JobDeregister)),
            (Some(web), JobFacts { point: point(2, 0), is_stopped: true, ..web }, Some(EvalTrigger::JobDeregister)),
            (None, JobFacts { is_stopped: true, ..launch }, Some(EvalTrigger::JobDeregister)),
        ] {
            assert_eq!(of_job(before, now), wanted, "{before:?} {now:?}");
        }
    }
}
