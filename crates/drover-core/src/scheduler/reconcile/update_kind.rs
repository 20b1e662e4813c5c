//! Whether an allocation of another version is still current, can go on where it is, or must be replaced
//! (`spec/scheduler.md` 3.8).

use std::sync::Arc;

use drover_api::group::Group;

use crate::definition::GroupPrint;
use crate::model::{Alloc, Job};
use crate::snapshot::ClusterView;

/// What an allocation needs to run the job's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    /// Nothing that its node acts on differs, nor where it may be.
    Current,
    /// It can go on where it is, if that still suits. `needs_room` is false where not even that is to be looked at.
    InPlace {
        /// Whether its node must still be feasible and have the room.
        needs_room: bool,
    },
    /// A new one must take its place.
    Destructive,
}

/// Compares an allocation with the job's version.
pub fn update_kind(view: &ClusterView, job: &Job, group: &Group, alloc: &Alloc) -> UpdateKind {
    if alloc.job_uid == job.uid && alloc.job_version == job.version {
        return UpdateKind::Current;
    }
    let Some(theirs) = view.definition_of(alloc) else { return UpdateKind::Destructive };
    let prints = theirs.print(&group.name).zip(job.definition.print(&group.name));
    let Some((print, ours)) = prints else { return UpdateKind::Destructive };
    match compare(print, ours) {
        UpdateKind::InPlace { .. } => {
            let limit = theirs.group(&group.name).and_then(|group| group.max_run_duration);
            let needs_room = limit.is_none() || limit == group.max_run_duration;
            UpdateKind::InPlace { needs_room }
        }
        other => other,
    }
}

fn compare(theirs: GroupPrint, ours: GroupPrint) -> UpdateKind {
    if theirs.destructive != ours.destructive {
        return UpdateKind::Destructive;
    }
    if theirs.acted_on == ours.acted_on && theirs.placement == ours.placement {
        return UpdateKind::Current;
    }
    UpdateKind::InPlace { needs_room: true }
}

/// Whether an allocation is of this incarnation and current.
pub(super) fn is_of_this_job(view: &ClusterView, job: &Job, group: &Group, alloc: &Arc<Alloc>) -> bool {
    alloc.job_uid == job.uid && update_kind(view, job, group, alloc) == UpdateKind::Current
}
