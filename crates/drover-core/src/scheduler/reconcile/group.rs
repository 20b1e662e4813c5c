//! What should become of one group of a service or batch job (`spec/scheduler.md` 3.1; [`GroupPass::run`] has the
//! order).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::GoDuration;
use drover_api::allocation::{ClientStatus, FollowUp};
use drover_api::deployment::GroupState;
use drover_api::group::Group;
use drover_api::job::{EvalTrigger, JobType};
use drover_api::policy::Update;
use jiff::{SignedDuration, Timestamp};

use super::names::Names;
use super::outcome::{Fits, GroupOutcome, Missing};
use super::rollout::Rollout;
use super::sort::{self, AllocList, DueAllocs, Rules, Sorted};
use super::update_kind::{self, UpdateKind, update_kind};
use super::{ending, reconnect};
use crate::arithmetic::as_count;
use crate::ids::{AllocKey, ObjectKey};
use crate::model::{Alloc, Deployment, Job, newest_of_slot};
use crate::scheduler::plan::{AttributeUpdate, Disconnect, Evaluation, Stop, StopReason};
use crate::scheduler::reschedule;
use crate::snapshot::ClusterView;

/// Events that are due within this span share one evaluation.
const BATCH: SignedDuration = SignedDuration::from_secs(5);
/// The least time a node that lost its server gets to kill tasks.
const KILL_TIME: GoDuration = GoDuration::from_secs(5);

/// A group that is decided about.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) job: &'a Job,
    pub(super) group: &'a Group,
    pub(super) rollout: Rollout<'a>,
    pub(super) eval: &'a Evaluation,
}

/// Decides for one group of a job that is to run.
pub(super) fn decide(
    view: &ClusterView,
    subject: Subject<'_>,
    allocs: &[Arc<Alloc>],
    fits: &mut Fits<'_>,
) -> GroupOutcome {
    let Subject { job, group, rollout, eval } = subject;
    let count = job.counts.get(&group.name).copied().unwrap_or(group.count);
    if count == 0 {
        return ending::stop_all(view, allocs, eval);
    }
    let state = rollout.current.and_then(|current| current.groups.get(&group.name)).cloned();
    let mut pass = GroupPass {
        view,
        job,
        group,
        rollout,
        eval,
        count,
        is_new_state: state.is_none(),
        state: state.unwrap_or_else(|| new_state(group)),
        canaries: BTreeSet::new(),
        delays_placement: false,
        moves_later: BTreeMap::new(),
        out: GroupOutcome::default(),
    };
    pass.run(allocs, fits);
    pass.out
}

/// Where a group stands in a deployment that does not know it yet.
fn new_state(group: &Group) -> GroupState {
    let update = group.update.as_ref();
    GroupState {
        auto_revert: update.and_then(|update| update.auto_revert).unwrap_or(false),
        auto_promote: update.and_then(|update| update.auto_promote).unwrap_or(false),
        progress_deadline: update.and_then(|update| update.progress_deadline).unwrap_or_default(),
        ..GroupState::default()
    }
}

struct GroupPass<'a> {
    view: &'a ClusterView,
    job: &'a Job,
    group: &'a Group,
    rollout: Rollout<'a>,
    eval: &'a Evaluation,
    count: i64,
    /// Where the group stands in the deployment; a new state if that does not know it.
    state: GroupState,
    is_new_state: bool,
    /// Live canaries of the current deployment.
    canaries: BTreeSet<AllocKey>,
    /// Whether a lost allocation's replacement must wait until its node has stopped it by itself.
    delays_placement: bool,
    /// The evaluations that replace allocations which end now and have no replacement before.
    moves_later: BTreeMap<AllocKey, FollowUp>,
    out: GroupOutcome,
}

/// Allocations that fill slots, once it is known what each is.
#[derive(Default)]
struct Holders {
    untainted: AllocList,
    migrating: AllocList,
    lost: AllocList,
    /// Are replaced now; those of `disconnecting` keep running where they are.
    due: AllocList,
    disconnecting: BTreeSet<AllocKey>,
    destructive: AllocList,
}

impl GroupPass<'_> {
    fn run(&mut self, allocs: &[Arc<Alloc>], fits: &mut Fits<'_>) {
        self.delays_placement = allocs.iter().any(|alloc| self.waits_for_its_node(alloc));
        let live = self.without_past(allocs);
        let live = self.end_canaries(live);
        let mut holders = self.classify(live, allocs);
        // One that moves and is due holds its slot once.
        let moving: BTreeSet<AllocKey> = holders.migrating.iter().map(|alloc| alloc.key.clone()).collect();
        let mut names = Names::new(
            // What was replaced while it is disconnected leaves its name to its replacement.
            holders
                .untainted
                .iter()
                .filter(|alloc| !self.is_doubled(alloc))
                .chain(&holders.migrating)
                .chain(holders.due.iter().filter(|alloc| !moving.contains(&alloc.key)))
                .chain(&holders.lost),
            self.count,
        );
        self.stop_surplus(&mut holders, &mut names);
        self.find_updates(&mut holders, fits);
        let is_new_total = self.is_new_state;
        if is_new_total {
            self.state.desired_total = as_count(holders.destructive.len() + self.out.in_place.len());
        }
        if self.is_canarying() {
            holders.untainted.retain(|alloc| !self.canaries.contains(&alloc.key));
        }
        let needs_canaries = self.place_canaries(&holders, &names);
        let limit = self.limit(&holders);
        let missing = self.missing(&holders, &mut names);
        if is_new_total {
            let moved = holders.migrating.iter().filter(|alloc| self.is_outdated(alloc)).count();
            self.state.desired_total += as_count(missing.len() + moved);
        }
        self.place(missing, &holders, &mut names, limit);
        self.migrate(&holders, &mut names);
        self.truncate();
        self.enter_deployment(allocs, &holders);
        let is_idle = self.out.missing.is_empty()
            && self.out.in_place.is_empty()
            && holders.destructive.is_empty()
            && holders.migrating.is_empty()
            && holders.due.is_empty()
            && self.out.desired.reschedule_later == 0
            && !needs_canaries;
        self.out.is_complete = is_idle && self.is_healthy(allocs);
        // Destructive updates come first: their room is the surest.
        self.out.missing.sort_by_key(|missing| !missing.is_destructive);
    }

    fn is_batch(&self) -> bool {
        self.job.definition.job_type() == JobType::Batch
    }

    /// The update block, unless it is empty.
    fn update(&self) -> Option<&Update> {
        self.group.update.as_ref().filter(|update| update.max_parallel.unwrap_or(0) > 0)
    }

    fn is_canarying(&self) -> bool {
        self.state.desired_canaries != 0 && !self.state.promoted
    }

    fn deployment_name(&self) -> Option<&str> {
        self.rollout.current.map(|current| &*current.key.name)
    }

    /// Whether an allocation was lost whose node stops it by itself, and may not have done so yet.
    fn waits_for_its_node(&self, alloc: &Alloc) -> bool {
        let stops_by_itself = || {
            let group = self.view.definition_of(alloc).and_then(|known| known.group(&alloc.group));
            let block = group.and_then(|group| group.disconnect.as_ref());
            block.is_some_and(|block| block.stop_on_client_after.is_some())
        };
        // One that was to be rescheduled at some time before it was lost waits for nothing any more.
        let awaited = alloc.follow_up.as_ref().filter(|follow_up| follow_up.trigger == EvalTrigger::AllocFailure);
        alloc.client == ClientStatus::Lost
            && awaited.is_some_and(|awaited| awaited.at > self.eval.now)
            && stops_by_itself()
    }

    /// Leaves out what no longer counts.
    fn without_past(&mut self, allocs: &[Arc<Alloc>]) -> AllocList {
        let is_batch = self.is_batch();
        let mut live = Vec::with_capacity(allocs.len());
        for alloc in allocs {
            let is_given_up = alloc.transition.reschedule && !sort::awaits_replacement(self.view, alloc);
            let is_dropped = alloc.is_server_terminal() && (!is_batch || alloc.is_deleting || is_given_up);
            let is_old =
                is_batch && alloc.is_terminal() && !update_kind::is_of_this_job(self.view, self.job, self.group, alloc);
            match (is_old, is_dropped) {
                (true, _) if !alloc.is_deleting => self.out.desired.ignore += 1,
                (_, true) => {}
                _ => live.push(Arc::clone(alloc)),
            }
        }
        live
    }

    /// Canaries of deployments that are over end; those of the current one are found.
    fn end_canaries(&mut self, live: AllocList) -> AllocList {
        let is_of = |deployment: &Deployment, alloc: &Alloc| {
            let state = deployment.groups.get(&self.group.name);
            let is_listed =
                state.is_some_and(|state| state.placed_canaries.iter().any(|name| **name == *alloc.key.name));
            let is_own = alloc.canary && alloc.deployment.as_deref() == Some(&*deployment.key.name);
            (is_listed || is_own, state.is_some_and(|state| state.promoted))
        };
        let over = [self.rollout.old, self.rollout.current.filter(|_| self.rollout.is_failed())];
        let (mut kept, mut canaries) = (Vec::with_capacity(live.len()), BTreeSet::new());
        for alloc in live {
            let is_unwanted = over.iter().flatten().any(|deployment| is_of(deployment, &alloc) == (true, false))
                || self.has_lost_its_deployment(&alloc);
            // One that has ended would hold a slot forever, as an allocation that is wanted and not replaced any more.
            if is_unwanted && !alloc.is_server_terminal() {
                self.out.stops.push(Stop::new(&alloc, StopReason::NotNeeded));
                self.out.desired.stop += 1;
                continue;
            }
            if self.rollout.current.is_some_and(|current| is_of(current, &alloc).0) {
                canaries.insert(alloc.key.clone());
            }
            kept.push(alloc);
        }
        self.canaries = canaries;
        kept
    }

    /// Whether it is a canary of a deployment that was deleted: nothing can promote it any more.
    fn has_lost_its_deployment(&self, alloc: &Alloc) -> bool {
        let is_there = |name: &Arc<str>| {
            let key = ObjectKey::new(&*self.job.key.namespace, Arc::clone(name));
            self.view.deployment(&self.job.key, &key).is_some()
        };
        alloc.canary && alloc.deployment.as_ref().is_some_and(|name| !is_there(name))
    }

    /// Finds out what each allocation is: it stays, moves, is lost, disconnected, back, or replaced now or later.
    fn classify(&mut self, live: AllocList, all: &[Arc<Alloc>]) -> Holders {
        let mut sorted = Sorted::new(self.view, live, self.eval.now);
        self.out.desired.ignore += as_count(sorted.ignored.len());
        sorted.lost.append(&mut sorted.expiring);
        self.replace_canaries(&mut sorted);
        let rules = Rules {
            view: self.view,
            job: self.job,
            group: self.group,
            eval: self.eval,
            deployment: self.rollout.current,
            is_disconnecting: false,
        };
        let mut due = sort::due(rules, std::mem::take(&mut sorted.untainted));
        let migrating_due = sort::due(rules, sorted.migrating.clone());
        due.now.extend(migrating_due.now);
        due.later.extend(migrating_due.later);
        self.reconnect(std::mem::take(&mut sorted.reconnecting), &mut due, &mut sorted, all);
        let disconnecting: BTreeSet<AllocKey> = sorted.disconnecting.iter().map(|alloc| alloc.key.clone()).collect();
        let disconnects_now = !disconnecting.is_empty();
        let cut = sort::due(Rules { is_disconnecting: true, ..rules }, std::mem::take(&mut sorted.disconnecting));
        let later: Vec<_> = due.later.into_iter().chain(cut.later).collect();
        let later_at: BTreeMap<AllocKey, Timestamp> =
            later.iter().map(|(at, alloc)| (alloc.key.clone(), *at)).collect();
        self.disconnect(cut.untainted.iter().chain(&cut.now), &later_at);
        due.now.extend(cut.now);
        due.untainted.extend(cut.untainted);
        if disconnects_now {
            self.out.desired.reschedule_now = as_count(due.now.len());
        }
        self.plan_follow_ups(&later, &sorted.migrating);
        let is_later = |alloc: &&Arc<Alloc>| later_at.contains_key(&alloc.key);
        self.renew_timeouts(due.untainted.iter().filter(|alloc| !is_later(alloc)).chain(&due.now));
        Holders {
            untainted: due.untainted,
            migrating: sorted.migrating,
            lost: sorted.lost,
            due: due.now,
            disconnecting,
            destructive: Vec::new(),
        }
    }

    /// A canary that moves or is lost is replaced as a canary, by the ordinary count of canaries.
    fn replace_canaries(&mut self, sorted: &mut Sorted) {
        let (view, canaries) = (self.view, &mut self.canaries);
        let mut stops = Vec::new();
        let is_promoted = self.state.promoted;
        sorted.migrating.retain(|alloc| {
            let is_canary = !is_promoted && canaries.remove(&alloc.key);
            if is_canary {
                stops.push(Stop::new(alloc, sort::reason_to_move(view, alloc)));
            }
            !is_canary
        });
        sorted.lost.retain(|alloc| {
            let is_canary = !is_promoted && canaries.remove(&alloc.key);
            if is_canary {
                stops.push(Stop::lost(alloc));
            }
            !is_canary
        });
        canaries.retain(|key| !sorted.ignored.iter().any(|alloc| alloc.key == *key));
        self.out.stops.extend(stops);
    }

    /// Of a reconnected allocation and its replacement one goes on.
    fn reconnect(&mut self, back: AllocList, due: &mut DueAllocs, sorted: &mut Sorted, all: &[Arc<Alloc>]) {
        if back.is_empty() {
            return;
        }
        let is_outdated = |alloc: &Alloc| {
            let is_older = alloc.job_uid != self.job.uid || alloc.job_version < self.job.version;
            is_older && update_kind(self.view, self.job, self.group, alloc) != UpdateKind::Current
        };
        let mut outcome = reconnect::decide(self.view, self.job, self.group, back, is_outdated);
        // A replacement may be a canary that has just been ended.
        let ended: BTreeSet<&AllocKey> = self.out.stops.iter().map(|stop| &stop.alloc.key).collect();
        outcome.stops.retain(|stop| !ended.contains(&stop.alloc.key));
        let stopped: BTreeSet<&AllocKey> = outcome.stops.iter().map(|stop| &stop.alloc.key).collect();
        for list in
            [&mut due.untainted, &mut due.now, &mut sorted.migrating, &mut sorted.lost, &mut sorted.disconnecting]
        {
            list.retain(|alloc| !stopped.contains(&alloc.key));
        }
        due.later.retain(|(_, alloc)| !stopped.contains(&alloc.key));
        let known: BTreeSet<&AllocKey> = all.iter().map(|alloc| &alloc.key).collect();
        self.out.desired.stop += as_count(outcome.stops.iter().filter(|stop| known.contains(&stop.alloc.key)).count());
        self.out.desired.reconnect += as_count(outcome.kept.len());
        due.untainted.extend(outcome.kept.iter().cloned());
        self.out.reconnects = outcome.kept;
        self.out.stops.extend(outcome.stops);
    }

    /// Allocations become `unknown`, and get the time at which they count as lost.
    fn disconnect<'a>(&mut self, allocs: impl Iterator<Item = &'a Arc<Alloc>>, later: &BTreeMap<AllocKey, Timestamp>) {
        let mut expiries: Vec<(Timestamp, Arc<Alloc>)> = allocs
            .map(|alloc| {
                let window = sort::lost_after(self.view, alloc);
                (reschedule::after(self.eval.now, window), Arc::clone(alloc))
            })
            .collect();
        expiries.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.key.cmp(&b.1.key)));
        self.out.desired.disconnect = as_count(expiries.len());
        let mut last: Option<FollowUp> = None;
        for (at, alloc) in expiries {
            // A window of zero has no end of its own: its node is down, and it comes back or it does not.
            let expiry = (at > self.eval.now)
                .then(|| batched(&mut last, &mut self.out.follow_ups, EvalTrigger::MaxDisconnectTimeout, at));
            let replaced_at = later.get(&alloc.key).copied();
            let follow_up = match (replaced_at, expiry) {
                (Some(at), Some(expiry)) if at < expiry.at => {
                    Some(FollowUp { trigger: EvalTrigger::AllocReschedule, at })
                }
                (_, expiry) => expiry,
            };
            self.out.disconnects.push(Disconnect { alloc, follow_up });
        }
    }

    /// An `unknown` allocation whose awaited evaluation has passed waits for its expiry next.
    fn renew_timeouts<'a>(&mut self, allocs: impl Iterator<Item = &'a Arc<Alloc>>) {
        let mut last = None;
        for alloc in allocs.filter(|alloc| alloc.client == ClientStatus::Unknown) {
            let is_waiting = alloc.follow_up.as_ref().is_some_and(|awaited| awaited.at > self.eval.now);
            let Some(expiry) = sort::expires_at(self.view, alloc) else { continue };
            if is_waiting || expiry <= self.eval.now || sort::lost_after(self.view, alloc) <= GoDuration::ZERO {
                continue;
            }
            let follow_up = batched(&mut last, &mut self.out.follow_ups, EvalTrigger::MaxDisconnectTimeout, expiry);
            self.out.attributes.push(AttributeUpdate {
                alloc: alloc.key.clone(),
                follow_up: Some(follow_up),
                last_reschedule: None,
            });
        }
    }

    /// Evaluations for later reschedules, and notes on the allocations that wait for them.
    fn plan_follow_ups(&mut self, later: &[(Timestamp, Arc<Alloc>)], migrating: &AllocList) {
        let mut sorted: Vec<_> = later.to_vec();
        sorted.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.key.cmp(&b.1.key)));
        self.out.desired.reschedule_later = as_count(sorted.len());
        let disconnecting: BTreeSet<AllocKey> = self.out.disconnects.iter().map(|cut| cut.alloc.key.clone()).collect();
        let (mut last, mut trigger) = (None, EvalTrigger::AllocReschedule);
        for (at, alloc) in sorted {
            let before = last.clone();
            let follow_up = batched(&mut last, &mut self.out.follow_ups, trigger, at);
            if before.as_ref() != Some(&follow_up) {
                trigger = EvalTrigger::AllocFailure;
            }
            if migrating.iter().any(|moving| moving.key == alloc.key) {
                self.moves_later.insert(alloc.key.clone(), follow_up);
            } else if !disconnecting.contains(&alloc.key) && alloc.follow_up.as_ref() != Some(&follow_up) {
                self.out.attributes.push(AttributeUpdate {
                    alloc: alloc.key.clone(),
                    follow_up: Some(follow_up),
                    last_reschedule: None,
                });
            }
        }
    }

    /// Lost allocations end, then what is above the count.
    fn stop_surplus(&mut self, holders: &mut Holders, names: &mut Names) {
        for alloc in &holders.lost {
            self.out.stops.push(self.lost(alloc));
            self.out.desired.stop += 1;
        }
        self.share_delays();
        let is_canarying = self.is_canarying();
        let is_hidden = |alloc: &Arc<Alloc>| is_canarying && self.canaries.contains(&alloc.key);
        let known = holders.untainted.iter().filter(|alloc| alloc.client != ClientStatus::Unknown && !is_hidden(alloc));
        let is_moving = |alloc: &Arc<Alloc>| holders.migrating.iter().any(|moving| moving.key == alloc.key);
        let due = holders.due.iter().filter(|alloc| !is_moving(alloc) && !is_hidden(alloc));
        let mut remove = as_count(known.count() + holders.migrating.len() + due.count()) - self.count;
        let mut surplus: AllocList = Vec::new();
        let mut promoted = BTreeSet::new();
        if !is_canarying {
            let canaries = &self.canaries;
            let kept = holders.untainted.iter().filter(|alloc| canaries.contains(&alloc.key));
            promoted.extend(kept.map(|alloc| alloc.index));
            let shares = |alloc: &Arc<Alloc>| {
                !canaries.contains(&alloc.key) && promoted.contains(&alloc.index) && !alloc.is_server_terminal()
            };
            let is_outdated = |alloc: &Arc<Alloc>| self.is_outdated(alloc);
            // An earlier version goes even where nothing is above the count: a crash may have left another slot empty,
            // and a count that grew has room.
            let mut any = i64::MAX;
            take(&mut holders.untainted, &mut surplus, &mut any, |alloc| shares(alloc) && is_outdated(alloc));
            remove -= as_count(surplus.len());
            take(&mut holders.untainted, &mut surplus, &mut remove, shares);
        }
        // What has failed goes before what runs.
        let has_failed = |alloc: &Arc<Alloc>| alloc.is_client_terminal() && !alloc.is_server_terminal();
        let moving: BTreeSet<AllocKey> = holders.migrating.iter().map(|alloc| alloc.key.clone()).collect();
        by_highest_slot(&mut holders.due);
        take(&mut holders.due, &mut surplus, &mut remove, |alloc| {
            has_failed(alloc) && !moving.contains(&alloc.key) && !is_hidden(alloc)
        });
        by_highest_slot(&mut holders.migrating);
        take(&mut holders.migrating, &mut surplus, &mut remove, |_| true);
        // One that moves and is due is taken once.
        let taken: BTreeSet<AllocKey> = surplus.iter().map(|alloc| alloc.key.clone()).collect();
        let rest = holders.untainted.iter().chain(&holders.due).filter(|alloc| !taken.contains(&alloc.key));
        let mut rest: AllocList = rest.cloned().collect();
        by_highest_slot(&mut rest);
        take(&mut rest, &mut surplus, &mut remove, |alloc| !alloc.is_server_terminal() && !is_hidden(alloc));
        let gone: BTreeSet<&AllocKey> = surplus.iter().map(|alloc| &alloc.key).collect();
        holders.untainted.retain(|alloc| !gone.contains(&alloc.key));
        holders.due.retain(|alloc| !gone.contains(&alloc.key));
        self.out.attributes.retain(|update| !gone.contains(&update.alloc));
        holders.untainted.sort_by_key(|alloc| alloc.index);
        holders.migrating.sort_by_key(|alloc| alloc.index);
        holders.due.sort_by_key(|alloc| alloc.index);
        self.out.desired.stop += as_count(surplus.len());
        for alloc in &surplus {
            if !promoted.contains(&alloc.index) {
                names.release(alloc.index);
            }
            self.out.stops.push(Stop::new(alloc, StopReason::NotNeeded));
        }
    }

    /// Lost allocations whose nodes will have stopped them within [`BATCH`] share the evaluation of the last of them:
    /// an earlier one would come while one of them may still run.
    fn share_delays(&mut self) {
        let mut delays: Vec<&mut FollowUp> =
            self.out.stops.iter_mut().filter_map(|stop| stop.follow_up.as_mut()).collect();
        delays.sort_by_key(|delay| delay.at);
        self.delays_placement |= !delays.is_empty();
        let mut rest = delays.as_mut_slice();
        while let Some(first) = rest.first().map(|delay| delay.at) {
            let n = rest.iter().take_while(|delay| delay.at.duration_since(first) < BATCH).count();
            let (batch, later) = std::mem::take(&mut rest).split_at_mut(n);
            let Some(last) = batch.last().map(|delay| (**delay).clone()) else { break };
            for delay in batch {
                (**delay).clone_from(&last);
            }
            if !self.out.follow_ups.contains(&last) {
                self.out.follow_ups.push(last);
            }
            rest = later;
        }
    }

    /// The stop of a lost allocation. Where its node stops it by itself, the replacement comes when that is surely
    /// done.
    fn lost(&self, alloc: &Arc<Alloc>) -> Stop {
        let stop = Stop::lost(alloc);
        let definition = self.view.definition_of(alloc).unwrap_or(&self.job.definition);
        let own = definition.group(&alloc.group);
        let Some(wait) = own.and_then(|group| group.disconnect.as_ref()?.stop_on_client_after) else { return stop };
        let longest = own.iter().flat_map(|group| &group.tasks).map(|task| task.kill_timeout).max().unwrap_or_default();
        let lost_at = alloc.states.iter().find(|(status, _)| *status == ClientStatus::Lost).map(|(_, at)| *at);
        let ready =
            reschedule::after(reschedule::after(lost_at.unwrap_or(self.eval.now), wait), longest.max(KILL_TIME));
        if wait <= GoDuration::ZERO || ready <= self.eval.now {
            return stop;
        }
        Stop { follow_up: Some(FollowUp { trigger: EvalTrigger::AllocFailure, at: ready }), ..stop }
    }

    /// Finds out which allocations go on with a new version where they are, and which must be replaced.
    fn find_updates(&mut self, holders: &mut Holders, fits: &mut Fits<'_>) {
        let mut kept = Vec::with_capacity(holders.untainted.len());
        for alloc in std::mem::take(&mut holders.untainted) {
            let update_kind = update_kind(self.view, self.job, self.group, &alloc);
            // One that is disconnected and was replaced fills no slot: whatever takes its place would be a second one
            // there. When it is back it goes for its old version.
            if update_kind != UpdateKind::Current && self.is_doubled(&alloc) {
                self.out.desired.ignore += 1;
                kept.push(alloc);
                continue;
            }
            match update_kind {
                UpdateKind::Current => {
                    self.out.desired.ignore += 1;
                    kept.push(alloc);
                }
                // One that failed for good gets a new chance with a new version.
                UpdateKind::Destructive => holders.destructive.push(alloc),
                UpdateKind::InPlace { .. } if alloc.is_terminal() => {
                    self.out.desired.ignore += 1;
                    kept.push(alloc);
                }
                UpdateKind::InPlace { needs_room } => match fits(self.group, &alloc, needs_room) {
                    Some(resources) => {
                        self.out.desired.in_place_update += 1;
                        self.out.in_place.push((Arc::clone(&alloc), resources));
                        kept.push(alloc);
                    }
                    None => holders.destructive.push(alloc),
                },
            }
        }
        holders.untainted = kept;
    }

    /// Adds the canaries that are missing. Says whether canaries are still to be placed.
    fn place_canaries(&mut self, holders: &Holders, names: &Names) -> bool {
        let wanted = self.update().and_then(|update| update.canary).unwrap_or(0).min(self.count);
        let missing = wanted - as_count(self.canaries.len());
        if holders.destructive.is_empty() || missing <= 0 || self.state.promoted {
            return false;
        }
        self.state.desired_canaries = wanted;
        if self.rollout.is_paused() || self.rollout.is_failed() {
            return true;
        }
        let existing: BTreeSet<i64> = holders
            .untainted
            .iter()
            .filter(|alloc| self.canaries.contains(&alloc.key))
            .map(|alloc| alloc.index)
            .chain(self.canary_slots())
            .collect();
        let slots = names.canaries(
            usize::try_from(missing).unwrap_or(0),
            &existing,
            holders.destructive.iter().map(|alloc| alloc.index),
        );
        self.out.desired.canary += as_count(slots.len());
        self.out.missing.extend(slots.into_iter().map(|index| Missing { canary: true, ..Missing::new(index, None) }));
        true
    }

    fn canary_slots(&self) -> impl Iterator<Item = i64> + '_ {
        self.canaries.iter().filter_map(|key| self.view.alloc(key)).map(|alloc| alloc.index)
    }

    /// `spec/scheduler.md` 3.10: how many may be replaced or added now.
    fn limit(&self, holders: &Holders) -> i64 {
        let Some(update) = self.update() else { return self.count };
        if holders.destructive.is_empty() && holders.migrating.is_empty() {
            return self.count;
        }
        let most = update.max_parallel.unwrap_or(0);
        let Some(name) = self.deployment_name() else {
            return if self.is_canarying() { 0 } else { most };
        };
        if self.rollout.is_paused() || self.rollout.is_failed() || self.is_canarying() {
            return 0;
        }
        let of_deployment = holders.untainted.iter().filter(|alloc| alloc.deployment.as_deref() == Some(name));
        let verdicts: Vec<Option<bool>> = of_deployment.map(|alloc| alloc.health_in_deployment()).collect();
        if verdicts.contains(&Some(false)) {
            return 0;
        }
        (most - as_count(verdicts.iter().filter(|verdict| verdict.is_none()).count())).max(0)
    }

    /// Whether an allocation is disconnected and was replaced meanwhile: it fills no slot of its own.
    fn is_doubled(&self, alloc: &Alloc) -> bool {
        alloc.client == ClientStatus::Unknown && self.view.next_of(alloc).is_some()
    }

    /// What is missing up to the count, whether it may be placed now or not.
    fn missing(&self, holders: &Holders, names: &mut Names) -> Vec<Missing> {
        let mut missing = Vec::new();
        let is_trial = |alloc: &Alloc| self.is_canarying() && self.canaries.contains(&alloc.key);
        for alloc in &holders.due {
            let is_moving = holders.migrating.iter().any(|moving| moving.key == alloc.key);
            // One that is disconnected may come back, whenever it is replaced.
            let is_away = holders.disconnecting.contains(&alloc.key) || alloc.client == ClientStatus::Unknown;
            let is_kept = is_moving || is_away || alloc.is_server_terminal();
            let replaces = (!is_kept).then(|| Stop::new(alloc, StopReason::Rescheduled));
            // A canary tries the new version beside the one that holds its slot, and so does what replaces it.
            let canary = is_trial(alloc);
            let index = if canary { alloc.index } else { names.inherit(alloc.index) };
            let fresh = Missing::new(index, Some(Arc::clone(alloc)));
            missing.push(Missing { is_reschedule: true, canary, replaces, ..fresh });
        }
        // A disconnected allocation and its replacement fill one slot together.
        let doubled = holders.untainted.iter().filter(|alloc| self.is_doubled(alloc)).count();
        let moved_and_due =
            holders.migrating.iter().filter(|moving| holders.due.iter().any(|due| due.key == moving.key)).count();
        let due = holders.due.iter().filter(|alloc| !is_trial(alloc)).count();
        let mut existing = as_count(
            holders.untainted.len() - doubled + holders.destructive.len() + holders.migrating.len() - moved_and_due
                + due,
        );
        for alloc in &holders.lost {
            if existing >= self.count {
                break;
            }
            existing += 1;
            missing.push(Missing::new(names.inherit(alloc.index), Some(Arc::clone(alloc))));
        }
        if existing < self.count {
            let past = self.newest_holders();
            while existing < self.count {
                existing += 1;
                let index = names.next();
                missing.push(Missing::new(index, past.get(&index).cloned()));
            }
        }
        missing
    }

    /// For each slot the newest allocation that held it and is over, so that its data and its failures are not
    /// forgotten.
    fn newest_holders(&self) -> BTreeMap<i64, Arc<Alloc>> {
        let mut slots: BTreeMap<i64, Vec<&Arc<Alloc>>> = BTreeMap::new();
        let past = self.view.allocs_of_job(&self.job.key).filter(|alloc| {
            alloc.is_terminal() && alloc.group == self.group.name && alloc.job_uid == self.job.uid && !alloc.canary
        });
        for alloc in past {
            slots.entry(alloc.index).or_default().push(alloc);
        }
        slots.iter().filter_map(|(index, held)| Some((*index, Arc::clone(newest_of_slot(held)?)))).collect()
    }

    /// Decides which of the missing allocations are placed now, and which wait (`spec/scheduler.md` 3.11).
    fn place(&mut self, missing: Vec<Missing>, holders: &Holders, names: &mut Names, limit: i64) {
        let is_ready = !self.rollout.is_paused() && !self.rollout.is_failed() && !self.is_canarying();
        let limit = if is_ready { limit } else { 0 };
        if self.delays_placement {
            // What failed ends now; what takes its place waits with all others of the group.
            let stops: Vec<Stop> = missing.into_iter().filter_map(|missing| missing.replaces).collect();
            self.out.desired.stop += as_count(stops.len());
            self.out.stops.extend(stops);
            return self.update_destructively(holders, names, limit);
        }
        let lost: BTreeSet<&AllocKey> = holders.lost.iter().map(|alloc| &alloc.key).collect();
        let placed: Vec<Missing> = missing
            .into_iter()
            .filter(|missing| is_ready || self.may_place_meanwhile(missing, &lost))
            .map(|missing| {
                if missing.canary {
                    missing
                } else {
                    Missing { job_version: self.version_meanwhile(missing.previous.as_deref()), ..missing }
                }
            })
            .collect();
        self.out.desired.place += as_count(placed.len());
        self.out.desired.stop += as_count(placed.iter().filter(|missing| missing.replaces.is_some()).count());
        let rest = (limit - as_count(placed.len())).max(0);
        self.out.missing.extend(placed);
        self.update_destructively(holders, names, rest);
    }

    /// Whether a slot is filled although the roll-out stands still.
    fn may_place_meanwhile(&self, missing: &Missing, lost: &BTreeSet<&AllocKey>) -> bool {
        let Some(previous) = &missing.previous else { return false };
        if lost.contains(&previous.key) {
            return true;
        }
        let is_of_failed = self.rollout.is_failed() && previous.deployment.as_deref() == self.deployment_name();
        missing.is_reschedule && !is_of_failed
    }

    /// The version that a replacement runs while canaries try the newest: the newest that was promoted or had no
    /// canaries, at least that of the allocation before; none where that is the job's own.
    fn version_meanwhile(&self, previous: Option<&Alloc>) -> Option<i64> {
        if !self.is_canarying() {
            return None;
        }
        let floor = previous.map_or(0, |previous| previous.job_version);
        let is_proven = |deployment: &Deployment| {
            let state = deployment.groups.get(&self.group.name);
            deployment.job_uid == self.job.uid
                && deployment.job_version >= floor
                && state.is_some_and(|state| state.promoted || state.desired_canaries == 0)
        };
        let deployments = self.view.deployments_of_job(&self.job.key).filter(|one| is_proven(one));
        let newest = deployments.map(|one| one.job_version).max();
        let unguarded = || {
            let update = self.view.definition_of(previous?)?.group(&self.group.name)?.update.as_ref();
            update.is_none_or(|update| update.max_parallel.unwrap_or(0) == 0).then_some(floor)
        };
        newest.or_else(unguarded).filter(|version| *version != self.job.version)
    }

    /// What an earlier roll-out has left behind without health goes first: it serves no traffic, and while it is there,
    /// `limit` more would be too many away at once.
    fn update_destructively(&mut self, holders: &Holders, names: &mut Names, limit: i64) {
        let limit = usize::try_from(limit).unwrap_or(0);
        let serves = |alloc: &&Arc<Alloc>| alloc.deployment.is_none() || alloc.health_in_deployment() == Some(true);
        let mut outdated: Vec<&Arc<Alloc>> = holders.destructive.iter().collect();
        outdated.sort_by_key(serves);
        for (n, alloc) in outdated.into_iter().enumerate() {
            if n >= limit {
                self.out.desired.ignore += 1;
                self.out.held_back += 1;
                continue;
            }
            self.out.desired.destructive_update += 1;
            self.out.missing.push(Missing {
                replaces: Some(Stop::new(alloc, StopReason::Updating)),
                is_destructive: true,
                ..Missing::new(names.inherit(alloc.index), Some(Arc::clone(alloc)))
            });
        }
    }

    /// Moving allocations end, and begin elsewhere under their name.
    fn migrate(&mut self, holders: &Holders, names: &mut Names) {
        for alloc in &holders.migrating {
            self.out.desired.migrate += 1;
            let follow_up = self.moves_later.remove(&alloc.key);
            let reason = sort::reason_to_move(self.view, alloc);
            self.out.stops.push(Stop { follow_up, ..Stop::new(alloc, reason) });
            let is_stop_only =
                self.is_batch() && (alloc.transition.reschedule || alloc.transition.migrate_disable_placement);
            if !is_stop_only {
                let job_version = self.version_meanwhile(Some(alloc));
                let index = names.inherit(alloc.index);
                self.out.missing.push(Missing { job_version, ..Missing::new(index, Some(Arc::clone(alloc))) });
            }
        }
    }

    /// Never more placements than the count, whatever came together.
    fn truncate(&mut self) {
        let most = usize::try_from(self.count).unwrap_or(0);
        let ordinary = self.out.missing.iter().filter(|missing| !missing.canary && !missing.is_destructive).count();
        if ordinary <= most {
            return;
        }
        let mut left = most;
        self.out.missing.retain(|missing| {
            let is_counted = !missing.canary && !missing.is_destructive;
            let is_kept = !is_counted || left > 0;
            left -= usize::from(is_counted && is_kept);
            is_kept
        });
        self.out.desired.place = self.count;
    }

    /// The group enters the deployment if the version changes it.
    fn enter_deployment(&mut self, all: &[Arc<Alloc>], holders: &Holders) {
        if self.is_batch() || !self.is_new_state || self.update().is_none() || self.state.desired_total == 0 {
            return;
        }
        // What moves, failed or was lost under another version is a change as an update is: this version replaces it.
        let by_this = self.out.missing.iter().filter(|missing| missing.job_version.is_none() && !missing.canary);
        let replaced: BTreeSet<&AllocKey> =
            by_this.filter_map(|missing| missing.previous.as_ref()).map(|previous| &previous.key).collect();
        let mut leaving = holders.due.iter().chain(&holders.lost).chain(&holders.migrating);
        let changes = !holders.destructive.is_empty()
            || !self.out.in_place.is_empty()
            || leaving.any(|alloc| replaced.contains(&alloc.key) && self.is_outdated(alloc));
        if changes || !self.is_begun(all) {
            self.out.enters = Some(self.state.clone());
        }
    }

    fn is_outdated(&self, alloc: &Arc<Alloc>) -> bool {
        update_kind(self.view, self.job, self.group, alloc) != UpdateKind::Current
    }

    /// Whether the job's version has begun to run here: it is wanted somewhere, or was lost or stopped for a
    /// replacement that is not there yet. What was stopped with the job does not count: the job begins again when it is
    /// started.
    fn is_begun(&self, all: &[Arc<Alloc>]) -> bool {
        let is_there = |alloc: &Arc<Alloc>| update_kind::is_of_this_job(self.view, self.job, self.group, alloc);
        let awaits =
            |alloc: &Arc<Alloc>| (alloc.is_superseded || alloc.client == ClientStatus::Lost) && is_there(alloc);
        all.iter().any(|alloc| !alloc.is_server_terminal() && is_there(alloc))
            || self.newest_holders().values().any(awaits)
    }

    /// Whether the group's part of the deployment is done as far as health goes.
    fn is_healthy(&self, all: &[Arc<Alloc>]) -> bool {
        let Some(name) = self.deployment_name() else { return true };
        if self.is_new_state {
            return true;
        }
        // One that was healthy and has ended since is missing.
        let is_counted = |alloc: &&Arc<Alloc>| {
            !alloc.is_terminal()
                && alloc.deployment.as_deref() == Some(name)
                && alloc.health_in_deployment() == Some(true)
        };
        let healthy = all.iter().filter(is_counted).count();
        let needed = crate::deployment::needed(&self.state, Some(self.count));
        let wanted = needed.max(self.state.desired_canaries);
        as_count(healthy) >= wanted && (self.state.desired_canaries == 0 || self.state.promoted)
    }
}

/// Moves allocations that qualify from one list to another, at most `remove` of them.
fn take(from: &mut AllocList, to: &mut AllocList, remove: &mut i64, qualifies: impl Fn(&Arc<Alloc>) -> bool) {
    from.retain(|alloc| {
        let is_taken = *remove > 0 && qualifies(alloc);
        if is_taken {
            *remove -= 1;
            to.push(Arc::clone(alloc));
        }
        !is_taken
    });
}

fn by_highest_slot(allocs: &mut AllocList) {
    let rank = |alloc: &Arc<Alloc>| (std::cmp::Reverse(alloc.index), !alloc.is_terminal());
    allocs.sort_by(|a, b| {
        rank(a).cmp(&rank(b)).then_with(|| b.created_at.cmp(&a.created_at)).then_with(|| b.key.cmp(&a.key))
    });
}

/// The evaluation at `at`, shared with the last one if that is less than 5 s before.
fn batched(last: &mut Option<FollowUp>, all: &mut Vec<FollowUp>, trigger: EvalTrigger, at: Timestamp) -> FollowUp {
    if let Some(open) = last.as_ref().filter(|open| at.duration_since(open.at) < BATCH) {
        return open.clone();
    }
    let follow_up = FollowUp { trigger, at };
    if !all.contains(&follow_up) {
        all.push(follow_up.clone());
    }
    *last = Some(follow_up.clone());
    follow_up
}
