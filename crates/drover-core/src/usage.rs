//! What is in use on a node: sums, ports, cores and devices of the allocations there. Knows neither plans nor jobs.

use std::net::{IpAddr, Ipv4Addr};

use drover_api::allocation::{AllocatedPort, AllocatedResources};
use drover_api::group::Group;
use drover_api::task::{LifecycleHook, Task};

use crate::model::Amounts;

/// A device in use: vendor, type, name and instance.
pub type DeviceKey = (String, String, String, String);

/// The address of a port that is taken on every address of its node.
pub const EVERY_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// What is in use, on a node or by one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Sums of what allocations hold.
    pub amounts: Amounts,
    /// How many allocations there are.
    pub n_allocs: i64,
    /// Ports in use, each as often as it is held.
    pub ports: Vec<(IpAddr, u16)>,
    /// Cores in use, each as often as it is held.
    pub cores: Vec<i64>,
    /// Devices in use, each as often as it is held.
    pub devices: Vec<DeviceKey>,
}

impl Usage {
    /// What one allocation of a group holds. Without a known group all its tasks count as running at the same time.
    pub fn of(resources: &AllocatedResources, group: Option<&Group>) -> Self {
        Self {
            amounts: amounts(resources, group),
            n_allocs: 1,
            ports: resources.ports.iter().filter_map(port).collect(),
            cores: resources.tasks.values().flat_map(|task| task.cores.iter().copied()).collect(),
            devices: resources.tasks.values().flat_map(|task| &task.devices).flat_map(device_keys).collect(),
        }
    }

    /// Adds what others hold.
    pub fn add(&mut self, other: &Self) {
        self.amounts = self.amounts.plus(other.amounts);
        self.n_allocs += other.n_allocs;
        self.ports.extend_from_slice(&other.ports);
        self.cores.extend_from_slice(&other.cores);
        self.devices.extend_from_slice(&other.devices);
    }

    /// Gives back what was added before.
    pub fn remove(&mut self, other: &Self) {
        self.amounts = self.amounts.minus(other.amounts);
        self.n_allocs -= other.n_allocs;
        remove_each(&mut self.ports, &other.ports);
        remove_each(&mut self.cores, &other.cores);
        remove_each(&mut self.devices, &other.devices);
    }

    /// Whether a port is in use on an address.
    pub fn holds_port(&self, address: IpAddr, port: u16) -> bool {
        self.ports.iter().any(|(at, held)| *held == port && overlaps(*at, address))
    }
}

fn port(port: &AllocatedPort) -> Option<(IpAddr, u16)> {
    Some((port.host_ip.parse().unwrap_or(EVERY_ADDRESS), u16::try_from(port.value).ok()?))
}

/// The ports of an allocation that it can only have where no other one holds them: all but those that may collide
/// (`ignoreCollision`).
pub fn ports_alone<'a>(
    resources: &'a AllocatedResources,
    group: Option<&'a Group>,
) -> impl Iterator<Item = (IpAddr, u16)> + 'a {
    let alone = resources.ports.iter().filter(move |port| group.is_none_or(|group| !may_collide(group, &port.label)));
    alone.filter_map(port)
}

/// Whether several allocations of a node may have a port of a group at the same time.
pub fn may_collide(group: &Group, label: &str) -> bool {
    let mut ports = group.networks.iter().flat_map(|network| &network.ports);
    ports.any(|port| port.label == label && port.ignore_collision)
}

/// Whether a port on one address is in the way of the same port on another.
pub fn overlaps(one: IpAddr, other: IpAddr) -> bool {
    one == other || one == EVERY_ADDRESS || other == EVERY_ADDRESS
}

fn remove_each<T: PartialEq>(from: &mut Vec<T>, items: &[T]) {
    for item in items {
        if let Some(at) = from.iter().position(|held| held == item) {
            from.swap_remove(at);
        }
    }
}

fn device_keys(device: &drover_api::allocation::AllocatedDevice) -> impl Iterator<Item = DeviceKey> + '_ {
    device.ids.iter().map(|id| (device.vendor.clone(), device.r#type.clone(), device.name.clone(), id.clone()))
}

fn amounts(resources: &AllocatedResources, group: Option<&Group>) -> Amounts {
    let Some(group) = group else {
        return resources
            .tasks
            .values()
            .fold(Amounts { disk_mb: resources.disk_mb, ..Amounts::default() }, |sum, task| {
                sum.plus(Amounts { cpu: task.cpu, memory_mb: task.memory_mb, disk_mb: 0 })
            });
    };
    let sums = largest_stage(group, |task| {
        resources.tasks.get(&task.name).map_or((0, 0, false), |held| (held.cpu, held.memory_mb, !held.cores.is_empty()))
    });
    Amounts { disk_mb: resources.disk_mb, ..sums }
}

/// What a group needs at its most demanding stage: prestart, main (with sidecars and poststart), or poststop. `need`
/// gives MHz, MiB and whether the task has cores of its own, which it keeps through all stages (`spec/scheduler.md`
/// 5.1).
pub fn largest_stage(group: &Group, need: impl Fn(&Task) -> (i64, i64, bool)) -> Amounts {
    let mut stages = [(0_i64, 0_i64); 3];
    let mut on_own_cores = 0_i64;
    for task in &group.tasks {
        let (cpu, memory_mb, has_cores) = need(task);
        on_own_cores = if has_cores { cpu.saturating_add(on_own_cores) } else { on_own_cores };
        for stage in stages_of(task) {
            let sums = &mut stages[*stage];
            sums.0 = sums.0.saturating_add(if has_cores { 0 } else { cpu });
            sums.1 = sums.1.saturating_add(memory_mb);
        }
    }
    let most = |pick: fn(&(i64, i64)) -> i64| stages.iter().map(pick).max().unwrap_or(0);
    Amounts { cpu: most(|sums| sums.0).saturating_add(on_own_cores), memory_mb: most(|sums| sums.1), disk_mb: 0 }
}

fn stages_of(task: &Task) -> &'static [usize] {
    match task.lifecycle.as_ref().map(|lifecycle| (lifecycle.hook, lifecycle.sidecar)) {
        None | Some((LifecycleHook::Poststart, _)) => &[1],
        Some((LifecycleHook::Prestart, true)) => &[0, 1],
        Some((LifecycleHook::Prestart, false)) => &[0],
        Some((LifecycleHook::Poststop, _)) => &[2],
    }
}

#[cfg(test)]
mod tests {
    mod stages;

    use serde_json::json;

    use super::*;

    #[test]
    fn s_133_stages_do_not_add_up_and_sidecars_count_in_two() {
        let group: Group = serde_json::from_value(json!({ "name": "g", "tasks": [
            { "name": "init", "driver": "mock", "lifecycle": { "hook": "prestart" } },
            { "name": "side", "driver": "mock", "lifecycle": { "hook": "prestart", "sidecar": true } },
            { "name": "main", "driver": "mock" },
        ] }))
        .unwrap();
        let cpu = |task: &Task| match task.name.as_str() {
            "init" => 500,
            "side" => 100,
            _ => 300,
        };
        assert_eq!(largest_stage(&group, |task| (cpu(task), 0, false)).cpu, 600);
        assert_eq!(largest_stage(&group, |task| (cpu(task), 0, task.name == "main")).cpu, 900, "own cores always add");
    }

    #[test]
    fn what_is_removed_leaves_what_was_there() {
        let one = Usage { n_allocs: 1, ports: vec![(EVERY_ADDRESS, 80)], cores: vec![1], ..Usage::default() };
        let mut both = one.clone();
        both.add(&one);
        both.remove(&one);
        assert_eq!(both, one);
        assert!(both.holds_port("10.0.0.1".parse().unwrap(), 80), "a port without an address is taken on all");
    }
}
