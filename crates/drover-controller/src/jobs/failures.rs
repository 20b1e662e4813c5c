//! The last failure among a job's allocations: found in what their agents have reported, shown in the job's status, and
//! told once in an Event.

use std::sync::Arc;

use drover_api::Job;
use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_core::job_status::{AllocFailure, Reverted};
use drover_core::model::{self, Alloc};
use drover_core::task::failure;
use drover_store::events::{Happening, Severity};

use super::status::JobState;
use crate::keys::key_of;
use crate::shared::Shared;

/// Allocations whose reports are read, the newest ones: a job may have thousands that failed alike.
const LOOKED_AT: usize = 8;

/// The last failure of the version that was asked for: the job's own, or the one that was taken back. O(n log n) in the
/// allocations that failed or are on their way.
pub(super) fn last_failure(
    shared: &Shared,
    job: &model::Job,
    allocs: &[Arc<Alloc>],
    reverted: Option<Reverted>,
) -> Option<AllocFailure> {
    let is_of_version = |alloc: &Alloc| (alloc.job_version == job.version) != reverted.is_some();
    let may_have_failed = |alloc: &Alloc| match alloc.client {
        ClientStatus::Failed => true,
        ClientStatus::Pending | ClientStatus::Running => {
            reverted.is_some() || alloc.desired == DesiredStatus::Run && !alloc.is_healthy()
        }
        ClientStatus::Complete => reverted.is_some(),
        ClientStatus::Lost | ClientStatus::Unknown => false,
    };
    let mut candidates: Vec<&Arc<Alloc>> =
        allocs.iter().filter(|alloc| is_of_version(alloc) && may_have_failed(alloc)).collect();
    candidates.sort_unstable_by_key(|alloc| (std::cmp::Reverse(alloc.last_event_at), &alloc.key));
    let failures = candidates.into_iter().take(LOOKED_AT).filter_map(|alloc| {
        let object = shared.caches.allocs.get(&key_of(&alloc.key))?;
        let task = failure::last(&alloc.key.name, &object.status.as_ref()?.task_states)?;
        Some(AllocFailure { alloc: alloc.key.name.to_string(), node: alloc.node.to_string(), task })
    });
    failures.max_by_key(|failure| failure.task.at)
}

/// Tells a failure as an Event of the job: one for each cause and generation, however many allocations it strikes.
pub(super) fn report(known: &mut JobState, shared: &mut Shared, job: &Job, failure: &AllocFailure) {
    let generation = job.metadata.generation.unwrap_or(0);
    let occasion = format!("{generation} {} {}", failure.task.task, failure.task.cause);
    if known.told_failure.as_ref() == Some(&occasion) {
        return;
    }
    known.told_failure = Some(occasion.clone());
    let (severity, reason, action) = (Severity::Warning, "AllocationFailed", "Run");
    shared.report(job, &Happening { severity, reason, action, note: failure.sentence(), occasion: &occasion });
}
