//! Whether a group fits on a node, and what it would hold there (`spec/scheduler.md` 5.1, 5.3).

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::allocation::{AllocatedDevice, AllocatedResources, TaskResources};
use drover_api::group::Group;

use super::ports;
use crate::definition::Definition;
use crate::model::{Amounts, Node};
use crate::scheduler::feasible::device;
use crate::settings::Settings;
use crate::snapshot::NodeEntry;
use crate::usage::{self, Usage};

/// What one allocation of a group asks for.
#[derive(Debug)]
pub struct Need<'a> {
    group: &'a Group,
    /// What tasks without cores of their own need at the most demanding stage.
    shared: Amounts,
    /// Cores that belong to a task alone.
    n_cores: usize,
    has_ports: bool,
    has_devices: bool,
    takes_memory_max: bool,
    /// What it holds on every node, where nothing of it depends on the node.
    everywhere: Option<Arc<AllocatedResources>>,
}

impl<'a> Need<'a> {
    /// The need of a group of a job.
    pub fn new(settings: &Settings, definition: &Definition, group: &'a Group) -> Self {
        let n_cores = group.tasks.iter().map(|task| cores_of(task.resources.cores)).fold(0, usize::saturating_add);
        let shared = usage::largest_stage(group, |task| {
            let has_cores = cores_of(task.resources.cores) > 0;
            let cpu = if has_cores { 0 } else { cpu_of(task) };
            (cpu, memory_of(task), false)
        });
        let mut need = Self {
            group,
            shared: Amounts { disk_mb: group.ephemeral_disk.size_mb, ..shared },
            n_cores,
            has_ports: group.networks.iter().any(|network| !network.ports.is_empty()),
            has_devices: group.tasks.iter().any(|task| !task.resources.devices.is_empty()),
            takes_memory_max: settings.oversubscribes_memory(&definition.spec.node_pool),
            everywhere: None,
        };
        if need.n_cores == 0 && !need.has_ports && !need.has_devices {
            need.everywhere = Some(Arc::new(need.resources(&[], 0, &BTreeMap::new())));
        }
        need
    }

    /// The group.
    pub fn group(&self) -> &'a Group {
        self.group
    }

    /// The sums that it needs on a node.
    pub fn amounts(&self, entry: &NodeEntry) -> Amounts {
        if self.n_cores == 0 {
            return self.shared;
        }
        let cores = i64::try_from(self.n_cores).unwrap_or(i64::MAX);
        Amounts { cpu: self.shared.cpu.saturating_add(cores.saturating_mul(entry.node.core_mhz)), ..self.shared }
    }

    /// Whether it fits beside what is in use; with the score of the devices that it would get.
    ///
    /// # Errors
    /// The first dimension that is exhausted.
    pub fn check(&self, entry: &NodeEntry, usage: &Usage) -> Result<Option<f64>, String> {
        let node = &entry.node;
        if self.has_ports {
            ports::check(self.group, node, usage)?;
        }
        let mut devices = None;
        if self.has_devices {
            devices = device::assign(node, &usage.devices, self.group).map_err(|_| "devices: no devices left")?.score;
        }
        if self.n_cores > 0 && free_cores(node, usage).take(self.n_cores).count() < self.n_cores {
            return Err("cores".to_owned());
        }
        if usage.n_allocs >= entry.max_allocs {
            return Err("maxAllocs".to_owned());
        }
        match exhausted(entry.allocatable, usage.amounts, self.amounts(entry)) {
            Some(dimension) => Err(dimension.to_owned()),
            None => Ok(devices),
        }
    }

    /// What it would hold on a node.
    ///
    /// # Errors
    /// The first dimension that is exhausted.
    pub fn assign(
        &self,
        node: &Node,
        usage: &Usage,
        rng: &mut fastrand::Rng,
    ) -> Result<Arc<AllocatedResources>, String> {
        if let Some(everywhere) = &self.everywhere {
            return Ok(Arc::clone(everywhere));
        }
        let ports = if self.has_ports { ports::assign(self.group, node, usage, rng)? } else { Vec::new() };
        let devices = if self.has_devices {
            device::assign(node, &usage.devices, self.group).map_err(|_| "devices: no devices left")?
        } else {
            device::Assigned::default()
        };
        let cores: Vec<i64> = free_cores(node, usage).take(self.n_cores).collect();
        let devices: BTreeMap<String, Vec<AllocatedDevice>> = devices.tasks.into_iter().collect();
        let resources = self.resources(&cores, node.core_mhz, &devices);
        Ok(Arc::new(AllocatedResources { ports, ..resources }))
    }

    /// What an allocation that stays on its node holds from now on: its ports, devices and cores are its own already.
    pub fn keep(&self, node: &Node, held: &AllocatedResources) -> Arc<AllocatedResources> {
        let cores: Vec<i64> = self
            .group
            .tasks
            .iter()
            .flat_map(|task| held.tasks.get(&task.name).map(|task| task.cores.clone()).unwrap_or_default())
            .collect();
        let devices = held.tasks.iter().map(|(name, task)| (name.clone(), task.devices.clone())).collect();
        let resources = self.resources(&cores, node.core_mhz, &devices);
        Arc::new(AllocatedResources { ports: held.ports.clone(), ..resources })
    }

    fn resources(
        &self,
        cores: &[i64],
        core_mhz: i64,
        devices: &BTreeMap<String, Vec<AllocatedDevice>>,
    ) -> AllocatedResources {
        let mut rest = cores.iter().copied();
        let tasks = self.group.tasks.iter().map(|task| {
            let own: Vec<i64> = rest.by_ref().take(cores_of(task.resources.cores)).collect();
            let n = i64::try_from(own.len()).unwrap_or(0);
            let memory_max_mb = task.resources.memory_max_mb.filter(|_| self.takes_memory_max).unwrap_or(0);
            let resources = TaskResources {
                cpu: if n > 0 { n * core_mhz } else { cpu_of(task) },
                memory_mb: memory_of(task),
                memory_max_mb,
                cores: own,
                devices: devices.get(&task.name).cloned().unwrap_or_default(),
            };
            (task.name.clone(), resources)
        });
        AllocatedResources { tasks: tasks.collect(), disk_mb: self.group.ephemeral_disk.size_mb, ports: Vec::new() }
    }
}

/// The first of cpu, memory and disk that `need` beside `used` would exceed.
pub(crate) fn exhausted(total: Amounts, used: Amounts, need: Amounts) -> Option<&'static str> {
    let dimensions = [
        ("cpu", used.cpu, need.cpu, total.cpu),
        ("memory", used.memory_mb, need.memory_mb, total.memory_mb),
        ("disk", used.disk_mb, need.disk_mb, total.disk_mb),
    ];
    dimensions.into_iter().find(|(_, used, need, total)| used.saturating_add(*need) > *total).map(|(name, ..)| name)
}

fn free_cores<'a>(node: &'a Node, usage: &'a Usage) -> impl Iterator<Item = i64> + 'a {
    node.cores.iter().copied().filter(|core| !usage.cores.contains(core))
}

fn cores_of(asked: Option<i64>) -> usize {
    usize::try_from(asked.unwrap_or(0)).unwrap_or(0)
}

fn cpu_of(task: &drover_api::task::Task) -> i64 {
    task.resources.cpu.unwrap_or(crate::defaults::CPU_MHZ)
}

/// Memory of a task with its secrets.
fn memory_of(task: &drover_api::task::Task) -> i64 {
    task.resources.memory_mb.saturating_add(task.resources.secrets_mb.unwrap_or(0))
}
