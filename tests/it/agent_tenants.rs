//! What tasks of one allocation reach of another one, and users of the host of either: nothing.
//!
//! These tests are root, as an agent with driver `exec` is.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use drover_api::Allocation;
use drover_api::allocation::ClientStatus;
use drover_api::job::JobType;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::agent::{Node, eventually, messages, shared_plane, shell, small_task, status};

fn exec(script: &str) -> Value {
    let restart = json!({"attempts": 0, "interval": "1m", "delay": "1s", "mode": "fail"});
    let config = json!({"command": "/bin/sh", "args": ["-c", script]});
    json!({"name": "t", "driver": "exec", "killSignal": "SIGKILL", "config": config, "restart": restart})
}

fn uid(allocation: &Allocation) -> &str {
    allocation.metadata.uid.as_deref().expect("a uid")
}

fn dir(node: &Node<'_>, allocation: &Allocation) -> PathBuf {
    node.path("allocs").join(uid(allocation))
}

/// The user of an allocation, as its files say.
fn user(node: &Node<'_>, allocation: &Allocation) -> u32 {
    dir(node, allocation).join("alloc").metadata().expect("a directory").uid()
}

/// The process of the allocation's task, as the host sees it.
async fn process(allocation: &Allocation) -> u32 {
    let marker = format!("NOMAD_ALLOC_ID={}", uid(allocation));
    let found = || {
        let processes = std::fs::read_dir("/proc").expect("proc").filter_map(Result::ok);
        let mut pids = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
        pids.find(|pid| {
            std::fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|text| text.split(|byte| *byte == 0).any(|entry| entry == marker.as_bytes()))
        })
    };
    eventually("the task's process", || found().is_some()).await;
    found().expect("a process")
}

/// Runs a script as a user of the host with this number and this group, in the host's own namespaces.
fn as_user(user: u32, script: &str) -> String {
    let ids = [format!("--reuid={user}"), format!("--regid={user}")];
    let Output { stdout, .. } = Command::new("setpriv")
        .args(ids)
        .args(["--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "sh", "-c", script])
        .current_dir("/")
        .output()
        .expect("a shell");
    String::from_utf8(stdout).expect("text")
}

/// Others of the host come as far as the folders of tests.
fn open_up(node: &Node<'_>) {
    std::fs::set_permissions(node.path(""), std::fs::Permissions::from_mode(0o755)).expect("a mode");
}

const SITS: &str = "id -u; echo secret > /alloc/data/file; echo secret > /secrets/key; chmod 644 /secrets/key; \
                    echo ready; exec sleep 1000";

async fn sitting(node: &Node<'_>, job: &str) -> Allocation {
    let name = node.run(job, JobType::Service, json!([exec(SITS)])).await;
    let running = node.running(&name).await;
    eventually("it has written", || node.log_of(&running, "t.stdout.0").contains("ready")).await;
    running
}

#[tokio::test]
async fn must_survive_x_005_another_allocation_on_the_node() {
    let node = Node::start(shared_plane(), "tenants").await;
    open_up(&node);
    let (one, other) = (sitting(&node, "one").await, sitting(&node, "other").await);
    let users = [&one, &other].map(|it| user(&node, it));
    assert_ne!(users[0], users[1]);
    assert!(users.iter().all(|user| (2_000_000..3_000_000).contains(user)), "{users:?}");
    assert!(node.log_of(&one, "t.stdout.0").starts_with(&format!("{}\n", users[0])));

    let pid = process(&one).await;
    let dir = dir(&node, &one);
    let tries = format!(
        "grep -qz NOMAD_ALLOC_ID /proc/{pid}/environ && echo environ; kill -0 {pid} && echo signal; \
         test -n \"$(ls /proc/{pid}/fd)\" && echo descriptors; (: < /proc/{pid}/mem) && echo memory; \
         grep -q secret {0}/alloc/data/file && echo file; grep -q secret {0}/t/secrets/key && echo key",
        dir.display()
    );
    assert_eq!(as_user(users[0], &tries), "environ\nsignal\ndescriptors\nmemory\nfile\nkey\n", "the tries would work");
    assert_eq!(as_user(users[1], &tries), "");
}

#[tokio::test]
async fn must_survive_x_006_ends_and_restarts_without_a_user_that_two_have() {
    let config =
        "drivers: {rawExec: {enabled: true}, exec: {allowHostNetwork: true, uidRange: {min: 2100000, max: 2100002}}}\n";
    let mut node = Node::start_with(shared_plane(), "users", config).await;
    let (one, two) = (sitting(&node, "one").await, sitting(&node, "two").await);
    assert_eq!([&one, &two].map(|it| user(&node, it)), [2_100_000, 2_100_001]);
    node.kill_agent();
    // What the agent knew of its users is lost with all the rest.
    std::fs::remove_file(node.path("state/agent.redb")).expect("a state file");
    node.start_agent();
    node.registered().await;
    let name = |allocation: &Allocation| allocation.metadata.name.clone().expect("a name");
    node.stop(&name(&one)).await;
    node.ended(&name(&one)).await;
    let three = sitting(&node, "three").await;
    assert_eq!(user(&node, &three), 2_100_002, "files of the one that has ended are still there");
    let four = node.run("four", JobType::Batch, json!([exec("exit 0")])).await;
    let refused = node.ended(&four).await;
    assert_eq!(status(&refused), ClientStatus::Failed);
    let said = refused.status.as_ref().expect("a status").client_description.clone() + &messages(&refused, "t");
    assert!(said.contains("2100000 to 2100002") && said.contains("drivers.exec.uidRange"), "{said}");

    node.allocs().delete(&name(&one), &DeleteParams::default()).await.expect("deleted");
    let gone = dir(&node, &one);
    eventually("its files are gone", || !gone.exists()).await;
    let five = sitting(&node, "five").await;
    assert_eq!(user(&node, &five), 2_100_000);
}

#[tokio::test]
async fn must_survive_x_032_programs_that_a_task_leaves_for_users_of_the_host() {
    let node = Node::start(shared_plane(), "planted").await;
    open_up(&node);
    let plant = "cp /bin/sh /local/sh; chmod 6755 /local/sh; cp /bin/sh /alloc/data/sh; chmod 6755 /alloc/data/sh; \
                 echo ready; exec sleep 1000";
    let name = node.run("planted", JobType::Service, json!([exec(plant)])).await;
    let running = node.running(&name).await;
    eventually("it has planted", || node.log_of(&running, "t.stdout.0").contains("ready")).await;
    let dir = dir(&node, &running);
    // As from a volume that another host has mounted: a program that runs as root.
    let root = dir.join("alloc/tmp/root");
    std::fs::copy("/bin/sh", &root).expect("a program");
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o6755)).expect("a mode");
    for path in ["t/local/sh", "alloc/data/sh", "alloc/tmp/root"] {
        let path = dir.join(path);
        assert_eq!(path.metadata().expect("a program").mode() & 0o6000, 0o6000, "{}", path.display());
        let run = format!("{} -p -c 'echo as $(id -u)' && echo ran", path.display());
        assert_eq!(as_user(12_345, &run), "", "{}", path.display());
    }
    let reach = |path: &Path| as_user(12_345, &format!("cd {} && echo reached", path.display()));
    assert_eq!((reach(&node.path("")).as_str(), reach(&dir).as_str()), ("reached\n", ""));
}

#[tokio::test]
async fn must_survive_x_039_other_users_that_look_for_secrets() {
    let node = Node::start(shared_plane(), "secrets").await;
    open_up(&node);
    let running = sitting(&node, "one").await;
    let key = dir(&node, &running).join("t/secrets/key");
    let read = format!("cat {}", key.display());
    assert_eq!(as_user(user(&node, &running), &read), "secret\n", "its mode lets anybody read it");
    for other in [12_345, 65_534, user(&node, &running) + 1] {
        assert_eq!(as_user(other, &read), "", "{other}");
    }
}

#[tokio::test]
async fn a_task_of_another_user_gets_into_its_own_allocation_and_other_processes_of_that_user_do_not() {
    let node = Node::start(shared_plane(), "named-user").await;
    open_up(&node);
    let script = "id -un; echo mine > $NOMAD_ALLOC_DIR/data/file && cat $NOMAD_ALLOC_DIR/data/file; \
                  echo mine > $NOMAD_TASK_DIR/file && pwd; echo ready; exec sleep 1000";
    let mut task = shell(script);
    task["user"] = json!("daemon");
    node.job("named", JobType::Service, json!({"tasks": [task]})).await;
    let name = node.place("named", 0, small_task()).await;
    let running = node.running(&name).await;
    eventually("it has written", || node.log_of(&running, "t.stdout.0").contains("ready")).await;
    let dir = dir(&node, &running);
    let wanted = format!("daemon\nmine\n{}/t\nready\n", dir.display());
    assert_eq!(node.log_of(&running, "t.stdout.0"), wanted);
    let daemon = dir.join("alloc/data/file").metadata().expect("a file").uid();
    assert_eq!(as_user(daemon, &format!("cat {}/alloc/data/file", dir.display())), "");
}

#[tokio::test]
async fn an_allocation_that_goes_on_with_files_of_another_one_owns_them() {
    let node = Node::start(shared_plane(), "heir").await;
    let group = |script: &str| json!({"tasks": [exec(script)], "ephemeralDisk": {"sticky": true}});
    let write =
        "echo kept > /alloc/data/file; mkdir -p /local/a/b; echo kept > /local/a/b/file; chmod 600 /local/a/b/file";
    node.job("one", JobType::Batch, group(write)).await;
    let one = node.place("one", 0, small_task()).await;
    let ended = node.ended(&one).await;
    assert_eq!(status(&ended), ClientStatus::Complete, "{}", messages(&ended, "t"));
    node.job("two", JobType::Batch, group("cat /alloc/data/file /local/a/b/file; echo more >> /local/a/b/file; id -u"))
        .await;
    let two = node.place_after("two", &one).await;
    let ended = node.ended(&two).await;
    let user = user(&node, &ended);
    assert_eq!(node.log_of(&ended, "t.stdout.0"), format!("kept\nkept\n{user}\n"), "{}", messages(&ended, "t"));
}
