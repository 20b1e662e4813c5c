//! What a new spec may not change about a stored job, and what a person may not submit at all (`spec/scheduler.md`,
//! 1.3, update rules).

use drover_api::JobSpec;

use super::found::{Violation, Violations};
use crate::dispatch;

/// What is wrong with submitting a spec, by itself (`stored` is none) or in the place of a stored one.
pub fn changes(stored: Option<&JobSpec>, submitted: &JobSpec) -> Vec<Violation> {
    let mut found = Violations::default();
    found.submission(submitted);
    let is_child = stored.is_some_and(|stored| stored.dispatch.is_some());
    // A dispatch takes its groups from its parent; one with groups of its own would be a job that only looks like one.
    let is_open = dispatch::is_open(submitted);
    if let Some(dispatch) = submitted.dispatch.as_ref().filter(|_| !is_child && !is_open) {
        let message =
            "is for a dispatch of a parameterized job, which has that job's groups; remove it, or spec.groups";
        found.when(true, "DispatchedReadOnly", format_args!("spec.dispatch"), message);
        let message = "is for a dispatch of a parameterized job; remove it";
        let has_payload = !dispatch.payload.is_empty() || !dispatch.payload_secret.is_empty();
        found.when(has_payload, "PayloadOnSubmit", format_args!("spec.dispatch.payload"), message);
    }
    found.payload_once(submitted);
    if let Some(stored) = stored {
        found.against(stored, submitted);
    }
    found.finish()
}

impl Violations {
    fn against(&mut self, stored: &JobSpec, submitted: &JobSpec) {
        let message = format_args!(
            "cannot be changed from {} to {}; delete the job and create it again",
            stored.r#type, submitted.r#type
        );
        self.when(stored.r#type != submitted.r#type, "TypeChanged", format_args!("spec.type"), message);
        for (code, block, before, after) in [
            ("PeriodicChanged", "periodic", stored.periodic.is_some(), submitted.periodic.is_some()),
            (
                "ParameterizedChanged",
                "parameterized",
                stored.parameterized.is_some(),
                submitted.parameterized.is_some(),
            ),
        ] {
            let message = if before { "cannot be removed" } else { "cannot be added" };
            let message = format_args!("{message}; delete the job and create it again");
            self.when(before != after, code, format_args!("spec.{block}"), message);
        }
        let is_other = stored.dispatch.is_some() && stored.dispatch != submitted.dispatch;
        let message = "was set by drover when the job was dispatched and cannot be changed; leave it as it is";
        self.when(is_other, "DispatchedReadOnly", format_args!("spec.dispatch"), message);
        let is_other = stored.dispatch.is_some() && stored.meta != submitted.meta;
        let message =
            "is what the job was dispatched with and cannot be changed; create another job for another dispatch";
        self.when(is_other, "DispatchedReadOnly", format_args!("spec.meta"), message);
    }
}
