//! Writes of Nomad's clients: a path in the first line, and the body, which is JSON, in the others.

use drover_nomad::{Query, Route, World, WriteView, order, route};
use http::Method;
use jiff::Timestamp;
use serde_json::json;

/// Orders one, in a cluster that has one job.
pub(crate) fn run(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (path, body) = bytes.split_at(end);
    let Ok(path) = std::str::from_utf8(path) else { return };
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let Ok(query) = Query::parse(query) else { return };
    let mut world = World::default();
    let known = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job",
        "metadata": { "name": "web", "namespace": "default", "uid": "u-1", "resourceVersion": "10", "generation": 3 },
        "spec": { "groups": [{ "name": "g", "count": 2, "tasks": [{ "name": "t", "driver": "raw_exec" }] }] },
    });
    if let Ok(job) = serde_json::from_value::<drover_api::Job>(known) {
        world.jobs.put(job);
    }
    for method in [Method::PUT, Method::DELETE] {
        let Ok(Route::Write(endpoint)) = route::read(&method, path) else { continue };
        let view = WriteView {
            world: &world,
            query: &query,
            body: body.get(1..).unwrap_or_default(),
            now: Timestamp::UNIX_EPOCH,
            random: 7,
            goes_on: false,
        };
        drop(order(&endpoint, view));
    }
}
