//! B-068: a text that is in every secret that a task uses, and in its tokens, is in no output of drover.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use drover_api::allocation::TaskEventType;
use drover_api::job::JobConditionType;
use drover_testkit::control_plane::User;
use drover_testkit::probe;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use serde_json::json;

use crate::gateway::Stage;
use crate::gateway_values::{CANARY, alloc_of, holders, messages, opened, secret, with_secrets};

/// What a program printed, on both ways.
fn printed(command: &mut Command) -> String {
    let output = command.output().expect("a program");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A program that leaves a core: the machine collects them, and the test can fail.
fn leaves_a_core(folder: &std::path::Path) -> bool {
    let mut plain = Command::new("sleep").arg("1000").current_dir(folder).spawn().expect("a program");
    let pid = i32::try_from(plain.id()).ok().and_then(Pid::from_raw).expect("a process id");
    rustix::process::prlimit(Some(pid), Resource::Core, Rlimit { current: None, maximum: None }).expect("a limit");
    rustix::process::kill_process(pid, Signal::ABORT).expect("signalled");
    plain.wait().expect("its end").core_dumped()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_068_what_is_in_secrets_and_tokens_is_in_no_output() {
    let mut stage = Stage::start("leaks", "").await;
    let cluster = &stage.cluster;
    cluster.namespace("shop").await;
    secret(cluster, "db-creds", CANARY);
    opened(&stage, &["db-creds"]);
    let script = "echo started; printf %s \"$URL\" | md5sum > ../alloc/data/sum; exec sleep 1000";
    let template =
        |text: &str| json!({ "embeddedTmpl": text, "destPath": "secrets/db", "perms": "0400", "changeMode": "noop" });
    let given = "{{with secret \"db-creds\"}}{{.Data.password}}{{end}}";
    let uses = |env: &str, text: &str| {
        json!({ "env": { "URL": env }, "secrets": [{ "name": "db", "path": "db-creds" }], "templates": [template(text)],
                "identities": [{ "name": "default", "file": true, "env": true }] })
    };
    let env = "pg://u:${secret.db.password}@db";
    cluster.apply("shop", &with_secrets("web", script, &uses(env, given)));
    // Two that fail over the value, each in its own way.
    cluster.apply(
        "shop",
        &with_secrets("number", script, &uses(env, "{{with secret \"db-creds\"}}{{.Data.password | parseInt}}{{end}}")),
    );
    cluster.apply("shop", &with_secrets("key", script, &uses("${secret.db.none}", given)));
    cluster.condition("shop", "web", JobConditionType::Ready, "True").await;
    for job in ["number", "key"] {
        let failed = async || {
            let all = cluster.allocs("shop").await;
            let of_job = all.iter().filter(|alloc| alloc.spec.job_name == job);
            of_job.flat_map(|alloc| messages(alloc, TaskEventType::SetupFailure)).count() > 0
        };
        cluster.eventually("it has failed", failed).await;
    }
    let alloc = alloc_of(&stage, "web").await.metadata.name.expect("a name");
    let token = stage.exec(User::Admin, &alloc, &["/bin/cat", "secrets/nomad_token"], b"").text();
    let signature = token.rsplit('.').next().expect("a signature").to_owned();
    let texts = [CANARY, signature.as_str()];
    let clean = |what: &str, text: &str| {
        for canary in texts {
            assert!(!text.contains(canary), "{what} shows it");
        }
    };

    // Every object but the Secret, as the API server has them.
    let kinds = cluster.kubectl(&["api-resources", "--verbs=list", "-o", "name"]).expect("the kinds");
    assert!(kinds.contains("allocations.drover.dev") && kinds.lines().any(|kind| kind == "events"), "{kinds}");
    for kind in kinds.lines().filter(|kind| *kind != "secrets") {
        clean(kind, &cluster.kubectl(&["get", kind, "-A", "-o", "json"]).unwrap_or_else(|error| error));
    }
    for described in ["jobs.drover.dev", "allocations.drover.dev", "clientnodes.drover.dev"] {
        let text = cluster.kubectl(&["describe", described, "-A"]).expect(described);
        assert!(!text.is_empty());
        clean(described, &text);
    }
    // The commands.
    for args in [
        &["job", "status"][..],
        &["job", "status", "web"],
        &["job", "status", "key"],
        &["job", "history", "web"],
        &["alloc", "status", &alloc],
        &["alloc", "checks", &alloc],
        &["alloc", "stats", &alloc, "-o", "json"],
        &["alloc", "logs", &alloc],
        &["alloc", "fs", &alloc],
        &["alloc", "fs", &alloc, "t/secrets/db"],
        &["top", "allocs"],
        &["node", "status"],
        &["dump"],
    ] {
        let output = stage.drover(User::Admin, args).wait_with_output().expect("its end");
        let text = [output.stdout, output.stderr].concat();
        assert!(!text.is_empty(), "{args:?}");
        clean(&format!("{args:?}"), &String::from_utf8_lossy(&text));
    }
    // Logs, metrics, and files but the task's own and etcd's.
    for part in ["gateway", "n-1", "controller"] {
        clean(part, &cluster.log(part));
    }
    let (_, metrics) = probe::get(cluster.listens("gateway").await, "/metrics").await.expect("metrics");
    clean("the gateway's metrics", &metrics);
    for canary in texts {
        let files = holders(&cluster.path(""), canary);
        let is_own = |path: &&String| path.ends_with("/t/secrets/db") || path.ends_with("/t/secrets/nomad_token");
        let beside: Vec<&String> =
            files.iter().filter(|path| !path.contains("/plane/etcd/") && !is_own(path)).collect();
        assert!(beside.is_empty() && files.iter().any(|path| is_own(&path)), "{files:?}");
    }
    // What the processes' ends show of their arguments and environment.
    clean("a list of processes", &printed(Command::new("ps").args(["axww", "-o", "args"])));

    // Cores.
    assert!(leaves_a_core(&cluster.path("")), "this machine collects no cores: /proc/sys/kernel/core_pattern");
    let (gateway, agent) = (stage.gateway.take().expect("a gateway"), stage.agent.take().expect("an agent"));
    for (what, process) in [("gateway", gateway), ("agent", agent)] {
        let status = process.abort_among_cores();
        assert!(status.signal().is_some() && !status.core_dumped(), "{what}: {status:?}");
    }
}
