//! What each allocation of a group is to a reconciliation: it stays, moves, is lost, disconnected or back
//! (`spec/scheduler.md` 3.2), and which failed ones are replaced now or later (3.3).

use std::sync::Arc;

use drover_api::GoDuration;
use drover_api::allocation::{ClientStatus, DesiredStatus, LastReschedule};
use drover_api::client_node::NodePhase;
use drover_api::group::Group;
use drover_api::job::{EvalTrigger, JobType};
use jiff::Timestamp;

use crate::model::{Alloc, Deployment, Job};
use crate::scheduler::plan::{Evaluation, StopReason};
use crate::scheduler::reschedule;
use crate::snapshot::ClusterView;

/// Allocations, in the order in which they were found.
pub(super) type AllocList = Vec<Arc<Alloc>>;

/// What an allocation is to a reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Ignored,
    Untainted,
    Migrating,
    Lost,
    Disconnecting,
    Reconnecting,
    Expiring,
}

/// The allocations of a group, by class.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    pub(super) ignored: AllocList,
    pub(super) untainted: AllocList,
    pub(super) migrating: AllocList,
    pub(super) lost: AllocList,
    pub(super) disconnecting: AllocList,
    pub(super) reconnecting: AllocList,
    pub(super) expiring: AllocList,
}

impl Sorted {
    pub(super) fn new(view: &ClusterView, allocs: impl IntoIterator<Item = Arc<Alloc>>, now: Timestamp) -> Self {
        let mut sorted = Self::default();
        for alloc in allocs {
            let list = match classify(view, &alloc, now) {
                Class::Ignored => &mut sorted.ignored,
                Class::Untainted => &mut sorted.untainted,
                Class::Migrating => &mut sorted.migrating,
                Class::Lost => &mut sorted.lost,
                Class::Disconnecting => &mut sorted.disconnecting,
                Class::Reconnecting => &mut sorted.reconnecting,
                Class::Expiring => &mut sorted.expiring,
            };
            list.push(alloc);
        }
        sorted
    }
}

/// How long an allocation of a disconnected node may be away, by the version that it runs; zero for not at all.
pub(crate) fn lost_after(view: &ClusterView, alloc: &Alloc) -> GoDuration {
    disconnect(view, alloc, |block| block.lost_after).unwrap_or_default()
}

/// Whether an allocation that is disconnected is replaced meanwhile.
pub(crate) fn is_replaced_while_away(view: &ClusterView, alloc: &Alloc) -> bool {
    disconnect(view, alloc, |block| block.replace).unwrap_or(true)
}

fn disconnect<T>(
    view: &ClusterView,
    alloc: &Alloc,
    pick: impl FnOnce(&drover_api::policy::Disconnect) -> Option<T>,
) -> Option<T> {
    view.definition_of(alloc)?.group(&alloc.group)?.disconnect.as_ref().and_then(pick)
}

/// When an `unknown` allocation counts as lost; never where no note says since when it is `unknown`.
pub(crate) fn expires_at(view: &ClusterView, alloc: &Alloc) -> Option<Timestamp> {
    alloc.unknown_since().map(|since| reschedule::after(since, lost_after(view, alloc)))
}

/// Whether an `unknown` allocation was away for longer than its group allows.
pub(crate) fn is_expired(view: &ClusterView, alloc: &Alloc, now: Timestamp) -> bool {
    alloc.client == ClientStatus::Unknown && expires_at(view, alloc).is_some_and(|at| at <= now)
}

/// Whether an allocation was disconnected, and nothing was decided on it since.
pub(crate) fn is_reconnecting(alloc: &Alloc) -> bool {
    matches!(alloc.client, ClientStatus::Unknown | ClientStatus::Running | ClientStatus::Failed)
        && alloc.needs_reconnect()
}

/// Classifies one allocation: the first row of 3.2 that matches.
pub(super) fn classify(view: &ClusterView, alloc: &Alloc, now: Timestamp) -> Class {
    let node = view.node(&alloc.node);
    let reconnects = is_reconnecting(alloc);
    let is_stopping = alloc.is_server_terminal();
    if reconnects && !is_stopping && alloc.client == ClientStatus::Failed {
        return Class::Reconnecting;
    }
    if alloc.is_terminal() && !reconnects {
        return match (is_stopping, alloc.canary && alloc.transition.migrate) {
            (true, _) if alloc.transition.migrate_disable_placement || awaits_replacement(view, alloc) => {
                Class::Untainted
            }
            (true, _) => Class::Ignored,
            (false, true) => Class::Migrating,
            (false, false) => Class::Untainted,
        };
    }
    if is_expired(view, alloc, now) {
        return Class::Expiring;
    }
    if reconnects && alloc.client == ClientStatus::Failed {
        return Class::Ignored;
    }
    if node.is_some_and(|node| node.phase == NodePhase::Disconnected) {
        return match alloc.client {
            ClientStatus::Unknown => Class::Untainted,
            ClientStatus::Pending => Class::Lost,
            _ if lost_after(view, alloc) <= GoDuration::ZERO => Class::Lost,
            _ => Class::Disconnecting,
        };
    }
    if alloc.transition.migrate {
        return Class::Migrating;
    }
    match node.map(|node| (node.phase, node.is_draining)) {
        // One whose agent has not reported yet is still `unknown`: who stays is decided on what it says.
        Some((NodePhase::Ready, _) | (NodePhase::Initializing, false))
            if reconnects && alloc.client != ClientStatus::Unknown =>
        {
            Class::Reconnecting
        }
        None => Class::Lost,
        Some((NodePhase::Down, _)) if is_replaced_while_away(view, alloc) => Class::Lost,
        Some((NodePhase::Down, _)) => match alloc.client {
            ClientStatus::Unknown => Class::Untainted,
            ClientStatus::Running => Class::Disconnecting,
            _ => Class::Lost,
        },
        Some(_) => Class::Untainted,
    }
}

/// Whether an allocation was stopped to be replaced later, and holds its slot until then.
pub(super) fn awaits_replacement(view: &ClusterView, alloc: &Alloc) -> bool {
    alloc.transition.reschedule && alloc.follow_up.is_some() && view.next_of(alloc).is_none()
}

/// Why an allocation that is marked to move ends: a drain moves those of its node, and a user's stop asks for a
/// replacement wherever it is.
pub(crate) fn reason_to_move(view: &ClusterView, alloc: &Alloc) -> StopReason {
    let is_drained = view.node(&alloc.node).is_none_or(|node| node.is_draining);
    if alloc.transition.reschedule && !is_drained { StopReason::AllocStop } else { StopReason::Migrating }
}

/// Whether the node of an allocation is gone or down.
pub(crate) fn is_lost(view: &ClusterView, alloc: &Alloc) -> bool {
    view.node(&alloc.node).is_none_or(|node| node.phase == NodePhase::Down)
}

/// What is to become of allocations that may be replaced.
#[derive(Debug, Default)]
pub(super) struct DueAllocs {
    /// They stay.
    pub(super) untainted: AllocList,
    /// They are replaced now.
    pub(super) now: AllocList,
    /// They stay, and are replaced at that time.
    pub(super) later: Vec<(Timestamp, Arc<Alloc>)>,
}

/// What the reschedule rules look at.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) view: &'a ClusterView,
    pub(super) job: &'a Job,
    pub(super) group: &'a Group,
    pub(super) eval: &'a Evaluation,
    pub(super) deployment: Option<&'a Deployment>,
    /// Whether the allocations are being disconnected right now.
    pub(super) is_disconnecting: bool,
}

enum First {
    Stays,
    MayBeReplaced,
    /// It holds no slot any more.
    Gone,
}

enum Second {
    Now,
    Later(Timestamp),
    Never,
}

/// Sorts allocations by whether and when they are replaced.
pub(super) fn due(rules: Rules<'_>, allocs: AllocList) -> DueAllocs {
    let mut due = DueAllocs::default();
    for alloc in allocs {
        match rules.first(&alloc) {
            First::Gone => {}
            First::Stays => due.untainted.push(alloc),
            First::MayBeReplaced => match rules.second(&alloc) {
                Second::Now => due.now.push(alloc),
                Second::Later(at) => {
                    due.later.push((at, Arc::clone(&alloc)));
                    due.untainted.push(alloc);
                }
                Second::Never => due.untainted.push(alloc),
            },
        }
    }
    due
}

impl Rules<'_> {
    fn first(&self, alloc: &Alloc) -> First {
        if self.is_disconnecting && alloc.client == ClientStatus::Unknown {
            return First::Gone;
        }
        if alloc.is_terminal() && self.view.next_of(alloc).is_some() {
            return First::Gone;
        }
        if alloc.client == ClientStatus::Unknown && self.view.next_of(alloc).is_some() {
            return First::Stays;
        }
        if self.is_left_alone(alloc) {
            return First::MayBeReplaced;
        }
        let was_not_placed =
            alloc.tracker.as_ref().is_some_and(|tracker| tracker.last_reschedule == Some(LastReschedule::NoPlacement));
        let stays = if self.is_disconnecting { First::MayBeReplaced } else { First::Stays };
        let is_batch = self.job.definition.job_type() == JobType::Batch;
        match (is_batch, alloc.is_server_terminal()) {
            (true, _) if alloc.transition.migrate_disable_placement => stays,
            (true, _) if alloc.transition.reschedule => First::MayBeReplaced,
            (true, true) if alloc.desired == DesiredStatus::Evict => First::Gone,
            (true, true) if alloc.ran_successfully => stays,
            (_, true) if was_not_placed => First::MayBeReplaced,
            (_, true) => First::Gone,
            (true, false) if alloc.client == ClientStatus::Failed => First::MayBeReplaced,
            (true, false) => stays,
            (false, false) if matches!(alloc.client, ClientStatus::Complete | ClientStatus::Lost) => First::Gone,
            (false, false) => First::MayBeReplaced,
        }
    }

    fn second(&self, alloc: &Alloc) -> Second {
        let is_requested = alloc.transition.reschedule;
        let is_of_deployment = self.deployment.is_some_and(|current| {
            current.phase.is_active() && alloc.deployment.as_deref() == Some(&*current.key.name)
        });
        if is_of_deployment && !is_requested && !alloc.transition.force_reschedule {
            return Second::Never;
        }
        if alloc.transition.force_reschedule {
            return Second::Now;
        }
        if self.is_disconnecting && !is_replaced_while_away(self.view, alloc) {
            return Second::Never;
        }
        let Some(policy) = &self.group.reschedule else { return Second::Never };
        let is_awaited = self.eval.is_follow_up_of(alloc);
        let was_not_placed =
            alloc.tracker.as_ref().is_some_and(|tracker| tracker.last_reschedule == Some(LastReschedule::NoPlacement));
        let base = if self.is_disconnecting {
            self.eval.now
        } else if alloc.client == ClientStatus::Unknown {
            let is_due = is_awaited || self.is_left_alone(alloc);
            let Some(since) = alloc.unknown_since().filter(|_| is_due) else { return Second::Never };
            since
        } else {
            let has_failed = matches!(alloc.client, ClientStatus::Failed | ClientStatus::Lost);
            let is_batch_request = is_requested && self.job.definition.job_type() == JobType::Batch;
            if (!has_failed && !is_batch_request)
                || (alloc.is_server_terminal() && !was_not_placed && !is_batch_request)
            {
                return Second::Never;
            }
            alloc.last_event_at
        };
        let Some(at) = reschedule::next_time(alloc, policy, base) else { return Second::Never };
        if is_awaited || at.duration_since(self.eval.now) <= reschedule::SOON {
            return Second::Now;
        }
        let is_to_wait = if alloc.client == ClientStatus::Unknown {
            expires_at(self.view, alloc).is_none_or(|expiry| at < expiry)
        } else {
            alloc.follow_up.is_none()
        };
        if is_to_wait { Second::Later(at) } else { Second::Never }
    }

    /// Whether an allocation is marked as disconnected and nothing of what follows on the mark has happened: no
    /// replacement is there, and none is awaited. The leader died in between, or the replacement could not be placed or
    /// written.
    fn is_left_alone(&self, alloc: &Alloc) -> bool {
        let awaits_replacement = alloc.follow_up.as_ref().is_some_and(|follow_up| {
            follow_up.trigger != EvalTrigger::MaxDisconnectTimeout && follow_up.at > self.eval.now
        });
        alloc.client == ClientStatus::Unknown
            && !alloc.is_server_terminal()
            && !awaits_replacement
            && self.view.next_of(alloc).is_none()
            && self.view.node(&alloc.node).is_some_and(|node| node.phase == NodePhase::Disconnected)
            && is_replaced_while_away(self.view, alloc)
    }
}
