//! The queue of node statuses whose change can wait, such as the number of allocations on a node.
//!
//! They are written when nothing is being placed, a few at the same time, and while something is, one now and then:
//! each placement changes the status of its node too, and would cost the API server twice. Must never know what a
//! status says.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use drover_core::ids::NodeName;
use tokio::time::Instant;

/// Writes that are under way at the same time.
const SIDE_BY_SIDE: usize = 8;
/// Pause between two while plans are written.
const PACE: Duration = Duration::from_millis(50);

/// Nodes whose status is to be written when there is time.
#[derive(Debug, Default)]
pub(crate) struct StatusQueue {
    waiting: VecDeque<NodeName>,
    members: BTreeSet<NodeName>,
    under_way: BTreeSet<NodeName>,
    began_at: Option<Instant>,
}

/// What the line does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum QueueTurn {
    /// This one's status may be written now.
    Of(NodeName),
    /// None may before that time.
    At(Instant),
    /// None waits, or one that is under way must end first.
    Nobody,
}

impl StatusQueue {
    /// Puts a node at the end, where it does not wait already.
    pub(crate) fn join(&mut self, node: &NodeName) {
        if self.members.insert(node.clone()) {
            self.waiting.push_back(node.clone());
        }
    }

    /// Takes the first one out whose turn it is.
    pub(crate) fn next(&mut self, is_placing: bool, now: Instant) -> QueueTurn {
        if self.under_way.len() >= SIDE_BY_SIDE {
            return QueueTurn::Nobody;
        }
        let may_begin_at = self.began_at.filter(|_| is_placing && !self.waiting.is_empty()).map(|at| at + PACE);
        if let Some(at) = may_begin_at.filter(|at| *at > now) {
            return QueueTurn::At(at);
        }
        let Some(node) = self.waiting.pop_front() else { return QueueTurn::Nobody };
        self.members.remove(&node);
        self.began_at = Some(now);
        QueueTurn::Of(node)
    }

    /// A write has begun.
    pub(crate) fn begin(&mut self, node: &NodeName) {
        self.under_way.insert(node.clone());
    }

    /// A write has ended, of one from this line or another.
    pub(crate) fn end(&mut self, node: &NodeName) {
        self.under_way.remove(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(nodes: u64) -> StatusQueue {
        let mut line = StatusQueue::default();
        for node in (0..nodes).chain(0..nodes) {
            line.join(&NodeName::from(format!("n-{node}")));
        }
        line
    }

    fn node(number: usize) -> QueueTurn {
        QueueTurn::Of(NodeName::from(format!("n-{number}")))
    }

    #[test]
    fn a_few_are_written_at_the_same_time_when_nothing_is_placed_and_each_once() {
        let (mut line, now) = (line(10), Instant::now());
        for number in 0..SIDE_BY_SIDE {
            assert_eq!(line.next(false, now), node(number));
            line.begin(&NodeName::from(format!("n-{number}")));
        }
        assert_eq!(line.next(false, now), QueueTurn::Nobody);
        line.end(&"n-3".into());
        assert_eq!(line.next(false, now), node(SIDE_BY_SIDE));
        assert_eq!(line.next(false, now), node(SIDE_BY_SIDE + 1));
        assert_eq!(line.next(false, now), QueueTurn::Nobody);
    }

    #[test]
    fn one_now_and_then_is_written_while_something_is_placed() {
        let (mut line, now) = (line(3), Instant::now());
        assert_eq!(line.next(true, now), node(0));
        assert_eq!(line.next(true, now), QueueTurn::At(now + PACE));
        assert_eq!(line.next(true, now + PACE), node(1));
        assert_eq!(line.next(false, now + PACE), node(2), "nothing is placed any more");
        assert_eq!(line.next(true, now + PACE), QueueTurn::Nobody);
    }
}
