//! Which node gets a HostVolume: the one that its spec names, else of those that its pool, constraints and size allow
//! the one with the fewest volumes.

use std::collections::BTreeMap;

use drover_api::host_volume::HostVolumeReason;

use super::known::KnownVolume;
use crate::ids::NodeName;
use crate::model::Node;
use crate::scheduler::feasible;
use crate::snapshot::ClusterView;
use crate::volume::quantity::bytes;

/// Most HostVolumes of a node: its object tells of each.
pub const MOST_ON_NODE: usize = 96;
/// Reasons that are told one by one.
const TOLD: usize = 4;

/// Why no node gets a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoNode {
    /// For programs.
    pub reason: HostVolumeReason,
    /// As a sentence, with what would help.
    pub message: String,
}

/// The node for a volume that has none. O(nodes).
///
/// # Errors
/// Why there is none.
pub fn choose(view: &ClusterView, volume: &KnownVolume) -> Result<NodeName, NoNode> {
    let spec = &volume.spec;
    if !spec.node_name.is_empty() {
        return named(view, volume);
    }
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<(usize, &NodeName)> = None;
    let in_pool = view.nodes().filter(|node| feasible::is_of_pool(node, &spec.node_pool));
    for node in in_pool {
        if let Some(why) = refusal(view, volume, node) {
            *refused.entry(why).or_default() += 1;
            continue;
        }
        let rank = (view.host_volumes().count_on(&node.name), &node.name);
        if best.is_none_or(|best| rank < best) {
            best = Some(rank);
        }
    }
    let pool = &spec.node_pool;
    best.map(|(_, name)| name.clone()).ok_or_else(|| {
        let message = if refused.is_empty() {
            format!("pool {pool} has no node: start an agent there, or create the volume in another nodePool")
        } else {
            let told: Vec<String> = refused.iter().take(TOLD).map(|(why, n)| format!("{why} ({n})")).collect();
            let told = told.join(", ");
            format!("no node of pool {pool} gets it: {told}; change a node, or create another volume")
        };
        NoNode { reason: HostVolumeReason::NoNode, message }
    })
}

/// The node that a volume's spec names.
fn named(view: &ClusterView, volume: &KnownVolume) -> Result<NodeName, NoNode> {
    let name = NodeName::from(volume.spec.node_name.as_str());
    let none = |reason, message| Err(NoNode { reason, message });
    if view.node(&name).is_none() {
        let message = format!("there is no ClientNode {name}: start its agent, or create the volume on another node");
        return none(HostVolumeReason::NoNode, message);
    }
    if let Some(other) = namesake(view, volume, &name) {
        let message = format!("volume {other} has the name {} on node {name}: delete it, or set name", volume.name);
        return none(HostVolumeReason::NameInUse, message);
    }
    if view.host_volumes().count_on(&name) >= MOST_ON_NODE {
        let message = format!("node {name} has {MOST_ON_NODE} volumes: delete one, or create it on another node");
        return none(HostVolumeReason::NoNode, message);
    }
    Ok(name)
}

/// Why a node of the pool does not get a volume.
fn refusal(view: &ClusterView, volume: &KnownVolume, node: &Node) -> Option<String> {
    let spec = &volume.spec;
    if !node.is_ready() {
        return Some("not ready".to_owned());
    }
    if let Some(rule) = feasible::first_broken(&spec.constraints, node) {
        return Some(format!("breaks {rule}"));
    }
    let least = spec.capacity.as_ref().map_or("", |capacity| capacity.min.as_str());
    let offered = node.allocatable.disk_mb.saturating_mul(1 << 20);
    if bytes(least).is_none_or(|least| least > offered) {
        return Some(format!("offers less disk than {least}"));
    }
    if namesake(view, volume, &node.name).is_some() {
        return Some(format!("has a volume {} of the namespace already", volume.name));
    }
    (view.host_volumes().count_on(&node.name) >= MOST_ON_NODE).then(|| format!("has {MOST_ON_NODE} volumes already"))
}

/// The other volume of its namespace that groups would find on a node by the same name.
fn namesake<'a>(view: &'a ClusterView, volume: &KnownVolume, node: &NodeName) -> Option<&'a str> {
    let mut others = view.host_volumes().named(&volume.asked_as());
    let other = others.find(|other| other.key != volume.key && other.node.as_ref() == Some(node));
    other.map(|other| &*other.key.name)
}
