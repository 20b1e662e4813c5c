//! The words of a task's events, and the blocks of its manifest in the lifecycle's terms.

use std::time::Duration;

use drover_api::allocation::{TaskEventType as E, TaskRunState, TaskState};
use drover_api::task::Task;
use drover_core::lifecycle::{NotRestarting, Progress, RestartReason, RunState, Stage, TaskPlace};
use jiff::Timestamp;
use serde_json::json;

use crate::tasks::task_event;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

#[test]
fn the_events_of_a_task_say_what_people_need() {
    let interval = Duration::from_mins(10);
    let exhausted = RestartReason::IntervalExhausted { attempts: 3, interval };
    let delay = Duration::from_millis(12_340);
    for (event, kind, message, has_delay) in [
        (task_event::received(at(0)), E::Received, "agent accepted the task", false),
        (task_event::task_setup(at(0)), E::TaskSetup, "preparing the task directory", false),
        (task_event::started(at(0)), E::Started, "task is up", false),
        (task_event::killed(at(0)), E::Killed, "task stopped", false),
        (task_event::killing(at(0), delay), E::Killing, "stop signal sent, force kill after 12.34s", true),
        (
            task_event::restarting(at(0), delay, &RestartReason::WithinPolicy),
            E::Restarting,
            "next start in 12.3s",
            true,
        ),
        (
            task_event::restarting(at(0), Duration::ZERO, &RestartReason::Requested),
            E::Restarting,
            "restart requested; next start in 0.0s",
            true,
        ),
        (
            task_event::restarting(at(0), delay, &exhausted),
            E::Restarting,
            "all 3 restarts within 600s are used up; next start in 12.3s",
            true,
        ),
    ] {
        assert_eq!((event.r#type, &*event.message), (kind, message));
        assert_eq!(event.delay.is_some(), has_delay, "{message}");
    }
}

#[test]
fn events_stand_in_the_order_of_their_times() {
    let mut events = Vec::new();
    for second in [5, 1, 3, 3, 9] {
        task_event::insert(&mut events, task_event::plain(E::Signaling, at(second), second.to_string()));
    }
    let messages: Vec<&str> = events.iter().map(|event| &*event.message).collect();
    assert_eq!(messages, ["1", "3", "3", "5", "9"]);
    for second in 10..30 {
        task_event::insert(&mut events, task_event::plain(E::Signaling, at(second), second.to_string()));
    }
    assert_eq!((events.len(), &*events[0].message), (10, "20"));
}

#[test]
fn what_belongs_to_this_run_is_what_came_after_its_start() {
    let kinds = [E::PluginHealthy, E::Terminated, E::Started, E::PluginUnhealthy, E::Signaling];
    let events: Vec<_> = (0..).zip(kinds).map(|(second, kind)| task_event::plain(kind, at(second), "")).collect();
    let run: Vec<E> = task_event::of_this_run(&events).collect();
    assert_eq!(run, [E::Signaling, E::PluginUnhealthy]);
    let of_plugin: Vec<E> = kinds.into_iter().filter(|kind| task_event::is_of_plugin(*kind)).collect();
    assert_eq!(of_plugin, [E::PluginHealthy, E::PluginUnhealthy]);
}

#[test]
fn a_reason_not_to_restart_names_the_limit() {
    let said = |reason: NotRestarting| task_event::not_restarting(at(0), &reason).message;
    for (reason, message) in [
        (NotRestarting::NoneAllowed, "the restart policy allows no restart"),
        (NotRestarting::Unrecoverable, "the start error cannot be mended by another try"),
        (
            NotRestarting::Exhausted { attempts: 2, interval: Duration::from_mins(30) },
            "all 2 restarts within 1800s are used up",
        ),
    ] {
        assert_eq!(said(reason), message);
    }
}

fn task(lifecycle: serde_json::Value) -> Task {
    let mut task = json!({ "name": "t", "driver": "mock" });
    if !lifecycle.is_null() {
        task["lifecycle"] = lifecycle;
    }
    serde_json::from_value(task).expect("a task")
}

#[test]
fn the_lifecycle_block_is_the_tasks_stage() {
    for (lifecycle, stage) in [
        (json!(null), Stage::Main),
        (json!({ "hook": "prestart" }), Stage::PrestartEphemeral),
        (json!({ "hook": "prestart", "sidecar": true }), Stage::PrestartSidecar),
        (json!({ "hook": "poststart" }), Stage::PoststartEphemeral),
        (json!({ "hook": "poststop" }), Stage::Poststop),
    ] {
        assert_eq!(Stage::of_task(&task(lifecycle.clone())), stage, "{lifecycle}");
    }
    let leader = Task { leader: true, ..task(json!(null)) };
    assert!(TaskPlace::of(&leader).leader && !TaskPlace::of(&task(json!(null))).leader);
}

#[test]
fn progress_is_what_the_state_says() {
    for (state, run_state) in [
        (TaskRunState::Pending, RunState::Pending),
        (TaskRunState::Running, RunState::Running),
        (TaskRunState::Dead, RunState::Dead),
    ] {
        for failed in [false, true] {
            let reported = TaskState { state, failed, ..TaskState::default() };
            assert_eq!(Progress::of(&reported), Progress { state: run_state, failed });
        }
    }
}
