//! How well a node suits, and the best one (`spec/scheduler.md`, 5.4). Every feasible node is scored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::allocation::AllocatedResources;
use drover_api::group::Group;
use drover_api::metric::{AllocMetric, NodeScore, ResourcesExhausted};

use crate::definition::Definition;
use crate::ids::{JobKey, NodeName};
use crate::model::{Amounts, Node};
use crate::scheduler::feasible::{self, Candidates};
use crate::scheduler::usage::{self, NodeUsage, Proposed};

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The job.
    pub job: &'a JobKey,
    /// Its definition.
    pub definition: &'a Definition,
    /// The group.
    pub group: &'a Group,
    /// How many allocations of the group are wanted.
    pub count: i64,
    /// Nodes on which it failed before.
    pub penalty: &'a BTreeSet<NodeName>,
}

/// The node that won.
#[derive(Debug)]
pub struct Choice {
    /// It.
    pub node: Arc<Node>,
    /// What the allocation holds there.
    pub resources: AllocatedResources,
    /// Its final score.
    pub score: f64,
    /// What was known.
    pub metrics: AllocMetric,
}

/// Best nodes that are kept in the metrics.
const KEPT_SCORES: usize = 5;

/// The best of the candidates, or why there is none. O(candidates).
///
/// # Errors
/// The metrics, with what is exhausted on how many nodes.
pub fn best(
    ask: Ask<'_>,
    candidates: &Candidates,
    proposed: &mut Proposed<'_>,
    rng: &mut fastrand::Rng,
) -> Result<Choice, Box<AllocMetric>> {
    let mut metrics = candidates.metric.clone();
    let limits = Distinct::new(ask, candidates, proposed);
    let mut scored: Vec<(NodeScore, Arc<Node>, AllocatedResources)> = Vec::new();
    for node in &candidates.nodes {
        let node_usage = proposed.on(&node.name);
        if let Some(rule) = limits.broken_by(ask, node, node_usage) {
            metrics.nodes_filtered += 1;
            feasible::add_counts(&mut metrics.constraint_filtered, rule);
            continue;
        }
        match usage::fit(node, node_usage, ask.group, rng) {
            Ok(resources) => {
                let score = score(ask, node, node_usage, &resources);
                scored.push((score, Arc::clone(node), resources));
            }
            Err(dimension) => record_exhausted(&mut metrics, ask.group, node, dimension),
        }
    }
    scored.sort_by(|a, b| b.0.norm_score.total_cmp(&a.0.norm_score).then_with(|| a.1.name.cmp(&b.1.name)));
    metrics.score_meta_data = scored.iter().take(KEPT_SCORES).map(|(score, _, _)| score.clone()).collect();
    let Some((score, node, resources)) = scored.into_iter().next() else { return Err(Box::new(metrics)) };
    Ok(Choice { node, resources, score: score.norm_score, metrics })
}

fn record_exhausted(metrics: &mut AllocMetric, group: &Group, node: &Node, dimension: String) {
    metrics.nodes_exhausted += 1;
    if matches!(dimension.as_str(), "cpu" | "memory") {
        for task in &group.tasks {
            let asked = ResourcesExhausted {
                cpu: if dimension == "cpu" { task.resources.cpu.unwrap_or(0) } else { 0 },
                memory_mb: if dimension == "memory" { task.resources.memory_mb } else { 0 },
            };
            let entry = metrics.resources_exhausted.entry(task.name.clone()).or_default();
            entry.cpu = entry.cpu.max(asked.cpu);
            entry.memory_mb = entry.memory_mb.max(asked.memory_mb);
        }
    }
    if !node.class.is_empty() {
        feasible::add_counts(&mut metrics.class_exhausted, node.class.clone());
    }
    feasible::add_counts(&mut metrics.dimension_exhausted, dimension);
}

/// Rules about how many allocations may be together.
struct Distinct {
    hosts: (bool, bool),
    properties: Vec<(String, i64, BTreeMap<String, i64>)>,
}

impl Distinct {
    fn new(ask: Ask<'_>, candidates: &Candidates, proposed: &mut Proposed<'_>) -> Self {
        let hosts = feasible::distinct_hosts(ask.definition, ask.group);
        let rules = feasible::distinct_properties(ask.definition, ask.group);
        let properties = rules
            .into_iter()
            .map(|(attribute, limit, whole_job)| {
                let mut used = BTreeMap::new();
                for node in &candidates.nodes {
                    let node_usage = proposed.on(&node.name);
                    let n = if whole_job {
                        node_usage.of_job(ask.job)
                    } else {
                        node_usage.of_group(ask.job, &ask.group.name)
                    };
                    if let Some(value) = feasible::resolve(&attribute, node) {
                        *used.entry(value.into_owned()).or_default() += n;
                    }
                }
                (attribute, limit, used)
            })
            .collect();
        Self { hosts, properties }
    }

    fn broken_by(&self, ask: Ask<'_>, node: &Node, node_usage: &NodeUsage) -> Option<String> {
        if (self.hosts.0 && node_usage.of_job(ask.job) > 0)
            || (self.hosts.1 && node_usage.of_group(ask.job, &ask.group.name) > 0)
        {
            return Some("distinctHosts".to_owned());
        }
        self.properties.iter().find_map(|(attribute, limit, used)| match feasible::resolve(attribute, node) {
            None => Some(format!("distinctProperty:{attribute}=")),
            Some(value) if used.get(value.as_ref()).copied().unwrap_or(0) >= *limit => {
                Some(format!("distinctProperty:{attribute}={value}"))
            }
            Some(_) => None,
        })
    }
}

fn score(ask: Ask<'_>, node: &Node, node_usage: &NodeUsage, resources: &AllocatedResources) -> NodeScore {
    let need = usage::need(resources, ask.group);
    let mut scores = BTreeMap::from([("binpack".to_owned(), binpack(node.allocatable, node_usage.amounts, need))]);
    let beside = node_usage.of_group(ask.job, &ask.group.name);
    if beside > 0 {
        scores.insert("job-anti-affinity".to_owned(), -ratio(beside + 1, ask.count.max(1)));
    }
    if ask.penalty.contains(&node.name) {
        scores.insert("node-reschedule-penalty".to_owned(), -1.0);
    }
    if let Some(affinity) = feasible::affinity(ask.definition, ask.group, node) {
        scores.insert("node-affinity".to_owned(), affinity);
    }
    let norm_score = scores.values().sum::<f64>() / ratio(i64::try_from(scores.len()).unwrap_or(1), 1);
    NodeScore { node: node.name.as_str().to_owned(), scores, norm_score }
}

/// Nomad's best-fit formula (after Google's BestFit v3): fuller nodes score higher, from 0 to 1.
fn binpack(total: Amounts, used: Amounts, need: Amounts) -> f64 {
    let free = |total: i64, used: i64| if total > 0 { 1.0 - ratio(used, total) } else { 0.0 };
    let cpu = free(total.cpu, used.cpu + need.cpu);
    let memory = free(total.memory_mb, used.memory_mb + need.memory_mb);
    (20.0 - (10_f64.powf(cpu) + 10_f64.powf(memory))).clamp(0.0, 18.0) / 18.0
}

/// `part / whole` for amounts far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "amounts of machines and counts are far below 2^52")]
pub(super) fn ratio(part: i64, whole: i64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuller_node_scores_higher() {
        let total = Amounts { cpu: 4000, memory_mb: 8000, disk_mb: 0 };
        let need = Amounts { cpu: 1000, memory_mb: 1000, disk_mb: 0 };
        let empty = binpack(total, Amounts::default(), need);
        let half = binpack(total, Amounts { cpu: 2000, memory_mb: 4000, disk_mb: 0 }, need);
        assert!(half > empty, "{half} {empty}");
        assert!((0.0..=1.0).contains(&empty) && (0.0..=1.0).contains(&half));
    }
}
