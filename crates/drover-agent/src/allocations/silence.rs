//! How long this node has been without a controller, and whose time is over for that.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_core::lifecycle::{CutOff, cut_off};
use tokio::time::Instant;

use crate::watch;

/// How long an agent that has just started waits for its first heartbeat before it counts as disconnected.
const START_GRACE: Duration = Duration::from_secs(50);

/// Measures the silence of the controller.
#[derive(Clone, Debug)]
pub(super) struct Silence {
    /// The last heartbeat that was accepted.
    last_ok: watch::Receiver<Option<Instant>>,
    started: Instant,
}

/// Whose time is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Disconnected {
    /// The uids of the allocations that end.
    pub(super) stop: Vec<String>,
    /// How long the silence has lasted.
    pub(super) silent_for: Duration,
    /// When the next one may have to end.
    pub(super) wake_after: Option<Duration>,
}

impl Silence {
    /// From now on, by these heartbeats.
    pub(super) fn new(last_ok: watch::Receiver<Option<Instant>>) -> Self {
        Self { last_ok, started: Instant::now() }
    }

    /// Waits for another heartbeat.
    pub(super) async fn heartbeat(&mut self) -> Result<(), watch::Closed> {
        self.last_ok.changed().await?;
        self.last_ok.mark_unchanged();
        Ok(())
    }

    /// Decides for allocations that may run this long without a controller.
    pub(super) fn disconnected(&self, may_run_for: &BTreeMap<String, Duration>) -> Disconnected {
        let last_ok = *self.last_ok.borrow();
        let grace = if last_ok.is_some() { Duration::ZERO } else { START_GRACE.saturating_sub(self.started.elapsed()) };
        let silent_for = last_ok.unwrap_or(self.started).elapsed();
        let CutOff { stop, wake_after } = cut_off(may_run_for, silent_for, grace);
        Disconnected { stop: stop.into_iter().map(ToString::to_string).collect(), silent_for, wake_after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(limits: &[(&str, u64)]) -> BTreeMap<String, Duration> {
        limits.iter().map(|(uid, seconds)| ((*uid).to_owned(), Duration::from_secs(*seconds))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_heartbeat_each_allocation_has_its_own_time() {
        let (heartbeats, seen) = watch::channel(None);
        let silence = Silence::new(seen);
        heartbeats.send_replace(Some(Instant::now()));
        let tracked = limits(&[("a", 10), ("b", 30)]);
        for (seconds, stop) in [(9, &[][..]), (11, &["a"]), (31, &["a", "b"])] {
            let at = Instant::now();
            heartbeats.send_replace(Some(at));
            tokio::time::advance(Duration::from_secs(seconds)).await;
            let found = silence.disconnected(&tracked);
            assert_eq!(
                (&found.stop[..], found.silent_for),
                (&stop.iter().map(|uid| (*uid).to_owned()).collect::<Vec<_>>()[..], Duration::from_secs(seconds))
            );
        }
        assert_eq!(silence.disconnected(&limits(&[])).wake_after, None, "nothing is to end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fresh_agent_waits_for_its_first_heartbeat() {
        let (_heartbeats, seen) = watch::channel(None);
        let silence = Silence::new(seen);
        tokio::time::advance(Duration::from_secs(49)).await;
        let found = silence.disconnected(&limits(&[("a", 10)]));
        assert_eq!(found.stop, [""; 0]);
        assert!(found.wake_after.is_some_and(|after| after <= Duration::from_secs(2)), "{found:?}");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(silence.disconnected(&limits(&[("a", 10)])).stop, ["a"]);
    }
}
