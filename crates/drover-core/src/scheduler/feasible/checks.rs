//! The constraints of a group, prepared: answered once for each class of nodes where that is possible.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::network::NetworkMode;
use drover_api::placement::{Affinity, Constraint, Operand};

use super::host_volume::{self, Slot};
use super::target::{self, resolve};
use super::wanted::WantedGroup;
use super::{device, volume};
use crate::arithmetic::{ratio, total};
use crate::model::{DriverState, Node};
use crate::scheduler::class::{self, ByShape, NodeClass};
use crate::scheduler::operand::{self, Comparison};
use crate::scheduler::proposed::Proposed;
use crate::snapshot::NodeEntry;
use crate::volume::access::is_csi;

/// A comparison of two targets on a node, with what of it is the same for every node prepared.
#[derive(Debug)]
struct Rule<'a> {
    left: &'a str,
    operand: Operand,
    right: &'a str,
    comparison: Comparison,
    /// Comparisons with right sides that nodes say, by that side.
    of_nodes: RefCell<BTreeMap<String, Comparison>>,
}

/// Right sides that are kept prepared: as many as there are classes of nodes in most clusters.
const KEPT_SIDES: usize = 64;

impl<'a> Rule<'a> {
    fn new(left: &'a str, operand: Operand, right: &'a str) -> Self {
        let comparison = Comparison::new(operand, target::literal(right));
        Self { left, operand, right, comparison, of_nodes: RefCell::default() }
    }

    fn holds(&self, node: &Node) -> bool {
        if matches!(self.operand, Operand::DistinctHosts | Operand::DistinctProperty) {
            return true;
        }
        let (left, right) = (resolve(self.left, node), resolve(self.right, node));
        match (target::literal(self.right), right) {
            (Some(_), _) => self.comparison.holds(left, right),
            (None, Some(text)) if operand::is_prepared(self.operand) => self.holds_of_node(left, text),
            (None, _) => Comparison::new(self.operand, right).holds(left, right),
        }
    }

    fn holds_of_node(&self, left: Option<&str>, right: &str) -> bool {
        let mut known = self.of_nodes.borrow_mut();
        if let Some(comparison) = known.get(right) {
            return comparison.holds(left, Some(right));
        }
        let comparison = Comparison::new(self.operand, Some(right));
        let holds = comparison.holds(left, Some(right));
        if known.len() < KEPT_SIDES {
            known.insert(right.to_owned(), comparison);
        }
        holds
    }

    fn is_escaped(&self) -> bool {
        class::escapes(self.left) || class::escapes(self.right)
    }

    fn describe(&self) -> String {
        let parts = [self.left, self.operand.as_str(), self.right];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// The first of these constraints that a node breaks, in words. Those that count allocations always hold.
pub fn first_broken(constraints: &[Constraint], node: &Node) -> Option<String> {
    let rules = constraints.iter().map(|one| Rule::new(&one.l_target, one.operand, &one.r_target));
    { rules }.find(|rule| !rule.holds(node)).map(|rule| rule.describe())
}

/// The rules of a group, prepared.
#[derive(Debug)]
pub struct Checks<'a> {
    wanted: WantedGroup<'a>,
    of_class: Vec<Rule<'a>>,
    of_node: Vec<Rule<'a>>,
    affinities: Vec<(Rule<'a>, i64)>,
    shapes: ByShape<Answer>,
    /// For each class that was looked at: whether its nodes satisfy the constraints.
    classes: BTreeMap<NodeClass, bool>,
    has_escaped_affinity: bool,
    /// The host volumes that are a slot's own, for the slot that was looked at last.
    own: Option<(i64, BTreeSet<String>)>,
}

/// What holds for all nodes of a shape.
#[derive(Clone, Debug)]
struct Answer {
    failure: Option<Arc<str>>,
    affinity: Option<f64>,
}

impl<'a> Checks<'a> {
    /// Prepares the rules of a group.
    pub fn new(wanted: WantedGroup<'a>) -> Self {
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
            own: None,
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

    /// Whether the group asks for volumes of each slot's own, or each slot for the one that it had.
    pub fn depends_on_slot(&self) -> bool {
        host_volume::depends_on_slot(self.wanted.group)
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
        if escaped.is_some() {
            return escaped.map(Arc::from);
        }
        if self.own.as_ref().is_none_or(|(of, _)| *of != index) {
            self.own = Some((index, host_volume::own(proposed.view(), self.wanted, index)));
        }
        let (_, own) = self.own.as_ref()?;
        volume::missing(self.wanted, entry, proposed, Slot { index, own }).map(Arc::from)
    }

    /// How far a node matches the weighted preferences: matched weights over all weights, from -1 to 1; none without
    /// any.
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
        (all > 0).then(|| ratio(matched, all))
    }

    fn missing_driver(&self, node: &Node) -> Option<String> {
        let missing = self.wanted.group.tasks.iter().find(|task| match node.drivers.get(&task.driver) {
            Some(state) => *state != DriverState::Healthy,
            None => !is_true(node.attributes.get(&format!("driver.{}", task.driver))),
        });
        missing.map(|task| format!("missingDrivers:{}", task.driver))
    }

    fn missing_device(&self, node: &Node) -> Option<String> {
        let unmet = device::assign(node, &[], self.wanted.group).err()?;
        Some(format!("missingDevices:{}", unmet.name))
    }

    fn missing_network(&self, node: &Node) -> Option<String> {
        for network in &self.wanted.group.networks {
            let needed = match network.mode {
                NetworkMode::Host | NetworkMode::None => None,
                NetworkMode::Bridge => Some("bridge".to_owned()),
                NetworkMode::Cni => {
                    Some(network.cni.as_ref().map_or_else(String::new, |cni| format!("cni/{}", cni.name)))
                }
            };
            if let Some(mode) = needed.filter(|mode| !node.network_modes.contains(mode)) {
                return Some(format!("missingNetwork:{mode}"));
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

fn is_true(value: Option<&String>) -> bool {
    value.is_some_and(|text| matches!(text.as_str(), "1" | "true" | "True" | "TRUE" | "t" | "T"))
}
