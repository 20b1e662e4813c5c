//! What nodes have and allocations hold, as it was told before Nomad 0.9: older clients read it, and do not expect it
//! to be missing.

use drover_api::allocation::AllocatedResources;
use serde_json::{Map, Value, json};

/// An amount: MHz, MiB of memory, MiB of disk.
pub(super) fn resources(cpu: i64, memory_mb: i64, disk_mb: i64) -> Value {
    json!({
        "CPU": cpu, "Cores": null, "MemoryMB": memory_mb, "MemoryMaxMB": null, "DiskMB": disk_mb, "Networks": null,
        "Devices": null, "NUMA": null, "SecretsMB": null, "IOPS": null,
    })
}

/// What all tasks hold together, and the group's disk.
pub(super) fn of_group(held: &AllocatedResources) -> Value {
    let (cpu, memory_mb) = held.tasks.values().fold((0_i64, 0_i64), |(cpu, memory), task| {
        (cpu.saturating_add(task.cpu), memory.saturating_add(task.memory_mb))
    });
    resources(cpu, memory_mb, held.disk_mb)
}

/// What each task holds.
pub(super) fn of_tasks(held: &AllocatedResources) -> Value {
    let tasks: Map<String, Value> =
        held.tasks.iter().map(|(name, task)| (name.clone(), resources(task.cpu, task.memory_mb, 0))).collect();
    Value::Object(tasks)
}
