//! The jobs that run a scenario's storage plugins: the controller counts a plugin only where a task runs it. The tasks
//! are those of driver mock; what they serve is there from the start.

use std::collections::BTreeMap;

use drover_api::csi_volume::PluginType;
use serde_json::{Value, json};

use super::scenario::NodeSpec;

/// Where the jobs are.
pub(super) const PLUGIN_NAMESPACE: &str = "plugins";

/// The attribute of a node that says which halves of a plugin run there.
pub(super) fn attribute(id: &str) -> String {
    format!("csi.{id}")
}

/// The jobs: one for each plugin, with a group for each of its halves.
pub(super) fn plugin_jobs(nodes: &[NodeSpec]) -> Vec<Value> {
    let mut parts: BTreeMap<&str, Vec<PluginType>> = BTreeMap::new();
    for plugin in nodes.iter().flat_map(|node| &node.csi_plugins) {
        let known = parts.entry(&plugin.id).or_default();
        if !known.contains(&plugin.part()) {
            known.push(plugin.part());
        }
    }
    parts.iter().map(|(id, parts)| plugin_job(id, parts)).collect()
}

fn plugin_job(id: &str, parts: &[PluginType]) -> Value {
    let group = |part: &PluginType| {
        json!({
            "name": part,
            "constraints": [{ "lTarget": format!("${{attr.{}}}", attribute(id)), "operand": "=", "rTarget": part }],
            "ephemeralDisk": { "sizeMB": 110 },
            "tasks": [{ "name": "driver", "driver": "mock", "config": { "runFor": "87600h" },
                "csiPlugin": { "id": id, "type": part }, "resources": { "cpu": 1, "memoryMB": 10 } }],
        })
    };
    let groups: Vec<Value> = parts.iter().map(group).collect();
    json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job",
        "metadata": { "name": format!("plugin-{id}"), "namespace": PLUGIN_NAMESPACE },
        "spec": { "type": "system", "update": { "maxParallel": 0 }, "groups": groups },
    })
}
