//! Which nodes may take a group's allocations at all, and for the others: why not (`spec/scheduler.md` 4). Knows nothing of counts
//! or of room.
//!
//! Constraints are answered once for each class of nodes; what depends on one node (drivers, devices, networks, volumes,
//! `unique.` targets) is answered for each.

pub mod device;
mod target;
mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::group::Group;
use drover_api::network::NetworkMode;
use drover_api::placement::{Affinity, Constraint, Operand};

use crate::definition::Definition;
use crate::ids::JobKey;
use crate::model::{DriverState, Node};
use crate::scheduler::class::{self, ByShape, NodeClass};
use crate::scheduler::operand::Comparison;
use crate::scheduler::place::proposed::Proposed;
use crate::scheduler::total;
use crate::snapshot::NodeEntry;
use crate::volume::access::is_csi;

pub use target::resolve;

/// What of a job decides which nodes a group may use.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The job.
    pub job: &'a JobKey,
    /// Its definition.
    pub definition: &'a Definition,
    /// The group.
    pub group: &'a Group,
}

/// Whether a node is in the job's pool and datacenters.
pub fn is_covered(node: &Node, definition: &Definition) -> bool {
    is_in_pool(node, definition) && is_in_datacenters(node, definition)
}

/// Whether a node is in the job's pool.
pub fn is_in_pool(node: &Node, definition: &Definition) -> bool {
    definition.spec.node_pool == "all" || node.pool == definition.spec.node_pool
}

fn is_in_datacenters(node: &Node, definition: &Definition) -> bool {
    definition.spec.datacenters.iter().any(|glob| glob_matches(glob.as_bytes(), node.datacenter.as_bytes()))
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

/// A comparison of two targets on a node, with what of it is the same for every node prepared.
#[derive(Debug)]
struct Rule<'a> {
    left: &'a str,
    operand: Operand,
    right: &'a str,
    comparison: Comparison,
}

impl<'a> Rule<'a> {
    fn new(left: &'a str, operand: Operand, right: &'a str) -> Self {
        Self { left, operand, right, comparison: Comparison::new(operand, target::literal(right)) }
    }

    fn holds(&self, node: &Node) -> bool {
        if matches!(self.operand, Operand::DistinctHosts | Operand::DistinctProperty) {
            return true;
        }
        let (left, right) = (resolve(self.left, node), resolve(self.right, node));
        if target::literal(self.right).is_none() {
            return Comparison::new(self.operand, right).holds(left, right);
        }
        self.comparison.holds(left, right)
    }

    fn is_escaped(&self) -> bool {
        class::escapes(self.left) || class::escapes(self.right)
    }

    fn describe(&self) -> String {
        let parts = [self.left, self.operand.as_str(), self.right];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// The rules of a group, prepared.
#[derive(Debug)]
pub struct Checks<'a> {
    wanted: Wanted<'a>,
    of_class: Vec<Rule<'a>>,
    of_node: Vec<Rule<'a>>,
    affinities: Vec<(Rule<'a>, i64)>,
    shapes: ByShape<Answer>,
    /// For each class that was looked at: whether its nodes satisfy the constraints.
    classes: BTreeMap<NodeClass, bool>,
    has_escaped_affinity: bool,
}

/// What holds for all nodes of a shape.
#[derive(Clone, Debug)]
struct Answer {
    failure: Option<Arc<str>>,
    affinity: Option<f64>,
}

impl<'a> Checks<'a> {
    /// Prepares the rules of a group.
    pub fn new(wanted: Wanted<'a>) -> Self {
        let (spec, group) = (&wanted.definition.spec, wanted.group);
        let constraints = spec.constraints.iter().chain(&group.constraints);
        let constraints = constraints.chain(group.tasks.iter().flat_map(|task| &task.constraints));
        let rule = |one: &'a Constraint| Rule::new(&one.l_target, one.operand, &one.r_target);
        let (of_node, of_class): (Vec<_>, Vec<_>) = constraints.map(rule).partition(Rule::is_escaped);
        let affinities = spec.affinities.iter().chain(&group.affinities);
        let affinities = affinities.chain(group.tasks.iter().flat_map(|task| &task.affinities));
        let weighted = |one: &'a Affinity| (Rule::new(&one.l_target, one.operand, &one.r_target), one.weight);
        let affinities: Vec<_> = affinities.map(weighted).collect();
        let has_escaped_affinity = affinities.iter().any(|(rule, _)| rule.is_escaped());
        Self {
            wanted,
            of_class,
            of_node,
            affinities,
            shapes: ByShape::default(),
            classes: BTreeMap::new(),
            has_escaped_affinity,
        }
    }

    /// Whether an answer for one node says nothing of others of its class.
    pub fn is_escaped(&self) -> bool {
        !self.of_node.is_empty() || self.wanted.group.volumes.iter().any(is_csi)
    }

    /// Classes that were looked at, with whether their nodes satisfy the constraints.
    pub fn classes(&self) -> impl Iterator<Item = (NodeClass, bool)> + '_ {
        self.classes.iter().map(|(class, suits)| (*class, *suits))
    }

    /// Whether the group asks for volumes of each slot's own.
    pub fn depends_on_slot(&self) -> bool {
        self.wanted.group.volumes.iter().any(|volume| volume.per_alloc)
    }

    /// The key of the first rule that a node breaks. `index` is the slot, for volumes of each slot's own.
    pub fn first_failure(&mut self, entry: &NodeEntry, proposed: &Proposed<'_>, index: i64) -> Option<Arc<str>> {
        if let Some(failure) = &self.answer(entry).failure {
            return Some(Arc::clone(failure));
        }
        if self.of_node.is_empty() && self.wanted.group.volumes.is_empty() {
            return None;
        }
        let escaped = self.of_node.iter().find(|rule| !rule.holds(&entry.node)).map(Rule::describe);
        escaped.or_else(|| volume::missing(self.wanted, entry, proposed, index)).map(Arc::from)
    }

    /// How far a node matches the weighted preferences: matched weights over all weights, from -1 to 1; none without any.
    pub fn affinity(&mut self, entry: &NodeEntry) -> Option<f64> {
        if self.affinities.is_empty() {
            return None;
        }
        if self.has_escaped_affinity { self.matched(&entry.node) } else { self.answer(entry).affinity }
    }

    fn answer(&mut self, entry: &NodeEntry) -> &Answer {
        if !self.shapes.contains_key(&entry.shape) {
            let node = &*entry.node;
            let constraint = self.of_class.iter().find(|rule| !rule.holds(node)).map(Rule::describe);
            self.classes.insert(entry.class, constraint.is_none());
            let failure = constraint
                .or_else(|| self.missing_driver(node))
                .or_else(|| self.missing_device(node))
                .or_else(|| self.missing_network(node));
            let affinity = if self.has_escaped_affinity { None } else { self.matched(node) };
            self.shapes.insert(entry.shape, Answer { failure: failure.map(Arc::from), affinity });
        }
        &self.shapes[&entry.shape]
    }

    fn matched(&self, node: &Node) -> Option<f64> {
        let all = total(self.affinities.iter().map(|(_, weight)| weight.saturating_abs()));
        let matched = total(self.affinities.iter().filter(|(rule, _)| rule.holds(node)).map(|(_, weight)| *weight));
        (all > 0).then(|| super::ratio(matched, all))
    }

    fn missing_driver(&self, node: &Node) -> Option<String> {
        let missing = self.wanted.group.tasks.iter().any(|task| match node.drivers.get(&task.driver) {
            Some(state) => *state != DriverState::Healthy,
            None => !is_true(node.attributes.get(&format!("driver.{}", task.driver))),
        });
        missing.then(|| "missingDrivers".to_owned())
    }

    fn missing_device(&self, node: &Node) -> Option<String> {
        let tasks = &self.wanted.group.tasks;
        let asks = tasks.iter().any(|task| !task.resources.devices.is_empty());
        (asks && device::assign(node, &[], self.wanted.group).is_none()).then(|| "missingDevices".to_owned())
    }

    fn missing_network(&self, node: &Node) -> Option<String> {
        for network in &self.wanted.group.networks {
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
                let alias = target::host_network(port.host_network.as_deref(), node);
                if !node.host_networks.iter().any(|address| address.alias == *alias) {
                    return Some(format!("missingHostNetwork:{alias}:{}", port.label));
                }
            }
        }
        None
    }
}

pub(crate) use target::host_network;

fn is_true(value: Option<&String>) -> bool {
    value.is_some_and(|text| matches!(text.as_str(), "1" | "true" | "True" | "TRUE" | "t" | "T"))
}

/// Whether the allocations of the job, or of the group, must be on different nodes. The right side turns it off only as `false`.
pub fn distinct_hosts(definition: &Definition, group: &Group) -> (bool, bool) {
    let on = |constraints: &[Constraint]| {
        constraints
            .iter()
            .any(|constraint| constraint.operand == Operand::DistinctHosts && !is_false(&constraint.r_target))
    };
    (on(&definition.spec.constraints), on(&group.constraints))
}

fn is_false(text: &str) -> bool {
    matches!(text, "false" | "False" | "FALSE" | "f" | "F" | "0")
}

/// A limit on allocations that share a value of a target.
#[derive(Clone, Copy, Debug)]
pub struct DistinctProperty<'a> {
    /// The target.
    pub target: &'a str,
    /// How many may share a value.
    pub limit: i64,
    /// Whether all allocations of the job count, or the group's alone.
    pub of_job: bool,
}

/// The limits of `distinct_property`.
pub fn distinct_properties<'a>(definition: &'a Definition, group: &'a Group) -> Vec<DistinctProperty<'a>> {
    let pick = |constraints: &'a [Constraint], of_job: bool| {
        let distinct = constraints.iter().filter(|constraint| constraint.operand == Operand::DistinctProperty);
        distinct.map(move |constraint| DistinctProperty {
            target: &constraint.l_target,
            limit: constraint.r_target.trim().parse().unwrap_or(1),
            of_job,
        })
    };
    pick(&definition.spec.constraints, true).chain(pick(&group.constraints, false)).collect()
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
