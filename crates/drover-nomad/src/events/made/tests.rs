//! Which events a change gives.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::buffer::{Buffer, Next};
use super::*;
use crate::world::Listed;

/// An object of version 10, with what is changed of it.
fn object<K: DeserializeOwned>(kind: &str, namespace: Option<&str>, spec: &Value, status: &Value) -> K {
    let meta = json!({
        "name": "web", "namespace": namespace, "uid": "u-1", "resourceVersion": "10",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    let whole = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec, "status": status,
    });
    serde_json::from_value(whole).expect(kind)
}

fn turn<K: Listed>(before: Option<K>, after: Option<K>) -> Turn<K> {
    Turn { before: before.map(Arc::new), after: after.map(Arc::new), version: 11 }
}

/// The events of a change, as one reads them.
fn read(change: &Happened, world: &World) -> Vec<Value> {
    let mut buffer = Buffer::new(1);
    buffer.push(change.version(), events(change, world).events);
    let Next::Commit(commit) = buffer.at(0) else { panic!("no commit") };
    let Some(line) = commit.line(commit.events()) else { return Vec::new() };
    let line: Value = serde_json::from_str(&line).expect("JSON");
    let events = line["Events"].as_array().expect("events").clone();
    for event in &events {
        assert_eq!(event["Index"], 11);
    }
    events
}

/// Topic, type and key of each event of a change.
fn told(change: &Happened) -> Vec<String> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or("-").to_owned();
    let one = |event: &Value| [text(event, "Topic"), text(event, "Type"), text(event, "Key")].join(" ");
    read(change, &World::default()).iter().map(one).collect()
}

fn job(spec: &Value, status: &Value) -> Job {
    let mut whole = json!({ "id": "a/b", "groups": [] });
    whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    object("Job", Some("shop"), &whole, status)
}

fn evaluation(id: &str, status: &str) -> Value {
    json!({ "id": id, "trigger": "job-register", "status": status, "priority": 50, "time": "2026-01-01T00:00:00Z" })
}

const E_1: &str = "00000000-0000-0000-0000-0000000000e1";
const E_2: &str = "00000000-0000-0000-0000-0000000000e2";

#[test]
fn a_job_is_registered_changed_stopped_and_deleted() {
    let none = json!({});
    let plain = || job(&none, &none);
    let of = |before: Option<Job>, after: Option<Job>| told(&Happened::Job(turn(before, after)));
    assert_eq!(of(None, Some(plain())), ["Job JobRegistered a/b"]);
    assert_eq!(of(Some(plain()), Some(job(&json!({ "priority": 70 }), &none))), ["Job JobRegistered a/b"]);
    assert_eq!(of(Some(plain()), Some(job(&json!({ "stop": true }), &none))), ["Job JobDeregistered a/b"]);
    assert_eq!(of(Some(plain()), None), ["Job JobDeregistered a/b"]);
    let mut other = plain();
    other.metadata.uid = Some("u-2".to_owned());
    assert_eq!(of(Some(plain()), Some(other)), ["Job JobDeregistered a/b", "Job JobRegistered a/b"]);
    let mut noted = plain();
    noted.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
    noted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
    assert_eq!(of(Some(plain()), Some(noted)), [""; 0]);
    let gone = &read(&Happened::Job(turn(Some(plain()), None)), &World::default())[0];
    assert_eq!((&gone["Payload"]["Deleted"], &gone["Payload"]["Job"]["ID"]), (&json!(true), &json!("a/b")));
    assert_eq!((&gone["Namespace"], &gone["FilterKeys"]), (&json!("shop"), &json!([])));
}

#[test]
fn a_status_with_new_evaluations_gives_events_of_one_type_and_no_evaluation_is_told_of_twice() {
    let none = json!({});
    let with = |phase: &str, evaluations: &[Value]| {
        job(&none, &json!({ "phase": phase, "evaluations": evaluations, "summary": { "g": { "queued": 1 } } }))
    };
    let of = |before: &Job, after: &Job| {
        told(&Happened::Job(Turn {
            before: Some(Arc::new(before.clone())),
            after: Some(Arc::new(after.clone())),
            version: 11,
        }))
    };
    let pending = with("pending", &[evaluation(E_1, "pending")]);
    let running = with("running", &[evaluation(E_2, "pending"), evaluation(E_1, "complete")]);
    let one = |id: &str| format!("Evaluation EvaluationUpdated {id}");
    assert_eq!(of(&pending, &running), ["Job EvaluationUpdated a/b".to_owned(), one(E_2), one(E_1)]);
    let later = with("running", &[evaluation(E_2, "complete"), evaluation(E_1, "complete")]);
    assert_eq!(of(&running, &later), [one(E_2)]);
    let fewer = with("running", &[evaluation(E_2, "complete")]);
    assert_eq!(of(&later, &fewer), [""; 0]);
    let mut counted = later.clone();
    if let Some(status) = &mut counted.status {
        status.summary.clear();
    }
    assert_eq!(of(&later, &counted), [""; 0], "what is counted is no event");
    let mut stable = later.clone();
    if let Some(status) = &mut stable.status {
        status.stable = true;
    }
    assert_eq!(of(&later, &stable), ["Job DeploymentStatusUpdate a/b"]);
    assert_eq!(of(&with("pending", &[]), &with("running", &[])), ["Job PlanResult a/b"]);

    let keys = &read(&Happened::Job(turn(Some(pending), Some(running))), &World::default())[1];
    assert_eq!((&keys["FilterKeys"], &keys["Payload"]["Evaluation"]["ID"]), (&json!(["a/b"]), &json!(E_2)));
}

fn allocation(change: &Value, status: &Value) -> Allocation {
    let mut spec = json!({
        "jobName": "web", "jobUID": "u-1", "jobVersion": 2, "group": "g", "index": 0, "nodeName": "n-1",
        "deploymentName": "web", "resources": { "tasks": {} },
    });
    spec.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
    object("Allocation", Some("shop"), &spec, status)
}

#[test]
fn p_069_an_allocation_is_placed_wished_elsewhere_and_updated_and_holds_no_job() {
    let (none, running) = (json!({}), json!({ "clientStatus": "running" }));
    let plain = || allocation(&none, &running);
    let of = |before: Option<Allocation>, after: Option<Allocation>| told(&Happened::Allocation(turn(before, after)));
    assert_eq!(of(None, Some(plain())), ["Allocation PlanResult u-1"]);
    for wish in [json!({ "desiredStatus": "stop" }), json!({ "desiredTransition": { "migrate": true } })] {
        let wished = allocation(&wish, &running);
        assert_eq!(of(Some(plain()), Some(wished)), ["Allocation AllocationUpdateDesiredStatus u-1"], "{wish}");
    }
    let failed = allocation(&none, &json!({ "clientStatus": "failed" }));
    assert_eq!(of(Some(plain()), Some(failed)), ["Allocation AllocationUpdated u-1"]);
    let unseen = json!({ "clientStatus": "running", "observedGeneration": 3, "columns": { "healthy": "yes" } });
    assert_eq!(of(Some(plain()), Some(allocation(&none, &unseen))), [""; 0]);
    assert_eq!(of(Some(plain()), None), [""; 0]);

    let mut world = World::default();
    world.jobs.put(job(&none, &none));
    world.deployments.put(object("Deployment", Some("shop"), &deployment_spec(), &none));
    let event = &read(&Happened::Allocation(turn(None, Some(plain()))), &world)[0];
    let shown = event["Payload"]["Allocation"].as_object().expect("an allocation");
    assert!(!shown.contains_key("Job") && shown["JobID"] == "a/b" && shown["ClientStatus"] == "running", "{shown:?}");
    assert_eq!(event["FilterKeys"], json!(["a/b", "u-1"]));
}

fn deployment_spec() -> Value {
    json!({ "jobName": "web", "jobUID": "u-1", "jobVersion": 2 })
}

#[test]
fn a_deployment_is_placed_promoted_and_goes_on() {
    let with = |phase: &str, group: &Value| -> Deployment {
        let status = json!({ "phase": phase, "groups": { "g": group } });
        object("Deployment", Some("shop"), &deployment_spec(), &status)
    };
    let none = json!({});
    let of = |phase: &str, group: &Value| {
        told(&Happened::Deployment(turn(Some(with("running", &none)), Some(with(phase, group)))))
    };
    let one = |cause: &str| vec![format!("Deployment {cause} u-1")];
    assert_eq!(told(&Happened::Deployment(turn(None, Some(with("running", &none))))), one("PlanResult"));
    assert_eq!(of("running", &json!({ "promoted": true, "healthyAllocs": 1 })), one("DeploymentPromotion"));
    assert_eq!(of("successful", &json!({ "healthyAllocs": 1 })), one("DeploymentStatusUpdate"));
    assert_eq!(of("running", &json!({ "healthyAllocs": 1, "placedAllocs": 1 })), one("DeploymentAllocHealth"));
    assert_eq!(of("running", &json!({ "placedAllocs": 1 })), one("PlanResult"));
    assert_eq!(of("running", &json!({ "desiredTotal": 3 })), one("AllocationUpdated"));
    assert_eq!(of("running", &none), [""; 0]);
    assert_eq!(told(&Happened::Deployment(turn(Some(with("running", &none)), None))), [""; 0]);
    let mut world = World::default();
    world.jobs.put(job(&none, &none));
    let event = &read(&Happened::Deployment(turn(None, Some(with("running", &none)))), &world)[0];
    assert_eq!((&event["FilterKeys"], &event["Payload"]["Deployment"]["JobID"]), (&json!(["a/b"]), &json!("a/b")));
}

#[test]
fn p_069_a_node_comes_drains_changes_and_goes_and_its_event_holds_no_secret() {
    let with = |spec: &Value, status: &Value| -> ClientNode { object("ClientNode", None, spec, status) };
    let (none, ready) = (json!({}), json!({ "phase": "ready" }));
    let plain = || with(&none, &ready);
    let of = |before: Option<ClientNode>, after: Option<ClientNode>| told(&Happened::Node(turn(before, after)));
    assert_eq!(of(None, Some(plain())), ["Node NodeRegistration u-1"]);
    assert_eq!(of(Some(plain()), None), ["Node NodeDeregistration u-1"]);
    let ineligible = json!({ "eligibility": "ineligible" });
    assert_eq!(of(Some(plain()), Some(with(&ineligible, &ready))), ["Node NodeEligibility u-1"]);
    let drains = json!({ "eligibility": "ineligible", "drain": {} });
    assert_eq!(of(Some(plain()), Some(with(&drains, &ready))), ["Node NodeDrain u-1"]);
    let down = json!({ "phase": "down" });
    assert_eq!(of(Some(plain()), Some(with(&none, &down))), ["Node NodeStreamEvent u-1"]);
    let counted = json!({ "phase": "ready", "observedGeneration": 2, "columns": { "cpu": "1/2" } });
    let mut later = with(&none, &counted);
    later.metadata.resource_version = Some("11".to_owned());
    assert_eq!(of(Some(plain()), Some(later)), [""; 0]);
    let found = json!({ "phase": "ready", "fingerprint": { "sealingKey": "k", "attributes": { "a": "b" } } });
    let event = &read(&Happened::Node(turn(None, Some(with(&none, &found)))), &World::default())[0];
    assert_eq!((&event["Namespace"], &event["Payload"]["Node"]["Attributes"]["a"]), (&json!(""), &json!("b")));
    assert!(event["Payload"]["Node"].get("SecretID").is_none() && !event.to_string().contains("sealing"), "{event}");
}

#[test]
fn a_volume_is_registered_claimed_and_deregistered_and_shows_no_allocations() {
    let with = |more: &Value, status: &Value| -> CSIVolume {
        let mut spec = json!({ "id": "data[0]", "name": "Data", "pluginID": "ebs", "capabilities": [],
                               "secretsRef": { "name": "top-secret" } });
        spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        object("CSIVolume", Some("shop"), &spec, status)
    };
    let none = json!({});
    let plain = || with(&none, &none);
    let of = |before: Option<CSIVolume>, after: Option<CSIVolume>| told(&Happened::Volume(turn(before, after)));
    assert_eq!(of(None, Some(plain())), ["CSIVolume CSIVolumeRegistered data[0]"]);
    assert_eq!(of(Some(plain()), None), ["CSIVolume CSIVolumeDeregistered data[0]"]);
    let changed = with(&json!({ "parameters": { "a": "b" } }), &none);
    assert_eq!(of(Some(plain()), Some(changed)), ["CSIVolume CSIVolumeRegistered data[0]"]);
    let claim = json!({ "allocID": "u-1", "nodeName": "n-1", "mode": "write" });
    let claimed = || with(&none, &json!({ "claims": [claim] }));
    assert_eq!(of(Some(plain()), Some(claimed())), ["CSIVolume CSIVolumeClaim data[0]"]);
    assert_eq!(of(Some(plain()), Some(with(&none, &json!({ "schedulable": true })))), [""; 0]);
    let mut world = World::default();
    world.allocations.put(allocation(&none, &none));
    let event = &read(&Happened::Volume(turn(Some(plain()), Some(claimed()))), &world)[0];
    assert_eq!(event["FilterKeys"], json!(["data[0]", "Data", "ebs"]));
    let shown = &event["Payload"]["Volume"];
    assert_eq!((&shown["Allocations"], &shown["WriteAllocs"]), (&json!([]), &json!({ "u-1": null })));
    assert!(!event.to_string().contains("top-secret"), "{event}");
}

/// The same text with the plan that is noted on it.
fn noted(mut allocation: Allocation, plan: &str) -> Allocation {
    allocation.metadata.annotations = Some([("drover.dev/plan".to_owned(), plan.to_owned())].into());
    allocation
}

#[test]
fn p_062_a_new_spec_comes_with_the_evaluation_that_follows_it() {
    let (none, mut world) = (json!({}), World::default());
    let mut plain = job(&none, &none);
    plain.metadata.generation = Some(3);
    world.jobs.put(plain.clone());
    let id = evaluation_id::of_point("u-1", Point { generation: 3, asked: 0 });
    let found = read(&Happened::Job(turn(None, Some(plain.clone()))), &world);
    let kinds: Vec<_> = found.iter().map(|event| (&event["Topic"], &event["Type"], &event["Index"])).collect();
    let (registered, at) = (json!("JobRegistered"), json!(11));
    assert_eq!(kinds, [(&json!("Job"), &registered, &at), (&json!("Evaluation"), &registered, &at)]);
    let evaluation = &found[1]["Payload"]["Evaluation"];
    assert_eq!((&evaluation["ID"], &evaluation["Status"]), (&json!(id), &json!("pending")));
    // What is no new spec is followed by none, and neither is a template of jobs.
    assert!(read(&Happened::Job(turn(Some(plain.clone()), Some(plain))), &world).is_empty());
    let mut template = job(&json!({ "parameterized": {} }), &none);
    template.metadata.generation = Some(3);
    world.jobs.put(template.clone());
    assert_eq!(read(&Happened::Job(turn(None, Some(template))), &world).len(), 1);
}

#[test]
fn g_040_what_a_plan_writes_names_it_and_a_text_that_names_none_changes_nothing() {
    let (none, world) = (json!({}), World::default());
    let plain = || allocation(&none, &none);
    let part = |before: Option<Allocation>, after: Allocation| {
        let changed = events(&Happened::Allocation(turn(before, Some(after))), &world);
        changed.part.map(|part| (part.whole, part.of))
    };
    let of_plan = |of: u32| Some(("plan shop/e-1".to_owned(), Some(of)));
    assert_eq!(part(None, noted(plain(), "e-1/50")), of_plan(50));
    assert_eq!(part(Some(noted(plain(), "e-0/2")), noted(plain(), "e-1/7")), of_plan(7));
    assert_eq!(part(Some(noted(plain(), "e-1/7")), noted(plain(), "e-1/7")), None);
    for wrong in ["e-1", "e-1/0", "e-1/x", "", "e-1/1"] {
        assert_eq!(part(None, noted(plain(), wrong)), None, "{wrong}");
    }
    // A stop is told as the plan's, which otherwise is somebody's wish.
    let stopped = noted(allocation(&json!({ "desiredStatus": "stop" }), &none), "e-1/2");
    assert_eq!(told(&Happened::Allocation(turn(Some(plain()), Some(stopped)))), ["Allocation PlanResult u-1"]);

    let deployment = |annotation: Option<&str>, status: Option<&str>| -> Deployment {
        let mut made: Deployment = object("Deployment", Some("shop"), &deployment_spec(), &json!({ "plan": status }));
        made.metadata.annotations =
            annotation.map(|plan| [("drover.dev/plan".to_owned(), plan.to_owned())].into_iter().collect());
        made
    };
    let part = |before: Option<Deployment>, after: Deployment| {
        let changed = events(&Happened::Deployment(turn(before, Some(after))), &world);
        changed.part.map(|part| (part.whole, part.of))
    };
    assert_eq!(part(None, deployment(Some("e-1/4"), None)), of_plan(4));
    assert_eq!(part(Some(deployment(Some("e-1/4"), None)), deployment(Some("e-1/4"), Some("e-1/4"))), of_plan(4));
    assert_eq!(part(Some(deployment(None, Some("e-1/4"))), deployment(None, Some("e-1/4"))), None);
}

#[test]
fn p_062_a_promotion_is_of_its_deployment_and_the_canaries_that_are_left() {
    let (none, mut world) = (json!({}), World::default());
    let running = json!({ "clientStatus": "running" });
    let named = |name: &str, spec: &Value, status: &Value| {
        let mut made = allocation(spec, status);
        made.metadata.name = Some(name.to_owned());
        made.metadata.uid = Some(format!("u-{name}"));
        made
    };
    let canary = json!({ "canary": true });
    world.allocations.put(named("a", &canary, &running));
    // One has taken over already, and others are over, or stopped, or of another deployment.
    world.allocations.put(named("b", &none, &running));
    world.allocations.put(named("c", &canary, &json!({ "clientStatus": "failed" })));
    world.allocations.put(named("d", &json!({ "canary": true, "desiredStatus": "stop" }), &running));
    world.allocations.put(named("e", &json!({ "canary": true, "deploymentName": "other" }), &running));
    let with = |promoted: bool| -> Deployment {
        let group = json!({ "promoted": promoted, "placedCanaries": ["a", "b", "c", "d", "e", "gone"] });
        object("Deployment", Some("shop"), &deployment_spec(), &json!({ "groups": { "g": group } }))
    };
    let changed = events(&Happened::Deployment(turn(Some(with(false)), Some(with(true)))), &world);
    let whole = "promotion shop/web".to_owned();
    assert_eq!(changed.part, Some(Part { whole: whole.clone(), of: Some(3) }));
    let over = Happened::Allocation(turn(Some(named("a", &canary, &running)), Some(named("a", &none, &running))));
    assert_eq!(events(&over, &world).part, Some(Part { whole, of: None }));
    assert_eq!(told(&over), ["Allocation DeploymentPromotion u-a"]);
    assert_eq!(events(&Happened::Deployment(turn(Some(with(true)), Some(with(true)))), &world).part, None);
}
