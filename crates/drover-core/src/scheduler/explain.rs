//! Why a group found no place, in words: what left out how many nodes, what ran out, and the smallest change that would
//! help.

use std::collections::BTreeMap;

use drover_api::metric::{AllocMetric, Nearest};

/// Reasons that are told one by one; the rest is counted.
const TOLD: usize = 6;

/// One sentence for each thing that stands in the way, the one that concerns most nodes first, then what would help
/// least intrusively.
pub fn explain(metric: &AllocMetric) -> String {
    if metric.nodes_evaluated == 0 {
        return nowhere(metric);
    }
    let all = metric.nodes_evaluated;
    // Some keys name the node that they are about: what they say is the same.
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for (rule, n) in &metric.constraint_filtered {
        *counts.entry(cause(rule)).or_default() += n;
    }
    for (dimension, n) in &metric.dimension_exhausted {
        *counts.entry(shortage(dimension)).or_default() += n;
    }
    let mut reasons: Vec<(i64, String)> = counts.into_iter().map(|(text, n)| (n, text)).collect();
    reasons.sort_by_key(|(n, _)| std::cmp::Reverse(*n));
    let more = reasons.len().saturating_sub(TOLD);
    let mut parts: Vec<String> =
        reasons.into_iter().take(TOLD).map(|(n, text)| format!("{text} on {n} of {all} nodes")).collect();
    if more > 0 {
        parts.push(format!("{more} further {}", if more == 1 { "reason" } else { "reasons" }));
    }
    let mut text = parts.join(", ");
    text.push_str("; ");
    text.push_str(&remedy(metric));
    text
}

/// No node was even looked at.
fn nowhere(metric: &AllocMetric) -> String {
    let pool = &metric.node_pool;
    let elsewhere: i64 = metric.nodes_available.values().sum();
    if elsewhere > 0 {
        let known: Vec<&str> = metric.nodes_available.keys().map(String::as_str).collect();
        return format!(
            "no ready node of pool {pool} is in the job's datacenters ({elsewhere} ready in {}); add one of these to spec.datacenters, or start an agent in the job's",
            known.join(", ")
        );
    }
    let unavailable: Vec<String> = metric.nodes_unavailable.iter().map(|(why, n)| format!("{n} {why}")).collect();
    if unavailable.is_empty() {
        return format!("pool {pool} has no node; start an agent there, or change spec.nodePool");
    }
    let remedy = if metric.nodes_unavailable.contains_key("ineligible") {
        "set spec.eligibility of one to eligible"
    } else {
        "bring one back (kubectl get cnode shows them)"
    };
    format!("pool {pool} has no ready node ({}); {remedy}, or start another agent", unavailable.join(", "))
}

/// A rule that left nodes out, by its key in the metric.
pub fn cause(rule: &str) -> String {
    let (name, rest) = rule.split_once(':').unwrap_or((rule, ""));
    match name {
        "missingDrivers" => format!("driver {rest} is missing or unhealthy"),
        "missingDevices" => format!("the devices {rest} that a task asks for are missing"),
        "missingHostVolumes" if is_name(rest) => format!("host volume {rest} is missing or cannot be used as asked"),
        "missingHostVolumes" => format!("host volume {rest}"),
        "missingNetwork" => format!("network mode {rest} is missing"),
        "missingHostNetwork" => format!("host network {} is missing", rest.replace(':', " for port ")),
        "distinctHosts" => "another allocation of the job is there already (distinct_hosts)".to_owned(),
        "distinctProperty" => format!("the limit of distinct_property is reached for {rest}"),
        "csiVolumeNotFound" => format!("CSI volume {rest} does not exist"),
        "csiPluginMissing" => format!("CSI plugin {} is missing", plugin(rest)),
        "csiPluginUnhealthy" => format!("CSI plugin {} is unhealthy", plugin(rest)),
        "csiPluginMaxVolumes" => format!("CSI plugin {} mounts as many volumes as it can", plugin(rest)),
        "csiTopology" => "its CSI volume cannot be reached (topology)".to_owned(),
        "csiNoRead" => format!("CSI volume {rest} cannot be read from now"),
        "csiNoWrite" => format!("CSI volume {rest} cannot be written to now"),
        "csiInUse" => format!("CSI volume {rest} is in use by another job"),
        "csiInUseGCd" => format!("CSI volume {} is still claimed by an allocation that is gone", plugin(rest)),
        _ => format!("filtered by {rule}"),
    }
}

/// Whether a host volume's name stands alone: of one that is an object the key also tells what keeps it away.
fn is_name(rest: &str) -> bool {
    !rest.contains(' ')
}

/// The first part of `a:b`.
fn plugin(rest: &str) -> &str {
    rest.split(':').next().unwrap_or(rest)
}

/// What ran out, by its key in the metric.
pub fn shortage(dimension: &str) -> String {
    match dimension.split_once(": ") {
        Some(("network", what)) => format!("network exhausted ({what})"),
        Some(("devices", what)) => format!("devices exhausted ({what})"),
        _ => format!("{dimension} exhausted"),
    }
}

/// What would help with the least change: room on the node that lacks least, else the rule that leaves out most nodes.
fn remedy(metric: &AllocMetric) -> String {
    if let Some(nearest) = &metric.nearest {
        return format!(
            "{} comes closest and lacks {}: ask for less, stop other jobs, or add nodes",
            nearest.node,
            lacking(nearest)
        );
    }
    let most = |counts: &BTreeMap<String, i64>| {
        counts.iter().max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0))).map(|(key, n)| (key.clone(), *n))
    };
    let (rule, dimension) = (most(&metric.constraint_filtered), most(&metric.dimension_exhausted));
    match (rule, dimension) {
        (_, Some((dimension, _))) => room_for(&dimension).to_owned(),
        (Some((rule, n)), None) => change_for(&rule, n),
        (None, None) => "look again when a node or the job changes".to_owned(),
    }
}

fn lacking(nearest: &Nearest) -> String {
    let parts = [(nearest.cpu, "MHz of cpu"), (nearest.memory_mb, "MiB of memory"), (nearest.disk_mb, "MiB of disk")];
    let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    parts.join(" and ")
}

fn room_for(dimension: &str) -> &'static str {
    match dimension {
        "cores" => "ask for fewer cores, stop other jobs, or add nodes",
        "maxAllocs" => "stop other allocations, raise maxAllocs of the agents' configuration, or add nodes",
        text if text.starts_with("network: reserved port") => {
            "free the static port, take a dynamic one, or set ignoreCollision"
        }
        text if text.starts_with("network") => {
            "stop jobs that hold ports, widen dynamicPorts of the agents' configuration, or add nodes"
        }
        text if text.starts_with("devices") => "stop jobs that hold such devices, ask for fewer, or add some",
        _ => "ask for less, stop other jobs, or add nodes",
    }
}

fn change_for(rule: &str, n: i64) -> String {
    let (name, rest) = rule.split_once(':').unwrap_or((rule, ""));
    match name {
        "missingDrivers" => "enable the driver there (kubectl get cnode -o wide shows them), or use another".to_owned(),
        "missingDevices" => "relax resources.devices of the task, or add such devices".to_owned(),
        "missingHostVolumes" if is_name(rest) => {
            "create a HostVolume, add the volume to hostVolumes of an agent's configuration, or relax the request"
                .to_owned()
        }
        "missingHostVolumes" => {
            "see the HostVolume (kubectl describe hvol) and its node (kubectl get cnode), or relax the request"
                .to_owned()
        }
        "missingNetwork" => {
            "set network.bridgeSubnet or network.cniConfigDir in an agent's configuration, or use mode host".to_owned()
        }
        "missingHostNetwork" => {
            "add it to hostNetworks of an agent's configuration, or remove hostNetwork from the port".to_owned()
        }
        "distinctHosts" => "lower the count, add nodes, or remove distinct_hosts".to_owned(),
        "distinctProperty" => "lower the count, raise the limit, or add nodes with other values".to_owned(),
        "csiVolumeNotFound" => format!("create it (kubectl apply a CSIVolume with id {rest})"),
        "csiPluginMissing" | "csiPluginUnhealthy" => {
            format!("install or mend the plugin {} on a node", plugin(rest))
        }
        "csiPluginMaxVolumes" => "stop jobs that mount its volumes, or add nodes".to_owned(),
        "csiTopology" => "add a node where the volume is, or create the volume elsewhere".to_owned(),
        "csiNoRead" | "csiNoWrite" => "see the conditions of the CSIVolume (kubectl describe csivol)".to_owned(),
        "csiInUse" => "stop the job that holds it, or use a volume for several writers".to_owned(),
        "csiInUseGCd" => "wait for its release (kubectl describe csivol shows it)".to_owned(),
        _ => format!("relax this rule, or change a node so that it holds: that alone opens up to {n}"),
    }
}
