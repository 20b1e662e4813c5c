//! What a placement knew: why nodes were left out and how the best ones scored (`AllocMetric`).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;

/// What a placement knew: why nodes were left out and how the best ones scored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocMetric {
    /// Nodes that were evaluated.
    pub nodes_evaluated: i64,
    /// Nodes that a rule excluded.
    #[serde(skip_serializing_if = "is_zero")]
    pub nodes_filtered: i64,
    /// Nodes that lacked room.
    #[serde(skip_serializing_if = "is_zero")]
    pub nodes_exhausted: i64,
    /// Ready nodes in the pool that were candidates.
    #[serde(skip_serializing_if = "is_zero")]
    pub nodes_in_pool: i64,
    /// The job's node pool.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_pool: String,
    /// Ready nodes, by datacenter.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes_available: BTreeMap<String, i64>,
    /// Nodes of the pool and datacenters that are not ready, by reason: ineligible, draining, down, disconnected,
    /// initializing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub nodes_unavailable: BTreeMap<String, i64>,
    /// Nodes excluded, by rule.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 128))]
    pub constraint_filtered: BTreeMap<String, i64>,
    /// Nodes excluded, by node class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub class_filtered: BTreeMap<String, i64>,
    /// Nodes without room, by what ran out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 128))]
    pub dimension_exhausted: BTreeMap<String, i64>,
    /// Nodes without room, by node class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub class_exhausted: BTreeMap<String, i64>,
    /// Deprecated: nothing writes it in this version. Quota dimensions that ran out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub quota_exhausted: Vec<String>,
    /// What each task asked for in the dimensions that ran out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources_exhausted: BTreeMap<String, ResourcesExhausted>,
    /// The node that lacks least, where only room was lacking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<Nearest>,
    /// The best nodes, at most five, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "atomic"))]
    pub score_meta_data: Vec<NodeScore>,
    /// Further allocations of the group that found no place either.
    #[serde(skip_serializing_if = "is_zero")]
    pub coalesced_failures: i64,
    /// Deprecated: nothing writes it in this version. How long the selection took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_time: Option<GoDuration>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// What a task asked for in dimensions that ran out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcesExhausted {
    /// MHz.
    pub cpu: i64,
    /// MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: i64,
}

/// The node that comes closest to having room, and what it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Nearest {
    /// The node.
    pub node: String,
    /// MHz.
    pub cpu: i64,
    /// MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: i64,
    /// MiB.
    #[serde(rename = "diskMB")]
    pub disk_mb: i64,
}

/// How a node scored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeScore {
    /// The node.
    pub node: String,
    /// The value of each scorer.
    pub scores: BTreeMap<String, f64>,
    /// The mean of the values that contributed.
    pub norm_score: f64,
}
