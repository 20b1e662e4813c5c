//! A task across the death of its agent (`spec/agent.md` 5.8).

use std::time::Duration;

use drover_api::allocation::{TaskEventType as E, TaskRunState};
use serde_json::{Value, json};

use super::world::{Node, job, once};
use crate::tasks::plan::TaskEnd;
use crate::tasks::record::TaskRecord;

fn lasting() -> Value {
    once(&json!({ "runFor": "1h" }))
}

/// A task that runs, and whose agent has ended.
async fn orphaned(node: &Node, task: &Value) -> TaskRecord {
    let mut life = node.run(task);
    life.running().await;
    assert_eq!(life.shut_down().await, TaskEnd::Detached);
    assert!(!node.was_asked_to_stop(), "it goes on without its agent");
    node.record()
}

#[tokio::test(start_paused = true)]
async fn a_task_that_runs_is_taken_over_as_it_is() {
    let node = Node::new();
    let record = orphaned(&node, &lasting()).await;
    let mut life = node.run_again(&lasting(), record.clone());
    let state = life.until("told", |_| true).await;
    assert_eq!(state, record.state, "nothing has happened to it");
    assert_eq!(life.located().await.ok(), record.handle.map(|handle| handle.id));
    assert_eq!(node.n_started(), 1);
    life.kill(|_| {});
    life.dead().await;
    assert!(node.was_asked_to_stop(), "it is this agent's now");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_began_while_the_agent_died_is_found_by_its_id() {
    let node = Node::new();
    let record = orphaned(&node, &lasting()).await;
    let id = record.handle.expect("a handle").id;
    // As it was just before the handle was written.
    let before = TaskRecord { starting: Some(id.clone()), ..TaskRecord::default() };
    let mut life = node.run_again(&lasting(), before);
    let state = life.running().await;
    assert_eq!(life.events(), [E::Started]);
    assert_eq!((node.n_started(), life.located().await.ok()), (1, Some(id.clone())));
    assert_eq!((node.record().handle.map(|handle| handle.id), state.restarts), (Some(id), 0));
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_process_is_gone_waits_until_the_controller_still_wants_it() {
    let node = Node::new();
    let record = orphaned(&node, &lasting()).await;
    node.mock.lose_all();
    node.contacted.send_replace(false);
    let mut life = node.run_again(&lasting(), record);
    life.pass(Duration::from_mins(30)).await;
    assert_eq!((life.state.state, node.n_started()), (TaskRunState::Pending, 1));
    assert_eq!(life.last_message(), "lost the running task; waiting for the controller");
    assert_eq!(node.record().handle, None);
    node.contacted.send_replace(true);
    life.running().await;
    assert_eq!((node.n_started(), life.state.failed), (2, false));
}

#[tokio::test(start_paused = true)]
async fn a_lost_task_of_a_system_job_waits_for_no_one() {
    let node = Node::new();
    let record = orphaned(&node, &lasting()).await;
    node.mock.lose_all();
    node.contacted.send_replace(false);
    let mut life = node.start(&job("system", &lasting()), Some(record));
    life.running().await;
    assert_eq!(node.n_started(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_task_that_is_killed_while_it_waits_does_not_start() {
    let node = Node::new();
    let record = orphaned(&node, &lasting()).await;
    node.mock.lose_all();
    node.contacted.send_replace(false);
    let mut life = node.run_again(&lasting(), record);
    life.pass(Duration::from_secs(1)).await;
    life.kill(|_| {});
    let state = life.dead().await;
    assert_eq!((node.n_started(), state.failed), (1, false));
}

#[tokio::test(start_paused = true)]
async fn what_ended_stays_ended() {
    let node = Node::new();
    let mut life = node.start(&job("batch", &once(&json!({ "runFor": "1s", "exitCode": 3 }))), None);
    let dead = life.dead().await;
    assert_eq!(life.shut_down().await, TaskEnd::Detached);
    let record = node.record();
    assert_eq!((record.run_complete, record.state.state), (false, TaskRunState::Dead));

    let mut life = node.start(&job("batch", &lasting()), Some(record));
    let state = life.dead().await;
    assert_eq!((state.failed, state.finished_at), (true, dead.finished_at), "its end is not a new one");
    assert_eq!(life.released().await, TaskEnd::Done);
    assert_eq!(node.n_started(), 1);

    let record = node.record();
    assert!(record.run_complete);
    let mut life = node.start(&job("batch", &lasting()), Some(record));
    assert_eq!(life.ended().await, TaskEnd::Done, "nothing is left to do");
    assert_eq!(node.n_started(), 1);
}

/// A task that is asked to restart, takes its time to end, and loses its agent meanwhile.
async fn left_while_it_restarts(node: &Node) -> Value {
    let task = once(&json!({ "runFor": "1h", "killAfter": "2s" }));
    let mut life = node.run(&task);
    life.running().await;
    life.ask_to_restart().await;
    life.until("told", |state| state.events.iter().any(|event| event.r#type == E::RestartSignaled)).await;
    life.dies();
    task
}

/// The agent ends a run, and dies while the process takes its time: the next one goes on with what was to follow.
#[tokio::test(start_paused = true)]
async fn a_restart_that_was_asked_for_is_one_whatever_becomes_of_the_agent_meanwhile() {
    // It ends within the grace: while no agent is there, or in the next one's time.
    for away in [Duration::from_secs(10), Duration::ZERO] {
        let node = Node::new();
        let task = left_while_it_restarts(&node).await;
        assert!(node.record().ending.is_some());
        tokio::time::sleep(away).await;
        let mut life = node.run_again(&task, node.record());
        let state = life.until("again", |state| state.restarts == 1 && state.state == TaskRunState::Running).await;
        assert_eq!((state.failed, node.n_started(), node.record().ending), (false, 2, None), "{away:?}");
        // Its own end is its own again.
        life.kill(|_| {});
        life.dead().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_no_process_is_left_for_is_forgotten() {
    let node = Node::new();
    left_while_it_restarts(&node).await;
    node.mock.lose_all();
    let mut life = node.run_again(&once(&json!({ "runFor": "1m", "exitCode": 3 })), node.record());
    let state = life.dead().await;
    assert_eq!((state.failed, node.n_started()), (true, 2), "the next run fails by itself, and none follows");
}

/// An agent that dies again and again must not give a task that fails new attempts each time.
#[tokio::test(start_paused = true)]
async fn restarts_count_across_agents() {
    let node = Node::new();
    let task = json!({
        "config": { "runFor": "1s", "exitCode": 1 },
        "restart": { "attempts": 2, "interval": "1h", "delay": "10s", "mode": "fail" }
    });
    let mut record = None;
    for n_restarts in 1..=2 {
        let mut life = node.start(&job("service", &task), record);
        life.until("pending again", |state| state.restarts == n_restarts).await;
        assert_eq!(life.shut_down().await, TaskEnd::Detached);
        record = Some(node.record());
    }
    let mut life = node.start(&job("service", &task), record);
    let state = life.dead().await;
    assert_eq!((state.failed, state.restarts, node.n_started()), (true, 2, 3));
}
