//! What clients of Nomad change, on a real API server: each flow by the requests that its clients make
//! (`spec/api.md` 3 and 4, `spec/gateway.md` 6).

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use drover_api::{ClientNode, Job, JobSpec};
use drover_nomad::{Demand, Way, rights_of_job};
use drover_testkit::control_plane::User;
use http::Method;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::balancer::Balancer;
use crate::cluster::{Cluster, Settings, job};
use crate::gateway::{Stage, gateway, gateway_by};
use crate::gateway_limits::{Door, Proof, token_of};
use crate::nomad_api::{Nomad, Told};

/// A job file: one group of tasks that run a script.
pub(crate) fn file(id: &str, of_job: &str, of_group: &str, script: &str) -> String {
    let config = format!("command = \"/bin/sh\"\n args = [\"-c\", \"{script}\"]");
    let task = format!(
        "task \"t\" {{\n driver = \"raw_exec\"\n kill_timeout = \"2s\"\n config {{\n {config}\n }}\n \
         resources {{\n cpu = 10\n memory = 10\n }}\n }}"
    );
    format!(
        "job \"{id}\" {{\n {of_job}\n group \"g\" {{\n {of_group}\n ephemeral_disk {{ size = 110 }}\n {task}\n }}\n}}"
    )
}

/// Healthy as soon as it runs.
pub(crate) const AT_ONCE: &str = "update { min_healthy_time = \"0s\" }";

impl Nomad {
    pub(crate) async fn put(&self, path: &str, body: &Value) -> Told {
        self.send(Method::PUT, path, &[], &body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Told {
        self.send(Method::DELETE, path, &[], "").await
    }

    /// The job of a file, as clients in Go read it.
    pub(crate) async fn parsed(&self, text: &str) -> Value {
        self.put("jobs/parse", &json!({ "JobHCL": text, "Canonicalize": true })).await.json()
    }

    /// Registers the job of a file; the answer.
    pub(crate) async fn run(&self, text: &str) -> Value {
        let job = self.parsed(text).await;
        self.put("jobs", &json!({ "Job": job })).await.json()
    }

    /// What an evaluation is now, if it is known.
    async fn evaluation(&self, id: &str) -> Value {
        self.get(&format!("evaluation/{id}")).await.json()
    }

    /// Follows an evaluation, as `nomad job run` does, to the one that did its work.
    async fn monitored(&self, cluster: &Cluster, answer: &Value) -> Value {
        let mut id = text(&answer["EvalID"]);
        assert_eq!(id.len(), 36, "{answer}");
        loop {
            cluster
                .eventually("the evaluation is complete", async || {
                    // It is known from the moment at which the write was answered.
                    self.evaluation(&id).await["Status"] == "complete"
                })
                .await;
            let found = self.evaluation(&id).await;
            match found["NextEval"].as_str() {
                Some(next) if !next.is_empty() => next.clone_into(&mut id),
                _ => return found,
            }
        }
    }

    async fn version(&self, job: &str) -> i64 {
        self.get(&format!("job/{job}")).await.json()["Version"].as_i64().expect("a version")
    }

    async fn deployment(&self, job: &str) -> Value {
        self.get(&format!("job/{job}/deployment")).await.json()
    }

    async fn deployed(&self, cluster: &Cluster, job: &str, status: &str) {
        let what = format!("the deployment of {job} is {status}");
        cluster.eventually(&what, async || self.deployment(job).await["Status"] == status).await;
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_019_p_040_to_p_042_p_047_to_p_053_and_g_036_jobs_are_run_and_changed_as_nomads_clients_do() {
    let stage = Stage::start("nomad-writes", "").await;
    let nomad = Nomad::of(&stage, User::Admin).await;
    registered(&stage, &nomad).await;
    changed(&stage, &nomad).await;
    stopped_one(&stage, &nomad).await;
    launched(&stage, &nomad).await;
    purged(&stage, &nomad).await;
    stage.cluster.kubectl(&["delete", "djob", "--all", "-A", "--timeout=90s"]).expect("deleted");
}

/// P-040, P-041, P-042: a job is run, and run again as it is.
async fn registered(stage: &Stage, nomad: &Nomad) {
    let cluster = &stage.cluster;
    let web = file("web", AT_ONCE, "count = 2", "exec sleep 1000");
    let first = nomad.run(&web).await;
    assert_eq!(first["JobModifyIndex"], 1, "{first}");
    let evaluation = nomad.monitored(cluster, &first).await;
    assert_eq!((&evaluation["JobID"], &evaluation["TriggeredBy"]), (&json!("web"), &json!("job-register")));
    let deployment = nomad.deployment("web").await;
    assert_eq!(evaluation["DeploymentID"], deployment["ID"]);
    let mut placed = nomad.get(&format!("evaluation/{}/allocations", text(&evaluation["ID"]))).await.each("Name");
    placed.sort();
    assert_eq!(placed, ["web.g[0]", "web.g[1]"].map(str::to_owned));
    nomad.deployed(cluster, "web", "successful").await;

    let again = nomad.run(&web).await;
    assert_ne!(again["EvalID"], first["EvalID"]);
    assert_eq!(again["JobModifyIndex"], first["JobModifyIndex"]);
    nomad.monitored(cluster, &again).await;
    assert_eq!(nomad.version("web").await, 0);
    // What is read can be written back.
    let whole = nomad.get("job/web").await.json();
    let back = nomad.put("job/web", &json!({ "Job": whole })).await.json();
    nomad.monitored(cluster, &back).await;
    assert_eq!(nomad.version("web").await, 0);

    let job = nomad.parsed(&web).await;
    let new_only = json!({ "Job": job, "EnforceIndex": true, "JobModifyIndex": 0 });
    let refused = nomad.put("jobs", &new_only).await;
    assert!(refused.code == 400 && refused.text.starts_with("Enforcing job modify index"), "{}", refused.text);
    assert_eq!(nomad.put("job/other", &json!({ "Job": job })).await.code, 400);
    assert_eq!(nomad.put("jobs", &json!({})).await.code, 400);
    let checked = nomad.put("validate/job", &json!({ "Job": job })).await.json();
    assert_eq!(checked["ValidationErrors"], json!([]), "{checked}");
}

/// P-047, P-048, P-051, P-053.
async fn changed(stage: &Stage, nomad: &Nomad) {
    let cluster = &stage.cluster;
    let second = nomad.run(&file("web", AT_ONCE, "count = 2", "exec sleep 2000")).await;
    assert_eq!(second["JobModifyIndex"], 2);
    nomad.monitored(cluster, &second).await;
    nomad.deployed(cluster, "web", "successful").await;
    assert_eq!(nomad.version("web").await, 1);

    let reverted = nomad.put("job/web/revert", &json!({ "JobID": "web", "JobVersion": 0 })).await.json();
    nomad.monitored(cluster, &reverted).await;
    nomad.deployed(cluster, "web", "successful").await;
    assert_eq!(nomad.version("web").await, 2);
    let same = nomad.put("job/web/revert", &json!({ "JobID": "web", "JobVersion": 2 })).await;
    assert_eq!(same.code, 400, "{}", same.text);
    history(nomad).await;

    let scaled = nomad.put("job/web/scale", &json!({ "Count": 1, "Target": { "Group": "g" } })).await.json();
    nomad.monitored(cluster, &scaled).await;
    let counts = nomad.get("job/web/scale").await.json();
    assert_eq!(counts["TaskGroups"]["g"]["Desired"], 1, "{counts}");
    assert_eq!(nomad.version("web").await, 2);

    let looked = nomad.put("job/web/evaluate", &json!({ "JobID": "web" })).await.json();
    assert_eq!(nomad.monitored(cluster, &looked).await["Status"], "complete");
    // A failed allocation whose policy forbids another one.
    let fails = file("fails", "type = \"batch\"", "reschedule { attempts = 0 }\n restart { attempts = 0 }", "exit 1");
    nomad.run(&fails).await;
    let failed = async || nomad.get("job/fails/allocations").await.each("ClientStatus");
    cluster.eventually("it has failed", async || failed().await == ["failed"]).await;
    let forced = json!({ "JobID": "fails", "EvalOptions": { "ForceReschedule": true } });
    let forced = nomad.put("job/fails/evaluate", &forced).await.json();
    nomad.monitored(cluster, &forced).await;
    cluster.eventually("it is placed again", async || failed().await.len() == 2).await;
}

/// P-047: of three versions, of which the second ran another command and the third is as the first.
async fn history(nomad: &Nomad) {
    let told = nomad.get("job/web/versions?diffs=true").await.json();
    let numbers = |of: &Value| -> Vec<i64> {
        of.as_array().expect("a list").iter().filter_map(|it| it["Version"].as_i64()).collect()
    };
    assert_eq!(numbers(&told["Versions"]), [2, 1, 0]);
    let diffs = told["Diffs"].as_array().expect("a list");
    assert_eq!(diffs.len(), 2, "{told}");
    for (diff, old, new) in [(&diffs[0], "2000", "1000"), (&diffs[1], "1000", "2000")] {
        let (group, task) = (&diff["TaskGroups"][0], &diff["TaskGroups"][0]["Tasks"][0]);
        assert_eq!((&diff["Type"], &group["Type"], &group["Name"]), (&json!("Edited"), &json!("Edited"), &json!("g")));
        let args = &task["Objects"][0]["Fields"][0];
        let has = |value: &Value, part: &str| value.as_str().is_some_and(|value| value.contains(part));
        assert!(args["Name"] == "args" && has(&args["Old"], old) && has(&args["New"], new), "{diff}");
        assert_eq!(task["Annotations"], json!(["forces create/destroy update"]), "{diff}");
    }
    let types = |of: Value| -> Vec<String> {
        let all = of["Diffs"].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|it| it["Type"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(types(nomad.get("job/web/versions?diffs=true&diff_version=0").await.json()), ["None", "Edited", "None"]);
    assert_eq!(nomad.get("job/web/versions?diffs=true&diff_version=9").await.code, 404);
    assert_eq!(nomad.get("job/web/versions?diffs=false").await.json()["Diffs"], Value::Null);
}

/// P-019, P-020.
async fn stopped_one(stage: &Stage, nomad: &Nomad) {
    let cluster = &stage.cluster;
    let running =
        async || nomad.get("allocations?filter=JobID+%3D%3D+web+and+ClientStatus+%3D%3D+running").await.each("ID");
    cluster.eventually("one runs", async || running().await.len() == 1).await;
    let id = running().await.remove(0);
    let answer = nomad.put(&format!("allocation/{id}/stop?no_shutdown_delay=true"), &Value::Null).await.json();
    let evaluation = nomad.monitored(cluster, &answer).await;
    assert_eq!(evaluation["TriggeredBy"], "alloc-stop");
    let stopped = nomad.get(&format!("allocation/{id}")).await.json();
    let transition = &stopped["DesiredTransition"];
    assert!(transition["Migrate"] == true && transition["NoShutdownDelay"] == true, "{transition}");
    let another = async || running().await.first().is_some_and(|now| *now != id);
    cluster.eventually("another one takes its place", another).await;
    let none = "00000000-0000-0000-0000-000000000000";
    assert_eq!(nomad.put(&format!("allocation/{none}/stop"), &Value::Null).await.code, 404);
}

/// P-049, P-050, and launches of periodic jobs.
async fn launched(stage: &Stage, nomad: &Nomad) {
    let cluster = &stage.cluster;
    let rules = "type = \"batch\"\n parameterized {\n payload = \"optional\"\n meta_required = [\"day\"]\n }";
    let template = nomad.run(&file("mail", rules, "", "true")).await;
    assert_eq!(template["EvalID"], "");
    let dispatch = async |body: &Value| nomad.put("job/mail/dispatch?idempotency_token=one", body).await;
    let lacks = dispatch(&json!({ "Meta": {} })).await;
    assert!(lacks.code == 400 && lacks.text.contains("day"), "{}", lacks.text);
    let first = dispatch(&json!({ "Meta": { "day": "monday" }, "Payload": "aGk=" })).await.json();
    let id = text(&first["DispatchedJobID"]);
    assert!(id.starts_with("mail/dispatch-"), "{id}");
    nomad.monitored(cluster, &first).await;
    let again = dispatch(&json!({ "Meta": { "day": "monday" }, "Payload": "aGk=" })).await.json();
    assert_eq!(text(&again["DispatchedJobID"]), id);
    let children = nomad.get("jobs?filter=ParentID+%3D%3D+mail").await.each("ID");
    assert_eq!(children, [id]);

    let nightly = "type = \"batch\"\n periodic {\n crons = [\"0 3 1 1 *\"]\n }";
    assert_eq!(nomad.run(&file("nightly", nightly, "", "true")).await["EvalID"], "");
    let forced = nomad.put("job/nightly/periodic/force", &Value::Null).await.json();
    let evaluation = nomad.monitored(cluster, &forced).await;
    assert!(text(&evaluation["JobID"]).starts_with("nightly/periodic-"), "{evaluation}");
    assert_eq!(nomad.put("job/web/periodic/force", &Value::Null).await.code, 400);
    let looked = nomad.put("job/nightly/evaluate", &json!({})).await;
    assert_eq!(looked.code, 400, "{}", looked.text);
}

/// P-052.
async fn purged(stage: &Stage, nomad: &Nomad) {
    let cluster = &stage.cluster;
    let stopped = nomad.delete("job/web").await.json();
    nomad.monitored(cluster, &stopped).await;
    assert_eq!(nomad.get("job/web").await.json()["Stop"], true);
    let purged = nomad.delete("job/web?purge=true").await.json();
    nomad.monitored(cluster, &purged).await;
    cluster.eventually("it is gone", async || nomad.get("job/web").await.code == 404).await;
    // Who still waits finds the evaluation.
    nomad.monitored(cluster, &purged).await;
    let unknown = nomad.delete("job/web").await.json();
    assert_eq!(unknown["EvalID"], "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_055_to_p_058_deployments_nodes_and_volumes_are_changed_as_nomads_clients_do() {
    let stage = Stage::start("nomad-operates", "").await;
    let cluster = &stage.cluster;
    let nomad = Nomad::of(&stage, User::Admin).await;
    let canaries = "update {\n min_healthy_time = \"0s\"\n canary = 1\n }";
    let run = async |script: &str| nomad.run(&file("web", canaries, "count = 1", script)).await;
    nomad.monitored(cluster, &run("exec sleep 1000").await).await;
    nomad.deployed(cluster, "web", "successful").await;

    nomad.monitored(cluster, &run("exec sleep 2000").await).await;
    let is_ready = async || nomad.deployment("web").await["TaskGroups"]["g"]["HealthyAllocs"] == 1;
    cluster.eventually("the canary is healthy", is_ready).await;
    let deployment = nomad.deployment("web").await;
    let (id, path) = (text(&deployment["ID"]), |verb: &str, id: &str| format!("deployment/{verb}/{id}"));
    let paused = nomad.put(&path("pause", &id), &json!({ "DeploymentID": id, "Pause": true })).await.json();
    assert_eq!(paused["EvalID"], "");
    nomad.deployed(cluster, "web", "paused").await;
    // P-051, P-077: not while it is rolled out, though that is paused.
    let early = nomad.put("job/web/scale", &json!({ "Count": 2, "Target": { "Group": "g" } })).await;
    assert_eq!((early.code, early.text.as_str()), (400, "job scaling blocked due to active deployment"));
    nomad.put(&path("pause", &id), &json!({ "DeploymentID": id, "Pause": false })).await.json();
    nomad.deployed(cluster, "web", "running").await;
    let other = json!({ "DeploymentID": "00000000-0000-0000-0000-000000000000", "All": true });
    assert_eq!(nomad.put(&path("promote", &id), &other).await.code, 400);
    let promoted = nomad.put(&path("promote", &id), &json!({ "DeploymentID": id, "All": true })).await.json();
    assert_eq!(nomad.monitored(cluster, &promoted).await["DeploymentID"], json!(id));
    nomad.deployed(cluster, "web", "successful").await;
    let over = nomad.put(&path("fail", &id), &Value::Null).await;
    assert!(over.code == 500 && over.text.contains("terminal"), "{} {}", over.code, over.text);

    nomad.monitored(cluster, &run("exec sleep 3000").await).await;
    let id = text(&nomad.deployment("web").await["ID"]);
    let failed = nomad.put(&path("fail", &id), &Value::Null).await.json();
    nomad.monitored(cluster, &failed).await;
    nomad.deployed(cluster, "web", "failed").await;

    nodes(&stage, &nomad).await;
    volumes(&nomad).await;
    cluster.kubectl(&["delete", "djob", "--all", "-A", "--timeout=90s"]).expect("deleted");
}

/// P-056, P-057.
async fn nodes(stage: &Stage, nomad: &Nomad) {
    let cluster = &stage.cluster;
    let id = nomad.get("nodes").await.each("ID").remove(0);
    let path = |verb: &str| format!("node/{id}/{verb}");
    let node = async || nomad.get(&format!("node/{id}")).await.json();
    let drain = json!({ "DrainSpec": { "Deadline": 3_600_000_000_000_i64, "IgnoreSystemJobs": false } });
    let answer = nomad.put(&path("drain"), &drain).await.json();
    assert!(answer["NodeModifyIndex"].as_u64().is_some_and(|index| index > 0), "{answer}");
    let now = node().await;
    assert_eq!(now["SchedulingEligibility"], "ineligible", "{now}");
    let eligible = json!({ "Eligibility": "eligible" });
    // Whether the drain is over already, which the controller says, it is refused or taken.
    let early = nomad.put(&path("eligibility"), &eligible).await;
    assert!(early.code == 200 || early.text.contains("draining"), "{} {}", early.code, early.text);
    let ended = nomad.put(&path("drain"), &json!({ "DrainSpec": null, "MarkEligible": true })).await;
    assert_eq!(ended.code, 200, "{}", ended.text);
    cluster
        .eventually("it takes allocations again", async || node().await["SchedulingEligibility"] == "eligible")
        .await;
    assert_eq!(nomad.put(&path("eligibility"), &json!({ "Eligibility": "foo" })).await.code, 400);
    assert_eq!(nomad.put(&path("eligibility"), &json!({ "Eligibility": "ineligible" })).await.code, 200);
    let nodes: Api<ClientNode> = Api::all(cluster.client.clone());
    let name = text(&node().await["Name"]);
    let stored = nodes.get(&name).await.expect("a node");
    assert_eq!(stored.spec.eligibility, drover_api::client_node::Eligibility::Ineligible);
    assert_eq!(nomad.put(&path("eligibility"), &eligible).await.code, 200);
}

/// P-058.
async fn volumes(nomad: &Nomad) {
    let none = "volume/csi/none";
    assert_eq!(nomad.delete(&format!("{none}/detach")).await.code, 400, "no node is named");
    assert_eq!(nomad.delete(&format!("{none}?force=xx")).await.code, 400);
    assert_eq!(nomad.delete(none).await.code, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_037_writes_at_once_and_at_two_replicas_each_lead_to_an_end() {
    let stage = Stage::start("nomad-races", "").await;
    let cluster = &stage.cluster;
    let nomad = Nomad::of(&stage, User::Admin).await;
    let (_second, users, _) = gateway(cluster, "gateway-b", "").await;
    let other = {
        let proof = Proof::Token(token_of(&stage, User::Admin));
        Nomad(Door::of(&stage).await.client_at(users, &proof).await)
    };
    nomad.monitored(cluster, &nomad.run(&file("web", AT_ONCE, "count = 1", "exec sleep 1000")).await).await;
    cluster.eventually("the second knows the job", async || other.knows(&["web"]).await).await;
    // The leader is away: what is asked for meanwhile is pending, at whichever replica.
    stage.controller.freeze();
    let mut answers = Vec::new();
    for n in 0..3 {
        let of = if n == 1 { &other } else { &nomad };
        answers.push(of.run(&file("web", AT_ONCE, "count = 1", &format!("exec sleep 200{n}"))).await);
    }
    let ids: Vec<String> = answers.iter().map(|answer| text(&answer["EvalID"])).collect();
    for id in &ids {
        cluster
            .eventually("both replicas know it", async || other.get(&format!("evaluation/{id}")).await.code == 200)
            .await;
        assert_eq!(nomad.evaluation(id).await["Status"], "pending");
        assert_eq!(other.evaluation(id).await["Status"], "pending");
    }
    stage.controller.thaw();
    let last = nomad.monitored(cluster, &answers[2]).await;
    for answer in &answers {
        assert_eq!(other.monitored(cluster, answer).await["ID"], last["ID"]);
    }
    // Writers of one object at once: none of them sees a conflict.
    let mut writes = JoinSet::new();
    for n in 0..8 {
        let of = if n % 2 == 0 { nomad.clone() } else { other.clone() };
        writes.spawn(async move { of.run(&file("web", AT_ONCE, "count = 1", &format!("exec sleep 300{n}"))).await });
    }
    while let Some(answer) = writes.join_next().await {
        // Also by the replica that did not write it, which waits for its watch.
        nomad.monitored(cluster, &answer.expect("joined")).await;
    }
    nomad.deployed(cluster, "web", "successful").await;
    cluster.kubectl(&["delete", "djob", "--all", "-A", "--timeout=90s"]).expect("deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_who_may_do_nothing_does_not_learn_what_is_there() {
    let stage = Stage::start("nomad-strangers", "").await;
    let admin = Nomad::of(&stage, User::Admin).await;
    let ann = Nomad::of(&stage, User::Developer).await;
    let job = admin.parsed(&file("web", "", "", "exec sleep 1000")).await;
    let told = admin.put("jobs", &json!({ "Job": job })).await;
    assert_eq!(told.code, 200, "{}", told.text);
    let asked = async |id: &str| {
        let mut other = job.clone();
        (other["ID"], other["Name"]) = (json!(id), json!(id));
        // With an index that no job has.
        let enforced = json!({ "Job": other, "EnforceIndex": true, "JobModifyIndex": 77 });
        let target = json!({ "Count": 1, "Target": { "Group": "none" } });
        let at = |action: &str| format!("job/{id}/{action}");
        let answers = [
            ann.put("jobs", &enforced).await,
            ann.put(&at("plan"), &enforced).await,
            ann.put("validate/job", &enforced).await,
            ann.put(&at("evaluate"), &json!({ "JobID": id })).await,
            ann.put(&at("revert"), &json!({ "JobID": id, "JobVersion": 99 })).await,
            ann.put(&at("stable"), &json!({ "JobID": id, "JobVersion": 99 })).await,
            ann.put(&at("scale"), &target).await,
            ann.put(&at("periodic/force"), &json!({})).await,
            ann.delete(&format!("job/{id}")).await,
            ann.delete(&format!("job/{id}?purge=true")).await,
        ];
        answers.map(|told| (told.code, told.text))
    };
    let (there, missing) = (asked("web").await, asked("none").await);
    assert_eq!(there, missing);
    assert!(there.iter().all(|(code, text)| *code == 403 && text.contains("developer")), "{there:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_g_043_nobody_writes_through_the_gateway_what_it_may_not_write_itself() {
    let stage = Stage::start("nomad-write-rights", "").await;
    let cluster = &stage.cluster;
    cluster.namespace("shop").await;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "top", "namespace": "shop" } });
    cluster.kubectl_with(&["apply", "-f", "-"], Some(&secret.to_string())).expect("applied");
    let admin = Nomad::of(&stage, User::Admin).await;
    let ann = Nomad::of(&stage, User::Developer).await;
    let plain = admin.parsed(&file("web", "namespace = \"shop\"", "", "exec sleep 1000")).await;
    let register = async |of: &Nomad, job: &Value| of.put("jobs?namespace=shop", &json!({ "Job": job })).await;
    let denied = |told: &Told, right: &str| {
        assert_eq!(told.code, 403, "{}", told.text);
        assert!(told.text.contains(right) && told.text.contains("developer"), "{}", told.text);
    };
    denied(&register(&ann, &plain).await, "cannot create resource \"jobs\"");
    stage.bind("edit", "drover-edit");
    cluster.eventually("the role is in force", async || register(&ann, &plain).await.code == 200).await;

    let with = |change: &dyn Fn(&mut Value)| {
        let mut job = plain.clone();
        change(&mut job);
        job
    };
    let raised = with(&|job| job["Priority"] = json!(80));
    denied(&register(&ann, &raised).await, "\"jobs/priority\"");
    let system = admin.parsed(&file("everywhere", "namespace = \"shop\"\n type = \"system\"", "", "true")).await;
    denied(&register(&ann, &system).await, "\"jobs/priority\"");
    let plugin = with(&|job| {
        job["TaskGroups"][0]["Tasks"][0]["CSIPluginConfig"] = json!({ "ID": "p", "Type": "node" });
    });
    denied(&register(&ann, &plugin).await, "\"jobs/csiplugin\"");
    let reads = with(&|job| {
        let secret = json!({ "Name": "s", "Provider": "kubernetes", "Path": "top" });
        job["TaskGroups"][0]["Tasks"][0]["Secrets"] = json!([secret]);
    });
    denied(&register(&ann, &reads).await, "secrets \"top\"");
    // In another namespace she is a stranger, whatever the query says.
    let elsewhere = with(&|job| job["Namespace"] = json!("default"));
    denied(&register(&ann, &elsewhere).await, "in the namespace \"default\"");
    // A dispatch may have a priority of its own.
    let rules = "namespace = \"shop\"\n type = \"batch\"\n parameterized { payload = \"optional\" }";
    let template = admin.parsed(&file("mail", rules, "", "true")).await;
    assert_eq!(register(&ann, &template).await.code, 200);
    let dispatched = ann.put("job/mail/dispatch?namespace=shop", &json!({ "Priority": 90 })).await;
    denied(&dispatched, "\"jobs/priority\"");

    let node = admin.get("nodes").await.each("ID").remove(0);
    let drain = json!({ "DrainSpec": { "Deadline": -1 } });
    denied(&ann.put(&format!("node/{node}/drain"), &drain).await, "\"clientnodes\"");
    denied(&ann.put(&format!("node/{node}/purge"), &Value::Null).await, "cannot delete resource \"clientnodes\"");
    let nobody = Nomad(Door::of(&stage).await.client(&Proof::Nothing).await);
    for (method, path) in
        [(Method::PUT, "jobs"), (Method::PUT, "jobs/parse"), (Method::DELETE, "job/web?namespace=shop")]
    {
        let told = nobody.send(method, path, &[], "{}").await;
        assert!(told.code == 403 && told.text.contains("Permission denied"), "{path}: {}", told.text);
    }
    // None of it has been written.
    let jobs: Vec<String> = cluster
        .jobs("shop")
        .list(&ListParams::default())
        .await
        .expect("jobs")
        .items
        .into_iter()
        .map(|job| format!("{} {}", job.metadata.name.unwrap_or_default(), job.spec.priority))
        .collect();
    assert_eq!(jobs, ["mail 50", "web 50"]);

    let (_reads, users, _) = gateway(cluster, "gateway-reads", "nomadWrites: false\n").await;
    let proof = Proof::Token(token_of(&stage, User::Admin));
    let reader = Nomad(Door::of(&stage).await.client_at(users, &proof).await);
    let is_off = async || {
        let request = http::Request::put("/v1/jobs/parse").body(kube::client::Body::from(b"{}".to_vec()));
        reader.0.send(request.expect("a request")).await.is_ok_and(|answer| answer.status() == 403)
    };
    cluster.eventually("that one only reads", is_off).await;
}

/// A generator of jobs in which each thing that a policy asks about may be.
struct Jobs(fastrand::Rng);

impl Jobs {
    fn job(&mut self) -> Value {
        let mut job = job("made", 1, &json!({}), "true");
        let rng = &mut self.0;
        let spec = &mut job["spec"];
        spec["priority"] = json!(*rng.choice(&[40, 50, 51, 80]).expect("one"));
        spec["type"] = json!(if rng.u8(..4) == 0 { "system" } else { "service" });
        let task = &mut spec["groups"][0]["tasks"][0];
        let mut secrets = Vec::new();
        for (n, (provider, path)) in
            [("kubernetes", "mine"), ("kubernetes", "theirs"), ("configmap", "mine"), ("nomad", "mine/deep")]
                .into_iter()
                .enumerate()
        {
            if rng.u8(..5) == 0 {
                secrets.push(json!({ "name": format!("s{n}"), "provider": provider, "path": path }));
            }
        }
        if !secrets.is_empty() {
            task["secrets"] = json!(secrets);
        }
        if rng.u8(..5) == 0 {
            task["imagePullSecrets"] = json!([if rng.bool() { "mine" } else { "theirs" }]);
        }
        if rng.u8(..5) == 0 {
            let account = json!({ "serviceAccount": if rng.bool() { "mine" } else { "theirs" } });
            task["identities"] = json!([{ "name": "i", "kubernetes": account }]);
        }
        if rng.u8(..5) == 0 {
            task["csiPlugin"] = json!({ "id": "p", "type": "node" });
        }
        job
    }
}

/// What the author of the generated jobs may do, beside writing jobs.
fn may(way: &Way, rights: &BTreeMap<&str, bool>) -> bool {
    match (way.resource, way.subresource) {
        ("jobs", "") => true,
        ("jobs", part) => rights.get(part).copied().unwrap_or(false),
        ("secrets", "") => ["mine", "mine.deep"].contains(&way.name.as_str()),
        ("configmaps", "") | ("serviceaccounts", "token") => way.name == "mine",
        _ => false,
    }
}

/// The policies and the gateway ask for the same rights: generated jobs, made and changed by an author with some of
/// them, as the API server itself would have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_the_gateway_asks_a_jobs_author_for_what_the_policies_ask() {
    let cluster = Cluster::start("authors", Settings::default()).await;
    cluster.namespace("shop").await;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/drover/files/policies");
    for file in ["secrets", "plugins", "priorities"] {
        let file = folder.join(format!("{file}.yaml"));
        cluster.kubectl(&["apply", "-f", &file.display().to_string()]).expect("the policies");
    }
    let rule = |groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]| {
        let mut rule = json!({ "apiGroups": groups, "resources": resources, "verbs": verbs });
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        rule
    };
    let own = vec![
        rule(&["drover.dev"], &["jobs"], &[], &["create", "update", "patch", "get", "delete"]),
        rule(&[""], &["secrets"], &["mine", "mine.deep"], &["get"]),
        rule(&[""], &["configmaps"], &["mine"], &["get"]),
        rule(&[""], &["serviceaccounts/token"], &["mine"], &["create"]),
    ];
    let mut jobs = Jobs(fastrand::Rng::with_seed(7));
    let mut n_denied = 0;
    for (n, parts) in [&[][..], &["priority"], &["csiplugin"], &["secrets"]].into_iter().enumerate() {
        let user = format!("author-{n}");
        let mut rules = own.clone();
        rules.extend(parts.iter().map(|part| rule(&["drover.dev"], &[&format!("jobs/{part}")], &[], &["update"])));
        let named = json!({ "name": user, "namespace": "shop" });
        let api = "rbac.authorization.k8s.io";
        let granted = json!({ "apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": named, "rules": rules });
        let binding = json!({ "apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": named,
            "roleRef": { "apiGroup": api, "kind": "Role", "name": user },
            "subjects": [{ "apiGroup": api, "kind": "User", "name": user }] });
        for object in [granted, binding] {
            cluster.kubectl_with(&["apply", "-f", "-"], Some(&object.to_string())).expect("applied");
        }
        let author: Api<Job> = Api::namespaced(as_user(&cluster, &user).await, "shop");
        let rights: BTreeMap<&str, bool> = parts.iter().map(|part| (*part, true)).collect();
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let plain = job("probe", 1, &json!({}), "true");
        let mut plugin = plain.clone();
        plugin["spec"]["groups"][0]["tasks"][0]["csiPlugin"] = json!({ "id": "p", "type": "node" });
        // Each is refused by its name, and by the policy of that name alone.
        let is_refused = async |policy: &str, probe: &Value| {
            let mut probe = of(probe);
            probe.metadata.name = Some(format!("drover-{policy}-probe"));
            let refusal = author.create(&dry, &probe).await.err().map(|error| error.to_string());
            refusal.is_some_and(|it| it.contains(&format!("no Job has the name drover-{policy}-probe")))
        };
        cluster
            .eventually("policies and rights are in force", async || {
                is_refused("secrets", &plain).await
                    && is_refused("plugins", &plugin).await
                    && is_refused("priorities", &plain).await
                    && author.create(&dry, &of(&plain)).await.is_ok()
            })
            .await;
        for _ in 0..40 {
            let (before, after) = (jobs.job(), jobs.job());
            let is_new = jobs.0.bool();
            let (found, stored) = if is_new {
                (author.create(&dry, &of(&after)).await, None)
            } else {
                let stored = cluster.jobs("shop").create(&PostParams::default(), &of(&before)).await.expect("a job");
                let mut changed = of(&after);
                changed.spec.r#type = stored.spec.r#type;
                changed.metadata.resource_version.clone_from(&stored.metadata.resource_version);
                let found = author.replace("made", &dry, &changed).await;
                cluster.jobs("shop").delete("made", &DeleteParams::default()).await.expect("deleted");
                (found, Some(stored.spec))
            };
            let spec =
                JobSpec { r#type: stored.as_ref().map_or(of(&after).spec.r#type, |it| it.r#type), ..of(&after).spec };
            let asked: Vec<Demand> = rights_of_job("shop", "made", stored.as_ref(), &spec);
            let wanted = asked.iter().all(|demand| demand.any_of.iter().any(|way| may(way, &rights)));
            let is_allowed = match &found {
                Ok(_) => true,
                Err(kube::Error::Api(status)) if status.code == 403 => false,
                Err(error) => panic!("{error}: {after}"),
            };
            assert_eq!(is_allowed, wanted, "{parts:?}, before {stored:?}: {after}\n{found:?}\n{asked:?}");
            n_denied += u32::from(!is_allowed);
        }
    }
    assert!((20..140).contains(&n_denied), "{n_denied} of 160 are denied: the generator makes too little of one kind");
}

/// A client of the API server that is this user.
async fn as_user(cluster: &Cluster, user: &str) -> Client {
    let file = std::fs::read_to_string(cluster.plane.kubeconfig(User::Admin)).expect("a kubeconfig");
    let kubeconfig = Kubeconfig::from_yaml(&file).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.expect("a configuration");
    config.auth_info.impersonate = Some(user.to_owned());
    Client::try_from(config).expect("a client")
}

fn of(job: &Value) -> Job {
    serde_json::from_value(job.clone()).expect("a job")
}

/// Who writes at one replica and reads at another one finds what was written, however late that one's watch is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_at_one_replica_is_known_at_the_others_when_it_is_answered() {
    let stage = Stage::start("nomad-arrivals", "").await;
    let cluster = &stage.cluster;
    let server = cluster.plane.url();
    let balancer = Balancer::start(server.trim_start_matches("https://").parse().expect("an address")).await;
    let straight = std::fs::read_to_string(cluster.plane.kubeconfig(User::Gateway)).expect("a kubeconfig");
    let kubeconfig = cluster.path("by-way-of");
    let by_way = straight.replace(&server, &format!("https://127.0.0.1:{}", balancer.at.port()));
    std::fs::write(&kubeconfig, by_way).expect("written");
    let (_reader, users, agents) = gateway_by(cluster, ("gateway-b", &kubeconfig), "").await;
    let reads = Nomad::at(&stage, users, User::Admin).await;
    let peers = format!("peers: [\"{agents}\"]\n");
    let (_writer, users, _) = gateway(cluster, "gateway-c", &peers).await;
    let writes = Nomad::at(&stage, users, User::Admin).await;
    for (name, nomad) in [("reader", &reads), ("writer", &writes)] {
        cluster.eventually(&format!("the {name} answers"), async || nomad.knows(&[]).await).await;
    }
    let ordered = async |id: &str| {
        let begun = Instant::now();
        writes.run(&file(id, AT_ONCE, "", "exec sleep 1000")).await;
        begun.elapsed()
    };
    // It is waited for, and not for ever.
    balancer.hold(true);
    let took = ordered("late").await;
    assert!(took >= Duration::from_secs(2), "{took:?}");
    balancer.hold(false);
    cluster.eventually("the reader knows it", async || reads.knows(&["late"]).await).await;
    for n in 0..20 {
        let id = format!("job-{n:02}");
        ordered(&id).await;
        assert!(reads.get("jobs").await.each("ID").contains(&id), "{id} is not known where it was not written");
    }
    // Who is no replica asks in vain.
    let ask =
        ["-sk", "-X", "POST", "-H", "drover-written: []", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "60"];
    let answer = Command::new("curl").args(ask).arg(format!("https://{agents}/arrivals/v1")).output().expect("curl");
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "404");
}
