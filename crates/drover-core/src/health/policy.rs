//! What healthy means for an allocation: its group's `update` block in a deployment, else its `migrate` block.

use std::time::Duration;

use drover_api::GoDuration;
use drover_api::job::JobType;
use drover_api::policy::{HealthCheck, Migrate, Update};

use crate::defaults;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthMode {
    /// Tasks only.
    TaskStates,
    /// Tasks and checks.
    Checks,
}

/// What healthy means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthPolicy {
    /// What is looked at.
    pub mode: HealthMode,
    /// How long everything has to be well without a break.
    pub min_healthy_for: Duration,
    /// How long it may take altogether.
    pub deadline_after: Duration,
}

/// Which policy holds; `None` when the agent judges nothing: batch jobs, a deployment without an `update` block or one
/// whose health people tell.
pub fn health_policy(
    job_type: JobType,
    in_deployment: bool,
    update: Option<&Update>,
    migrate: Option<&Migrate>,
) -> Option<HealthPolicy> {
    match job_type {
        JobType::Service | JobType::System => {}
        JobType::Batch | JobType::Sysbatch => return None,
    }
    let migrate = defaults::migrate(migrate);
    let (check, min, deadline) = if in_deployment {
        let update = update?;
        (update.health_check, update.min_healthy_time, update.healthy_deadline)
    } else {
        (migrate.health_check, migrate.min_healthy_time, migrate.healthy_deadline)
    };
    let mode = match check.unwrap_or_default() {
        HealthCheck::Checks => HealthMode::Checks,
        HealthCheck::TaskStates => HealthMode::TaskStates,
        HealthCheck::Manual => return None,
    };
    Some(HealthPolicy {
        mode,
        min_healthy_for: min.unwrap_or(GoDuration::from_secs(10)).to_std(),
        deadline_after: deadline.unwrap_or(GoDuration::from_secs(300)).to_std(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(check: HealthCheck) -> Update {
        Update {
            health_check: Some(check),
            min_healthy_time: Some(GoDuration::from_secs(3)),
            healthy_deadline: Some(GoDuration::from_secs(60)),
            ..Update::default()
        }
    }

    #[test]
    fn a_078_health_that_people_tell_is_never_judged() {
        assert_eq!(health_policy(JobType::Service, true, Some(&with(HealthCheck::Manual)), None), None);
        let migrate = Migrate { health_check: Some(HealthCheck::Manual), ..Migrate::default() };
        assert_eq!(health_policy(JobType::Service, false, None, Some(&migrate)), None);
    }

    #[test]
    fn a_079_batch_jobs_have_no_health() {
        for kind in [JobType::Batch, JobType::Sysbatch] {
            for in_deployment in [false, true] {
                let update = with(HealthCheck::TaskStates);
                assert_eq!(health_policy(kind, in_deployment, Some(&update), None), None);
            }
        }
    }

    #[test]
    fn a_deployment_goes_by_update_and_all_else_by_migrate() {
        let update = with(HealthCheck::TaskStates);
        let wanted = HealthPolicy {
            mode: HealthMode::TaskStates,
            min_healthy_for: Duration::from_secs(3),
            deadline_after: Duration::from_mins(1),
        };
        assert_eq!(health_policy(JobType::Service, true, Some(&update), None), Some(wanted));
        assert_eq!(health_policy(JobType::System, true, None, None), None, "a deployment without an update block");
        let plain = HealthPolicy {
            mode: HealthMode::Checks,
            min_healthy_for: Duration::from_secs(10),
            deadline_after: Duration::from_mins(5),
        };
        assert_eq!(health_policy(JobType::System, false, Some(&update), None), Some(plain));
    }
}
