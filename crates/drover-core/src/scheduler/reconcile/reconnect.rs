//! Which of two stays when an allocation comes back that was replaced meanwhile (`spec/scheduler.md` 3.5).

use std::sync::Arc;

use drover_api::allocation::{ClientStatus, DesiredTransition};
use drover_api::group::Group;
use drover_api::policy::ReconcileStrategy;
use jiff::Timestamp;

use crate::model::{Alloc, Job};
use crate::scheduler::plan::{Stop, StopReason};
use crate::snapshot::ClusterView;

/// What becomes of allocations that are back.
#[derive(Debug, Default)]
pub(super) struct ReconnectOutcome {
    /// Originals and replacements that end.
    pub(super) stops: Vec<Stop>,
    /// Originals that go on.
    pub(super) kept: Vec<Arc<Alloc>>,
}

/// Decides for each allocation that is back.
pub(super) fn decide(
    view: &ClusterView,
    job: &Job,
    group: &Group,
    back: Vec<Arc<Alloc>>,
    is_outdated: impl Fn(&Alloc) -> bool,
) -> ReconnectOutcome {
    let mut outcome = ReconnectOutcome::default();
    for original in back {
        if original.client == ClientStatus::Failed {
            let stop = Stop { client: Some(ClientStatus::Failed), ..Stop::new(&original, StopReason::Rescheduled) };
            outcome.stops.push(stop);
            continue;
        }
        let requests =
            DesiredTransition { no_shutdown_delay: false, migrate_disable_placement: false, ..original.transition };
        if original.is_server_terminal() || !requests.is_empty() || is_outdated(&original) {
            outcome.stops.push(Stop::new(&original, StopReason::NotNeeded));
            continue;
        }
        let replacements = replacements(view, &original);
        if replacements.iter().any(|replacement| wins(job, group, &original, replacement)) {
            outcome.stops.push(Stop::new(&original, StopReason::NotNeeded));
            continue;
        }
        outcome.stops.extend(replacements.iter().map(|replacement| Stop::new(replacement, StopReason::Reconnected)));
        outcome.kept.push(original);
    }
    outcome
}

/// The allocations that were placed in the stead of one, and of those, as far as they are to run.
fn replacements(view: &ClusterView, original: &Alloc) -> Vec<Arc<Alloc>> {
    let (mut found, mut at) = (Vec::new(), view.next_of(original));
    // A chain that somebody wrote by hand may close on itself.
    let mut seen = std::collections::BTreeSet::from([&original.key]);
    while let Some(next) = at.filter(|next| seen.insert(&next.key)) {
        if !next.is_server_terminal() {
            found.push(Arc::clone(next));
        }
        at = view.next_of(next);
    }
    found
}

/// Whether a replacement stays and the original goes.
pub(super) fn wins(job: &Job, group: &Group, original: &Alloc, replacement: &Alloc) -> bool {
    if replacement.job_version > original.job_version || replacement.job_uid != original.job_uid {
        return replacement.job_uid == job.uid;
    }
    let strategy = group.disconnect.as_ref().and_then(|block| block.reconcile).unwrap_or_default();
    match strategy {
        ReconcileStrategy::KeepOriginal => false,
        ReconcileStrategy::KeepReplacement => true,
        ReconcileStrategy::BestScore => is_better_placed(original, replacement),
        ReconcileStrategy::LongestRunning => {
            match (running_since(group, original), running_since(group, replacement)) {
                (None, None) => is_better_placed(original, replacement),
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (Some(first), Some(second)) => second <= first,
            }
        }
    }
}

fn is_better_placed(original: &Alloc, replacement: &Alloc) -> bool {
    let has_better_score = match (original.best_score, replacement.best_score) {
        (Some(first), Some(second)) => second > first,
        (None, Some(_)) => true,
        (_, None) => false,
    };
    let may_win = replacement.client == ClientStatus::Running || original.client != ClientStatus::Running;
    has_better_score && may_win
}

/// Since when an allocation does its work: its leader's start, else the first of its tasks'.
fn running_since(group: &Group, alloc: &Alloc) -> Option<Timestamp> {
    let leader = group.tasks.iter().find(|task| task.leader);
    let starts = alloc.task_starts.iter();
    match leader {
        Some(leader) => starts.filter(|(task, _)| *task == leader.name).map(|(_, at)| *at).next(),
        None => starts.map(|(_, at)| *at).min(),
    }
}
