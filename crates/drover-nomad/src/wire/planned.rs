//! What would become of a job, as clients of Nomad read it (`spec/api.md` 3.1).

use drover_api::Job;
use drover_api::allocation::FollowUp;
use drover_api::job::{EvalStatus, EvalTrigger};
use drover_core::definition::Definition;
use drover_core::difference::JobDiff;
use drover_core::evaluation_id;
use drover_core::periodic::{Schedule, is_armed};
use drover_core::scheduler::plan::{DesiredUpdates, Plan};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::allocation::{self, StubParts};
use super::evaluation::{self, Evaluation, NONE_FAILED};
use super::times::date;
use super::{difference, metric};
use crate::world::{World, uid};

/// A plan, with what it is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned<'a> {
    /// The job that is planned.
    pub(crate) job: &'a Job,
    /// The one in whose place it would stand.
    pub(crate) before: Option<&'a Job>,
    /// What the scheduler would do.
    pub(crate) plan: &'a Plan,
    /// What the one that is there asks for.
    pub(crate) replaced: Option<&'a Definition>,
    /// Whether the differences are wanted.
    pub(crate) has_diff: bool,
    /// What the job's author should know.
    pub(crate) warnings: &'a [String],
    /// The time.
    pub(crate) now: Timestamp,
    /// What the plan was made from.
    pub(crate) world: &'a World,
}

/// The answer.
pub(crate) fn answer(planned: &Planned<'_>) -> Value {
    let Planned { job, plan, .. } = planned;
    let desired: Map<String, Value> = plan.desired.iter().map(|(group, of)| (group.clone(), updates(*of))).collect();
    let diff = planned.has_diff.then(|| {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let after = Definition::new(&job.spec, name);
        difference::of_job(&JobDiff::between(planned.replaced, &after).with_updates(&plan.desired))
    });
    json!({
        "Annotations": { "DesiredTGUpdates": desired, "PreemptedAllocs": preempted(planned) },
        "FailedTGAllocs": metric::of_groups(&plan.failed, planned.world),
        "JobModifyIndex": planned.before.and_then(|before| before.metadata.generation).unwrap_or(0),
        "CreatedEvals": created(planned),
        "Diff": diff,
        "NextPeriodicLaunch": date(next_launch(job, planned.now)),
        "Warnings": planned.warnings.join("\n"),
    })
}

fn updates(of: DesiredUpdates) -> Value {
    json!({
        "Ignore": of.ignore, "Place": of.place, "Migrate": of.migrate, "Stop": of.stop,
        "InPlaceUpdate": of.in_place_update, "DestructiveUpdate": of.destructive_update, "Canary": of.canary,
        "Preemptions": of.preemptions, "Disconnect": of.disconnect, "Reconnect": of.reconnect,
        "RescheduleNow": of.reschedule_now, "RescheduleLater": of.reschedule_later,
    })
}

/// The allocations that would be evicted, of the job's own namespace: its author may not see others, whose number is
/// in the updates.
fn preempted(planned: &Planned<'_>) -> Vec<Value> {
    let parts = StubParts { resources: false, task_states: true };
    let own = planned.job.metadata.namespace.as_deref().unwrap_or_default();
    let victims = planned.plan.preempted().filter(|(victim, _)| *victim.key.namespace == *own);
    let found = victims.filter_map(|(victim, _)| planned.world.allocations.named(own, &victim.key.name));
    found.map(|victim| json!(allocation::stub(victim, planned.world, parts))).collect()
}

/// The evaluations that would follow: of what is delayed, and of what waits for room.
fn created(planned: &Planned<'_>) -> Vec<Value> {
    let Planned { job, plan, .. } = planned;
    let own = uid(Some(&job.metadata));
    let one = |id: &str, status: EvalStatus, trigger: EvalTrigger| Evaluation {
        id: evaluation_id::of_wait(own, id),
        job,
        status,
        trigger,
        description: "",
        priority: job.spec.priority,
        time: planned.now,
        failed: &NONE_FAILED,
        blocked: String::new(),
        previous: String::new(),
        deployment: "",
        next: String::new(),
    };
    let delayed = |(number, later): (usize, &FollowUp)| {
        let evaluation = one(&format!("planned-{number}"), EvalStatus::Pending, later.trigger);
        let mut wire = evaluation::full(&evaluation, planned.world);
        wire["WaitUntil"] = date(Some(later.at));
        wire
    };
    let waits = plan.is_blocked.then(|| {
        let waiting = one("planned", EvalStatus::Blocked, EvalTrigger::QueuedAllocs);
        evaluation::full(&Evaluation { failed: &plan.failed, ..waiting }, planned.world)
    });
    plan.follow_ups.iter().enumerate().map(delayed).chain(waits).collect()
}

fn next_launch(job: &Job, now: Timestamp) -> Option<Timestamp> {
    let periodic = job.spec.periodic.as_ref().filter(|_| is_armed(&job.spec, job.spec.stop))?;
    // A schedule that cannot be read is one of the faults for which the job is refused.
    Schedule::of(periodic).ok()?.next_after(now)
}
