//! Which allocations end because their node has been disconnected from the controller for too long
//! (`disconnect.stopOnClientAfter`).

use std::collections::BTreeMap;
use std::time::Duration;

/// What follows from the time since the last heartbeat that was accepted.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutOff<'a> {
    /// Allocations that are to end now.
    pub stop: Vec<&'a str>,
    /// How long until the next one may have to.
    pub wake_after: Option<Duration>,
}

/// Judges the tracked allocations. `silent_for` is the time since the last accepted heartbeat; in an agent that has
/// just started and had none yet, `grace` is what is left of its time to get one. O(tracked).
pub fn cut_off(tracked: &BTreeMap<String, Duration>, silent_for: Duration, grace: Duration) -> CutOff<'_> {
    if !grace.is_zero() {
        return CutOff { stop: Vec::new(), wake_after: (!tracked.is_empty()).then_some(grace) };
    }
    let mut found = CutOff::default();
    for (uid, after) in tracked {
        if silent_for > *after {
            found.stop.push(uid);
        } else {
            // One more than what is left: at exactly the limit it still holds.
            let left = after.saturating_sub(silent_for) + Duration::from_nanos(1);
            found.wake_after = Some(found.wake_after.map_or(left, |earlier| earlier.min(left)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracked() -> BTreeMap<String, Duration> {
        [("soon".to_owned(), Duration::from_micros(1)), ("later".to_owned(), Duration::from_millis(500))].into()
    }

    #[test]
    fn a_042_each_ends_when_its_own_time_is_over() {
        let tracked = tracked();
        let ms = Duration::from_millis;
        let first = cut_off(&tracked, ms(1), Duration::ZERO);
        assert_eq!(first.stop, ["soon"]);
        assert!(first.wake_after.is_some_and(|after| after > ms(499) && after < ms(500)));
        assert_eq!(cut_off(&tracked, ms(500), Duration::ZERO).stop, ["soon"], "exactly its time is not over it");
        assert_eq!(cut_off(&tracked, ms(501), Duration::ZERO).stop, ["later", "soon"]);
        assert_eq!(cut_off(&BTreeMap::new(), ms(1000), Duration::ZERO), CutOff::default(), "untracked ones never end");
    }

    #[test]
    fn a_043_heartbeats_put_it_off() {
        let tracked = [("later".to_owned(), Duration::from_millis(500))].into();
        for silent in [0, 100, 199] {
            assert!(cut_off(&tracked, Duration::from_millis(silent), Duration::ZERO).stop.is_empty());
        }
    }

    #[test]
    fn an_agent_that_has_just_started_has_time_for_its_first_heartbeat() {
        let found = cut_off(&tracked(), Duration::from_secs(100), Duration::from_secs(20)).wake_after;
        assert_eq!(found, Some(Duration::from_secs(20)));
    }
}
