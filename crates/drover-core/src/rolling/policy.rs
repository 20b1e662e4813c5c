//! Whether an object's values reach a group's allocations in turn, and at what pace.

use drover_api::group::Group;
use drover_api::policy::HealthCheck;
use drover_api::task::Task;
use drover_api::value_object::ValueObject;
use drover_api::{GoDuration, JobSpec};

use crate::defaults;
use crate::health::{HealthMode, HealthPolicy};
use crate::task::secret;

/// The pace of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollingPolicy {
    /// How many may hold new values with which they are not known to be well.
    pub max_parallel: usize,
    /// What it means to be well: that of the group's `update`, where health that people tell goes by the tasks' states.
    pub health: HealthPolicy,
}

/// Whether new values reach a task in turn: it has a template with `rolling`.
pub fn is_rolling(task: &Task) -> bool {
    task.templates.iter().any(|template| template.rolling)
}

/// The pace at which a group's allocations get an object's new values; none: all of them at once. It is that of tasks
/// which list the object and have a template with `rolling`.
pub fn rolling_policy(job: &JobSpec, group: &Group, object: &ValueObject) -> Option<RollingPolicy> {
    let lists = |task: &&Task| secret::objects_of_task(task).any(|listed| listed == *object);
    if !group.tasks.iter().filter(lists).any(is_rolling) {
        return None;
    }
    let update = defaults::update(job.r#type, job.update.as_ref(), group.update.as_ref())?;
    let max_parallel = usize::try_from(update.max_parallel.unwrap_or_default()).ok().filter(|most| *most > 0)?;
    let mode = match update.health_check.unwrap_or_default() {
        HealthCheck::Checks => HealthMode::Checks,
        HealthCheck::TaskStates | HealthCheck::Manual => HealthMode::TaskStates,
    };
    let or_zero = |span: Option<GoDuration>| span.unwrap_or_default().to_std();
    let health = HealthPolicy {
        mode,
        min_healthy_for: or_zero(update.min_healthy_time),
        deadline_after: or_zero(update.healthy_deadline),
    };
    Some(RollingPolicy { max_parallel, health })
}
