//! What happens before a task runs: its gate, hooks, settings, the driver's answer.

use std::time::Duration;

use drover_api::allocation::{TaskEventType as E, TaskRunState};
use drover_core::lifecycle::Gates;
use serde_json::json;

use super::world::{Node, once};
use crate::tasks::plan::TaskEnd;

#[tokio::test(start_paused = true)]
async fn a_task_waits_for_its_gate_and_starts_when_that_opens() {
    let node = Node::new();
    let mut life = node.run(&once(&json!({ "runFor": "1h" })));
    let open = life.orders.borrow().gates;
    life.orders.send_modify(|orders| orders.gates = Gates::default());
    life.pass(Duration::from_mins(10)).await;
    assert_eq!(node.n_started(), 0, "its gate is shut");
    life.orders.send_modify(|orders| orders.gates = open);
    let state = life.running().await;
    assert_eq!(life.events(), [E::Received, E::TaskSetup, E::Started]);
    assert_eq!((state.restarts, state.failed, node.n_started()), (0, false, 1));
}

#[tokio::test(start_paused = true)]
async fn the_state_file_has_the_handle_before_anyone_hears_of_the_run() {
    let node = Node::new();
    let mut life = node.run(&once(&json!({ "runFor": "1h" })));
    life.running().await;
    let record = node.record();
    let handle = record.handle.expect("a handle");
    assert!(handle.id.starts_with("uid-1/t/"), "{}", handle.id);
    assert_eq!((record.starting, record.state.state), (None, TaskRunState::Running));
    assert_eq!(life.located().await.as_deref(), Ok(&*handle.id));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_about_to_begin_is_in_the_state_file_by_its_id() {
    let node = Node::new();
    let mut life = node.run(&once(&json!({ "runFor": "1h", "startBlockFor": "10s" })));
    life.pass(Duration::from_secs(5)).await;
    let record = node.record();
    assert!(record.starting.as_deref().is_some_and(|id| id.starts_with("uid-1/t/")), "{record:?}");
    assert_eq!((record.handle, node.n_started()), (None, 0));
    assert_eq!(life.shut_down().await, TaskEnd::Detached);
}

#[tokio::test(start_paused = true)]
async fn a_task_does_not_run_while_the_state_file_cannot_be_written() {
    let node = Node::new();
    let mut life = node.run_without_state(&once(&json!({ "runFor": "1h" })));
    let state = life.dead().await;
    assert_eq!((node.n_started(), state.failed), (0, true));
    assert!(life.events().contains(&E::SetupFailure), "{:?}", life.events());
}

/// What is wrong with a task for good fails it at once; what may pass counts against its restarts.
#[tokio::test(start_paused = true)]
async fn a_start_that_cannot_work_fails_the_task_and_one_that_may_is_tried_again() {
    let policy = json!({ "attempts": 2, "interval": "10m", "delay": "10s", "mode": "fail" });
    for (task, event, message, restarts) in [
        (json!({ "driver": "podman" }), E::DriverFailure, "driver podman is not known on this node", 0),
        (json!({ "config": { "startError": "no disk" } }), E::DriverFailure, "no disk", 0),
        (json!({ "config": { "exitCode": "${no.such}" } }), E::FailedValidation, "config.exitCode: ${no.such}", 0),
        (
            json!({ "config": { "colour": "red" } }),
            E::FailedValidation,
            "config.colour is no setting of driver mock",
            0,
        ),
        (
            json!({ "artifacts": [{ "getterSource": "git::x" }] }),
            E::FailedArtifactDownload,
            "artifacts[0]: getterSource \"x\" is no repository of git",
            0,
        ),
        (
            json!({ "artifacts": [{ "getterSource": "https://a/x", "relativeDest": "${NOMAD_TASK_DIR}/../../x" }] }),
            E::FailedArtifactDownload,
            "artifacts[0]: relativeDest",
            0,
        ),
        (
            json!({ "artifacts": [{ "getterSource": "https://${no.such}/x" }] }),
            E::FailedArtifactDownload,
            "artifacts[0]: \"https://${no.such}/x\"",
            0,
        ),
        (json!({ "config": { "startError": "busy", "startErrorRecoverable": true } }), E::DriverFailure, "busy", 2),
    ] {
        let node = Node::new();
        let mut task = task;
        task["restart"] = policy.clone();
        let mut life = node.run(&task);
        let state = life.dead().await;
        assert_eq!((state.failed, state.restarts), (true, restarts), "{message}");
        let said = state.events.iter().rfind(|known| known.r#type == event).expect(message);
        assert!(said.message.starts_with(message), "{}", said.message);
        assert_eq!(state.events.last().map(|last| last.r#type), Some(E::NotRestarting), "{message}");
        assert_eq!(node.n_started(), 0, "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_at_first_works_after_the_pause_of_the_policy() {
    let node = Node::new();
    let mut life = node.run(&json!({
        "config": { "failFirst": 2, "runFor": "1h" },
        "restart": { "attempts": 5, "interval": "10m", "delay": "20s", "mode": "fail" }
    }));
    let state = life.running().await;
    assert_eq!(state.restarts, 2);
    // Each pause has up to a quarter of jitter on top.
    assert!((40.0..=50.0).contains(&life.seconds()), "{}", life.seconds());
}

#[tokio::test(start_paused = true)]
async fn an_allocation_that_is_to_stop_starts_no_task() {
    let node = Node::new();
    let mut life = node.run(&once(&json!({ "runFor": "1h" })));
    life.orders.send_modify(|orders| orders.is_stopped = true);
    let state = life.dead().await;
    assert_eq!((node.n_started(), state.failed, state.started_at), (0, false, None));
    assert_eq!(life.released().await, TaskEnd::Done);
    assert!(node.record().run_complete);
}
