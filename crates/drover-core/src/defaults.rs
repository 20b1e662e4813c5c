//! What an absent field means where that depends on the job's type or on the block above (`spec/scheduler.md`, 1.2).
//!
//! Input is a spec as it was written, output the same spec with every policy complete. The defaults that depend on
//! nothing are in the schema and in the types of `drover-api`. Filling in twice changes nothing. A block that the job's
//! type forbids is kept and completed like any other, so that validation can name it.

use drover_api::group::Group;
use drover_api::job::JobType;
use drover_api::policy::{
    DelayFunction, Disconnect, HealthCheck, Migrate, ReconcileStrategy, Reschedule, Restart, RestartMode, Update,
};
use drover_api::{GoDuration, JobSpec};

/// Processor share of a task that asks for none, in MHz.
pub const CPU_MHZ: i64 = 100;

/// The spec with every policy complete. `name` is the object's name, the default of `id`.
pub fn canonical(spec: &JobSpec, name: &str) -> JobSpec {
    let mut full = spec.clone();
    if full.id.is_empty() {
        name.clone_into(&mut full.id);
    }
    if full.name.is_empty() {
        full.name.clone_from(&full.id);
    }
    for group in &mut full.groups {
        complete_group(group, spec);
    }
    full
}

fn complete_group(group: &mut Group, job: &JobSpec) {
    let runs_for_ever = matches!(job.r#type, JobType::Service | JobType::System);
    let of_job = job.update.as_ref().filter(|_| runs_for_ever);
    group.update = match (runs_for_ever, &group.update) {
        (false, None) => None,
        (_, own) => update(job.r#type, of_job, own.as_ref()),
    };
    group.restart = Some(restart(job.r#type, group.restart.as_ref(), None));
    group.reschedule = match job.r#type {
        JobType::Service | JobType::Batch => Some(reschedule(job.r#type, group.reschedule.as_ref())),
        JobType::System | JobType::Sysbatch => {
            group.reschedule.as_ref().map(|given| reschedule(job.r#type, Some(given)))
        }
    };
    let may_migrate = job.r#type == JobType::Service || group.migrate.is_some();
    group.migrate = may_migrate.then(|| migrate(group.migrate.as_ref()));
    group.disconnect = group.disconnect.as_ref().map(disconnect);
    for task in &mut group.tasks {
        task.restart = Some(restart(job.r#type, group.restart.as_ref(), task.restart.as_ref()));
        if task.resources.cpu.is_none() && task.resources.cores.unwrap_or(0) == 0 {
            task.resources.cpu = Some(CPU_MHZ);
        }
    }
}

/// The update block of a group: its own fields, else the job's, else the defaults. Service and system jobs always have
/// one.
pub fn update(job_type: JobType, job: Option<&Update>, group: Option<&Update>) -> Option<Update> {
    if job.is_none() && group.is_none() && matches!(job_type, JobType::Batch | JobType::Sysbatch) {
        return None;
    }
    let (empty_job, empty_group) = (Update::default(), Update::default());
    let (job, group) = (job.unwrap_or(&empty_job), group.unwrap_or(&empty_group));
    Some(Update {
        max_parallel: group.max_parallel.or(job.max_parallel).or(Some(1)),
        canary: group.canary.or(job.canary).or(Some(0)),
        min_healthy_time: group.min_healthy_time.or(job.min_healthy_time).or(Some(GoDuration::from_secs(10))),
        healthy_deadline: group.healthy_deadline.or(job.healthy_deadline).or(Some(GoDuration::from_secs(300))),
        progress_deadline: group.progress_deadline.or(job.progress_deadline).or(Some(GoDuration::from_secs(600))),
        auto_revert: group.auto_revert.or(job.auto_revert).or(Some(false)),
        auto_promote: group.auto_promote.or(job.auto_promote).or(Some(false)),
        stagger: group.stagger.or(job.stagger).or(Some(GoDuration::from_secs(30))),
        health_check: group.health_check.or(job.health_check).or(Some(HealthCheck::Checks)),
    })
}

/// The restart policy of a group, or of a task in it: the task's fields, else the group's, else the defaults of the
/// job's type.
pub fn restart(job_type: JobType, group: Option<&Restart>, task: Option<&Restart>) -> Restart {
    let (empty_group, empty_task) = (Restart::default(), Restart::default());
    let (group, task) = (group.unwrap_or(&empty_group), task.unwrap_or(&empty_task));
    let (attempts, interval) = match job_type {
        JobType::Service | JobType::System => (2, GoDuration::from_secs(30 * 60)),
        JobType::Batch | JobType::Sysbatch => (3, GoDuration::from_secs(24 * 3600)),
    };
    Restart {
        attempts: task.attempts.or(group.attempts).or(Some(attempts)),
        interval: task.interval.or(group.interval).or(Some(interval)),
        delay: task.delay.or(group.delay).or(Some(GoDuration::from_secs(15))),
        mode: task.mode.or(group.mode).or(Some(RestartMode::Fail)),
        render_templates: task.render_templates.or(group.render_templates).or(Some(false)),
    }
}

/// The reschedule policy of a group. One that gives attempts, or turns unlimited off, is bounded.
pub fn reschedule(job_type: JobType, given: Option<&Reschedule>) -> Reschedule {
    let empty = Reschedule::default();
    let given = given.unwrap_or(&empty);
    if job_type == JobType::Batch {
        let unlimited = given.unlimited.unwrap_or(false);
        return Reschedule {
            attempts: given.attempts.or(Some(i64::from(!unlimited))),
            interval: given.interval.or(Some(GoDuration::from_secs(24 * 3600))),
            delay: given.delay.or(Some(GoDuration::from_secs(5))),
            delay_function: given.delay_function.or(Some(DelayFunction::Constant)),
            max_delay: given.max_delay.or(Some(GoDuration::ZERO)),
            unlimited: Some(unlimited),
        };
    }
    Reschedule {
        attempts: given.attempts.or(Some(0)),
        interval: given.interval.or(Some(GoDuration::ZERO)),
        delay: given.delay.or(Some(GoDuration::from_secs(30))),
        delay_function: given.delay_function.or(Some(DelayFunction::Exponential)),
        max_delay: given.max_delay.or(Some(GoDuration::from_secs(3600))),
        unlimited: given.unlimited.or(Some(given.attempts.is_none())),
    }
}

/// The migrate policy of a group.
pub fn migrate(given: Option<&Migrate>) -> Migrate {
    let empty = Migrate::default();
    let given = given.unwrap_or(&empty);
    Migrate {
        max_parallel: given.max_parallel.or(Some(1)),
        health_check: given.health_check.or(Some(HealthCheck::Checks)),
        min_healthy_time: given.min_healthy_time.or(Some(GoDuration::from_secs(10))),
        healthy_deadline: given.healthy_deadline.or(Some(GoDuration::from_secs(300))),
    }
}

fn disconnect(given: &Disconnect) -> Disconnect {
    Disconnect {
        lost_after: given.lost_after.or(Some(GoDuration::ZERO)),
        replace: given.replace.or(Some(true)),
        reconcile: given.reconcile.or(Some(ReconcileStrategy::BestScore)),
        stop_on_client_after: given.stop_on_client_after,
    }
}

#[cfg(test)]
mod tests {
    mod layers;

    use super::*;

    fn job(r#type: JobType) -> JobSpec {
        JobSpec { r#type, groups: vec![Group { name: "g".into(), count: 1, ..Group::default() }], ..JobSpec::default() }
    }

    #[test]
    fn filling_in_twice_changes_nothing() {
        for kind in JobType::ALL {
            let once = canonical(&job(*kind), "j");
            assert_eq!(canonical(&once, "j"), once, "{kind}");
        }
    }

    #[test]
    fn only_types_that_may_have_a_block_get_one() {
        for (kind, update, reschedule, migrate) in [
            (JobType::Service, true, true, true),
            (JobType::Batch, false, true, false),
            (JobType::System, true, false, false),
            (JobType::Sysbatch, false, false, false),
        ] {
            let group = canonical(&job(kind), "j").groups.remove(0);
            let got = (group.update.is_some(), group.reschedule.is_some(), group.migrate.is_some());
            assert_eq!(got, (update, reschedule, migrate), "{kind}");
        }
    }

    #[test]
    fn a_block_that_the_type_forbids_is_kept_for_validation() {
        for (kind, update, reschedule, migrate) in
            [(JobType::Batch, true, false, true), (JobType::Sysbatch, true, true, true)]
        {
            let mut spec = job(kind);
            let group = &mut spec.groups[0];
            group.update = update.then(Update::default);
            group.reschedule = reschedule.then(Reschedule::default);
            group.migrate = migrate.then(Migrate::default);
            let full = canonical(&spec, "j");
            assert_eq!(full.groups[0].update.is_some(), update, "{kind}");
            assert_eq!(full.groups[0].reschedule.is_some(), reschedule || kind == JobType::Batch, "{kind}");
            assert_eq!(full.groups[0].migrate.is_some(), migrate, "{kind}");
            assert_eq!(canonical(&full, "j"), full, "{kind}");
        }
    }

    #[test]
    fn a_group_overrides_the_update_block_field_by_field() {
        let job = Update { max_parallel: Some(3), canary: Some(1), ..Update::default() };
        let group = Update { canary: Some(2), ..Update::default() };
        let merged = update(JobType::Service, Some(&job), Some(&group)).unwrap();
        assert_eq!((merged.max_parallel, merged.canary, merged.auto_revert), (Some(3), Some(2), Some(false)));
    }

    #[test]
    fn a_task_overrides_the_restart_block_field_by_field() {
        let group = Restart { attempts: Some(7), ..Restart::default() };
        let task = Restart { delay: Some(GoDuration::from_secs(1)), ..Restart::default() };
        let merged = restart(JobType::Batch, Some(&group), Some(&task));
        assert_eq!((merged.attempts, merged.delay), (Some(7), Some(GoDuration::from_secs(1))));
        assert_eq!(merged.interval, Some(GoDuration::from_secs(24 * 3600)));
    }

    #[test]
    fn attempts_turn_an_unlimited_reschedule_off() {
        let bounded = Reschedule { attempts: Some(3), ..Reschedule::default() };
        assert_eq!(reschedule(JobType::Service, Some(&bounded)).unlimited, Some(false));
        assert_eq!(reschedule(JobType::Service, None).unlimited, Some(true));
    }
}
