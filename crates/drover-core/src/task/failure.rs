//! Why a task failed last, and what would help, from the events of its state.
//!
//! Input is a task's reported state; output one sentence. Must never know who shows it.

use drover_api::allocation::{TaskEvent, TaskEventType as Type, TaskState};
use jiff::Timestamp;

/// The last failure of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFailure {
    /// The task.
    pub task: String,
    /// When, by the node's clock.
    pub at: Timestamp,
    /// What happened, without anything that differs between allocations of the group.
    pub cause: String,
    /// What would help.
    pub remedy: String,
}

impl TaskFailure {
    /// The failure as one sentence.
    pub fn sentence(&self) -> String {
        let Self { task, cause, remedy, .. } = self;
        format!("task {task} {cause}{}{remedy}", if remedy.is_empty() { "" } else { "; " })
    }
}

/// The last failure among the tasks of an allocation; none where no task failed. O(tasks x events).
pub fn last<'a>(alloc: &str, states: impl IntoIterator<Item = (&'a String, &'a TaskState)>) -> Option<TaskFailure> {
    states.into_iter().filter_map(|(task, state)| of_task(alloc, task, state)).max_by_key(|failure| failure.at)
}

fn of_task(alloc: &str, task: &str, state: &TaskState) -> Option<TaskFailure> {
    let event = last_failure(&state.events)?;
    let (cause, remedy) = words(alloc, task, event);
    Some(TaskFailure { task: task.to_owned(), at: event.time, cause, remedy })
}

/// The newest event that is a failure. The end of a process that was asked for is none; one with exit code 0 is where
/// the restart policy reacts to it.
fn last_failure(events: &[TaskEvent]) -> Option<&TaskEvent> {
    let (mut found, mut ended_well, mut is_asked) = (None, None, false);
    for event in events {
        match event.r#type {
            Type::Started => is_asked = false,
            Type::RestartSignaled | Type::Killing | Type::LeaderTaskDead | Type::MainTasksDead => is_asked = true,
            Type::Terminated if is_asked => {}
            Type::Terminated if has_ended_well(event) => ended_well = Some(event),
            Type::Restarting | Type::NotRestarting => found = ended_well.take().or(found),
            Type::Terminated
            | Type::FailedValidation
            | Type::SetupFailure
            | Type::FailedArtifactDownload
            | Type::DriverFailure
            | Type::TaskHookFailed
            | Type::FailedRestoringTask
            | Type::PluginUnhealthy => (found, ended_well) = (Some(event), None),
            Type::Received
            | Type::TaskSetup
            | Type::DownloadingArtifacts
            | Type::Driver
            | Type::Signaling
            | Type::Killed
            | Type::SiblingTaskFailed
            | Type::TaskHookMessage
            | Type::PluginHealthy
            | Type::Reconnected
            | Type::WaitingForShutdownDelay
            | Type::SkippingShutdownDelay
            | Type::Template
            | Type::AllocUnhealthy => {}
        }
    }
    found
}

fn has_ended_well(event: &TaskEvent) -> bool {
    event.exit_code == Some(0) && event.signal.is_none() && !event.oom_killed
}

/// Cause and remedy.
fn words(alloc: &str, task: &str, event: &TaskEvent) -> (String, String) {
    if event.r#type != Type::Terminated {
        let message = &event.message;
        return (format!("could not start: {message}"), remedy_of_start(message).to_owned());
    }
    let logs = || format!("`drover alloc logs {alloc} {task} --stderr` shows what it wrote");
    match (event.oom_killed, event.signal, event.exit_code) {
        (true, ..) => {
            // The amounts stand in the event's own words.
            let amounts = event.message.find('(').map_or("", |at| &event.message[at..]);
            let cause = format!("used more memory than it may {amounts}");
            (cause.trim_end().to_owned(), "raise its resources.memoryMB, or let it use less".to_owned())
        }
        (false, Some(signal), _) => (format!("was ended by signal {signal}"), logs()),
        (false, None, Some(0)) => (
            "ended with exit code 0, but a service keeps running".to_owned(),
            "let its program stay in the foreground, or make the job a batch job".to_owned(),
        ),
        (false, None, code) => {
            let code = code.map_or_else(|| "no exit code".to_owned(), |code| format!("exit code {code}"));
            (format!("ended with {code}"), logs())
        }
    }
}

/// What helps a task that could not be started, by the words of the agent and of the operating system.
fn remedy_of_start(message: &str) -> &'static str {
    let says = |text: &str| message.contains(text);
    if says("was not found in the task's directory") || says("cannot be started") && says("No such file") {
        "correct config.command, or bring the program there, as by an artifact"
    } else if says("cannot be started") && says("Permission denied") {
        "make the file executable, for the task's user too"
    } else if says("there is no such user") {
        "make the user on the node, or set user to one that it has"
    } else if says("is not known on this node") {
        "enable the driver on the node, or keep the job away from it by a constraint"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    mod histories;

    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    use super::*;

    fn state(events: &[(&str, Value)]) -> TaskState {
        let events = (0..).zip(events).map(|(second, (kind, more))| {
            let mut event = json!({ "type": kind, "time": Timestamp::from_second(second).unwrap(), "message": "" });
            for (field, value) in more.as_object().unwrap() {
                event[field] = value.clone();
            }
            serde_json::from_value(event).unwrap()
        });
        TaskState { events: events.collect(), ..TaskState::default() }
    }

    fn check(events: &[(&str, Value)], wanted: &Expect) {
        let failure = last("web-g-0-1f", [(&"t".to_owned(), &state(events))]);
        wanted.assert_eq(&failure.map_or_else(|| "none".to_owned(), |failure| failure.sentence()));
    }

    fn start(message: &str, wanted: &Expect) {
        check(
            &[
                ("Received", json!({})),
                ("Driver Failure", json!({ "message": message })),
                ("Not Restarting", json!({})),
            ],
            wanted,
        );
    }

    #[test]
    fn a_start_that_failed_says_why_and_what_helps() {
        start(
            "command /bin/nope cannot be started: No such file or directory (os error 2)",
            &expect![
                "task t could not start: command /bin/nope cannot be started: No such file or directory (os error 2); correct config.command, or bring the program there, as by an artifact"
            ],
        );
        start(
            "command \"nope\" was not found in the task's directory, nor on this node",
            &expect![[
                r#"task t could not start: command "nope" was not found in the task's directory, nor on this node; correct config.command, or bring the program there, as by an artifact"#
            ]],
        );
        start(
            "command /etc/hosts cannot be started: Permission denied (os error 13)",
            &expect![
                "task t could not start: command /etc/hosts cannot be started: Permission denied (os error 13); make the file executable, for the task's user too"
            ],
        );
        start(
            "user \"nope\": there is no such user on this node",
            &expect![[
                r#"task t could not start: user "nope": there is no such user on this node; make the user on the node, or set user to one that it has"#
            ]],
        );
        start("the disk is full", &expect!["task t could not start: the disk is full"]);
        check(
            &[("Failed Validation", json!({ "message": "config.args: ${nope} is not known: check its spelling" }))],
            &expect!["task t could not start: config.args: ${nope} is not known: check its spelling"],
        );
    }

    #[test]
    fn an_end_that_nobody_asked_for_says_how_and_where_to_look() {
        let started = ("Started", json!({}));
        let again = ("Restarting", json!({ "message": "next start in 15.0s" }));
        let ended = |more: Value| ("Terminated", more);
        check(
            &[started.clone(), ended(json!({ "exitCode": 3 })), again.clone(), started.clone()],
            &expect!["task t ended with exit code 3; `drover alloc logs web-g-0-1f t --stderr` shows what it wrote"],
        );
        check(
            &[
                started.clone(),
                ended(
                    json!({ "exitCode": 137, "signal": 9, "oomKilled": true, "message": "exit=137 signal=9 oomKilled (memory limit 64 MiB, peak 63 MiB)" }),
                ),
            ],
            &expect![
                "task t used more memory than it may (memory limit 64 MiB, peak 63 MiB); raise its resources.memoryMB, or let it use less"
            ],
        );
        check(
            &[started.clone(), ended(json!({ "exitCode": 139, "signal": 11 }))],
            &expect!["task t was ended by signal 11; `drover alloc logs web-g-0-1f t --stderr` shows what it wrote"],
        );
        check(
            &[started.clone(), ended(json!({ "exitCode": 0 })), again],
            &expect![
                "task t ended with exit code 0, but a service keeps running; let its program stay in the foreground, or make the job a batch job"
            ],
        );
        check(&[started.clone(), ended(json!({ "exitCode": 0 }))], &expect!["none"]);
        check(
            &[started, ("Killing", json!({})), ended(json!({ "exitCode": 143, "signal": 15 })), ("Killed", json!({}))],
            &expect!["none"],
        );
    }

    #[test]
    fn of_several_tasks_the_last_failure_counts() {
        let failed = |second: i64| {
            let mut state = state(&[("Driver Failure", json!({ "message": second.to_string() }))]);
            state.events[0].time = Timestamp::from_second(second).unwrap();
            state
        };
        let states = [("a".to_owned(), failed(5)), ("b".to_owned(), failed(9)), ("c".to_owned(), failed(7))];
        let failure = last("x", states.iter().map(|(name, state)| (name, state))).unwrap();
        assert_eq!((failure.task.as_str(), failure.cause.as_str()), ("b", "could not start: 9"));
    }
}
