//! Orders from a small cluster, and the evaluations that clients then wait for.

mod versions;
mod volumes;

use drover_api::{Deployment, GoDuration, Job};
use drover_core::evaluation_id::{self, Point};
use http::Method;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Change, Demand, WholeObject, WriteOrder, WriteView, Written, hearing, order};
use crate::route::{Route, read};
use crate::wire::awaited;
use crate::wire::evaluation::full;
use crate::world::{Kind, World};
use crate::{Fault, Query};

const UID: &str = "6f1d2c0a-0000-4000-8000-000000000001";
const ALLOCATION: &str = "6f1d2c0a-0000-4000-8000-0000000000a1";
const DEPLOYMENT: &str = "6f1d2c0a-0000-4000-8000-0000000000d1";
const NODE: &str = "6f1d2c0a-0000-4000-8000-0000000000f1";

fn object<K: DeserializeOwned>(kind: &str, name: (&str, &str), spec: &Value, status: &Value) -> K {
    let (name, uid) = name;
    let namespace = (kind != "ClientNode").then_some("default");
    let object = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": kind, "spec": spec, "status": status,
        "metadata": { "namespace": namespace, "name": name, "uid": uid, "resourceVersion": "10", "generation": 3,
                      "creationTimestamp": "2026-01-01T00:00:00Z" },
    });
    serde_json::from_value(object).expect(kind)
}

fn group() -> Value {
    json!({ "name": "g", "count": 2, "scaling": { "min": 1, "max": 5 },
            "tasks": [{ "name": "t", "driver": "exec", "config": { "command": "sh" } }] })
}

/// A job with a version before it, an allocation, a deployment of this phase and a node.
fn world(phase: &str) -> World {
    let mut world = World::default();
    let evaluation = json!({ "id": "e-1", "trigger": "job-register", "status": "complete", "priority": 50,
        "time": "2026-01-01T00:00:00Z", "generation": 2, "deploymentName": "web-d1" });
    let status = json!({ "phase": "running", "version": 1, "evaluations": [evaluation] });
    world.jobs.put(object("Job", ("web", UID), &json!({ "groups": [group()] }), &status));
    for (version, priority) in [(0, 40), (1, 50)] {
        let spec = json!({ "jobName": "web", "jobUID": UID, "version": version, "groupNames": "g",
            "job": { "groups": [group()], "priority": priority }, "submittedAt": "2026-01-01T00:00:00Z" });
        world.versions.put(object("JobVersion", (&format!("web-v{version}"), "v"), &spec, &json!({})));
    }
    let spec = json!({ "jobName": "web", "jobUID": UID, "jobVersion": 1, "group": "g", "index": 0, "nodeName": "n-1",
        "deploymentName": "web-d1", "evalID": evaluation_id::of_leader(UID, "e-1", 0) });
    world.allocations.put(object("Allocation", ("web-g-0", ALLOCATION), &spec, &json!({ "clientStatus": "failed" })));
    let spec = json!({ "jobName": "web", "jobUID": UID, "jobVersion": 1 });
    let canary = json!({ "desiredCanaries": 1, "healthyAllocs": 1, "desiredTotal": 2 });
    let status = json!({ "phase": phase, "observedGeneration": 3, "groups": { "g": canary } });
    world.deployments.put(object("Deployment", ("web-d1", DEPLOYMENT), &spec, &status));
    world.nodes.put(object("ClientNode", ("n-1", NODE), &json!({}), &json!({ "phase": "ready" })));
    world
}

fn now() -> Timestamp {
    "2026-02-01T00:00:00Z".parse().expect("a time")
}

fn ordered_in(world: &World, method: &Method, path: &str, body: &Value) -> Result<WriteOrder, Fault> {
    let (path, text) = path.split_once('?').unwrap_or((path, ""));
    let Route::Write(endpoint) = read(method, path)? else { panic!("{path} is no write") };
    let (query, body) = (Query::parse(text)?, body.to_string());
    order(&endpoint, WriteView { world, query: &query, body: body.as_bytes(), now: now(), random: 7, goes_on: false })
}

fn put(path: &str, body: &Value) -> Result<WriteOrder, Fault> {
    ordered_in(&world("successful"), &Method::PUT, path, body)
}

fn refusal(path: &str, body: &Value) -> (u16, String) {
    let fault = put(path, body).expect_err(path);
    (fault.code, fault.message)
}

/// The right that the hearing of a refusal needs first, and where.
fn heard_by(method: &Method, path: &str, body: &Value) -> Option<String> {
    let (path, text) = path.split_once('?').unwrap_or((path, ""));
    let Ok(Route::Write(endpoint)) = read(method, path) else { panic!("{path} is no write") };
    let Demand { any_of } = hearing(&endpoint, &Query::parse(text).expect("a query"), body.to_string().as_bytes())?;
    assert!(any_of.iter().all(|way| way.name.is_empty() && way.namespace == any_of[0].namespace), "{any_of:?}");
    any_of.first().map(|way| [way.verb, way.resource, &way.namespace].join(" "))
}

#[test]
fn why_a_request_is_refused_is_for_those_who_may_know_of_such_objects_in_its_namespace() {
    let (put, delete) = (Method::PUT, Method::DELETE);
    for (method, path, body, right) in [
        (&put, "jobs?namespace=shop", json!({}), "create jobs shop"),
        (&put, "jobs?namespace=shop", json!({ "Job": { "Namespace": "farm" } }), "create jobs farm"),
        (&put, "validate/job", json!({ "Job": { "Namespace": "" } }), "create jobs default"),
        (&put, "job/web/evaluate?namespace=shop", json!({}), "update jobs shop"),
        (&delete, "job/web?namespace=shop&purge=true", json!({}), "update jobs shop"),
        (&put, "allocation/u/stop?namespace=shop", json!({}), "get allocations shop"),
        (&put, "deployment/fail/u", json!({}), "update deployments default"),
        (&put, "node/u/drain?namespace=shop", json!({}), "update clientnodes "),
        (
            &put,
            "volume/csi/v?namespace=shop",
            json!({ "Volumes": [{ "Namespace": "farm" }] }),
            "create csivolumes farm",
        ),
        (&delete, "volume/csi/v?namespace=shop", json!({}), "delete csivolumes shop"),
        (&put, "volumes/snapshot?namespace=shop", json!({}), "update csivolumes shop"),
    ] {
        assert_eq!(heard_by(method, path, &body).as_deref(), Some(right), "{path}");
    }
    assert_eq!(heard_by(&put, "jobs/parse", &json!({})), None);
}

/// The body that a client sends to register the job with this spec.
fn submission(spec: &Value, more: &Value) -> Value {
    let job: Job = object("Job", ("web", UID), spec, &json!({}));
    let mut body = json!({ "Job": drover_jobspec::wire_job(&job) });
    if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
        body.extend(more.clone());
    }
    body
}

/// The patch of an order's last change.
fn patch(order: &WriteOrder) -> &Value {
    match order.changes.last() {
        Some(Change::Patch(_, body)) => body,
        other => panic!("no patch: {other:?}"),
    }
}

fn replaced(order: &WriteOrder) -> &Job {
    match order.changes.last() {
        Some(Change::Replace(WholeObject::Job(job)) | Change::Create(WholeObject::Job(job))) => job,
        other => panic!("no job: {other:?}"),
    }
}

/// What an order needs: verb, resource and name of each right.
fn demands(order: &WriteOrder) -> Vec<String> {
    let text = |way: &super::Way| {
        let part = if way.subresource.is_empty() { String::new() } else { format!("/{}", way.subresource) };
        format!("{} {}{part} {}", way.verb, way.resource, way.name).trim_end().to_owned()
    };
    order.demands.iter().map(|demand| demand.any_of.iter().map(text).collect::<Vec<_>>().join(" or ")).collect()
}

fn written(kind: Kind, uid: &str, generation: i64) -> Vec<Written> {
    let meta = ObjectMeta {
        uid: Some(uid.to_owned()),
        generation: Some(generation),
        resource_version: Some("12".to_owned()),
        ..ObjectMeta::default()
    };
    vec![Written { kind, meta }]
}

#[test]
fn p_040_an_index_that_is_enforced_must_be_the_jobs_and_0_means_a_new_job() {
    let of = |enforced: i64| {
        submission(
            &json!({ "groups": [group()], "priority": 60 }),
            &json!({ "EnforceIndex": true, "JobModifyIndex": enforced }),
        )
    };
    assert!(put("jobs", &of(3)).is_ok());
    for wrong in [0, 2] {
        let (code, text) = refusal("jobs", &of(wrong));
        assert!(code == 400 && text.starts_with("Enforcing job modify index "), "{text}");
    }
    let world = World::default();
    assert!(ordered_in(&world, &Method::PUT, "jobs", &of(0)).is_ok());
    let gone = ordered_in(&world, &Method::PUT, "jobs", &of(3)).expect_err("no job");
    assert!(gone.message.starts_with("Enforcing job modify index 3"), "{gone}");
}

#[test]
fn p_041_and_p_077_the_same_job_makes_no_version_and_asks_for_an_evaluation_of_its_own() {
    let same = submission(&json!({ "groups": [group()] }), &json!({}));
    let order = put("jobs", &same).expect("an order");
    assert_eq!(patch(&order), &json!({ "metadata": { "annotations": { "drover.dev/evaluate": "1" } } }));
    let mut now = written(Kind::Job, UID, 3);
    now[0].meta.annotations = Some([("drover.dev/evaluate".to_owned(), "1".to_owned())].into());
    let answer = order.answer(&now);
    assert_eq!(answer["EvalID"], json!(evaluation_id::of_point(UID, Point { generation: 3, asked: 1 })));
    assert_eq!(answer["JobModifyIndex"], 3);
    let other = submission(&json!({ "groups": [group()], "priority": 40 }), &json!({}));
    let order = put("jobs", &other).expect("an order");
    assert_eq!((replaced(&order).spec.priority, demands(&order)), (40, vec!["update jobs web".to_owned()]));
    let answer = order.answer(&written(Kind::Job, UID, 4));
    assert_eq!(answer["EvalID"], json!(evaluation_id::of_point(UID, Point { generation: 4, asked: 0 })));
}

#[test]
fn p_042_g_041_and_g_042_a_registration_names_its_job_once_and_replaces_all_of_it() {
    let body = submission(&json!({ "groups": [group()], "priority": 40 }), &json!({}));
    assert_eq!(refusal("job/other", &body).0, 400);
    for missing in [json!({}), json!({ "Job": null }), json!([])] {
        assert_eq!(refusal("jobs", &missing).0, 400, "{missing}");
    }
    // Two ids that would be one object.
    let mut other = World::default();
    other.jobs.put(object("Job", ("web", UID), &json!({ "id": "shop/web", "groups": [group()] }), &json!({})));
    let fault = ordered_in(&other, &Method::PUT, "jobs", &body).expect_err("another id");
    assert!(fault.code == 400 && fault.message.contains("\"shop/web\""), "{fault}");

    let mut world = world("successful");
    let mut scaled = Job::clone(world.jobs.named("default", "web").expect("the job"));
    scaled.spec.scale = Some(drover_api::job::Scale { group: "g".to_owned(), count: Some(4) });
    scaled.spec.meta = [("by".to_owned(), "kubectl".to_owned())].into();
    world.jobs.put(scaled);
    let order = ordered_in(&world, &Method::PUT, "jobs", &body).expect("an order");
    assert!(replaced(&order).spec.scale.is_none() && replaced(&order).spec.meta.is_empty());
    assert_eq!(replaced(&order).metadata.resource_version.as_deref(), Some("10"));
    let kept = submission(&json!({ "groups": [group()], "priority": 40 }), &json!({ "PreserveCounts": true }));
    let order = ordered_in(&world, &Method::PUT, "jobs", &kept).expect("an order");
    assert_eq!(replaced(&order).spec.scale.as_ref().and_then(|scale| scale.count), Some(4));
}

#[test]
fn what_a_job_asks_for_is_asked_of_its_author() {
    let mut spec = json!({ "groups": [group()], "priority": 70 });
    let task = &mut spec["groups"][0]["tasks"][0];
    task["secrets"] =
        json!([{ "name": "db", "path": "db-creds" }, { "name": "c", "provider": "configmap", "path": "m" }]);
    task["csiPlugin"] = json!({ "id": "p", "type": "node" });
    let job: Job = object("Job", ("web", UID), &spec, &json!({}));
    let before: Job = object("Job", ("web", UID), &json!({ "groups": [group()] }), &json!({}));
    let of = |before: Option<&Job>| {
        let demands = super::authors::of_job("default", "web", before.map(|job| &job.spec), &job.spec);
        self::demands(&WriteOrder::nothing(demands, Value::Null))
    };
    let secrets = ["get configmaps m or update jobs/secrets", "get secrets db-creds or update jobs/secrets"];
    let raised = ["update jobs/priority", "update jobs/csiplugin web"];
    assert_eq!(of(Some(&before)), [&["update jobs web"], &raised[..], &secrets[..]].concat());
    assert_eq!(of(None), [&["create jobs"], &raised[..], &secrets[..]].concat());
    assert_eq!(of(Some(&job)), ["update jobs web"]);
}

#[test]
fn a_job_that_cannot_run_is_refused_with_all_that_is_wrong_and_is_only_checked_by_validate() {
    let mut bad = submission(&json!({ "groups": [group()] }), &json!({}));
    bad["Job"]["TaskGroups"][0]["Tasks"][0]["Driver"] = json!("");
    bad["Job"]["TaskGroups"][0]["Name"] = json!("g h");
    assert_eq!(refusal("jobs", &bad).0, 400);
    let found = put("validate/job", &bad).expect("an order");
    assert!(found.changes.is_empty() && found.demands[0].any_of[0].verb == "create", "{found:?}");
    let answer = found.answer(&[]);
    assert!(answer["ValidationErrors"].as_array().is_some_and(|all| !all.is_empty()), "{answer}");
    assert!(answer["Error"].as_str().is_some_and(|text| !text.is_empty()));
    let good = put("validate/job", &submission(&json!({ "groups": [group()] }), &json!({}))).expect("an order");
    assert_eq!(good.answer(&[])["ValidationErrors"], json!([]));
    let text = "job \"x\" {\n  group \"g\" {\n    task \"t\" {\n      driver = \"exec\"\n      config { command = \"sh\" }\n    }\n  }\n}";
    let parsed = put("jobs/parse", &json!({ "JobHCL": text })).expect("an order").answer(&[]);
    assert_eq!((&parsed["ID"], &parsed["TaskGroups"][0]["Name"]), (&json!("x"), &json!("g")));
    let (code, text) = refusal("jobs/parse", &json!({ "JobHCL": "job \"x\" {" }));
    assert!(code == 400 && text.contains("JobHCL:1:"), "{text}");
}

#[test]
fn p_048_a_revert_restores_a_version_that_is_another_one() {
    let to = |version: i64| json!({ "JobID": "web", "JobVersion": version });
    let order = put("job/web/revert", &to(0)).expect("an order");
    assert_eq!(replaced(&order).spec.priority, 40);
    assert_eq!(refusal("job/web/revert", &to(1)).0, 400);
    assert_eq!(refusal("job/web/revert", &to(9)).0, 404);
    let enforced = |prior: i64| json!({ "JobID": "web", "JobVersion": 0, "EnforcePriorVersion": prior });
    assert!(put("job/web/revert", &enforced(1)).is_ok());
    assert_eq!(refusal("job/web/revert", &enforced(0)).0, 400);
    assert_eq!(refusal("job/web/revert", &json!({ "JobID": "x", "JobVersion": 0 })).0, 400);
}

#[test]
fn p_049_and_p_050_a_dispatch_brings_what_its_job_takes_and_is_made_once_for_a_token() {
    let mut world = world("successful");
    let rules = json!({ "payload": "optional", "metaRequired": ["day"] });
    let batch = json!({ "type": "batch", "groups": [group()], "parameterized": rules });
    world.jobs.put(object("Job", ("mail", "u-mail"), &batch, &json!({})));
    let dispatch =
        |world: &World, body: &Value| ordered_in(world, &Method::PUT, "job/mail/dispatch?idempotency_token=t", body);
    let good = json!({ "Payload": "aGk=", "Meta": { "day": "monday" }, "IdPrefixTemplate": "p" });
    let order = dispatch(&world, &good).expect("an order");
    let mut child = replaced(&order).clone();
    assert_eq!(child.spec.id, format!("mail/dispatch-p-{}-00000007", now().as_second()));
    assert_eq!(demands(&order), ["create jobs"]);
    let answer = order.answer(&written(Kind::Job, "u-child", 1));
    assert_eq!(answer["DispatchedJobID"], json!(child.spec.id));
    assert_eq!(answer["EvalID"], json!(evaluation_id::of_point("u-child", Point { generation: 1, asked: 0 })));
    let large = "A".repeat(23_000);
    for (body, word) in [
        (json!({ "Meta": {} }), "day"),
        (json!({ "Meta": { "day": "1", "hour": "2" } }), "hour"),
        (json!({ "Meta": { "day": "1" }, "Payload": large }), "bytes"),
        (json!({ "Meta": { "day": "1" }, "Payload": "%" }), "base64"),
        (json!({ "Meta": { "day": "1" }, "JobID": "web" }), "JobID"),
    ] {
        let fault = dispatch(&world, &body).expect_err(word);
        assert!(fault.code == 400 && fault.message.contains(word), "{fault}");
    }
    child.metadata.uid = Some("u-child".to_owned());
    world.jobs.put(child.clone());
    let again = dispatch(&world, &good).expect("an order");
    assert!(again.changes.is_empty());
    assert_eq!(again.answer(&[])["DispatchedJobID"], json!(child.spec.id));
    let plain = ordered_in(&world, &Method::PUT, "job/web/dispatch", &json!({})).expect_err("no template");
    assert!(plain.code == 400 && plain.message.contains("not parameterized"), "{plain}");
}

#[test]
fn p_051_and_p_077_a_group_is_scaled_within_its_limits_and_not_during_a_deployment() {
    let to = |count: i64| json!({ "Count": count, "Target": { "Group": "g" } });
    let order = put("job/web/scale", &to(4)).expect("an order");
    assert_eq!(patch(&order), &json!({ "spec": { "scale": { "group": "g", "count": 4 } } }));
    assert_eq!(demands(&order), ["update jobs/scale web"]);
    for (body, code) in [(to(0), 400), (to(6), 400), (json!({ "Count": 2, "Target": { "Group": "x" } }), 400)] {
        assert_eq!(refusal("job/web/scale", &body).0, code, "{body}");
    }
    assert_eq!(refusal("job/none/scale", &to(4)).0, 404);
    for phase in ["running", "paused"] {
        let fault = ordered_in(&world(phase), &Method::PUT, "job/web/scale", &to(4)).expect_err(phase);
        assert_eq!((fault.code, fault.message.as_str()), (400, "job scaling blocked due to active deployment"));
    }
    let noted = put("job/web/scale", &json!({ "Message": "busy", "Target": { "Group": "g" } })).expect("an order");
    assert!(noted.changes.is_empty());
}

#[test]
fn p_052_a_job_is_stopped_or_purged_and_one_that_is_unknown_is_no_error() {
    let delete = |path: &str| ordered_in(&world("successful"), &Method::DELETE, path, &json!({})).expect(path);
    let order = delete("job/web");
    assert_eq!(
        (patch(&order), demands(&order)),
        (&json!({ "spec": { "stop": true } }), vec!["update jobs web".into()])
    );
    let order = delete("job/web?purge=true");
    assert!(matches!(order.changes.as_slice(), [Change::Patch(..), Change::Delete(_)]), "{order:?}");
    assert_eq!(demands(&order), ["delete jobs web"]);
    // What clients then wait for is the evaluation of the stop: the API server answers a deletion with no state.
    let written = |generation: Option<i64>| {
        let meta = ObjectMeta { uid: Some(UID.to_owned()), generation, ..ObjectMeta::default() };
        Written { kind: Kind::Job, meta }
    };
    let stopped = evaluation_id::of_point(UID, Point { generation: 4, asked: 0 });
    assert_eq!(order.answer(&[written(Some(4)), written(None)])["EvalID"], json!(stopped));
    let order = delete("job/none");
    assert!(order.changes.is_empty() && order.demands[0].any_of[0].verb == "update", "{order:?}");
    assert_eq!(order.answer(&[])["EvalID"], "");
}

#[test]
fn p_053_a_job_is_evaluated_and_what_failed_is_replaced_where_that_is_asked_for() {
    let order = put("job/web/evaluate", &json!({ "JobID": "web", "EvalOptions": { "ForceReschedule": true } }));
    let order = order.expect("an order");
    let [Change::Patch(failed, forced), Change::Patch(..)] = order.changes.as_slice() else { panic!("{order:?}") };
    assert_eq!(failed.uid.as_deref(), Some(ALLOCATION));
    assert_eq!(forced["spec"]["desiredTransition"], json!({ "forceReschedule": true }));
    assert_eq!(put("job/web/evaluate", &json!({})).expect("an order").changes.len(), 1);
    // Where another writer changed the job after the allocations were told, what failed since is not replaced too.
    let Ok(Route::Write(endpoint)) = read(&Method::PUT, "job/web/evaluate") else { panic!("it is a write") };
    let (known, query) = (world("successful"), Query::parse("").expect("a query"));
    let body = br#"{"EvalOptions": {"ForceReschedule": true}}"#;
    let view = WriteView { world: &known, query: &query, body, now: now(), random: 7, goes_on: true };
    let order = super::order(&endpoint, view).expect("an order");
    assert!(matches!(order.changes.as_slice(), [Change::Patch(job, _)] if job.kind == Kind::Job), "{order:?}");
}

#[test]
fn p_055_requests_to_a_deployment_name_it_and_one_that_is_over_refuses_them() {
    let asked = |phase: &str, verb: &str, body: &Value| {
        ordered_in(&world(phase), &Method::PUT, &format!("deployment/{verb}/{DEPLOYMENT}"), body)
    };
    for verb in ["promote", "pause", "allocation-health"] {
        for other in [json!({}), json!({ "DeploymentID": NODE })] {
            assert_eq!(asked("running", verb, &other).expect_err(verb).code, 400, "{verb}");
        }
    }
    let order = asked("running", "fail", &Value::Null).expect("an order");
    assert_eq!(patch(&order), &json!({ "spec": { "fail": true } }));
    assert_eq!(demands(&order), ["update deployments web-d1", "update deployments/fail web-d1"]);
    let order = asked("running", "promote", &json!({ "DeploymentID": DEPLOYMENT, "All": true })).expect("an order");
    assert_eq!(patch(&order)["spec"]["promote"], json!({ "all": true, "groups": null }));
    let answer = order.answer(&written(Kind::Deployment, DEPLOYMENT, 4));
    assert_eq!(answer["EvalID"], json!(evaluation_id::of_request(UID, DEPLOYMENT, 4)));
    assert_eq!(answer["DeploymentModifyIndex"], 12);
    let order = asked("running", "pause", &json!({ "DeploymentID": DEPLOYMENT, "Pause": true })).expect("an order");
    assert_eq!((patch(&order), order.demands.len()), (&json!({ "spec": { "paused": true } }), 2));
    assert_eq!(order.answer(&written(Kind::Deployment, DEPLOYMENT, 4))["EvalID"], "");
    let order = asked("paused", "pause", &json!({ "DeploymentID": DEPLOYMENT, "Pause": false })).expect("an order");
    let answer = order.answer(&written(Kind::Deployment, DEPLOYMENT, 5));
    assert_eq!(answer["EvalID"], json!(evaluation_id::of_request(UID, DEPLOYMENT, 5)), "D-041");
    let over = asked("failed", "fail", &Value::Null).expect_err("it is over");
    assert!(over.code == 500 && over.message.contains("terminal"), "{over}");
    let judged = |id: &str| json!({ "DeploymentID": DEPLOYMENT, "HealthyAllocationIDs": [id] });
    assert!(asked("running", "allocation-health", &judged(ALLOCATION)).is_ok());
    assert_eq!(asked("running", "allocation-health", &judged(NODE)).expect_err("foreign").code, 400);
}

#[test]
fn d_044_who_fails_a_deployment_is_told_its_evaluation_and_the_version_that_comes_back() {
    let judged = json!({ "DeploymentID": DEPLOYMENT, "UnhealthyAllocationIDs": [ALLOCATION] });
    let healthy = json!({ "DeploymentID": DEPLOYMENT, "HealthyAllocationIDs": [ALLOCATION] });
    let answer = |world: &World, verb: &str, body: &Value| {
        let order =
            ordered_in(world, &Method::PUT, &format!("deployment/{verb}/{DEPLOYMENT}"), body).expect("an order");
        order.answer(&written(Kind::Deployment, DEPLOYMENT, 4))
    };
    // Whether the group reverts, which versions are stable, whether a newer version is on its way; what comes back.
    for (reverts, stable, has_newer, wanted) in [
        (true, vec![0], false, json!(0)),
        (true, vec![0, 1], false, Value::Null),
        (true, vec![], false, Value::Null),
        (true, vec![0], true, Value::Null),
        (false, vec![0], false, Value::Null),
    ] {
        let mut world = world("running");
        let mut deployment = Deployment::clone(world.deployment("default", DEPLOYMENT).expect("a deployment"));
        let groups = &mut deployment.status.as_mut().expect("a status").groups;
        groups.get_mut("g").expect("its group").auto_revert = reverts;
        world.deployments.put(deployment);
        for (version, priority) in [(0, 40), (1, 50), (2, 60)].into_iter().take(if has_newer { 3 } else { 2 }) {
            let spec = json!({ "jobName": "web", "jobUID": UID, "version": version, "groupNames": "g",
                "job": { "groups": [group()], "priority": priority }, "submittedAt": "2026-01-01T00:00:00Z" });
            let status = json!({ "stable": stable.contains(&version) });
            world.versions.put(object("JobVersion", (&format!("web-v{version}"), "v"), &spec, &status));
        }
        let case = format!("{reverts} {stable:?} {has_newer}");
        for (verb, body) in [("fail", &Value::Null), ("allocation-health", &judged)] {
            let answer = answer(&world, verb, body);
            assert_eq!(answer["RevertedJobVersion"], wanted, "{verb}: {case}");
            assert_eq!(answer["EvalID"], json!(evaluation_id::of_request(UID, DEPLOYMENT, 4)), "{verb}: {case}");
        }
        assert_eq!(answer(&world, "allocation-health", &healthy)["RevertedJobVersion"], Value::Null, "{case}");
    }
}

#[test]
fn p_056_and_p_057_a_node_is_drained_and_takes_allocations_when_it_is_not() {
    let drain = |spec: Value| put(&format!("node/{NODE}/drain"), &spec).expect("an order");
    let order = drain(json!({ "DrainSpec": { "Deadline": 60_000_000_000_i64, "IgnoreSystemJobs": true } }));
    assert_eq!(patch(&order)["spec"]["eligibility"], "ineligible");
    let wanted = json!({ "deadline": GoDuration::from_secs(60), "force": null, "ignoreSystemJobs": true });
    assert_eq!(patch(&order)["spec"]["drain"], wanted);
    assert_eq!(demands(&order), ["update clientnodes n-1"]);
    let order = drain(json!({ "DrainSpec": { "Deadline": -1 } }));
    assert_eq!(patch(&order)["spec"]["drain"], json!({ "deadline": null, "force": true, "ignoreSystemJobs": null }));
    let order = drain(json!({ "DrainSpec": null, "MarkEligible": true }));
    assert_eq!(patch(&order), &json!({ "spec": { "drain": null, "eligibility": "eligible" } }));
    let eligible = |word: &str| put(&format!("node/{NODE}/eligibility"), &json!({ "Eligibility": word }));
    assert!(eligible("ineligible").is_ok() && eligible("eligible").is_ok());
    assert_eq!(eligible("foo").expect_err("no such word").code, 400);
    let mut world = world("successful");
    world.nodes.put(object("ClientNode", ("n-1", NODE), &json!({ "drain": {} }), &json!({})));
    let path = format!("node/{NODE}/eligibility");
    let fault = ordered_in(&world, &Method::PUT, &path, &json!({ "Eligibility": "eligible" })).expect_err("it drains");
    assert!(fault.code == 400 && fault.message.contains("draining"), "{fault}");
}

#[test]
fn p_019_and_p_020_an_allocation_is_stopped_by_its_id() {
    let order = put(&format!("allocation/{ALLOCATION}/stop?no_shutdown_delay=true"), &json!({})).expect("an order");
    let wanted = json!({ "migrate": true, "noShutdownDelay": true, "reschedule": false });
    assert_eq!(patch(&order)["spec"]["desiredTransition"], wanted);
    assert_eq!(demands(&order), ["create allocations/stop web-g-0"]);
    let answer = order.answer(&written(Kind::Allocation, ALLOCATION, 4));
    assert_eq!(answer["EvalID"], json!(evaluation_id::of_stop(UID, ALLOCATION, 4)));
    assert_eq!(refusal(&format!("allocation/{NODE}/stop"), &json!({})).0, 404);
}

/// The evaluation with an id, as clients read it.
fn evaluation(world: &World, id: &str) -> Option<Value> {
    awaited::find(world, "default", id).map(|found| full(&found, world))
}

#[test]
fn g_036_and_g_037_an_evaluation_is_pending_until_its_state_was_seen_and_leads_to_the_one_that_saw_it() {
    let mut world = world("running");
    let id = |generation| evaluation_id::of_point(UID, Point { generation, asked: 0 });
    let of = |world: &World, id: &str| evaluation(world, id).expect("an evaluation");
    // Generation 3 is registered, and the leader has only seen 2.
    let awaited = of(&world, &id(3));
    assert_eq!((&awaited["Status"], &awaited["TriggeredBy"]), (&json!("pending"), &json!("job-register")));
    let first = evaluation_id::of_leader(UID, "e-1", 0);
    for earlier in [1, 2] {
        let seen = of(&world, &id(earlier));
        assert_eq!((&seen["Status"], &seen["NextEval"]), (&json!("complete"), &json!(first)), "{earlier}");
        assert_eq!(seen["DeploymentID"], DEPLOYMENT);
    }
    assert!(evaluation(&world, &id(4)).is_none() && evaluation(&world, "e-1").is_none());
    // Its own record has the same id.
    let mut job = Job::clone(world.jobs.named("default", "web").expect("the job"));
    let record = |generation: i64, asked: i64, id: &str| {
        json!({ "id": id, "trigger": "job-register", "status": "complete", "priority": 50, "generation": generation,
                "asked": asked, "time": "2026-01-01T00:00:01Z", "deploymentName": "web-d1" })
    };
    job.status = serde_json::from_value(json!({ "evaluations": [record(3, 0, &id(3))] })).expect("a status");
    world.jobs.put(job.clone());
    let own = of(&world, &id(3));
    assert_eq!(
        (&own["Status"], &own["NextEval"], &own["DeploymentID"]),
        (&json!("complete"), &json!(""), &json!(DEPLOYMENT))
    );
    // Two that were asked for without a change: the second has done the work of both.
    let asked = |asked| evaluation_id::of_point(UID, Point { generation: 3, asked });
    job.metadata.annotations = Some([("drover.dev/evaluate".to_owned(), "2".to_owned())].into());
    world.jobs.put(job.clone());
    assert_eq!(of(&world, &asked(1))["Status"], "pending");
    job.status = serde_json::from_value(json!({ "evaluations": [record(3, 2, &asked(2))] })).expect("a status");
    world.jobs.put(job.clone());
    assert_eq!(of(&world, &asked(1))["NextEval"], json!(asked(2)));
    // A job that is purged is gone, and what clients wait for is still found, though no status tells of it.
    job.metadata.annotations = Some([("drover.dev/evaluate".to_owned(), "3".to_owned())].into());
    world.jobs.put(job.clone());
    assert_eq!(of(&world, &asked(3))["Status"], "pending");
    world.jobs.remove(&job);
    let gone = of(&world, &asked(3));
    assert_eq!((&gone["Status"], &gone["NextEval"]), (&json!("complete"), &json!("")));
    assert_eq!(of(&world, &asked(2))["Status"], "complete");
    assert!(awaited::find(&world, "shop", &asked(2)).is_none(), "of another namespace");
    // The allocations of an evaluation.
    let placed = awaited::find(&world, "default", &asked(2)).expect("an evaluation");
    assert!(awaited::allocations(&world, &placed).is_empty());
    let mut allocation = drover_api::Allocation::clone(world.allocations.with_uid(ALLOCATION).expect("one"));
    allocation.spec = serde_json::from_value({
        let mut spec = json!(allocation.spec);
        spec["evalID"] = json!(asked(2));
        spec
    })
    .expect("a spec");
    world.allocations.put(allocation);
    assert_eq!(awaited::allocations(&world, &placed_again(&world, &asked(2))).len(), 1);
}

fn placed_again<'a>(world: &'a World, id: &str) -> crate::wire::evaluation::Evaluation<'a> {
    awaited::find(world, "default", id).expect("an evaluation")
}

#[test]
fn a_stop_and_a_request_are_evaluated_when_their_objects_show_it() {
    let mut world = world("running");
    let mut allocation = drover_api::Allocation::clone(world.allocations.with_uid(ALLOCATION).expect("one"));
    allocation.spec.desired_transition.migrate = true;
    let stop = evaluation_id::of_stop(UID, ALLOCATION, 3);
    world.allocations.put(allocation.clone());
    let found = evaluation(&world, &stop).expect("an evaluation");
    assert_eq!((&found["Status"], &found["TriggeredBy"]), (&json!("pending"), &json!("alloc-stop")));
    allocation.spec.desired_status = drover_api::allocation::DesiredStatus::Stop;
    world.allocations.put(allocation);
    assert_eq!(evaluation(&world, &stop).expect("an evaluation")["Status"], "complete");
    let request = evaluation_id::of_request(UID, DEPLOYMENT, 3);
    let found = evaluation(&world, &request).expect("an evaluation");
    assert_eq!((&found["Status"], &found["DeploymentID"]), (&json!("complete"), &json!(DEPLOYMENT)));
}
