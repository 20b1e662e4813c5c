//! From the manifest's blocks to the lifecycle's terms: a task's merged restart policy.

use super::plan::TaskPlan;
use drover_api::group::Group;
use drover_api::job::JobType;
use drover_api::policy::RestartMode as ApiMode;
use drover_api::task::Task;
use drover_core::defaults;
use drover_core::lifecycle::{RestartMode, RestartPolicy, Stage};

/// The task's restart block over the group's over the defaults of the job's type.
pub(super) fn restart_policy(kind: JobType, group: &Group, task: &Task, stage: Stage) -> RestartPolicy {
    let until_stopped = matches!(kind, JobType::Service | JobType::System);
    let merged = defaults::restart(kind, group.restart.as_ref(), task.restart.as_ref());
    RestartPolicy {
        attempts: u32::try_from(merged.attempts.unwrap_or_default()).unwrap_or(u32::MAX),
        interval: merged.interval.unwrap_or_default().to_std(),
        delay: merged.delay.unwrap_or_default().to_std(),
        mode: match merged.mode.unwrap_or_default() {
            ApiMode::Fail => RestartMode::Fail,
            ApiMode::Delay => RestartMode::Delay,
        },
        on_success: stage.restarts_on_success(until_stopped),
    }
}

/// Whether a task's templates are rendered again before each of its starts.
pub(super) fn renders_again(plan: &TaskPlan) -> bool {
    let merged = defaults::restart(plan.job.r#type, plan.group.restart.as_ref(), plan.task.restart.as_ref());
    merged.render_templates.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use drover_api::GoDuration;
    use drover_api::policy::Restart;

    use super::*;

    #[test]
    fn the_tasks_block_wins_field_by_field() {
        let task: Task = serde_json::from_value(serde_json::json!({
            "name": "t", "driver": "mock", "restart": {"attempts": 7, "mode": "delay"}
        }))
        .expect("a task");
        let group = Group {
            restart: Some(Restart { attempts: Some(1), delay: Some(GoDuration::from_secs(3)), ..Restart::default() }),
            ..Group::default()
        };
        let policy = restart_policy(JobType::Batch, &group, &task, Stage::Main);
        let wanted = RestartPolicy {
            attempts: 7,
            interval: Duration::from_hours(24),
            delay: Duration::from_secs(3),
            mode: RestartMode::Delay,
            on_success: false,
        };
        assert_eq!(policy, wanted);
        let plain = restart_policy(JobType::Service, &Group::default(), &Task { restart: None, ..task }, Stage::Main);
        assert_eq!((plain.attempts, plain.interval, plain.on_success), (2, Duration::from_mins(30), true));
    }
}
