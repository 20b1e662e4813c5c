//! When a failed allocation is placed again (`spec/scheduler.md`, 3.3).

use drover_api::GoDuration;
use drover_api::allocation::{RescheduleEvent, RescheduleTracker};
use drover_api::policy::{DelayFunction, Reschedule};
use jiff::{SignedDuration, Timestamp};

use crate::model::Alloc;

/// Replacements due within this span are placed at once.
pub const SOON: SignedDuration = SignedDuration::from_secs(1);

/// When an allocation that failed at `base` is replaced; never, if its policy is used up.
pub fn next_time(alloc: &Alloc, policy: &Reschedule, base: Timestamp) -> Option<Timestamp> {
    let events = events(alloc);
    let delay = next_delay(policy, events, base);
    may_reschedule(policy, events, base, delay).then(|| after(base, delay))
}

/// The pause before the next replacement of an allocation that fails at `base`.
pub fn next_delay(policy: &Reschedule, events: &[RescheduleEvent], base: Timestamp) -> GoDuration {
    let first = policy.delay.unwrap_or_default();
    let longest = policy.max_delay.unwrap_or_default();
    let function = policy.delay_function.unwrap_or_default();
    let Some(last) = events.last() else { return first };
    let before = events.len().checked_sub(2).map(|at| events[at].delay);
    let grown = match (function, before) {
        (DelayFunction::Constant, _) => return first,
        (DelayFunction::Exponential, _) => GoDuration::from_nanos(last.delay.as_nanos().saturating_mul(2)),
        (DelayFunction::Fibonacci, None) => first,
        (DelayFunction::Fibonacci, Some(before)) if before == longest && last.delay == first => first,
        (DelayFunction::Fibonacci, Some(before)) => {
            GoDuration::from_nanos(last.delay.as_nanos().saturating_add(before.as_nanos()))
        }
    };
    if longest.as_nanos() <= 0 || grown <= longest {
        return grown;
    }
    let since = base.duration_since(last.time);
    if since > span(longest) { first } else { longest }
}

/// Whether a policy allows another replacement of an allocation that fails at `base`.
pub fn may_reschedule(policy: &Reschedule, events: &[RescheduleEvent], base: Timestamp, delay: GoDuration) -> bool {
    if policy.unlimited == Some(true) {
        return true;
    }
    let attempts = policy.attempts.unwrap_or(0);
    if attempts <= 0 {
        return false;
    }
    if events.is_empty() {
        return true;
    }
    let interval = policy.interval.unwrap_or_default();
    let attempted = events.iter().filter(|event| base.duration_since(event.time) < span(interval)).count();
    i64::try_from(attempted).unwrap_or(i64::MAX) < attempts && delay < interval
}

/// Events that an unlimited policy remembers.
const KEPT_EVENTS: usize = 5;

/// The tracker of a replacement that is placed now.
pub fn successor_tracker(alloc: &Alloc, policy: &Reschedule, now: Timestamp) -> RescheduleTracker {
    let events = events(alloc);
    let interval = span(policy.interval.unwrap_or_default());
    let mut kept: Vec<RescheduleEvent> = if policy.unlimited == Some(true) {
        events[events.len().saturating_sub(KEPT_EVENTS)..].to_vec()
    } else {
        events.iter().filter(|event| now.duration_since(event.time) <= interval).cloned().collect()
    };
    kept.push(RescheduleEvent {
        time: now,
        prev_alloc_id: alloc.uid.as_str().to_owned(),
        prev_node_name: alloc.node.as_str().to_owned(),
        delay: next_delay(policy, events, alloc.last_event_at),
    });
    RescheduleTracker { events: kept, last_reschedule: None }
}

fn events(alloc: &Alloc) -> &[RescheduleEvent] {
    alloc.tracker.as_ref().map_or(&[], |tracker| tracker.events.as_slice())
}

fn span(duration: GoDuration) -> SignedDuration {
    SignedDuration::from_nanos(duration.as_nanos())
}

/// `at + by`, or the end of time.
pub(crate) fn after(at: Timestamp, by: GoDuration) -> Timestamp {
    at.checked_add(span(by)).unwrap_or(Timestamp::MAX)
}
