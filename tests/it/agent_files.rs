//! What tasks leave in their folders and write into their logs: the agent stays what it is, and so do others' files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drover_api::Allocation;
use drover_api::allocation::ClientStatus;
use drover_api::job::JobType;
use drover_clock::{Clock as _, SystemClock};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::agent::{Node, eventually, messages, shared_plane, shell, small_task, status};

/// How often or how many, where the acceptance tables say more than CI has time for.
fn asked(name: &str, short: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

fn dir(node: &Node<'_>, allocation: &Allocation) -> PathBuf {
    node.path("allocs").join(allocation.metadata.uid.as_deref().expect("a uid"))
}

/// The most memory that the agent has ever had, in KiB.
fn peak_kib(node: &Node<'_>) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", node.agent_pid())).expect("a status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

#[tokio::test]
async fn must_survive_x_008_a_job_whose_values_multiply() {
    let node = Node::start(shared_plane(), "multiply").await;
    let levels = |reference: &dyn Fn(usize) -> String| -> Value {
        let value = |level: usize| if level == 0 { "xy".to_owned() } else { reference(level - 1).repeat(60) };
        (0..=5).map(|level| (format!("m{level}"), Value::from(value(level)))).collect::<serde_json::Map<_, _>>().into()
    };
    let mut of_meta = shell("exit 0");
    of_meta["meta"] = levels(&|level| format!("${{NOMAD_META_m{level}}}"));
    let with_big = |mut task: Value| {
        task["meta"] = json!({"big": "x".repeat(60_000)});
        task
    };
    let mut of_env = with_big(shell("exit 0"));
    of_env["env"] = json!({"LONG": "${NOMAD_META_big}".repeat(60)});
    let mut of_args = with_big(shell("exit 0"));
    of_args["config"]["args"] = json!(["-c", "exit 0", "${NOMAD_META_big}".repeat(60)]);
    let mut of_all = with_big(shell("exit 0"));
    of_all["config"]["args"] = json!(vec!["${NOMAD_META_big}${NOMAD_META_big}"; 60]);
    let fine = node.run("fine", JobType::Batch, json!([with_big(shell("exit 0"))])).await;
    assert_eq!(status(&node.ended(&fine).await), ClientStatus::Complete);
    let before = peak_kib(&node);
    let jobs = [
        ("meta", of_meta, "meta.m3: with its references expanded it has more than 131072 bytes"),
        ("env", of_env, "env.LONG: with its references"),
        ("args", of_args, "config.args[2]: with its references"),
        ("all", of_all, "with it the task's environment and config have more than 1048576 bytes"),
    ];
    let mut peaks = Vec::new();
    for round in 0..2 {
        for (job, task, field) in &jobs {
            let name = node.run(&format!("{job}{round}"), JobType::Batch, json!([task])).await;
            let ended = node.ended(&name).await;
            assert_eq!(status(&ended), ClientStatus::Failed, "{job}");
            assert!(messages(&ended, "t").contains(field), "{job}: {}", messages(&ended, "t"));
        }
        peaks.push(peak_kib(&node));
    }
    // The first time more than these jobs is new: its whole state file, its connections.
    assert!(peaks[0] < before + 24 * 1024, "the agent has grown from {before} to {peaks:?} KiB");
    // The kernel's count of a peak is a rough one: a later reading may be some pages less.
    assert!(peaks[1] < peaks[0] + 8 * 1024, "the agent grows with each of them: {peaks:?} KiB");
}

/// What others must not change.
fn canary_state(path: &Path) -> (u32, u32, u32, String) {
    let found = fs::metadata(path).expect("metadata");
    (found.mode(), found.uid(), found.gid(), fs::read_to_string(path.join("precious")).expect("a file"))
}

#[tokio::test]
async fn must_survive_x_009_links_that_come_and_go_while_the_agent_is_restarted() {
    let mut node = Node::start(shared_plane(), "links").await;
    let canary = tempfile::tempdir().expect("a directory");
    fs::write(canary.path().join("precious"), "here").expect("a file");
    fs::set_permissions(canary.path(), fs::Permissions::from_mode(0o750)).expect("a mode");
    let before = canary_state(canary.path());
    let swap = format!(
        "echo ready; while :; do for it in /alloc/tmp /alloc/data /local; do \
         rm -rf $it; ln -s {0} $it; rm -f $it; mkdir $it; rmdir $it; ln -s {0} $it; done; done",
        canary.path().display()
    );
    let task = json!({"name": "t", "driver": "exec", "killSignal": "SIGKILL",
                      "config": {"command": "/bin/sh", "args": ["-c", swap]}});
    let name = node.run("links", JobType::Service, json!([task])).await;
    let running = node.running(&name).await;
    eventually("it runs", || node.log_of(&running, "t.stdout.0").contains("ready")).await;
    let ups = |node: &Node<'_>| node.agent_log().matches("every task was found again").count();
    for _ in 0..asked("DROVER_LINK_RESTARTS", 3) {
        let before = ups(&node);
        node.kill_agent();
        node.start_agent();
        eventually("the agent has found its task", || ups(&node) > before).await;
    }
    assert_eq!(canary_state(canary.path()), before);
    assert_eq!(status(&node.running(&name).await), ClientStatus::Running, "its own links end no task");
    node.allocs().delete(&name, &DeleteParams::default()).await.expect("deleted");
    let gone = dir(&node, &running);
    eventually("its files are gone", || !gone.exists()).await;
    assert_eq!(canary_state(canary.path()), before);
}

#[tokio::test]
async fn must_survive_x_011_many_files_that_are_removed() {
    let node = Node::start(shared_plane(), "many-files").await;
    let files = asked("DROVER_REMOVED_FILES", 20_000);
    let mut dirs = Vec::new();
    let mut names = Vec::new();
    for job in ["one", "two"] {
        let name = node.run(job, JobType::Batch, json!([shell("exit 0")])).await;
        let ended = node.ended(&name).await;
        let dir = dir(&node, &ended);
        for n in 0..files {
            let folder = dir.join(format!("alloc/data/{}", n / 1000));
            if n % 1000 == 0 {
                fs::create_dir(&folder).expect("a directory");
            }
            fs::File::create(folder.join(n.to_string())).expect("a file");
        }
        dirs.push(dir);
        names.push(name);
    }
    for name in &names {
        node.allocs().delete(name, &DeleteParams::default()).await.expect("deleted");
    }
    let leases: Api<Lease> = Api::namespaced(node.client.clone(), "drover-system");
    let mut latest = Duration::ZERO;
    while dirs.iter().any(|dir| dir.exists()) {
        let lease = leases.get("node-many-files").await.expect("a Lease");
        let renewed = lease.spec.and_then(|spec| spec.renew_time).expect("a time").0;
        latest = latest.max(Duration::try_from(SystemClock.now().duration_since(renewed)).unwrap_or_default());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The TTL of these tests is 2 s.
    assert!(latest < Duration::from_secs(4), "a heartbeat was {latest:?} old");
}

#[tokio::test]
async fn must_survive_x_034_ten_tasks_of_which_nine_flood_their_logs() {
    let node = Node::start(shared_plane(), "ten-floods").await;
    let mut floods = Vec::new();
    for n in 0..9 {
        let mut flood = shell("exec yes 'a line of a flood that never ends'");
        flood["logs"] = json!({"maxFiles": 2, "maxFileSizeMB": 1});
        let job = format!("flood{n}");
        node.job(&job, JobType::Service, json!({"tasks": [flood]})).await;
        floods.push(node.place(&job, 0, small_task()).await);
    }
    // It says again what it is told.
    let echo = "mkfifo in; echo ready; while read line; do echo $line; done <> in";
    node.job("quiet", JobType::Service, json!({"tasks": [shell(echo)]})).await;
    let quiet = node.place("quiet", 0, small_task()).await;
    let mut dirs = Vec::new();
    for name in &floods {
        dirs.push(dir(&node, &node.running(name).await).join("alloc/logs"));
    }
    let quiet = node.running(&quiet).await;
    eventually("it listens", || node.log_of(&quiet, "t.stdout.0").contains("ready")).await;
    let newest = |dir: &PathBuf| -> Option<u64> {
        let names = fs::read_dir(dir).expect("a directory").filter_map(|it| it.ok()?.file_name().into_string().ok());
        names.filter_map(|name| name.strip_prefix("t.stdout.")?.parse().ok()).max()
    };
    let is_flooded = || dirs.iter().all(|dir| newest(dir) > Some(4));
    eventually("each flood has written more than is kept", is_flooded).await;
    let input = dir(&node, &quiet).join("t/in");
    for n in 0..asked("DROVER_FLOODED_LINES", 20) {
        let line = format!("line-{n}-");
        let told = Instant::now();
        fs::write(&input, format!("{line}\n")).expect("told");
        while !node.log_of(&quiet, "t.stdout.0").contains(&line) {
            assert!(told.elapsed() < Duration::from_secs(1), "a line of another task was late");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for dir in &dirs {
            let files = fs::read_dir(dir).expect("a directory").filter_map(|it| it.ok()?.metadata().ok());
            let sizes: Vec<u64> = files.map(|it| it.len()).collect();
            // The file that is begun stands beside those that are kept.
            assert!(sizes.iter().sum::<u64>() <= 3 << 20, "{}: {sizes:?}", dir.display());
        }
    }
}

#[tokio::test]
async fn must_survive_x_035_a_node_with_ten_thousand_devices() {
    let paths: Vec<String> = (0..10_000).map(|n| format!("/dev/none-{n}")).collect();
    let group = json!({"vendor": "a\u{7}b", "type": "gpu", "name": "x".repeat(5000), "paths": paths,
                       "attributes": {"k\u{1b}": "v", "long": "x".repeat(500_000)}});
    let config = format!("devices: {}\nmeta: {}\n", json!({"files": [group]}), json!({"long": "x".repeat(1_500_000)}));
    let node = Node::start_with(shared_plane(), "many-devices", &config).await;
    let fine = node.run("fine", JobType::Batch, json!([shell("exit 0")])).await;
    assert_eq!(status(&node.ended(&fine).await), ClientStatus::Complete);
    let nodes: Api<drover_api::ClientNode> = Api::all(node.client.clone());
    let print = nodes.get("many-devices").await.expect("a node").status.and_then(|it| it.fingerprint);
    let print = print.expect("a fingerprint");
    assert_eq!((print.devices[0].vendor.as_str(), print.devices[0].instances.len()), ("ab", 256));
    assert_eq!(print.meta.static_meta["long"].len(), 1024);
}
