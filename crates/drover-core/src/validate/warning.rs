//! What is accepted and probably not meant (`spec/scheduler.md`, 1.3, warnings).

use drover_api::group::Group;
use drover_api::job::JobType;

use super::found::{At, Violation, Violations};
use crate::definition::Definition;

/// What a person should know about a definition that is accepted nevertheless.
pub fn warnings(definition: &Definition) -> Vec<Violation> {
    let mut found = Violations::default();
    let spec = &definition.spec;
    for (n, group) in spec.groups.iter().enumerate() {
        found.group_warnings(spec.r#type, format_args!("spec.groups[{n}]"), group);
    }
    found.auto_promote(&spec.groups);
    let cron = spec.periodic.as_ref().is_some_and(|periodic| !periodic.cron.is_empty());
    let message = "is the old form for one expression; write crons: [...]";
    found.when(cron, "OldCron", format_args!("spec.periodic.cron"), message);
    found.finish()
}

impl Violations {
    fn group_warnings(&mut self, r#type: JobType, at: At<'_>, group: &Group) {
        if let Some(most) = group.update.as_ref().and_then(|update| update.max_parallel) {
            let is_counted = matches!(r#type, JobType::Service | JobType::Batch);
            self.when(
                is_counted && group.count > 1 && most > group.count,
                "MaxParallelAboveCount",
                format_args!("{at}.update.maxParallel"),
                format_args!("{most} is above count {}: all are replaced at once; lower it", group.count),
            );
        }
        for (field, is_given, instead) in [
            ("maxClientDisconnect", group.max_client_disconnect.is_some(), "and ignored; write disconnect.lostAfter"),
            (
                "stopAfterClientDisconnect",
                group.stop_after_client_disconnect.is_some(),
                "that only the node acts on; write disconnect.stopOnClientAfter",
            ),
            (
                "preventRescheduleOnLost",
                group.prevent_reschedule_on_lost.is_some(),
                "and ignored; write disconnect.replace",
            ),
        ] {
            let message = format_args!("is an old form {instead}");
            self.when(is_given, "OldDisconnect", format_args!("{at}.{field}"), message);
        }
        for (n, network) in group.networks.iter().enumerate() {
            let message = "is not enforced; remove it";
            self.when(network.mbits.is_some(), "Mbits", format_args!("{at}.networks[{n}].mbits"), message);
        }
    }

    fn auto_promote(&mut self, groups: &[Group]) {
        let updates =
            || groups.iter().filter_map(|group| group.update.as_ref()).filter(|update| update.canary > Some(0));
        let some = updates().any(|update| update.auto_promote == Some(true));
        let all = updates().all(|update| update.auto_promote == Some(true));
        let message = "promote by themselves in some groups with canaries only: they wait for the others; set autoPromote in all or none";
        self.when(some && !all, "AutoPromoteSome", format_args!("spec.groups"), message);
    }
}
