//! Finds nodes for what is missing, one allocation after the other (`spec/scheduler.md` 3.13, 5, 6). Decides nothing about what
//! should exist.

mod evictions;
mod field;
pub mod fit;
mod ports;
pub mod proposed;
mod shelf;
mod spread;
mod table;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use drover_api::allocation::{AllocatedResources, LastReschedule};
use drover_api::group::Group;
use drover_api::metric::AllocMetric;

use crate::definition::Definition;
use crate::ids::NodeName;
use crate::model::{Alloc, Job};
use crate::scheduler::feasible::{self, Checks, Wanted};
use crate::scheduler::plan::{AttributeUpdate, Evaluation, Metrics, Placement, Plan};
use crate::scheduler::preempt::{self, Candidate};
use crate::scheduler::reconcile::{GroupOutcome, Missing};
use crate::scheduler::reschedule;
use crate::snapshot::{ClusterView, NodeEntry};
use evictions::{EvictionOption, Evictions};
use field::{Ask, Change, Field};
use fit::Need;
use proposed::Proposed;
use shelf::Slot;
use table::Table;

pub(super) use field::fullness;

/// Turns what is missing into placements.
pub(super) struct Planner<'a> {
    pub(super) view: &'a ClusterView,
    pub(super) job: &'a Job,
    pub(super) eval: &'a Evaluation,
    pub(super) rng: &'a mut fastrand::Rng,
    pub(super) proposed: Proposed<'a>,
    pub(super) plan: Plan,
    table: Option<Arc<Table<'a>>>,
}

/// The nodes for one group, in each of the versions that its allocations run.
struct Fields<'a> {
    by_version: BTreeMap<i64, Field<'a>>,
    evictions: Evictions,
}

/// A node that was found.
struct Found {
    slot: Slot,
    metrics: Metrics,
    victims: Vec<Candidate>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(view: &'a ClusterView, job: &'a Job, eval: &'a Evaluation, rng: &'a mut fastrand::Rng) -> Self {
        Self { view, job, eval, rng, proposed: Proposed::new(view, &job.key), plan: Plan::default(), table: None }
    }

    /// Whether an allocation can go on where it is in the job's version; with what it holds then. The room of one that can is
    /// its own already.
    pub(super) fn fits_in_place(
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
        let wanted = Wanted { job: &self.job.key, definition, group };
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

    /// Places what a group misses.
    pub(super) fn group(&mut self, name: &Arc<str>, outcome: GroupOutcome, deployment: Option<&Arc<str>>) {
        for stop in &outcome.stops {
            self.proposed.end(&stop.alloc);
        }
        self.plan.stops.extend(outcome.stops);
        self.plan.attributes.extend(outcome.attributes);
        self.plan.follow_ups.extend(outcome.follow_ups);
        self.plan.disconnects.extend(outcome.disconnects);
        self.plan.reconnects.extend(outcome.reconnects);
        self.plan.held_back += outcome.held_back;
        self.plan.in_place.extend(outcome.in_place.into_iter().map(|(alloc, resources)| super::plan::InPlace {
            job_version: self.job.version,
            deployment: deployment.cloned(),
            alloc,
            resources,
        }));
        let mut desired = outcome.desired;
        let mut fields = Fields { by_version: BTreeMap::new(), evictions: Evictions::default() };
        let mut queued = 0;
        for missing in outcome.missing {
            let n_victims = self.one(name, missing, deployment, &mut fields);
            queued += i64::from(n_victims.is_none());
            desired.preemptions += n_victims.unwrap_or(0);
        }
        if self.plan.failed.contains_key(&**name) {
            for field in fields.by_version.values() {
                field.note_waiting(&mut self.plan.waits_for, &self.job.key);
            }
        }
        self.plan.queued.insert(name.to_string(), queued);
        self.plan.desired.insert(name.to_string(), desired);
    }

    /// Places one allocation. Says how many others are evicted for it; nothing when there is no place.
    fn one(
        &mut self,
        name: &Arc<str>,
        missing: Missing,
        deployment: Option<&Arc<str>>,
        fields: &mut Fields<'a>,
    ) -> Option<i64> {
        let failed_before = self.plan.failed.get_mut(&**name);
        if let Some(failed) = failed_before {
            failed.coalesced_failures += 1;
            self.add_exhausted(name);
            self.note_unplaced(&missing);
            return None;
        }
        let (version, definition, group) = self.version_for(name, missing.job_version)?;
        if let Entry::Vacant(vacant) = fields.by_version.entry(version) {
            vacant.insert(self.field(definition, group, missing.index));
        }
        if let Some(stop) = &missing.replaces {
            self.proposed.end(&stop.alloc);
            fields.changed(&stop.alloc.node, Some((&stop.alloc.group, Change::Ended)), &self.proposed);
        }
        let field = fields.by_version.get_mut(&version)?;
        field.turn_to(missing.index, &self.proposed);
        let found = self.find(field, &missing, &mut fields.evictions);
        let Some(found) = found else {
            let metric = field.failure(&self.proposed);
            if let Some(stop) = &missing.replaces {
                self.proposed.keep(&stop.alloc);
                fields.changed(&stop.alloc.node, Some((&stop.alloc.group, Change::Kept)), &self.proposed);
            }
            self.plan.failed.insert(name.to_string(), metric);
            self.note_unplaced(&missing);
            return None;
        };
        let (slot, entry) = (found.slot, field.entry(found.slot));
        let node = entry.node.name.clone();
        for victim in &found.victims {
            self.proposed.evict(&victim.alloc);
        }
        let resources = field.need().assign(&entry.node, self.proposed.usage(entry), self.rng).ok()?;
        self.proposed.place(entry, group, missing.index, &resources);
        fields.changed_at(Some(slot), &node, Some((name, Change::Placed)), &self.proposed);
        let n_victims = i64::try_from(found.victims.len()).unwrap_or(0);
        let is_own_version = version == self.job.version;
        self.plan.placements.push(self.placement(
            name,
            missing,
            node,
            version,
            deployment.filter(|_| is_own_version).cloned(),
            resources,
            found,
        ));
        Some(n_victims)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a placement, each known at another step")]
    fn placement(
        &self,
        group: &Arc<str>,
        missing: Missing,
        node: NodeName,
        job_version: i64,
        deployment: Option<Arc<str>>,
        resources: Arc<AllocatedResources>,
        found: Found,
    ) -> Placement {
        let policy = self.job.definition.group(group).and_then(|group| group.reschedule.as_ref());
        let tracker =
            missing.previous.as_deref().filter(|_| missing.is_reschedule).and_then(|previous| {
                policy.map(|policy| reschedule::successor_tracker(previous, policy, self.eval.now))
            });
        Placement {
            group: Arc::clone(group),
            index: missing.index,
            node,
            job_version,
            canary: missing.canary,
            deployment,
            resources,
            previous: missing.previous,
            replaces: missing.replaces,
            is_destructive: missing.is_destructive,
            preempts: found.victims.into_iter().map(|victim| victim.alloc).collect(),
            tracker,
            metrics: found.metrics,
        }
    }

    /// The definition that a placement runs: an older version where one is wanted and still known.
    fn version_for(&self, group: &str, older: Option<i64>) -> Option<(i64, &'a Definition, &'a Group)> {
        let old = older.and_then(|version| {
            let definition = self.view.version(&self.job.key, &self.job.uid, version)?;
            Some((version, &**definition, definition.group(group)?))
        });
        old.or_else(|| Some((self.job.version, &*self.job.definition, self.job.definition.group(group)?)))
    }

    fn field(&mut self, definition: &'a Definition, group: &'a Group, index: i64) -> Field<'a> {
        let table = self.table.get_or_insert_with(|| Arc::new(Table::new(self.view, self.rng)));
        let table = Arc::clone(table);
        let settings = self.view.settings();
        let ask = Ask {
            wanted: Wanted { job: &self.job.key, definition, group },
            algorithm: settings.algorithm(&definition.spec.node_pool),
            count: self.job.counts.get(&group.name).copied().unwrap_or(group.count),
        };
        Field::new(ask, table, &self.proposed, index, Need::new(settings, definition, group))
    }

    fn find(&self, field: &mut Field<'a>, missing: &Missing, evictions: &mut Evictions) -> Option<Found> {
        let penalty = field::penalty_nodes(missing.previous.as_deref());
        let preferred = self.preferred(field.group(), missing.previous.as_deref());
        let alone = preferred.and_then(|node| field.only(&node, penalty.contains(&node)));
        if let Some((slot, metrics)) = alone.or_else(|| field.best(&penalty)) {
            return Some(Found { slot, metrics, victims: Vec::new() });
        }
        self.by_eviction(field, evictions)
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
    fn by_eviction(&self, field: &mut Field<'a>, evictions: &mut Evictions) -> Option<Found> {
        if !self.view.settings().preemption.is_on(self.job.definition.job_type()) {
            return None;
        }
        let (slot, (victims, scores)) = evictions.best(field, |field, slot| self.eviction_on(field, slot))?;
        let node = field.entry(slot).node.name.clone();
        let metrics = Metrics { best: vec![(node, *scores)], counts: field.counts() };
        Some(Found { slot, metrics, victims: victims.clone() })
    }

    fn eviction_on(&self, field: &mut Field<'a>, slot: Slot) -> Option<EvictionOption> {
        let entry = field.entry(slot);
        let used = self.proposed.usage(entry);
        let victims = self.victims(field.need(), entry, used)?;
        let priorities: Vec<i64> = victims.iter().map(|victim| victim.priority).collect();
        let scores = field.score_without_room(slot, used, preempt::score(&priorities), &self.proposed);
        Some((victims, scores))
    }

    /// Allocations to evict on a node so that a group fits there.
    pub(super) fn victims(
        &self,
        need: &Need<'_>,
        entry: &NodeEntry,
        used: &crate::usage::Usage,
    ) -> Option<Vec<Candidate>> {
        let candidates: Vec<Candidate> = self
            .view
            .allocs_on_node(&entry.node.name)
            .filter(|alloc| alloc.job != self.job.key && !alloc.is_server_terminal() && self.proposed.stays(alloc))
            .map(|alloc| self.candidate(alloc))
            .collect();
        let priority = self.job.definition.spec.priority;
        let ask = preempt::Ask { priority, amounts: need.amounts(entry), group: need.group() };
        preempt::victims(ask, &entry.node, used, &candidates, |left| need.check(entry, left).is_ok())
    }

    fn candidate(&self, alloc: &Arc<Alloc>) -> Candidate {
        let group = self.view.definition_of(alloc).and_then(|known| known.group(&alloc.group));
        let migrate = group.and_then(|group| group.migrate.as_ref());
        Candidate {
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
        for (task, more) in field::asked(group, dimension_exhausted) {
            let sum = resources_exhausted.entry(task).or_default();
            sum.cpu = sum.cpu.saturating_add(more.cpu);
            sum.memory_mb = sum.memory_mb.saturating_add(more.memory_mb);
        }
    }
}

impl<'a> Fields<'a> {
    /// Takes a change on a node in.
    fn changed(&mut self, node: &NodeName, own: Option<(&str, Change)>, proposed: &Proposed<'a>) {
        let slot = self.by_version.values().next().and_then(|field| field.slot_of(node));
        self.changed_at(slot, node, own, proposed);
    }

    /// The same for a node whose place in the table is known: it is one for all fields.
    fn changed_at(
        &mut self,
        slot: Option<Slot>,
        node: &NodeName,
        own: Option<(&str, Change)>,
        proposed: &Proposed<'a>,
    ) {
        if let Some(slot) = slot {
            self.evictions.changed(slot);
        }
        for field in self.by_version.values_mut() {
            field.changed(slot, node, own, proposed);
        }
    }
}
