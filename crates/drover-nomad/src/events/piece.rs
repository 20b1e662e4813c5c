//! Lines in pieces, each made once for all who get the same.
//!
//! Those who follow the present are woken together, and most of them are to have the same events. A line may be as
//! large as a plan of thousands of allocations.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::buffer::Commit;
use super::event::Event;

/// Pieces that are kept: those of so many different subscriptions which follow the present. Others are made again.
const MOST: usize = 16;

/// What of the buffer a subscriber gets at once: of each commit from a position on, which of its events.
#[derive(Debug)]
pub struct Picked {
    key: Key,
    commits: Vec<Arc<Commit>>,
    n_bytes: usize,
}

/// Of the commits from a position on, the places of the events that are shown. What is at a position never changes.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    from: u64,
    shown: Vec<Vec<usize>>,
}

impl Picked {
    /// Nothing yet, from this position on.
    pub const fn from(position: u64) -> Self {
        Self { key: Key { from: position, shown: Vec::new() }, commits: Vec::new(), n_bytes: 0 }
    }

    /// Adds the next commit, of which these events are shown, by their places.
    pub fn add(&mut self, commit: Arc<Commit>, shown: Vec<usize>) {
        self.n_bytes += events(&commit, &shown).map(|event| event.text().len()).sum::<usize>();
        self.key.shown.push(shown);
        self.commits.push(commit);
    }

    /// About how many bytes its lines have; 0: nothing is shown.
    pub const fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    fn lines(&self) -> String {
        let commits = self.commits.iter().zip(&self.key.shown);
        commits.filter_map(|(commit, shown)| commit.line(events(commit, shown))).collect()
    }
}

fn events<'a>(commit: &'a Commit, shown: &'a [usize]) -> impl Iterator<Item = &'a Event> {
    shown.iter().filter_map(|place| commit.events().get(*place))
}

/// The newest pieces, of one buffer; clones share them.
#[derive(Clone, Debug, Default)]
pub struct EventPieces {
    newest: Arc<Mutex<VecDeque<(Key, Bytes)>>>,
}

impl EventPieces {
    /// The lines of what was picked; empty: nothing is shown.
    pub fn piece(&self, picked: Picked) -> Bytes {
        if picked.n_bytes == 0 {
            return Bytes::new();
        }
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, piece)) = newest.iter().rev().find(|(key, _)| *key == picked.key) {
            return piece.clone();
        }
        // Who wants the same meanwhile waits for it, instead of making it too.
        let piece = Bytes::from(picked.lines());
        newest.push_back((picked.key, piece.clone()));
        if newest.len() > MOST {
            newest.pop_front();
        }
        piece
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::buffer::tests::event;
    use super::super::buffer::{Buffer, Next};
    use super::*;

    fn commits(sizes: &[usize]) -> Vec<Arc<Commit>> {
        let mut buffer = Buffer::new(sizes.len());
        for (n, size) in sizes.iter().enumerate() {
            let events = (0..*size).map(|place| event("a", &format!("job-{n}-{place}")));
            buffer.push(n as u64, events.collect());
        }
        let at = |position| match buffer.at(position) {
            Next::Commit(commit) => commit,
            Next::Later | Next::Gone => panic!("no entry"),
        };
        (0..sizes.len() as u64).map(at).collect()
    }

    fn picked(commits: &[Arc<Commit>], (from, shown): &(usize, Vec<Vec<usize>>)) -> Picked {
        let mut picked = Picked::from(*from as u64);
        for (commit, shown) in commits[*from..].iter().zip(shown) {
            picked.add(Arc::clone(commit), shown.clone());
        }
        picked
    }

    #[test]
    fn who_wants_the_same_gets_the_same_bytes_and_few_pieces_are_kept() {
        let (commits, pieces) = (commits(&[2; 40]), EventPieces::default());
        let first = pieces.piece(picked(&commits, &(3, vec![vec![0, 1], vec![1]])));
        let again = pieces.clone().piece(picked(&commits, &(3, vec![vec![0, 1], vec![1]])));
        assert_eq!((first.as_ptr(), first.len()), (again.as_ptr(), again.len()), "it is not made twice");
        for from in 4..40 {
            assert!(!pieces.piece(picked(&commits, &(from, vec![vec![0]]))).is_empty());
        }
        assert_eq!(pieces.newest.lock().expect("no panic").len(), MOST);
        assert_eq!(pieces.piece(picked(&commits, &(3, vec![vec![], vec![]]))), Bytes::new());
    }

    proptest! {
        /// Beside it the lines of each alone.
        #[test]
        fn each_gets_the_lines_of_what_was_picked_for_it(
            sizes in proptest::collection::vec(0..4_usize, 6),
            asked in proptest::collection::vec(
                (0..6_usize, proptest::collection::vec(proptest::collection::vec(0..4_usize, 0..3), 0..3)),
                1..60,
            ),
        ) {
            let (commits, pieces) = (commits(&sizes), EventPieces::default());
            for one in &asked {
                let lines = commits[one.0..].iter().zip(&one.1).filter_map(|(commit, shown)| {
                    commit.line(shown.iter().filter_map(|place| commit.events().get(*place)))
                });
                let wanted: String = lines.collect();
                prop_assert_eq!(pieces.piece(picked(&commits, one)), wanted);
            }
        }
    }
}
