//! The cluster as it will be: what is stored, less what the plan ends, plus what it places.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use drover_api::allocation::AllocatedResources;
use drover_api::group::Group;

use crate::ids::{AllocKey, JobKey, NodeName};
use crate::model::Alloc;
use crate::scheduler::feasible::WantedGroup;
use crate::snapshot::{ClusterView, NodeEntry};
use crate::usage::Usage;

/// What a plan makes of the cluster so far.
#[derive(Debug)]
pub struct Proposed<'a> {
    view: &'a ClusterView,
    job: &'a JobKey,
    changed: HashMap<NodeName, Usage>,
    ended: HashSet<AllocKey>,
    placed: HashMap<NodeName, Vec<(Arc<str>, i64)>>,
    /// How many allocations of each group of the job are on a node.
    own: HashMap<NodeName, BTreeMap<Arc<str>, i64>>,
    /// How many of a job's group are evicted.
    evicted: BTreeMap<(JobKey, String), i64>,
}

impl<'a> Proposed<'a> {
    /// The cluster as it is. O(allocations of the job).
    pub fn new(view: &'a ClusterView, job: &'a JobKey) -> Self {
        let mut own: HashMap<NodeName, BTreeMap<Arc<str>, i64>> = HashMap::new();
        let mut names: BTreeMap<&str, Arc<str>> = BTreeMap::new();
        for alloc in view.allocs_of_job(job).filter(|alloc| alloc.holds_room()) {
            let name = names.entry(&alloc.group).or_insert_with(|| Arc::from(alloc.group.as_str()));
            *own.entry(alloc.node.clone()).or_default().entry(Arc::clone(name)).or_default() += 1;
        }
        Self {
            view,
            job,
            changed: HashMap::new(),
            ended: HashSet::new(),
            placed: HashMap::new(),
            own,
            evicted: BTreeMap::new(),
        }
    }

    /// The cluster as it is stored.
    pub fn view(&self) -> &'a ClusterView {
        self.view
    }

    /// What is in use on a node.
    pub fn usage<'s>(&'s self, entry: &'s NodeEntry) -> &'s Usage {
        if self.changed.is_empty() {
            return &entry.usage;
        }
        self.changed.get(&entry.node.name).unwrap_or(&entry.usage)
    }

    /// Whether an allocation is stored and is not ended by the plan.
    pub fn stays(&self, alloc: &Alloc) -> bool {
        alloc.holds_room() && !self.ended.contains(&alloc.key)
    }

    /// How many allocations of each group of the job are on a node, node by node.
    pub fn own(&self) -> impl Iterator<Item = (&NodeName, &BTreeMap<Arc<str>, i64>)> {
        self.own.iter()
    }

    /// How many allocations of a group of the job, and of all its groups, are on a node.
    pub fn own_on(&self, entry: &NodeEntry, group: &str) -> (i64, i64) {
        if self.own.is_empty() {
            return (0, 0);
        }
        let groups = self.own.get(&entry.node.name);
        groups.map_or((0, 0), |groups| (groups.get(group).copied().unwrap_or(0), groups.values().sum()))
    }

    /// How many allocations of a job's group the plan evicts.
    pub fn evicted(&self, alloc: &Alloc) -> i64 {
        self.evicted.get(&(alloc.job.clone(), alloc.group.clone())).copied().unwrap_or(0)
    }

    /// Takes an allocation out.
    pub fn end(&mut self, alloc: &Alloc) {
        if !alloc.holds_room() || !self.ended.insert(alloc.key.clone()) {
            return;
        }
        let held = self.view.held_by(alloc);
        if let Some(usage) = self.usage_mut(&alloc.node) {
            usage.remove(&held);
        }
        self.count(&alloc.job, &alloc.node, &alloc.group, -1);
    }

    /// Puts an allocation back that was taken out.
    pub fn keep(&mut self, alloc: &Alloc) {
        if !self.ended.remove(&alloc.key) {
            return;
        }
        let held = self.view.held_by(alloc);
        if let Some(usage) = self.usage_mut(&alloc.node) {
            usage.add(&held);
        }
        self.count(&alloc.job, &alloc.node, &alloc.group, 1);
    }

    /// Takes an allocation out for another one.
    pub fn evict(&mut self, alloc: &Alloc) {
        self.end(alloc);
        *self.evicted.entry((alloc.job.clone(), alloc.group.clone())).or_default() += 1;
    }

    /// Adds an allocation of the job.
    pub fn place(&mut self, entry: &NodeEntry, group: &Group, index: i64, resources: &AllocatedResources) {
        let held = Usage::of(resources, Some(group));
        let node = &entry.node.name;
        if let Some(usage) = self.changed.get_mut(node) {
            usage.add(&held);
        } else {
            let mut usage = entry.usage.clone();
            usage.add(&held);
            self.changed.insert(node.clone(), usage);
        }
        // Only volumes make others ask which allocations are new on a node.
        if !group.volumes.is_empty() {
            self.placed.entry(node.clone()).or_default().push((Arc::from(group.name.as_str()), index));
        }
        self.count(self.job, node, &group.name, 1);
    }

    /// Calls with namespace, group and slot of each allocation that will be on a node.
    pub fn each_on(&self, node: &NodeName, wanted: WantedGroup<'_>, mut call: impl FnMut(Arc<str>, &Group, i64)) {
        for alloc in self.view.allocs_on_node(node).filter(|alloc| self.stays(alloc)) {
            if let Some(group) = self.view.definition_of(alloc).and_then(|known| known.group(&alloc.group)) {
                call(Arc::clone(&alloc.job.namespace), group, alloc.index);
            }
        }
        for (name, index) in self.placed.get(node).into_iter().flatten() {
            if let Some(group) = wanted.definition.group(name) {
                call(Arc::clone(&wanted.job.namespace), group, *index);
            }
        }
    }

    fn usage_mut(&mut self, node: &NodeName) -> Option<&mut Usage> {
        if !self.changed.contains_key(node) {
            let stored = self.view.node_entry(node)?.usage.clone();
            self.changed.insert(node.clone(), stored);
        }
        self.changed.get_mut(node)
    }

    fn count(&mut self, job: &JobKey, node: &NodeName, group: &str, by: i64) {
        if job != self.job {
            return;
        }
        let groups = self.own.entry(node.clone()).or_default();
        match groups.get_mut(group) {
            Some(n) => *n += by,
            None => drop(groups.insert(Arc::from(group), by)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheduler::tests::{World, key, spec};

    /// Three allocations on `n-0` that hold 100 MHz each: `a` and `b` of the job, `other` of another one.
    fn world() -> World {
        let held = json!({ "tasks": { "t": { "cpu": 100, "memoryMB": 100 } } });
        let held: Arc<AllocatedResources> = Arc::new(serde_json::from_value(held).unwrap());
        let mut world = World::new(&spec(2));
        for (name, job) in [("a", "web"), ("b", "web"), ("other", "other")] {
            world.allocs(0..1, |alloc| {
                (alloc.key, alloc.job) = (AllocKey::new("shop", name), JobKey::new("shop", job));
                alloc.resources = Arc::clone(&held);
            });
        }
        world
    }

    fn alloc(world: &World, name: &str) -> Arc<Alloc> {
        Arc::clone(world.view.alloc(&AllocKey::new("shop", name)).unwrap())
    }

    /// MHz in use on `n-0`, and the job's allocations there.
    fn seen(world: &World, proposed: &Proposed<'_>) -> (i64, (i64, i64)) {
        let entry = world.view.node_entry(&"n-0".into()).unwrap();
        (proposed.usage(entry).amounts.cpu, proposed.own_on(entry, "web"))
    }

    #[test]
    fn what_was_taken_out_and_is_put_back_is_there_as_before() {
        let (world, job) = (world(), key());
        let (a, other) = (alloc(&world, "a"), alloc(&world, "other"));
        let mut proposed = Proposed::new(&world.view, &job);
        assert_eq!(seen(&world, &proposed), (300, (2, 2)));
        proposed.end(&a);
        assert_eq!((seen(&world, &proposed), proposed.stays(&a)), ((200, (1, 1)), false));
        proposed.end(&other);
        assert_eq!((seen(&world, &proposed), proposed.stays(&other)), ((100, (1, 1)), false));
        proposed.keep(&a);
        assert_eq!((seen(&world, &proposed), proposed.stays(&a)), ((200, (2, 2)), true));
        proposed.keep(&a);
        assert_eq!(seen(&world, &proposed), (200, (2, 2)), "it was back already");
        proposed.keep(&other);
        assert_eq!((seen(&world, &proposed), proposed.stays(&other)), ((300, (2, 2)), true));
    }

    #[test]
    fn evictions_are_counted_for_each_group_of_a_job_and_plain_ends_are_not() {
        let (world, job) = (world(), key());
        let [a, b, other] = ["a", "b", "other"].map(|name| alloc(&world, name));
        let mut proposed = Proposed::new(&world.view, &job);
        let counts = |proposed: &Proposed<'_>| [&a, &b, &other].map(|alloc| proposed.evicted(alloc));
        assert_eq!(counts(&proposed), [0, 0, 0]);
        proposed.evict(&a);
        assert_eq!((counts(&proposed), seen(&world, &proposed)), ([1, 1, 0], (200, (1, 1))));
        proposed.evict(&b);
        assert_eq!((counts(&proposed), seen(&world, &proposed)), ([2, 2, 0], (100, (0, 0))));
        proposed.end(&other);
        assert_eq!((counts(&proposed), seen(&world, &proposed)), ([2, 2, 0], (0, (0, 0))));
        assert_eq!(proposed.evicted(&Alloc { group: "db".into(), ..(*a).clone() }), 0);
    }
}
