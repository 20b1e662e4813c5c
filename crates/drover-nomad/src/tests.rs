//! Answers from a small cluster.

mod search;

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::endpoint::Endpoint;
use crate::route::{Route, read};
use crate::{
    AgentFacts, Counted, Fault, Form, Query, Reach, Reply, Resource, Right, Scope, Scopes, Verb, View, World, answer,
    index, is_down, needed, placed,
};

const NODE: &str = "00000000-0000-0000-0000-0000000000f1";

fn meta(namespace: &str, name: &str, uid: &str, version: u64) -> Value {
    json!({
        "namespace": namespace, "name": name, "uid": uid, "resourceVersion": version.to_string(), "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    })
}

fn object<K: DeserializeOwned>(kind: &str, metadata: &Value, spec: &Value, status: &Value) -> K {
    let object = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec, "status": status,
    });
    serde_json::from_value(object).expect(kind)
}

fn allocation(namespace: &str, name: &str, uid: &str, status: &str) -> drover_api::Allocation {
    let spec = json!({
        "jobName": "web", "jobUID": format!("job-{namespace}"), "jobVersion": 2, "group": "api", "index": 0,
        "nodeName": "n-1", "deploymentName": "web-d1", "canary": true, "desiredTransition": { "migrate": true },
        "resources": {
            "tasks": { "t": { "cpu": 100, "memoryMB": 300 } }, "diskMB": 300,
            "ports": [{ "label": "http", "value": 21_034, "to": 8080, "hostIP": "10.0.0.7" }],
        },
        "metrics": { "nodesEvaluated": 4, "scoreMetaData": [
            { "node": "n-1", "scores": { "binpack": 0.5 }, "normScore": 0.5 },
        ] },
    });
    let event = json!({ "type": "Started", "time": "2026-01-01T00:00:01Z", "message": "" });
    let status = json!({
        "clientStatus": status, "modifiedAt": "2026-01-01T00:00:02Z",
        "taskStates": { "t": { "state": "running", "startedAt": "2026-01-01T00:00:01Z", "events": [event] } },
    });
    object("Allocation", &meta(namespace, name, uid, 20), &spec, &status)
}

fn job(namespace: &str, name: &str, id: &str) -> drover_api::Job {
    let spec = json!({ "id": id, "groups": [{ "name": "api", "tasks": [] }], "meta": { "team": "shop" } });
    let failed = json!({ "api": { "nodesEvaluated": 1, "constraintFiltered": { "x": 1 } } });
    let evaluation = |id: &str, status: &str, failed: &Value| {
        json!({ "id": id, "trigger": "job-register", "status": status, "priority": 50,
                "time": "2026-01-01T00:00:00Z", "failed": failed })
    };
    let status = json!({
        "phase": "running", "version": 2, "stable": true,
        "summary": { "api": { "running": 1, "queued": 2 } },
        "evaluations": [evaluation("c-2", "blocked", &failed), evaluation("c-1", "complete", &json!({}))],
        "blocked": { "id": "c-2", "since": "2026-01-01T00:00:05Z", "failed": failed },
    });
    object("Job", &meta(namespace, name, &format!("{name}-{namespace}"), 10), &spec, &status)
}

/// The namespaces `default` and `shop`, each with a job `a/b`, one allocation and one deployment, and a node.
fn world() -> World {
    let mut world = World::default();
    for space in ["default", "shop"] {
        let mut web = job(space, "web", "a/b");
        web.metadata.uid = Some(format!("job-{space}"));
        world.jobs.put(web);
        world.allocations.put(allocation(space, "web-api-0", &format!("{space}-alloc"), "running"));
        let version = json!({ "jobName": "web", "jobUID": format!("job-{space}"), "version": 2, "groupNames": "api",
                              "job": { "id": "a/b", "groups": [] }, "submittedAt": "2026-01-01T00:00:00Z" });
        world.versions.put(object("JobVersion", &meta(space, "web-v2", "v", 9), &version, &json!({ "stable": true })));
        let spec = json!({ "jobName": "web", "jobUID": format!("job-{space}"), "jobVersion": 2 });
        let group = json!({ "desiredTotal": 1, "placedCanaries": ["web-api-0"], "progressDeadline": "10m" });
        let status = json!({ "phase": "running", "description": "NeedsPromotion", "groups": { "api": group } });
        let deployment = meta(space, "web-d1", &format!("{space}-deployment"), 30);
        world.deployments.put(object("Deployment", &deployment, &spec, &status));
        let volume = json!({ "id": "data[0]", "pluginID": "ebs", "capabilities": [], "secretsRef": { "name": "top" } });
        let claim = json!({ "allocID": format!("{space}-alloc"), "nodeName": "n-1", "mode": "write" });
        let snapshot = json!({ "id": "snap-7", "name": "nightly", "createdAt": "2026-01-01T00:00:00Z",
                               "sizeBytes": 7, "readyToUse": true });
        let status = json!({ "phase": "claimed", "claims": [claim], "schedulable": true, "externalID": "vol-1",
                             "snapshots": [snapshot] });
        world.volumes.put(object("CSIVolume", &meta(space, "data-0", "vol", 40), &volume, &status));
        let capability = json!({ "accessMode": "single-node-writer", "attachmentMode": "file-system" });
        let folder = json!({ "name": "ledger", "plugin": "mkdir", "parameters": { "mode": "0700" },
                             "capacity": { "min": "1Gi" }, "capabilities": [capability],
                             "constraints": [{ "lTarget": "${node.class}", "operand": "=", "rTarget": "ssd" }] });
        let status = json!({ "phase": "ready", "nodeName": "n-1" });
        let id = format!("{space}-folder");
        world.host_volumes.put(object("HostVolume", &meta(space, "ledger-1", &id, 45), &folder, &status));
        world.namespaces.put(serde_json::from_value(json!({ "metadata": { "name": space } })).expect("a namespace"));
    }
    let csi = json!({ "ebs": { "controller": true, "node": true, "healthy": true, "allocID": "shop-alloc" } });
    let status = json!({
        "phase": "ready",
        "fingerprint": {
            "attributes": { "kernel.name": "linux", "os.name": "debian" }, "csi": csi,
            "resources": { "cpu": 4000, "memoryMB": 8192, "diskMB": 1000, "cores": 2 },
            "drivers": { "exec": { "detected": true, "healthy": true } },
        },
    });
    let mut node = meta("", "n-1", NODE, 50);
    node.as_object_mut().expect("an object").remove("namespace");
    world.nodes.put(object("ClientNode", &node, &json!({}), &status));
    world
}

/// What is answered to a caller who may see these namespaces.
fn ask_as(spaces: Option<&[&str]>, path: &str) -> Result<Value, Fault> {
    let (path, text) = path.split_once('?').unwrap_or((path, ""));
    let Route::Read(endpoint) = read(&http::Method::GET, path)? else { panic!("no read") };
    reply(spaces, &endpoint, text)
}

fn reply(spaces: Option<&[&str]>, endpoint: &Endpoint, text: &str) -> Result<Value, Fault> {
    reply_of(&world(), spaces, endpoint, text)
}

fn reply_of(world: &World, spaces: Option<&[&str]>, endpoint: &Endpoint, text: &str) -> Result<Value, Fault> {
    let query = Query::parse(text)?;
    let endpoint = &endpoint.clone().with(&query);
    let scope = |resource: Resource| {
        let scope = match (resource, spaces, query.namespaces()) {
            (Resource::Nodes, ..) | (_, None, crate::Asked::All) => Scope::All,
            (_, Some(spaces), _) => Scope::Some(spaces.iter().map(|it| (*it).to_owned()).collect()),
            (_, None, crate::Asked::One(name)) => Scope::Some([name].into()),
        };
        (resource, scope)
    };
    let scopes: BTreeMap<Resource, Scope> =
        needed(endpoint, &query).into_iter().map(|right| scope(right.resource)).collect();
    let facts = AgentFacts::default();
    let view = View { world, query: &query, scopes: &Scopes(scopes), facts: &facts };
    Ok(serde_json::from_slice(&answer(endpoint, view)?.body.into_inner().concat()).expect("JSON"))
}

fn ask(path: &str) -> Value {
    ask_as(None, path).expect(path)
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn ids<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().expect("a list").iter().filter_map(|it| it[key].as_str()).collect()
}

#[test]
fn stubs_of_allocations_have_every_key_of_the_specification_and_resources_when_they_are_asked_for() {
    let stub = &ask("allocations")[0];
    let mut found = keys(stub);
    let mut wanted: Vec<&str> =
        "ID EvalID Name Namespace NodeID NodeName JobID JobType JobVersion TaskGroup DesiredStatus \
        DesiredDescription ClientStatus ClientDescription DesiredTransition TaskStates DeploymentStatus FollowupEvalID \
        NextAllocation RescheduleTracker PreemptedAllocations PreemptedByAllocation CreateIndex ModifyIndex CreateTime \
        ModifyTime"
            .split_whitespace()
            .collect();
    found.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
    assert_eq!((&stub["Name"], &stub["JobID"]), (&json!("a/b.api[0]"), &json!("a/b")));
    assert_eq!((&stub["NodeID"], &stub["NodeName"]), (&json!(NODE), &json!("n-1")));
    assert_eq!(stub["DesiredTransition"]["Migrate"], true);
    assert_eq!(stub["DesiredTransition"]["Reschedule"], Value::Null);
    assert_eq!(stub["DeploymentStatus"]["Canary"], true);
    assert_eq!(stub["TaskStates"]["t"]["Events"][0]["DisplayMessage"], "Started");
    assert_eq!(stub["TaskStates"]["t"]["FinishedAt"], "0001-01-01T00:00:00Z");
    assert_eq!(stub["CreateIndex"], 1_767_225_600);
    assert_eq!(stub["ModifyTime"], 1_767_225_602_000_000_000_i64);

    let with = &ask("allocations?resources=true")[0];
    assert_eq!(with["AllocatedResources"]["Tasks"]["t"]["Memory"]["MemoryMB"], 300);
    assert_eq!(with["AllocatedResources"]["Shared"]["Ports"][0]["HostIP"], "10.0.0.7");
    assert!(with["TaskStates"].is_object());
    let without = &ask("allocations?task_states=false")[0];
    assert!(without["TaskStates"].is_null() && without.get("AllocatedResources").is_none());
}

#[test]
fn a_whole_allocation_has_scores_and_leaves_out_what_has_no_value() {
    let found = ask("allocation/default-alloc");
    assert_eq!(found["Metrics"]["ScoreMetaData"][0]["NodeID"], NODE);
    assert_eq!(found["DeploymentID"], "default-deployment");
    assert_eq!(found["Job"]["Version"], 2);
    for key in ["EvalID", "PreviousAllocation", "NetworkStatus", "SignedIdentities", "PreemptedAllocations"] {
        assert!(found.get(key).is_none(), "{key}");
    }
}

#[test]
fn a_list_of_all_namespaces_holds_those_that_the_caller_may_see_and_a_single_read_looks_in_one() {
    assert_eq!(ids(&ask("allocations?namespace=*"), "Namespace"), ["default", "shop"]);
    assert_eq!(ids(&ask("allocations?namespace=shop"), "Namespace"), ["shop"]);
    let seen = ask_as(Some(&["shop"]), "allocations?namespace=*").expect("a list");
    assert_eq!(ids(&seen, "Namespace"), ["shop"]);
    let of = |path: &str| ask_as(None, path).map_err(|fault| fault.code).map(|it| it["Namespace"].clone());
    assert_eq!(of("allocation/default-alloc?namespace=*"), Ok(json!("default")));
    assert_eq!(of("allocation/shop-alloc?namespace=*"), Err(404));
    assert_eq!(of("allocation/shop-alloc?namespace=shop"), Ok(json!("shop")));
    assert_eq!(of("job/a%2Fb"), of("job/a/b"));
}

#[test]
fn what_is_unknown_is_404_and_lists_of_it_are_empty() {
    for path in [
        "allocation/u",
        "node/u",
        "deployment/u",
        "job/u",
        "volume/csi/u",
        "volume/host/u",
        "volume/host/shop-folder",
        "plugin/csi/u",
        "evaluation/u",
        "job/u/summary",
        "job/u/versions",
        "deployment/allocations/u",
        "node/u/allocations",
    ] {
        let fault = ask_as(None, path).expect_err(path);
        assert!(fault.code == 404 && fault.message.contains("not found"), "{path}: {fault}");
    }
    for path in ["job/u/allocations", "job/u/evaluations", "job/u/deployments", "plugins", "volumes?type=tape"] {
        assert_eq!(ask(path), json!([]), "{path}");
    }
    assert_eq!(ask("job/u/deployment"), Value::Null);
}

#[test]
fn jobs_have_summaries_evaluations_versions_and_deployments() {
    let stub = &ask("jobs")[0];
    assert_eq!((&stub["ID"], &stub["JobSummary"]["Summary"]["api"]["Queued"]), (&json!("a/b"), &json!(2)));
    assert!(stub.get("Meta").is_none() && ask("jobs?meta=true")[0]["Meta"]["team"] == "shop");
    assert_eq!(ask("job/a/b/summary")["Children"]["Dead"], 0);
    let versions = ask("job/a/b/versions");
    assert_eq!((&versions["Versions"][0]["Version"], &versions["Diffs"]), (&json!(2), &Value::Null));
    assert_eq!(ids(&ask("job/a/b/allocations"), "ID"), ["default-alloc"]);
    let deployment = ask("job/a/b/deployment");
    assert_eq!(deployment["StatusDescription"], "in progress, canaries wait for manual promotion");
    assert_eq!(deployment["TaskGroups"]["api"]["PlacedCanaries"], json!(["default-alloc"]));
    assert_eq!(deployment["TaskGroups"]["api"]["ProgressDeadline"], 600_000_000_000_i64);
    assert_eq!(ids(&ask("deployment/allocations/default-deployment"), "ID"), ["default-alloc"]);
    assert_eq!(ids(&ask("deployments"), "ID"), ["default-deployment"]);
}

#[test]
fn a_whole_job_has_groups_and_tasks_and_a_dispatch_has_those_of_its_parent() {
    let task = json!({ "name": "t", "driver": "exec", "config": { "command": "/bin/true" } });
    let parent = json!({ "type": "batch", "parameterized": {}, "groups": [{ "name": "g", "tasks": [task] }] });
    let mut world = World::default();
    world.jobs.put(object("Job", &meta("default", "report", "u-1", 5), &parent, &json!({ "phase": "running" })));
    let child = json!({ "id": "report/dispatch-1", "dispatch": { "parent": "report" } });
    world.jobs.put(object("Job", &meta("default", "report-1", "u-2", 6), &child, &json!({ "phase": "dead" })));
    let of = |endpoint: &Endpoint, text: &str| reply_of(&world, None, endpoint, text).expect("an answer");
    let whole = of(&Endpoint::Job("report/dispatch-1".to_owned()), "");
    assert_eq!(whole["TaskGroups"][0]["Tasks"][0]["Config"]["command"], "/bin/true");
    assert_eq!(
        (&whole["ParentID"], &whole["Type"], &whole["Status"]),
        (&json!("report"), &json!("batch"), &json!("dead"))
    );
    assert_eq!(
        (&whole["Dispatched"], &whole["ModifyIndex"], &whole["JobModifyIndex"]),
        (&json!(true), &json!(6), &json!(3))
    );
    // What the command line asks before it dispatches.
    let parents = of(&Endpoint::Jobs, "filter=ParentID+%3D%3D+%22%22+and+ParameterizedJob+is+not+nil");
    assert_eq!(ids(&parents, "ID"), ["report"]);
    assert_eq!(parents[0]["ParameterizedJob"], true);
    assert_eq!(of(&Endpoint::Jobs, "filter=Periodic+is+not+nil"), json!([]));
    assert_eq!(of(&Endpoint::Jobs, "prefix=report/")[0]["Type"], "batch");
}

#[test]
fn evaluations_are_those_of_the_jobs_and_the_one_that_waits_is_named_by_the_others() {
    let all = ask("evaluations");
    let statuses = ids(&all, "Status");
    assert_eq!(statuses.iter().filter(|it| **it == "blocked").count(), 1);
    let waits = ask("evaluations?status=blocked");
    let failed =
        all.as_array().expect("a list").iter().find(|it| it["Status"] == "complete" && !it["FailedTGAllocs"].is_null());
    let failed = failed.expect("one that did not place all");
    assert_eq!((&failed["BlockedEval"], &waits[0]["PreviousEval"]), (&waits[0]["ID"], &failed["ID"]));
    assert_eq!(failed["FailedTGAllocs"]["api"]["ConstraintFiltered"]["x"], 1);
    let id = failed["ID"].as_str().expect("an id");
    assert_eq!(ask(&format!("evaluation/{id}")), *failed);
    assert_eq!(ask("job/a/b/evaluations").as_array().map(Vec::len), Some(3));
    assert_eq!(ask("evaluations?job=none"), json!([]));
}

#[test]
fn an_evaluation_has_those_before_and_behind_it_where_they_are_asked_for_and_all_are_counted() {
    let waits = &ask("evaluations?status=blocked&namespace=default")[0];
    let (id, before) = (waits["ID"].as_str().expect("an id"), &waits["PreviousEval"]);
    assert_eq!(waits["RelatedEvals"], Value::Null);
    let whole = ask(&format!("evaluation/{id}?related=true"));
    let related = whole["RelatedEvals"].as_array().expect("a list");
    assert_eq!((related.len(), &related[0]["ID"], &related[0]["BlockedEval"]), (1, before, &waits["ID"]));
    assert!(related[0].get("FailedTGAllocs").is_none() && related[0]["Status"] == "complete");
    let other = ask(&format!("evaluation/{}?related=true", before.as_str().expect("an id")));
    assert_eq!(
        (other["RelatedEvals"].as_array().map(Vec::len), &other["RelatedEvals"][0]["ID"]),
        (Some(1), &waits["ID"])
    );
    assert_eq!(ask("evaluations/count"), json!({ "Count": 3 }));
    assert_eq!(ask("evaluations/count?status=blocked&per_page=1"), json!({ "Count": 1 }));
    assert_eq!(ask("evaluations/count?filter=Status+%3D%3D+%22complete%22"), json!({ "Count": 2 }));
}

#[test]
fn pools_are_those_that_nodes_name_and_two_that_are_always_there() {
    assert_eq!(ids(&ask("node/pools"), "Name"), ["all", "default"]);
    assert_eq!(ids(&ask("node/pools?prefix=d"), "Name"), ["default"]);
    assert_eq!(ask("node/pool/default")["Description"], "Default node pool.");
    for (pool, n_nodes, n_jobs) in [("all", 1, 0), ("default", 1, 1)] {
        let n = |path: &str| ask(&format!("node/pool/{pool}/{path}")).as_array().map(Vec::len);
        assert_eq!((n("nodes"), n("jobs")), (Some(n_nodes), Some(n_jobs)), "{pool}");
    }
    for path in ["node/pool/gpu", "node/pool/gpu/nodes"] {
        assert_eq!(ask_as(None, path).map_or_else(|fault| fault.code, |_| 200), 404, "{path}");
    }
    assert_eq!(ask("node/pool/gpu/jobs"), json!([]));
}

#[test]
fn p_010_a_filter_beside_a_status_is_refused() {
    let code = |path: &str| ask_as(None, path).map_or_else(|fault| fault.code, |_| 200);
    assert_eq!(code("evaluations?status=blocked&filter=Status+%3D%3D+%22blocked%22"), 400);
    assert_eq!(code("evaluations?filter=Status+%3D%3D+%22blocked%22"), 200);
}

#[test]
fn filters_look_at_the_whole_object() {
    let of = |filter: &str| {
        let path = format!("allocations?namespace=*&filter={}", filter.replace(' ', "+").replace('&', "%26"));
        ids(&ask(&path), "Namespace").join(" ")
    };
    assert_eq!(of("ClientStatus == \"running\" and JobID matches \"^a/\""), "default shop");
    assert_eq!(of("DeploymentID == \"shop-deployment\""), "shop");
    assert_eq!(of("TaskStates[\"t\"].State == \"dead\""), "");
    assert_eq!(of("Metrics.NodesEvaluated == 4 and Namespace != shop"), "default");
}

#[test]
fn host_volumes_are_listed_by_their_own_ids_with_their_nodes_and_those_who_use_them() {
    let stub = &ask("volumes?type=host")[0];
    let expected = json!({
        "ID": "default-folder", "Namespace": "default", "Name": "ledger", "PluginID": "mkdir", "NodeID": NODE,
        "NodePool": "default", "State": "ready", "CapacityBytes": 0, "CreateIndex": 1_767_225_600,
        "CreateTime": 1_767_225_600_000_000_000_i64, "ModifyIndex": 45, "ModifyTime": 1_767_225_600_000_000_000_i64,
    });
    assert_eq!(*stub, expected);
    let all = "volumes?type=host&namespace=*";
    assert_eq!(ids(&ask(all), "ID"), ["default-folder", "shop-folder"]);
    assert_eq!(ids(&ask(&format!("{all}&prefix=shop")), "ID"), ["shop-folder"]);
    assert_eq!(ids(&ask(&format!("volumes?type=host&node_id={NODE}")), "ID"), ["default-folder"]);
    for none in ["node_id=u", "plugin_id=none", "filter=State+%3D%3D+pending"] {
        assert_eq!(ask(&format!("volumes?type=host&{none}")), json!([]), "{none}");
    }
    let full = ask("volume/host/default-folder");
    assert_eq!((&full["RequestedCapacityMinBytes"], &full["Parameters"]["mode"]), (&json!(1 << 30), &json!("0700")));
    assert_eq!(full["Constraints"], json!([{ "LTarget": "${node.class}", "RTarget": "ssd", "Operand": "=" }]));
    assert_eq!((&full["HostPath"], &full["Allocations"]), (&json!(""), &json!([])));

    let mut with_one = world();
    let mut user = allocation("default", "web-api-0", "default-alloc", "running");
    user.spec.host_volumes = [("data".to_owned(), "default-folder".to_owned())].into();
    with_one.allocations.put(user);
    let endpoint = Endpoint::HostVolume("default-folder".to_owned());
    let of =
        |spaces: &[&str]| reply_of(&with_one, Some(spaces), &endpoint, "").expect("a volume")["Allocations"].clone();
    assert_eq!((ids(&of(&["default"]), "ID").len(), of(&["shop"])), (1, json!([])));
}

#[test]
fn snapshots_are_those_that_volumes_of_a_plugin_have_in_their_status() {
    let told = ask("volumes/snapshot?plugin_id=ebs");
    let expected = json!({
        "ID": "snap-7", "Name": "nightly", "SourceVolumeID": "data[0]", "ExternalSourceVolumeID": "vol-1",
        "PluginID": "ebs", "SizeBytes": 7, "CreateTime": 1_767_225_600, "IsReady": true, "Secrets": {}, "Parameters": {},
    });
    assert_eq!(told, json!({ "Snapshots": [expected], "NextToken": "" }));
    assert_eq!(ask("volumes/snapshot?plugin_id=none")["Snapshots"], json!([]));
    let all = ask("volumes/snapshot?plugin_id=ebs&namespace=*&per_page=1");
    assert_eq!((ids(&all["Snapshots"], "ID").len(), &all["NextToken"]), (1, &json!("snap-7")));
    let unseen = ask_as(Some(&["shop"]), "volumes/snapshot?plugin_id=ebs&namespace=*").expect("a list");
    assert_eq!(ids(&unseen["Snapshots"], "ID").len(), 1);
    let fault = ask_as(None, "volumes/snapshot").expect_err("no plugin");
    assert!(fault.code == 400 && fault.message.contains("plugin_id"), "{fault}");
}

#[test]
fn what_a_provider_has_is_listed_once_by_its_id_with_the_nodes_that_have_it() {
    let told = ask("volumes/external?plugin_id=ebs&namespace=*");
    let expected = json!({
        "ExternalID": "vol-1", "CapacityBytes": 0, "VolumeContext": {}, "CloneID": "", "SnapshotID": "",
        "PublishedExternalNodeIDs": [], "IsAbnormal": false, "Status": "",
    });
    assert_eq!(told, json!({ "Volumes": [expected], "NextToken": "" }), "two namespaces know it");
    let mut world = world();
    let claim = |node: &str, attach: &str| json!({ "allocID": node, "nodeName": node, "mode": "read", "attach": attach, "externalNodeID": node });
    for (name, id, context) in [("a", "vol-1", json!({})), ("b", "vol-2", json!({ "tier": "2" })), ("c", "", json!({}))]
    {
        let spec = json!({ "id": name, "pluginID": "ebs", "capabilities": [], "externalID": id,
                           "context": { "tier": "1" } });
        let claims = [claim("i-2", "attached"), claim("i-1", "attached"), claim("i-3", "pending")];
        let status = json!({ "phase": "claimed", "claims": claims, "capacity": "1Ki", "context": context });
        world.volumes.put(object("CSIVolume", &meta("shop", name, name, 50), &spec, &status));
    }
    let of = |text: &str| -> Value {
        let query = format!("plugin_id=ebs&namespace=shop&{text}");
        reply_of(&world, None, &Endpoint::ExternalVolumes, &query).expect("a list")
    };
    let (all, shop) = (of(""), of("filter=CapacityBytes+==+1024"));
    assert_eq!(ids(&all["Volumes"], "ExternalID"), ["vol-1", "vol-2"], "one that is not made yet is none");
    assert_eq!(all["Volumes"][1]["VolumeContext"], json!({ "tier": "2" }), "as the provider made it");
    assert_eq!(shop["Volumes"][0]["PublishedExternalNodeIDs"], json!(["i-1", "i-2"]));
    let first = of("per_page=1");
    assert_eq!((ids(&first["Volumes"], "ExternalID"), &first["NextToken"]), (vec!["vol-1"], &json!("vol-2")));
    assert_eq!(ids(&of("next_token=vol-2")["Volumes"], "ExternalID"), ["vol-2"]);
    let unseen = ask_as(Some(&[]), "volumes/external?plugin_id=ebs&namespace=*").expect("a list");
    assert_eq!(unseen["Volumes"], json!([]));
    let fault = ask_as(None, "volumes/external").expect_err("no plugin");
    assert!(fault.code == 400 && fault.message.contains("plugin_id"), "{fault}");
}

#[test]
fn nodes_plugins_and_volumes() {
    let stub = &ask("nodes")[0];
    assert_eq!((&stub["ID"], &stub["Status"], &stub["Drain"]), (&json!(NODE), &json!("ready"), &json!(false)));
    assert!(stub.get("NodeResources").is_none() && stub.get("Attributes").is_none());
    let with = &ask("nodes?resources=true&os=true")[0];
    assert_eq!(with["NodeResources"]["Cpu"]["CpuShares"], 4000);
    assert_eq!(with["ReservedResources"]["Memory"]["MemoryMB"], 0);
    assert_eq!(with["Attributes"]["os.name"], "debian");
    let node = ask(&format!("node/{NODE}"));
    assert_eq!((&node["HTTPAddr"], &node["CSINodePlugins"]["ebs"]["Healthy"]), (&json!(""), &json!(true)));
    assert!(node.get("SecretID").is_none());
    let on = ask_as(Some(&["shop"]), &format!("node/{NODE}/allocations")).expect("a list");
    assert_eq!(ids(&on, "Namespace"), ["shop"]);

    let plugins = ask("plugins?type=csi");
    assert_eq!((&plugins[0]["ID"], &plugins[0]["NodesHealthy"]), (&json!("ebs"), &json!(1)));
    let plugin = |spaces: &[&str]| ask_as(Some(spaces), "plugin/csi/ebs").expect("a plugin")["Allocations"].clone();
    assert_eq!((plugin(&["default"]), ids(&plugin(&["shop"]), "ID").len()), (json!([]), 1));

    let volume = ask("volume/csi/data[0]");
    assert_eq!(volume["WriteAllocs"], json!({ "default-alloc": null }));
    assert_eq!((&volume["Secrets"], &volume["Allocations"][0]["ID"]), (&json!({}), &json!("default-alloc")));
    assert!(!volume.to_string().contains("top"), "{volume}");
    assert_eq!(ask("volumes?type=csi")[0]["CurrentWriters"], 1);
    assert_eq!(ids(&ask("volumes?plugin_id=ebs"), "ID"), ["data[0]"]);
    assert_eq!(ask("volumes?plugin_id=none"), json!([]));
    assert_eq!(ids(&ask_as(Some(&["shop"]), "namespaces").expect("a list"), "Name"), ["shop"]);
    assert_eq!(ask("regions"), json!(["global"]));
    assert_eq!(ask("agent/self")["config"]["Region"], "global");
}

#[test]
fn the_index_of_a_list_is_that_of_its_kind_and_of_an_object_its_own() {
    let mut world = world();
    world.allocations.put(allocation("shop", "other", "u-9", "running"));
    let mut later = allocation("shop", "later", "u-10", "running");
    later.metadata.resource_version = Some("77".to_owned());
    world.allocations.put(later);
    let query = Query::parse("namespace=shop").expect("a query");
    let of = |path: &str| {
        let Route::Read(endpoint) = read(&http::Method::GET, path).expect(path) else { panic!("no read") };
        index(&endpoint, &query, &world)
    };
    assert_eq!((of("allocations"), of("allocation/u-9"), of("allocation/none")), (Some(77), Some(20), Some(77)));
    assert_eq!(
        (of("job/web/allocations"), of("job/a/b"), of("nodes"), of("regions")),
        (Some(77), Some(10), Some(50), None)
    );
}

#[test]
fn an_allocation_is_found_with_its_node_in_its_own_namespace_and_nowhere_else() {
    let mut world = world();
    let find = |world: &World, text: &str, id: &str| placed(world, &Query::parse(text).expect("a query"), id);
    let found = find(&world, "namespace=shop", "shop-alloc").expect("an allocation");
    assert_eq!((found.name.as_str(), found.node.as_str(), found.namespace.as_str()), ("web-api-0", "n-1", "shop"));
    assert_eq!((found.shown_name.as_str(), found.core_mhz.to_bits()), ("a/b.api[0]", 2000.0_f64.to_bits()));
    for (text, id) in
        [("", "shop-alloc"), ("namespace=*", "shop-alloc"), ("namespace=shop", "default-alloc"), ("", "d")]
    {
        assert_eq!(find(&world, text, id).map_err(|fault| fault.code), Err(404), "{text} {id}");
    }
    assert!(!is_down(&world, "n-1") && !is_down(&world, "n-9"));
    let mut node = meta("", "n-1", NODE, 51);
    node.as_object_mut().expect("an object").remove("namespace");
    world.nodes.put(object("ClientNode", &node, &json!({}), &json!({ "phase": "down" })));
    assert!(is_down(&world, "n-1"));
    let found = find(&world, "namespace=shop", "shop-alloc").expect("an allocation");
    assert_eq!(found.core_mhz.to_bits(), 0.0_f64.to_bits(), "how fast it is is not known");
}

#[test]
fn checks_and_services_of_an_allocation_are_those_that_its_agent_has_reported() {
    assert_eq!(ask_as(None, "allocation/default-alloc/checks"), Ok(Value::Null));
    assert_eq!(ask_as(None, "allocation/default-alloc/services"), Ok(json!([])));
    for path in ["allocation/shop-alloc/checks", "allocation/shop-alloc/services"] {
        assert_eq!(ask_as(None, path).map_err(|fault| fault.code), Err(404), "{path}");
    }
    let service = json!({ "name": "web", "portLabel": "http", "tags": ["blue"] });
    let group = json!({ "name": "api", "services": [service], "tasks": [{ "name": "t", "driver": "exec" }] });
    let version = json!({ "jobName": "web", "jobUID": "job-default", "version": 2, "groupNames": "api",
                          "job": { "id": "a/b", "groups": [group] }, "submittedAt": "2026-01-01T00:00:00Z" });
    let mut world = world();
    world.versions.put(object("JobVersion", &meta("default", "web-v2", "v", 61), &version, &json!({})));
    let mut known = allocation("default", "web-api-0", "default-alloc", "running");
    let status = known.status.as_mut().expect("a status");
    let check = json!({ "check": "up", "service": "web", "status": "failure", "mode": "readiness" });
    status.checks.insert("c".to_owned(), serde_json::from_value(check).expect("a check"));
    let id = "_nomad-task-default-alloc-group-api-web-http";
    for id in [id, "of-an-earlier-version"] {
        let reported = json!({ "id": id, "serviceName": "web", "ready": true, "address": "10.9.9.9", "port": 22 });
        status.services.push(serde_json::from_value(reported).expect("a service"));
    }
    world.allocations.put(known);
    let ask = |endpoint: Endpoint| reply_of(&world, None, &endpoint, "").expect("an answer");
    let checks = ask(Endpoint::AllocationChecks("default-alloc".to_owned()));
    assert_eq!((&checks["c"]["Status"], &checks["c"]["Group"]), (&json!("failure"), &json!("a/b.api[0]")));
    let services = ask(Endpoint::AllocationServices("default-alloc".to_owned()));
    assert_eq!(services.as_array().map(Vec::len), Some(1), "{services}");
    let service = &services[0];
    assert_eq!((&service["ID"], &service["Tags"], &service["JobID"]), (&json!(id), &json!(["blue"]), &json!("a/b")));
    assert_eq!((&service["Address"], &service["Port"]), (&json!("10.0.0.7"), &json!(21_034)), "what was assigned");
}

#[test]
fn each_group_with_limits_has_a_policy_which_is_found_by_its_id() {
    let mut world = world();
    let mut scaled = job("shop", "scaled", "scaled");
    let group = json!({ "name": "g", "count": 3, "tasks": [],
                        "scaling": { "min": 2, "enabled": false, "policy": { "cooldown": "1m" } } });
    scaled.spec.groups.push(serde_json::from_value(group).expect("a group"));
    world.jobs.put(scaled);
    let of = |spaces: Option<&[&str]>, path: &str| {
        let (path, text) = path.split_once('?').unwrap_or((path, ""));
        let Route::Read(endpoint) = read(&http::Method::GET, path)? else { panic!("no read") };
        reply_of(&world, spaces, &endpoint, text)
    };
    let list = of(None, "scaling/policies?namespace=*").expect("a list");
    let target = json!({ "Namespace": "shop", "Job": "scaled", "Group": "g" });
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!((&list[0]["Target"], &list[0]["Enabled"]), (&target, &json!(false)));
    let id = list[0]["ID"].as_str().expect("an id");
    let one = of(None, &format!("scaling/policy/{id}?namespace=shop")).expect("a policy");
    assert_eq!((&one["Min"], &one["Max"], &one["Policy"]), (&json!(2), &json!(3), &json!({ "cooldown": "1m" })));
    assert_eq!(of(None, &format!("scaling/policy/{id}")).map_err(|it| it.code), Err(404), "of another namespace");
    assert_eq!(of(None, "scaling/policy/x?namespace=shop").map_err(|it| it.code), Err(404));
    assert_eq!(of(Some(&["default"]), "scaling/policies?namespace=*").expect("a list"), json!([]));
    assert_eq!(of(None, "scaling/policies?namespace=*&job=other").expect("a list"), json!([]));
}

#[test]
fn services_are_those_that_allocations_are_registered_by_with_the_tags_of_all() {
    let mut world = world();
    let service = json!({ "name": "web", "portLabel": "http", "tags": ["a"] });
    let group = json!({ "name": "api", "services": [service], "tasks": [{ "name": "t", "driver": "exec" }],
                        "networks": [{ "ports": [{ "label": "http" }] }] });
    for space in ["default", "shop"] {
        let version = json!({ "jobName": "web", "jobUID": format!("job-{space}"), "version": 2, "groupNames": "api",
                              "job": { "groups": [group] }, "submittedAt": "2026-01-01T00:00:00Z" });
        world.versions.put(object("JobVersion", &meta(space, "web-v2", "v", 60), &version, &json!({})));
    }
    let found = world.allocations.named("shop", "web-api-0").expect("it").as_ref().clone();
    let job = &world.versions.named("shop", "web-v2").expect("it").spec.job;
    let planned = drover_core::service::planned(&found, job, &job.groups[0]).expect("services");
    for (name, uid) in [("web-api-0", "shop-alloc"), ("web-api-1", "second")] {
        let mut registered = found.clone();
        (registered.metadata.name, registered.metadata.uid) = (Some(name.to_owned()), Some(uid.to_owned()));
        registered.metadata.resource_version = Some("61".to_owned());
        let of_it = drover_core::service::planned(&registered, job, &job.groups[0]).expect("services");
        let status = registered.status.as_mut().expect("a status");
        status.services = vec![serde_json::from_value(json!({ "id": of_it[0].id, "name": "web" })).expect("a service")];
        world.allocations.put(registered);
    }
    assert_eq!(planned.len(), 1);
    let of = |path: &str| {
        let (path, text) = path.split_once('?').unwrap_or((path, ""));
        let Route::Read(endpoint) = read(&http::Method::GET, path)? else { panic!("no read") };
        reply_of(&world, None, &endpoint, text)
    };
    let listed = json!([{ "Namespace": "shop", "Services": [{ "ServiceName": "web", "Tags": ["a"] }] }]);
    assert_eq!(of("services?namespace=*").expect("a list"), listed);
    let one = of("service/web?namespace=shop").expect("a list");
    assert_eq!(ids(&one, "AllocID"), ["shop-alloc", "second"]);
    assert_eq!((&one[0]["Address"], &one[0]["Port"]), (&json!("10.0.0.7"), &json!(21_034)));
    let chosen = of("service/web?namespace=shop&choose=1|me").expect("a list");
    assert_eq!(chosen, of("service/web?namespace=shop&choose=1|me").expect("a list"));
    assert_eq!(chosen.as_array().map(Vec::len), Some(1));
    assert_eq!(of("service/web?namespace=shop&choose=one").map_err(|it| it.code), Err(400));
    assert_eq!(of("service/none?namespace=shop").expect("a list"), json!([]));
    assert_eq!(of("job/a/b/services?namespace=shop").expect("a list"), one);
    let filtered = of("job/a/b/services?namespace=shop&filter=AllocID+%3D%3D+second").expect("a list");
    assert_eq!(ids(&filtered, "AllocID"), ["second"]);
    assert_eq!(of("allocation/second/services?namespace=shop").expect("a list"), filtered);
    assert_eq!(of("job/a/b/services").expect("a list"), json!([]), "those of another namespace");
    assert_eq!(of("job/none/services?namespace=shop").map_err(|it| it.code), Err(404));
    assert_eq!(of("job/a/b/services?namespace=shop&filter=x+%3D").map_err(|it| it.code), Err(400));
    let right = needed(&Endpoint::JobServices("a/b".to_owned()), &Query::parse("namespace=shop").expect("a query"));
    assert_eq!((right[0].resource, right[0].verb.name()), (Resource::Allocations, "list"));
}

#[test]
fn what_a_replica_counts_is_for_those_who_may_scrape() {
    let facts = AgentFacts {
        counted: Counted { text: "# TYPE a gauge\na 7\n# EOF\n".to_owned(), ..Counted::default() },
        ..AgentFacts::default()
    };
    let (world, scopes) = (world(), Scopes::default());
    let of = |text: &str| {
        let query = Query::parse(text).expect("a query");
        answer(&Endpoint::Metrics, View { world: &world, query: &query, scopes: &scopes, facts: &facts })
    };
    let body = |reply: Reply| String::from_utf8(reply.body.into_inner().concat()).expect("text");
    let summary: Value = serde_json::from_str(&body(of("").expect("an answer"))).expect("JSON");
    assert_eq!((&summary["Gauges"][0]["Name"], &summary["Gauges"][0]["Value"]), (&json!("a"), &json!(7.0)));
    let scraped = of("format=prometheus").expect("an answer");
    assert_eq!((scraped.form, body(scraped)), (Form::Metrics, facts.counted.text.clone()));
    let fault = of("format=xml").expect_err("no such format");
    assert!(fault.code == 400 && fault.message.contains("prometheus"), "{fault}");
    let rights = needed(&Endpoint::Metrics, &Query::parse("namespace=shop").expect("a query"));
    let right = Right { resource: Resource::Metrics, verb: Verb::Get, reach: Reach::Cluster, is_optional: false };
    assert_eq!(rights, [right]);
    assert_eq!(read(&http::Method::PUT, "metrics").map_err(|fault| fault.code), Err(405));
}

#[test]
fn lists_of_what_there_never_is_are_empty_and_their_writes_say_what_to_do_instead() {
    for path in ["vars", "quotas", "acl/policies", "acl/tokens", "sentinel/policies", "operator/keyring/keys"] {
        assert_eq!(ask(path), json!([]), "{path}");
        assert_eq!(read(&http::Method::PUT, path).map_err(|fault| fault.code), Err(400), "{path}");
    }
}
