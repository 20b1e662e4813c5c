//! A group's own fields, and what its tasks are to one another.

use std::collections::BTreeMap;

use drover_api::group::Group;
use drover_api::job::JobType;
use drover_api::{GoDuration, JobSpec};

use super::found::{At, Violations, shown};

/// Smallest disk of a group, in MiB.
const DISK_MINIMUM_MB: i64 = 10;

impl Violations {
    pub(super) fn group(&mut self, spec: &JobSpec, at: At<'_>, group: &Group) {
        let r#type = spec.r#type;
        self.group_fields(r#type, at, group);
        self.preferences(at, r#type, &group.affinities, &group.spreads);
        for (n, constraint) in group.constraints.iter().enumerate() {
            self.constraint(format_args!("{at}.constraints[{n}]"), constraint);
        }
        self.policies(spec, at, group);
        self.networks(at, group);
        self.volumes(r#type, at, group);
        self.services(at, group);
        self.tasks(at, group);
        for (n, task) in group.tasks.iter().enumerate() {
            self.task(r#type, format_args!("{at}.tasks[{n}]"), group, task);
        }
    }

    fn group_fields(&mut self, r#type: JobType, at: At<'_>, group: &Group) {
        let count = format_args!("{at}.count");
        self.when(group.count < 0, "CountNegative", count, "is negative; set it to 0 or more");
        let is_wrong = r#type == JobType::System && group.count > 1;
        self.when(is_wrong, "SystemCount", count, "must be 0 or 1 on a system job; set it to 1, or change type");
        let disk = group.ephemeral_disk.size_mb;
        self.when(
            disk < DISK_MINIMUM_MB,
            "DiskMin",
            format_args!("{at}.ephemeralDisk.sizeMB"),
            format_args!("{disk} is below {DISK_MINIMUM_MB}; raise it"),
        );
        let delay = group.shutdown_delay.unwrap_or_default();
        let message = format_args!("{delay} is negative; set it to 0s or more");
        self.when(delay.is_negative(), "ShutdownDelayNegative", format_args!("{at}.shutdownDelay"), message);
        if let Some(longest) = group.max_run_duration {
            let field = format_args!("{at}.maxRunDuration");
            let message = format_args!("{longest} is not above 0s; raise it, or remove it to run without limit");
            self.when(longest <= GoDuration::ZERO, "MaxRunDuration", field, message);
            let is_wrong = matches!(r#type, JobType::Service | JobType::System);
            self.when(is_wrong, "MaxRunDuration", field, "is for batch and sysbatch jobs; remove it, or change type");
        }
    }

    fn tasks(&mut self, at: At<'_>, group: &Group) {
        let field = format_args!("{at}.tasks");
        self.when(group.tasks.is_empty(), "TasksMissing", field, "is empty; add a task");
        let has_main = group.tasks.is_empty() || group.tasks.iter().any(|task| task.lifecycle.is_none());
        let message = "are all helpers; leave lifecycle out of at least one of them";
        self.when(!has_main, "MainTaskMissing", field, message);
        let leaders = group.tasks.iter().filter(|task| task.leader).count();
        let message = format_args!("have {leaders} leaders; set leader on one of them only");
        self.when(leaders > 1, "LeaderMultiple", field, message);
        let mut seen = BTreeMap::new();
        for (n, task) in group.tasks.iter().enumerate() {
            if let Some(first) = seen.insert(&task.name, n).filter(|_| !task.name.is_empty()) {
                let field = format_args!("{at}.tasks[{n}].name");
                let message =
                    format_args!("{} is also the name of {at}.tasks[{first}]; rename one of them", shown(&task.name));
                self.when(true, "TaskDuplicate", field, message);
            }
        }
    }
}
