//! Hostile states: whatever stands in a state file ends in a named error or in a plan, never in a panic, and never
//! takes long.
//!
//! Each run changes a good state in a few places at random. `DROVER_FUZZ_SECONDS` makes it go on for that long.

use std::time::{Duration, Instant};

use drover_api::job::EvalTrigger;
use drover_core::ids::JobKey;
use drover_core::scheduler::{self, plan::Evaluation};
use fastrand::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::state::load;

/// States that are tried where no time is given.
const STATES: u64 = 400;

fn good() -> Vec<Value> {
    let api = "drover.dev/v1alpha1";
    let resources = json!({ "cpu": 500, "memoryMB": 500, "devices": [{ "name": "gpu", "count": 1,
        "constraints": [{ "lTarget": "${device.attr.memory}", "operand": ">=", "rTarget": "8 GiB" }] }] });
    let spec = json!({ "type": "service", "priority": 60, "datacenters": ["dc1"],
        "constraints": [{ "lTarget": "${attr.kernel.version}", "operand": "version", "rTarget": ">= 5" },
            { "lTarget": "${meta.rack}", "operand": "distinct_property", "rTarget": "3" }],
        "affinities": [{ "lTarget": "${meta.rack}", "operand": "=", "rTarget": "r1", "weight": 50 }],
        "spreads": [{ "attribute": "${meta.rack}", "weight": 50, "targets": [{ "value": "r1", "percent": 60 }] }],
        "update": { "maxParallel": 2, "canary": 1 },
        "groups": [{ "name": "api", "count": 4, "disconnect": { "lostAfter": "5m" },
            "reschedule": { "delay": "5s", "delayFunction": "fibonacci", "maxDelay": "1h", "unlimited": true },
            "networks": [{ "ports": [{ "label": "http", "static": 8080 }, { "label": "rpc" }] }],
            "volumes": [{ "name": "data", "type": "csi", "source": "v1", "accessMode": "multi-node-multi-writer", "attachmentMode": "file-system" }],
            "tasks": [{ "name": "t", "driver": "mock", "resources": resources }] }] });
    let node = |n: i64| {
        json!({ "apiVersion": api, "kind": "ClientNode", "metadata": { "name": format!("n-{n}") },
            "spec": { "datacenter": "dc1", "nodePool": "default", "meta": { "rack": format!("r{}", n % 2) } },
            "status": { "phase": (["ready", "ready", "ready", "down", "disconnected"][usize::try_from(n).unwrap_or(0)]), "fingerprint": {
                "attributes": { "kernel.version": "6.1" }, "meta": {},
                "resources": { "cpu": 4000, "memoryMB": 4000, "diskMB": 10000, "cores": 4 },
                "reserved": { "ports": "22" }, "drivers": { "mock": { "detected": true, "healthy": true } },
                "devices": [{ "vendor": "v", "type": "gpu", "name": "g", "attributes": { "memory": "16 GiB" }, "instances": [{ "id": "0", "healthy": true }, { "id": "1", "healthy": true }] }],
                "hostNetworks": [{ "name": "default", "cidr": "10.0.0.1/32" }],
                "csi": { "ebs": { "node": true, "healthy": true, "maxVolumes": 2 } } } } })
    };
    let alloc = |n: i64| {
        json!({ "apiVersion": api, "kind": "Allocation", "metadata": { "name": format!("web-{n}"), "namespace": "shop", "uid": format!("a-{n}") },
            "spec": { "jobName": "web", "jobUID": "u", "jobVersion": n % 2, "group": "api", "index": n, "nodeName": format!("n-{n}"),
                "deploymentName": "web-d", "canary": n == 1, "desiredStatus": "run", "previousAllocation": format!("web-{}", n - 1),
                "followUp": { "trigger": "alloc-reschedule", "at": "2026-01-01T00:00:05Z" },
                "resources": { "tasks": { "t": { "cpu": 500, "memoryMB": 500, "cores": [] } }, "ports": [{ "label": "http", "value": 8080, "hostIP": "10.0.0.1" }], "diskMB": 300 },
                "rescheduleTracker": { "events": [{ "time": "2026-01-01T00:00:00Z", "prevAllocID": "x", "prevNodeName": "n-2", "delay": "5s" }] } },
            "status": { "clientStatus": (["running", "failed", "unknown", "running", "complete"][usize::try_from(n).unwrap_or(0)]),
                "allocStates": [{ "field": "clientStatus", "value": "unknown", "time": "2026-01-01T00:00:00Z" }],
                "health": { "healthy": true, "timestamp": "2026-01-01T00:00:00Z", "deploymentName": "web-d" } } })
    };
    let version = |n: i64, spec: &Value| {
        json!({ "apiVersion": api, "kind": "JobVersion", "metadata": { "name": format!("web-v{n}"), "namespace": "shop" },
            "spec": { "jobName": "web", "jobUID": "u", "version": n, "jobGeneration": n, "groupNames": "api", "job": spec, "submittedAt": "2026-01-01T00:00:00Z" } })
    };
    let mut older = spec.clone();
    older["groups"][0]["tasks"][0]["env"] = json!({ "A": "1" });
    let mut objects = vec![
        json!({ "apiVersion": api, "kind": "Job", "metadata": { "name": "web", "namespace": "shop", "uid": "u", "generation": 2 }, "spec": spec }),
        version(0, &older),
        version(1, &spec),
        json!({ "apiVersion": api, "kind": "Deployment", "metadata": { "name": "web-d", "namespace": "shop", "uid": "d" },
            "spec": { "jobName": "web", "jobUID": "u", "jobVersion": 1 },
            "status": { "phase": "running", "groups": { "api": { "desiredTotal": 4, "desiredCanaries": 1, "placedCanaries": ["web-1"] } } } }),
        json!({ "apiVersion": api, "kind": "CSIVolume", "metadata": { "name": "v1", "namespace": "shop" },
            "spec": { "pluginID": "ebs", "capabilities": [{ "accessMode": "multi-node-multi-writer", "attachmentMode": "file-system" }] },
            "status": { "schedulable": true, "claims": [{ "allocID": "a-0", "allocation": "web-0", "nodeName": "n-0", "mode": "write", "state": "taken" }] } }),
        json!({ "apiVersion": api, "kind": "HostVolume", "metadata": { "name": "files", "namespace": "shop", "uid": "h" },
            "spec": { "plugin": "mkdir", "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] },
            "status": { "nodeName": "n-0", "id": "h", "phase": "ready", "claims": [{ "jobName": "web", "jobUID": "u", "group": "api", "index": 0 }] } }),
    ];
    objects.extend((0..5).map(node));
    objects.extend((0..5).map(alloc));
    objects
}

fn lines(objects: &[Value]) -> String {
    let lines: Vec<String> = objects.iter().map(|object| format!("{object}\n")).collect();
    lines.concat()
}

/// All places in a value.
fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| {
            pointers(inner, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), all);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, inner)| pointers(inner, &format!("{at}/{n}"), all));
        }
        _ => {}
    }
}

/// A value in the place of another one, mostly of its type.
fn odd(rng: &mut Rng, old: &Value) -> Value {
    let texts = [
        "",
        "x",
        "${attr.",
        "${",
        "*",
        "web-0",
        "web-4",
        "n-1",
        "(((",
        "~> 99999999999999999999",
        "9".repeat(400).as_str(),
        "-5s",
        "999999h",
        "r\u{0}1",
    ]
    .map(str::to_owned);
    if rng.u8(0..10) < 8 {
        match old {
            Value::Number(_) => return json!([-1, 0, 1, 7, 1_000, i64::MAX, i64::MIN][rng.usize(..7)]),
            Value::String(_) => return json!(texts[rng.usize(..texts.len())]),
            Value::Bool(flag) => return json!(!flag),
            _ => {}
        }
    }
    match rng.u8(0..10) {
        0 => Value::Null,
        1 => json!(-1),
        2 => json!(i64::MAX),
        3 => json!(i64::MIN),
        4 => json!(0),
        5 => json!([]),
        6 => json!({}),
        7 => json!(rng.bool()),
        8 => json!(rng.i64(0..100_000)),
        _ => json!(texts[rng.usize(..texts.len())]),
    }
}

/// A good state with a few changes.
fn state(seed: u64) -> Vec<Value> {
    let mut rng = Rng::with_seed(seed);
    let mut objects = good();
    for _ in 0..rng.usize(1..8) {
        let at = rng.usize(..objects.len());
        match rng.u8(0..12) {
            0 => drop(objects.remove(at)),
            1 => objects.push(objects[at].clone()),
            2 => {
                let other = rng.usize(..objects.len());
                objects.swap(at, other);
            }
            _ => {
                let mut places = Vec::new();
                pointers(&objects[at], "", &mut places);
                let place = &places[rng.usize(..places.len())];
                if let Some(value) = objects[at].pointer_mut(place) {
                    *value = odd(&mut rng, value);
                }
            }
        }
        if objects.is_empty() {
            break;
        }
    }
    objects
}

#[test]
fn the_good_state_is_planned() {
    let text = lines(&good());
    let loaded = load(text.as_bytes(), &JobKey::new("shop", "web"), None).map(|_| ());
    assert_eq!(loaded.map_err(|error| format!("{error:#}")), Ok(()));
}

/// Reads a state and plans on it. Says whether a plan came of it.
fn try_state(seed: u64) -> bool {
    let text = lines(&state(seed));
    let job = JobKey::new("shop", "web");
    let state = match load(text.as_bytes(), &job, None) {
        Ok(state) => state,
        Err(error) => {
            assert!(!format!("{error:#}").is_empty());
            return false;
        }
    };
    let triggers = EvalTrigger::ALL;
    let eval = Evaluation {
        id: "fuzz".into(),
        job,
        trigger: triggers[usize::try_from(seed).unwrap_or(0) % triggers.len()],
        priority: 50,
        now: "2026-01-01T00:00:05Z".parse().unwrap_or(Timestamp::UNIX_EPOCH),
        wait_until: None,
    };
    let plan = scheduler::plan(&state.view, &eval, &mut Rng::with_seed(seed));
    assert!(plan.placements.len() <= 100_000, "seed {seed}");
    true
}

#[test]
#[expect(clippy::print_stdout, reason = "a long run says how far it came")]
fn no_state_makes_the_planner_panic() {
    let seconds = std::env::var("DROVER_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut seed, mut planned) = (0, 0_u64);
    while until.map_or(seed < STATES, |until| Instant::now() < until) {
        // A panic names its seed, so that it can be tried again.
        let outcome = std::panic::catch_unwind(|| try_state(seed));
        assert!(outcome.is_ok(), "the state of seed {seed} ends in a panic");
        planned += u64::from(outcome.unwrap_or(false));
        seed += 1;
    }
    println!("{seed} states, {planned} of them planned");
    assert!(planned > seed / 20, "hardly a state was good enough to be planned: {planned} of {seed}");
}
