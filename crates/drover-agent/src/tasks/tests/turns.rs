//! Values that come in turn: what a task tells of those that it uses, and of newer ones that it does not get.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::{TaskEventType as E, TaskRunState, TaskState};
use drover_socket::values::Kept;
use serde_json::{Value, json};

use super::scripted_values::ScriptedValues;
use super::world::{Node, count, read};
use crate::tasks::commands::Force;
use crate::values::{GivenValues, ValueState};

/// Longer than changes are collected, and than the longest random wait.
const LATER: Duration = Duration::from_secs(11);

fn task(template: &Value) -> Value {
    let mut whole =
        json!({ "embeddedTmpl": "{{with secret \"a\"}}{{.Data.k}}{{end}}", "destPath": "local/x", "rolling": true });
    for (name, value) in template.as_object().expect("an object") {
        whole[name] = value.clone();
    }
    json!({
        "secrets": [{ "name": "a", "path": "a" }], "templates": [whole], "config": { "runFor": "100h" },
        "restart": { "attempts": 0, "interval": "10m", "delay": "10s", "mode": "fail" },
    })
}

/// Values of a version, and why there are no newer ones.
fn given(key: &str, value: &str, version: &str, kept: Option<Kept>) -> ValueState {
    let keys = BTreeMap::from([(key.to_owned(), value.as_bytes().to_vec())]);
    ValueState::There(Arc::new(GivenValues { keys, version: version.to_owned(), kept }))
}

fn node() -> (Node, Arc<ScriptedValues>) {
    let (node, values) = ScriptedValues::on_a_node();
    values.set("a", given("k", "one", "v1", None));
    (node, values)
}

fn in_use(state: &TaskState) -> Vec<(&str, &str)> {
    state.values.iter().map(|(key, values)| (key.as_str(), values.version.as_str())).collect()
}

#[tokio::test(start_paused = true)]
async fn b_056_a_version_is_told_with_the_start_and_after_a_change_when_it_has_taken_effect() {
    let (node, values) = node();
    let mut life = node.run(&task(&json!({ "splay": "0s" })));
    let state = life.running().await;
    assert_eq!(in_use(&state), [("Secret/a", "v1")], "with the first report that it runs");
    let since = state.values["Secret/a"].since;
    assert_eq!(Some(since), state.started_at);
    values.set("a", given("k", "two", "v2", None));
    life.pass(Duration::from_secs(4)).await;
    assert_eq!(in_use(&life.state), [("Secret/a", "v1")], "changes are collected");
    life.pass(LATER).await;
    assert_eq!((node.n_started(), in_use(&life.state)), (2, vec![("Secret/a", "v2")]));
    assert_eq!(Some(life.state.values["Secret/a"].since), life.state.started_at);
    // A version of the same values is one too, and nothing follows on it.
    values.set("a", given("k", "two", "v3", None));
    life.pass(LATER).await;
    assert_eq!((node.n_started(), in_use(&life.state)), (2, vec![("Secret/a", "v3")]));
    assert_eq!(node.record().state.values, life.state.values, "the state file has it");
    life.shut_down().await;
    // What cannot be rendered has not taken effect.
    values.set("a", given("other", "x", "v4", None));
    let mut broken = node.run_again(&task(&json!({ "errMissingKey": true })), node.record());
    broken.pass(LATER).await;
    assert_eq!(in_use(&broken.state), [("Secret/a", "v3")]);
    assert!(broken.last_message().starts_with("local/x stays as it was"), "{}", broken.last_message());
    values.set("a", given("k", "two", "v5", None));
    broken.pass(LATER).await;
    assert_eq!(in_use(&broken.state), [("Secret/a", "v5")]);
}

#[tokio::test(start_paused = true)]
async fn b_056_who_does_not_get_newer_values_says_so_once_and_starts_again_with_what_it_has() {
    let (node, values) = node();
    let mut life = node.run(&task(&json!({})));
    life.running().await;
    let kept = |reason: &str, is_stopped| Some(Kept { reason: reason.to_owned(), is_stopped });
    values.set("a", given("k", "one", "v1", kept("waits for its turn", false)));
    life.pass(LATER).await;
    assert_eq!((count(&life, E::Template), life.last_message()), (1, "waits for its turn"));
    values.set("a", given("k", "one", "v1", kept("keeps its values", true)));
    life.pass(LATER).await;
    assert_eq!((count(&life, E::Template), life.last_message()), (2, "keeps its values"));
    life.restart(Force::No).await.expect("restarted");
    life.pass(LATER).await;
    assert_eq!(
        (node.n_started(), read(&node, "local/x").as_str(), in_use(&life.state)),
        (2, "one", vec![("Secret/a", "v1")])
    );
    assert_eq!(count(&life, E::Template), 2, "it is told once");
    assert_eq!(values.held(), [None]);
}

#[tokio::test(start_paused = true)]
async fn b_056_an_agent_that_comes_back_says_what_is_in_use_and_asks_for_values_when_the_task_has_to_start_again() {
    let (node, values) = node();
    let mut life = node.run(&task(&json!({})));
    life.running().await;
    life.shut_down().await;
    assert_eq!(values.held(), [None]);
    values.set("a", ValueState::Waiting("waits for its turn".to_owned()));
    let mut life = node.run_again(&task(&json!({})), node.record());
    life.pass(Duration::from_hours(1)).await;
    assert_eq!(values.held(), [Some("v1".to_owned())]);
    assert_eq!((node.n_started(), life.state.state), (1, TaskRunState::Running));
    assert_eq!(in_use(&life.state), [("Secret/a", "v1")]);
    life.restart(Force::No).await.expect("restarted");
    life.pass(Duration::from_secs(30)).await;
    assert_eq!(values.held(), [None], "it cannot do without values now");
    values.set("a", given("k", "two", "v2", None));
    life.pass(LATER).await;
    assert_eq!(
        (node.n_started(), read(&node, "local/x").as_str(), in_use(&life.state)),
        (2, "two", vec![("Secret/a", "v2")])
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_templates_do_not_roll_tells_of_no_version() {
    let (node, values) = node();
    let mut life = node.run(&task(&json!({ "rolling": false })));
    assert_eq!(in_use(&life.running().await), []);
    values.set("a", given("k", "two", "v2", None));
    life.pass(LATER).await;
    assert_eq!((node.n_started(), in_use(&life.state)), (2, vec![]));
}
