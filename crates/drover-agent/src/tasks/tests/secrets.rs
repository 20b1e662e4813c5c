//! Values of Secrets before a task's run: what is waited for, what is told of it, and what ends the waiting.

use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::TaskEventType as E;
use serde_json::{Value, json};

use super::scripted_values::ScriptedValues;
use super::world::Node;
use crate::values::ValueState;

fn task(names: &[&str]) -> Value {
    let secrets: Vec<Value> = names.iter().map(|name| json!({ "name": name, "path": name })).collect();
    json!({ "secrets": secrets, "config": { "runFor": "1h" },
            "restart": { "attempts": 0, "interval": "10m", "delay": "10s", "mode": "fail" } })
}

fn node() -> (Node, Arc<ScriptedValues>) {
    ScriptedValues::on_a_node()
}

#[tokio::test(start_paused = true)]
async fn b_057_what_is_missing_is_told_after_three_seconds_and_again_when_it_is_something_else() {
    let (node, values) = node();
    let mut life = node.run(&task(&["a", "b", "c", "d", "e"]));
    life.pass(Duration::from_millis(2900)).await;
    assert_eq!(life.events(), [], "nothing is reported yet");
    life.pass(Duration::from_secs(1)).await;
    let why = "(the gateway does not answer)";
    let all = format!("waits for Secret a {why}, Secret b {why}, Secret c {why} and 2 more");
    assert_eq!((life.events().last(), life.last_message()), (Some(&E::Template), all.as_str()));
    // Another reason for the same is not told.
    values.set("a", ValueState::Absent);
    life.pass(Duration::from_secs(5)).await;
    assert_eq!(life.events().len(), 3);
    for name in ["b", "c", "d", "e"] {
        values.there(name, "k", "v");
    }
    life.pass(Duration::from_secs(1)).await;
    assert_eq!(life.last_message(), "waits for Secret a (it does not exist; create it)");
    values.there("a", "k", "v");
    life.running().await;
    assert_eq!(node.n_started(), 1);
}

#[tokio::test(start_paused = true)]
async fn b_057_a_start_gives_up_after_twelve_tries_and_the_policy_follows() {
    let (node, _values) = node();
    let mut life = node.run(&task(&["a"]));
    let state = life.dead().await;
    let failure = state.events.iter().find(|event| event.r#type == E::SetupFailure).expect("a failure");
    assert!(failure.message.starts_with("secrets: gave up after 243 s: waits for Secret a"), "{}", failure.message);
    assert!((243.0..245.0).contains(&life.seconds()), "{}", life.seconds());
    assert_eq!((state.failed, node.n_started()), (true, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_ends_the_start_at_once_with_the_reason() {
    let (node, values) = node();
    values.set("a", ValueState::Refused("name it in gateway.secretNamespaces".to_owned()));
    let mut life = node.run(&task(&["a"]));
    let state = life.dead().await;
    let failure = state.events.iter().find(|event| event.r#type == E::SetupFailure).expect("a failure");
    assert_eq!(failure.message, "secrets: Secret a is refused: name it in gateway.secretNamespaces");
    assert!(life.seconds() < 1.0, "{}", life.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_kill_and_the_end_of_the_agent_end_the_waiting() {
    for is_kill in [true, false] {
        let (node, _values) = node();
        let mut life = node.run(&task(&["a"]));
        life.pass(Duration::from_secs(5)).await;
        life.breaks_off(is_kill).await;
        assert_eq!(node.n_started(), 0);
    }
}
