//! Assertions of scenarios: what is looked at, and how a failed one reads.

use drover_api::Allocation;
use drover_store::Key;
use drover_store::memory::Stored;
use serde_json::Value;

use super::filter;
use super::scenario::{
    Action, AllocCount, AllocFilter, Assertion, DeploymentAssertion, EndpointsAssertion, JobAssertion, NodeAssertion,
    Scenario, VolumeAssertion,
};
use super::state;
use super::times::at_text;
use super::world::World;

/// The filters of all `never` assertions, with the number of their step.
pub(super) fn never(scenario: &Scenario) -> Vec<(usize, AllocFilter)> {
    let of_step = |step: &super::scenario::Step| {
        let Action::Expect(assertions) = &step.action else { return Vec::new() };
        let filters = assertions.iter().filter_map(|assertion| assertion.never.as_ref());
        filters.map(|never| (step.number, never.allocs.filter())).collect()
    };
    scenario.steps.iter().flat_map(of_step).collect()
}

/// Checks the assertions of a step. Each failure begins with where it stands.
pub(super) fn check(world: &World, _: &Scenario, step: usize, assertions: &[Assertion]) -> Vec<String> {
    let peaks: Vec<_> = world.log().peaks(step).collect();
    let mut peaks = peaks.into_iter();
    let mut failures = Vec::new();
    for (n, assertion) in assertions.iter().enumerate() {
        let mut found = Vec::new();
        if let Some(counted) = &assertion.allocs {
            check_count(world, counted, &mut found);
        }
        if let Some(job) = &assertion.job {
            check_job(world, job, &mut found);
        }
        if let Some(deployment) = &assertion.deployment {
            check_deployment(world, deployment, &mut found);
        }
        if let Some(node) = &assertion.node {
            check_node(world, node, &mut found);
        }
        if let Some(volume) = &assertion.volume {
            check_volume(world, volume, &mut found);
        }
        if let Some(endpoints) = &assertion.endpoints {
            check_endpoints(world, endpoints, &mut found);
        }
        if let (Some(never), Some((most, at))) = (&assertion.never, assertion.never.as_ref().and_then(|_| peaks.next()))
        {
            let max = never.allocs.max.unwrap_or(0);
            if most > max {
                found.push(format!("never: {most} allocations matched at {}, at most {max} may", at_text(at)));
            }
        }
        if let Some(writes) = &assertion.writes {
            let count = world.log().n_writes(&writes.kind);
            if count > writes.max {
                found.push(format!("writes: {count} writes of {}, at most {} may be", writes.kind, writes.max));
            }
        }
        failures.extend(found.into_iter().map(|failure| format!("expect[{n}]: {failure}")));
    }
    failures
}

fn check_count(world: &World, counted: &AllocCount, found: &mut Vec<String>) {
    let filter = counted.filter();
    let all = state::all(&world.store, "Allocation");
    let matching: Vec<&str> = all
        .iter()
        .filter(|stored| stored.typed::<Allocation>().is_ok_and(|alloc| filter::matches(&filter, alloc)))
        .map(|stored| stored.key.name.as_str())
        .collect();
    let n = matching.len();
    let bounds = [
        (counted.count.is_some_and(|count| n != count), "exactly", counted.count),
        (counted.min.is_some_and(|min| n < min), "at least", counted.min),
        (counted.max.is_some_and(|max| n > max), "at most", counted.max),
    ];
    for (is_broken, word, bound) in bounds {
        if let (true, Some(bound)) = (is_broken, bound) {
            found.push(format!("allocs: {n} match, {word} {bound} should: {}", shown(&matching)));
        }
    }
}

fn shown(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    if names.is_empty() {
        return "none".to_owned();
    }
    let more = if names.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}

/// Compares a field, when the assertion names one.
fn same<T: serde::Serialize>(what: &str, wanted: Option<&T>, found: &Value, failures: &mut Vec<String>) {
    let Some(wanted) = wanted else { return };
    let wanted = serde_json::to_value(wanted).unwrap_or_default();
    // A field that is absent has the value that says nothing.
    let is_nothing = |value: &Value| matches!(value, Value::Null | Value::Bool(false)) || *value == 0 || *value == "";
    if wanted != *found && !(found.is_null() && is_nothing(&wanted)) {
        failures.push(format!("{what} is {found}, it should be {wanted}"));
    }
}

/// The object, unless it should not exist or is missing.
fn present(
    what: &str,
    exists: Option<bool>,
    stored: Option<std::sync::Arc<Stored>>,
    found: &mut Vec<String>,
) -> Option<std::sync::Arc<Stored>> {
    match (exists.unwrap_or(true), &stored) {
        (true, None) => found.push(format!("{what} does not exist")),
        (false, Some(_)) => found.push(format!("{what} exists, it should not")),
        (true, Some(_)) | (false, None) => {}
    }
    stored.filter(|_| exists.unwrap_or(true))
}

fn get(world: &World, kind: &str, namespace: Option<&str>, name: &str) -> Option<std::sync::Arc<Stored>> {
    let key = Key { namespace: namespace.map(str::to_owned), name: name.to_owned() };
    world.store.get(World::kind(kind).ok()?, &key)
}

fn check_job(world: &World, wanted: &JobAssertion, found: &mut Vec<String>) {
    let what = format!("job {}", wanted.name);
    let stored = get(world, "Job", Some(&wanted.namespace), &wanted.name);
    let Some(stored) = present(&what, wanted.exists, stored, found) else { return };
    let status = &stored.value["status"];
    same(&format!("{what}: phase"), wanted.phase.as_ref(), &status["phase"], found);
    same(&format!("{what}: version"), wanted.version.as_ref(), &status["version"], found);
    same(&format!("{what}: stable"), wanted.stable.as_ref(), &status["stable"], found);
    for (group, counts) in &wanted.summary {
        for (name, count) in counts {
            let path = format!("{what}: summary.{group}.{name}");
            same(&path, Some(count), &status["summary"][group][name], found);
        }
    }
    if let Some(condition) = &wanted.condition {
        let all = status["conditions"].as_array().into_iter().flatten();
        let stored = all.into_iter().find(|stored| stored["type"] == condition.r#type.as_str());
        let stored = stored.cloned().unwrap_or_default();
        let path = format!("{what}: condition {}", condition.r#type);
        if stored.is_null() && condition.status.as_deref() != Some("False") {
            found.push(format!("{path} is absent"));
        } else if !stored.is_null() {
            same(&format!("{path}: status"), condition.status.as_ref(), &stored["status"], found);
            same(&format!("{path}: reason"), condition.reason.as_ref(), &stored["reason"], found);
        }
    }
}

fn check_deployment(world: &World, wanted: &DeploymentAssertion, found: &mut Vec<String>) {
    let what = match wanted.version {
        Some(version) => format!("deployment of {} version {version}", wanted.job),
        None => format!("deployment of {}", wanted.job),
    };
    let newest = state::newest_deployment(&world.store, &wanted.namespace, &wanted.job, wanted.version).ok().flatten();
    let Some(stored) = present(&what, wanted.exists, newest, found) else { return };
    let status = &stored.value["status"];
    same(&format!("{what}: phase"), wanted.phase.as_ref(), &status["phase"], found);
    same(&format!("{what}: description"), wanted.description.as_ref(), &status["description"], found);
    for (group, fields) in &wanted.groups {
        for (name, value) in fields {
            let path = format!("{what}: groups.{group}.{name}");
            same(&path, Some(value), &status["groups"][group][name], found);
        }
    }
}

fn check_node(world: &World, wanted: &NodeAssertion, found: &mut Vec<String>) {
    let what = format!("node {}", wanted.name);
    let stored = get(world, "ClientNode", None, &wanted.name);
    let Some(stored) = present(&what, wanted.exists, stored, found) else { return };
    same(&format!("{what}: phase"), wanted.phase.as_ref(), &stored.value["status"]["phase"], found);
    same(&format!("{what}: eligibility"), wanted.eligibility.as_ref(), &stored.value["spec"]["eligibility"], found);
    let is_draining = Value::Bool(!stored.value["spec"]["drain"].is_null());
    same(&format!("{what}: draining"), wanted.draining.as_ref(), &is_draining, found);
}

fn check_endpoints(world: &World, wanted: &EndpointsAssertion, found: &mut Vec<String>) {
    let (ready, not_ready) = state::endpoints(&world.store, &wanted.namespace, &wanted.service);
    for (word, wanted_count, names) in [("ready", wanted.ready, ready), ("not ready", wanted.not_ready, not_ready)] {
        if let Some(count) = wanted_count.filter(|count| *count != names.len()) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let of = &wanted.service;
            found.push(format!("endpoints of {of}: {} {word}, {count} should be: {}", names.len(), shown(&names)));
        }
    }
}

fn check_volume(world: &World, wanted: &VolumeAssertion, found: &mut Vec<String>) {
    let what = format!("volume {}", wanted.name);
    let stored = get(world, "CSIVolume", Some(&wanted.namespace), &wanted.name);
    let Some(stored) = present(&what, None, stored, found) else { return };
    let status = &stored.value["status"];
    same(&format!("{what}: schedulable"), wanted.schedulable.as_ref(), &status["schedulable"], found);
    same(&format!("{what}: capacity"), wanted.capacity.as_ref(), &status["capacity"], found);
    let Some(counts) = wanted.claims else { return };
    let claims: Vec<&Value> = status["claims"].as_array().into_iter().flatten().collect();
    let is_taken = |claim: &&&Value| claim["state"] == "taken";
    // A claim that is being released counts as what it was, and as a past one.
    let held = |mode: &str| claims.iter().filter(|claim| claim["mode"] == mode).count();
    let past = claims.iter().filter(|claim| !is_taken(claim)).count();
    for (name, wanted, count) in
        [("read", counts.read, held("read")), ("write", counts.write, held("write")), ("past", counts.past, past)]
    {
        if wanted.is_some_and(|wanted| wanted != count) {
            found.push(format!("{what}: claims.{name} is {count}, it should be {}", wanted.unwrap_or_default()));
        }
    }
}
