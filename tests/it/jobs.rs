//! Jobs from `kubectl apply` to running processes and back, on a real control plane with a real controller and agent.

use std::time::Instant;

use drover_api::allocation::ClientStatus;
use drover_api::allocation::TaskEventType::{
    self, NotRestarting, Received, Restarting, Started, TaskSetup, Terminated,
};
use drover_api::job::JobConditionType;
use kube::api::ListParams;
use serde_json::json;

use crate::cluster::{self, client_status, job, logged, shared};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_are_never_empty_and_wait_returns() {
    let (cluster, ns) = (shared(), "columns");
    cluster.namespace(ns).await;
    cluster.apply(ns, &job("web", 2, &json!({}), "exec sleep 1000"));
    cluster.kubectl(&["wait", "-n", ns, "--for=condition=Ready", "djob/web", "--timeout=60s"]).expect("ready");
    for (kinds, wanted) in [
        ("djob", "NAME TYPE PHASE RUNNING VERSION DEPLOYMENT PRIORITY POOL REASON NEXT-LAUNCH AGE MESSAGE"),
        ("alloc", "NAME JOB GROUP NODE DESIRED STATUS HEALTHY RESTARTS VERSION DEPLOYMENT REASON AGE"),
        ("cnode", "NAME POOL DC PHASE ELIGIBLE DRAIN ALLOCS CPU MEMORY DRIVERS VERSION AGE"),
        ("djv", "NAME JOB VERSION STABLE TAG GROUPS AGE"),
    ] {
        let table = cluster.kubectl(&["get", kinds, "-n", ns, "-o", "wide"]).expect("a table");
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let head = lines.next().expect("a head");
        assert_eq!(head.join(" "), wanted);
        for line in lines {
            // A message is a sentence.
            let is_whole = line.len() == head.len() || line.len() > head.len() && head.ends_with(&["MESSAGE"]);
            assert!(is_whole, "an empty column in {table}");
        }
    }
    let narrow = cluster.kubectl(&["get", "djob", "-n", ns]).expect("a table");
    assert!(narrow.contains("web    service   running   2/2       0         AllHealthy"), "{narrow}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_scaled_by_its_manifest_and_by_the_scale_subresource() {
    let (cluster, ns) = (shared(), "scale");
    cluster.namespace(ns).await;
    let web = |count| job("web", count, &json!({}), "exec sleep 1000");
    cluster.apply(ns, &web(5));
    cluster.runs(ns, &[0, 1, 2, 3, 4]).await;
    cluster.apply(ns, &web(2));
    cluster.runs(ns, &[0, 1]).await;
    cluster.condition(ns, "web", JobConditionType::Ready, "True").await;
    let versions = cluster.versions(ns).list(&ListParams::default()).await.expect("versions").items.len();
    cluster.kubectl(&["scale", "-n", ns, "djob/web", "--replicas=4"]).expect("scaled");
    cluster.runs(ns, &[0, 1, 2, 3]).await;
    let after = cluster.versions(ns).list(&ListParams::default()).await.expect("versions").items.len();
    assert_eq!(after, versions, "a scale is no new version");

    cluster.apply(ns, &web(5));
    let message = cluster.condition(ns, "web", JobConditionType::ScaleOverride, "True").await;
    assert!(message.contains("sets group g to 4, over the 5"), "{message}");
    cluster.condition(ns, "web", JobConditionType::Ready, "True").await;
    cluster.runs(ns, &[0, 1, 2, 3]).await;
    let path = format!("/apis/drover.dev/v1alpha1/namespaces/{ns}/jobs/web/scale");
    let scale: serde_json::Value =
        serde_json::from_str(&cluster.kubectl(&["get", "--raw", &path]).expect("a scale")).expect("JSON");
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&json!(4), &json!(4)));
    assert_eq!(scale["status"]["selector"], "drover.dev/job=web");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_job_runs_once() {
    let (cluster, ns) = (shared(), "batch");
    cluster.namespace(ns).await;
    let mut count = job("count", 1, &json!({}), "printf 'one two three' | wc -w");
    count["spec"]["type"] = json!("batch");
    cluster.apply(ns, &count);
    cluster.kubectl(&["wait", "-n", ns, "--for=condition=Complete", "djob/count", "--timeout=60s"]).expect("complete");
    let first = cluster.allocs(ns).await;
    assert_eq!(logged(&cluster, "n-1", &first[0], "t").trim(), "3");
    cluster.apply(ns, &count);
    let mut other = count.clone();
    other["spec"]["priority"] = json!(60);
    cluster.apply(ns, &other);
    cluster.condition(ns, "count", JobConditionType::Complete, "True").await;
    let names = |allocs: &[drover_api::Allocation]| allocs.iter().map(|a| a.metadata.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&cluster.allocs(ns).await), names(&first), "a finished slot does not run again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_task_restarts_then_fails_then_is_rescheduled_then_stalls() {
    let (cluster, ns) = (shared(), "failing");
    cluster.namespace(ns).await;
    let policies = json!({
        "restart": { "attempts": 1, "interval": "1m", "delay": "100ms", "mode": "fail" },
        "reschedule": { "attempts": 1, "interval": "1m", "delay": "5s", "delayFunction": "constant" },
    });
    cluster.apply(ns, &job("crash", 1, &policies, "exit 3"));
    let message = cluster.condition(ns, "crash", JobConditionType::Stalled, "True").await;
    assert!(message.contains("deployment crash-"), "{message}");
    let cause = "task t ended with exit code 3; `drover alloc logs crash-g-0-";
    assert!(message.contains(cause) && !message.contains("describe"), "{message}");
    let mut allocs = cluster.allocs(ns).await;
    allocs.sort_by_key(|alloc| alloc.metadata.creation_timestamp.clone());
    assert_eq!(allocs.len(), 2, "one reschedule");
    assert_eq!(allocs[1].spec.previous_allocation, allocs[0].metadata.name.clone().unwrap());
    let tracker = allocs[1].spec.reschedule_tracker.clone().expect("a tracker");
    assert_eq!(tracker.events[0].prev_alloc_id, allocs[0].metadata.uid.clone().unwrap());
    for alloc in &allocs {
        let status = alloc.status.clone().expect("a status");
        assert_eq!((status.client_status, status.task_states["t"].restarts), (ClientStatus::Failed, 1));
        let events: Vec<TaskEventType> = status.task_states["t"].events.iter().map(|event| event.r#type).collect();
        assert_eq!(events, [Received, TaskSetup, Started, Terminated, Restarting, Started, Terminated, NotRestarting]);
    }
    let name = allocs[0].metadata.name.clone().unwrap();
    let described = cluster.kubectl(&["describe", "-n", ns, &format!("alloc/{name}")]).expect("a description");
    for text in ["Exit Code:   3", "Not Restarting", "all 1 restarts within"] {
        assert!(described.contains(text), "{text} is not in {described}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_ends_the_processes_and_then_the_objects() {
    let (cluster, ns) = (shared(), "deleting");
    cluster.namespace(ns).await;
    // It ignores its signal, so that it ends by force after the kill timeout of 2 s.
    cluster.apply(ns, &job("stubborn", 2, &json!({}), "trap '' INT TERM; echo $$; while true; do sleep 1; done"));
    cluster.condition(ns, "stubborn", JobConditionType::Ready, "True").await;
    let before = cluster.allocs(ns).await;
    let pids: Vec<String> = before.iter().map(|alloc| logged(&cluster, "n-1", alloc, "t").trim().to_owned()).collect();
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");

    let one = before.iter().position(|alloc| alloc.spec.index == 0).expect("slot 0");
    let name = before[one].metadata.name.clone().unwrap();
    cluster.kubectl(&["delete", "-n", ns, &format!("alloc/{name}"), "--wait=false"]).expect("deleted");
    cluster
        .eventually("the deleted allocation is replaced", async || {
            let now = cluster.allocs(ns).await;
            now.len() == 2
                && now.iter().all(|alloc| {
                    alloc.metadata.name.as_ref() != Some(&name) && client_status(alloc) == ClientStatus::Running
                })
        })
        .await;
    assert!(!is_alive(&pids[one]));

    let began = Instant::now();
    cluster.kubectl(&["delete", "-n", ns, "djob/stubborn", "--wait=false"]).expect("deleted");
    cluster.eventually("the processes end", async || !is_alive(&pids[1 - one])).await;
    assert!(
        began.elapsed().as_secs_f64() < 5.0,
        "killTimeout is 2 s, not the usual 5, and it took {:?}",
        began.elapsed()
    );
    cluster.eventually("the objects go", async || cluster.allocs(ns).await.is_empty()).await;
    assert!(cluster.jobs(ns).get_opt("stubborn").await.expect("an answer").is_none());
    assert!(cluster.versions(ns).list(&ListParams::default()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_task_is_replaced_a_few_at_a_time() {
    let (cluster, ns) = (shared(), "rolling");
    cluster.namespace(ns).await;
    let update = json!({ "update": { "maxParallel": 2 } });
    cluster.apply(ns, &job("web", 4, &update, "echo v1; exec sleep 1000"));
    cluster.condition(ns, "web", JobConditionType::Ready, "True").await;
    cluster.apply(ns, &job("web", 4, &update, "echo v2; exec sleep 1000"));
    cluster
        .eventually("all run the new version", async || {
            let allocs = cluster.allocs(ns).await;
            let live: Vec<_> = allocs.iter().filter(|alloc| alloc.spec.desired_status.as_str() == "run").collect();
            assert!(live.len() <= 4, "never more than the count");
            live.len() == 4
                && live.iter().all(|alloc| alloc.spec.job_version == 1 && client_status(alloc) == ClientStatus::Running)
        })
        .await;
    cluster.condition(ns, "web", JobConditionType::Ready, "True").await;
    cluster.runs(ns, &[0, 1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_the_controller_can_judge_stalls_that_job_and_no_other() {
    let (cluster, ns) = (shared(), "invalid");
    cluster.namespace(ns).await;
    let mut bad = job("bad", 1, &json!({}), "exec sleep 1000");
    bad["spec"]["constraints"] = json!([{ "lTarget": "${attr.kernel.name}", "operand": "regexp", "rTarget": "(" }]);
    bad["spec"]["groups"][0]["restart"] = json!({ "attempts": 1000 });
    cluster.apply(ns, &bad);
    cluster.apply(ns, &job("good", 1, &json!({}), "exec sleep 1000"));
    cluster.condition(ns, "good", JobConditionType::Ready, "True").await;
    let message = cluster.condition(ns, "bad", JobConditionType::Stalled, "True").await;
    for text in [
        "spec.constraints[0].rTarget: is no usable regular expression",
        "ConstraintRegexp",
        "spec.groups[0].restart.attempts",
        "RestartImpossible",
    ] {
        assert!(message.contains(text), "{text} is not in {message}");
    }
    let allocs = cluster.allocs(ns).await;
    assert_eq!(allocs.iter().map(|alloc| alloc.spec.job_name.as_str()).collect::<Vec<_>>(), ["good"]);
    bad["spec"]["constraints"] = json!([]);
    bad["spec"]["groups"][0]["restart"] = json!({});
    cluster.apply(ns, &bad);
    cluster.condition(ns, "bad", JobConditionType::Ready, "True").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_enforces_a_pod_security_standard_refuses_what_gives_tasks_something_of_their_node() {
    const LABEL: &str = "pod-security.kubernetes.io/enforce";
    let (cluster, ns) = (shared(), "pod-security");
    cluster.namespace(ns).await;
    let enforce = |value: &str| {
        let label = if value.is_empty() { format!("{LABEL}-") } else { format!("{LABEL}={value}") };
        cluster.kubectl(&["label", "namespace", ns, &label, "--overwrite"]).expect("labelled");
    };
    enforce("restricted");
    cluster.apply(ns, &job("plain", 1, &json!({}), "exec sleep 1000"));
    let mut privileged = job("privileged", 1, &json!({}), "");
    privileged["spec"]["groups"][0]["tasks"] =
        json!([{ "name": "t", "driver": "docker", "config": { "image": "x", "privileged": true } }]);
    cluster.apply(ns, &privileged);
    for (name, field) in [("plain", "driver: driver raw_exec"), ("privileged", "config.privileged: a privileged")] {
        let message = cluster.condition(ns, name, JobConditionType::Stalled, "True").await;
        let expected = format!("spec.groups[0].tasks[0].{field}");
        assert!(message.starts_with(&expected), "{message}");
        assert!(message.contains(&format!("{LABEL} is restricted")) && message.contains("(PodSecurity)"), "{message}");
    }
    assert_eq!(cluster.allocs(ns).await.len(), 0);

    // Without the label the same job runs; with it again, what runs goes on.
    enforce("");
    cluster.condition(ns, "plain", JobConditionType::Ready, "True").await;
    enforce("baseline");
    let message = cluster.condition(ns, "plain", JobConditionType::Stalled, "True").await;
    assert!(message.contains(&format!("{LABEL} is baseline")), "{message}");
    assert_eq!(cluster.running(ns).await, [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_finds_no_place_says_why_and_starts_when_there_is_room() {
    let (cluster, ns) = (shared(), "blocked");
    cluster.namespace(ns).await;
    let mut wanting = job("wanting", 1, &json!({}), "exec sleep 1000");
    wanting["spec"]["constraints"] = json!([{ "lTarget": "${meta.rack}", "rTarget": "r7" }]);
    cluster.apply(ns, &wanting);
    let message = cluster.condition(ns, "wanting", JobConditionType::Placed, "False").await;
    assert_eq!(
        message,
        "group g: filtered by ${meta.rack} = r7 on 1 of 1 nodes; relax this rule, or change a node so that it holds: that alone opens up to 1"
    );
    cluster
        .kubectl(&["patch", "cnode", "n-1", "--type=merge", "-p", r#"{"spec":{"meta":{"rack":"r7"}}}"#])
        .expect("patched");
    cluster.condition(ns, "wanting", JobConditionType::Ready, "True").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_run() {
    let (cluster, ns) = (shared(), "examples");
    cluster.namespace(ns).await;
    cluster
        .kubectl_with(&["apply", "-n", ns, "-f", "-"], Some(&cluster::example("node-report.yaml")))
        .expect("applied");
    cluster.kubectl(&["wait", "-n", ns, "--for=condition=Ready", "djob/node-report", "--timeout=60s"]).expect("ready");
}

fn is_alive(pid: &str) -> bool {
    std::path::Path::new("/proc").join(pid).join("stat").exists()
}
