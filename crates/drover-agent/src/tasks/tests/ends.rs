//! What follows on the end of a run: another one, success, failure.

use std::time::Duration;

use drover_api::allocation::{TaskEventType as E, TaskRunState};
use drover_supervisor::protocol::{Exit, OomKill};
use serde_json::json;

use super::world::{Node, UID, job, once};
use crate::drivers::ExitResult;
use crate::tasks::plan::TaskEnd;

#[tokio::test(start_paused = true)]
async fn a_service_runs_again_and_a_batch_task_is_done_when_it_ends_well() {
    for (kind, restarts) in [("service", true), ("system", true), ("batch", false), ("sysbatch", false)] {
        let node = Node::new();
        let task = json!({
            "config": { "runFor": "5s" },
            "restart": { "attempts": 1, "interval": "1h", "delay": "1s", "mode": "fail" }
        });
        let mut life = node.start(&job(kind, &task), None);
        let state = life.dead().await;
        assert_eq!(state.restarts, i64::from(restarts), "{kind}");
        assert_eq!(state.failed, restarts, "{kind}: a service that ends is no success");
        assert_eq!(state.last_restart.is_some(), restarts, "{kind}");
        assert_eq!(node.n_started(), if restarts { 2 } else { 1 }, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_within_the_interval_are_used_up_and_then_the_mode_decides() {
    let policy = |mode: &str| json!({ "attempts": 2, "interval": "5m", "delay": "10s", "mode": mode });
    let node = Node::new();
    let task = json!({ "config": { "runFor": "1s", "exitCode": 3 }, "restart": policy("fail") });
    let mut life = node.run(&task);
    let state = life.dead().await;
    assert_eq!((state.failed, state.restarts, node.n_started()), (true, 2, 3));
    let last: Vec<E> = life.events().into_iter().rev().take(2).collect();
    assert_eq!(last, [E::NotRestarting, E::Terminated]);

    let node = Node::new();
    let task = json!({ "config": { "runFor": "1s", "exitCode": 3 }, "restart": policy("delay") });
    let mut life = node.run(&task);
    life.pass(Duration::from_mins(4)).await;
    assert_eq!((node.n_started(), life.state.state), (3, TaskRunState::Pending), "it waits for the next interval");
    assert!(life.last_message().starts_with("all 2 restarts within 300s are used up; next start in"));
    life.pass(Duration::from_mins(3)).await;
    assert!(node.n_started() > 3 && !life.state.failed, "{:?}", life.state);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_process_is_reported_with_its_cause() {
    let oom = OomKill { limit_bytes: 64 << 20, peak_bytes: 63 << 20 };
    let killed_by_kernel = Exit { oom: Some(oom), ..Exit::signal(libc::SIGKILL) };
    for (exit, oom_killed, message, code, signal) in [
        (Exit::code(7), false, "exit=7", 7, None),
        (Exit::signal(libc::SIGSEGV), false, "exit=139 signal=11", 139, Some(11)),
        (killed_by_kernel, true, "exit=137 signal=9 oomKilled (memory limit 64 MiB, peak 63 MiB)", 137, Some(9)),
        (Exit::unknown("gone"), false, "exit=-1 error=\"gone\"", -1, None),
    ] {
        let node = Node::new();
        let mut life = node.run(&once(&json!({ "runFor": "1h" })));
        life.running().await;
        assert!(node.mock.end(UID, "t", &ExitResult { exit, oom_killed }));
        let state = life.dead().await;
        let end = state.events.iter().rfind(|event| event.r#type == E::Terminated).expect("an end");
        assert_eq!((&*end.message, end.exit_code, end.signal), (message, Some(code), signal));
        assert_eq!(end.oom_killed, oom_killed, "{message}");
        assert!(state.failed, "{message}");
    }
}

/// A program may catch the end of a child that the kernel killed, and still exit with 0.
#[tokio::test(start_paused = true)]
async fn a_task_that_lost_processes_to_a_lack_of_memory_has_not_ended_well() {
    let node = Node::new();
    let mut life = node.start(&job("batch", &once(&json!({ "runFor": "1h" }))), None);
    life.running().await;
    assert!(node.mock.end(UID, "t", &ExitResult { exit: Exit::code(0), oom_killed: true }));
    assert!(life.dead().await.failed);
}

#[tokio::test(start_paused = true)]
async fn the_driver_forgets_a_run_only_when_the_state_file_knows_what_follows() {
    let node = Node::new();
    let mut life = node.run(&json!({
        "config": { "runFor": "1s", "exitCode": 1 },
        "restart": { "attempts": 3, "interval": "1h", "delay": "30s", "mode": "fail" }
    }));
    life.until("pending again", |state| state.restarts == 1).await;
    let record = node.record();
    assert_eq!((record.handle, record.state.restarts), (None, 1), "the next start is decided");
    assert_eq!((node.n_started(), node.n_forgotten()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_new_version_changes_the_policy_of_a_task_that_goes_on() {
    let node = Node::new();
    let mut life = node.run(&once(&json!({ "runFor": "10s", "exitCode": 1 })));
    life.running().await;
    let patient = job(
        "service",
        &json!({
            "config": { "runFor": "10s", "exitCode": 1 },
            "restart": { "attempts": 1, "interval": "1h", "delay": "5s", "mode": "fail" }
        }),
    );
    life.orders.send_modify(|orders| {
        orders.group = std::sync::Arc::new(patient.groups[0].clone());
        orders.job = std::sync::Arc::new(patient);
    });
    let state = life.dead().await;
    assert_eq!((state.restarts, node.n_started()), (1, 2), "by the first version it would not have run again");
}

#[tokio::test(start_paused = true)]
async fn only_the_newest_events_are_kept() {
    let node = Node::new();
    let mut life = node.run(&json!({
        "config": { "runFor": "1s", "exitCode": 1 },
        "restart": { "attempts": 50, "interval": "1h", "delay": "1s", "mode": "fail" }
    }));
    let state = life.dead().await;
    assert_eq!((state.restarts, state.events.len()), (50, 10));
    assert!(state.events.is_sorted_by_key(|event| event.time));
    assert_eq!(life.released().await, TaskEnd::Done);
}
