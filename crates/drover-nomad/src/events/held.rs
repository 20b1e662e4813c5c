//! Commits in the order of their versions.
//!
//! Each kind of object has a watch of its own, and one may tell of version 7 before another tells of version 6. Each
//! change therefore waits a moment for those before it. What comes later still is told later, with a later index.

use std::collections::BTreeMap;
use std::time::Duration;

use super::event::Event;

/// How long a change waits for those of other kinds that came before it.
const HELD_FOR: Duration = Duration::from_millis(250);
/// Changes that wait at a time; the oldest of more go on at once.
const MOST_HELD: usize = 4096;

/// Changes that wait for those before them. Times are since any one moment.
#[derive(Clone, Debug, Default)]
pub struct Held {
    waiting: BTreeMap<u64, Waiting>,
}

/// The events of one version.
#[derive(Clone, Debug)]
struct Waiting {
    since: Duration,
    events: Vec<Event>,
}

impl Held {
    /// Events of a version have come. None: nothing waits for them.
    pub fn put(&mut self, version: u64, events: Vec<Event>, now: Duration) {
        if !events.is_empty() {
            let waiting = self.waiting.entry(version).or_insert_with(|| Waiting { since: now, events: Vec::new() });
            waiting.events.extend(events);
        }
    }

    /// Takes out those that have waited long enough, and each with a lower version, in order.
    pub fn ripe(&mut self, now: Duration) -> Vec<(u64, Vec<Event>)> {
        let too_many = self.waiting.len().saturating_sub(MOST_HELD).checked_sub(1);
        let too_many = too_many.and_then(|nth| self.waiting.keys().nth(nth).copied());
        let is_ripe = |waiting: &Waiting| waiting.since + HELD_FOR <= now;
        let ripe = self.waiting.iter().rfind(|(_, waiting)| is_ripe(waiting)).map(|(version, _)| *version);
        let Some(last) = ripe.max(too_many) else { return Vec::new() };
        let later = self.waiting.split_off(&last.saturating_add(1));
        let ripe = std::mem::replace(&mut self.waiting, later);
        ripe.into_iter().map(|(version, waiting)| (version, waiting.events)).collect()
    }

    /// Takes out all, in order.
    pub fn all(&mut self) -> Vec<(u64, Vec<Event>)> {
        let all = std::mem::take(&mut self.waiting);
        all.into_iter().map(|(version, waiting)| (version, waiting.events)).collect()
    }

    /// When the next one has waited long enough; none: nothing waits. O(waiting).
    pub fn next_at(&self) -> Option<Duration> {
        self.waiting.values().map(|waiting| waiting.since + HELD_FOR).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffer::tests::event;
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn versions(of: &[(u64, Vec<Event>)]) -> Vec<(u64, usize)> {
        of.iter().map(|(version, events)| (*version, events.len())).collect()
    }

    #[test]
    fn a_change_waits_for_those_before_it_and_not_for_those_after_it() {
        let mut held = Held::default();
        assert_eq!(held.next_at(), None);
        held.put(7, vec![event("a", "x")], at(0));
        held.put(6, vec![event("a", "x")], at(100));
        held.put(9, vec![event("a", "x")], at(200));
        held.put(6, vec![event("a", "y")], at(210));
        held.put(5, Vec::new(), at(220));
        assert_eq!(held.next_at(), Some(at(250)));
        assert!(held.ripe(at(249)).is_empty());
        assert_eq!(versions(&held.ripe(at(250))), [(6, 2), (7, 1)]);
        assert_eq!(held.next_at(), Some(at(450)));
        assert!(held.ripe(at(449)).is_empty());
        assert_eq!(versions(&held.all()), [(9, 1)]);
        assert_eq!(held.next_at(), None);
    }

    #[test]
    fn no_more_wait_than_may() {
        let mut held = Held::default();
        for version in 0..MOST_HELD as u64 + 3 {
            held.put(version, vec![event("a", "x")], at(0));
        }
        assert_eq!(versions(&held.ripe(at(1))), [(0, 1), (1, 1), (2, 1)]);
        assert!(held.ripe(at(2)).is_empty());
    }
}
