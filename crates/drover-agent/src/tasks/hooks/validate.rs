//! Hook `validate`: what only the agent can refuse, with the field and the remedy.

use super::hook_error::TaskHookError;
use crate::tasks::plan::TaskPlan;
use crate::tasks::runner_env::RunnerEnv;

/// Drivers whose tasks may not run as these users.
const CHECKED_DRIVERS: &[&str] = &["exec"];
const DENIED_USERS: &[&str] = &["root", "Administrator"];

pub(super) fn prestart(_: &RunnerEnv, plan: &TaskPlan) -> Result<(), TaskHookError> {
    check(plan)
}

fn check(plan: &TaskPlan) -> Result<(), TaskHookError> {
    let task = &plan.task;
    let refuse = |reason: String| Err(TaskHookError { hook: "validate", reason, is_recoverable: false });
    if CHECKED_DRIVERS.contains(&task.driver.as_str()) && DENIED_USERS.contains(&task.user.as_str()) {
        return refuse(format!("user {} may not run tasks of driver {}: name another one", task.user, task.driver));
    }
    // A driver mounts volumes for others: what it mounts in a sandbox nobody else would see.
    // What driver mock runs listens nowhere: its plugins are there from the start, or never.
    if task.csi_plugin.is_some() && !["raw_exec", "mock"].contains(&task.driver.as_str()) {
        return refuse(format!(
            "a task with csiPlugin needs driver raw_exec, not {}: its mounts are for others",
            task.driver
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::alloc_dir::AllocDir;
    use std::path::Path;
    use std::sync::Arc;

    fn plan(driver: &str, user: &str) -> TaskPlan {
        let task = serde_json::json!({"name": "t", "driver": driver, "user": user});
        TaskPlan {
            uid: "uid".into(),
            allocation: Arc::new(drover_api::Allocation::new("a", drover_api::AllocationSpec::default())),
            job: Arc::default(),
            group: Arc::default(),
            task: Arc::new(serde_json::from_value(task).expect("a task")),
            dir: AllocDir::new(Path::new("/none"), "uid"),
            owner: None,
            restored: None,
            recovering: None,
            volumes: crate::allocations::volume_sources::VolumeSources::default(),
        }
    }

    #[test]
    fn a_135_root_may_not_run_in_a_sandbox_and_may_without_one() {
        let error = check(&plan("exec", "root")).expect_err("refused");
        assert!(error.reason.contains("root") && !error.is_recoverable, "{error}");
        check(&plan("raw_exec", "root")).expect("allowed");
        check(&plan("exec", "nobody")).expect("allowed");
    }
}
