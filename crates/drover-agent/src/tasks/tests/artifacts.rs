//! Artifacts before a task's first run: what is told, what is fetched again, and what ends a download.

use std::time::Duration;

use drover_api::allocation::TaskEventType as E;
use serde_json::{Value, json};

use super::world::Node;
use crate::tasks::plan::TaskEnd;

fn task(n_artifacts: usize, attempts: u32) -> Value {
    let artifacts: Vec<Value> = (0..n_artifacts).map(|n| json!({ "getterSource": format!("https://a/{n}") })).collect();
    let restart = json!({ "attempts": attempts, "interval": "10m", "delay": "10s", "mode": "fail" });
    json!({ "artifacts": artifacts, "restart": restart, "config": { "runFor": "1h" } })
}

#[tokio::test(start_paused = true)]
async fn a_091_a_download_that_fails_is_tried_as_often_as_the_policy_says() {
    let node = Node::new();
    let fails = vec!["https://a/0: answered 404 Not Found".to_owned(); 2];
    node.fetcher.wrong.lock().expect("no panic").insert(0, fails);
    let mut life = node.run(&task(1, 1));
    let state = life.dead().await;
    let told: Vec<E> = state.events.iter().map(|event| event.r#type).collect();
    let (asks, fails) = (E::DownloadingArtifacts, E::FailedArtifactDownload);
    assert_eq!(told, [E::Received, E::TaskSetup, asks, fails, E::Restarting, asks, fails, E::NotRestarting]);
    assert_eq!((state.failed, node.n_started()), (true, 0));
    let said = &state.events[3].message;
    assert_eq!(said, "artifacts[0]: https://a/0: answered 404 Not Found");
}

#[tokio::test(start_paused = true)]
async fn a_156_b_049_what_was_fetched_is_not_fetched_again() {
    let node = Node::new();
    node.fetcher.wrong.lock().expect("no panic").insert(1, vec!["broken".to_owned()]);
    let mut life = node.run(&task(3, 2));
    let state = life.running().await;
    assert_eq!((node.fetcher.asked(), state.restarts), (vec![0, 1, 2, 1], 1));
    assert_eq!(node.record().artifacts.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn b_050_another_life_of_the_agent_fetches_what_is_not_done_and_nothing_else() {
    let node = Node::new();
    let broken = vec!["broken".to_owned()];
    node.fetcher.wrong.lock().expect("no panic").insert(1, broken);
    let mut life = node.run(&task(2, 2));
    life.until("waiting", |state| state.restarts == 1).await;
    assert_eq!(life.shut_down().await, TaskEnd::Detached);
    let mut again = node.run_again(&task(2, 2), node.record());
    again.running().await;
    assert_eq!(node.fetcher.asked(), [0, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn three_are_fetched_at_a_time() {
    let node = Node::new();
    *node.fetcher.takes.lock().expect("no panic") = Duration::from_secs(10);
    let mut life = node.run(&task(7, 0));
    life.pass(Duration::from_secs(5)).await;
    assert_eq!(node.fetcher.asked().len(), 3);
    life.running().await;
    assert_eq!(node.fetcher.asked().len(), 7);
    assert!((30.0..31.0).contains(&life.seconds()), "{}", life.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_kill_and_the_end_of_the_agent_end_a_download() {
    for is_kill in [true, false] {
        let node = Node::new();
        *node.fetcher.takes.lock().expect("no panic") = Duration::from_mins(50);
        let mut life = node.run(&task(1, 3));
        life.pass(Duration::from_secs(5)).await;
        life.breaks_off(is_kill).await;
        assert_eq!((node.n_started(), node.record().artifacts.len()), (0, 0));
    }
}
