//! What should exist of a service or batch job: which allocations stay, stop, change, are replaced or are missing
//! (`spec/scheduler.md`, 3). Never looks at what nodes have room for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::allocation::{ClientStatus, DesiredStatus, FollowUp};
use drover_api::client_node::NodePhase;
use drover_api::group::Group;
use drover_api::job::{EvalTrigger, JobType};
use jiff::{SignedDuration, Timestamp};

use crate::definition::{Definition, GroupPrint};
use crate::ids::AllocKey;
use crate::model::{Alloc, Job};
use crate::scheduler::feasible;
use crate::scheduler::plan::{AttributeUpdate, DesiredUpdates, Stop, StopReason};
use crate::scheduler::reschedule::{self, Verdict};
use crate::snapshot::ClusterView;

/// An allocation that should exist and does not.
#[derive(Clone, Debug)]
pub struct Missing {
    /// Its slot.
    pub index: i64,
    /// The allocation that it replaces.
    pub previous: Option<Arc<Alloc>>,
    /// Whether it replaces one that failed.
    pub is_reschedule: bool,
    /// The allocation that ends only if a node is found.
    pub replaces: Option<Stop>,
}

/// What should become of one group.
#[derive(Debug, Default)]
pub struct GroupOutcome {
    /// Allocations to end.
    pub stops: Vec<Stop>,
    /// Allocations to make, in order.
    pub missing: Vec<Missing>,
    /// Allocations that may go on with the new version where they are, if they still fit.
    pub in_place: Vec<Arc<Alloc>>,
    /// Destructive updates that wait for earlier ones to be healthy.
    pub held_back: i64,
    /// Follow-ups to note on allocations.
    pub attributes: Vec<AttributeUpdate>,
    /// Evaluations to make later.
    pub follow_ups: Vec<FollowUp>,
    /// Counters.
    pub desired: DesiredUpdates,
}

/// Reschedules that are due within this span share one evaluation.
const BATCH: SignedDuration = SignedDuration::from_secs(5);

/// Stops everything of a job that is stopped or gone.
pub fn stop_all<'a>(view: &ClusterView, allocs: impl Iterator<Item = &'a Arc<Alloc>>) -> Vec<Stop> {
    allocs
        .filter(|alloc| !alloc.is_terminal())
        .map(|alloc| if is_lost(view, alloc) { lost(alloc) } else { stop(alloc, StopReason::NotNeeded) })
        .collect()
}

/// Decides for one group of a job that is to run.
pub fn group(view: &ClusterView, job: &Job, group: &Group, allocs: &[Arc<Alloc>], now: Timestamp) -> GroupOutcome {
    let count = job.counts.get(&group.name).copied().unwrap_or(group.count);
    let mut out = GroupOutcome::default();
    let mut sorted = Sorted::new(view, job, group, allocs, now);
    out.stops.extend(sorted.lost.iter().map(lost));
    sorted.stop_surplus(count, &mut out);

    let mut taken: BTreeSet<i64> = sorted.untainted.iter().map(|alloc| alloc.index).collect();
    fill_again(&sorted.due, StopReason::Rescheduled, &mut taken, &mut out);
    fill_again(&sorted.migrating, StopReason::Migrating, &mut taken, &mut out);
    out.desired.stop = size(out.stops.len());
    out.desired.migrate = size(out.missing.iter().filter(|missing| !missing.is_reschedule).count());
    let mut deficit = usize::try_from(count - size(sorted.untainted.len() + out.missing.len())).unwrap_or(0);
    out.desired.place = size(deficit);
    for gone in &sorted.lost {
        if deficit > 0 && taken.insert(gone.index) {
            deficit -= 1;
            out.missing.push(Missing::new(gone.index, Some(Arc::clone(gone))));
        }
    }
    let newest = newest_by_index(allocs);
    for index in (0..count).filter(|index| !taken.contains(index)).take(deficit) {
        out.missing.push(Missing::new(index, newest.get(&index).map(|alloc| Arc::clone(alloc))));
    }
    out.missing.sort_by_key(|missing| missing.index);

    let holders: BTreeSet<&AllocKey> = sorted.untainted.iter().map(|alloc| &alloc.key).collect();
    let waiting: Vec<_> = sorted.later.iter().filter(|(_, alloc)| holders.contains(&alloc.key)).cloned().collect();
    later(waiting, &mut out);
    update(view, job, group, sorted.untainted, &mut out);
    out
}

impl Missing {
    fn new(index: i64, previous: Option<Arc<Alloc>>) -> Self {
        Self { index, previous, is_reschedule: false, replaces: None }
    }
}

fn size(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The allocations of a group, by what is to become of them.
#[derive(Default)]
struct Sorted {
    untainted: Vec<Arc<Alloc>>,
    migrating: Vec<Arc<Alloc>>,
    lost: Vec<Arc<Alloc>>,
    due: Vec<Arc<Alloc>>,
    later: Vec<(Timestamp, Arc<Alloc>)>,
}

impl Sorted {
    fn new(view: &ClusterView, job: &Job, group: &Group, allocs: &[Arc<Alloc>], now: Timestamp) -> Self {
        let mut sorted = Self::default();
        let replaced: BTreeSet<&str> = allocs.iter().filter_map(|alloc| alloc.previous.as_deref()).collect();
        for alloc in allocs {
            sorted.add(view, job, group, alloc, &replaced, now);
        }
        sorted
    }

    fn add(
        &mut self,
        view: &ClusterView,
        job: &Job,
        group: &Group,
        alloc: &Arc<Alloc>,
        replaced: &BTreeSet<&str>,
        now: Timestamp,
    ) {
        let is_batch = job.definition.job_type() == JobType::Batch;
        if alloc.is_terminal() && replaced.contains(&*alloc.key.name) {
            return;
        }
        if is_batch && alloc.is_terminal() && !is_current(view, job, group, alloc) {
            return;
        }
        if alloc.is_server_terminal() {
            if is_batch && alloc.ran_successfully && !alloc.is_deleting {
                self.untainted.push(Arc::clone(alloc));
            }
            return;
        }
        match alloc.client {
            ClientStatus::Complete if is_batch => self.untainted.push(Arc::clone(alloc)),
            ClientStatus::Complete | ClientStatus::Lost => {}
            ClientStatus::Failed => self.add_failed(group, alloc, now),
            ClientStatus::Pending | ClientStatus::Running | ClientStatus::Unknown => {
                if is_lost(view, alloc) {
                    self.lost.push(Arc::clone(alloc));
                } else if alloc.transition.migrate {
                    self.migrating.push(Arc::clone(alloc));
                } else {
                    self.untainted.push(Arc::clone(alloc));
                }
            }
        }
    }

    /// Ends second holders of a slot, then what is above the count: moving ones first, then the highest slots.
    fn stop_surplus(&mut self, count: i64, out: &mut GroupOutcome) {
        let by_slot = |a: &Arc<Alloc>, b: &Arc<Alloc>| {
            (a.index, a.is_terminal(), a.created_at, &a.key).cmp(&(b.index, b.is_terminal(), b.created_at, &b.key))
        };
        for list in [&mut self.untainted, &mut self.migrating, &mut self.due] {
            list.sort_by(by_slot);
        }
        let mut seen = BTreeSet::new();
        let mut surplus: Vec<Arc<Alloc>> = Vec::new();
        self.untainted.retain(|alloc| seen.insert(alloc.index) || defer(&mut surplus, alloc));
        self.migrating.retain(|alloc| seen.insert(alloc.index) || defer(&mut surplus, alloc));
        self.due.retain(|alloc| seen.insert(alloc.index) || defer(&mut surplus, alloc));
        let there = self.untainted.len() + self.migrating.len() + self.due.len();
        let mut n_over = there.saturating_sub(usize::try_from(count.max(0)).unwrap_or(0));
        for list in [&mut self.migrating, &mut self.untainted, &mut self.due] {
            let n = n_over.min(list.len());
            surplus.extend(list.split_off(list.len() - n));
            n_over -= n;
        }
        let to_end = surplus.iter().filter(|alloc| !alloc.is_terminal());
        out.stops.extend(to_end.map(|alloc| stop(alloc, StopReason::NotNeeded)));
    }

    fn add_failed(&mut self, group: &Group, alloc: &Arc<Alloc>, now: Timestamp) {
        let verdict =
            group.reschedule.as_ref().map_or(Verdict::Never, |policy| reschedule::verdict(alloc, policy, now));
        match verdict {
            Verdict::Now => self.due.push(Arc::clone(alloc)),
            Verdict::Later(at) => {
                self.later.push((at, Arc::clone(alloc)));
                self.untainted.push(Arc::clone(alloc));
            }
            Verdict::Never => self.untainted.push(Arc::clone(alloc)),
        }
    }
}

/// Whether the node of an allocation is gone or down.
pub fn is_lost(view: &ClusterView, alloc: &Alloc) -> bool {
    view.node(&alloc.node).is_none_or(|node| node.phase == NodePhase::Down)
}

fn lost(alloc: &Arc<Alloc>) -> Stop {
    Stop {
        alloc: Arc::clone(alloc),
        desired: DesiredStatus::Stop,
        reason: StopReason::Lost,
        client: Some(ClientStatus::Lost),
    }
}

fn stop(alloc: &Arc<Alloc>, reason: StopReason) -> Stop {
    Stop { alloc: Arc::clone(alloc), desired: DesiredStatus::Stop, reason, client: None }
}

/// Puts an allocation aside; it is not retained.
fn defer(surplus: &mut Vec<Arc<Alloc>>, alloc: &Arc<Alloc>) -> bool {
    surplus.push(Arc::clone(alloc));
    false
}

/// Replaces allocations in their own slots.
fn fill_again(allocs: &[Arc<Alloc>], reason: StopReason, taken: &mut BTreeSet<i64>, out: &mut GroupOutcome) {
    for alloc in allocs {
        taken.insert(alloc.index);
        let is_reschedule = reason == StopReason::Rescheduled;
        out.desired.reschedule_now += i64::from(is_reschedule);
        let replaces = Some(stop(alloc, reason));
        out.missing.push(Missing { index: alloc.index, previous: Some(Arc::clone(alloc)), is_reschedule, replaces });
    }
}

/// For each slot the newest allocation that held it.
pub fn newest_by_index(allocs: &[Arc<Alloc>]) -> BTreeMap<i64, &Arc<Alloc>> {
    let mut newest: BTreeMap<i64, &Arc<Alloc>> = BTreeMap::new();
    for alloc in allocs {
        let entry = newest.entry(alloc.index).or_insert(alloc);
        if (alloc.created_at, &alloc.key) > (entry.created_at, &entry.key) {
            *entry = alloc;
        }
    }
    newest
}

/// Groups later reschedules into evaluations.
fn later(mut sorted: Vec<(Timestamp, Arc<Alloc>)>, out: &mut GroupOutcome) {
    sorted.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.key.cmp(&b.1.key)));
    out.desired.reschedule_later = size(sorted.len());
    for (at, alloc) in sorted {
        let start_new = out.follow_ups.last().is_none_or(|last| at.duration_since(last.at) >= BATCH);
        if start_new {
            let trigger =
                if out.follow_ups.is_empty() { EvalTrigger::AllocReschedule } else { EvalTrigger::AllocFailure };
            out.follow_ups.push(FollowUp { trigger, at });
        }
        let follow_up = out.follow_ups.last().cloned();
        if alloc.follow_up != follow_up {
            out.attributes.push(AttributeUpdate { alloc: alloc.key.clone(), follow_up, last_reschedule: None });
        }
    }
}

/// How an allocation of another version stands to the job's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Currency {
    /// Nothing that its node acts on differs.
    Current,
    /// It can go on where it is.
    InPlace,
    /// A new one must take its place.
    Destructive,
}

/// Compares an allocation with the job's version.
pub fn currency(view: &ClusterView, job: &Job, group: &Group, alloc: &Alloc) -> Currency {
    if alloc.job_uid == job.uid && alloc.job_version == job.version {
        return Currency::Current;
    }
    let theirs = view.version(&alloc.job, &alloc.job_uid, alloc.job_version);
    let prints = theirs.and_then(|theirs| theirs.print(&group.name)).zip(job.definition.print(&group.name));
    let Some((theirs, ours)) = prints else { return Currency::Destructive };
    compare(theirs, ours)
}

fn compare(theirs: GroupPrint, ours: GroupPrint) -> Currency {
    if theirs.destructive != ours.destructive {
        return Currency::Destructive;
    }
    if theirs.acted_on == ours.acted_on && theirs.placement == ours.placement {
        return Currency::Current;
    }
    Currency::InPlace
}

fn is_current(view: &ClusterView, job: &Job, group: &Group, alloc: &Alloc) -> bool {
    alloc.job_uid == job.uid && currency(view, job, group, alloc) == Currency::Current
}

/// Brings allocations of older versions up to date, a few at a time.
fn update(view: &ClusterView, job: &Job, group: &Group, kept: Vec<Arc<Alloc>>, out: &mut GroupOutcome) {
    let mut destructive = Vec::new();
    let mut unsettled = 0_i64;
    for alloc in kept {
        match currency(view, job, group, &alloc) {
            Currency::Current => {
                out.desired.ignore += 1;
                unsettled += i64::from(!alloc.is_terminal() && alloc.health != Some(true));
            }
            Currency::InPlace | Currency::Destructive if alloc.is_terminal() => out.desired.ignore += 1,
            Currency::InPlace if node_still_suits(view, &job.definition, group, &alloc) => out.in_place.push(alloc),
            Currency::InPlace | Currency::Destructive => destructive.push(alloc),
        }
    }
    let limit = rolling_limit(group, destructive.len(), unsettled + size(out.missing.len()));
    for (n, alloc) in destructive.into_iter().enumerate() {
        if n < limit {
            out.desired.destructive_update += 1;
            let replaces = Some(stop(&alloc, StopReason::Updating));
            out.missing.push(Missing { index: alloc.index, previous: Some(alloc), is_reschedule: false, replaces });
        } else {
            out.desired.ignore += 1;
            out.held_back += 1;
        }
    }
}

/// How many may be replaced now: all without rolling updates, else maxParallel less those that are not healthy yet.
fn rolling_limit(group: &Group, n_destructive: usize, unsettled: i64) -> usize {
    let max_parallel = group.update.as_ref().and_then(|update| update.max_parallel).unwrap_or(0);
    if max_parallel == 0 {
        return n_destructive;
    }
    usize::try_from(max_parallel - unsettled).unwrap_or(0)
}

fn node_still_suits(view: &ClusterView, definition: &Definition, group: &Group, alloc: &Alloc) -> bool {
    view.node(&alloc.node).is_some_and(|node| feasible::is_feasible(node, definition, group))
}
