//! The user's command as a process: exit codes, what stands on which stream, and plans on a real cluster.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use drover_api::job::JobConditionType;
use drover_testkit::control_plane::User;
use expect_test::expect;
use serde_json::{Value, json};

use crate::cluster::{Cluster, job, shared};

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        let parsed = serde_json::from_str(&self.out);
        assert!(parsed.is_ok(), "no JSON: {} {}", self.out, self.err);
        parsed.expect("JSON")
    }
}

/// Runs the command with a text on its standard input.
pub(crate) fn drover(args: &[&str], stdin: &str) -> Answer {
    let mut child = Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command");
    let mut pipe = child.stdin.take().expect("a pipe");
    let stdin = stdin.to_owned();
    // A command that ends with an error may not have read everything.
    let writer = std::thread::spawn(move || pipe.write_all(stdin.as_bytes()).ok());
    let output = child.wait_with_output().expect("its end");
    writer.join().expect("the writer");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Answer { code: output.status.code().expect("a code"), out: text(output.stdout), err: text(output.stderr) }
}

/// A command as a person types it, with the words that say which cluster.
pub(crate) async fn person(cluster: &Cluster, ns: &str, line: &str, stdin: String) -> Answer {
    let kubeconfig = cluster.plane.kubeconfig(User::Admin).display().to_string();
    let mut args: Vec<String> = line.split(' ').map(str::to_owned).collect();
    args.extend(["-n".to_owned(), ns.to_owned(), "--kubeconfig".to_owned(), kubeconfig]);
    let call = move || drover(&args.iter().map(String::as_str).collect::<Vec<_>>(), &stdin);
    tokio::task::spawn_blocking(call).await.expect("its end")
}

const V: &str = "drover.dev/v1alpha1";

fn node(name: &str, kernel: &str, memory: i64) -> Value {
    json!({ "apiVersion": V, "kind": "ClientNode", "metadata": { "name": name },
        "spec": { "datacenter": "dc1", "nodePool": "default" },
        "status": { "phase": "ready", "fingerprint": {
            "attributes": { "kernel.version": kernel }, "meta": {}, "reserved": {},
            "drivers": { "mock": { "detected": true, "healthy": true } },
            "hostNetworks": [{ "name": "default", "cidr": "10.0.0.7/32" }],
            "resources": { "cpu": 4000, "memoryMB": memory, "diskMB": 10000, "cores": 4 } } } })
}

fn web(count: i64, group: &Value) -> Value {
    let mut whole = json!({ "name": "api", "count": count, "ephemeralDisk": { "sizeMB": 300 },
        "tasks": [{ "name": "server", "driver": "mock", "resources": { "cpu": 500, "memoryMB": 1000 } }] });
    for (field, value) in group.as_object().expect("an object") {
        whole[field] = value.clone();
    }
    json!({ "apiVersion": V, "kind": "Job", "metadata": { "name": "web", "namespace": "shop", "uid": "u" },
        "spec": { "id": "Web_1", "update": { "maxParallel": 0 }, "groups": [whole] } })
}

fn lines(objects: &[Value]) -> String {
    let lines: Vec<String> = objects.iter().map(|object| format!("{object}\n")).collect();
    lines.concat()
}

fn phase(mut node: Value, phase: &str) -> Value {
    node["status"]["phase"] = json!(phase);
    node
}

/// Version 0 of a job.
fn version(job: &Value) -> Value {
    json!({ "apiVersion": V, "kind": "JobVersion", "metadata": { "name": "web-v0", "namespace": "shop" },
        "spec": { "jobName": "web", "jobUID": "u", "version": 0, "groupNames": "api", "submittedAt": "2026-01-01T00:00:00Z", "job": job["spec"] } })
}

/// A healthy allocation of version 0.
fn alloc(job: &str, index: i64, node: &str) -> Value {
    json!({ "apiVersion": V, "kind": "Allocation", "metadata": { "name": format!("{job}-api-{index}"), "namespace": "shop" },
        "spec": { "jobName": job, "jobUID": "u", "jobVersion": 0, "group": "api", "index": index, "nodeName": node,
            "resources": { "tasks": { "server": { "cpu": 500, "memoryMB": 1000 } }, "diskMB": 300 } },
        "status": { "clientStatus": "running", "health": { "healthy": true, "timestamp": "2026-01-01T00:00:00Z" } } })
}

/// Plans `shop/web` on a state.
fn plan(objects: &[Value], more: &[&str]) -> Answer {
    let fixed = ["plan", "--state", "-", "--eval", "shop/web", "--now", "2026-01-01T00:00:00Z"];
    drover(&[&fixed, more].concat(), &lines(objects))
}

#[test]
fn exit_codes_say_how_a_plan_came_out() {
    let nodes = [node("n-1", "6.1.0", 8192), node("n-2", "6.1.0", 8192)];
    let with = |job: Value| [&nodes[..], &[job]].concat();
    assert_eq!(plan(&with(web(0, &json!({}))), &[]).code, 0);
    assert_eq!(plan(&with(web(2, &json!({}))), &[]).code, 1);
    assert_eq!(plan(&with(web(100, &json!({}))), &[]).code, 2);
    let answer = plan(&with(web(-1, &json!({}))), &[]);
    assert_eq!((answer.code, answer.out.as_str()), (255, ""));
    assert!(
        answer.err.contains("spec.groups[0].count: is negative; set it to 0 or more (CountNegative)"),
        "{}",
        answer.err
    );
    for (args, wanted) in [
        (vec!["plan", "--state", "/nowhere", "--eval", "shop/web"], "reading /nowhere: No such file"),
        (vec!["plan", "--state", "-", "--eval", "web"], "name the job as NAMESPACE/JOB"),
        (vec!["plan", "--state", "-", "--eval", "shop/web:soon"], "`soon` is no trigger; take one of job-register,"),
        (vec!["plan", "--state", "-", "--eval", "shop/other"], "no Job shop/other and no Allocation of it"),
        (vec!["plan"], "required arguments were not provided"),
    ] {
        let answer = drover(&args, &lines(&nodes));
        assert_eq!((answer.code, answer.out.as_str()), (255, ""), "{args:?}");
        assert!(answer.err.contains(wanted), "{wanted}: {}", answer.err);
    }
    let gone = drover(&["plan", "--state", "-", "--eval", "shop/other:job-deregister"], &lines(&nodes));
    assert_eq!((gone.code, gone.out.as_str()), (0, "Job shop/other, job-deregister: nothing to do\n"));
}

#[test]
fn a_plan_is_the_same_in_every_form_of_the_state() {
    let objects = [node("n-1", "6.1.0", 8192), node("n-2", "6.1.0", 4096), web(3, &json!({}))];
    let first = plan(&objects, &["-o", "json"]);
    assert_eq!(first.code, 1, "{}", first.err);
    let report = first.json();
    let names: Vec<&str> =
        report["placements"].as_array().expect("a list").iter().filter_map(|placed| placed["name"].as_str()).collect();
    assert_eq!(names, ["Web_1.api[0]", "Web_1.api[1]", "Web_1.api[2]"]);
    assert_eq!(report["eval"]["status"], "complete");
    assert_eq!(report["desired"]["api"]["place"], 3);

    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let pretty = serde_json::to_string_pretty(&list).expect("JSON");
    let yaml: Vec<String> = objects.iter().map(|object| format!("---\n{object}\n")).collect();
    let args = ["plan", "--state", "-", "--eval", "shop/web", "--now", "2026-01-01T00:00:00Z", "-o", "json"];
    for state in [lines(&objects), list.to_string(), pretty, yaml.concat()] {
        assert_eq!(drover(&args, &state).out, first.out);
    }
}

#[test]
#[expect(clippy::needless_raw_string_hashes, reason = "as expect-test writes it")]
fn a_plan_tells_people_who_goes_where_and_why_others_do_not() {
    let constraint =
        json!({ "constraints": [{ "lTarget": "${attr.kernel.version}", "operand": "version", "rTarget": ">= 6" }] });
    let objects =
        [node("n-1", "6.1.0", 2048), node("n-2", "5.4.0", 8192), node("n-3", "5.4.0", 8192), web(4, &constraint)];
    let answer = plan(&objects, &[]);
    assert_eq!(answer.code, 2, "{}", answer.err);
    expect![[r#"
        Job shop/web, job-register: 2 to place, 2 without a node

        To place
          NAME          NODE  SCORE  PORTS  AFTER
          Web_1.api[0]  n-1   0.514  -      -
          Web_1.api[1]  n-1   0.120  -      -

        Group api: 2 allocations find no node
          3 nodes looked at in pool default (3 ready in dc1)
          NODES  LEFT OUT BECAUSE
          2      filtered by ${attr.kernel.version} version >= 6
          1      memory exhausted
          what would help
            without spec.groups[0].constraints[0] (${attr.kernel.version} version >= 6): 2 more find a node
            with spec.groups[0].tasks[0].resources.memoryMB 682 instead of 1000: 1 more finds a node
          filtered by ${attr.kernel.version} version >= 6 on 2 of 3 nodes, memory exhausted on 1 of 3 nodes; n-1 comes closest and lacks 952 MiB of memory: ask for less, stop other jobs, or add nodes
    "#]]
    .assert_eq(&answer.out);
}

#[test]
fn what_would_help_was_tried_out() {
    let nodes = [node("n-1", "6.1.0", 1500), node("n-2", "5.4.0", 8192)];
    for (job, wanted) in [
        (web(2, &json!({})), None),
        (
            web(10, &json!({})),
            Some("with spec.groups[0].tasks[0].resources.memoryMB 750 instead of 1000: 1 more finds a node"),
        ),
        (
            web(1, &json!({ "constraints": [{ "lTarget": "${meta.rack}", "operand": "is_set" }] })),
            Some("without spec.groups[0].constraints[0] (${meta.rack} is_set): 1 more finds a node"),
        ),
        (
            web(3, &json!({ "networks": [{ "ports": [{ "label": "http", "static": 80 }] }] })),
            Some("with a free port for http instead of 80: 1 more finds a node"),
        ),
        (
            {
                let mut job = web(1, &json!({}));
                job["spec"]["datacenters"] = json!(["moon"]);
                job
            },
            Some("with spec.datacenters [\"*\"]: 1 more finds a node"),
        ),
    ] {
        let answer = plan(&[&nodes[..], &[job]].concat(), &[]);
        let told = answer.out.split("what would help\n").nth(1).and_then(|rest| rest.lines().next()).map(str::trim);
        assert_eq!(told, wanted, "{} {}", answer.out, answer.err);
    }
}

#[test]
fn a_plan_tells_programs_every_kind_of_decision() {
    let nodes = |first: &str| {
        [phase(node("n-1", "6.1.0", 8192), first), node("n-2", "6.1.0", 8192), node("n-3", "6.1.0", 8192)]
    };
    let stored = web(3, &json!({ "disconnect": { "lostAfter": "5m" } }));
    let allocs: Vec<Value> = (0..3).map(|n| alloc("web", n, &format!("n-{}", n + 1))).collect();
    let ask = |first: &str, job: &Value| {
        plan(&[&nodes(first)[..], &[job.clone(), version(&stored)], &allocs].concat(), &["-o", "json"])
    };
    let changed = |update: Value| {
        let mut job = stored.clone();
        job["spec"]["update"] = update;
        job["spec"]["groups"][0]["tasks"][0]["user"] = json!("nobody");
        job
    };

    let rolling = ask("ready", &changed(json!({ "maxParallel": 2 }))).json();
    let replaced = &rolling["destructive"][0];
    assert_eq!(
        [&replaced["allocation"], &replaced["name"], &replaced["node"], &replaced["replacement"]["previousAllocation"]],
        ["web-api-0", "Web_1.api[0]", "n-1", "web-api-0"]
    );
    assert_eq!(replaced["replacement"]["jobVersion"], 1);
    assert_eq!(rolling["destructive"].as_array().map(Vec::len), Some(2));
    assert_eq!((&rolling["stops"], &rolling["placements"]), (&json!([]), &json!([])));
    let deployment = &rolling["deployment"];
    assert_eq!((&deployment["phase"], &deployment["groups"]["api"]["desiredTotal"]), (&json!("running"), &json!(3)));

    let canary = ask("ready", &changed(json!({ "maxParallel": 1, "canary": 1 }))).json();
    assert_eq!((&canary["placements"][0]["canary"], &canary["desired"]["api"]["canary"]), (&json!(true), &json!(1)));
    assert_eq!(canary["deployment"]["description"], "NeedsPromotion");

    let mut in_place = stored.clone();
    in_place["spec"]["groups"][0]["tasks"][0]["killTimeout"] = json!("9s");
    let in_place = ask("ready", &in_place).json();
    assert_eq!(in_place["inPlace"][2], json!({ "allocation": "web-api-2", "name": "Web_1.api[2]", "node": "n-3" }));

    let lost = ask("down", &web(3, &json!({}))).json();
    let stop = json!({ "allocation": "web-api-0", "clientStatus": "lost", "desiredDescription": "Lost", "desiredStatus": "stop" });
    assert_eq!((&lost["stops"], &lost["placements"][0]["previousAllocation"]), (&json!([stop]), &json!("web-api-0")));

    let cut = ask("disconnected", &stored).json();
    let first = &cut["disconnects"][0];
    assert_eq!((&first["allocation"], &first["clientStatus"]), (&json!("web-api-0"), &json!("unknown")));
    let later = json!({ "trigger": "max-disconnect-timeout", "waitUntil": "2026-01-01T00:05:00Z" });
    assert!(cut["eval"]["followUps"].as_array().expect("a list").contains(&later), "{}", cut["eval"]);

    let mut stopped = stored.clone();
    stopped["spec"]["stop"] = json!(true);
    let stopped = ask("ready", &stopped);
    assert_eq!((stopped.code, stopped.json()["stops"].as_array().map(Vec::len)), (1, Some(3)));
}

#[test]
fn s_211_a_plan_names_the_older_roll_out_that_it_cancels() {
    let stored = web(3, &json!({}));
    let mut older = json!({ "apiVersion": V, "kind": "Deployment",
        "metadata": { "name": "web-older", "namespace": "shop", "uid": "d", "generation": 1 },
        "spec": { "jobName": "web", "jobUID": "u", "jobVersion": 0 },
        "status": { "phase": "running", "description": "Running", "observedGeneration": 1,
            "groups": { "api": { "desiredTotal": 3 } } } });
    let mut changed = stored.clone();
    changed["spec"]["update"] = json!({ "maxParallel": 1 });
    changed["spec"]["groups"][0]["tasks"][0]["user"] = json!("nobody");
    let nodes = [node("n-1", "6.1.0", 8192), node("n-2", "6.1.0", 8192), node("n-3", "6.1.0", 8192)];
    let allocs: Vec<Value> = (0..3).map(|n| alloc("web", n, &format!("n-{}", n + 1))).collect();
    let ask = |older: &Value, more: &[&str]| {
        let rest = [changed.clone(), version(&stored), older.clone()];
        plan(&[&nodes[..], &rest, &allocs].concat(), more)
    };
    let report = ask(&older, &["-o", "json"]).json();
    let ended = json!([{ "name": "web-older", "phase": "cancelled", "description": "NewerJob" }]);
    assert_eq!((&report["deploymentUpdates"], &report["deployment"]["phase"]), (&ended, &json!("running")));
    let text = ask(&older, &[]).out;
    assert!(text.contains("Deployment web-older: cancelled, NewerJob"), "{text}");
    // One that is over is not cancelled.
    older["status"]["phase"] = json!("successful");
    assert_eq!(ask(&older, &["-o", "json"]).json()["deploymentUpdates"], json!([]));
}

#[test]
fn a_plan_tells_whom_it_evicts_and_what_a_blocked_one_waits_for() {
    let config = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "drover-config" },
        "data": { "config.yaml": "scheduler: {preemption: {service: true}}" } });
    let mut low = web(1, &json!({}));
    low["metadata"] = json!({ "name": "low", "namespace": "shop", "uid": "l" });
    low["spec"]["priority"] = json!(10);
    let ports = json!([{ "label": "b", "static": 81 }, { "label": "a", "static": 80 }]);
    let mut high = web(1, &json!({ "networks": [{ "ports": ports }] }));
    high["spec"]["priority"] = json!(90);
    let mut victim = alloc("low", 0, "n-1");
    victim["spec"]["jobUID"] = json!("l");
    let full = [node("n-1", "6.1.0", 1500), low, victim, high];
    let answer = plan(&[&full[..], &[config]].concat(), &["-o", "json"]);
    let report = answer.json();
    assert_eq!(answer.code, 1, "{report}");
    let stop = json!({ "allocation": "low-api-0", "desiredDescription": "PreemptedBy:Web_1.api[0]", "desiredStatus": "evict" });
    assert_eq!((&report["stops"], &report["placements"][0]["preempts"]), (&json!([stop]), &json!(["low-api-0"])));
    assert_eq!(report["placements"][0]["ports"], json!([{ "label": "a", "value": 80 }, { "label": "b", "value": 81 }]));
    assert_eq!(report["desired"]["api"]["preemptions"], 1);

    let answer = plan(&full, &["-o", "json"]);
    let report = answer.json();
    assert_eq!((answer.code, &report["eval"]["status"]), (2, &json!("complete")));
    assert_eq!(report["failed"]["api"]["dimensionExhausted"]["memory"], 1, "{}", report["failed"]);
    let blocked = &report["eval"]["blockedEval"];
    assert_eq!(
        (&blocked["escaped"], blocked["classEligibility"].as_object().map(serde_json::Map::len)),
        (&json!(false), Some(1))
    );
    let again = drover(&["plan", "--state", "-", "--eval", "shop/web:queued-allocs", "-o", "json"], &lines(&full));
    assert_eq!((again.code, &again.json()["eval"]["status"]), (2, &json!("blocked")));
}

#[test]
fn validate_names_every_error_of_every_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let wrong = json!({ "apiVersion": V, "kind": "Job", "metadata": { "name": "a" }, "spec": { "type": "system", "cuont": 1,
        "groups": [{ "name": "g", "count": 2, "disconnect": { "reconcile": "best" }, "tasks": [{ "name": "t", "driver": "mock", "killTimeout": "-1s" }] }] } });
    let never = json!({ "apiVersion": V, "kind": "Job", "metadata": { "name": "b" }, "spec": {
        "groups": [{ "name": "g", "count": 1, "update": { "canary": 2, "autoPromote": true },
            "spreads": [{ "attribute": "${meta.rack}", "weight": 50, "targets": [{ "value": "r1", "percent": 0 }] }],
            "tasks": [{ "name": "t", "driver": "mock", "env": { "A=B": "x" }, "config": { "runfor": "1s" } }] }] } });
    let good = web(1, &json!({ "maxClientDisconnect": "1h" }));
    let [wrong, never, good] = [("wrong.json", &wrong), ("never.json", &never), ("good.json", &good)]
        .map(|(name, job)| file(name, &job.to_string()));
    let answer = drover(&["job", "validate", &wrong, &never, &good], "");
    assert_eq!((answer.code, answer.out.as_str()), (1, ""));
    let without_folder = answer.err.replace(&format!("{}/", dir.path().display()), "");
    expect![[r#"
        wrong.json: djob/a: spec.groups[0].count: must be 0 or 1 on a system job; set it to 1, or change type (SystemCount)
        wrong.json: djob/a: spec.groups[0].tasks[0].killTimeout: -1s is negative; set it to 0s or more (KillTimeoutNegative)
        wrong.json: djob/a: spec.cuont: is no known field; correct its name, or remove it (UnknownField)
        wrong.json: djob/a: spec.groups[0].disconnect.reconcile: `best` is not allowed; take one of best_score, longest_running, keep_original, keep_replacement (DisconnectReconcile)
        never.json: djob/b: spec.groups[0].spreads[0].targets: are all 0 percent, which asks for nothing; give one of them a share, or leave targets out to spread evenly (SpreadTarget)
        never.json: djob/b: spec.groups[0].tasks[0].config: is refused by its driver: config.runfor is no setting of driver mock; take one of startError, startErrorRecoverable, startBlockFor, runFor, exitCode, exitSignal, exitErrMsg, killAfter, signalError, failFirst, healthyAfter, unhealthyOnNodes, failOnVersions (DriverConfig)
        never.json: djob/b: spec.groups[0].tasks[0].env: has the name "A=B", which contains = or NUL; correct it (EnvName)
        good.json: djob/web: warning: spec.groups[0].maxClientDisconnect: is an old form and ignored; write disconnect.lostAfter (OldDisconnect)
        2 of 3 jobs are invalid
    "#]].assert_eq(&without_folder);

    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let examples: Vec<String> = ["web.yaml", "wordcount.yaml", "node-report.yaml"]
        .iter()
        .map(|name| examples.join(name).display().to_string())
        .collect();
    let mut args = vec!["job", "validate"];
    args.extend(examples.iter().map(String::as_str));
    let answer = drover(&args, "");
    assert_eq!((answer.code, answer.out.as_str(), answer.err.as_str()), (0, "3 jobs are valid\n", ""));

    let answer = drover(&["job", "validate", "-"], "apiVersion: v1\nkind: ConfigMap\n");
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("no Job (drover.dev/v1alpha1) in the files"), "{}", answer.err);
}

#[test]
fn kubectls_plugin_is_called_by_its_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let plugin = dir.path().join("kubectl-drover");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_drover"), &plugin).expect("a link");
    let output = Command::new(plugin).args(["job", "--help"]).output().expect("help");
    let help = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success() && help.contains("Usage: kubectl drover job <COMMAND>"), "{help}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_completes_commands_and_the_names_that_the_cluster_has() {
    let (cluster, ns) = (shared(), "completed");
    cluster.namespace(ns).await;
    for name in ["website", "webshop", "mail"] {
        cluster.apply(ns, &job(name, 0, &json!({}), "true"));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let of_kubectl = dir.path().join("kubectl_complete-drover");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_drover"), &of_kubectl).expect("a link");
    let asked = |program: PathBuf, line: &'static str, shell: Option<&'static str>, kubeconfig: String| async move {
        let mut command = Command::new(program);
        let words: Vec<&str> = line.split(' ').collect();
        if let Some(shell) = shell {
            command.env("COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
            command.env("_CLAP_IFS", "\n").arg("--");
        }
        // Other tests keep this machine busy.
        command.args(words).env("KUBECONFIG", kubeconfig).env("DROVER_COMPLETION_TIMEOUT", "1m");
        let output = tokio::task::spawn_blocking(move || command.output().expect("candidates")).await.expect("its end");
        assert!(output.stderr.is_empty() && output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let kubeconfig = cluster.plane.kubeconfig(User::Admin).display().to_string();
    let found = asked(of_kubectl.clone(), "job stop -n completed web", None, kubeconfig.clone()).await;
    assert_eq!(found, "webshop\nwebsite\n:4\n");
    let found = asked(of_kubectl.clone(), "job stop -n complete", None, kubeconfig.clone()).await;
    assert_eq!(found, "completed\n:4\n");
    let found = asked(of_kubectl.clone(), "deployment pro", None, kubeconfig.clone()).await;
    assert_eq!(found, "promote\tLets healthy canaries take over\n:4\n");
    let drover = PathBuf::from(env!("CARGO_BIN_EXE_drover"));
    let found = asked(drover, "drover job stop -n completed m", Some("bash"), kubeconfig.clone()).await;
    assert_eq!(found.trim_end(), "mail");
    cluster.apply(ns, &job("shown", 1, &json!({}), "exec sleep 1000"));
    cluster.runs(ns, &[0]).await;
    let alloc = cluster.allocs(ns).await.remove(0).metadata.name.expect("a name");
    let found = asked(of_kubectl.clone(), "alloc logs -n completed sho", None, kubeconfig.clone()).await;
    assert_eq!(found, format!("{alloc}\n:4\n"));
    // Who presses a key beside a cluster that is away gets silence.
    assert_eq!(asked(of_kubectl, "job stop -n completed web", None, "/nowhere".to_owned()).await, ":0\n");
}

#[test]
fn every_shell_gets_a_script_that_asks_this_program() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = drover(&["completion", shell], "");
        assert!(
            script.code == 0 && script.out.contains("drover") && script.out.contains("COMPLETE"),
            "{shell}: {script:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_of_a_cluster_plans_like_the_cluster() {
    let (cluster, ns) = (shared(), "cli");
    cluster.namespace(ns).await;
    let running = job("web", 2, &json!({}), "exec sleep 1000");
    cluster.apply(ns, &running);
    cluster.runs(ns, &[0, 1]).await;
    cluster.condition(ns, "web", JobConditionType::Ready, "True").await;
    let kubeconfig = cluster.plane.kubeconfig(User::Admin).display().to_string();

    let dump = drover(&["dump", "-A", "--kubeconfig", &kubeconfig], "");
    assert_eq!(dump.code, 0, "{}", dump.err);
    let kinds: std::collections::BTreeSet<String> = dump
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["kind"].as_str().expect("a kind").to_owned())
        .collect();
    for kind in ["Namespace", "ClientNode", "Job", "JobVersion", "Allocation"] {
        assert!(kinds.contains(kind), "{kind} is not among {kinds:?}");
    }
    assert!(!dump.out.contains("managedFields") && !kinds.contains("Secret"));
    let settled = drover(&["plan", "--state", "-", "--eval", "cli/web"], &dump.out);
    assert_eq!(
        (settled.code, settled.out.as_str()),
        (0, "Job cli/web, job-register: 2 unchanged\n"),
        "{}",
        settled.err
    );
    let narrow = drover(&["dump", "-n", ns, "--kubeconfig", &kubeconfig], "");
    assert!(narrow.out.lines().count() < dump.out.lines().count() || kinds.len() < 3, "{}", narrow.err);
    assert!(narrow.out.lines().filter(|line| line.contains("\"kind\":\"Namespace\"")).count() == 1);

    let args = ["job", "plan", "-", "-n", ns, "--kubeconfig", &kubeconfig, "-o", "json"];
    let same = drover(&args, &running.to_string());
    assert_eq!(same.code, 0, "{} {}", same.out, same.err);
    let more = drover(&args, &job("web", 3, &json!({}), "exec sleep 1000").to_string());
    assert_eq!(more.code, 1, "{}", more.err);
    assert_eq!(more.json()["placements"].as_array().map(Vec::len), Some(1), "{}", more.out);
    assert_eq!(more.json()["diff"]["taskGroups"][0]["fields"][0]["annotations"], json!(["forces create"]));
    let mut edited = job("web", 3, &json!({ "update": { "maxParallel": 1, "canary": 1 } }), "exec sleep 1001");
    edited["spec"]["priority"] = json!(70);
    edited["spec"]["groups"][0]["tasks"][0]["env"] = json!({ "LEVEL": "debug" });
    let changed = person(&cluster, ns, "job plan -", edited.to_string()).await;
    let (tree, _) = changed.out.split_once("\n\n").expect("a tree and a plan");
    expect![[r#"
        +/- Job web
          +/- priority: 50 => 70
          +/- Group g (1 canary, 2 ignore)
            +/- count: 2 => 3  (forces create)
            +/- update
              +/- canary: 0 => 1
            +/- Task t  (forces create/destroy update)
              +/- config  (forces create/destroy update)
                +/- args: ["-c","exec sleep 1000"] => ["-c","exec sleep 1001"]
              +   env  (forces create/destroy update)
                +   LEVEL: debug"#]]
    .assert_eq(tree);
    let huge = job(
        "web",
        2,
        &json!({ "constraints": [{ "lTarget": "${node.datacenter}", "rTarget": "moon" }] }),
        "exec sleep 1000",
    );
    let nowhere = drover(&args, &huge.to_string());
    assert_eq!(nowhere.code, 1, "{}", nowhere.err);
    let batch = {
        let mut batch = running.clone();
        batch["spec"]["type"] = json!("batch");
        drover(&args, &batch.to_string())
    };
    assert_eq!(batch.code, 255);
    assert!(batch.err.contains("spec.type: cannot be changed from service to batch"), "{}", batch.err);
    assert_eq!(cluster.versions(ns).list(&kube::api::ListParams::default()).await.expect("versions").items.len(), 1);
}

/// A job file in HCL and the manifest of the same job are one job, whichever of the two a user keeps.
#[test]
fn a_job_file_in_hcl_is_the_job_of_its_manifest() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let written = std::fs::read_to_string(root.join("examples/web.yaml")).unwrap();
    let written: drover_api::Job = serde_saphyr::from_str(&written).unwrap();
    let file = root.join("examples/web.nomad.hcl").display().to_string();
    let answer = drover(&["job", "import", &file, "-o", "json"], "");
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    let imported: drover_api::Job = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(imported.spec, written.spec);
    assert_eq!(imported.metadata, written.metadata);

    let answer = drover(&["job", "import", &file, "-o", "json", "--var", "count=2"], "");
    let fewer: drover_api::Job = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(fewer.spec.groups[0].count, 2);

    let answer = drover(&["job", "import", "-"], "job \"a\" {\n  vault {}\n  x = 1 / 0\n}\n");
    assert_eq!((answer.code, answer.out.as_str()), (1, ""));
    assert_eq!(answer.err, "-:3:7: divides by zero\n");
    let answer = drover(&["job", "import", "-"], "job \"a\" {\n  vault {}\n}\n");
    assert_eq!(answer.code, 1);
    assert!(answer.err.starts_with("-:2:3: `vault` is not carried over: drover has no Vault"), "{}", answer.err);
}

/// Nomad's JSON is the third way to write one job, and the API server takes what is made of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_in_nomads_json_is_the_job_of_its_manifest() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let written = std::fs::read_to_string(root.join("examples/web.yaml")).unwrap();
    let written: drover_api::Job = serde_saphyr::from_str(&written).unwrap();
    let file = root.join("examples/web.nomad.json").display().to_string();
    let answer = drover(&["job", "import", &file, "-o", "json"], "");
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    let imported: drover_api::Job = serde_json::from_str(&answer.out).unwrap();
    assert_eq!((imported.spec, imported.metadata), (written.spec, written.metadata));
    let answer = drover(&["job", "validate", &file], "");
    assert_eq!((answer.code, answer.out.as_str(), answer.err.as_str()), (0, "1 job is valid\n", ""));
    let answer = drover(&["job", "import", "-"], "{\"Job\": {\"ID\": \"a\", \"Vault\": {\"Role\": \"a\"}}}");
    assert_eq!((answer.code, answer.out.as_str()), (1, ""));
    assert!(answer.err.starts_with("-:1:30: Job.Vault: is not carried over: drover has no Vault"), "{}", answer.err);

    let (cluster, ns) = (shared(), "nomad-json");
    cluster.namespace(ns).await;
    let read = include_str!("../../crates/drover-jobspec/testdata/read.nomad.json");
    let mut read: Value = serde_json::from_str(read).unwrap();
    read["Namespace"] = json!(ns);
    let answer = person(&cluster, ns, "job run - --dry-run server", read.to_string()).await;
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains("djob/cache is valid; nothing was changed"), "{}", answer.err);
    read["TaskGroups"][0]["Count"] = json!(-1);
    let answer = person(&cluster, ns, "job run - --dry-run server", read.to_string()).await;
    assert_eq!(answer.code, 1, "{}", answer.err);
    assert!(answer.err.contains("spec.groups[0].count"), "{}", answer.err);
}

/// A job leaves a cluster as HCL and as Nomad's JSON, and comes back as the job that it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_inspected_is_the_same_job_when_it_is_run() {
    let (cluster, ns) = (shared(), "inspect");
    cluster.namespace(ns).await;
    let meta = json!({ "meta": { "arch": "${attr.cpu.arch}", "price": "$${5} 100%", "odd.key": "a\"b" } });
    cluster.apply(ns, &job("web", 1, &meta, "exec sleep 1000"));
    cluster.runs(ns, &[0]).await;
    cluster.condition(ns, "web", JobConditionType::Ready, "True").await;
    let stored = person(&cluster, ns, "job inspect web -o json", String::new()).await.json();
    let stored: drover_api::Job = serde_json::from_value(stored).unwrap();
    let hcl = person(&cluster, ns, "job inspect web -o hcl", String::new()).await;
    assert_eq!(hcl.code, 0, "{}", hcl.err);
    let again = drover(&["job", "import", "-", "-o", "json"], &hcl.out);
    assert_eq!((again.code, again.err.as_str()), (0, ""), "{}", hcl.out);
    let again: drover_api::Job = serde_json::from_str(&again.out).unwrap();
    assert_eq!(again.spec, stored.spec, "{}", hcl.out);
    assert_eq!(again.metadata.namespace.as_deref(), Some(ns));

    let wire = person(&cluster, ns, "job inspect web -o nomad-json", String::new()).await;
    assert_eq!(wire.json()["Job"]["Status"], "running", "{}", wire.out);
    assert_eq!(wire.json()["Job"]["CreateIndex"], wire.json()["Job"]["SubmitTime"].as_i64().unwrap() / 1_000_000_000);
    let same = person(&cluster, ns, "job plan - -o json", wire.out.clone()).await;
    assert_eq!(same.code, 0, "{} {}", same.out, same.err);
    let mut more = wire.json();
    more["Job"]["TaskGroups"][0]["Count"] = json!(2);
    let more = person(&cluster, ns, "job plan - -o json", more.to_string()).await;
    assert_eq!(more.code, 1, "{} {}", more.out, more.err);
    assert_eq!(more.json()["placements"].as_array().map(Vec::len), Some(1), "{}", more.out);
    let missing = person(&cluster, ns, "job inspect none", String::new()).await;
    assert_eq!((missing.code, missing.out.as_str()), (1, ""), "{}", missing.err);
}
