//! Requests of Nomad's clients: a path in the first line, parameters in the second, and a filter in the others.

use drover_nomad::{Filter, Manner, Query, SearchRequest, route};
use http::Method;
use serde_json::json;

/// Reads them, and looks at an object by the filter.
pub(crate) fn run(bytes: &[u8]) {
    for manner in [Manner::Prefix, Manner::Fuzzy] {
        drop(SearchRequest::read(manner, bytes));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut lines = text.splitn(3, '\n');
    drop(route::read(&Method::GET, lines.next().unwrap_or_default()));
    drop(Query::parse(lines.next().unwrap_or_default()));
    let object = json!({
        "ID": "web", "Meta": { "team": "shop" }, "Datacenters": ["dc1"], "Priority": 50, "Stop": false, "Periodic": null,
    });
    if let Ok(filter) = Filter::parse(lines.next().unwrap_or_default()) {
        drop(filter.matches(&object));
    }
}
