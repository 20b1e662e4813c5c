//! Which nodes may take a group's allocations at all, and for the others: why not. Knows nothing of counts or of room.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::group::Group;
use drover_api::metric::AllocMetric;
use drover_api::network::NetworkMode;
use drover_api::placement::{Constraint, Operand};
use drover_api::volume_request::VolumeType;

use crate::definition::Definition;
use crate::model::{DriverState, Node};
use crate::scheduler::operand::Comparison;
use crate::snapshot::ClusterView;

/// The nodes that may take a group, and the counts of those that may not.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// Nodes that satisfy every rule, by name.
    pub nodes: Vec<Arc<Node>>,
    /// What was filtered, as the base of each placement's metrics.
    pub metric: AllocMetric,
}

/// Finds the candidates of a group. O(nodes x constraints).
pub fn candidates(view: &ClusterView, definition: &Definition, group: &Group) -> Candidates {
    let checks = GroupChecks::new(definition, group);
    let mut found = Candidates::default();
    let spec = &definition.spec;
    found.metric.node_pool.clone_from(&spec.node_pool);
    for node in view.nodes().filter(|node| node.is_ready() && is_in_pool(node, &spec.node_pool)) {
        *found.metric.nodes_available.entry(node.datacenter.clone()).or_default() += 1;
        if !is_in_datacenters(node, &spec.datacenters) {
            continue;
        }
        found.metric.nodes_in_pool += 1;
        found.metric.nodes_evaluated += 1;
        match checks.first_failure(node) {
            None => found.nodes.push(Arc::clone(node)),
            Some(reason) => record_filtered(&mut found.metric, node, reason),
        }
    }
    found
}

fn record_filtered(metric: &mut AllocMetric, node: &Node, reason: String) {
    metric.nodes_filtered += 1;
    *metric.constraint_filtered.entry(reason).or_default() += 1;
    if !node.class.is_empty() {
        *metric.class_filtered.entry(node.class.clone()).or_default() += 1;
    }
}

/// Whether a node is where a job's definition says, and satisfies every rule of the group.
pub fn is_feasible(node: &Node, definition: &Definition, group: &Group) -> bool {
    is_covered(node, definition) && GroupChecks::new(definition, group).first_failure(node).is_none()
}

/// Whether a node is in the job's pool and datacenters.
pub fn is_covered(node: &Node, definition: &Definition) -> bool {
    is_in_pool(node, &definition.spec.node_pool) && is_in_datacenters(node, &definition.spec.datacenters)
}

fn is_in_pool(node: &Node, pool: &str) -> bool {
    pool == "all" || node.pool == pool
}

fn is_in_datacenters(node: &Node, globs: &[String]) -> bool {
    globs.iter().any(|glob| glob_matches(glob.as_bytes(), node.datacenter.as_bytes()))
}

/// `*` matches any text, `?` any character. Linear in the text for each `*`.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut at_glob, mut at_text) = (0, 0);
    let mut retry = None;
    while at_text < text.len() {
        if at_glob < glob.len() && glob[at_glob] == b'*' {
            retry = Some((at_glob, at_text));
            at_glob += 1;
        } else if at_glob < glob.len() && (glob[at_glob] == b'?' || glob[at_glob] == text[at_text]) {
            at_glob += 1;
            at_text += 1;
        } else if let Some((star, from)) = retry {
            at_glob = star + 1;
            at_text = from + 1;
            retry = Some((star, from + 1));
        } else {
            return false;
        }
    }
    glob[at_glob..].iter().all(|c| *c == b'*')
}

struct GroupChecks<'a> {
    group: &'a Group,
    constraints: Vec<(&'a Constraint, Comparison)>,
}

impl<'a> GroupChecks<'a> {
    fn new(definition: &'a Definition, group: &'a Group) -> Self {
        let all = definition.spec.constraints.iter().chain(&group.constraints);
        let all = all.chain(group.tasks.iter().flat_map(|task| &task.constraints));
        let constraints = all
            .map(|constraint| (constraint, Comparison::new(constraint.operand, literal(&constraint.r_target))))
            .collect();
        Self { group, constraints }
    }

    /// The key of the first rule that the node breaks.
    fn first_failure(&self, node: &Node) -> Option<String> {
        self.failed_constraint(node)
            .or_else(|| self.missing_driver(node))
            .or_else(|| self.missing_device())
            .or_else(|| self.missing_network(node))
            .or_else(|| self.missing_volume(node))
    }

    fn failed_constraint(&self, node: &Node) -> Option<String> {
        let failed =
            self.constraints.iter().find(|(constraint, comparison)| !constraint_holds(constraint, comparison, node));
        failed.map(|(constraint, _)| describe(constraint))
    }

    fn missing_driver(&self, node: &Node) -> Option<String> {
        let missing = self.group.tasks.iter().any(|task| match node.drivers.get(&task.driver) {
            Some(state) => *state != DriverState::Healthy,
            None => !is_true(node.attributes.get(&format!("driver.{}", task.driver))),
        });
        missing.then(|| "missingDrivers".to_owned())
    }

    fn missing_device(&self) -> Option<String> {
        self.group.tasks.iter().any(|task| !task.resources.devices.is_empty()).then(|| "missingDevices".to_owned())
    }

    fn missing_network(&self, node: &Node) -> Option<String> {
        for network in &self.group.networks {
            let offered = match network.mode {
                NetworkMode::Host | NetworkMode::None => true,
                NetworkMode::Bridge => node.network_modes.contains("bridge"),
                NetworkMode::Cni => {
                    network.cni.as_ref().is_some_and(|cni| node.network_modes.contains(&format!("cni/{}", cni.name)))
                }
            };
            if !offered {
                return Some("missingNetwork".to_owned());
            }
            for port in &network.ports {
                let alias = host_network(port.host_network.as_deref(), node);
                if !node.host_networks.iter().any(|(name, _)| *name == alias) {
                    return Some(format!("missingHostNetwork:{alias}:{}", port.label));
                }
            }
        }
        None
    }

    fn missing_volume(&self, node: &Node) -> Option<String> {
        self.group.volumes.iter().find_map(|volume| match volume.r#type {
            VolumeType::Host => match node.host_volumes.get(&volume.source) {
                Some(is_read_only) if volume.read_only || !is_read_only => None,
                _ => Some("missingHostVolumes".to_owned()),
            },
            VolumeType::Csi => Some(format!("csiVolumeNotFound:{}", volume.source)),
        })
    }
}

/// The alias of the host network that a port asks for.
pub(super) fn host_network(asked: Option<&str>, node: &Node) -> String {
    match asked {
        None | Some("") => "default".to_owned(),
        Some(text) => resolve(text, node).map_or_else(|| text.to_owned(), Cow::into_owned),
    }
}

fn is_true(value: Option<&String>) -> bool {
    value.is_some_and(|text| matches!(text.as_str(), "1" | "true" | "True" | "TRUE" | "t" | "T"))
}

/// A right side that is the same for every node.
fn literal(text: &str) -> Option<&str> {
    (!text.starts_with("${")).then_some(text)
}

/// Whether a node satisfies a constraint.
pub(super) fn constraint_holds(constraint: &Constraint, comparison: &Comparison, node: &Node) -> bool {
    if matches!(constraint.operand, Operand::DistinctHosts | Operand::DistinctProperty) {
        return true;
    }
    let left = resolve(&constraint.l_target, node);
    let right = resolve(&constraint.r_target, node);
    if literal(&constraint.r_target).is_none() {
        return Comparison::new(constraint.operand, right.as_deref()).holds(left.as_deref(), right.as_deref());
    }
    comparison.holds(left.as_deref(), right.as_deref())
}

/// The value of a target on a node; text that is no `${…}` stands for itself, an unknown one is not found.
pub(super) fn resolve<'a>(target: &'a str, node: &'a Node) -> Option<Cow<'a, str>> {
    let Some(name) = target.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) else {
        return Some(Cow::Borrowed(target));
    };
    let found = match name {
        "node.unique.id" | "node.unique.name" => Some(node.name.as_str()),
        "node.datacenter" => Some(node.datacenter.as_str()),
        "node.class" => Some(node.class.as_str()),
        "node.pool" => Some(node.pool.as_str()),
        _ => name
            .strip_prefix("attr.")
            .and_then(|key| node.attributes.get(key))
            .or_else(|| name.strip_prefix("meta.").and_then(|key| node.meta.get(key)))
            .map(String::as_str),
    };
    found.map(Cow::Borrowed)
}

fn describe(constraint: &Constraint) -> String {
    [constraint.l_target.as_str(), constraint.operand.as_str(), constraint.r_target.as_str()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// How far one node matches weighted preferences: matched weights over all weights, from -1 to 1; none without any.
pub(super) fn affinity(definition: &Definition, group: &Group, node: &Node) -> Option<f64> {
    let all = definition.spec.affinities.iter().chain(&group.affinities);
    let all: Vec<_> = all.chain(group.tasks.iter().flat_map(|task| &task.affinities)).collect();
    let total: i64 = all.iter().map(|affinity| affinity.weight.abs()).sum();
    if total == 0 {
        return None;
    }
    let matched: i64 = all
        .iter()
        .filter(|affinity| {
            let (left, right) = (resolve(&affinity.l_target, node), resolve(&affinity.r_target, node));
            Comparison::new(affinity.operand, right.as_deref()).holds(left.as_deref(), right.as_deref())
        })
        .map(|affinity| affinity.weight)
        .sum();
    Some(super::rank::ratio(matched, total))
}

/// How many allocations of the job or group each node may have because of `distinct_hosts`.
pub(super) fn distinct_hosts(definition: &Definition, group: &Group) -> (bool, bool) {
    let on = |constraints: &[Constraint]| {
        constraints
            .iter()
            .any(|constraint| constraint.operand == Operand::DistinctHosts && constraint.r_target != "false")
    };
    (on(&definition.spec.constraints), on(&group.constraints))
}

/// Limits of `distinct_property`: the attribute, how many for each value, and whether the whole job counts.
pub(super) fn distinct_properties(definition: &Definition, group: &Group) -> Vec<(String, i64, bool)> {
    let pick = |constraints: &[Constraint], whole_job: bool| {
        constraints
            .iter()
            .filter(|constraint| constraint.operand == Operand::DistinctProperty)
            .map(|constraint| (constraint.l_target.clone(), constraint.r_target.parse().unwrap_or(1), whole_job))
            .collect::<Vec<_>>()
    };
    let mut all = pick(&definition.spec.constraints, true);
    all.extend(pick(&group.constraints, false));
    all
}

/// Sums of counts by key, for the metric of several groups.
pub(super) fn add_counts(into: &mut BTreeMap<String, i64>, key: String) {
    *into.entry(key).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datacenters_are_globs() {
        for (glob, text, wanted) in [
            ("*", "dc1", true),
            ("dc?", "dc1", true),
            ("dc?", "dc12", false),
            ("eu-*-1", "eu-west-1", true),
            ("eu-*-1", "eu-west-2", false),
        ] {
            assert_eq!(glob_matches(glob.as_bytes(), text.as_bytes()), wanted, "{glob} {text}");
        }
    }
}
