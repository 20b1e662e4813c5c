//! What a placement knew (`AllocMetric`).

use drover_api::GoDuration;
use drover_api::metric::AllocMetric;
use serde_json::{Map, Value, json};

use crate::world::World;

/// The metric of a placement. Nodes are named by their ids, as far as they are known.
pub(super) fn metric(metric: &AllocMetric, world: &World) -> Value {
    let scores: Vec<Value> = metric
        .score_meta_data
        .iter()
        .map(|score| {
            let id = world.node_id(&score.node);
            let id = if id.is_empty() { score.node.clone() } else { id };
            json!({ "NodeID": id, "Scores": score.scores, "NormScore": score.norm_score })
        })
        .collect();
    let resources: Map<String, Value> = metric
        .resources_exhausted
        .iter()
        .map(|(task, lacking)| (task.clone(), json!({ "CPU": lacking.cpu, "MemoryMB": lacking.memory_mb })))
        .collect();
    json!({
        "NodesEvaluated": metric.nodes_evaluated,
        "NodesFiltered": metric.nodes_filtered,
        "NodesInPool": metric.nodes_in_pool,
        "NodePool": metric.node_pool,
        "NodesAvailable": metric.nodes_available,
        "ClassFiltered": metric.class_filtered,
        "ConstraintFiltered": metric.constraint_filtered,
        "NodesExhausted": metric.nodes_exhausted,
        "ClassExhausted": metric.class_exhausted,
        "DimensionExhausted": metric.dimension_exhausted,
        "QuotaExhausted": metric.quota_exhausted,
        "ResourcesExhausted": resources,
        "Scores": null,
        "AllocationTime": metric.allocation_time.map_or(0, GoDuration::as_nanos),
        "CoalescedFailures": metric.coalesced_failures,
        "ScoreMetaData": scores,
    })
}

/// The metrics of groups that were not placed; null where all were.
pub(super) fn of_groups(failed: &std::collections::BTreeMap<String, AllocMetric>, world: &World) -> Value {
    if failed.is_empty() {
        return Value::Null;
    }
    Value::Object(failed.iter().map(|(group, of)| (group.clone(), metric(of, world))).collect())
}
