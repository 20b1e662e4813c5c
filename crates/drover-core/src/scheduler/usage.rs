//! What is in use on a node: stored allocations that have not ended, less what the plan stops, plus what it places.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use drover_api::allocation::{AllocatedPort, AllocatedResources, TaskResources};
use drover_api::group::Group;
use drover_api::task::{LifecycleHook, Task};

use crate::ids::{AllocKey, JobKey, NodeName};
use crate::model::{Alloc, Amounts, Node};
use crate::scheduler::feasible::host_network;
use crate::snapshot::ClusterView;

/// What is in use on one node.
#[derive(Clone, Debug, Default)]
pub struct NodeUsage {
    /// Sums of what allocations hold.
    pub amounts: Amounts,
    /// Ports in use.
    pub ports: BTreeSet<u16>,
    /// Cores in use.
    pub cores: BTreeSet<i64>,
    /// How many allocations there are.
    pub n_allocs: i64,
    /// How many of each job and group.
    pub by_group: HashMap<(JobKey, String), i64>,
}

impl NodeUsage {
    fn add(&mut self, job: &JobKey, group: &str, held: &Held) {
        self.amounts.cpu += held.amounts.cpu;
        self.amounts.memory_mb += held.amounts.memory_mb;
        self.amounts.disk_mb += held.amounts.disk_mb;
        self.ports.extend(&held.ports);
        self.cores.extend(&held.cores);
        self.n_allocs += 1;
        *self.by_group.entry((job.clone(), group.to_owned())).or_default() += 1;
    }

    /// How many allocations of a job and group are there.
    pub fn of_group(&self, job: &JobKey, group: &str) -> i64 {
        self.by_group.get(&(job.clone(), group.to_owned())).copied().unwrap_or(0)
    }

    /// How many allocations of a job are there.
    pub fn of_job(&self, job: &JobKey) -> i64 {
        self.by_group.iter().filter(|((known, _), _)| known == job).map(|(_, n)| n).sum()
    }
}

/// What one allocation holds.
#[derive(Clone, Debug, Default)]
struct Held {
    amounts: Amounts,
    ports: BTreeSet<u16>,
    cores: BTreeSet<i64>,
}

/// What an allocation of a known group holds. Tasks of different stages do not run at the same time: the largest stage counts.
fn held(resources: &AllocatedResources, group: Option<&Group>) -> Held {
    let amounts = |name: &str| resources.tasks.get(name);
    let stages = group.map_or_else(
        || resources.tasks.values().fold(Amounts::default(), sum_task),
        |group| {
            largest_stage(group, |task| {
                amounts(&task.name).map_or_else(Amounts::default, |r| sum_task(Amounts::default(), r))
            })
        },
    );
    Held {
        amounts: Amounts { disk_mb: resources.disk_mb, ..stages },
        ports: resources.ports.iter().filter_map(|port| u16::try_from(port.value).ok()).collect(),
        cores: resources.tasks.values().flat_map(|task| task.cores.iter().copied()).collect(),
    }
}

fn sum_task(sum: Amounts, task: &TaskResources) -> Amounts {
    Amounts { cpu: sum.cpu + task.cpu, memory_mb: sum.memory_mb + task.memory_mb, ..sum }
}

/// What a group needs at its most demanding stage: prestart, main (with sidecars and poststart), or poststop.
fn largest_stage(group: &Group, need: impl Fn(&Task) -> Amounts) -> Amounts {
    let mut stages = [Amounts::default(); 3];
    for task in &group.tasks {
        let in_stages: &[usize] = match &task.lifecycle {
            None => &[1],
            Some(lifecycle) => match (lifecycle.hook, lifecycle.sidecar) {
                (LifecycleHook::Prestart, true) => &[0, 1],
                (LifecycleHook::Prestart, false) => &[0],
                (LifecycleHook::Poststart, _) => &[1],
                (LifecycleHook::Poststop, _) => &[2],
            },
        };
        for stage in in_stages {
            let amounts = need(task);
            stages[*stage].cpu += amounts.cpu;
            stages[*stage].memory_mb += amounts.memory_mb;
        }
    }
    let most = |pick: fn(&Amounts) -> i64| stages.iter().map(pick).max().unwrap_or(0);
    Amounts { cpu: most(|a| a.cpu), memory_mb: most(|a| a.memory_mb), disk_mb: 0 }
}

/// Why a group does not fit on a node: what is exhausted.
pub type Exhausted = String;

/// Usage of all nodes that a plan looked at.
#[derive(Debug)]
pub struct Proposed<'a> {
    view: &'a ClusterView,
    nodes: HashMap<NodeName, NodeUsage>,
    stopped: BTreeSet<AllocKey>,
    placed: HashMap<NodeName, Vec<(JobKey, String, Held)>>,
}

impl<'a> Proposed<'a> {
    /// Usage as stored.
    pub fn new(view: &'a ClusterView) -> Self {
        Self { view, nodes: HashMap::new(), stopped: BTreeSet::new(), placed: HashMap::new() }
    }

    /// Takes an allocation out: the plan stops it.
    pub fn stop(&mut self, alloc: &Alloc) {
        self.stopped.insert(alloc.key.clone());
        self.nodes.remove(&alloc.node);
    }

    /// Puts a stopped allocation back.
    pub fn keep(&mut self, alloc: &Alloc) {
        self.stopped.remove(&alloc.key);
        self.nodes.remove(&alloc.node);
    }

    /// Adds a placement. It stays for the rest of the plan.
    pub fn place(&mut self, node: &NodeName, job: &JobKey, group: &Group, resources: &AllocatedResources) {
        let held = held(resources, Some(group));
        self.on(node).add(job, &group.name, &held);
        self.placed.entry(node.clone()).or_default().push((job.clone(), group.name.clone(), held));
    }

    /// What is in use on a node.
    pub fn on(&mut self, node: &NodeName) -> &mut NodeUsage {
        let (view, stopped, placed) = (self.view, &self.stopped, &self.placed);
        self.nodes.entry(node.clone()).or_insert_with(|| {
            let mut usage = NodeUsage::default();
            for alloc in view
                .allocs_on_node(node)
                .filter(|a| !a.is_client_terminal() && !a.has_ended && !stopped.contains(&a.key))
            {
                let definition = view.version(&alloc.job, &alloc.job_uid, alloc.job_version);
                let group = definition.and_then(|definition| definition.group(&alloc.group));
                usage.add(&alloc.job, &alloc.group, &held(&alloc.resources, group));
            }
            for (job, group, held) in placed.get(node).into_iter().flatten() {
                usage.add(job, group, held);
            }
            usage
        })
    }
}

/// Finds room for a group on a node with this usage, and what it would hold.
///
/// # Errors
/// The dimension that is exhausted, in the order of `spec/scheduler.md` 5.1.
pub fn fit(
    node: &Arc<Node>,
    usage: &NodeUsage,
    group: &Group,
    rng: &mut fastrand::Rng,
) -> Result<AllocatedResources, Exhausted> {
    let ports = assign_ports(node, usage, group, rng)?;
    if node.max_allocs.is_some_and(|most| usage.n_allocs >= most) {
        return Err("maxAllocs".to_owned());
    }
    let mut resources =
        AllocatedResources { ports, disk_mb: group.ephemeral_disk.size_mb, ..AllocatedResources::default() };
    let mut taken = usage.cores.clone();
    for task in &group.tasks {
        let mut cores = Vec::new();
        let wanted = usize::try_from(task.resources.cores.unwrap_or(0)).unwrap_or(0);
        if wanted > 0 {
            cores.extend(node.cores.iter().filter(|core| !taken.contains(core)).take(wanted));
            if cores.len() < wanted {
                return Err("cores".to_owned());
            }
            taken.extend(&cores);
        }
        let reserved = i64::try_from(cores.len()).unwrap_or(0) * node.core_mhz;
        let cpu = if wanted > 0 { reserved } else { task.resources.cpu.unwrap_or(crate::defaults::CPU_MHZ) };
        resources.tasks.insert(
            task.name.clone(),
            TaskResources {
                cpu,
                memory_mb: task.resources.memory_mb,
                memory_max_mb: task.resources.memory_max_mb.unwrap_or(0),
                cores,
                devices: Vec::new(),
            },
        );
    }
    let need = held(&resources, Some(group)).amounts;
    let (used, total) = (usage.amounts, node.allocatable);
    for (dimension, need, used, total) in [
        ("cpu", need.cpu, used.cpu, total.cpu),
        ("memory", need.memory_mb, used.memory_mb, total.memory_mb),
        ("disk", need.disk_mb, used.disk_mb, total.disk_mb),
    ] {
        if used + need > total {
            return Err(dimension.to_owned());
        }
    }
    Ok(resources)
}

/// What `group` with these resources adds to a node's use.
pub fn need(resources: &AllocatedResources, group: &Group) -> Amounts {
    held(resources, Some(group)).amounts
}

/// Random tries before the exact free list is made.
const PORT_TRIES: usize = 20;

fn assign_ports(
    node: &Node,
    usage: &NodeUsage,
    group: &Group,
    rng: &mut fastrand::Rng,
) -> Result<Vec<AllocatedPort>, Exhausted> {
    let asked: Vec<_> = group.networks.iter().flat_map(|network| &network.ports).collect();
    let mut taken: BTreeSet<u16> = usage.ports.union(&node.reserved_ports).copied().collect();
    let mut ports = BTreeMap::new();
    for port in asked.iter().filter(|port| port.r#static.is_some()) {
        let value = u16::try_from(port.r#static.unwrap_or(0)).unwrap_or(0);
        if !taken.insert(value) && !port.ignore_collision {
            return Err(format!("network: reserved port collision {}={value}", port.label));
        }
        ports.insert(port.label.as_str(), value);
    }
    for port in asked.iter().filter(|port| port.r#static.is_none()) {
        let value = free_port(node.dynamic_ports, &taken, rng).ok_or("network: dynamic port selection failed")?;
        taken.insert(value);
        ports.insert(port.label.as_str(), value);
    }
    Ok(asked
        .iter()
        .map(|port| {
            let value = i64::from(ports[port.label.as_str()]);
            let alias = host_network(port.host_network.as_deref(), node);
            let ip = node.host_networks.iter().find(|(name, _)| *name == alias).map(|(_, ip)| IpAddr::to_string(ip));
            let to = match port.to {
                Some(-1) => value,
                other => other.unwrap_or(0),
            };
            AllocatedPort { label: port.label.clone(), value, to, host_ip: ip.unwrap_or_default() }
        })
        .collect())
}

fn free_port((first, last): (u16, u16), taken: &BTreeSet<u16>, rng: &mut fastrand::Rng) -> Option<u16> {
    if first > last {
        return None;
    }
    for _ in 0..PORT_TRIES {
        let port = rng.u16(first..=last);
        if !taken.contains(&port) {
            return Some(port);
        }
    }
    let free: Vec<u16> = (first..=last).filter(|port| !taken.contains(port)).collect();
    if free.is_empty() { None } else { Some(free[rng.usize(..free.len())]) }
}
