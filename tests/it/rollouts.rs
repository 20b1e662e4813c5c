//! What the command says where it cannot do as it is told, and what many verdicts on health cost.

use drover_testkit::documents::scrubbed;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::deployment::DeploymentPhase;
use drover_api::job::JobConditionType;
use drover_api::{Allocation, ClientNode, Deployment};
use expect_test::expect_file;
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cli::{drover, person};
use crate::cluster::{Cluster, Settings, client_status, condition, job, shared};

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
        ("alloc status nope", none()),
        ("node status nope", none()),
        ("node drain nope", none()),
        ("node eligibility nope --disable", none()),
        ("job status --as jane", none()),
        ("job status web --as jane", none()),
        ("job run - --as jane", job("other", 1, &json!({}), "x").to_string()),
        ("job stop web --as jane", none()),
        ("job plan - --as jane", job("other", 1, &json!({}), "x").to_string()),
        ("job history web --as jane", none()),
        ("job revert web --as jane", none()),
        ("job scale web 2 --as jane", none()),
        ("job restart web --as jane", none()),
        ("deployment list --as jane", none()),
        ("deployment status new --as jane", none()),
        ("deployment promote new --as jane", none()),
        ("deployment pause new --as jane", none()),
        ("deployment resume new --as jane", none()),
        ("deployment fail new --as jane", none()),
        ("alloc status web --as jane", none()),
        ("node status --as jane", none()),
        ("node drain n --as jane", none()),
        ("node eligibility n --disable --as jane", none()),
        ("system release-finalizers --as jane", none()),
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
    let policy = |canary: i64| json!({ "update": { "canary": canary, "minHealthyTime": "1s", "healthyDeadline": "20s", "progressDeadline": "1m" } });
    let (first, second) = (job("web", 1, &policy(0), "exec sleep 1000"), job("web", 1, &policy(1), "exec sleep 1001"));
    let text = first.to_string();
    let check = async |line: &str, kind: &str, stdin: &str| {
        let answer = person(&cluster, ns, line, stdin.to_owned()).await;
        let json: Value = serde_json::from_str(&answer.out).unwrap_or_default();
        assert_eq!(json["kind"].as_str().unwrap_or_default(), kind, "{line}: {} {}", answer.out, answer.err);
        json
    };
    check("job run - -o json", "Job", &text).await;
    for (line, kind) in [
        ("job status web -o json", "Job"),
        ("deployment status web -o json", "Deployment"),
        ("alloc status web -o json", "Allocation"),
    ] {
        check(line, kind, "").await;
    }
    for line in ["job status -o json", "job history web -o json", "deployment list -o json"] {
        assert_eq!(check(line, "List", "").await["items"].as_array().map(Vec::len), Some(1), "{line}");
    }
    assert_eq!(drover(&["job", "validate", "-", "-o", "json"], &text).json()["jobs"][0]["violations"], json!([]));
    assert_eq!(check("job plan - -o json", "", &text).await["diff"]["type"], "None");
    check("job scale web 1 -o json", "Job", "").await;
    assert_eq!(check("job restart web -o json", "List", "").await["items"].as_array().map(Vec::len), Some(1));

    check("job run - --detach -o json", "Job", &second.to_string()).await;
    let deployments = Api::<Deployment>::namespaced(cluster.client.clone(), ns);
    cluster
        .eventually("the canary is healthy", async || {
            let all = deployments.list(&ListParams::default()).await.expect("deployments").items;
            let second = all.iter().find(|one| one.spec.job_version == 1).and_then(|one| one.status.as_ref());
            second.is_some_and(|status| status.columns.healthy == "1")
        })
        .await;
    for verb in ["pause", "resume", "promote"] {
        check(&format!("deployment {verb} web -o json"), "Deployment", "").await;
    }
    cluster.condition(ns, "web", JobConditionType::Ready, "True").await;
    let begins = async |version: i64| {
        let check = async || {
            let all = deployments.list(&ListParams::default()).await.expect("deployments").items;
            all.iter().any(|one| one.spec.job_version == version)
        };
        cluster.eventually(&format!("version {version} is rolled out"), check).await;
    };
    check("job revert web 0 --detach -o json", "Job", "").await;
    begins(2).await;
    // It waits for somebody: what goes on by itself may be over before it is failed.
    let third = job("web", 1, &policy(1), "exec sleep 1002").to_string();
    let refused = person(&cluster, ns, "job run - --detach", third.clone()).await.err;
    assert!(refused.contains(".spec.groups") && refused.contains("--force-conflicts"), "{refused}");
    check("job run - --detach --force-conflicts -o json", "Job", &third).await;
    begins(3).await;
    check("deployment fail web -o json", "Deployment", "").await;
    check("job stop web -o json", "Job", "").await;
    check("node status -o json", "List", "").await;
    assert_eq!(person(&cluster, ns, "job status web -o name", String::new()).await.out, "djob/web\n");
    let template = "deployment list -o jsonpath={.kind}:{.items[0].spec.jobName}";
    assert_eq!(person(&cluster, ns, template, String::new()).await.out, "List:web");
    let broken = person(&cluster, ns, "deployment list -o jsonpath={.items", String::new()).await;
    assert!(broken.err.contains("`{.items` is not closed; write `}`"), "{}", broken.err);
    let yaml = person(&cluster, ns, "deployment list -o yaml", String::new()).await.out;
    assert!(yaml.contains("kind: Deployment\n"), "{yaml}");
}

/// The evaluations of a job that its deployments asked for, those that changed nothing too.
fn watched(cluster: &Cluster, ns: &str) -> usize {
    let log = cluster.log("controller");
    let job = format!("job={ns}/web");
    let made = log.lines().filter(|line| line.contains("a job is evaluated") && line.contains(&job));
    made.filter(|line| line.contains("trigger=deployment-watcher")).count()
}

/// Whether an allocation is to run and does.
fn is_live(one: &Allocation) -> bool {
    one.spec.desired_status == DesiredStatus::Run && client_status(one) == ClientStatus::Running
}

/// The live allocations of a version that run.
async fn running_of(cluster: &Cluster, ns: &str, version: i64) -> Vec<Allocation> {
    let mut all = cluster.allocs(ns).await;
    all.retain(|one| one.spec.job_version == version && is_live(one));
    all
}

/// Says that an allocation is healthy, as its agent does, `times` times; the time it took.
async fn declare(cluster: &Cluster, ns: &str, alloc: &Allocation, times: usize) -> Duration {
    let api = Api::<Allocation>::namespaced(cluster.client.clone(), ns);
    let (name, deployment) = (alloc.metadata.name.clone().expect("a name"), &alloc.spec.deployment_name);
    let began = Instant::now();
    for n in 0..times {
        let health =
            json!({ "healthy": true, "timestamp": format!("2026-01-01T00:00:0{n}Z"), "deploymentName": deployment });
        let patch = Patch::Merge(json!({ "status": { "health": health } }));
        api.patch_status(&name, &PatchParams::default(), &patch).await.expect("a verdict");
    }
    began.elapsed()
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
    let (first, before) = (running_of(&cluster, ns, 1).await.remove(0), watched(&cluster, ns));
    let took = declare(&cluster, ns, &first, 5).await;
    cluster.eventually("the next is replaced", async || running_of(&cluster, ns, 1).await.len() == 2).await;
    // One evaluation a second at most: five verdicts on a machine that needs longer may be as many as began seconds.
    // The end of what was replaced then asks for one more.
    let evaluated = u64::try_from(watched(&cluster, ns) - before).expect("more than before");
    assert!((1..=2 + took.as_secs()).contains(&evaluated), "{evaluated} evaluations for five verdicts in {took:?}");
}

/// How many watches of drover's kinds the API server serves.
fn open_watches(cluster: &Cluster) -> u64 {
    let metrics = cluster.kubectl(&["get", "--raw", "/metrics"]).expect("metrics");
    let lines = metrics.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{")
            && line.contains("group=\"drover.dev\"")
            && line.contains("verb=\"WATCH\"")
    });
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// A node that only its objects know, with room for everything, and a heartbeat that lasts as long as the test.
async fn a_large_node(cluster: &Cluster) {
    let node = json!({ "metadata": { "name": "large" }, "spec": {} });
    let nodes = Api::<ClientNode>::all(cluster.client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(node).expect("a node")).await.expect("created");
    let status = json!({ "status": { "fingerprint": {
        "attributes": {}, "drivers": { "mock": { "detected": true, "healthy": true } },
        "hostNetworks": [{ "name": "default", "cidr": "10.0.0.7/32" }],
        "resources": { "cpu": 1_000_000, "memoryMB": 1_000_000, "diskMB": 1_000_000, "cores": 4 } } } });
    let patch = Patch::Merge(status);
    nodes.patch_status("large", &PatchParams::default(), &patch).await.expect("a fingerprint");
    let beat = json!({ "metadata": { "name": "node-large", "namespace": "drover-system" },
        "spec": { "holderIdentity": "large", "leaseDurationSeconds": 600, "renewTime": "2026-01-01T00:00:00.000000Z" } });
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), "drover-system");
    leases.create(&PostParams::default(), &serde_json::from_value(beat).expect("a Lease")).await.expect("a heartbeat");
    cluster
        .eventually("the node is ready", async || {
            let node = nodes.get("large").await.expect("the node");
            node.status.is_some_and(|status| status.phase.as_str() == "ready")
        })
        .await;
}

/// Does something to many objects, a few at a time.
async fn all<T, F: Future<Output = ()>>(objects: impl IntoIterator<Item = T>, change: impl Fn(T) -> F) {
    futures::stream::iter(objects).map(change).buffer_unordered(16).collect::<Vec<()>>().await;
}

/// The versions of all deployments, and how many evaluations there were.
async fn work_done(cluster: &Cluster, ns: &str) -> (Vec<(String, Option<String>)>, usize) {
    let deployments = Api::<Deployment>::namespaced(cluster.client.clone(), ns).list(&ListParams::default()).await;
    let versions = deployments.expect("deployments").items.into_iter().map(|one| one.metadata);
    let versions = versions.map(|meta| (meta.name.expect("a name"), meta.resource_version)).collect();
    (versions, cluster.log("controller").matches("a job is evaluated").count())
}

// D-060.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_roll_outs_share_the_watches_and_what_is_no_news_of_health_costs_nothing() {
    const JOBS: usize = 500;
    // DROVER_HEALTH_NEUTRAL=10000 asks for more.
    let updates = std::env::var("DROVER_HEALTH_NEUTRAL").map_or(1000, |count| count.parse().expect("a count"));
    let ns = "many";
    let cluster = Cluster::start("many", Settings { ttl_and_grace: 600, lease: 20, ..Settings::default() }).await;
    cluster.namespace(ns).await;
    let _controller = cluster.controller();
    cluster
        .eventually("the controller leads", async || cluster.log("controller").contains("caches are complete"))
        .await;
    a_large_node(&cluster).await;
    let mut web = job("web", 1, &json!({}), "x");
    web["spec"]["update"] = json!({ "maxParallel": 1, "progressDeadline": "1h" });
    web["spec"]["groups"][0]["tasks"][0]["driver"] = json!("mock");
    web["spec"]["groups"][0]["tasks"][0]["config"] = json!({});
    let jobs = cluster.jobs(ns);
    all(0..JOBS, |n| {
        let mut one = web.clone();
        one["metadata"]["name"] = json!(format!("web-{n}"));
        let one = serde_json::from_value(one).expect("a job");
        let jobs = jobs.clone();
        async move { drop(jobs.create(&PostParams::default(), &one).await.expect("created")) }
    })
    .await;
    let deployments = Api::<Deployment>::namespaced(cluster.client.clone(), ns);
    let allocs = Api::<Allocation>::namespaced(cluster.client.clone(), ns);
    cluster
        .eventually("each has placed its allocation", async || {
            let found = deployments.list(&ListParams::default()).await.expect("deployments").items;
            let is_placed = |one: &Deployment| one.status.as_ref().is_some_and(|status| status.columns.placed == "1");
            found.iter().filter(|one| is_placed(one)).count() == JOBS
        })
        .await;
    // One for each kind, and the garbage collector's own.
    let watches = open_watches(&cluster);
    assert!((1..30).contains(&watches), "{watches} watches for {JOBS} roll-outs");

    let patch_status = |name: String, status: Value| {
        let (allocs, patch) = (allocs.clone(), Patch::Merge(json!({ "status": status })));
        async move { drop(allocs.patch_status(&name, &PatchParams::default(), &patch).await.expect("a status")) }
    };
    let placed = allocs.list(&ListParams::default()).await.expect("allocations").items;
    let names: Vec<String> = placed.iter().map(|one| one.metadata.name.clone().expect("a name")).collect();
    assert_eq!(names.len(), JOBS);
    let runs = json!({ "clientStatus": "running", "taskStates": { "t": { "state": "running", "restarts": 0 } } });
    all(names.iter(), |name| patch_status(name.clone(), runs.clone())).await;
    // The verdict comes last: when it is counted, everything before it was seen.
    let settle = async |n: usize| {
        let deployment = &placed[n].spec.deployment_name;
        let health = json!({ "healthy": true, "timestamp": "2026-01-01T00:00:00Z", "deploymentName": deployment });
        patch_status(names[n].clone(), json!({ "health": health })).await;
        cluster
            .eventually("the roll-out is over", async || {
                let one = deployments.get(deployment).await.expect("the deployment");
                one.status.is_some_and(|status| status.phase == DeploymentPhase::Successful)
            })
            .await;
    };
    settle(0).await;
    let before = work_done(&cluster, ns).await;
    all((0..updates).map(|n| (n % (JOBS - 2) + 2, n)), |(at, n)| {
        patch_status(names[at].clone(), json!({ "taskStates": { "t": { "restarts": n / JOBS + 1 } } }))
    })
    .await;
    let one = placed[2].spec.deployment_name.clone();
    for n in 0..1000 {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "example.com/n": n.to_string() } } }));
        deployments.patch(&one, &PatchParams::default(), &patch).await.expect("patched");
    }
    let watches = open_watches(&cluster);
    assert!((1..30).contains(&watches), "{watches} watches for {JOBS} roll-outs");
    let quiet = work_done(&cluster, ns).await;
    settle(1).await;
    let after = work_done(&cluster, ns).await;
    let touched = |from: &[(String, Option<String>)], to: &[(String, Option<String>)]| {
        let changed = from.iter().zip(to).filter(|(from, to)| from != to);
        changed.map(|(from, _)| from.0.clone()).collect::<Vec<_>>()
    };
    assert_eq!(touched(&before.0, &quiet.0), std::slice::from_ref(&one), "only the one that a person annotated");
    let last = placed[1].spec.deployment_name.clone();
    assert_eq!(touched(&quiet.0, &after.0), [last], "and what the verdict changed");
    assert_eq!(quiet.1, before.1, "{updates} updates that say nothing of health were evaluated");
    assert!(after.1 - quiet.1 <= 2, "{} evaluations for one verdict", after.1 - quiet.1);
}

/// D-088 on a real API server, twenty times: what replaces a failed allocation falls due when its version's deadline
/// has passed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_reverts_while_a_replacement_is_due_are_tracked_to_their_end() {
    const JOBS: usize = 20;
    let (cluster, ns) = (shared(), "due");
    cluster.namespace(ns).await;
    let fields = json!({
        "update": { "maxParallel": 1, "minHealthyTime": "1s", "healthyDeadline": "10s", "progressDeadline": "15s",
            "autoRevert": true },
        "reschedule": { "delay": "5s", "delayFunction": "constant", "unlimited": true },
        "restart": { "attempts": 0, "interval": "1m", "delay": "1s", "mode": "fail" },
    });
    let name = |n: usize| format!("web-{n}");
    let deployments = Api::<Deployment>::namespaced(cluster.client.clone(), ns);
    let of_version = async |version: i64, phase: DeploymentPhase| {
        let mut found = deployments.list(&ListParams::default()).await.expect("deployments").items;
        found.retain(|one| {
            one.spec.job_version == version && one.status.as_ref().is_some_and(|status| status.phase == phase)
        });
        found
    };
    for (version, script) in [(0, "exec sleep 1000"), (1, "exit 1")] {
        for n in 0..JOBS {
            cluster.apply(ns, &job(&name(n), 2, &fields, script));
        }
        let phase = if version == 0 { DeploymentPhase::Successful } else { DeploymentPhase::Failed };
        let all_ended = async || of_version(version, phase).await.len() == JOBS;
        cluster.eventually(&format!("version {version} is {phase:?}"), all_ended).await;
    }
    let restored = async || of_version(2, DeploymentPhase::Successful).await.len() == JOBS;
    cluster.eventually("the version that is restored has a deployment, which succeeds", restored).await;
    let (restored, allocs) = (of_version(2, DeploymentPhase::Successful).await, cluster.allocs(ns).await);
    for n in 0..JOBS {
        let name = name(n);
        let job = cluster.jobs(ns).get(&name).await.expect("the job");
        let reverted = condition(&job, JobConditionType::Reverted).map(|(status, _)| status);
        assert_eq!(reverted.as_deref(), Some("True"), "{name}");
        let deployment = restored.iter().find(|one| one.spec.job_name == name).expect("a deployment");
        let live: Vec<&Allocation> = allocs.iter().filter(|one| one.spec.job_name == name && is_live(one)).collect();
        assert_eq!(live.len(), 2, "{name}");
        for alloc in live.into_iter().filter(|one| one.spec.job_version != 0) {
            assert_eq!(alloc.spec.job_version, 2, "{name}");
            assert_eq!(Some(&alloc.spec.deployment_name), deployment.metadata.name.as_ref(), "{name}");
        }
    }
}
