//! Turns what is missing of a job into placements, one allocation after the other.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use drover_api::allocation::{AllocatedResources, LastReschedule, RescheduleTracker};
use drover_api::group::Group;
use drover_api::metric::AllocMetric;

use super::candidates::{self, Candidates, CountChange, PlacementAsk};
use super::evictions::{EvictionOption, Evictions};
use super::fit::{self, Need};
use super::node_table::NodeTable;
use super::score_index::Row;
use crate::definition::Definition;
use crate::ids::NodeName;
use crate::model::{Alloc, Job};
use crate::scheduler::feasible::{self, Checks, WantedGroup};
use crate::scheduler::plan::{AttributeUpdate, Evaluation, InPlace, Metrics, Placement, Plan, Scores};
use crate::scheduler::preempt::{self, Evictable};
use crate::scheduler::proposed::Proposed;
use crate::scheduler::reconcile::{GroupOutcome, Missing};
use crate::scheduler::reschedule;
use crate::snapshot::{ClusterView, NodeEntry};

/// Turns what is missing into placements.
pub(crate) struct Planner<'a> {
    pub(crate) view: &'a ClusterView,
    pub(crate) job: &'a Job,
    pub(crate) eval: &'a Evaluation,
    pub(crate) rng: &'a mut fastrand::Rng,
    pub(crate) proposed: Proposed<'a>,
    pub(crate) plan: Plan,
    node_table: Option<Arc<NodeTable<'a>>>,
}

/// The nodes for one group, in each of the versions that its allocations run.
struct CandidatesByVersion<'a> {
    candidates: BTreeMap<i64, Candidates<'a>>,
    evictions: Evictions,
}

/// A node that was found.
struct FoundNode {
    row: Row,
    metrics: Metrics,
    victims: Vec<Evictable>,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(view: &'a ClusterView, job: &'a Job, eval: &'a Evaluation, rng: &'a mut fastrand::Rng) -> Self {
        Self { view, job, eval, rng, proposed: Proposed::new(view, &job.key), plan: Plan::default(), node_table: None }
    }

    /// Whether an allocation can go on where it is in the job's version; with what it holds then. The room of one that
    /// can is its own already.
    pub(crate) fn fits_in_place(
        &mut self,
        group: &'a Group,
        alloc: &Arc<Alloc>,
        needs_room: bool,
    ) -> Option<Arc<AllocatedResources>> {
        let entry = self.view.node_entry(&alloc.node)?;
        let definition = &*self.job.definition;
        let need = Need::new(self.view.settings(), definition, group);
        let held = need.keep(&entry.node, &alloc.resources);
        if !feasible::is_covered(&entry.node, definition) {
            return None;
        }
        if !needs_room {
            return Some(held);
        }
        self.proposed.end(alloc);
        let wanted = WantedGroup { job: &self.job.key, definition, group };
        let is_feasible = Checks::new(wanted).first_failure(entry, &self.proposed, alloc.index).is_none();
        let own = crate::usage::Usage::of(&held, Some(group));
        let mut total = self.proposed.usage(entry).clone();
        total.add(&own);
        let has_room =
            fit::exhausted(entry.node.allocatable, total.amounts, crate::model::Amounts::default()).is_none();
        if is_feasible && has_room {
            self.proposed.place(entry, group, alloc.index, &held);
            return Some(held);
        }
        self.proposed.keep(alloc);
        None
    }

    /// Carries out what was decided for each group: first all that ends, then what replaces it, then what is new, so
    /// that the room of what ends is free for every group of the job, whatever their names.
    pub(crate) fn place_groups(&mut self, groups: BTreeMap<Arc<str>, GroupOutcome>, deployment: Option<&Arc<str>>) {
        let mut missing: Vec<(Arc<str>, Vec<Missing>)> = Vec::with_capacity(groups.len());
        for (name, mut outcome) in groups {
            missing.push((Arc::clone(&name), std::mem::take(&mut outcome.missing)));
            self.take_in(&name, outcome, deployment);
        }
        for is_destructive in [true, false] {
            for (name, missing) in &mut missing {
                let now: Vec<Missing> = missing.extract_if(.., |one| one.is_destructive == is_destructive).collect();
                self.place_missing(name, now, deployment);
            }
        }
    }

    /// Takes in what becomes of a group's allocations.
    fn take_in(&mut self, name: &Arc<str>, outcome: GroupOutcome, deployment: Option<&Arc<str>>) {
        for stop in &outcome.stops {
            self.proposed.end(&stop.alloc);
        }
        self.plan.stops.extend(outcome.stops);
        self.plan.attributes.extend(outcome.attributes);
        self.plan.follow_ups.extend(outcome.follow_ups);
        self.plan.disconnects.extend(outcome.disconnects);
        self.plan.reconnects.extend(outcome.reconnects);
        self.plan.held_back += outcome.held_back;
        self.plan.in_place.extend(outcome.in_place.into_iter().map(|(alloc, resources)| InPlace {
            job_version: self.job.version,
            deployment: deployment.cloned(),
            alloc,
            resources,
        }));
        self.plan.queued.insert(name.to_string(), 0);
        self.plan.desired.insert(name.to_string(), outcome.desired);
    }

    /// Places what a group misses.
    fn place_missing(&mut self, name: &Arc<str>, missing: Vec<Missing>, deployment: Option<&Arc<str>>) {
        let mut by_version = CandidatesByVersion { candidates: BTreeMap::new(), evictions: Evictions::default() };
        let (mut queued, mut preemptions) = (0, 0);
        for missing in missing {
            let n_victims = self.place_one(name, missing, deployment, &mut by_version);
            queued += i64::from(n_victims.is_none());
            preemptions += n_victims.unwrap_or(0);
        }
        if self.plan.failed.contains_key(&**name) {
            for candidates in by_version.candidates.values() {
                candidates.note_waiting(&mut self.plan.waits_for, &self.job.key);
            }
        }
        *self.plan.queued.entry(name.to_string()).or_default() += queued;
        self.plan.desired.entry(name.to_string()).or_default().preemptions += preemptions;
    }

    /// Counts one more failure of a group; false where it is the first, which says why.
    fn coalesce(&mut self, name: &Arc<str>) -> bool {
        let Some(failed) = self.plan.failed.get_mut(&**name) else { return false };
        failed.coalesced_failures += 1;
        self.add_exhausted(name);
        true
    }

    /// Places one allocation. Says how many others are evicted for it; nothing when there is no place.
    fn place_one(
        &mut self,
        name: &Arc<str>,
        missing: Missing,
        deployment: Option<&Arc<str>>,
        by_version: &mut CandidatesByVersion<'a>,
    ) -> Option<i64> {
        let (version, definition, group) = self.version_for(name, missing.job_version)?;
        // What one slot did not find the next one finds neither, but where each has volumes of its own.
        if !feasible::depends_on_slot(group) && self.coalesce(name) {
            self.note_unplaced(&missing);
            return None;
        }
        if let Entry::Vacant(vacant) = by_version.candidates.entry(version) {
            vacant.insert(self.candidates_for(definition, group, missing.index));
        }
        // One that has failed holds no room, and counts nowhere: its end frees nothing.
        let gives_way = missing.replaces.as_ref().filter(|stop| stop.alloc.holds_room());
        if let Some(stop) = gives_way {
            self.proposed.end(&stop.alloc);
            by_version.changed(&stop.alloc.node, Some((&stop.alloc.group, CountChange::Ended)), &self.proposed);
        }
        let candidates = by_version.candidates.get_mut(&version)?;
        candidates.turn_to(missing.index, &self.proposed);
        let found = self.find(candidates, &missing, &mut by_version.evictions);
        let Some(found) = found else {
            let metric = candidates.failure(&self.proposed);
            if let Some(stop) = gives_way {
                self.proposed.keep(&stop.alloc);
                by_version.changed(&stop.alloc.node, Some((&stop.alloc.group, CountChange::Kept)), &self.proposed);
            }
            if !self.coalesce(name) {
                self.plan.failed.insert(name.to_string(), metric);
                self.plan.is_blocked = true;
            }
            self.note_unplaced(&missing);
            return None;
        };
        let (row, entry) = (found.row, candidates.entry(found.row));
        let node = entry.node.name.clone();
        for victim in &found.victims {
            self.proposed.evict(&victim.alloc);
        }
        let resources = candidates.need().assign(&entry.node, self.proposed.usage(entry), self.rng).ok()?;
        self.proposed.place(entry, group, missing.index, &resources);
        by_version.changed_at(Some(row), &node, Some((name, CountChange::Placed)), &self.proposed);
        if found.victims.iter().any(|victim| victim.max_parallel > 0) {
            by_version.evictions.evicted();
        }
        let n_victims = i64::try_from(found.victims.len()).unwrap_or(0);
        let deployment = deployment.filter(|_| version == self.job.version).cloned();
        let tracker = self.successor_tracker(name, &missing);
        let wanted = WantedGroup { job: &self.job.key, definition, group };
        let host_volumes = feasible::taken(self.view, wanted, &node, missing.index);
        self.plan.placements.push(Placement {
            group: Arc::clone(name),
            index: missing.index,
            node,
            job_version: version,
            canary: missing.canary,
            deployment,
            resources,
            host_volumes,
            previous: missing.previous,
            replaces: missing.replaces,
            is_destructive: missing.is_destructive,
            preempts: found.victims.into_iter().map(|victim| victim.alloc).collect(),
            tracker,
            metrics: found.metrics,
        });
        Some(n_victims)
    }

    /// What a replacement of a failed allocation takes over of its reschedule attempts.
    fn successor_tracker(&self, group: &str, missing: &Missing) -> Option<RescheduleTracker> {
        let policy = self.job.definition.group(group)?.reschedule.as_ref()?;
        let previous = missing.previous.as_deref().filter(|_| missing.is_reschedule)?;
        Some(reschedule::successor_tracker(previous, policy, self.eval.now))
    }

    /// The definition that a placement runs: an older version where one is wanted and still known.
    fn version_for(&self, group: &str, older: Option<i64>) -> Option<(i64, &'a Definition, &'a Group)> {
        let old = older.and_then(|version| {
            let definition = self.view.version(&self.job.key, &self.job.uid, version)?;
            Some((version, &**definition, definition.group(group)?))
        });
        old.or_else(|| Some((self.job.version, &*self.job.definition, self.job.definition.group(group)?)))
    }

    fn candidates_for(&mut self, definition: &'a Definition, group: &'a Group, index: i64) -> Candidates<'a> {
        let table = self.node_table.get_or_insert_with(|| Arc::new(NodeTable::new(self.view, self.rng)));
        let table = Arc::clone(table);
        let settings = self.view.settings();
        let ask = PlacementAsk {
            wanted: WantedGroup { job: &self.job.key, definition, group },
            algorithm: settings.algorithm(&definition.spec.node_pool),
            count: self.job.counts.get(&group.name).copied().unwrap_or(group.count),
        };
        Candidates::new(ask, table, &self.proposed, index, Need::new(settings, definition, group))
    }

    fn find(&self, candidates: &mut Candidates<'a>, missing: &Missing, evictions: &mut Evictions) -> Option<FoundNode> {
        let penalty = candidates::penalty_nodes(missing.previous.as_deref());
        let preferred = self.preferred(candidates.group(), missing.previous.as_deref());
        let alone = preferred.and_then(|node| candidates.only(&node, penalty.contains(&node)));
        if let Some((row, metrics)) = alone.or_else(|| candidates.best(&penalty)) {
            return Some(FoundNode { row, metrics, victims: Vec::new() });
        }
        self.by_eviction(candidates, &penalty, evictions)
    }

    /// The node on which an allocation's data is, while it is still one that the job may use.
    fn preferred(&self, group: &Group, previous: Option<&Alloc>) -> Option<NodeName> {
        let previous = previous?;
        let is_sticky = group.ephemeral_disk.sticky || group.ephemeral_disk.migrate;
        let node = self.view.node(&previous.node).filter(|node| is_sticky && node.is_ready())?;
        let before = self.view.definition_of(previous)?;
        let (old, new) = (&before.spec, &self.job.definition.spec);
        let is_where_it_was = old.node_pool == new.node_pool && old.datacenters == new.datacenters;
        is_where_it_was.then(|| node.name.clone())
    }

    /// The best node on which enough allocations of lower priorities can be evicted.
    fn by_eviction(
        &self,
        candidates: &mut Candidates<'a>,
        penalty: &[NodeName],
        evictions: &mut Evictions,
    ) -> Option<FoundNode> {
        if !self.view.settings().preemption.is_on(self.job.definition.job_type()) {
            return None;
        }
        let (row, scores, victims) =
            evictions.best(candidates, penalty, |candidates, row| self.eviction_on(candidates, row))?;
        let node = candidates.entry(row).node.name.clone();
        let metrics = Metrics { best: vec![(node, scores)], counts: candidates.counts() };
        Some(FoundNode { row, metrics, victims: victims.to_vec() })
    }

    fn eviction_on(&self, candidates: &mut Candidates<'a>, row: Row) -> Option<EvictionOption> {
        let entry = candidates.entry(row);
        let used = self.proposed.usage(entry);
        let victims = self.victims(candidates.need(), entry, used)?;
        let priorities: Vec<i64> = victims.iter().map(|victim| victim.priority).collect();
        let scores = candidates.score_without_room(row, used, preempt::score(&priorities), &self.proposed);
        let mut left = used.clone();
        for victim in &victims {
            left.remove(&victim.held);
        }
        // The devices that it gets may be those of the victims.
        let devices = candidates.need().check(entry, &left).ok()?;
        Some((victims, Scores { devices, ..scores }))
    }

    /// Allocations to evict on a node so that a group fits there.
    pub(crate) fn victims(
        &self,
        need: &Need<'_>,
        entry: &NodeEntry,
        used: &crate::usage::Usage,
    ) -> Option<Vec<Evictable>> {
        let evictable: Vec<Evictable> = self
            .view
            .allocs_on_node(&entry.node.name)
            .filter(|alloc| alloc.job != self.job.key && !alloc.is_server_terminal() && self.proposed.stays(alloc))
            .map(|alloc| self.evictable(alloc))
            .collect();
        let priority = self.job.definition.spec.priority;
        let ask = preempt::PreemptionAsk { priority, amounts: need.amounts(entry), group: need.group() };
        preempt::victims(ask, &entry.node, used, &evictable, |left| need.check(entry, left).is_ok())
    }

    fn evictable(&self, alloc: &Arc<Alloc>) -> Evictable {
        let group = self.view.definition_of(alloc).and_then(|known| known.group(&alloc.group));
        let migrate = group.and_then(|group| group.migrate.as_ref());
        Evictable {
            alloc: Arc::clone(alloc),
            priority: self.view.priority_of(alloc),
            held: self.view.held_by(alloc),
            max_parallel: migrate.and_then(|migrate| migrate.max_parallel).unwrap_or(0),
            already: self.proposed.evicted(alloc),
        }
    }

    /// A reschedule without a place is noted on the allocation, so that it is tried again when there is room.
    fn note_unplaced(&mut self, missing: &Missing) {
        let Some(previous) = missing.previous.as_ref().filter(|_| missing.is_reschedule) else { return };
        // One that is cut off in the same plan waits for the end of its window already.
        if self.plan.disconnects.iter().any(|cut| cut.alloc.key == previous.key) {
            return;
        }
        let noted = previous.tracker.as_ref().and_then(|tracker| tracker.last_reschedule);
        if noted != Some(LastReschedule::NoPlacement) {
            self.plan.attributes.push(AttributeUpdate {
                alloc: previous.key.clone(),
                follow_up: previous.follow_up.clone(),
                last_reschedule: Some(LastReschedule::NoPlacement),
            });
        }
    }

    /// Adds what one more allocation asked for in vain.
    fn add_exhausted(&mut self, name: &Arc<str>) {
        let Some(group) = self.job.definition.group(name) else { return };
        let Some(failed) = self.plan.failed.get_mut(&**name) else { return };
        let AllocMetric { resources_exhausted, dimension_exhausted, .. } = failed;
        for (task, more) in candidates::asked(group, dimension_exhausted) {
            let sum = resources_exhausted.entry(task).or_default();
            sum.cpu = sum.cpu.saturating_add(more.cpu);
            sum.memory_mb = sum.memory_mb.saturating_add(more.memory_mb);
        }
    }
}

impl<'a> CandidatesByVersion<'a> {
    /// Takes a change on a node in.
    fn changed(&mut self, node: &NodeName, own: Option<(&str, CountChange)>, proposed: &Proposed<'a>) {
        let row = self.candidates.values().next().and_then(|candidates| candidates.row_of(node));
        self.changed_at(row, node, own, proposed);
    }

    /// The same for a node whose place in the table is known: it is one for all versions.
    fn changed_at(
        &mut self,
        row: Option<Row>,
        node: &NodeName,
        own: Option<(&str, CountChange)>,
        proposed: &Proposed<'a>,
    ) {
        if let Some((row, candidates)) = row.zip(self.candidates.values().next()) {
            self.evictions.changed(row, candidates.rank(row));
        }
        for candidates in self.candidates.values_mut() {
            candidates.changed(row, node, own, proposed);
        }
    }
}
