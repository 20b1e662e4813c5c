//! One evaluation of a system or sysbatch job: what is found on each node, and what is done about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::GoDuration;
use drover_api::allocation::{AllocatedResources, ClientStatus, DesiredStatus};
use drover_api::client_node::NodePhase;
use drover_api::deployment::GroupState;
use drover_api::group::Group;
use drover_api::job::JobType;
use drover_api::metric::AllocMetric;

use super::properties::PropertyCounts;
use crate::arithmetic::as_count;
use crate::ids::{AllocKey, NodeName};
use crate::model::{Alloc, Job, newest_of_slot};
use crate::scheduler::feasible::{self, Checks, WantedGroup};
use crate::scheduler::place::fit::Need;
use crate::scheduler::place::{Planner, fullness};
use crate::scheduler::plan::{
    DesiredUpdates, Disconnect, Evaluation, InPlace, Metrics, Placement, Plan, Scores, Stop, StopReason, WaitsFor,
};
use crate::scheduler::preempt;
use crate::scheduler::reconcile::{
    Rollout, UpdateKind, is_expired, is_lost, is_reconnecting, lost_after, marks, reason_to_move, stop_all, update_kind,
};
use crate::snapshot::{ClusterView, NodeEntry};

/// One slot of a group on a node, with what there is of the group there.
#[derive(Clone, Copy)]
struct NodeSlot<'a, 'b> {
    entry: &'a NodeEntry,
    there: &'b [&'b Arc<Alloc>],
    index: i64,
}

/// An allocation that should exist on a node and does not.
#[derive(Clone, Debug)]
struct MissingOnNode<'a> {
    entry: &'a NodeEntry,
    index: i64,
    previous: Option<Arc<Alloc>>,
    /// The allocation that ends for it, whether or not it finds room.
    replaces: Option<Stop>,
    canary: bool,
}

/// What was found of one group.
#[derive(Default)]
struct FoundSlots<'a> {
    missing: Vec<MissingOnNode<'a>>,
    updates: Vec<Arc<Alloc>>,
    /// Allocations that end because they were away too long: their slot is free at once.
    lost: BTreeSet<AllocKey>,
    n_ignored: i64,
    n_in_place: i64,
    /// Slots of nodes that the job is for whose allocation goes on as it is, or with the new version where it is.
    n_held: i64,
}

/// Plans a system or sysbatch job. O(ready nodes + allocations of the job).
pub(in crate::scheduler) fn plan<'a>(
    view: &'a ClusterView,
    job: &'a Job,
    eval: &'a Evaluation,
    rng: &'a mut fastrand::Rng,
) -> Plan {
    let rollout = Rollout::of(view, &job.key, Some(job));
    let mut planner = Planner::new(view, job, eval, rng);
    planner.plan.deployment_updates.extend(rollout.cancelled());
    let mut by_group: BTreeMap<&str, Vec<Arc<Alloc>>> =
        job.definition.spec.groups.iter().map(|group| (group.name.as_str(), Vec::new())).collect();
    for alloc in view.allocs_of_job(&job.key) {
        by_group.entry(alloc.group.as_str()).or_default().push(Arc::clone(alloc));
    }
    // All that ends enters first, so that its room is free for every group, whatever their names.
    let mut found_of_group = BTreeMap::new();
    for (name, allocs) in &by_group {
        let before = planner.plan.stops.len();
        match job.definition.group(name) {
            None => {
                let outcome = stop_all(view, allocs, eval);
                for stop in &outcome.stops {
                    planner.proposed.end(&stop.alloc);
                }
                planner.plan.desired.insert((*name).to_owned(), outcome.desired);
                planner.plan.stops.extend(outcome.stops);
            }
            Some(group) => {
                let mut pass = SystemPass { planner: &mut planner, group, rollout, state: None };
                found_of_group.insert(*name, pass.find(allocs));
            }
        }
        let marked = marks(view, allocs, &planner.plan.stops[before..]);
        planner.plan.stops.extend(marked);
    }
    let mut enters = BTreeMap::new();
    let (mut is_complete, mut is_new, mut has_candidates) = (true, false, false);
    for (name, found) in found_of_group {
        let Some((group, allocs)) = job.definition.group(name).zip(by_group.get(name)) else { continue };
        let mut pass = SystemPass { planner: &mut planner, group, rollout, state: None };
        pass.fill(allocs, found);
        is_complete &= pass.is_complete(allocs);
        has_candidates |= pass.state.as_ref().is_some_and(|state| state.desired_total > 0);
        let known = pass.known();
        is_new |= known.is_none() && pass.state.is_some();
        if let Some(state) = pass.state.filter(|state| known != Some(state)) {
            enters.insert(name.to_owned(), state);
        }
    }
    planner.plan.deployment = rollout.entered(view, job, enters);
    if let Some(deployment) = &planner.plan.deployment {
        for placement in &mut planner.plan.placements {
            placement.deployment = Some(Arc::clone(&deployment.name));
        }
    }
    // Without a node that it is for, nothing has shown that the version works.
    if is_complete && !is_new && has_candidates {
        planner.plan.deployment_updates.extend(rollout.succeeded());
    }
    planner.plan
}

struct SystemPass<'p, 'a> {
    planner: &'p mut Planner<'a>,
    group: &'a Group,
    rollout: Rollout<'a>,
    /// Where the group stands in the deployment, known or new.
    state: Option<GroupState>,
}

/// What becomes of a live allocation.
enum Fate {
    Ignore,
    Stop(Stop),
    Reconnect,
    Disconnect,
    InPlace(Arc<AllocatedResources>),
    Update,
}

impl<'a> SystemPass<'_, 'a> {
    fn job(&self) -> &'a Job {
        self.planner.job
    }

    /// Where the group stands in the deployment, if that knows it.
    fn known(&self) -> Option<&'a GroupState> {
        self.rollout.current.and_then(|current| current.groups.get(&self.group.name))
    }

    /// Whether the job is for a node now.
    fn is_candidate(&self, node: &NodeName) -> bool {
        let entry = self.view().node_entry(node);
        entry.is_some_and(|entry| entry.is_ready && feasible::is_covered(&entry.node, &self.job().definition))
    }

    fn view(&self) -> &'a ClusterView {
        self.planner.view
    }

    /// Finds out what becomes of each allocation, and which slots are empty.
    fn find(&mut self, allocs: &[Arc<Alloc>]) -> (FoundSlots<'a>, DesiredUpdates) {
        let count = self.job().counts.get(&self.group.name).copied().unwrap_or(self.group.count);
        let mut found = FoundSlots::default();
        let mut on_node: BTreeMap<&NodeName, Vec<&Arc<Alloc>>> = BTreeMap::new();
        for alloc in allocs {
            on_node.entry(&alloc.node).or_default().push(alloc);
        }
        let mut desired = DesiredUpdates::default();
        for alloc in on_node.values().flatten().filter(|alloc| !alloc.is_terminal()) {
            match self.fate(alloc, count) {
                Fate::Ignore => {
                    found.n_ignored += 1;
                    found.n_held += i64::from(self.is_candidate(&alloc.node));
                }
                Fate::Stop(stop) => {
                    desired.stop += 1;
                    if stop.reason == StopReason::Lost {
                        found.lost.insert(alloc.key.clone());
                    }
                    self.planner.proposed.end(&stop.alloc);
                    self.planner.plan.stops.push(stop);
                }
                Fate::Reconnect => {
                    desired.reconnect += 1;
                    self.planner.plan.reconnects.push(Arc::clone(alloc));
                    found.n_ignored += 1;
                    found.n_held += i64::from(self.is_candidate(&alloc.node));
                }
                Fate::Disconnect => {
                    desired.disconnect += 1;
                    self.disconnect(alloc);
                }
                Fate::InPlace(resources) => {
                    desired.in_place_update += 1;
                    found.n_in_place += 1;
                    found.n_held += 1;
                    let deployment = self.rollout.current.map(|current| Arc::clone(&current.key.name));
                    self.planner.plan.in_place.push(InPlace {
                        alloc: Arc::clone(alloc),
                        job_version: self.job().version,
                        deployment,
                        resources,
                    });
                }
                Fate::Update => found.updates.push(Arc::clone(alloc)),
            }
        }
        for entry in self.view().node_entries() {
            if entry.is_ready && feasible::is_covered(&entry.node, &self.job().definition) {
                let there = on_node.get(&entry.node.name).map_or(&[][..], Vec::as_slice);
                for index in 0..count {
                    self.add_missing(NodeSlot { entry, there, index }, &mut found, &mut desired);
                }
            }
        }
        desired.ignore = found.n_ignored;
        (found, desired)
    }

    /// Fills the slots, as far as the roll-out allows.
    fn fill(&mut self, allocs: &[Arc<Alloc>], (mut found, mut desired): (FoundSlots<'a>, DesiredUpdates)) {
        self.open_state(allocs, &found);
        desired.place = as_count(found.missing.len()) - desired.destructive_update;
        let n_waiting = self.roll(allocs, &mut found, &mut desired);
        let n_before = self.planner.plan.placements.len();
        let (n_failed, queued) = self.place(&found, allocs);
        desired.preemptions =
            self.planner.plan.placements[n_before..].iter().map(|one| as_count(one.preempts.len())).sum();
        let is_new = self.known().is_none();
        let is_over = self.rollout.is_failed();
        if let Some(state) = self.state.as_mut().filter(|_| is_new || !is_over) {
            state.desired_total = found.n_held + n_waiting + as_count(found.missing.len()) - n_failed;
            if is_new && state.desired_total <= 0 {
                self.state = None;
            }
        }
        self.planner.plan.queued.insert(self.group.name.clone(), queued);
        self.planner.plan.desired.insert(self.group.name.clone(), desired);
    }

    /// The first row of the table of live allocations that matches.
    fn fate(&mut self, alloc: &Arc<Alloc>, count: i64) -> Fate {
        let (view, job, now) = (self.view(), self.job(), self.planner.eval.now);
        if alloc.index >= count {
            return Fate::Stop(Stop::new(alloc, StopReason::NotNeeded));
        }
        if alloc.transition.migrate {
            let by_user = reason_to_move(view, alloc) == StopReason::AllocStop;
            let reason = if by_user { StopReason::AllocStop } else { StopReason::NodeTainted };
            return Fate::Stop(Stop::new(alloc, reason));
        }
        let reconnects = is_reconnecting(alloc);
        // One whose agent says that it runs is back, whatever its window was.
        if reconnects && is_expired(view, alloc, now) {
            return Fate::Stop(Stop::lost(alloc));
        }
        if is_lost(view, alloc) {
            let is_done = job.definition.job_type() == JobType::Sysbatch && alloc.ran_successfully;
            return if is_done || (alloc.client == ClientStatus::Unknown && lost_after(view, alloc) > GoDuration::ZERO) {
                Fate::Ignore
            } else {
                Fate::Stop(Stop::lost(alloc))
            };
        }
        if alloc.client == ClientStatus::Unknown {
            return Fate::Ignore;
        }
        let Some(node) = view.node(&alloc.node) else { return Fate::Ignore };
        if node.phase == NodePhase::Disconnected {
            return match alloc.client {
                // Without a window it would be lost in the next look.
                ClientStatus::Running if lost_after(view, alloc) <= GoDuration::ZERO => Fate::Stop(Stop::lost(alloc)),
                ClientStatus::Running => Fate::Disconnect,
                _ => Fate::Ignore,
            };
        }
        if node.is_draining {
            return Fate::Ignore;
        }
        let update_kind = update_kind(view, job, self.group, alloc);
        if reconnects && update_kind == UpdateKind::Current {
            return Fate::Reconnect;
        }
        if node.phase != NodePhase::Ready || !node.is_eligible {
            let is_changed = update_kind != UpdateKind::Current && node.phase == NodePhase::Ready;
            return if is_changed { Fate::Stop(Stop::new(alloc, StopReason::NotNeeded)) } else { Fate::Ignore };
        }
        if !feasible::is_covered(node, &job.definition) {
            return Fate::Stop(Stop::new(alloc, StopReason::NotNeeded));
        }
        match update_kind {
            UpdateKind::Current => Fate::Ignore,
            UpdateKind::Destructive => Fate::Update,
            UpdateKind::InPlace { needs_room } => {
                self.planner.fits_in_place(self.group, alloc, needs_room).map_or(Fate::Update, Fate::InPlace)
            }
        }
    }

    fn disconnect(&mut self, alloc: &Arc<Alloc>) {
        // Its time is up when its node counts as down, which wakes the job.
        self.planner.plan.disconnects.push(Disconnect { alloc: Arc::clone(alloc), follow_up: None });
    }

    /// Adds the slot of a node if nothing holds it.
    fn add_missing(&self, slot: NodeSlot<'a, '_>, found: &mut FoundSlots<'a>, desired: &mut DesiredUpdates) {
        let NodeSlot { entry, there, index } = slot;
        let slot = || there.iter().filter(|alloc| alloc.index == index);
        let is_held = |alloc: &&&Arc<Alloc>| !alloc.is_terminal() && !found.lost.contains(&alloc.key);
        if slot().any(|alloc| is_held(&alloc)) {
            return;
        }
        let held: Vec<&Arc<Alloc>> = slot().copied().collect();
        let newest = newest_of_slot(&held).map(Arc::clone);
        let is_sysbatch = self.job().definition.job_type() == JobType::Sysbatch;
        // It would run beside what has not ended yet.
        if is_sysbatch && slot().any(|alloc| alloc.holds_room() && !found.lost.contains(&alloc.key)) {
            return;
        }
        let finished = newest.as_ref().filter(|alloc| is_sysbatch && has_had_its_run(alloc));
        match finished.map(|alloc| update_kind(self.view(), self.job(), self.group, alloc)) {
            Some(UpdateKind::Current | UpdateKind::InPlace { .. }) => return found.n_ignored += 1,
            Some(UpdateKind::Destructive) => desired.destructive_update += 1,
            None => {}
        }
        found.missing.push(MissingOnNode { entry, index, previous: newest, replaces: None, canary: false });
    }

    /// Finds or makes the group's state in a deployment.
    fn open_state(&mut self, allocs: &[Arc<Alloc>], found: &FoundSlots<'_>) {
        if let Some(known) = self.known() {
            self.state = Some(known.clone());
            return;
        }
        let Some(update) = self.group.update.as_ref().filter(|update| update.max_parallel.unwrap_or(0) > 0) else {
            return;
        };
        let is_there = allocs.iter().any(|alloc| {
            alloc.job_uid == self.job().uid
                && !alloc.is_server_terminal()
                && update_kind(self.view(), self.job(), self.group, alloc) == UpdateKind::Current
        });
        let changes = !found.updates.is_empty() || found.n_in_place > 0;
        let begins = (changes || !found.missing.is_empty()) && !is_there;
        self.state = begins.then(|| GroupState {
            auto_revert: update.auto_revert.unwrap_or(false),
            auto_promote: update.auto_promote.unwrap_or(false),
            progress_deadline: update.progress_deadline.unwrap_or_default(),
            ..GroupState::default()
        });
    }

    /// Replaces as many as canaries and maxParallel allow. Gives the number of those that could be and wait.
    ///
    /// A node that the new version excludes uses up no slot: what is there ends as soon as no canary is awaited.
    fn roll(&mut self, allocs: &[Arc<Alloc>], found: &mut FoundSlots<'a>, desired: &mut DesiredUpdates) -> i64 {
        let update = self.group.update.as_ref();
        let most = update.and_then(|update| update.max_parallel).unwrap_or(0);
        let (mut updates, excluded) = self.split_excluded(std::mem::take(&mut found.updates));
        let n_updates = as_count(updates.len());
        let limit_of = |n: i64| if most == 0 { n } else { n.min(most) };
        let name = self.rollout.current.map(|current| &current.key.name);
        let canaries = as_count(allocs.iter().filter(|alloc| self.is_live_canary(alloc)).count());
        let percent = update.and_then(|update| update.canary).unwrap_or(0);
        // A node whose canary failed gets the next one.
        let failed = |missing: &MissingOnNode<'_>| {
            missing.previous.as_ref().is_some_and(|alloc| alloc.canary && alloc.deployment.as_ref() == name)
        };
        let n_again = as_count(found.missing.iter().filter(|missing| failed(missing)).count());
        let may_try = percent > 0 && self.job().version > 0 && !self.rollout.is_failed();
        let mut is_canarying = false;
        if let Some(state) = self.state.as_mut() {
            if may_try && !state.promoted {
                let all = n_updates + canaries + n_again;
                state.desired_canaries = limit_of(percent.saturating_mul(all).saturating_add(99) / 100);
            }
            is_canarying = state.desired_canaries > 0 && !state.promoted;
        }
        if is_canarying {
            for missing in &mut found.missing {
                missing.canary = failed(missing);
            }
        }
        let stands_still = self.rollout.is_paused() || self.rollout.is_failed();
        let n_now = if stands_still {
            0
        } else if is_canarying {
            let wanted = self.state.as_ref().map_or(0, |state| state.desired_canaries);
            wanted.saturating_sub(canaries + n_again).max(0)
        } else if most == 0 {
            n_updates
        } else {
            let is_unjudged = |alloc: &&Arc<Alloc>| {
                !alloc.is_terminal()
                    && alloc.deployment.as_ref() == name
                    && name.is_some()
                    && alloc.health_in_deployment().is_none()
            };
            (most - as_count(allocs.iter().filter(is_unjudged).count())).max(0)
        };
        let now = usize::try_from(n_now).unwrap_or(usize::MAX).min(updates.len());
        let mut waiting = updates.split_off(now);
        let n_waiting = as_count(waiting.len());
        let ends_excluded = !stands_still && !is_canarying;
        (if ends_excluded { &mut updates } else { &mut waiting }).extend(excluded);
        desired.ignore += as_count(waiting.len());
        self.planner.plan.held_back += as_count(waiting.len());
        for alloc in &updates {
            let Some(entry) = self.planner.view.node_entry(&alloc.node) else { continue };
            *(if is_canarying { &mut desired.canary } else { &mut desired.destructive_update }) += 1;
            found.missing.push(MissingOnNode {
                entry,
                index: alloc.index,
                previous: Some(Arc::clone(alloc)),
                replaces: Some(Stop::new(alloc, StopReason::Updating)),
                canary: is_canarying,
            });
        }
        n_waiting
    }

    /// Splits off the allocations on nodes that the new version excludes.
    fn split_excluded(&mut self, updates: Vec<Arc<Alloc>>) -> (Vec<Arc<Alloc>>, Vec<Arc<Alloc>>) {
        let mut checks = Checks::new(self.wanted());
        updates.into_iter().partition(|alloc| {
            let Some(entry) = self.planner.view.node_entry(&alloc.node) else { return false };
            self.planner.proposed.end(alloc);
            let is_excluded = checks.first_failure(entry, &self.planner.proposed, alloc.index).is_some();
            self.planner.proposed.keep(alloc);
            !is_excluded
        })
    }

    fn wanted(&self) -> WantedGroup<'a> {
        let job = self.planner.job;
        WantedGroup { job: &job.key, definition: &job.definition, group: self.group }
    }

    fn is_live_canary(&self, alloc: &Alloc) -> bool {
        let current = self.rollout.current.map(|current| &*current.key.name);
        alloc.canary && !alloc.is_terminal() && current.is_some() && alloc.deployment.as_deref() == current
    }

    /// Places on each node. Gives the number of slots that failed, and how many of those wait for room.
    fn place(&mut self, found: &FoundSlots<'a>, allocs: &[Arc<Alloc>]) -> (i64, i64) {
        let (view, job) = (self.view(), self.job());
        let mut checks = Checks::new(self.wanted());
        let (proposed, placed) = (&self.planner.proposed, &self.planner.plan.placements);
        let mut properties = PropertyCounts::new(job, self.group, proposed, placed);
        let need = Need::new(view.settings(), &job.definition, self.group);
        let mut filtered = AllocMetric { node_pool: job.definition.spec.node_pool.clone(), ..AllocMetric::default() };
        let mut exhausted: Option<AllocMetric> = None;
        let (mut n_failed, mut queued, mut n_placed) = (0, 0, 0);
        let mut classes = WaitsFor::default();
        let counts = Arc::new(self.node_counts());
        for missing in &found.missing {
            if let Some(stop) = missing.replaces.as_ref().filter(|stop| self.planner.proposed.stays(&stop.alloc)) {
                self.planner.proposed.end(&stop.alloc);
                properties.add(view, &stop.alloc.node, true, -1);
            }
            filtered.nodes_evaluated += 1;
            filtered.nodes_in_pool += 1;
            let rule = checks.first_failure(missing.entry, &self.planner.proposed, missing.index);
            if let Some(rule) = rule.or_else(|| properties.first_failure(&missing.entry.node).map(Arc::from)) {
                note_filtered(&mut filtered, missing.entry, &rule);
                n_failed += 1;
                self.planner.plan.stops.extend(missing.replaces.clone());
                continue;
            }
            match self.place_on(missing, &need, &counts) {
                Ok(placement) => {
                    n_placed += 1;
                    properties.add(view, &placement.node, true, 1);
                    self.planner.plan.placements.push(placement);
                }
                Err(dimension) => {
                    n_failed += 1;
                    queued += 1;
                    self.planner.plan.stops.extend(missing.replaces.clone());
                    classes.nodes.insert(missing.entry.node.name.clone());
                    match &mut exhausted {
                        Some(first) => first.coalesced_failures += 1,
                        None => exhausted = Some(Self::exhausted(missing.entry, &dimension, &counts)),
                    }
                }
            }
        }
        let is_somewhere = n_placed > 0 || allocs.iter().any(|alloc| !alloc.is_terminal());
        // What its rules exclude waits for nothing: a change of a node wakes every system job.
        let waits_for_room = exhausted.is_some();
        let failed = match exhausted {
            Some(metric) => Some(metric),
            None if filtered.nodes_filtered > 0 && !is_somewhere => {
                let nodes_available = counts.nodes_available.clone();
                Some(AllocMetric { nodes_available, ..filtered })
            }
            None => None,
        };
        if waits_for_room {
            self.planner.plan.is_blocked = true;
            self.planner.plan.waits_for.nodes.extend(classes.nodes);
            self.planner.plan.waits_for.is_escaped |= checks.is_escaped();
            for (class, is_eligible) in checks.classes() {
                *self.planner.plan.waits_for.classes.entry(class.to_string()).or_default() |= is_eligible;
            }
        }
        if let Some(failed) = failed {
            self.planner.plan.failed.insert(self.group.name.clone(), failed);
        }
        (n_failed, queued)
    }

    fn node_counts(&self) -> AllocMetric {
        let mut counts = AllocMetric {
            node_pool: self.job().definition.spec.node_pool.clone(),
            nodes_evaluated: 1,
            ..AllocMetric::default()
        };
        for node in self.view().nodes().filter(|node| node.is_ready()) {
            if feasible::is_in_pool(node, &self.job().definition) {
                match counts.nodes_available.get_mut(&node.datacenter) {
                    Some(n) => *n += 1,
                    None => drop(counts.nodes_available.insert(node.datacenter.clone(), 1)),
                }
                counts.nodes_in_pool += i64::from(feasible::is_covered(node, &self.job().definition));
            }
        }
        counts
    }

    fn exhausted(entry: &NodeEntry, dimension: &str, counts: &AllocMetric) -> AllocMetric {
        let mut metric = AllocMetric { nodes_exhausted: 1, ..counts.clone() };
        metric.dimension_exhausted.insert(dimension.to_owned(), 1);
        if !entry.node.class.is_empty() {
            metric.class_exhausted.insert(entry.node.class.clone(), 1);
        }
        metric
    }

    fn place_on(
        &mut self,
        missing: &MissingOnNode<'a>,
        need: &Need<'a>,
        counts: &Arc<AllocMetric>,
    ) -> Result<Placement, String> {
        let node = &missing.entry.node;
        let job = self.job();
        let mut scores = Scores::default();
        let mut preempts = Vec::new();
        let usage = self.planner.proposed.usage(missing.entry);
        let algorithm = self.view().settings().algorithm(&job.definition.spec.node_pool);
        scores.binpack = fullness(algorithm, node.allocatable, usage.amounts.plus(need.amounts(missing.entry)));
        match need.check(missing.entry, usage) {
            Ok(devices) => scores.devices = devices,
            Err(dimension) => {
                let may = self.view().settings().preemption.is_on(job.definition.job_type());
                let victims = if may { self.planner.victims(need, missing.entry, usage) } else { None };
                let victims = victims.ok_or(dimension)?;
                let priorities: Vec<i64> = victims.iter().map(|victim| victim.priority).collect();
                scores.preemption = Some(preempt::score(&priorities));
                for victim in victims {
                    self.planner.proposed.evict(&victim.alloc);
                    preempts.push(victim.alloc);
                }
            }
        }
        let usage = self.planner.proposed.usage(missing.entry);
        let resources = need.assign(node, usage, self.planner.rng)?;
        self.planner.proposed.place(missing.entry, self.group, missing.index, &resources);
        let active = self.rollout.current.filter(|current| current.phase.is_active());
        let wanted = WantedGroup { job: &job.key, definition: &job.definition, group: self.group };
        Ok(Placement {
            host_volumes: feasible::taken(self.view(), wanted, &node.name, missing.index),
            group: Arc::from(self.group.name.as_str()),
            index: missing.index,
            node: node.name.clone(),
            job_version: job.version,
            canary: missing.canary,
            deployment: active.map(|current| Arc::clone(&current.key.name)),
            resources,
            previous: missing.previous.clone(),
            replaces: missing.replaces.clone(),
            is_destructive: missing.replaces.is_some(),
            preempts,
            tracker: None,
            metrics: Metrics { counts: Arc::clone(counts), best: vec![(node.name.clone(), scores)] },
        })
    }

    /// Whether nothing of the group is under way any more.
    fn is_complete(&self, allocs: &[Arc<Alloc>]) -> bool {
        let Some(state) = &self.state else { return true };
        let Some(current) = self.rollout.current else { return true };
        let healthy = allocs
            .iter()
            .filter(|alloc| !alloc.is_terminal() && alloc.deployment.as_ref() == Some(&current.key.name))
            .filter(|alloc| alloc.health_in_deployment() == Some(true) && self.is_candidate(&alloc.node))
            .count();
        let is_canarying = state.desired_canaries > 0 && !state.promoted;
        !is_canarying && as_count(healthy) >= state.desired_total && self.planner.plan.held_back == 0
    }
}

/// Whether a sysbatch allocation is done with its slot: it ended, or a person stopped it. What was lost or evicted runs
/// again, and so does what was stopped with its job.
fn has_had_its_run(alloc: &Alloc) -> bool {
    let is_stopped_by_person = alloc.desired == DesiredStatus::Stop && alloc.transition.migrate;
    alloc.is_client_terminal()
        && !alloc.is_deleting
        && alloc.client != ClientStatus::Lost
        && (alloc.desired == DesiredStatus::Run || is_stopped_by_person)
}

fn note_filtered(metric: &mut AllocMetric, entry: &NodeEntry, rule: &str) {
    metric.nodes_filtered += 1;
    *metric.constraint_filtered.entry(rule.to_owned()).or_default() += 1;
    if !entry.node.class.is_empty() {
        *metric.class_filtered.entry(entry.node.class.clone()).or_default() += 1;
    }
}
