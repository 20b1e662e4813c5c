//! What the operations mean (`spec/api.md`, section 2), asked for through the API server and the gateway.

use drover_api::job::JobConditionType;
use drover_api::{Allocation, allocation::TaskRunState};
use drover_testkit::control_plane::User;
use serde_json::{Value, json};

use crate::cluster::client_status;
use crate::gateway::{API, Ran, Stage};

/// A job with a task of each kind: one that has ended, one that runs, one that is still to come.
pub(crate) fn of_each_kind() -> Value {
    let task = |name: &str, script: &str, hook: Option<&str>| {
        let mut task = json!({
            "name": name, "driver": "raw_exec", "config": { "command": "/bin/sh", "args": ["-c", script] },
            "killTimeout": "2s", "resources": { "cpu": 10, "memoryMB": 10 }, "logs": { "maxFiles": 10, "maxFileSizeMB": 1 },
            "restart": { "attempts": 2, "interval": "1h", "delay": "0s", "mode": "fail" },
        });
        if let Some(hook) = hook {
            task["lifecycle"] = json!({ "hook": hook });
        }
        task
    };
    let main = "trap 'echo hup >> ../alloc/order' HUP; echo main >> ../alloc/order; mkdir -p secrets; echo hush > secrets/x; \
                seq 1 400000; echo written >&2; while true; do sleep 0.05; done";
    let group = json!({
        "name": "g", "count": 1, "ephemeralDisk": { "sizeMB": 110 }, "update": { "minHealthyTime": "0s" },
        "tasks": [
            task("init", "echo init >> ../alloc/order", Some("prestart")),
            task("main", main, None),
            task("post", "echo post >> ../alloc/order", Some("poststop")),
        ],
    });
    json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "kinds" }, "spec": { "groups": [group] } })
}

async fn found(stage: &Stage) -> Allocation {
    let all = stage.cluster.allocs("shop").await;
    all.into_iter().find(|alloc| alloc.spec.job_name == "kinds").expect("an allocation")
}

/// What a request by POST is answered.
fn post(stage: &Stage, path: &str) -> Result<String, String> {
    let path = format!("{API}/namespaces/shop/allocations/{path}");
    stage.cluster.kubectl_with(&["create", "--raw", &path, "-f", "-"], Some("{}"))
}

pub(crate) async fn check(stage: &Stage) {
    let cluster = &stage.cluster;
    cluster.apply("shop", &of_each_kind());
    cluster.condition("shop", "kinds", JobConditionType::Ready, "True").await;
    let name = found(stage).await.metadata.name.expect("a name");
    let get = |path: &str| stage.raw("admin", &format!("{name}/{path}"));
    let order = || get("fs?op=read&path=alloc/order").expect("a file").split_whitespace().collect::<Vec<_>>().join(" ");
    let comes = async |wanted: &str| cluster.eventually(wanted, async || order() == wanted).await;
    let written = async |n: usize| {
        let lines = || get("log?task=main&type=stderr").unwrap_or_default().matches("written").count();
        cluster.eventually("its output is written", async || lines() == n).await;
    };
    written(1).await;
    comes("init main").await;

    // P-034: three files, in order, and the end of them.
    let numbers: String = (1..=400_000).fold(String::new(), |all, n: u32| all + &n.to_string() + "\n");
    assert!(get("log?task=main&type=stdout").expect("output") == numbers, "it is not the whole output in order");
    assert_eq!(get("log?task=main&type=stdout&origin=end&offset=10").expect("output"), numbers[numbers.len() - 10..]);

    // P-037.
    assert!(get("fs?op=ls&path=/").expect("a list").contains("alloc"));
    let stat: Value = serde_json::from_str(&get("fs?op=stat&path=alloc/order").expect("a file")).expect("JSON");
    assert_eq!((stat["name"].as_str(), stat["size"].as_u64()), (Some("order"), Some(10)), "{stat}");
    assert_eq!(get("fs?op=read&path=alloc/order&offset=5&limit=3").expect("a file"), "mai");
    for path in ["../../etc/passwd", "main/secrets/x"] {
        let refused = get(&format!("fs?op=read&path={path}")).expect_err("refused");
        assert!(
            refused.contains("Forbidden") || refused.contains("forbidden") || refused.contains("escapes"),
            "{refused}"
        );
    }

    let stats: Value = serde_json::from_str(&get("stats").expect("a sample")).expect("JSON");
    assert!(
        stats["total"]["memoryBytes"].as_u64() > Some(0) && stats["tasks"]["main"]["pids"].as_u64() > Some(0),
        "{stats}"
    );
    assert_eq!(get("checks").expect("a sample").trim(), "{\"checks\":{}}");

    // P-021: what has ended stays so.
    assert_eq!(stage.alloc(User::Admin, &["restart", &name]).code, 0);
    comes("init main main").await;
    // P-022.
    for (task, reason) in [("init", "not running"), ("nope", "nope")] {
        let refused = stage.alloc(User::Admin, &["restart", &name, task]);
        assert!(refused.code == 1 && refused.err.contains(reason), "{refused:?}");
    }
    // P-024.
    let refused = post(stage, &format!("{name}/restart?task=main&allTasks=true")).expect_err("refused");
    assert!(refused.contains("exclude each other") && refused.contains("BadRequest"), "{refused}");
    assert_eq!(order(), "init main main");
    written(2).await;
    // P-023.
    assert_eq!(stage.alloc(User::Admin, &["restart", &name, "--all-tasks"]).code, 0);
    comes("init main main init main").await;
    // P-026: people's restarts are no failures.
    written(3).await;
    for n in 1..=10 {
        assert_eq!(stage.alloc(User::Admin, &["restart", &name, "main"]).code, 0);
        cluster.eventually("it is started again", async || order().matches("main").count() == 3 + n).await;
        // A run that is ended before it has written its output never does.
        written(3 + n).await;
    }
    // A report follows a start within a second or so.
    cluster.eventually("it is reported", async || client_status(&found(stage).await).as_str() == "running").await;
    let now = found(stage).await;
    let main = &now.status.as_ref().expect("a status").task_states["main"];
    assert_eq!(
        (client_status(&now).as_str(), main.failed, now.metadata.name.as_deref()),
        ("running", false, Some(&*name))
    );

    // What has ended and what is still to come is named (P-027); what runs has it all the same.
    let sent = stage.alloc(User::Admin, &["signal", &name, "-s", "SIGHUP"]);
    let named = "init: Task not running; post: Task not running";
    assert!(sent.code == 1 && sent.err.contains(named), "{sent:?}");
    cluster.eventually("those that run have it", async || order().ends_with(" hup")).await;

    // P-028: the input is still open.
    for (command, code) in [("exit 7", 7), ("kill -9 $$", 137)] {
        let mut child = stage.spawn_exec(User::Admin, &name, &["--task", "main"], &["/bin/sh", "-c", command]);
        let open = child.stdin.take();
        assert_eq!(child.wait().expect("its end").code(), Some(code), "{command}");
        drop(open);
    }
    let ran = Ran::of(
        stage
            .spawn_exec(User::Admin, &name, &["--task", "main"], &["/no/such/program"])
            .wait_with_output()
            .expect("its end"),
    );
    assert!(ran.code == 1 && ran.err.contains("/no/such/program"), "{ran:?}");

    // P-039: nothing of what runs is destroyed.
    let refused = stage.alloc(User::Admin, &["gc", &name]);
    assert!(refused.code == 1 && refused.err.contains("has not ended"), "{refused:?}");
    assert!(order().starts_with("init"));
    assert!(post(stage, "none-g-0/gc").expect_err("refused").contains("NotFound"));
    cluster
        .kubectl(&["patch", "djob", "kinds", "-n", "shop", "--type=merge", "-p", r#"{"spec":{"stop":true}}"#])
        .expect("stopped");
    cluster
        .eventually("it has ended", async || {
            let now = found(stage).await.status.unwrap_or_default();
            now.ended_at.is_some() && now.task_states["main"].state == TaskRunState::Dead
        })
        .await;
    assert!(order().ends_with("post"), "{}", order());
    // P-025.
    let refused = stage.alloc(User::Admin, &["restart", &name]);
    assert!(refused.code == 1, "{refused:?}");
    cluster.eventually("it is given up", async || stage.alloc(User::Admin, &["gc", &name]).code == 0).await;
    let refused = get("log?task=main&type=stdout").expect_err("gone");
    assert!(refused.contains("NotFound"), "{refused}");
    assert!(!cluster.path(&format!("n-1/allocs/{}", found(stage).await.metadata.uid.expect("a uid"))).exists());

    // The output of all allocations of a job, with where it comes from.
    let logs = |args: &[&str]| stage.job(User::Admin, &[&["logs"], args].concat());
    assert!(logs(&["kinds"]).err.contains("no allocations that are to run"));
    assert!(logs(&["web", "--task", "nope"]).err.contains("no task nope"));
}
