//! Ending a task: its shutdown delay, its signal, its timeout, and what is reported.

use std::time::Duration;

use drover_api::allocation::{TaskEventType as E, TaskRunState};
use drover_core::lifecycle::Gates;
use serde_json::{Value, json};

use super::world::{Life, Node};
use crate::tasks::plan::TaskEnd;
use crate::tasks::task_event;

fn lasting(more: &Value) -> Value {
    let mut task = json!({ "config": { "runFor": "1h" }, "killSignal": "SIGTERM", "killTimeout": "5s" });
    for (field, value) in more.as_object().expect("an object") {
        task[field] = value.clone();
    }
    task
}

/// The seconds from a kill to the end of the task.
async fn seconds_to_die(life: &mut Life) -> f64 {
    let before = life.seconds();
    life.dead().await;
    life.seconds() - before
}

#[tokio::test(start_paused = true)]
async fn a_killed_task_ends_by_its_signal_and_does_not_count_as_failed() {
    let node = Node::new();
    let mut life = node.run(&lasting(&json!({})));
    life.running().await;
    let now = node.env().clock.now();
    life.kill(|order| order.events.push(task_event::plain(E::Killing, now, "")));
    let state = life.dead().await;
    assert_eq!(life.events(), [E::Received, E::TaskSetup, E::Started, E::Killing, E::Terminated, E::Killed]);
    let message = |kind: E| state.events.iter().find(|event| event.r#type == kind).expect("an event").message.clone();
    assert_eq!(message(E::Killing), "stop signal sent, force kill after 5s");
    assert_eq!(message(E::Terminated), "exit=143 signal=15");
    assert!(!state.failed && node.was_asked_to_stop());
    assert_eq!(life.released().await, TaskEnd::Done);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_heed_its_signal_is_killed_after_its_timeout_or_the_nodes() {
    for (timeout, of_node, wanted) in [("5s", 30, 5.0), ("10m", 30, 30.0)] {
        let mut node = Node::new();
        node.max_kill_timeout = Duration::from_secs(of_node);
        let mut life = node.run(&lasting(&json!({
            "config": { "runFor": "1h", "killAfter": "1h" }, "killTimeout": timeout
        })));
        life.running().await;
        life.kill(|_| {});
        let took = seconds_to_die(&mut life).await;
        assert!((took - wanted).abs() < 0.1, "{timeout}: {took}");
        let end = life.state.events.iter().find(|event| event.r#type == E::Terminated).expect("an end");
        assert_eq!(end.signal, Some(9), "{timeout}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_delay_passes_before_the_signal_unless_it_is_left_out() {
    let node = Node::new();
    let mut life = node.run(&lasting(&json!({ "shutdownDelay": "20s" })));
    life.running().await;
    life.kill(|_| {});
    life.pass(Duration::from_secs(19)).await;
    assert_eq!((life.state.state, node.was_asked_to_stop()), (TaskRunState::Running, false));
    assert_eq!(life.last_message(), "shutdown delay of 20s: waiting");
    assert!(seconds_to_die(&mut life).await < 1.1);

    let node = Node::new();
    let mut life = node.run(&lasting(&json!({ "shutdownDelay": "20s" })));
    life.running().await;
    life.kill(|order| order.skip_delay = true);
    assert!(seconds_to_die(&mut life).await < 0.1, "left out from the start");
    assert!(life.events().contains(&E::SkippingShutdownDelay));

    let node = Node::new();
    let mut life = node.run(&lasting(&json!({ "shutdownDelay": "20s" })));
    life.running().await;
    life.kill(|_| {});
    life.pass(Duration::from_secs(3)).await;
    life.orders.send_modify(|orders| orders.skip_delay = true);
    assert!(seconds_to_die(&mut life).await < 0.1, "the rest of it is left out");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_by_itself_in_its_shutdown_delay_gets_no_signal() {
    let node = Node::new();
    let mut life = node.run(&lasting(&json!({ "config": { "runFor": "30s" }, "shutdownDelay": "1m" })));
    life.running().await;
    life.kill(|_| {});
    let state = life.dead().await;
    assert!(!node.was_asked_to_stop() && !state.failed);
    assert_eq!(node.n_started(), 1, "what is killed is not started again");
}

#[tokio::test(start_paused = true)]
async fn a_kill_that_fails_the_task_says_so_and_one_that_cleans_up_says_nothing() {
    let node = Node::new();
    let mut life = node.run(&lasting(&json!({})));
    life.running().await;
    life.kill(|order| order.fails = true);
    assert!(life.dead().await.failed);

    let node = Node::new();
    let mut life = node.run(&lasting(&json!({})));
    life.running().await;
    life.kill(|order| order.is_cleanup = true);
    life.dead().await;
    assert!(!life.events().contains(&E::Killed));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_is_killed_without_ever_running() {
    let node = Node::new();
    let mut life = node.run(&lasting(&json!({})));
    life.orders.send_modify(|orders| orders.gates = Gates::default());
    life.pass(Duration::from_secs(1)).await;
    life.kill(|order| order.fails = true);
    let state = life.dead().await;
    assert_eq!((node.n_started(), state.started_at, state.failed), (0, None, true));
    assert!(!node.was_asked_to_stop());

    // In the pause before a restart it is the same.
    let node = Node::new();
    let mut life = node.run(&json!({
        "config": { "runFor": "1s", "exitCode": 1 },
        "restart": { "attempts": 3, "interval": "1h", "delay": "10m", "mode": "fail" }
    }));
    life.until("in its pause", |state| state.restarts == 1).await;
    life.kill(|_| {});
    assert!(seconds_to_die(&mut life).await < 0.1);
    assert_eq!(node.n_started(), 1);
}
