//! States that contradict themselves end in an error that names object, field, reason and remedy; what is merely
//! missing is planned.

use drover_core::ids::JobKey;
use drover_store::planned::PlannedState;
use serde_json::{Value, json};

use super::*;

const V: &str = drover_api::API_VERSION;

fn node(name: &str) -> Value {
    json!({ "apiVersion": V, "kind": "ClientNode", "metadata": { "name": name },
        "spec": { "datacenter": "dc1", "nodePool": "default" },
        "status": { "phase": "ready", "fingerprint": {
            "attributes": {}, "meta": {}, "drivers": { "mock": { "detected": true, "healthy": true } },
            "resources": { "cpu": 4000, "memoryMB": 8192, "diskMB": 10000, "cores": 4 }, "reserved": {} } } })
}

fn job(name: &str) -> Value {
    json!({ "apiVersion": V, "kind": "Job", "metadata": { "name": name, "namespace": "shop", "uid": "u" },
        "spec": { "groups": [{ "name": "g", "tasks": [{ "name": "t", "driver": "mock" }] }] } })
}

fn version(name: &str, number: i64) -> Value {
    json!({ "apiVersion": V, "kind": "JobVersion", "metadata": { "name": name, "namespace": "shop" },
        "spec": { "jobName": "web", "jobUID": "u", "version": number, "groupNames": "g", "submittedAt": "2026-01-01T00:00:00Z",
            "job": job("web")["spec"] } })
}

fn alloc(name: &str, index: i64) -> Value {
    json!({ "apiVersion": V, "kind": "Allocation", "metadata": { "name": name, "namespace": "shop" },
        "spec": { "jobName": "web", "jobUID": "u", "jobVersion": 0, "group": "g", "index": index, "nodeName": "n-1",
            "resources": { "tasks": { "t": { "cpu": 100, "memoryMB": 300 } }, "diskMB": 300 } },
        "status": { "clientStatus": "running" } })
}

fn with(mut object: Value, path: &str, value: Value) -> Value {
    let (parent, field) = path.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

fn lines(objects: &[Value]) -> String {
    let lines: Vec<String> = objects.iter().map(|object| format!("{object}\n")).collect();
    lines.concat()
}

fn target() -> JobKey {
    JobKey::new("shop", "web")
}

fn load_all(objects: &[Value]) -> anyhow::Result<PlannedState> {
    load(lines(objects).as_bytes(), &target(), None)
}

#[test]
fn a_state_that_contradicts_itself_is_refused_by_name() {
    let chain = |name: &str, previous: &str| with(alloc(name, 0), "/spec/previousAllocation", json!(previous));
    for (objects, wanted) in [
        (
            vec![json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" } })],
            "line 1: kind: Secret of v1 has no place in a state; keep ClientNode,",
        ),
        (
            vec![json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "s" } })],
            "kind: Job of batch/v1 has no place",
        ),
        (
            vec![json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" } })],
            "ConfigMap default/c: metadata.name: only drover-config is read",
        ),
        (vec![node("a"), node("a")], "ClientNode a: metadata.name: is given twice in the state; keep one"),
        (vec![job("web"), alloc("x", 0), alloc("x", 1)], "Allocation shop/x: metadata.name: is given twice"),
        (vec![version("v0", 0), version("other", 0), job("web")], "spec.version: is 0, which"),
        (vec![with(node("a"), "/metadata", json!({}))], "ClientNode: metadata.name: is missing"),
        (
            vec![with(node("a"), "/status/fingerprint/resources/cpu", json!(-1))],
            "ClientNode a: status.fingerprint.resources.cpu: -1 is negative; set it to 0 or more",
        ),
        (
            vec![with(node("a"), "/status/fingerprint/reserved", json!({ "memoryMB": -7 }))],
            "ClientNode a: status.fingerprint.reserved.memoryMB: -7 is negative",
        ),
        (
            vec![with(node("a"), "/status/fingerprint/resources/cores", json!(i64::MAX))],
            "resources.cores: 9223372036854775807 is above 4096",
        ),
        (
            vec![with(alloc("x", 0), "/spec/resources/tasks/t/memoryMB", json!(-1))],
            "Allocation shop/x: spec.resources.tasks.t.memoryMB: -1 is negative",
        ),
        (
            vec![with(alloc("x", 0), "/spec/resources/ports", json!([{ "label": "p", "value": 65_536 }]))],
            "Allocation shop/x: spec.resources.ports[0].value: 65536 is no port",
        ),
        (vec![alloc("x", -1)], "Allocation shop/x: spec.index: -1 is negative"),
        (vec![with(alloc("x", 0), "/spec/nodeName", json!(""))], "Allocation shop/x: spec.nodeName: is empty"),
        (
            vec![with(alloc("x", 0), "/spec/jobUID", json!(7))],
            "Allocation x: spec.jobUID: is a number, but must be a text",
        ),
        (
            vec![with(alloc("x", 0), "/status/clientStatus", json!("dead"))],
            "Allocation x: status.clientStatus: `dead` is not allowed; take one of pending, running,",
        ),
        (
            vec![with(job("web"), "/spec/groups/0/tasks/0/driver", Value::Null)],
            "Job web: spec.groups[0].tasks[0].driver: is missing",
        ),
        (
            vec![with(job("web"), "/spec/priority", json!(500))],
            "Job shop/web is invalid:\n  spec.priority: 500 is outside 1 to 100; take a value between (PriorityRange)",
        ),
        (
            vec![chain("a", "a")],
            "Allocation shop/a: spec.previousAllocation: leads over a back to itself; remove it from one of them",
        ),
        (
            vec![chain("a", "b"), chain("b", "c"), chain("c", "a"), chain("d", "a")],
            "spec.previousAllocation: leads over",
        ),
        (vec![], "the state holds no object; write one with `drover dump -A`"),
    ] {
        let error = format!("{:#}", load_all(&objects).expect_err(wanted));
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
}

#[test]
fn settings_come_from_the_config_map_and_wrong_ones_are_named() {
    let config = |text: &str| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "drover-config", "namespace": "drover-system" },
            "data": { "config.yaml": text } })
    };
    for text in
        ["scheduler: {algorithm: spread}\nheartbeat: {grace: 10s}\n", "algorithm: spread\nheartbeat: {grace: 10s}\n"]
    {
        let state = load_all(&[config(text), node("a")]).unwrap();
        assert_eq!(state.view.settings().algorithm("default"), drover_core::settings::Algorithm::Spread);
    }
    assert_eq!(
        *load_all(&[config(""), node("a")]).unwrap().view.settings(),
        drover_core::settings::Settings::default()
    );
    for (text, wanted) in [
        ("scheduler: {algorithm: first}", "config.yaml: scheduler: unknown variant `first`"),
        ("scheduler: {algo: spread}", "scheduler: unknown field `algo`"),
        ("algorithm: [", "is no YAML"),
    ] {
        let error = format!("{:#}", load_all(&[config(text)]).unwrap_err());
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
}

#[test]
fn what_is_merely_missing_is_part_of_the_picture() {
    let dangling = with(alloc("x", 0), "/spec/previousAllocation", json!("gone"));
    let state = load_all(&[dangling]).unwrap();
    assert!(is_known(&state.view, &target()), "an allocation of a job that is gone");
    assert!(state.view.node(&"n-1".into()).is_none() && state.view.job(&target()).is_none());
    assert!(!is_known(&state.view, &JobKey::new("shop", "other")));
}

#[test]
fn words_of_another_version_for_people_do_not_matter() {
    let newer = json!([{ "type": "Ready", "status": "True", "reason": "SomethingNew", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    let state = load_all(&[with(node("n-1"), "/status/conditions", newer)]).unwrap();
    assert!(state.view.node(&"n-1".into()).unwrap().is_ready());
}

#[test]
fn a_job_written_by_hand_is_the_one_its_allocations_belong_to() {
    let mut by_hand = job("web");
    by_hand["metadata"] = json!({ "name": "web", "namespace": "shop" });
    let state = load_all(&[node("n-1"), by_hand.clone(), alloc("x", 0)]).unwrap();
    assert_eq!(state.view.job(&target()).unwrap().uid.as_str(), "u");
    assert_eq!(load_all(&[by_hand.clone()]).unwrap().view.job(&target()).unwrap().uid.as_str(), "uid-of-web");
    let mut short = [alloc("x", 0), version("v4", 4)];
    for object in &mut short {
        object["spec"]
            .as_object_mut()
            .unwrap()
            .retain(|field, _| !["jobUID", "groupNames", "submittedAt"].contains(&field.as_str()));
    }
    for (job, uid) in [(by_hand, "uid-of-web"), (job("web"), "u")] {
        let state = load_all(&[&short[..], &[job]].concat()).unwrap();
        let job = state.view.job(&target()).unwrap();
        let theirs = state.view.allocs_of_job(&target()).next().unwrap().job_uid.clone();
        assert_eq!((job.uid.as_str(), job.version, theirs.as_str()), (uid, 4, uid));
    }
}

#[test]
fn a_changed_spec_is_the_next_version_and_an_unchanged_one_the_newest() {
    let number = |objects: &[Value]| load_all(objects).unwrap().view.job(&target()).unwrap().version;
    assert_eq!(number(&[job("web"), version("v3", 3), version("v2", 2)]), 3);
    let changed = with(job("web"), "/spec/groups/0/tasks/0/user", json!("nobody"));
    assert_eq!(number(&[changed.clone(), version("v3", 3)]), 4);
    assert_eq!(number(&[with(changed, "/spec/stop", json!(true)), version("v3", 3)]), 3);
    assert_eq!(number(&[job("web")]), 0);
    let other_job = with(version("v9", 9), "/spec/jobUID", json!("earlier"));
    assert_eq!(number(&[job("web"), other_job]), 0);
}

#[test]
fn a_submitted_manifest_takes_the_place_of_the_stored_one() {
    let stored = with(job("web"), "/spec/scale", json!({ "group": "g", "count": 4 }));
    let bytes = lines(&[stored.clone(), version("v0", 0)]);
    let submit = |manifest: Value| load(bytes.as_bytes(), &target(), Some(serde_json::from_value(manifest).unwrap()));
    let mut manifest = with(job("web"), "/spec/groups/0/tasks/0/user", json!("nobody"));
    manifest["metadata"] = json!({ "name": "web", "namespace": "shop" });
    let state = submit(manifest.clone()).unwrap();
    let job = state.view.job(&target()).unwrap();
    assert_eq!((job.uid.as_str(), job.version, job.counts["g"]), ("u", 1, 4));
    let error = format!("{:#}", submit(with(manifest, "/spec/type", json!("batch"))).unwrap_err());
    assert!(error.contains("spec.type: cannot be changed from service to batch"), "{error}");
}

#[test]
fn a_reverted_spec_is_not_tried_again_until_it_changes() {
    let mut reverted = with(job("web"), "/spec/groups/0/tasks/0/user", json!("broken"));
    reverted["metadata"]["generation"] = json!(7);
    reverted["status"] = json!({ "version": 2, "revertedGeneration": 7 });
    let objects = [reverted.clone(), version("v1", 1), version("v2", 2)];
    assert_eq!(load_all(&objects).unwrap().view.job(&target()).unwrap().version, 2);
    let submit = |user: &str| {
        let manifest = with(job("web"), "/spec/groups/0/tasks/0/user", json!(user));
        let state =
            load(lines(&objects).as_bytes(), &target(), Some(serde_json::from_value(manifest).unwrap())).unwrap();
        state.view.job(&target()).unwrap().version
    };
    assert_eq!((submit("broken"), submit("mended")), (2, 3));
}

#[test]
fn jobs_in_a_namespace_that_goes_count_as_stopped() {
    let going = json!({ "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    assert!(load_all(&[going, job("web")]).unwrap().view.job(&target()).unwrap().stopped);
}

#[test]
fn the_order_of_the_objects_does_not_count() {
    let mut objects = vec![node("n-1"), job("web"), version("v0", 0), alloc("x", 0), alloc("y", 1)];
    let held = |objects: &[Value]| {
        let state = load_all(objects).unwrap();
        let entry = state.view.node_entry(&"n-1".into()).unwrap();
        entry.usage.amounts
    };
    let first = held(&objects);
    assert_eq!((first.cpu, first.memory_mb, first.disk_mb), (200, 600, 600));
    objects.reverse();
    assert_eq!(held(&objects), first);
}

#[test]
fn many_objects_are_read_side_by_side_and_the_first_error_counts() {
    let mut objects: Vec<Value> = (0..2000).map(|n| alloc(&format!("x-{n}"), n)).collect();
    assert_eq!(load_all(&objects).unwrap().view.allocs_of_job(&target()).count(), 2000);
    objects[700] = alloc("first", -1);
    objects[1900] = alloc("second", -1);
    let error = format!("{:#}", load_all(&objects).unwrap_err());
    assert!(error.contains("line 701") && error.contains("first"), "{error}");
}
