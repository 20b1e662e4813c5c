//! Objects of tests, each with what a test does not care about filled in.

use drover_api::{ClientNode, Job};
use serde_json::{Value, json};

/// A group of one task that takes 100 MHz and 64 MiB.
pub(crate) fn group(name: &str, count: i64) -> Value {
    let task = json!({ "name": "t", "driver": "mock", "config": { "run_for": "1h" },
        "resources": { "cpu": 100, "memoryMB": 64 } });
    json!({ "name": name, "count": count, "tasks": [task] })
}

/// A job in namespace `default` with this spec.
pub(crate) fn job(name: &str, spec: &Value) -> Job {
    serde_json::from_value(json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job",
        "metadata": { "name": name, "namespace": "default" },
        "spec": spec,
    }))
    .unwrap()
}

/// A service of one group `g`.
pub(crate) fn service(name: &str, count: i64) -> Job {
    job(name, &json!({ "groups": [group("g", count)] }))
}

/// A node of 1000 MHz and 1000 MiB with the mock driver, as its agent has registered it.
pub(crate) fn node(name: &str) -> ClientNode {
    serde_json::from_value(json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "ClientNode",
        "metadata": { "name": name },
        "spec": {},
        "status": { "observedGeneration": -1, "phase": "initializing", "columns": {}, "conditions": [], "fingerprint": {
            "resources": { "cpu": 1000, "memoryMB": 1000, "diskMB": 10000, "cores": 1 },
            "drivers": { "mock": { "detected": true, "healthy": true } },
        } },
    }))
    .unwrap()
}
