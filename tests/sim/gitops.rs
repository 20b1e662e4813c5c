//! Whether those who wait for drover's objects agree: each state that jobs, deployments and allocations go through in
//! some scenarios, as `kubectl wait`, kstatus (Flux, Helm) and Argo CD see it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use expect_test::expect_file;
use mlua::{Lua, LuaSerdeExt};
use serde_json::{Value, json};

use crate::scenarios::{path, simulate};

const SCENARIOS: &[&str] = &[
    "blocked",
    "deployment-auto-promote",
    "deployment-auto-revert",
    "deployment-canary-replaced",
    "deployment-deadline",
    "deployment-failed-by-a-person",
    "deployment-manual-health",
    "deployment-no-stable-version",
    "deployment-paused",
    "deployment-promoted-apart",
    "deployment-promoted-while-paused",
    "deployment-stopped",
    "deployment-unplaceable-group",
    "deployment-updated-in-the-middle",
    "drain",
    "failing-task",
    "node-death",
    "preemption",
    "stop-and-purge",
    "system-job",
];

/// The health script of the example for Argo CD.
fn script() -> String {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/gitops/argocd/argocd-cm.yaml");
    let map: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).expect("the example")).expect("YAML");
    let inner = map["data"]["resource.customizations"].as_str().expect("customizations");
    let inner: Value = serde_saphyr::from_str(inner).expect("YAML");
    inner["drover.dev/*"]["health.lua"].as_str().expect("a script").to_owned()
}

/// What Argo CD says: it runs the script with the object as `obj`.
fn argo(lua: &Lua, script: &str, object: &Value) -> String {
    lua.globals().set("obj", lua.to_value(object).expect("a value")).expect("a variable");
    let health: mlua::Table = lua.load(script).eval().expect("a health");
    let message: String = health.get("message").expect("a message");
    assert!(!message.is_empty(), "no message for {object:#}");
    health.get("status").expect("a status")
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

fn is(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == status)
}

/// The rules of kstatus for a custom resource (sigs.k8s.io/cli-utils, `status/generic.go`), which Flux and Helm 4 wait
/// by.
fn kstatus(object: &Value) -> &'static str {
    let observed = &object["status"]["observedGeneration"];
    if !object["metadata"]["deletionTimestamp"].is_null() {
        "Terminating"
    } else if observed.is_number() && *observed != object["metadata"]["generation"] || is(object, "Reconciling", "True")
    {
        "InProgress"
    } else if is(object, "Stalled", "True") {
        "Failed"
    } else if is(object, "Ready", "False") || is(object, "Ready", "Unknown") {
        "InProgress"
    } else {
        "Current"
    }
}

/// Changes an object as a line of the timeline says.
fn merge(object: &mut Value, change: &Value) {
    let Value::Object(fields) = change else {
        *object = change.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().expect("an object").shift_remove(name);
        } else {
            merge(&mut object[name], value);
        }
    }
}

/// All states of jobs, deployments and allocations in a scenario.
fn states(scenario: &str) -> Vec<Value> {
    let output = simulate(&[&path(scenario), "-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let (mut objects, mut seen) = (BTreeMap::<String, Value>::new(), Vec::new());
    for line in report["timeline"].as_array().expect("a timeline") {
        let kind = line["kind"].as_str().expect("a kind");
        if !["Job", "Deployment", "Allocation"].contains(&kind) || line["change"] == "deleted" {
            continue;
        }
        let object = objects.entry(format!("{kind}/{}", line["name"])).or_insert_with(
            || json!({ "kind": kind, "metadata": { "generation": 1 }, "status": { "observedGeneration": -1 } }),
        );
        merge(object, &line["fields"]);
        seen.push(object.clone());
    }
    seen
}

#[test]
fn those_who_wait_agree_on_every_state() {
    let (lua, script) = (Lua::new(), script());
    let mut rows = BTreeSet::new();
    for object in SCENARIOS.iter().flat_map(|scenario| states(scenario)) {
        let observed = object["status"]["observedGeneration"] == object["metadata"]["generation"];
        let waited = if observed && is(&object, "Ready", "True") { "met" } else { "waits" };
        let (kstatus, argo) = (kstatus(&object), argo(&lua, &script, &object));
        let agree = match argo.as_str() {
            "Healthy" => (kstatus, waited) == ("Current", "met"),
            "Degraded" => (kstatus, waited) == ("Failed", "waits"),
            "Suspended" | "Progressing" => kstatus != "Failed" && waited == "waits",
            _ => false,
        };
        assert!(agree, "kubectl wait {waited}, kstatus {kstatus}, Argo CD {argo}: {object:#}");
        let conditions: Vec<String> = object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| format!("{}={}:{}", text(&one["type"]), text(&one["status"]), text(&one["reason"])))
            .collect();
        let (kind, phase) = (text(&object["kind"]), text(&object["status"]["phase"]));
        let seen = if observed { "seen" } else { "new" };
        rows.insert(format!(
            "{kind:<10} {phase:<10} {seen:<4} {waited:<5} {kstatus:<11} {argo:<11} {}",
            conditions.join(" ")
        ));
    }
    let mut table = String::from("KIND       PHASE      GEN  WAIT  KSTATUS     ARGOCD      CONDITIONS\n");
    for row in &rows {
        writeln!(table, "{}", row.trim_end()).expect("a text");
    }
    assert!(rows.len() >= 60, "{} states are too few", rows.len());
    expect_file!["../golden/gitops/states.txt"].assert_eq(&table);
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}
