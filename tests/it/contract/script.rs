//! The calls, in their order. A string `$step.path` in a body stands for what an earlier call of that name answered.

use std::collections::BTreeMap;

use drover_store::Part;
use serde_json::{Value, json};

/// The namespace of everything that has one.
pub(super) const NS: &str = "contract";
/// The last object that is made: watches read until it comes.
pub(super) const LAST: &str = "last";

/// A call with its name.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) call: Call,
}

/// A call.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Create {
        kind: &'static str,
        body: Value,
    },
    /// Puts what an earlier call answered back, changed by a merge patch.
    Replace {
        kind: &'static str,
        base: &'static str,
        change: Value,
    },
    Merge {
        kind: &'static str,
        name: &'static str,
        part: Part,
        body: Value,
    },
    Apply {
        kind: &'static str,
        name: &'static str,
        part: Part,
        manager: &'static str,
        is_forced: bool,
        body: Value,
    },
    Delete {
        kind: &'static str,
        name: &'static str,
        precondition: Value,
    },
    Get {
        kind: &'static str,
        name: &'static str,
    },
    /// A page of a list. `from` is the token of an earlier page.
    List {
        kind: &'static str,
        fields: &'static str,
        limit: usize,
        from: Value,
    },
    /// Every event after a version until that of [`LAST`], or all objects and a bookmark, then the same.
    Watch {
        kind: &'static str,
        fields: &'static str,
        after: Value,
    },
    /// The objects that are there, as events, and the bookmark that ends them.
    WatchInitial {
        kind: &'static str,
        fields: &'static str,
    },
    /// Forgets all that is over.
    Compact,
}

impl Call {
    /// The same with what earlier calls answered put in.
    pub(super) fn filled(&self, answers: &BTreeMap<String, Value>) -> Self {
        let mut call = self.clone();
        match &mut call {
            Self::Replace { base, change, .. } => {
                fill(change, answers);
                let mut object = answers.get(*base).cloned().unwrap_or_else(|| panic!("{base} has no answer"));
                patch(&mut object, change);
                *change = object;
            }
            Self::Create { body, .. } | Self::Merge { body, .. } | Self::Apply { body, .. } => fill(body, answers),
            Self::Delete { precondition: value, .. }
            | Self::List { from: value, .. }
            | Self::Watch { after: value, .. } => fill(value, answers),
            Self::Get { .. } | Self::WatchInitial { .. } | Self::Compact => {}
        }
        call
    }
}

fn fill(value: &mut Value, answers: &BTreeMap<String, Value>) {
    match value {
        Value::String(text) => {
            let Some((step, path)) = text.strip_prefix('$').and_then(|path| path.split_once('.')) else { return };
            let answer = answers.get(step).unwrap_or_else(|| panic!("{step} has no answer"));
            let found = path.split('.').fold(answer, |value, name| &value[name]);
            assert!(!found.is_null(), "the answer of {step} has no {path}: {answer}");
            *value = found.clone();
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, answers)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill(field, answers)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn patch(value: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        value.clone_from(change);
        return;
    };
    for (name, change) in change {
        if change.is_null() {
            value.as_object_mut().map(|fields| fields.remove(name));
        } else {
            patch(&mut value[name.as_str()], change);
        }
    }
}

fn job(name: &str) -> Value {
    json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": name, "namespace": NS },
        "spec": { "groups": [{ "name": "g", "tasks": [{ "name": "t", "driver": "mock" }] }] },
    })
}

fn allocation(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Allocation",
        "metadata": { "name": name, "namespace": NS, "finalizers": ["drover.dev/node-cleanup"] },
        "spec": { "jobName": "web", "jobUID": "u", "jobVersion": 0, "group": "g", "index": 0, "nodeName": node },
    })
}

fn node(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "ClientNode", "metadata": { "name": name },
        "spec": { "nodePool": pool },
    })
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "m", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

fn create(name: &'static str, kind: &'static str, body: Value) -> Step {
    Step { name, call: Call::Create { kind, body } }
}

fn merge(name: &'static str, kind: &'static str, object: &'static str, part: Part, body: Value) -> Step {
    Step { name, call: Call::Merge { kind, name: object, part, body } }
}

fn apply(name: &'static str, object: &'static str, manager: &'static str, is_forced: bool, status: &Value) -> Step {
    let body = json!({ "status": status });
    Step { name, call: Call::Apply { kind: "Allocation", name: object, part: Part::Status, manager, is_forced, body } }
}

fn delete(name: &'static str, kind: &'static str, object: &'static str, precondition: Value) -> Step {
    Step { name, call: Call::Delete { kind, name: object, precondition } }
}

fn get(name: &'static str, kind: &'static str, object: &'static str) -> Step {
    Step { name, call: Call::Get { kind, name: object } }
}

fn watch(name: &'static str, kind: &'static str, fields: &'static str, after: &str) -> Step {
    Step { name, call: Call::Watch { kind, fields, after: json!(after) } }
}

fn page(name: &'static str, kind: &'static str, fields: &'static str, limit: usize, from: &str) -> Step {
    Step { name, call: Call::List { kind, fields, limit, from: json!(from) } }
}

/// All calls.
pub(super) fn steps() -> Vec<Step> {
    [
        namespace(),
        creates(),
        updates(),
        merges(),
        applies(),
        marks(),
        losses(),
        deletes(),
        watches(),
        pages(),
        the_end(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn namespace() -> Vec<Step> {
    let namespace = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    vec![
        create("a job without its namespace", "Job", job("early")),
        create("a namespace", "Namespace", namespace(NS)),
        create("a namespace twice", "Namespace", namespace(NS)),
        // The API server keeps the past of a kind from the first time on that somebody watches it.
        Step { name: "no job yet", call: Call::WatchInitial { kind: "Job", fields: "" } },
        Step { name: "no node yet", call: Call::WatchInitial { kind: "ClientNode", fields: "" } },
    ]
}

fn creates() -> Vec<Step> {
    let mut with_status = job("web");
    with_status["status"] = json!({ "phase": "running", "version": 7 });
    let mut strange = job("strange");
    strange["spec"]["oops"] = json!(1);
    let mut wrong_enum = job("wrong");
    wrong_enum["spec"]["type"] = json!("daemon");
    let mut wrong_bound = job("wrong");
    wrong_bound["spec"]["priority"] = json!(100_000);
    let mut wrong_type = job("wrong");
    wrong_type["spec"]["priority"] = json!("high");
    let mut missing = job("wrong");
    missing["spec"]["groups"][0].as_object_mut().expect("a group").remove("name");
    let mut twice = job("wrong");
    twice["spec"]["groups"] = json!([job("x")["spec"]["groups"][0], job("x")["spec"]["groups"][0]]);
    let mut versioned = job("versioned");
    versioned["metadata"]["resourceVersion"] = json!("5");
    vec![
        get("nothing there", "Job", "web"),
        create("a create drops status and fills defaults in", "Job", with_status),
        create("a name twice", "Job", job("web")),
        create("an unknown field is dropped", "Job", strange),
        create("no value of the enum", "Job", wrong_enum),
        create("above a bound", "Job", wrong_bound),
        create("of another type", "Job", wrong_type),
        create("without a required field", "Job", missing),
        create("two items of one key", "Job", twice),
        create("a create with a version", "Job", versioned),
        get("as it was made", "Job", "web"),
    ]
}

fn updates() -> Vec<Step> {
    let replace = |name, change| Step { name, call: Call::Replace { kind: "Job", base: "as it was made", change } };
    vec![
        replace("a replace counts a generation", json!({ "spec": { "priority": 60 } })),
        replace("a replace with an old version", json!({ "spec": { "priority": 70 } })),
        replace("a replace without a version", json!({ "metadata": { "resourceVersion": null } })),
        get("as it is after the replace", "Job", "web"),
        Step {
            name: "a replace that changes nothing",
            call: Call::Replace { kind: "Job", base: "as it is after the replace", change: json!({}) },
        },
        Step {
            name: "a replace leaves status and identity alone",
            call: Call::Replace {
                kind: "Job",
                base: "as it is after the replace",
                change: json!({ "metadata": { "generation": 40, "labels": { "a": "b" } }, "status": { "phase": "dead" } }),
            },
        },
        Step {
            name: "a replace of another uid",
            call: Call::Replace {
                kind: "Job",
                base: "a replace leaves status and identity alone",
                change: json!({ "metadata": { "uid": "00000000-0000-4000-8000-000000000000" } }),
            },
        },
        Step {
            name: "a replace of what is not there",
            call: Call::Replace {
                kind: "Job",
                base: "a replace leaves status and identity alone",
                change: json!({ "metadata": { "name": "nobody" } }),
            },
        },
    ]
}

fn merges() -> Vec<Step> {
    let version = |version: &str, rest: Value| {
        let mut body = rest;
        body["metadata"]["resourceVersion"] = json!(version);
        body
    };
    let now = "$a replace leaves status and identity alone.metadata.resourceVersion";
    let status = json!({ "status": { "phase": "running", "observedGeneration": 2 } });
    vec![
        merge("status with a version", "Job", "web", Part::Status, version(now, status.clone())),
        merge("status with an old version", "Job", "web", Part::Status, version(now, status.clone())),
        merge("the same status again", "Job", "web", Part::Status, status),
        merge(
            "a status call writes no spec",
            "Job",
            "web",
            Part::Status,
            json!({ "spec": { "priority": 1 }, "metadata": { "labels": { "c": "d" } }, "status": { "phase": "pending" } }),
        ),
        merge(
            "a spec call writes no status",
            "Job",
            "web",
            Part::Spec,
            json!({ "spec": { "priority": 55 }, "status": { "phase": "dead" } }),
        ),
        merge("null removes", "Job", "web", Part::Spec, json!({ "metadata": { "labels": null } })),
        merge("null brings the default back", "Job", "web", Part::Spec, json!({ "spec": { "priority": null } })),
        merge(
            "labels count no generation",
            "Job",
            "web",
            Part::Spec,
            json!({ "metadata": { "labels": { "e": "f" } } }),
        ),
        merge("an unknown field in a merge", "Job", "web", Part::Spec, json!({ "spec": { "oops": 1 } })),
        merge("a merge of a wrong value", "Job", "web", Part::Spec, json!({ "spec": { "priority": -1 } })),
        merge(
            "a merge for another uid",
            "Job",
            "web",
            Part::Spec,
            json!({ "metadata": { "uid": "00000000-0000-4000-8000-000000000000" }, "spec": { "priority": 3 } }),
        ),
        merge("a merge of what is not there", "Job", "nobody", Part::Spec, json!({ "spec": { "priority": 3 } })),
    ]
}

fn applies() -> Vec<Step> {
    let spec = |name, manager, is_forced, body| Step {
        name,
        call: Call::Apply { kind: "ClientNode", name: "n-apply", part: Part::Spec, manager, is_forced, body },
    };
    vec![
        spec("an apply creates", "one", false, json!({ "spec": { "nodePool": "a", "meta": { "x": "1", "y": "2" } } })),
        spec("another one's field", "two", false, json!({ "spec": { "meta": { "x": "3" } } })),
        spec("the same value", "two", false, json!({ "spec": { "meta": { "x": "1", "z": "4" } } })),
        spec("by force", "two", true, json!({ "spec": { "meta": { "x": "3", "z": "4" } } })),
        spec("what is left out goes", "one", false, json!({ "spec": { "nodePool": "a" } })),
        spec("what another one owns stays", "two", false, json!({ "spec": { "meta": { "z": "4" } } })),
        spec(
            "an apply with an old version",
            "two",
            false,
            json!({ "metadata": { "resourceVersion": "$an apply creates.metadata.resourceVersion" },
                "spec": { "meta": { "z": "5" } } }),
        ),
        spec("an apply that changes nothing", "two", false, json!({ "spec": { "meta": { "z": "4" } } })),
        Step {
            name: "an apply with a uid creates nothing",
            call: Call::Apply {
                kind: "ClientNode",
                name: "n-none",
                part: Part::Spec,
                manager: "one",
                is_forced: true,
                body: json!({ "metadata": { "uid": "00000000-0000-4000-8000-000000000000" }, "spec": { "nodePool": "a" } }),
            },
        },
        apply("an apply to the status of nothing", "nobody", "one", true, &json!({ "clientStatus": "running" })),
    ]
}

/// An allocation that its node's controller gives up while it starts: what both wrote to must not be left by one of
/// them.
fn losses() -> Vec<Step> {
    let starting = condition("Ready", "False", "Starting");
    let (lost, stalled) = (condition("Ready", "False", "Lost"), condition("Stalled", "True", "Lost"));
    vec![
        create("an allocation that starts", "Allocation", allocation("b", "n-1")),
        apply("it starts", "b", "agent", true, &json!({ "clientStatus": "pending", "conditions": [starting] })),
        merge(
            "it is lost",
            "Allocation",
            "b",
            Part::Status,
            json!({ "status": { "clientStatus": "lost", "conditions": [lost, stalled] } }),
        ),
        apply("its end, without its conditions", "b", "agent", true, &json!({ "endedAt": "2026-01-01T00:00:00Z" })),
        apply(
            "its end, with the conditions as they are",
            "b",
            "agent",
            true,
            &json!({ "endedAt": "2026-01-01T00:00:00Z", "conditions": [lost, stalled] }),
        ),
    ]
}

/// What an agent and the controller write to one status, one by apply and one by merge.
fn marks() -> Vec<Step> {
    let healthy = condition("Healthy", "True", "Healthy");
    let (ready, back) = (condition("Ready", "False", "Starting"), condition("Ready", "True", "Running"));
    let cut_off = condition("Reconciling", "True", "Reconnecting");
    let over = condition("Reconciling", "False", "Reconnecting");
    vec![
        create("an allocation", "Allocation", allocation("a", "n-1")),
        apply("a report", "a", "agent", true, &json!({ "clientStatus": "running", "conditions": [healthy, ready] })),
        merge(
            "a mark",
            "Allocation",
            "a",
            Part::Status,
            json!({ "status": { "clientStatus": "unknown", "conditions": [ready, cut_off] } }),
        ),
        apply(
            "a report takes the mark over",
            "a",
            "agent",
            true,
            &json!({ "clientStatus": "running", "conditions": [healthy, back, over] }),
        ),
        apply(
            "a report that leaves out what the other one made",
            "a",
            "agent",
            true,
            &json!({ "clientStatus": "running", "conditions": [healthy, back] }),
        ),
        merge(
            "a merge takes a whole item away from all",
            "Allocation",
            "a",
            Part::Status,
            json!({ "status": { "conditions": [healthy, back] } }),
        ),
        apply(
            "then it may be left out",
            "a",
            "agent",
            true,
            &json!({ "clientStatus": "complete", "conditions": [healthy, back] }),
        ),
        apply("an item less", "a", "agent", true, &json!({ "clientStatus": "complete", "conditions": [healthy] })),
        merge(
            "items of the other one",
            "Allocation",
            "a",
            Part::Status,
            json!({ "status": { "conditions": [cut_off, healthy, condition("Volumes", "True", "VolumesReady")] } }),
        ),
        apply(
            "items between those of the other one",
            "a",
            "agent",
            true,
            &json!({ "clientStatus": "complete", "conditions": [back, healthy, condition("Network", "True", "NetworkReady")] }),
        ),
        apply("an empty list", "a", "agent", true, &json!({ "clientStatus": "complete", "conditions": [] })),
    ]
}

fn deletes() -> Vec<Step> {
    let finalizers = |names: &[&str]| json!({ "metadata": { "finalizers": names } });
    vec![
        delete("a delete of what is not there", "Job", "nobody", json!({})),
        delete(
            "a delete with an old version",
            "Job",
            "web",
            json!({ "resourceVersion": "$as it was made.metadata.resourceVersion" }),
        ),
        delete("a delete for another uid", "Job", "web", json!({ "uid": "00000000-0000-4000-8000-000000000000" })),
        delete("a delete that a finalizer holds", "Allocation", "a", json!({})),
        get("as it is while it is being deleted", "Allocation", "a"),
        delete("a delete again", "Allocation", "a", json!({})),
        get("as it was", "Allocation", "a"),
        create("a create while it is being deleted", "Allocation", allocation("a", "n-1")),
        merge("a finalizer more", "Allocation", "a", Part::Spec, finalizers(&["drover.dev/node-cleanup", "x.dev/y"])),
        apply("its status goes on", "a", "agent", true, &json!({ "clientStatus": "failed" })),
        merge("the last finalizer", "Allocation", "a", Part::Spec, finalizers(&[])),
        get("it is gone", "Allocation", "a"),
        delete("a delete without a finalizer", "Job", "strange", json!({})),
        create("the name is free", "Job", job("strange")),
    ]
}

fn watches() -> Vec<Step> {
    let move_to = |pool: &str| json!({ "spec": { "nodePool": pool } });
    vec![
        create("a node", "ClientNode", node("n-1", "blue")),
        merge("to another pool", "ClientNode", "n-1", Part::Spec, move_to("red")),
        merge("and back", "ClientNode", "n-1", Part::Spec, move_to("blue")),
        merge("its status", "ClientNode", "n-1", Part::Status, json!({ "status": { "phase": "ready" } })),
        create("another node", "ClientNode", node("n-2", "red")),
        delete("which goes", "ClientNode", "n-2", json!({})),
        create("the last node", "ClientNode", node(LAST, "blue")),
        watch("all nodes", "ClientNode", "", "$an apply creates.metadata.resourceVersion"),
        watch("the nodes of a pool", "ClientNode", "spec.nodePool=blue", "$an apply creates.metadata.resourceVersion"),
        watch("the end of it", "ClientNode", "", "$and back.metadata.resourceVersion"),
        Step { name: "what is there, with a bookmark", call: Call::WatchInitial { kind: "ClientNode", fields: "" } },
        Step {
            name: "a pool that is there, with a bookmark",
            call: Call::WatchInitial { kind: "ClientNode", fields: "spec.nodePool=blue" },
        },
        merge("after the bookmark", "ClientNode", LAST, Part::Spec, json!({ "spec": { "meta": { "a": "b" } } })),
        watch("from the bookmark on", "ClientNode", "", "$what is there, with a bookmark.bookmark"),
        Step {
            name: "a field that cannot be selected",
            call: Call::List { kind: "ClientNode", fields: "spec.datacenter=a", limit: 0, from: json!("") },
        },
    ]
}

fn pages() -> Vec<Step> {
    vec![
        create("job 1", "Job", job("p-1")),
        create("job 2", "Job", job("p-2")),
        create("job 3", "Job", job("p-3")),
        page("all jobs", "Job", "", 0, ""),
        page("the first page", "Job", "", 2, ""),
        create("between the pages", "Job", job("p-11")),
        delete("and one that goes", "Job", "p-3", json!({})),
        page("the second page is of the same moment", "Job", "", 2, "$the first page.token"),
        page("the third page", "Job", "", 2, "$the second page is of the same moment.token"),
        page("one by name", "Job", "metadata.name=p-2", 0, ""),
        create("a job after the pages", "Job", job("p-4")),
        Step { name: "compaction", call: Call::Compact },
        page("a page from no page", "Job", "", 2, "x"),
        watch("a forgotten version", "Job", "", "1"),
    ]
}

fn the_end() -> Vec<Step> {
    let name = NS;
    vec![
        delete("the namespace", "Namespace", name, json!({})),
        create("a create in it", "Job", job("late")),
        merge("a change in it", "Job", "web", Part::Spec, json!({ "spec": { "priority": 77 } })),
    ]
}
