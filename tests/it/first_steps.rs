//! What a new user meets: a job that was stopped, one that was taken back, one that fails, and what is said of them.

use drover_api::job::JobConditionType;
use serde_json::json;

use crate::cli::person;
use crate::cluster::{job, shared};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_job_says_who_stopped_it_and_is_started_by_run_and_by_start() {
    let (cluster, ns) = (shared(), "stopped-job");
    cluster.namespace(ns).await;
    let web = job("web", 1, &json!({}), "exec sleep 1000");
    let drover = async |line: &str, stdin: String| person(&cluster, ns, line, stdin).await;
    let runs = async || {
        cluster.condition(ns, "web", JobConditionType::Ready, "True").await;
        assert_eq!(cluster.running(ns).await, [0]);
    };
    cluster.apply(ns, &web);
    runs().await;

    let stopped = drover("job stop web", String::new()).await;
    assert_eq!(stopped.err, format!("djob/web is being stopped; start it again with `drover job start web -n {ns}`\n"));
    let said = cluster.condition(ns, "web", JobConditionType::Stopped, "True").await;
    let remedy = format!("; start it with `drover job start web -n {ns}`, or set spec.stop to false");
    assert!(said.starts_with("the job was stopped by `drover job stop` at 20") && said.ends_with(&remedy), "{said}");

    // Neither the manifest's apply by another writer nor one that changes nothing starts it; `drover job run` does.
    let manifest = web.to_string();
    let ran = drover("job run - --timeout 60s", manifest.clone()).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    runs().await;
    let owners = cluster.jobs(ns).get("web").await.expect("the job").metadata.managed_fields.expect("managers");
    let owner =
        owners.iter().find(|one| one.fields_v1.as_ref().is_some_and(|fields| !fields.0["f:spec"]["f:stop"].is_null()));
    let owner = owner.map(|one| (one.manager.as_deref(), one.operation.as_deref()));
    assert_eq!(owner, Some((Some("drover-cli"), Some("Apply"))));

    let stop = ["patch", "djob/web", "-n", ns, "--type=merge", "-p", r#"{"spec":{"stop":true}}"#];
    cluster.kubectl(&stop).expect("a stop");
    let said = cluster.condition(ns, "web", JobConditionType::Stopped, "True").await;
    assert!(said.starts_with("the job was stopped by `kubectl patch` at 20"), "{said}");
    let started = drover("job start web --timeout 60s", String::new()).await;
    assert_eq!(started.code, 0, "{}", started.err);
    runs().await;

    // The manifest has changed meanwhile, and another writer has set it to stop: what is asked for is that it runs.
    cluster.kubectl(&stop).expect("a stop");
    let again =
        drover("job run - --timeout 60s --force-conflicts", job("web", 1, &json!({}), "exec sleep 1001").to_string())
            .await;
    assert_eq!(again.code, 0, "{}", again.err);
    runs().await;

    let mut still = web.clone();
    still["spec"]["stop"] = json!(true);
    let ended = drover("job run - --timeout 60s --force-conflicts", still.to_string()).await;
    assert_eq!(
        (ended.code, ended.err.as_str()),
        (2, "djob/web is applied, and does not run: its manifest sets spec.stop to true; leave that out to run it\n")
    );

    // Another writer stops one that is followed.
    let nowhere = json!({ "constraints": [{ "lTarget": "${meta.nope}", "operand": "=", "rTarget": "1" }] });
    let manifest = job("waits", 1, &nowhere, "exec sleep 1000").to_string();
    let stops = async {
        cluster.condition(ns, "waits", JobConditionType::Placed, "False").await;
        cluster.kubectl(&["patch", "djob/waits", "-n", ns, "--type=merge", "-p", r#"{"spec":{"stop":true}}"#])
    };
    let (followed, stopped) = tokio::join!(drover("job run - --timeout 60s", manifest), stops);
    stopped.expect("a stop");
    let last = followed.err.lines().last().unwrap_or_default();
    let wanted = "djob/waits does not run: the job was stopped by `kubectl patch` at 20";
    assert!(followed.code == 2 && last.starts_with(wanted), "{}", followed.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cause_stands_on_the_first_screen() {
    let (cluster, ns) = (shared(), "first-screen");
    cluster.namespace(ns).await;
    let drover = async |line: &str, stdin: String| person(&cluster, ns, line, stdin).await;
    let wide = |name: &str| cluster.kubectl(&["get", "djob", name, "-n", ns, "-o", "wide"]).expect("a table");

    let rule = json!({ "constraints": [{ "lTarget": "${meta.nope}", "operand": "=", "rTarget": "1" }] });
    let followed = drover("job run - --timeout 3s", job("blocked", 1, &rule, "exec sleep 1000").to_string()).await;
    let cause = "Placing: group g: filtered by ${meta.nope} = 1 on 1 of 1 nodes; ";
    assert_eq!(followed.code, 3, "{}", followed.err);
    assert!(followed.err.contains(&format!("djob/blocked: pending, running 0/1, {cause}")), "{}", followed.err);
    let last = followed.err.lines().last().expect("a line");
    assert!(last.starts_with(&format!("timed out: djob/blocked is not there yet: {cause}")), "{last}");
    let narrow = cluster.kubectl(&["get", "djob", "blocked", "-n", ns]).expect("a table");
    assert!(narrow.contains("blocked   service   pending   0/1       0         Placing"), "{narrow}");
    assert!(wide("blocked").contains(cause.trim_start_matches("Placing: ").trim_end()), "{}", wide("blocked"));

    let never = json!({
        "restart": { "attempts": 1, "interval": "1m", "delay": "100ms", "mode": "fail" },
        "reschedule": { "attempts": 0, "unlimited": false }, "update": { "maxParallel": 0 },
    });
    let mut bad = job("bad", 2, &never, "");
    bad["spec"]["groups"][0]["tasks"][0]["config"] = json!({ "command": "/bin/nope" });
    let service = job("short", 1, &never, "exit 0");
    for (manifest, name, cause) in [
        (
            bad,
            "bad",
            "task t could not start: command \"/bin/nope\" was not found in the task's directory, nor on this node; correct config.command",
        ),
        (
            service,
            "short",
            "task t ended with exit code 0, but a service keeps running; let its program stay in the foreground",
        ),
    ] {
        cluster.apply(ns, &manifest);
        let why = cluster.condition(ns, name, JobConditionType::Stalled, "True").await;
        assert!(why.contains(cause), "{why}");
        assert!(wide(name).contains(cause), "{}", wide(name));
        let selector = format!("reason=AllocationFailed,regarding.name={name}");
        let events = || {
            let listed = [
                "get",
                "events.events.k8s.io",
                "-n",
                ns,
                "--field-selector",
                &selector,
                "-o",
                "jsonpath={.items[*].note}",
            ];
            cluster.kubectl(&listed).expect("events")
        };
        cluster.eventually(&format!("an event of {name} says why"), async || events().contains(cause)).await;
        assert_eq!(events().matches(cause).count(), 1, "one cause is one event: {}", events());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_is_named() {
    let cluster = shared();
    let web = job("web", 1, &json!({}), "exec sleep 1000");
    for line in ["job run -", "job status", "job status web"] {
        let answer = person(&cluster, "nowhere", line, web.to_string()).await;
        let says =
            "there is no namespace nowhere; make it with `kubectl create namespace nowhere`, or choose another with -n";
        assert!(answer.code == 1 && answer.err.contains(says), "{line}: {} {}", answer.code, answer.err);
    }
    let mut kindless = web;
    kindless.as_object_mut().expect("an object").remove("kind");
    let answer = person(&cluster, "default", "job run -", kindless.to_string()).await;
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("kind: is missing; write `kind: Job`"), "{}", answer.err);
}
