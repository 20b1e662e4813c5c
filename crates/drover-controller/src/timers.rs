//! The timers of a leader: what is looked at again, and when. One ordered map, so that equal times keep their order.

use std::collections::BTreeMap;

use drover_api::job::EvalTrigger;
use drover_core::ids::{AllocKey, JobKey, NodeName, ObjectKey};
use tokio::time::Instant;

/// Names a timer: its time, and a number that no other one has.
pub(crate) type TimerId = (Instant, u64);

/// What to look at again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Evaluate(JobKey, EvalTrigger),
    JobStatus(JobKey),
    Launch(JobKey),
    NodeStatus(NodeName),
    /// The queue of node statuses that are not urgent.
    StatusQueue,
    Deployment(ObjectKey),
    DeploymentBatch(ObjectKey),
    DeploymentWindow,
    /// The finalizer of an allocation.
    Settle(AllocKey),
    /// The stop of an allocation that a person asked for.
    StopAlloc(AllocKey),
    Volume(ObjectKey),
    HostVolume(ObjectKey),
    Attachment(String),
    /// The slices of an allocation.
    Endpoints(AllocKey),
    ClaimGc,
    FreeJob(JobKey),
    NodeGone(NodeName),
    NodeSilent(NodeName),
    Drain(NodeName),
    Drains,
    Garbage,
    Ttl,
}

/// Timers by their time.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    wakes: BTreeMap<TimerId, Wake>,
    n_set: u64,
}

impl Timers {
    /// Sets a timer.
    pub(crate) fn set(&mut self, at: Instant, wake: Wake) -> TimerId {
        self.n_set += 1;
        self.wakes.insert((at, self.n_set), wake);
        (at, self.n_set)
    }

    /// Takes a timer back; one that has gone off is none any more.
    pub(crate) fn cancel(&mut self, timer: &TimerId) {
        self.wakes.remove(timer);
    }

    /// The next thing whose time has come.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Wake> {
        let first = self.wakes.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// When the next one goes off.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.wakes.keys().next().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn of(name: &str) -> Wake {
        Wake::NodeGone(NodeName::from(name))
    }

    #[test]
    fn timers_go_off_in_the_order_of_their_times_and_then_of_their_setting() {
        let (now, mut timers) = (Instant::now(), Timers::default());
        let later = now + Duration::from_secs(1);
        timers.set(later, of("c"));
        timers.set(now, of("a"));
        timers.set(now, of("b"));
        assert_eq!(timers.next(), Some(now));
        let due: Vec<Wake> = std::iter::from_fn(|| timers.pop_due(now)).collect();
        assert_eq!(due, [of("a"), of("b")]);
        assert_eq!(timers.next(), Some(later));
        assert_eq!(timers.pop_due(later), Some(of("c")));
        assert_eq!((timers.next(), timers.pop_due(later)), (None, None));
    }

    #[test]
    fn a_timer_that_is_cancelled_never_goes_off_and_others_of_its_time_do() {
        let (now, mut timers) = (Instant::now(), Timers::default());
        let first = timers.set(now, of("a"));
        timers.set(now, of("b"));
        timers.cancel(&first);
        timers.cancel(&first);
        assert_eq!(timers.pop_due(now), Some(of("b")));
        assert_eq!(timers.pop_due(now), None);
    }
}
