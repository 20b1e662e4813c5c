//! Commits in the order of their versions, with what belongs together in one.
//!
//! Each kind of object has a watch of its own, and one may tell of version 7 before another tells of version 6. Each
//! change therefore waits a moment for those before it. What comes later still is told later, with a later index.
//!
//! The parts of a whole wait for each other, and what came after the last known one waits with them: its index is to be
//! higher. A whole of which some do not come, as of a leader that died in the middle, is told as far as it is known,
//! and the rest after that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::event::Event;
use super::made::Changed;
use super::together::Part;

/// How long a change waits for those of other kinds that came before it. The watches run side by side: what one tells
/// of later than another is late by milliseconds, unless its connection has just broken.
const HELD_FOR: Duration = Duration::from_millis(20);
/// How long after something was told the next is told at the earliest: a subscriber is woken once for all of it, and
/// has it in one piece. What comes after a silence does not wait for this.
const TOLD_EVERY: Duration = Duration::from_millis(50);
/// How long the parts of a whole wait for the others.
const TOGETHER_WITHIN: Duration = Duration::from_secs(1);
/// For how long it is remembered of how many parts a whole is that nothing more comes of.
const REMEMBERED_FOR: Duration = Duration::from_mins(1);
/// Changes that wait at a time; the oldest of more go on at once.
const MOST_HELD: usize = 4096;

/// Changes that wait for those before them. Times are since any one moment.
#[derive(Clone, Debug, Default)]
pub struct Held {
    waiting: BTreeMap<u64, Waiting>,
    wholes: BTreeMap<String, Whole>,
    /// When something was taken out last.
    told_at: Option<Duration>,
}

/// The events of one version.
#[derive(Clone, Debug)]
struct Waiting {
    since: Duration,
    events: Vec<Event>,
    /// They wait for the other parts of a whole.
    is_part: bool,
}

/// What is told in one commit.
#[derive(Clone, Debug)]
struct Whole {
    /// How many parts it has; none: no part that came has told that.
    of: Option<u32>,
    /// How many have come, those that were told already included.
    n_come: u32,
    /// When the first of those came that wait, or the last one where none waits.
    since: Duration,
    /// The versions of the parts that wait.
    versions: BTreeSet<u64>,
}

impl Held {
    /// A change of a version has come. Without events nothing waits for it, but it may complete a whole.
    pub fn put(&mut self, version: u64, changed: Changed, now: Duration) {
        let Changed { events, part } = changed;
        if let Some(part) = part {
            return self.put_part(version, events, &part, now);
        }
        if !events.is_empty() {
            self.wait(version, now, false).extend(events);
        }
    }

    fn put_part(&mut self, version: u64, events: Vec<Event>, part: &Part, now: Duration) {
        let is_told_of = !events.is_empty();
        if is_told_of {
            self.wait(version, now, true).extend(events);
        }
        let new = || Whole { of: None, n_come: 0, since: now, versions: BTreeSet::new() };
        let whole = self.wholes.entry(part.whole.clone()).or_insert_with(new);
        whole.of = whole.of.or(part.of);
        whole.n_come += 1;
        if whole.versions.is_empty() {
            whole.since = now;
        }
        if is_told_of {
            whole.versions.insert(version);
        }
        if whole.of == Some(whole.n_come)
            && let Some(whole) = self.wholes.remove(&part.whole)
        {
            self.join(&whole.versions, now);
        }
    }

    fn wait(&mut self, version: u64, now: Duration, is_part: bool) -> &mut Vec<Event> {
        let new = || Waiting { since: now, events: Vec::new(), is_part };
        let waiting = self.waiting.entry(version).or_insert_with(new);
        waiting.is_part |= is_part;
        &mut waiting.events
    }

    /// Makes one commit of these, at the highest of them; of each object the last event stays.
    fn join(&mut self, versions: &BTreeSet<u64>, since: Duration) {
        let Some(last) = versions.last() else { return };
        let parts = versions.iter().filter_map(|version| self.waiting.remove(version));
        let all: Vec<Event> = parts.flat_map(|part| part.events).collect();
        let mut told = BTreeSet::new();
        let mut events: Vec<Event> = all.into_iter().rev().filter(|event| told.insert(event.about())).collect();
        events.reverse();
        self.waiting.insert(*last, Waiting { since, events, is_part: false });
    }

    /// Takes out those that have waited long enough, and each with a lower version, in order.
    pub fn ripe(&mut self, now: Duration) -> Vec<(u64, Vec<Event>)> {
        let ripe = self.take_ripe(now);
        if !ripe.is_empty() {
            self.told_at = Some(now);
        }
        ripe
    }

    fn take_ripe(&mut self, now: Duration) -> Vec<(u64, Vec<Event>)> {
        self.give_up(now);
        let too_many = self.waiting.len().saturating_sub(MOST_HELD).checked_sub(1);
        let too_many = too_many.and_then(|nth| self.waiting.keys().nth(nth).copied());
        let is_ripe = |waiting: &Waiting| !waiting.is_part && waiting.since + HELD_FOR <= now;
        let free = self.waiting.range(..self.end());
        let ripe = free.rev().find(|(_, waiting)| is_ripe(waiting)).map(|(version, _)| *version);
        let ripe = ripe.filter(|_| self.next_turn() <= now);
        match (ripe, too_many) {
            (_, Some(last)) if ripe.is_none_or(|ripe| ripe < last) => self.take(last, |_| true),
            (Some(last), _) => self.take(last, |waiting| !waiting.is_part),
            (None, _) => Vec::new(),
        }
    }

    /// Before which version changes are free to go: each whole that waits may have more parts behind its last one.
    fn end(&self) -> u64 {
        self.wholes.values().filter_map(|whole| whole.versions.last().copied()).min().unwrap_or(u64::MAX)
    }

    fn take(&mut self, last: u64, which: impl Fn(&Waiting) -> bool) -> Vec<(u64, Vec<Event>)> {
        let later = self.waiting.split_off(&last.saturating_add(1));
        let (taken, stays): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::replace(&mut self.waiting, later).into_iter().partition(|(_, waiting)| which(waiting));
        self.waiting.extend(stays);
        if taken.values().any(|waiting| waiting.is_part) {
            for whole in self.wholes.values_mut() {
                whole.versions.retain(|version| *version > last);
            }
        }
        taken.into_iter().map(|(version, waiting)| (version, waiting.events)).collect()
    }

    /// Lets those parts go on that have waited for others long enough, and forgets wholes of which no more come.
    fn give_up(&mut self, now: Duration) {
        let mut over = Vec::new();
        self.wholes.retain(|_, whole| {
            if !whole.versions.is_empty() && whole.since + TOGETHER_WITHIN <= now {
                over.push((std::mem::take(&mut whole.versions), whole.since));
                whole.since = now;
            }
            !whole.versions.is_empty() || now < whole.since + REMEMBERED_FOR
        });
        for (versions, since) in over {
            self.join(&versions, since);
        }
    }

    /// Takes out all, in order.
    pub fn all(&mut self) -> Vec<(u64, Vec<Event>)> {
        for whole in std::mem::take(&mut self.wholes).into_values() {
            self.join(&whole.versions, whole.since);
        }
        let all = std::mem::take(&mut self.waiting);
        all.into_iter().map(|(version, waiting)| (version, waiting.events)).collect()
    }

    /// When something may be told again.
    fn next_turn(&self) -> Duration {
        self.told_at.map_or(Duration::ZERO, |at| at + TOLD_EVERY)
    }

    /// When the next one has waited long enough; none: nothing waits. O(waiting).
    pub fn next_at(&self) -> Option<Duration> {
        let (free, turn) = (self.waiting.range(..self.end()), self.next_turn());
        let free =
            free.filter(|(_, waiting)| !waiting.is_part).map(|(_, waiting)| (waiting.since + HELD_FOR).max(turn));
        let wholes = self.wholes.values().filter(|whole| !whole.versions.is_empty());
        free.chain(wholes.map(|whole| whole.since + TOGETHER_WITHIN)).min()
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

    fn alone(events: Vec<Event>) -> Changed {
        Changed { events, part: None }
    }

    /// A part of a whole, about a job of this name.
    fn part(whole: &str, of: Option<u32>, job: &str) -> Changed {
        Changed { events: vec![event("a", job)], part: Some(Part { whole: whole.to_owned(), of }) }
    }

    #[test]
    fn a_change_waits_for_those_before_it_and_not_for_those_after_it() {
        let mut held = Held::default();
        assert_eq!(held.next_at(), None);
        held.put(7, alone(vec![event("a", "x")]), at(0));
        held.put(6, alone(vec![event("a", "x")]), at(8));
        held.put(9, alone(vec![event("a", "x")]), at(16));
        held.put(6, alone(vec![event("a", "y")]), at(17));
        held.put(5, alone(Vec::new()), at(18));
        assert_eq!(held.next_at(), Some(at(20)));
        assert!(held.ripe(at(19)).is_empty());
        assert_eq!(versions(&held.ripe(at(20))), [(6, 2), (7, 1)]);
        assert_eq!(held.next_at(), Some(at(70)));
        assert!(held.ripe(at(69)).is_empty());
        assert_eq!(versions(&held.all()), [(9, 1)]);
        assert_eq!(held.next_at(), None);
    }

    #[test]
    fn no_more_wait_than_may() {
        let mut held = Held::default();
        for version in 0..MOST_HELD as u64 + 3 {
            held.put(version, alone(vec![event("a", "x")]), at(0));
        }
        assert_eq!(versions(&held.ripe(at(1))), [(0, 1), (1, 1), (2, 1)]);
        assert!(held.ripe(at(2)).is_empty());
    }
    #[test]
    fn g_040_a_plan_of_fifty_objects_is_one_commit_at_its_highest_version() {
        let mut held = Held::default();
        held.put(3, alone(vec![event("a", "before")]), at(0));
        // Its deployment is made, and changed at once: it is told of once.
        held.put(10, part("p", Some(51), "deployment"), at(0));
        held.put(11, part("p", Some(51), "deployment"), at(0));
        for n in 12..60 {
            held.put(n, part("p", Some(51), &format!("allocation-{n}")), at(n));
        }
        held.put(60, alone(vec![event("a", "between")]), at(60));
        held.put(62, alone(vec![event("a", "behind")]), at(62));
        assert_eq!(versions(&held.ripe(at(400))), [(3, 1)], "what came after a part waits for the others");
        held.put(61, part("p", Some(51), "last"), at(400));
        assert_eq!((versions(&held.ripe(at(449))), held.next_at()), (vec![], Some(at(450))));
        assert_eq!(versions(&held.ripe(at(450))), [(60, 1), (61, 50), (62, 1)]);
        assert_eq!((held.next_at(), held.wholes.len()), (None, 0));
    }

    #[test]
    fn g_040_the_rest_of_a_plan_whose_leader_died_is_told_within_a_second() {
        let mut held = Held::default();
        held.put(10, part("p", Some(4), "x"), at(0));
        held.put(11, part("p", Some(4), "y"), at(100));
        held.put(12, alone(vec![event("a", "other")]), at(100));
        assert!(held.ripe(at(999)).is_empty());
        assert_eq!(held.next_at(), Some(at(1000)));
        assert_eq!(versions(&held.ripe(at(1000))), [(11, 2), (12, 1)]);
        // What comes later still is told when no more can come, or soon.
        held.put(20, part("p", Some(4), "z"), at(5000));
        assert!(held.ripe(at(5999)).is_empty());
        assert_eq!(versions(&held.ripe(at(6000))), [(20, 1)]);
        held.put(21, part("p", Some(4), "last"), at(7000));
        assert_eq!(versions(&held.ripe(at(7050))), [(21, 1)]);
        // It is forgotten after a while.
        held.put(30, part("q", Some(9), "x"), at(8000));
        assert_eq!(versions(&held.ripe(at(9000))), [(30, 1)]);
        assert!(held.ripe(at(69_001)).is_empty());
        assert!(held.wholes.is_empty());
    }

    #[test]
    fn a_part_that_comes_before_the_one_that_tells_how_many_they_are_is_one_of_them() {
        let mut held = Held::default();
        held.put(12, part("p", None, "canary"), at(0));
        held.put(11, part("p", Some(2), "deployment"), at(50));
        assert_eq!(versions(&held.ripe(at(100))), [(12, 2)]);
        // A number that is never reached holds up nothing for longer than others wait for the rest.
        held.put(13, part("q", Some(u32::MAX), "x"), at(300));
        held.put(14, alone(vec![event("a", "x")]), at(301));
        assert_eq!(versions(&held.ripe(at(1300))), [(13, 1), (14, 1)]);
    }

    #[test]
    fn what_follows_on_each_other_is_told_twenty_times_a_second() {
        let (mut held, mut told) = (Held::default(), Vec::new());
        for n in 0..100 {
            held.put(n, alone(vec![event("a", "x")]), at(1000 + n * 10));
            while let Some(next) = held.next_at().filter(|next| *next <= at(1000 + n * 10)) {
                told.push((next, held.ripe(next).len()));
            }
        }
        // The first one waits for other kinds alone, and all that has waited for them goes with it.
        assert_eq!(told.len(), 20, "{told:?}");
        assert!((0_u64..).zip(&told).all(|(n, (when, _))| *when == at(1020 + n * 50)), "{told:?}");
        assert!(told.iter().skip(1).all(|(_, n)| *n == 5), "{told:?}");
        let last = held.next_at().expect("some wait");
        assert_eq!((last, held.ripe(last).len()), (at(2020), 4));
        // After a silence nothing waits for a turn.
        held.put(200, alone(vec![event("a", "x")]), at(9000));
        assert_eq!(held.next_at(), Some(at(9020)));
    }

    #[test]
    fn too_many_parts_go_on_though_others_are_missing() {
        let mut held = Held::default();
        for version in 0..MOST_HELD as u64 + 3 {
            held.put(version, part("p", Some(9000), &version.to_string()), at(0));
        }
        assert_eq!(versions(&held.ripe(at(1))), [(0, 1), (1, 1), (2, 1)]);
        assert_eq!(held.all().len(), 1);
    }

    /// Whatever comes in whatever order: nothing is lost or told twice, versions never go back within one answer, and a
    /// whole whose parts come within a second is one commit.
    #[test]
    fn wholes_and_others_in_any_order_are_told_whole_once_and_in_order() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (n_wholes, n_alone) = (random.u64(0..5), random.u64(0..10));
            let sizes: Vec<u32> = (0..n_wholes).map(|_| random.u32(1..8)).collect();
            let of_wholes = sizes.iter().enumerate().flat_map(|(whole, n)| (0..*n).map(move |_| Some(whole)));
            let mut all: Vec<Option<usize>> = of_wholes.chain((0..n_alone).map(|_| None)).collect();
            random.shuffle(&mut all);
            let of = |version: u64, whole: Option<usize>| match whole {
                Some(whole) => part(&format!("p-{whole}"), Some(sizes[whole]), &version.to_string()),
                None => alone(vec![event("a", &version.to_string())]),
            };
            let (mut held, mut told, mut now) = (Held::default(), Vec::new(), 0);
            for (version, whole) in (1..).zip(&all) {
                now += random.u64(0..30);
                held.put(version, of(version, *whole), at(now));
                told.extend(held.ripe(at(now)));
            }
            while let Some(next) = held.next_at() {
                told.extend(held.ripe(next));
            }
            let n_told: usize = told.iter().map(|(_, events)| events.len()).sum();
            assert_eq!(n_told, all.len(), "{seed}");
            assert!(told.is_sorted_by_key(|(version, _)| *version), "{seed}");
            assert_eq!(told.len() as u64, n_wholes + n_alone, "{seed}: {:?}", versions(&told));
            assert!(held.wholes.is_empty() && held.waiting.is_empty(), "{seed}");
        }
    }
}
