//! Hands an evaluation to the scheduler of the job's type.

use std::sync::Arc;

use drover_api::job::{EvalTrigger, JobType};

use super::{reconcile, system};
use crate::model::{Alloc, Job};
use crate::scheduler::place::Planner;
use crate::scheduler::plan::{Evaluation, Plan};
use crate::snapshot::ClusterView;

/// Whether the scheduler of a job's type knows what to do for a trigger (`spec/scheduler.md` 2.1).
pub const fn accepts(job_type: JobType, trigger: EvalTrigger) -> bool {
    match trigger {
        EvalTrigger::PeriodicJob => !matches!(job_type, JobType::System),
        EvalTrigger::MaxPlanAttempts
        | EvalTrigger::AllocFailure
        | EvalTrigger::AllocReschedule
        | EvalTrigger::MaxDisconnectTimeout => matches!(job_type, JobType::Service | JobType::Batch),
        EvalTrigger::JobRegister
        | EvalTrigger::JobDeregister
        | EvalTrigger::NodeUpdate
        | EvalTrigger::NodeDrain
        | EvalTrigger::AllocStop
        | EvalTrigger::RollingUpdate
        | EvalTrigger::DeploymentWatcher
        | EvalTrigger::QueuedAllocs
        | EvalTrigger::FailedFollowUp
        | EvalTrigger::Preemption
        | EvalTrigger::JobScaling
        | EvalTrigger::Reconnect => true,
    }
}

/// Decides what one job needs now. A job that the view does not have counts as stopped.
pub fn plan(view: &ClusterView, eval: &Evaluation, rng: &mut fastrand::Rng) -> Plan {
    let job = view.job(&eval.job).map(|job| &**job);
    let job_type = job.map_or(JobType::Service, |job| job.definition.job_type());
    if !accepts(job_type, eval.trigger) {
        let refused = format!("the scheduler of {job_type} jobs has no use for the trigger {}", eval.trigger);
        return Plan { refused: Some(refused), ..Plan::default() };
    }
    match job.filter(|job| !job.stopped) {
        Some(job) if matches!(job_type, JobType::System | JobType::Sysbatch) => system::plan(view, job, eval, rng),
        Some(job) => counted(view, job, eval, rng),
        None => stopped(view, job, eval),
    }
}

/// A service or batch job.
fn counted(view: &ClusterView, job: &Job, eval: &Evaluation, rng: &mut fastrand::Rng) -> Plan {
    let mut planner = Planner::new(view, job, eval, rng);
    let mut fits = |group: &drover_api::group::Group, alloc: &Arc<Alloc>, needs_room: bool| {
        let own = job.definition.group(&group.name)?;
        planner.fits_in_place(own, alloc, needs_room)
    };
    let outcome = reconcile::reconcile(view, Some(job), eval, &mut fits);
    planner.plan.deployment_updates = outcome.deployment_updates;
    planner.plan.deployment = outcome.deployment;
    planner.place_groups(outcome.groups, outcome.joins.as_ref());
    planner.plan
}

fn stopped(view: &ClusterView, job: Option<&Job>, eval: &Evaluation) -> Plan {
    let outcome = reconcile::reconcile(view, job, eval, &mut |_, _, _| None);
    let mut plan = Plan { deployment_updates: outcome.deployment_updates, ..Plan::default() };
    for (name, group) in outcome.groups {
        plan.stops.extend(group.stops);
        plan.desired.insert(name.to_string(), group.desired);
    }
    plan
}
