//! Hostile tasks, cut-off nodes and dying agents: the agent and the neighbours live on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use drover_api::allocation::{ClientStatus, TaskEventType as E};
use drover_api::job::JobType;
use drover_api::{Allocation, AllocationSpec, JobVersion, JobVersionSpec, names};
use drover_testkit::control_plane::Role;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::agent::{
    Node, events, eventually, lives, messages, one_task, shared_plane, shell, small_task, start_plane, status,
};

#[tokio::test]
async fn must_survive_a_log_flood() {
    let node = Node::start(shared_plane(), "flood").await;
    let mut flood = shell("echo $$; exec yes 'a line of a flood that never ends'");
    flood["logs"] = json!({"maxFiles": 2, "maxFileSizeMB": 1});
    let name = node.run("flood", JobType::Service, json!([flood])).await;
    let running = node.running(&name).await;
    let dir = node.path("allocs").join(running.metadata.uid.as_deref().expect("a uid")).join("alloc/logs");
    let files = || {
        let mut found: Vec<(u64, u64)> = std::fs::read_dir(&dir)
            .expect("a directory")
            .filter_map(Result::ok)
            .filter_map(|it| {
                let index = it.file_name().to_string_lossy().strip_prefix("t.stdout.")?.parse().ok()?;
                Some((index, it.metadata().ok()?.len()))
            })
            .collect();
        found.sort_unstable();
        found
    };
    eventually("a hundred rotations", || files().last().is_some_and(|(index, _)| *index > 100)).await;
    let before = Instant::now();
    let neighbour = node.run("quiet", JobType::Batch, json!([shell("echo quiet")])).await;
    let ended = node.ended(&neighbour).await;
    assert!(before.elapsed() < Duration::from_secs(10), "the neighbour took {:?}", before.elapsed());
    assert_eq!((status(&ended), node.log_of(&ended, "t.stdout.0").as_str()), (ClientStatus::Complete, "quiet\n"));
    let found = files();
    assert!(found.len() <= 3 && found.iter().all(|(_, size)| *size <= 1 << 20), "{found:?}");
    node.stop(&name).await;
    assert_eq!(status(&node.ended(&name).await), ClientStatus::Complete);
}

#[tokio::test]
async fn must_survive_zombies_and_processes_that_ignore_signals() {
    let node = Node::start(shared_plane(), "zombies").await;
    let script = "trap '' TERM INT HUP; n=0; while [ $n -lt 50 ]; do n=$((n+1)); \
                  setsid -f sh -c 'trap \"\" TERM; (exit 0) & exec sleep 5000'; (sh -c 'exit 0' &) ; done; \
                  echo $$; while :; do sleep 0.2; done";
    let mut task = shell(script);
    task["killTimeout"] = json!("500ms");
    let name = node.run("zombies", JobType::Service, json!([task])).await;
    let running = node.running(&name).await;
    let pid = node.pid_of(&running, "t").await;
    let uid = running.metadata.uid.clone().expect("a uid");
    let marker = format!("NOMAD_ALLOC_ID={uid}");
    let left = || {
        std::fs::read_dir("/proc")
            .expect("proc")
            .filter_map(Result::ok)
            .filter(|it| {
                std::fs::read(it.path().join("environ"))
                    .is_ok_and(|text| text.split(|byte| *byte == 0).any(|entry| entry == marker.as_bytes()))
            })
            .count()
    };
    eventually("all of them", || left() > 50).await;
    node.stop(&name).await;
    let ended = node.ended(&name).await;
    assert_eq!(status(&ended), ClientStatus::Complete);
    assert!(!lives(pid));
    assert_eq!(left(), 0, "nothing of the task is left when its end is told");
}

#[tokio::test]
async fn must_survive_names_that_climb() {
    let node = Node::start(shared_plane(), "climb").await;
    let task = |name: &str| json!({"name": name, "driver": "raw_exec", "config": {"command": "/bin/true"}});
    for (n, name) in ["../../up", "a/b", "alloc", "..", "UP"].into_iter().enumerate() {
        let job = format!("climb{n}");
        let spec: Value = json!({"type": "batch", "groups": [{"name": "g", "tasks": [task(name)]}]});
        let version = JobVersion::new(
            &names::job_version_name(&job, 0),
            JobVersionSpec {
                job_name: job.clone(),
                job_uid: format!("uid-{job}"),
                version: 0,
                job_generation: 1,
                group_names: "g".into(),
                job: serde_json::from_value(spec).expect("a job"),
                submitted_at: Timestamp::UNIX_EPOCH,
                revert_of: None,
                intent: String::new(),
            },
        );
        let versions: Api<JobVersion> = Api::namespaced(node.client.clone(), &node.name);
        versions.create(&PostParams::default(), &version).await.expect("a version");
        let placed = node.place(&job, 0, one_task()).await;
        let ended = node.ended(&placed).await;
        let found = ended.status.as_ref().expect("a status");
        assert_eq!(found.client_status, ClientStatus::Failed, "{name}");
        assert!(found.client_description.contains("no DNS label"), "{name}: {}", found.client_description);
    }
    assert!(!node.path("up").exists() && !node.path("allocs/up").exists());
    let fine = node.run("fine", JobType::Batch, json!([shell("exit 0")])).await;
    assert_eq!(status(&node.ended(&fine).await), ClientStatus::Complete);
}

/// What tasks get in their environment stays between them and the job: it is in no status, no event and no log of the
/// agent.
#[tokio::test]
async fn must_survive_a_secret_in_the_environment() {
    const CANARY: &str = "canary-5f0c2e";
    let node = Node::start(shared_plane(), "canary").await;
    let with_secret = |script: &str| {
        let mut task = shell(script);
        task["env"] = json!({"SECRET": CANARY});
        task["restart"] = json!({"attempts": 0, "interval": "1h", "delay": "1s", "mode": "fail"});
        task
    };
    // One ends well, one fails, and one cannot begin.
    let fine = node.run("fine", JobType::Batch, json!([with_secret("test $(printf %s $SECRET | wc -c) = 13")])).await;
    let fails = node.run("fails", JobType::Batch, json!([with_secret("exit 3")])).await;
    let mut nowhere = with_secret("exit 0");
    nowhere["config"]["command"] = json!("/no/such/program");
    let nowhere = node.run("nowhere", JobType::Batch, json!([nowhere])).await;
    for (name, wanted) in
        [(&fine, ClientStatus::Complete), (&fails, ClientStatus::Failed), (&nowhere, ClientStatus::Failed)]
    {
        let ended = node.ended(name).await;
        assert_eq!(status(&ended), wanted, "{}", messages(&ended, "t"));
        assert!(!serde_json::to_string(&ended).expect("text").contains(CANARY), "{ended:#?}");
    }
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(node.client.clone(), &node.name);
    let mut told = String::new();
    let deadline = Instant::now() + crate::cluster::LONG;
    while !(told.contains("TaskFailed") && told.contains("DriverError")) {
        assert!(Instant::now() < deadline, "no events: {told}");
        let found = events.list(&kube::api::ListParams::default()).await.expect("events").items;
        told = serde_json::to_string(&found).expect("text");
    }
    assert!(!told.contains(CANARY), "{told}");
    assert!(!node.agent_log().contains(CANARY), "{}", node.agent_log());
    let supervisor = std::fs::read_to_string(node.path("state/supervisor.log")).unwrap_or_default();
    assert!(!supervisor.contains(CANARY), "{supervisor}");
}

#[tokio::test]
async fn a_026_what_cannot_be_added_is_reported_failed_once() {
    let node = Node::start(shared_plane(), "added").await;
    let spec = AllocationSpec {
        job_name: "none".into(),
        job_uid: "uid-none".into(),
        group: "g".into(),
        node_name: node.name.clone(),
        resources: one_task(),
        ..AllocationSpec::default()
    };
    node.job("none", JobType::Service, json!({"name": "other", "tasks": [shell("exit 0")]})).await;
    let allocation = Allocation::new("none-g-0-00000000", spec);
    node.allocs().create(&PostParams::default(), &allocation).await.expect("an allocation");
    let ended = node.ended("none-g-0-00000000").await;
    let found = ended.status.as_ref().expect("a status");
    assert_eq!(found.client_status, ClientStatus::Failed);
    assert!(found.client_description.contains("could not be added"), "{}", found.client_description);
    assert!(found.health.as_ref().is_some_and(|health| !health.healthy));
    assert!(found.task_states.values().all(|state| state.finished_at.is_some()));
    let fine = node.run("fine", JobType::Batch, json!([shell("exit 0")])).await;
    node.ended(&fine).await;
    let again = node.allocs().get("none-g-0-00000000").await.expect("an allocation");
    assert_eq!(again.metadata.resource_version, ended.metadata.resource_version, "no second update");
}

/// An allocation can be moved to another version of its job just before the API server is gone.
#[tokio::test]
async fn what_runs_is_found_again_when_the_version_that_it_was_moved_to_could_not_be_read() {
    let mut node = Node::start(shared_plane(), "moved").await;
    let group = json!({ "tasks": [shell("echo $$; exec sleep 100000")] });
    node.job("moved", JobType::Service, group.clone()).await;
    let name = node.place("moved", 0, one_task()).await;
    let pid = node.pid_of(&node.running(&name).await, "t").await;
    let to_version = Patch::Merge(json!({ "spec": { "jobVersion": 1 } }));
    node.allocs().patch(&name, &PatchParams::default(), &to_version).await.expect("moved");
    let logged = |node: &Node, what: &str| node.agent_log().matches(what).count();
    eventually("a version that is not there", || logged(&node, "a job version is not read yet") > 0).await;

    node.kill_agent();
    node.start_agent();
    eventually("the next agent knows its tasks", || logged(&node, "every task was found again") == 2).await;

    // It is followed once it is there, and kept.
    node.job_version("moved", 1, JobType::Service, group).await;
    eventually("it is followed", || logged(&node, "it runs by another version of its job") == 1).await;
    assert!(lives(pid), "{}", node.agent_log());
    assert_eq!(status(&node.allocs().get(&name).await.expect("an allocation")), ClientStatus::Running);
    node.kill_agent();
    node.start_agent();
    node.stop(&name).await;
    assert_eq!(status(&node.ended(&name).await), ClientStatus::Complete);
    assert!(!lives(pid));
    assert_eq!(logged(&node, "the version of its job is not in the state file"), 1, "{}", node.agent_log());
}

/// Row 9 of the acceptance table. `DROVER_PARTITION_SECONDS` sets how long the API server is gone (the table says 300)
/// and `DROVER_STOP_AFTER_SECONDS` after how much of it the bound job stops (60).
#[tokio::test]
async fn a_042_a_cut_off_node_ends_what_may_not_run_alone_and_reports_both_afterwards() {
    let plane = start_plane("cutoff").await;
    let node = Node::start(&plane, "cutoff").await;
    let seconds = |name: &str, short: u64| std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(short);
    let stop_after = seconds("DROVER_STOP_AFTER_SECONDS", 6);
    let partition = Duration::from_secs(seconds("DROVER_PARTITION_SECONDS", 0));
    let script = "echo $$; exec sleep 100000";
    let group = |more: Value| {
        let mut group = json!({"tasks": [shell(script)]});
        for (field, value) in more.as_object().expect("an object") {
            group[field] = value.clone();
        }
        group
    };
    node.job("alone", JobType::Service, group(json!({}))).await;
    node.job("bound", JobType::Service, group(json!({"disconnect": {"stopOnClientAfter": format!("{stop_after}s")}})))
        .await;
    let (alone, bound) = (node.place("alone", 0, one_task()).await, node.place("bound", 0, one_task()).await);
    let (alone_running, bound_running) = (node.running(&alone).await, node.running(&bound).await);
    let alone_pid = node.pid_of(&alone_running, "t").await;
    let bound_pid = node.pid_of(&bound_running, "t").await;
    plane.pause(Role::KubeApiserver).expect("held");
    let cut = Instant::now();
    let stop_after = Duration::from_secs(stop_after);
    let deadline = cut + stop_after + Duration::from_secs(20);
    while lives(bound_pid) {
        assert!(Instant::now() < deadline, "the bound one was not stopped");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = cut.elapsed();
    // The last heartbeat was up to a TTL (2 s) before the cut.
    let expected = stop_after.saturating_sub(Duration::from_secs(3))..stop_after + Duration::from_secs(6);
    assert!(expected.contains(&took), "after {took:?}");
    tokio::time::sleep_until((cut + partition).into()).await;
    let cut_off_for = cut.elapsed();
    assert!(lives(alone_pid));
    plane.resume(Role::KubeApiserver).await.expect("resumed");
    let ended = node.ended(&bound).await;
    assert_eq!(status(&ended), ClientStatus::Complete);
    assert!(messages(&ended, "t").contains("no controller"), "{}", messages(&ended, "t"));
    assert!(lives(alone_pid));
    let alone_now = node.running(&alone).await;
    assert!(!events(&alone_now, "t").contains(&E::Terminated));
    #[expect(clippy::print_stderr, reason = "the figures of the acceptance table")]
    {
        eprintln!("cut off for {cut_off_for:?}: the bound one ended after {took:?}, the other ran on");
    }
}

#[tokio::test]
async fn a_100_the_supervisors_end_is_not_the_tasks() {
    let node = Node::start(shared_plane(), "plugin").await;
    let name = node.run("five", JobType::Batch, json!([shell("echo $$; sleep 5; exit 0")])).await;
    let running = node.running(&name).await;
    let pid = node.pid_of(&running, "t").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    crate::agent::signal(node.supervisor_pid(), rustix::process::Signal::KILL);
    assert!(lives(pid));
    let ended = node.ended(&name).await;
    assert_eq!(status(&ended), ClientStatus::Complete, "{}", messages(&ended, "t"));
    assert_eq!(events(&ended, "t"), [E::Received, E::TaskSetup, E::Started, E::Terminated]);
    assert_eq!(ended.status.as_ref().expect("a status").task_states["t"].restarts, 0);
}

/// Row 4 of the acceptance table; `DROVER_RESTORE_TASKS` sets how many tasks run (the table says 1,000), and that the
/// second in which all must be found is held against it: beside other tests a clock says little.
#[tokio::test]
async fn a_restarted_agent_finds_all_tasks_again() {
    let asked: Option<i64> = std::env::var("DROVER_RESTORE_TASKS").ok().and_then(|text| text.parse().ok());
    let n = asked.unwrap_or(60);
    let mut node = Node::start(shared_plane(), "restore").await;
    node.job("many", JobType::Service, json!({"tasks": [shell("exec sleep 100000")]})).await;
    let mut placed = Vec::new();
    for index in 0..n {
        placed.push(node.place("many", index, small_task()).await);
    }
    for name in &placed {
        node.running(name).await;
    }
    node.kill_agent();
    let began = Instant::now();
    node.start_agent();
    eventually("all tasks", || node.agent_log().matches("every task was found again").count() > 1).await;
    let took = began.elapsed();
    assert!(asked.is_none() || took < Duration::from_secs(1), "{n} tasks after {took:?}");
    for name in &placed {
        let found = node.allocs().get(name).await.expect("an allocation");
        assert_eq!(events(&found, "t"), [E::Received, E::TaskSetup, E::Started], "{name}");
    }
    #[expect(clippy::print_stderr, reason = "the figure of the acceptance table")]
    {
        eprintln!("{n} tasks were found again after {took:?}");
    }
}

/// Row 2 of the acceptance table; `DROVER_AGENT_KILLS` sets how often the agent dies (the table says 500).
#[tokio::test]
async fn an_agent_that_is_killed_at_random_moments_starts_and_ends_every_task_once() {
    let kills: u32 = std::env::var("DROVER_AGENT_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let mut node = Node::start(shared_plane(), "kills").await;
    let log = |name: &str, more: &str| {
        let mut task = shell(&format!("echo start $$; {more}"));
        task["name"] = json!(name);
        task
    };
    let hook = |mut task: Value, hook: &str, sidecar: bool| {
        task["lifecycle"] = json!({"hook": hook, "sidecar": sidecar});
        task
    };
    // Twelve of these run at once: each line costs a process, so that more of them than this is a load test.
    let count = "n=0; while [ $n -lt 80 ]; do n=$((n+1)); echo $n; sleep 0.05; done";
    let mut fails = log("t", &format!("{count}; exit 1"));
    fails["restart"] = json!({"attempts": 1, "interval": "1h", "delay": "200ms", "mode": "fail"});
    let lively = json!([
        hook(log("pre", "sleep 0.3"), "prestart", false),
        hook(log("side", "exec sleep 100000"), "prestart", true),
        log("t", &format!("{count}; exec sleep 100000")),
        hook(log("post", "sleep 0.2"), "poststart", false),
        hook(log("last", "sleep 0.2"), "poststop", false),
    ]);
    node.job("lively", JobType::Service, json!({"tasks": lively})).await;
    node.job("fails", JobType::Batch, json!({"tasks": [fails]})).await;
    let mut rng = fastrand::Rng::with_seed(7);
    let mut placed = Vec::new();
    for n in 0..i64::from(kills) {
        placed.push((node.place(if n % 2 == 0 { "lively" } else { "fails" }, n, one_task()).await, n % 2 == 0));
        tokio::time::sleep(Duration::from_millis(rng.u64(20..600))).await;
        node.kill_agent();
        node.start_agent();
        if n >= 6 && n % 4 == 0 {
            let index = usize::try_from(n - 6).expect("an index");
            node.stop(&placed[index].0).await;
        }
    }
    for (name, is_lively) in &placed {
        if *is_lively {
            node.until(name, "past its start", |it| {
                status(it).is_terminal()
                    || it
                        .status
                        .as_ref()
                        .is_some_and(|it| it.task_states.get("post").is_some_and(|post| post.state.as_str() == "dead"))
            })
            .await;
            node.stop(name).await;
        }
    }
    let mut starts: BTreeMap<String, usize> = BTreeMap::new();
    for (name, is_lively) in &placed {
        let ended = node.ended(name).await;
        for task in if *is_lively { vec!["pre", "side", "t", "post", "last"] } else { vec!["t"] } {
            let text = node.log_of(&ended, &format!("{task}.stdout.0"));
            let n = text.lines().filter(|line| line.starts_with("start ")).count();
            *starts.entry(format!("{task} {n}")).or_default() += 1;
            let runs = ended.status.as_ref().expect("a status").task_states[task].restarts + 1;
            assert!(i64::try_from(n).expect("a number") <= runs, "{name} {task}: {n} starts in {runs} runs\n{text}");
            for run in text.split("start ").skip(1) {
                for (k, line) in run.lines().skip(1).enumerate() {
                    assert_eq!(line.parse(), Ok(k + 1), "{name} {task}: a gap or a repeat in its log");
                }
            }
            for pid in text.lines().filter_map(|line| line.strip_prefix("start ")?.parse().ok()) {
                assert!(!lives(pid), "{name} {task} is left running");
            }
        }
        if !is_lively {
            let found = ended.status.as_ref().expect("a status");
            assert_eq!((found.client_status, found.task_states["t"].restarts), (ClientStatus::Failed, 1), "{name}");
        }
    }
    assert!(starts.contains_key("t 1"), "{starts:?}");
}
