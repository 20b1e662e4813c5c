//! I3: no node holds or runs more than it has.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use drover_api::allocation::{AllocatedResources, DesiredStatus};
use drover_api::{Allocation, ClientNode};
use drover_store::Key;
use drover_store::memory::StoredChange;

use drover_agent::simulated::{TaskChange, TaskRun};
use drover_store::convert;

/// What allocations take of a node.
#[derive(Clone, Debug, Default)]
struct Use {
    cpu: i64,
    memory_mb: i64,
    disk_mb: i64,
    /// Ports, cores and devices: things that only one can have.
    single: Vec<String>,
}

/// The sum of what is taken of a node.
#[derive(Debug, Default)]
struct Taken {
    by: BTreeMap<Key, Use>,
    cpu: i64,
    memory_mb: i64,
    disk_mb: i64,
    single: HashMap<String, u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Capacity {
    cpu: i64,
    memory_mb: i64,
    disk_mb: i64,
}

/// What is taken of all nodes.
#[derive(Debug, Default)]
pub(super) struct Room {
    capacity: HashMap<String, Capacity>,
    placed: HashMap<String, Taken>,
    /// By the runs of tasks, whatever the objects say.
    running: HashMap<String, Taken>,
    /// By uid: what each allocation takes.
    wanted: HashMap<String, Use>,
    has_two_leaders: bool,
    /// Nodes on which two leaders placed too much, until that has gone.
    excused: BTreeSet<String>,
}

impl Room {
    /// From now on two leaders may place at once, or one leads alone again.
    pub(super) fn expect_two_leaders(&mut self, has_two: bool) {
        self.has_two_leaders = has_two;
    }

    pub(super) fn observe_node(&mut self, change: &StoredChange) {
        let Some(node) = change.after.as_ref().and_then(|after| after.typed::<ClientNode>().ok()) else { return };
        if node.status.as_ref().is_none_or(|status| status.fingerprint.is_none()) {
            return;
        }
        let known = convert::node(node);
        let room = known.allocatable;
        let capacity = Capacity { cpu: room.cpu, memory_mb: room.memory_mb, disk_mb: room.disk_mb };
        self.capacity.insert(change.object().key.name.clone(), capacity);
    }

    pub(super) fn observe(&mut self, change: &StoredChange, found: &mut Vec<String>) {
        let key = &change.object().key;
        if let Some(before) = change.before.as_ref().and_then(|before| before.typed::<Allocation>().ok())
            && let Some(taken) = self.placed.get_mut(&before.spec.node_name)
        {
            taken.remove(key);
        }
        let Some(alloc) = change.after.as_ref().and_then(|after| after.typed::<Allocation>().ok()) else {
            self.wanted.remove(change.object().uid());
            return;
        };
        let needs = Use::of(&alloc.spec.resources);
        self.wanted.insert(change.object().uid().to_owned(), needs.clone());
        let client = alloc.status.as_ref().map(|status| status.client_status).unwrap_or_default();
        if alloc.spec.desired_status != DesiredStatus::Run || client.is_terminal() {
            return;
        }
        let node = &alloc.spec.node_name;
        let taken = self.placed.entry(node.clone()).or_default();
        let is_new = change.before.is_none();
        taken.add(key.clone(), needs);
        let mut faults = Vec::new();
        taken.check("placed", node, self.capacity.get(node), &mut faults);
        if faults.is_empty() {
            self.excused.remove(node);
        } else if self.has_two_leaders {
            self.excused.insert(node.clone());
        } else if is_new && !self.excused.contains(node) {
            found.append(&mut faults);
        }
    }

    pub(super) fn observe_task(&mut self, node: &str, run: &TaskRun, change: TaskChange, found: &mut Vec<String>) {
        let key = Key { namespace: None, name: run.allocation.clone() };
        match change {
            TaskChange::Started => {
                let Some(needs) = self.wanted.get(&run.allocation).cloned() else { return };
                // A node that is told of more than it has must wait for what holds it.
                let needs = Use { cpu: 0, disk_mb: 0, ..needs };
                let taken = self.running.entry(node.to_owned()).or_default();
                taken.remove(&key);
                taken.add(key, needs);
                taken.check("run", node, self.capacity.get(node), found);
            }
            TaskChange::Ended => {
                if let Some(taken) = self.running.get_mut(node) {
                    taken.remove(&key);
                }
            }
            TaskChange::StopAsked => {}
        }
    }

    pub(super) fn lose_power(&mut self, node: &str) {
        self.running.remove(node);
    }
}

impl Use {
    fn of(resources: &AllocatedResources) -> Self {
        let mut takes = Self { disk_mb: resources.disk_mb, ..Self::default() };
        for task in resources.tasks.values() {
            takes.cpu += task.cpu;
            takes.memory_mb += task.memory_mb;
            takes.single.extend(task.cores.iter().map(|core| format!("core {core}")));
            for device in &task.devices {
                let of = format!("{}/{}/{}", device.vendor, device.r#type, device.name);
                takes.single.extend(device.ids.iter().map(|id| format!("device {of} {id}")));
            }
        }
        takes.single.extend(resources.ports.iter().map(|port| format!("port {} of {}", port.value, port.host_ip)));
        takes
    }
}

impl Taken {
    fn add(&mut self, key: Key, takes: Use) {
        self.cpu += takes.cpu;
        self.memory_mb += takes.memory_mb;
        self.disk_mb += takes.disk_mb;
        for name in &takes.single {
            *self.single.entry(name.clone()).or_default() += 1;
        }
        self.by.insert(key, takes);
    }

    fn remove(&mut self, key: &Key) {
        let Some(takes) = self.by.remove(key) else { return };
        self.cpu -= takes.cpu;
        self.memory_mb -= takes.memory_mb;
        self.disk_mb -= takes.disk_mb;
        for name in &takes.single {
            if let Some(count) = self.single.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.single.remove(name);
                }
            }
        }
    }

    fn check(&self, how: &str, node: &str, capacity: Option<&Capacity>, found: &mut Vec<String>) {
        let Some(capacity) = capacity else { return };
        for (what, taken, has) in [
            ("cpu", self.cpu, capacity.cpu),
            ("memoryMB", self.memory_mb, capacity.memory_mb),
            ("diskMB", self.disk_mb, capacity.disk_mb),
        ] {
            if taken > has {
                found.push(format!("I3: {taken} of {what} {how} on node {node}, which has {has}"));
            }
        }
        let mut shared: Vec<&String> =
            self.single.iter().filter(|(_, count)| **count > 1).map(|(name, _)| name).collect();
        shared.sort();
        found.extend(shared.first().map(|name| format!("I3: {name} {how} twice on node {node}")));
    }
}
