//! When a status is written: at once when its phase or a condition changed, else at most once per second. The first one
//! of all waits a moment for what begins at once.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Shortest pause between two writes of one status that change neither phase nor conditions.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
/// How long the first status of an object waits: most allocations run by then, and while they begin the API server has
/// more urgent work than a status that is old a moment later.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// How long a count waits during a roll-out: a step takes some away and adds others a moment later.
const ROLLING_PAUSE: Duration = Duration::from_secs(3);

/// A status as it was wanted last, with its JSON.
#[derive(Debug)]
pub(crate) struct Memo<T>(Option<(T, Arc<Value>)>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: PartialEq + Serialize> Memo<T> {
    /// The JSON of a status: the one from before where it is the same.
    pub(crate) fn json(&mut self, status: T) -> Arc<Value> {
        match &self.0 {
            Some((known, shown)) if *known == status => Arc::clone(shown),
            Some(_) | None => {
                let shown = Arc::new(json!(status));
                self.0 = Some((status, Arc::clone(&shown)));
                shown
            }
        }
    }
}

/// What a status waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Whether a plan of the job is being written: what it changes belongs into the same status.
    pub(crate) is_planning: bool,
    /// Whether it is rolled out: its counts go up and down with each step.
    pub(crate) is_rolling: bool,
}

/// When a status may be written: now, or at that time; never when nothing differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteDue {
    /// Nothing differs.
    Never,
    /// Phase or a condition differs, or the pause is over.
    Now,
    /// Something else differs.
    At(Instant),
}

/// What a status is compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last<'a> {
    /// The status that was sent or stored last.
    pub(crate) status: Option<&'a Value>,
    /// When this leader sent it.
    pub(crate) sent_at: Option<Instant>,
    /// Since when the wanted one differs.
    pub(crate) differs_since: Instant,
}

/// Decides when to write a status.
pub(crate) fn due(wanted: &Value, last: Last<'_>, pending: Pending, now: Instant) -> WriteDue {
    let Last { status: last, sent_at, differs_since } = last;
    let at = |time: Instant| if time <= now { WriteDue::Now } else { WriteDue::At(time) };
    let when_planned = if pending.is_planning { differs_since + PAUSE } else { now };
    let Some(last) = last else { return at(when_planned.max(differs_since + FIRST_PAUSE)) };
    if is_same(wanted, last) {
        return WriteDue::Never;
    }
    if is_urgent(wanted, last) {
        return at(when_planned);
    }
    let pause_over = sent_at.map_or(now, |at| at + PAUSE);
    at(if pending.is_rolling { pause_over.max(differs_since + ROLLING_PAUSE) } else { pause_over })
}

/// Whether two statuses are equal. Mostly both are the one that was sent last.
pub(crate) fn is_same(wanted: &Value, last: &Value) -> bool {
    std::ptr::eq(wanted, last) || wanted == last
}

/// Whether phase, generation or a condition of a status differ.
pub(crate) fn is_urgent(wanted: &Value, last: &Value) -> bool {
    fn conditions(status: &Value) -> &[Value] {
        status["conditions"].as_array().map_or(&[], Vec::as_slice)
    }
    let differ = |one: &Value, other: &Value, fields: &[&str]| fields.iter().any(|field| one[*field] != other[*field]);
    let (new, old) = (conditions(wanted), conditions(last));
    differ(wanted, last, &["phase", "observedGeneration"])
        || new.len() != old.len()
        || new.iter().zip(old).any(|(new, old)| differ(new, old, &["type", "status", "reason"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_is_written_at_once_and_a_count_after_the_pause() {
        let now = Instant::now();
        let status = |phase: &str, running: i64| json!({ "phase": phase, "conditions": [], "summary": { "g": { "running": running } } });
        let last = status("running", 1);
        let pending = Pending::default();
        let since = |status| Last { status, sent_at: status.map(|_| now), differs_since: now };
        assert_eq!(due(&status("running", 1), since(Some(&last)), pending, now), WriteDue::Never);
        assert_eq!(due(&status("running", 2), since(Some(&last)), pending, now), WriteDue::At(now + PAUSE));
        assert_eq!(due(&status("running", 2), since(Some(&last)), pending, now + PAUSE), WriteDue::Now);
        assert_eq!(due(&status("dead", 1), since(Some(&last)), pending, now), WriteDue::Now);
        assert_eq!(due(&last, since(None), pending, now), WriteDue::At(now + FIRST_PAUSE));
        assert_eq!(due(&last, since(None), pending, now + FIRST_PAUSE), WriteDue::Now);
    }

    #[test]
    fn a_condition_waits_for_the_plan_and_a_count_for_the_step_of_a_roll_out() {
        let now = Instant::now();
        let status = |phase: &str, running: i64| json!({ "phase": phase, "conditions": [], "summary": { "g": { "running": running } } });
        let last = status("running", 1);
        let planning = Pending { is_planning: true, ..Pending::default() };
        let since = Last { status: Some(&last), sent_at: Some(now), differs_since: now };
        let at = |pending, wanted: &Value, later: Duration| due(wanted, since, pending, now + later);
        assert_eq!(at(planning, &status("dead", 1), Duration::ZERO), WriteDue::At(now + PAUSE));
        assert_eq!(at(planning, &status("dead", 1), PAUSE), WriteDue::Now, "a long plan does not hide what happens");
        let rolling = Pending { is_rolling: true, ..Pending::default() };
        assert_eq!(at(rolling, &status("running", 2), PAUSE), WriteDue::At(now + ROLLING_PAUSE));
        assert_eq!(at(rolling, &status("running", 2), ROLLING_PAUSE), WriteDue::Now);
        assert_eq!(at(rolling, &status("dead", 1), Duration::ZERO), WriteDue::Now);
    }
}
