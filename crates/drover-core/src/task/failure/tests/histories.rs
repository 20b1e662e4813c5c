//! Which event of a task's history is its last failure.

use drover_api::allocation::TaskEventType;
use fastrand::Rng;

use super::*;

/// A history as letters, and what is told of it.
///
/// `S` started, `T` ended with code 3, `Z` ended with code 0, `K` is being killed, `L` the leader died, `M` the main
/// tasks died, `A` a restart was asked for, `R` restarts, `N` does not restart, `D` the driver failed, `m` a message.
fn state_of(history: &str) -> TaskState {
    let events = history.chars().map(|letter| match letter {
        'S' => ("Started", json!({})),
        'T' => ("Terminated", json!({ "exitCode": 3 })),
        'Z' => ("Terminated", json!({ "exitCode": 0 })),
        'K' => ("Killing", json!({})),
        'L' => ("Leader Task Dead", json!({})),
        'M' => ("Main Tasks Dead", json!({})),
        'A' => ("Restart Signaled", json!({})),
        'R' => ("Restarting", json!({})),
        'N' => ("Not Restarting", json!({})),
        'D' => ("Driver Failure", json!({ "message": "no" })),
        _ => ("Task hook message", json!({ "message": "hello" })),
    });
    state(&events.collect::<Vec<_>>())
}

/// The second at which the last failure happened.
fn second(history: &str) -> Option<i64> {
    last("a", [(&"t".to_owned(), &state_of(history))]).map(|failure| failure.at.as_second())
}

#[test]
fn an_end_that_was_asked_for_is_no_failure_until_the_next_start() {
    for (history, at) in [
        ("", None),
        ("S", None),
        ("ST", Some(1)),
        ("SKT", None),
        ("SLT", None),
        ("SMT", None),
        ("SAT", None),
        ("SATRST", Some(5)),
        ("STRSKT", Some(1)),
        ("SmT", Some(2)),
        ("STmmm", Some(1)),
        ("SKTKT", None),
        ("SKD", Some(2)),
        ("DD", Some(1)),
        ("DST", Some(2)),
        ("STD", Some(2)),
    ] {
        assert_eq!(second(history), at, "{history}");
    }
}

#[test]
fn an_end_with_code_zero_is_a_failure_where_the_policy_reacts_to_it() {
    for (history, at) in [
        ("SZ", None),
        ("SZR", Some(1)),
        ("SZN", Some(1)),
        ("SZRS", Some(1)),
        ("SZRSZ", Some(1)),
        ("SZRSZR", Some(4)),
        ("SZTR", Some(2)),
        ("STRSZ", Some(1)),
        ("STRSZR", Some(4)),
        ("SKZR", None),
        ("R", None),
        ("DRSZ", Some(0)),
    ] {
        assert_eq!(second(history), at, "{history}");
    }
}

/// The last failure, found from the end: the newest event that is one by what stands before and behind it.
fn slow_second(history: &str) -> Option<i64> {
    let letters: Vec<char> = history.chars().collect();
    let is_failure = |at: &usize| {
        let asked = letters[..*at].iter().rposition(|letter| "KLMA".contains(*letter));
        let started = letters[..*at].iter().rposition(|letter| *letter == 'S');
        let is_asked = asked.is_some() && asked > started;
        match letters[*at] {
            'D' => true,
            'T' => !is_asked,
            // The policy reacts to the newest end before it, where nothing else failed since.
            'Z' => {
                let behind = &letters[*at + 1..];
                let reacts = behind.iter().position(|letter| "RN".contains(*letter));
                let since = |end: usize| {
                    (at + 1..at + 1 + end).any(|n| match letters[n] {
                        'D' => true,
                        'T' | 'Z' => {
                            let asked = letters[..n].iter().rposition(|letter| "KLMA".contains(*letter));
                            let started = letters[..n].iter().rposition(|letter| *letter == 'S');
                            !(asked.is_some() && asked > started)
                        }
                        _ => false,
                    })
                };
                !is_asked && reacts.is_some_and(|end| !since(end))
            }
            _ => false,
        }
    };
    (0..letters.len()).rev().find(is_failure).and_then(|at| i64::try_from(at).ok())
}

#[test]
fn each_history_has_the_last_failure_that_a_person_would_find() {
    let mut rng = Rng::with_seed(58);
    let letters: Vec<char> = "SSTZKLMARND".chars().chain(['m']).collect();
    for _ in 0..20_000 {
        let history: String = (0..rng.usize(..11)).map(|_| letters[rng.usize(..letters.len())]).collect();
        assert_eq!(second(&history), slow_second(&history), "{history}");
    }
}

#[test]
fn each_type_of_event_that_fails_a_task_is_told_and_no_other() {
    let fails = |kind: TaskEventType| {
        let event = json!({ "type": kind, "time": "2026-01-01T00:00:00Z", "message": "why", "exitCode": 1 });
        let state = TaskState { events: vec![serde_json::from_value(event).unwrap()], ..TaskState::default() };
        last("a", [(&"t".to_owned(), &state)]).is_some()
    };
    let failing: Vec<&str> =
        TaskEventType::ALL.iter().copied().filter(|kind| fails(*kind)).map(TaskEventType::as_str).collect();
    let expected = [
        "Failed Validation",
        "Setup Failure",
        "Driver Failure",
        "Terminated",
        "Failed Artifact Download",
        "Failed Restoring Task",
        "Task hook failed",
        "Plugin became unhealthy",
    ];
    let sorted =
        |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(sorted(&failing), sorted(&expected));
}

#[test]
fn an_end_is_told_by_memory_before_signal_and_signal_before_code() {
    for (more, cause, remedy) in [
        (
            json!({ "exitCode": 137, "signal": 9, "oomKilled": true }),
            "used more memory than it may",
            "raise its resources.memoryMB",
        ),
        (
            json!({ "oomKilled": true, "message": "killed (64 MiB)" }),
            "used more memory than it may (64 MiB)",
            "raise its",
        ),
        (json!({ "exitCode": 0, "oomKilled": true }), "used more memory than it may", "raise its"),
        (json!({ "exitCode": 0, "signal": 15 }), "was ended by signal 15", "`drover alloc logs a t --stderr`"),
        (json!({ "exitCode": 255 }), "ended with exit code 255", "`drover alloc logs a t --stderr`"),
        (json!({}), "ended with no exit code", "`drover alloc logs a t --stderr`"),
    ] {
        let state = state(&[("Terminated", more.clone())]);
        let failure = last("a", [(&"t".to_owned(), &state)]).expect("a failure");
        assert_eq!(failure.cause, cause, "{more}");
        assert!(failure.remedy.starts_with(remedy), "{more}: {}", failure.remedy);
    }
}

#[test]
fn of_failures_at_one_time_the_last_task_is_told() {
    let state = state(&[("Driver Failure", json!({ "message": "no" }))]);
    let names = ["a", "b", "c"].map(str::to_owned);
    let failure = last("x", names.iter().map(|name| (name, &state))).expect("a failure");
    assert_eq!(failure.sentence(), "task c could not start: no");
    assert_eq!(last("x", std::iter::empty()), None);
}
