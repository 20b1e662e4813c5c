//! States and events of tasks (`spec/api.md` 2.6).

use std::borrow::Cow;
use std::collections::BTreeMap;

use drover_api::GoDuration;
use drover_api::allocation::{TaskEvent, TaskEventType, TaskRunState, TaskState};
use serde::Serialize;
use serde_json::Value;

use super::field_list::FieldList;
use super::times::{date, nanos};

/// What clients compare the reason of an ordinary restart with.
const WITHIN_POLICY: &str = "Restart within policy";
/// How the message of a restart says when; of an ordinary one it says nothing else.
const NEXT_START: &str = "next start in ";

/// The states of tasks, by name.
pub(super) type States<'a> = BTreeMap<&'a str, WireState<'a>>;

/// Those of an allocation.
pub(super) fn states(states: &BTreeMap<String, TaskState>) -> States<'_> {
    states.iter().map(|(name, of)| (name.as_str(), state(of))).collect()
}

/// The state of a task.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct WireState<'a> {
    state: TaskRunState,
    failed: bool,
    restarts: i64,
    last_restart: Value,
    started_at: Value,
    finished_at: Value,
    events: Vec<WireEvent<'a>>,
}

/// Something that has happened to a task.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct WireEvent<'a> {
    r#type: TaskEventType,
    time: i64,
    display_message: &'a str,
    message: &'a str,
    details: FieldList<Cow<'a, str>>,
}

fn state(state: &TaskState) -> WireState<'_> {
    WireState {
        state: state.state,
        failed: state.failed,
        restarts: state.restarts,
        last_restart: date(state.last_restart),
        started_at: date(state.started_at),
        finished_at: date(state.finished_at),
        events: state.events.iter().map(event).collect(),
    }
}

fn event(event: &TaskEvent) -> WireEvent<'_> {
    WireEvent {
        r#type: event.r#type,
        time: nanos(event.time),
        display_message: display(event),
        message: &event.message,
        details: FieldList(details(event)),
    }
}

/// What people are shown: never nothing.
fn display(event: &TaskEvent) -> &str {
    if event.message.is_empty() { event.r#type.as_str() } else { &event.message }
}

/// What programs read: all values are texts.
fn details(event: &TaskEvent) -> Vec<(&'static str, Cow<'_, str>)> {
    let message = || Cow::Borrowed(event.message.as_str());
    match event.r#type {
        TaskEventType::Terminated => vec![
            ("exit_code", event.exit_code.unwrap_or(0).to_string().into()),
            ("signal", event.signal.unwrap_or(0).to_string().into()),
            ("oom_killed", event.oom_killed.to_string().into()),
        ],
        TaskEventType::Restarting => vec![
            ("restart_reason", restart_reason(&event.message).into()),
            ("start_delay", event.delay.map_or(0, GoDuration::as_nanos).to_string().into()),
        ],
        TaskEventType::RestartSignaled => vec![("restart_reason", message())],
        TaskEventType::NotRestarting => vec![("restart_reason", message()), ("fails_task", "true".into())],
        TaskEventType::Killing => {
            event.delay.map(|delay| ("kill_timeout", delay.to_string().into())).into_iter().collect()
        }
        TaskEventType::DriverFailure => vec![("driver_error", message())],
        TaskEventType::FailedArtifactDownload => vec![("download_error", message())],
        TaskEventType::FailedValidation => vec![("validation_error", message())],
        TaskEventType::SiblingTaskFailed => vec![("failed_sibling", sibling(&event.message).into())],
        TaskEventType::TaskSetup
        | TaskEventType::TaskHookFailed
        | TaskEventType::AllocUnhealthy
        | TaskEventType::Template => vec![("message", message())],
        TaskEventType::Received
        | TaskEventType::SetupFailure
        | TaskEventType::DownloadingArtifacts
        | TaskEventType::Driver
        | TaskEventType::Started
        | TaskEventType::Signaling
        | TaskEventType::Killed
        | TaskEventType::LeaderTaskDead
        | TaskEventType::MainTasksDead
        | TaskEventType::TaskHookMessage
        | TaskEventType::FailedRestoringTask
        | TaskEventType::PluginHealthy
        | TaskEventType::PluginUnhealthy
        | TaskEventType::Reconnected
        | TaskEventType::WaitingForShutdownDelay
        | TaskEventType::SkippingShutdownDelay => Vec::new(),
    }
}

fn restart_reason(message: &str) -> &str {
    match message.split_once(NEXT_START) {
        Some(("", _)) => WITHIN_POLICY,
        Some((reason, _)) => reason.trim_end_matches([' ', ';']),
        None => message,
    }
}

/// The task that an agent's sentence names.
fn sibling(message: &str) -> &str {
    let named = message.strip_prefix("task ").and_then(|rest| rest.split_once(" of the group failed"));
    named.map_or(message, |(task, _)| task)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(r#type: TaskEventType, message: &str) -> Value {
        let time = "2026-01-01T00:00:00.000000007Z".parse().expect("a time");
        let delay = Some(GoDuration::from_secs(5));
        let message = message.to_owned();
        json!(event(&TaskEvent { r#type, time, message, exit_code: Some(7), signal: None, oom_killed: false, delay }))
    }

    #[test]
    fn details_have_the_keys_that_clients_read_and_are_texts() {
        for (r#type, message, wanted) in [
            (TaskEventType::Terminated, "exit=7", json!({ "exit_code": "7", "signal": "0", "oom_killed": "false" })),
            (
                TaskEventType::Restarting,
                "next start in 5.0s",
                json!({ "restart_reason": "Restart within policy", "start_delay": "5000000000" }),
            ),
            (
                TaskEventType::Restarting,
                "restart requested; next start in 5.0s",
                json!({ "restart_reason": "restart requested", "start_delay": "5000000000" }),
            ),
            (TaskEventType::NotRestarting, "none", json!({ "restart_reason": "none", "fails_task": "true" })),
            (TaskEventType::RestartSignaled, "by hand", json!({ "restart_reason": "by hand" })),
            (TaskEventType::Killing, "stop", json!({ "kill_timeout": "5s" })),
            (TaskEventType::DriverFailure, "no", json!({ "driver_error": "no" })),
            (TaskEventType::SiblingTaskFailed, "task db of the group failed", json!({ "failed_sibling": "db" })),
            (TaskEventType::TaskSetup, "made", json!({ "message": "made" })),
            (TaskEventType::Started, "runs", json!({})),
        ] {
            let event = of(r#type, message);
            assert_eq!(event["Details"], wanted, "{type}");
            assert_eq!(event["Time"], 1_767_225_600_000_000_007_i64);
        }
    }

    #[test]
    fn every_event_has_something_to_show() {
        for r#type in TaskEventType::ALL {
            assert_ne!(of(*r#type, "")["DisplayMessage"], "");
            let texts = of(*r#type, "x")["Details"].as_object().expect("an object").values().all(Value::is_string);
            assert!(texts, "{type}");
        }
    }
}
