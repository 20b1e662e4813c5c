//! Identities of a task: where its tokens are, and what follows when they are renewed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use drover_api::allocation::{TaskEventType as E, TaskRunState};
use serde_json::{Value, json};

use super::scripted_values::ScriptedValues;
use super::world::{Node, count, read};
use crate::task_api::{ApiPlace, ServedApi, TaskApis};
use crate::tasks::commands::Force;
use crate::tasks::plan::TaskEnd;

/// When the tests' clock begins.
const BEGIN: u64 = 1_800_000_000;
/// How long the tokens of `web` count.
const TTL: u64 = 3600;

/// A token of this number that was made so long after the clock's begin.
fn made(number: u64, after: u64, ttl: Option<u64>) -> String {
    let made = BEGIN + after;
    let claims = json!({ "iat": made, "exp": ttl.map(|ttl| made + ttl), "jti": number.to_string() });
    format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

fn give(values: &ScriptedValues, name: &str, token: &str) {
    values.there(&format!("t/{name}"), "token", token);
}

/// A task with an identity without a limit and one that lasts an hour, of which this follows.
fn task(change: &Value) -> Value {
    let mut web = json!({ "name": "web", "aud": ["web"], "ttl": "1h", "file": true, "env": true });
    for (name, value) in change.as_object().expect("an object") {
        web[name] = value.clone();
    }
    json!({
        "identities": [{ "name": "default", "file": true, "env": true }, web],
        "config": { "runFor": "100h" },
        "restart": { "attempts": 0, "interval": "10m", "delay": "10s", "mode": "fail" },
    })
}

fn node() -> (Node, Arc<ScriptedValues>) {
    let (node, values) = ScriptedValues::on_a_node();
    give(&values, "default", &made(0, 0, None));
    give(&values, "web", &made(1, 0, Some(TTL)));
    (node, values)
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_for_its_tokens_which_only_the_tasks_user_reads() {
    let (node, values) = ScriptedValues::on_a_node();
    give(&values, "default", &made(0, 0, None));
    let mut life = node.run(&task(&json!({ "filepath": "local/tokens/web" })));
    life.pass(Duration::from_secs(4)).await;
    assert_eq!(life.last_message(), "waits for identity t/web (the gateway does not answer)");
    assert_eq!(node.n_started(), 0);
    give(&values, "web", &made(1, 0, Some(TTL)));
    life.running().await;
    let files = ["secrets/nomad_token", "local/tokens/web"];
    assert_eq!(files.map(|file| read(&node, file)), [made(0, 0, None), made(1, 0, Some(TTL))]);
    for file in files {
        let found = fs::metadata(node.dir().task("t").join(file)).expect("a file");
        assert_eq!(found.mode() & 0o7777, 0o600, "{file}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_at_half_of_its_life_and_the_file_is_there_before_anything_follows() {
    for (change, n_started, n_signals) in [
        (json!({ "changeMode": "restart" }), 2, 0),
        (json!({ "changeMode": "signal", "changeSignal": "SIGHUP" }), 1, 1),
        (json!({}), 1, 0),
    ] {
        let (node, values) = node();
        let mut life = node.run(&task(&change));
        life.running().await;
        // A gateway that began again signs another one at once: what the task has is as good.
        life.pass(Duration::from_mins(1)).await;
        give(&values, "web", &made(2, 60, Some(TTL)));
        life.pass(Duration::from_secs(TTL / 2 - 120)).await;
        assert_eq!((read(&node, "secrets/nomad_web.jwt"), node.n_started()), (made(1, 0, Some(TTL)), 1));
        life.pass(Duration::from_mins(2)).await;
        assert_eq!(read(&node, "secrets/nomad_web.jwt"), made(2, 60, Some(TTL)), "{change}");
        life.pass(Duration::from_mins(1)).await;
        assert_eq!((node.n_started(), count(&life, E::Signaling)), (n_started, n_signals), "{change}");
        let said = life.state.events.iter().find(|event| event.message.contains("identity web renewed"));
        assert_eq!(said.is_some(), n_started + n_signals > 1, "{change}: {:#?}", life.state.events);
        // And at half of the life of that one.
        give(&values, "web", &made(3, TTL / 2 + 60, Some(TTL)));
        life.pass(Duration::from_secs(TTL)).await;
        assert_eq!(read(&node, "secrets/nomad_web.jwt"), made(3, TTL / 2 + 60, Some(TTL)), "{change}");
        assert_eq!(read(&node, "secrets/nomad_token"), made(0, 0, None));
        assert_eq!(life.state.state, TaskRunState::Running);
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_cannot_be_sent_fails_the_task() {
    let (node, values) = node();
    let mut deaf = task(&json!({ "changeMode": "signal", "changeSignal": "SIGHUP" }));
    deaf["config"]["signalError"] = json!("it is deaf");
    let mut life = node.run(&deaf);
    life.running().await;
    give(&values, "web", &made(2, TTL / 2, Some(TTL)));
    let state = life.dead().await;
    let failure = state.events.iter().find(|event| event.r#type == E::TaskHookFailed).expect("told");
    assert!(state.failed && failure.message.contains("identity web renewed: SIGHUP cannot be sent: it is deaf"));
}

#[tokio::test(start_paused = true)]
async fn a_task_goes_on_with_its_tokens_while_no_gateway_is_there_and_an_agent_finds_them_again() {
    let (node, values) = node();
    let restarts = task(&json!({ "changeMode": "restart" }));
    let mut life = node.run(&restarts);
    life.running().await;
    values.set("t/web", crate::values::ValueState::Waiting("the gateway does not answer".to_owned()));
    life.pass(Duration::from_secs(TTL * 2)).await;
    assert_eq!((node.n_started(), life.state.state), (1, TaskRunState::Running));
    life.restart(Force::No).await.expect("restarted");
    life.pass(Duration::from_secs(1)).await;
    assert_eq!((node.n_started(), life.state.state), (2, TaskRunState::Running), "with what it had");
    assert_eq!(life.shut_down().await, TaskEnd::Detached);

    // Its time came while the agent was away; the next one begins with a token that is not older.
    let mut life = node.run_again(&restarts, node.record());
    life.pass(Duration::from_mins(1)).await;
    assert_eq!((node.n_started(), life.state.state), (2, TaskRunState::Running));
    give(&values, "web", &made(2, TTL * 2, Some(TTL)));
    life.until("renewed", |state| state.restarts == 2 && state.state == TaskRunState::Running).await;
    assert_eq!((read(&node, "secrets/nomad_web.jwt"), node.n_started()), (made(2, TTL * 2, Some(TTL)), 3));
    assert_eq!(life.shut_down().await, TaskEnd::Detached);

    // A token that another gateway signs again meanwhile is no renewal.
    give(&values, "web", &made(3, TTL * 2 + 60, Some(TTL)));
    let mut life = node.run_again(&restarts, node.record());
    life.pass(Duration::from_mins(1)).await;
    assert_eq!((read(&node, "secrets/nomad_web.jwt"), node.n_started()), (made(2, TTL * 2, Some(TTL)), 3));
}

#[tokio::test(start_paused = true)]
async fn a_file_stays_in_the_tasks_directory() {
    for path in ["../escapes", "private/x", "/"] {
        let (node, _values) = node();
        let state = node.run(&task(&json!({ "filepath": path }))).dead().await;
        let failure = state.events.iter().find(|event| event.r#type == E::SetupFailure).expect("a failure");
        let expected = format!("identity web: filepath {path:?} leads out of the task's directory");
        assert!(failure.message.contains(&expected), "{}", failure.message);
    }
}

/// Gives no task the API, for this reason.
#[derive(Debug)]
struct NoPlace(&'static str);

impl TaskApis for NoPlace {
    fn serve(&self, _: ApiPlace<'_>) -> Result<Option<ServedApi>, String> {
        Err(self.0.to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn a_149_a_task_whose_api_cannot_be_served_is_told_and_runs() {
    let mut node = Node::new();
    node.api = Arc::new(NoPlace("the path of its socket is too long for one"));
    let plain = json!({ "config": { "runFor": "1h" } });
    let mut life = node.run(&plain);
    life.running().await;
    let said = life.state.events.iter().find(|event| event.r#type == E::TaskHookMessage).expect("told");
    assert_eq!(said.message, "api: the path of its socket is too long for one");
    assert_eq!((node.n_started(), count(&life, E::TaskHookMessage)), (1, 1));
    // The next agent finds out the same of the same run, and has nothing new to say.
    assert_eq!(life.shut_down().await, TaskEnd::Detached);
    let mut next = node.run_again(&plain, node.record());
    next.pass(Duration::from_secs(1)).await;
    assert_eq!((node.n_started(), count(&next, E::TaskHookMessage)), (1, 1));
}
