//! The newest commits, for all subscribers.
//!
//! Each subscriber has a position of its own, and takes the entry there when it likes: one that is slow finds its entry
//! dropped, and nothing waits for it. Invariants: indexes strictly increase; at most so many entries, and bytes but for
//! one entry, are kept.

use std::collections::VecDeque;
use std::sync::Arc;

use super::event::Event;

/// Bytes that are kept; then the oldest entries go, but for the newest one.
const MOST_BYTES: usize = 64 << 20;

/// What has changed at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    index: u64,
    events: Vec<Event>,
}

impl Commit {
    /// Its index, which is that of each of its events.
    pub const fn index(&self) -> u64 {
        self.index
    }

    /// Its events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The line of these of its events; none: there is no line without an event.
    pub fn line<'a>(&self, events: impl IntoIterator<Item = &'a Event>) -> Option<String> {
        let mut line = String::new();
        for event in events {
            if line.is_empty() {
                line = format!("{{\"Index\":{},\"Events\":[", self.index);
            } else {
                line.push(',');
            }
            line.push_str(event.text());
        }
        if line.is_empty() {
            return None;
        }
        line.push_str("]}\n");
        Some(line)
    }

    fn n_bytes(&self) -> usize {
        size_of::<Self>() + self.events.iter().map(Event::n_bytes).sum::<usize>()
    }
}

/// What there is for a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This entry; the next position is one more.
    Commit(Arc<Commit>),
    /// Nothing yet.
    Later,
    /// The entry has been dropped, so that something would be missing.
    Gone,
}

/// The newest commits, oldest first.
#[derive(Clone, Debug)]
pub struct Buffer {
    entries: VecDeque<Arc<Commit>>,
    /// The position of the oldest entry.
    first: u64,
    most: usize,
    most_bytes: usize,
    bytes: usize,
    /// Of the newest entry there ever was.
    index: u64,
}

impl Buffer {
    /// Keeps at most so many entries; at least one.
    pub fn new(most: usize) -> Self {
        let entries = VecDeque::new();
        Self { entries, first: 0, most: most.max(1), most_bytes: MOST_BYTES, bytes: 0, index: 0 }
    }

    /// Puts in what has changed at a version. Its index is this version, or the next index where another one is higher
    /// already.
    pub fn push(&mut self, version: u64, events: Vec<Event>) {
        self.index = version.max(self.index.saturating_add(1));
        let events = events.into_iter().map(|event| event.at(self.index)).collect();
        let commit = Commit { index: self.index, events };
        self.bytes += commit.n_bytes();
        self.entries.push_back(Arc::new(commit));
        while self.entries.len() > self.most || (self.bytes > self.most_bytes && self.entries.len() > 1) {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.n_bytes();
            self.first += 1;
        }
    }

    /// Forgets everything, as after a return to an older state, in which indexes are lower: each subscriber misses
    /// something.
    pub fn reset(&mut self) {
        self.first = self.next_position() + 1;
        self.entries.clear();
        (self.bytes, self.index) = (0, 0);
    }

    /// Where a subscriber begins who asks for an index: at this entry, or the closest after it, or the newest one; with
    /// 0 at the oldest.
    pub fn position(&self, index: u64) -> u64 {
        let at = self.entries.partition_point(|commit| commit.index < index);
        let at = at.min(self.entries.len().saturating_sub(1));
        self.first + u64::try_from(at).unwrap_or(u64::MAX)
    }

    /// What is at a position.
    pub fn at(&self, position: u64) -> Next {
        let Some(at) = position.checked_sub(self.first) else { return Next::Gone };
        let entry = usize::try_from(at).ok().and_then(|at| self.entries.get(at));
        entry.map_or(Next::Later, |commit| Next::Commit(Arc::clone(commit)))
    }

    fn next_position(&self) -> u64 {
        self.first + u64::try_from(self.entries.len()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::cause::Cause;
    use super::super::event::Keys;
    use super::super::topic::Topic;
    use super::*;

    /// An event of a job.
    pub(in super::super) fn event(namespace: &str, job: &str) -> Event {
        let keys = Keys { own: job.to_owned(), more: Vec::new() };
        Event::new((Topic::Job, Cause::JobRegistered), namespace, keys, &json!({ "Job": { "ID": job } }))
    }

    fn filled(most: usize, versions: impl IntoIterator<Item = u64>) -> Buffer {
        let mut buffer = Buffer::new(most);
        for version in versions {
            buffer.push(version, vec![event("a", "x")]);
        }
        buffer
    }

    fn index(buffer: &Buffer, position: u64) -> Option<u64> {
        match buffer.at(position) {
            Next::Commit(commit) => Some(commit.index()),
            Next::Later | Next::Gone => None,
        }
    }

    #[test]
    fn p_067_one_begins_at_its_entry_or_the_next_one_or_the_newest() {
        let buffer = filled(100, (1..=150).map(|n| n * 10));
        for (asked, begins) in [(0, 510), (1, 510), (510, 510), (511, 520), (1500, 1500), (1501, 1500), (999_999, 1500)]
        {
            assert_eq!(index(&buffer, buffer.position(asked)), Some(begins), "{asked}");
        }
        let none = Buffer::new(100);
        assert_eq!((none.position(0), none.position(7), none.at(0)), (0, 0, Next::Later));
    }

    #[test]
    fn a_line_holds_the_events_that_are_wanted_with_one_index() {
        let mut buffer = Buffer::new(1);
        buffer.push(7, vec![event("a", "x"), event("b", "y")]);
        let Next::Commit(commit) = buffer.at(0) else { panic!("no entry") };
        let line = commit.line(commit.events()).expect("a line");
        assert!(line.ends_with('\n') && !line.trim_end().contains('\n'));
        let event = |namespace: &str, job: &str| {
            json!({ "Topic": "Job", "Type": "JobRegistered", "Key": job, "Namespace": namespace, "FilterKeys": [],
                    "Index": 7, "Payload": { "Job": { "ID": job } } })
        };
        let parsed: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(parsed, json!({ "Index": 7, "Events": [event("a", "x"), event("b", "y")] }));
        assert_eq!(commit.line([]), None);
    }

    #[test]
    fn an_older_state_ends_every_subscription_and_begins_a_new_count() {
        let mut buffer = filled(10, [90, 91]);
        let waits = buffer.next_position();
        buffer.reset();
        assert_eq!((buffer.at(0), buffer.at(waits)), (Next::Gone, Next::Gone));
        let position = buffer.position(0);
        assert_eq!(buffer.at(position), Next::Later);
        buffer.push(40, vec![event("a", "x")]);
        assert_eq!(index(&buffer, position), Some(40));
    }

    #[test]
    fn the_oldest_go_when_they_hold_too_many_bytes_and_the_newest_stays() {
        let mut buffer = Buffer::new(100);
        let large = event("a", &"x".repeat(1000));
        buffer.most_bytes = 3 * (large.n_bytes() + 100);
        for version in 1..=9 {
            buffer.push(version, vec![large.clone()]);
        }
        assert_eq!((index(&buffer, buffer.position(0)), buffer.entries.len()), (Some(7), 3));
        buffer.push(10, vec![event("a", &"x".repeat(100_000))]);
        assert_eq!((index(&buffer, buffer.position(0)), buffer.entries.len()), (Some(10), 1));
        let held: usize = buffer.entries.iter().map(|commit| commit.n_bytes()).sum();
        assert_eq!(buffer.bytes, held);
    }

    /// What happens to a buffer.
    #[derive(Clone, Debug)]
    enum Deed {
        Push(u64),
        Subscribe(u64),
        Take(usize),
    }

    fn deed() -> impl Strategy<Value = Deed> {
        prop_oneof![
            3 => (0..60_u64).prop_map(Deed::Push),
            1 => (0..80_u64).prop_map(Deed::Subscribe),
            4 => (0..6_usize).prop_map(Deed::Take),
        ]
    }

    proptest! {
        /// Beside it a list of all that was ever pushed, and subscribers that count from its beginning.
        #[test]
        fn a_subscriber_gets_all_from_where_it_began_or_learns_that_something_is_missing(
            most in 1..8_usize,
            deeds in proptest::collection::vec(deed(), 0..120),
        ) {
            let mut buffer = Buffer::new(most);
            let mut all: Vec<u64> = Vec::new();
            // For each: its position, the place in `all` of what it gets next, and the last index that it got.
            let mut subscribers: Vec<(u64, usize, u64)> = Vec::new();
            for deed in deeds {
                match deed {
                    Deed::Push(version) => {
                        buffer.push(version, vec![event("a", "x")]);
                        all.push(version.max(all.last().map_or(1, |last| last + 1)));
                    }
                    Deed::Subscribe(asked) => {
                        let oldest = all.len().saturating_sub(most);
                        let kept = all.iter().enumerate().skip(oldest);
                        let place = kept.clone().find(|(_, index)| **index >= asked).or(kept.last());
                        subscribers.push((buffer.position(asked), place.map_or(0, |(place, _)| place), 0));
                    }
                    Deed::Take(nth) => {
                        let Some((position, place, last)) = subscribers.get_mut(nth) else { continue };
                        match buffer.at(*position) {
                            Next::Commit(commit) => {
                                prop_assert_eq!(Some(&commit.index()), all.get(*place));
                                prop_assert!(commit.index() > *last, "indexes strictly increase");
                                (*position, *place, *last) = (*position + 1, *place + 1, commit.index());
                            }
                            Next::Later => prop_assert_eq!(*place, all.len()),
                            Next::Gone => prop_assert!(*place + most < all.len(), "it is there still"),
                        }
                    }
                }
                prop_assert!(buffer.entries.len() <= most);
            }
        }
    }
}
