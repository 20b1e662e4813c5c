//! The events of tasks, in the words that people read.

use std::time::Duration;

use drover_api::allocation::{TaskEvent, TaskEventType as Type};
use drover_api::message;
use drover_core::lifecycle::{NotRestarting, RestartReason};
use jiff::Timestamp;

use crate::drivers::ExitResult;

/// The newest events that are kept of a task.
const EVENT_LIMIT: usize = 10;

/// Adds an event by its time; the oldest goes when there are too many.
pub(crate) fn insert(events: &mut Vec<TaskEvent>, event: TaskEvent) {
    let place = events.iter().rposition(|known| known.time <= event.time).map_or(0, |last| last + 1);
    events.insert(place, event);
    let excess = events.len().saturating_sub(EVENT_LIMIT);
    events.drain(..excess);
}

/// What was reported since the task was started last, the newest first.
pub(crate) fn of_this_run(events: &[TaskEvent]) -> impl Iterator<Item = Type> {
    events.iter().rev().map(|event| event.r#type).take_while(|r#type| *r#type != Type::Started)
}

/// Whether the same was reported since the task ended last: a new agent finds out the same of a run that goes on.
pub(crate) fn is_reported(events: &[TaskEvent], said: &TaskEvent) -> bool {
    let mut of_run = events.iter().rev().take_while(|event| event.r#type != Type::Terminated);
    of_run.any(|event| (event.r#type, &event.message) == (said.r#type, &said.message))
}

/// Whether something is reported of the plugin that a task is.
pub(crate) fn is_of_plugin(r#type: Type) -> bool {
    matches!(r#type, Type::PluginHealthy | Type::PluginUnhealthy)
}

/// An event with this message.
pub(crate) fn plain(r#type: Type, time: Timestamp, message: impl Into<String>) -> TaskEvent {
    TaskEvent {
        r#type,
        time,
        message: message::cut(message),
        exit_code: None,
        signal: None,
        oom_killed: false,
        delay: None,
    }
}

/// The agent accepted the task.
pub(crate) fn received(time: Timestamp) -> TaskEvent {
    plain(Type::Received, time, "agent accepted the task")
}

/// Its directory is being prepared.
pub(crate) fn task_setup(time: Timestamp) -> TaskEvent {
    plain(Type::TaskSetup, time, "preparing the task directory")
}

/// It is up.
pub(crate) fn started(time: Timestamp) -> TaskEvent {
    plain(Type::Started, time, "task is up")
}

/// Its process ended.
pub(crate) fn terminated(time: Timestamp, result: &ExitResult) -> TaskEvent {
    let exit = &result.exit;
    let signal = (exit.signal != 0).then_some(i64::from(exit.signal));
    let parts = [
        Some(format!("exit={}", exit.code)),
        signal.map(|signal| format!("signal={signal}")),
        exit.error.as_ref().map(|error| format!("error={error:?}")),
        result.oom_killed.then(|| "oomKilled".to_owned()),
        exit.oom.map(|oom| {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            format!("(memory limit {} MiB, peak {} MiB)", mib(oom.limit_bytes), mib(oom.peak_bytes))
        }),
    ];
    let message = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let event = plain(Type::Terminated, time, message);
    TaskEvent { exit_code: Some(i64::from(exit.code)), signal, oom_killed: result.oom_killed, ..event }
}

/// It will be started again.
pub(crate) fn restarting(time: Timestamp, delay: Duration, reason: &RestartReason) -> TaskEvent {
    let next = format!("next start in {:.1}s", delay.as_secs_f64());
    let message = match reason {
        RestartReason::WithinPolicy => next,
        RestartReason::Requested => format!("restart requested; {next}"),
        RestartReason::IntervalExhausted { attempts, interval } => {
            format!("all {attempts} restarts within {}s are used up; {next}", interval.as_secs())
        }
    };
    TaskEvent { delay: Some(delay.into()), ..plain(Type::Restarting, time, message) }
}

/// It will not be started again.
pub(crate) fn not_restarting(time: Timestamp, reason: &NotRestarting) -> TaskEvent {
    plain(Type::NotRestarting, time, reason.to_string())
}

/// It is being ended.
pub(crate) fn killing(time: Timestamp, kill_timeout: Duration) -> TaskEvent {
    let message = format!("stop signal sent, force kill after {}s", kill_timeout.as_secs_f64());
    TaskEvent { delay: Some(kill_timeout.into()), ..plain(Type::Killing, time, message) }
}

/// It was ended.
pub(crate) fn killed(time: Timestamp) -> TaskEvent {
    plain(Type::Killed, time, "task stopped")
}
