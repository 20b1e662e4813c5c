//! What the command says where it cannot do as it is told, and what many verdicts on health cost.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::job::{EvalTrigger, JobConditionType};
use drover_api::{Allocation, Deployment};
use expect_test::expect_file;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use xtask::control_plane::User;

use crate::canary::scrubbed;
use crate::cli::{Answer, drover};
use crate::cluster::{Cluster, client_status, job, shared};

/// A command as a person types it, with the words that say which cluster.
async fn person(cluster: &Cluster, ns: &str, line: &str, stdin: String) -> Answer {
    let kubeconfig = cluster.plane.kubeconfig(User::Admin).display().to_string();
    let mut args: Vec<String> = line.split(' ').map(str::to_owned).collect();
    args.extend(["-n".to_owned(), ns.to_owned(), "--kubeconfig".to_owned(), kubeconfig]);
    let call = move || drover(&args.iter().map(String::as_str).collect::<Vec<_>>(), &stdin);
    tokio::task::spawn_blocking(call).await.expect("its end")
}

/// The generations of all objects that a command could change; the controller writes statuses meanwhile.
async fn stored(cluster: &Cluster, ns: &str) -> BTreeMap<String, Option<i64>> {
    let jobs = cluster.jobs(ns).list(&ListParams::default()).await.expect("jobs").items;
    let deployments = Api::<Deployment>::namespaced(cluster.client.clone(), ns).list(&ListParams::default()).await;
    let metas = jobs.into_iter().map(|one| one.metadata);
    let metas = metas.chain(deployments.expect("deployments").items.into_iter().map(|one| one.metadata));
    metas.map(|meta| (meta.name.expect("a name"), meta.generation)).collect()
}

// D-055 is among them: a deployment that there is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_refusal_says_what_and_why_and_what_to_do() {
    let (cluster, ns) = (shared(), "refusals");
    cluster.namespace(ns).await;
    let rolling = json!({ "update": { "maxParallel": 1, "minHealthyTime": "1s", "healthyDeadline": "20s", "progressDeadline": "1m" } });
    let trying = json!({ "update": { "maxParallel": 1, "canary": 1, "minHealthyTime": "1m", "healthyDeadline": "2m", "progressDeadline": "3m" } });
    cluster.apply(ns, &job("web", 1, &rolling, "exec sleep 1000"));
    cluster.apply(ns, &job("new", 1, &rolling, "exec sleep 1000"));
    cluster.condition(ns, "web", JobConditionType::Ready, "True").await;
    cluster.condition(ns, "new", JobConditionType::Ready, "True").await;
    cluster.apply(ns, &job("new", 1, &trying, "exec sleep 1001"));
    let deployments = Api::<Deployment>::namespaced(cluster.client.clone(), ns);
    cluster
        .eventually("the canary is placed and settled", async || {
            let all = deployments.list(&ListParams::default()).await.expect("deployments").items;
            let second = all.iter().find(|one| one.spec.job_name == "new" && one.spec.job_version == 1);
            let running = cluster.running(ns).await.len() == 3;
            running && second.and_then(|one| one.status.as_ref()).is_some_and(|status| status.columns.placed == "1")
        })
        .await;
    let two = format!("---\n{}\n---\n{}", job("a", 1, &json!({}), "x"), job("b", 1, &json!({}), "x"));
    let invalid = job("bad", 1, &json!({ "restart": { "attempts": 1000 } }), "x").to_string();
    let unknown = job("bad", 1, &json!({ "cuont": 1 }), "x").to_string();
    let none = String::new;
    let before = stored(&cluster, ns).await;
    let mut text = String::new();
    for (line, stdin) in [
        ("job status nope", none()),
        ("job history nope", none()),
        ("job revert nope", none()),
        ("job scale nope 3", none()),
        ("job stop nope", none()),
        ("job restart nope", none()),
        ("deployment status nope", none()),
        ("deployment promote nope", none()),
        ("deployment pause nope", none()),
        ("deployment resume nope", none()),
        ("deployment fail nope", none()),
        ("job scale web other 3", none()),
        ("job scale web many", none()),
        ("job scale new 3", none()),
        ("job revert web 99", none()),
        ("job revert web", none()),
        ("job revert web 0", none()),
        ("job restart web --group other", none()),
        ("deployment promote web", none()),
        ("deployment pause web", none()),
        ("deployment fail web", none()),
        ("deployment promote new", none()),
        ("deployment promote new --group other", none()),
        ("deployment resume new", none()),
        ("job plan -", unknown.clone()),
        ("deployment status ne", none()),
        ("job run -", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\n".to_owned()),
        ("job run -", two),
        ("job run -", invalid),
        ("job run -", unknown),
        ("job run -", "{".to_owned()),
        ("job status --as jane", none()),
        ("job status web --as jane", none()),
        ("job run - --as jane", job("other", 1, &json!({}), "x").to_string()),
        ("job stop web --as jane", none()),
        ("deployment list --as jane", none()),
        ("deployment fail new --as jane", none()),
    ] {
        let answer = person(&cluster, ns, line, stdin).await;
        assert_eq!(answer.out, "", "{line}: results only belong on standard output");
        write!(text, "$ drover {line}\n{}exit {}\n\n", answer.err, answer.code).expect("a text");
    }
    assert_eq!(stored(&cluster, ns).await, before, "a refusal writes nothing");
    expect_file!["../golden/cli/refusals.txt"].assert_eq(&scrubbed(&text));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_get_whole_objects_and_nothing_else() {
    let (cluster, ns) = (shared(), "outputs");
    cluster.namespace(ns).await;
    cluster.apply(ns, &job("web", 1, &json!({}), "exec sleep 1000"));
    cluster.condition(ns, "web", JobConditionType::Ready, "True").await;
    for (line, kind) in [
        ("job status -o json", "List"),
        ("job status web -o json", "Job"),
        ("job history web -o json", "List"),
        ("deployment list -o json", "List"),
        ("deployment status web -o json", "Deployment"),
        ("job scale web 2 -o json", "Job"),
        ("job stop web -o json", "Job"),
    ] {
        let answer = person(&cluster, ns, line, String::new()).await;
        let json: Value = serde_json::from_str(&answer.out).unwrap_or_default();
        assert_eq!((answer.code, json["kind"].as_str()), (0, Some(kind)), "{line}: {} {}", answer.out, answer.err);
        if kind == "List" {
            assert_eq!(json["items"].as_array().map(Vec::len), Some(1), "{line}");
        }
    }
    for (line, wanted) in [("job status web -o name", "djob/web\n"), ("job history web -o name", "djv/web-v0\n")] {
        assert_eq!(person(&cluster, ns, line, String::new()).await.out, wanted);
    }
    let yaml = person(&cluster, ns, "deployment list -o yaml", String::new()).await.out;
    assert!(yaml.contains("kind: Deployment\n"), "{yaml}");
}

/// The evaluations that deployments asked for and that changed something.
async fn watched(cluster: &Cluster, ns: &str) -> usize {
    let job = cluster.jobs(ns).get("web").await.expect("the job");
    let evaluations = job.status.map(|status| status.evaluations).unwrap_or_default();
    evaluations.iter().filter(|one| one.trigger == EvalTrigger::DeploymentWatcher).count()
}

/// The live allocations of a version that run.
async fn running_of(cluster: &Cluster, ns: &str, version: i64) -> Vec<Allocation> {
    let mut all = cluster.allocs(ns).await;
    all.retain(|one| {
        one.spec.job_version == version
            && one.spec.desired_status == DesiredStatus::Run
            && client_status(one) == ClientStatus::Running
    });
    all
}

/// Says that an allocation is healthy, as its agent does, `times` times.
async fn declare(cluster: &Cluster, ns: &str, alloc: &Allocation, times: usize) {
    let api = Api::<Allocation>::namespaced(cluster.client.clone(), ns);
    let (name, deployment) = (alloc.metadata.name.clone().expect("a name"), &alloc.spec.deployment_name);
    let began = Instant::now();
    for n in 0..times {
        let health =
            json!({ "healthy": true, "timestamp": format!("2026-01-01T00:00:0{n}Z"), "deploymentName": deployment });
        let patch = Patch::Merge(json!({ "status": { "health": health } }));
        api.patch_status(&name, &PatchParams::default(), &patch).await.expect("a verdict");
    }
    assert!(began.elapsed() < Duration::from_secs(1), "the machine is too slow to say anything");
}

// D-066.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_verdicts_within_a_second_are_one_evaluation() {
    let (cluster, ns) = (shared(), "verdicts");
    cluster.namespace(ns).await;
    let update = json!({ "update": { "maxParallel": 1, "healthCheck": "manual" } });
    cluster.apply(ns, &job("web", 3, &update, "exec sleep 1000"));
    cluster.runs(ns, &[0, 1, 2]).await;
    for alloc in running_of(&cluster, ns, 0).await {
        declare(&cluster, ns, &alloc, 1).await;
    }
    cluster.condition(ns, "web", JobConditionType::Ready, "True").await;
    cluster.apply(ns, &job("web", 3, &update, "exec sleep 1001"));
    cluster.eventually("one is replaced", async || running_of(&cluster, ns, 1).await.len() == 1).await;
    let (first, before) = (running_of(&cluster, ns, 1).await.remove(0), watched(&cluster, ns).await);
    declare(&cluster, ns, &first, 5).await;
    cluster.eventually("the next is replaced", async || running_of(&cluster, ns, 1).await.len() == 2).await;
    cluster.eventually("the evaluation is shown", async || watched(&cluster, ns).await > before).await;
    assert_eq!(watched(&cluster, ns).await, before + 1);
}
