//! Requests to a task: restart, signal, where its process is.

use std::time::Duration;

use drover_api::allocation::TaskEventType as E;
use serde_json::json;

use super::world::{Node, job, once};
use crate::tasks::commands::{CommandError, Force};

#[tokio::test(start_paused = true)]
async fn a_restart_that_is_asked_for_happens_at_once_and_counts_against_no_policy() {
    let node = Node::new();
    let mut life = node.run(&once(&json!({ "runFor": "1h" })));
    life.running().await;
    for n in 1..=5 {
        life.restart(Force::No).await.expect("restarted");
        life.until("running again", |state| state.restarts == n && state.finished_at.is_none()).await;
        life.running().await;
    }
    assert!(life.seconds() < 1.0, "no pause of the policy: {}", life.seconds());
    assert!(!life.state.failed, "the policy permits no restart, and none of these counts");
    assert_eq!(node.n_started(), 6);
    let said = life.state.events.iter().rfind(|event| event.r#type == E::Restarting).expect("an event");
    assert_eq!(said.message, "restart requested; next start in 0.0s");
}

#[tokio::test(start_paused = true)]
async fn a_dead_task_runs_again_only_when_all_tasks_are_asked_to() {
    let node = Node::new();
    let mut life = node.start(&job("batch", &once(&json!({ "runFor": "1s", "exitCode": 2 }))), None);
    assert!(life.dead().await.failed);
    assert_eq!(life.restart(Force::No).await, Err(CommandError::NotRunning));
    life.restart(Force::Yes).await.expect("restarted");
    let state = life.running().await;
    assert_eq!((state.failed, state.finished_at, node.n_started()), (false, None, 2));
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_task_without_a_process_are_refused() {
    let node = Node::new();
    let mut life = node.run(&json!({
        "config": { "runFor": "1s", "exitCode": 1 },
        "restart": { "attempts": 3, "interval": "1h", "delay": "10m", "mode": "fail" }
    }));
    life.until("in its pause", |state| state.restarts == 1).await;
    assert_eq!(life.restart(Force::No).await, Err(CommandError::NotRunning));
    assert_eq!(life.signal("SIGHUP").await, Err(CommandError::NotRunning));
    assert_eq!(life.located().await, Err(CommandError::NotRunning));
    assert_eq!(CommandError::NotRunning.to_string(), "Task not running");
}

#[tokio::test(start_paused = true)]
async fn a_signal_goes_to_the_driver_and_its_refusal_comes_back() {
    let node = Node::new();
    let mut life = node.run(&once(&json!({ "runFor": "1h" })));
    life.running().await;
    life.signal("SIGHUP").await.expect("sent");
    life.pass(Duration::from_secs(1)).await;
    assert_eq!((life.last_message(), life.events().last()), ("sending SIGHUP", Some(&E::Signaling)));

    let node = Node::new();
    let mut life = node.run(&once(&json!({ "runFor": "1h", "signalError": "no such process" })));
    life.running().await;
    assert_eq!(life.signal("SIGHUP").await, Err(CommandError::Driver("no such process".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_run_has_another_id_after_a_restart() {
    let node = Node::new();
    let mut life = node.run(&once(&json!({ "runFor": "1h" })));
    life.running().await;
    let first = life.located().await.expect("a run");
    life.restart(Force::No).await.expect("restarted");
    life.until("running again", |state| state.restarts == 1).await;
    life.running().await;
    let second = life.located().await.expect("a run");
    assert_ne!(first, second);
    assert_eq!(node.record().handle.map(|handle| handle.id), Some(second));
}
