//! How the outcome of a run reads: JSON for programs, text for people.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::log::Failure;
use super::run::Outcome;
use super::times::at_text;
use super::world::CrashPoint;

/// What a run is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Title<'a> {
    /// The scenario's name.
    pub(super) scenario: &'a str,
    /// Its file, for the command that runs it again.
    pub(super) file: &'a str,
    pub(super) seed: u64,
    pub(super) crash_at: Option<CrashPoint>,
}

impl Title<'_> {
    /// The command that makes the same run again.
    pub(super) fn replay(&self) -> String {
        let crash = match self.crash_at {
            None => String::new(),
            Some(CrashPoint::Write(number)) => format!(" --crash-at-write {number}"),
            Some(CrashPoint::Call(number)) => format!(" --crash-at-call {number}"),
        };
        format!("drover simulate {} --seed {}{crash}", self.file, self.seed)
    }
}

/// The outcome as JSON. `wall` is 0 unless it was asked for: everything else is the same in each run of a seed.
pub(super) fn json(title: &Title<'_>, outcome: &Outcome, wall: Duration) -> Value {
    let failures = outcome.failures.iter().map(|failure| json!({ "at": at_text(failure.at), "what": failure.what }));
    json!({
        "scenario": title.scenario,
        "seed": title.seed,
        "verdict": if outcome.failures.is_empty() { "pass" } else { "fail" },
        "failures": failures.collect::<Vec<_>>(),
        "timeline": outcome.timeline,
        "dumps": outcome.dumps,
        "writes": outcome.writes,
        "pluginCalls": outcome.calls,
        "virtualSeconds": outcome.virtual_time.as_secs_f64(),
        "wallSeconds": wall.as_secs_f64(),
    })
}

/// Where two runs of one seed part, if they do.
pub(super) fn first_difference(title: &Title<'_>, one: &Outcome, other: &Outcome) -> Option<Failure> {
    let text = |outcome| serde_json::to_string_pretty(&json(title, outcome, Duration::ZERO)).unwrap_or_default();
    let (one_text, other_text) = (text(one), text(other));
    if one_text == other_text {
        return None;
    }
    let mut lines = one_text.lines().zip(other_text.lines());
    let (was, is) = lines.find(|(was, is)| was != is).unwrap_or(("more", "less"));
    let what = format!("a second run of the seed differs: {} instead of {}", is.trim(), was.trim());
    let entries = one.timeline.iter().zip(&other.timeline);
    let at = entries.take_while(|(was, is)| was == is).count();
    let at = one.timeline.get(at).and_then(|entry| entry["at"].as_str()).unwrap_or("the end").to_owned();
    Some(Failure { at: one.virtual_time, what: format!("{what} (first at {at})") })
}

/// The outcome for people.
pub(super) fn text(title: &Title<'_>, outcome: &Outcome) -> String {
    let mut text = String::new();
    let verdict = if outcome.failures.is_empty() { "pass" } else { "FAIL" };
    let writes: Vec<String> = outcome
        .writes
        .as_object()
        .into_iter()
        .flatten()
        .map(|(kind, counted)| {
            let sum: u64 = counted.as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum();
            format!("{kind} {sum}")
        })
        .collect();
    // Writing to a string cannot fail.
    writeln!(
        text,
        "{verdict}  {} (seed {}, {} virtual; writes: {})",
        title.scenario,
        title.seed,
        at_text(outcome.virtual_time),
        writes.join(", ")
    )
    .ok();
    for failure in &outcome.failures {
        writeln!(text, "  at {}: {}", at_text(failure.at), failure.what).ok();
    }
    if !outcome.failures.is_empty() {
        writeln!(text, "  replay: {}", title.replay()).ok();
    }
    text
}
