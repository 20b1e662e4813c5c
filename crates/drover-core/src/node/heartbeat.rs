//! Which nodes have been silent for too long (`spec/scheduler.md`, 11; DESIGN, section 2).
//!
//! Time here is that of one process's monotonic clock, as a duration since its start. A beat counts when this process saw the
//! Lease change, never by what another machine wrote into it. Silence of the leader's own never counts against a node: the
//! leader renews its own Lease and sees that in the same watch; a gap between two of these proofs means that the watch was
//! not live, and after it every live node has a fresh start.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::NodeName;

/// How long every live node has after a new leader began, or could see again.
pub const FRESH_START: Duration = Duration::from_mins(5);

/// When nodes were last heard of.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Silence that is still fine: the TTL and the grace.
    allowed: Duration,
    /// Longest gap between two proofs that the watch is live.
    proof_gap: Duration,
    last_proof: Option<Duration>,
    deadlines: BTreeMap<NodeName, Duration>,
}

impl Ledger {
    /// A ledger for nodes that may be silent for `allowed`, in a term whose proofs come at least every `proof_gap`.
    pub fn new(allowed: Duration, proof_gap: Duration) -> Self {
        Self { allowed, proof_gap, last_proof: None, deadlines: BTreeMap::new() }
    }

    /// Changes how long nodes may be silent, from their next beats on.
    pub fn set_allowed(&mut self, allowed: Duration) {
        self.allowed = allowed;
    }

    /// A node that was known before this term: it has a fresh start.
    pub fn expect(&mut self, node: NodeName, now: Duration) {
        self.deadlines.entry(node).or_insert(now + FRESH_START);
    }

    /// A node was heard of.
    pub fn beat(&mut self, node: NodeName, now: Duration) {
        let deadline = now + self.allowed;
        let entry = self.deadlines.entry(node).or_insert(deadline);
        *entry = deadline;
    }

    /// A node is not waited for any more: it is gone, or marked.
    pub fn forget(&mut self, node: &NodeName) {
        self.deadlines.remove(node);
    }

    /// The leader saw its own renewal in the watch. After a gap every node has a fresh start.
    pub fn prove_live(&mut self, now: Duration) {
        if self.last_proof.is_some_and(|last| now.saturating_sub(last) > self.proof_gap) {
            self.blink(now);
        }
        self.last_proof = Some(now);
    }

    /// The watch began anew: what happened meanwhile was not seen.
    pub fn blink(&mut self, now: Duration) {
        for deadline in self.deadlines.values_mut() {
            *deadline = (*deadline).max(now + FRESH_START);
        }
        self.last_proof = Some(now);
    }

    /// Nodes whose silence is proven: their deadline has passed, and the watch was live after it.
    pub fn silent(&self) -> Vec<NodeName> {
        let Some(proof) = self.last_proof else { return Vec::new() };
        self.deadlines.iter().filter(|(_, deadline)| **deadline < proof).map(|(node, _)| node.clone()).collect()
    }
}

/// The TTL for a number of nodes: `minimum` times a power of two, so that they beat at most `rate` times per second together.
pub fn ttl(minimum: Duration, n_nodes: usize, rate: u32) -> Duration {
    let mut ttl = minimum.max(Duration::from_millis(1));
    let needed = u128::try_from(n_nodes).unwrap_or(u128::MAX).saturating_mul(1000) / u128::from(rate.max(1));
    while ttl.as_millis() < needed && ttl < Duration::from_hours(24) {
        ttl *= 2;
    }
    ttl
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn names(ledger: &Ledger) -> Vec<String> {
        ledger.silent().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_silent_node_is_named_once_the_watch_is_proven_live_after_its_deadline() {
        let mut ledger = Ledger::new(s(20), s(4));
        ledger.prove_live(s(0));
        ledger.beat("a".into(), s(0));
        for second in (2..=20).step_by(2) {
            ledger.prove_live(s(second));
        }
        assert_eq!(names(&ledger), Vec::<String>::new());
        ledger.prove_live(s(22));
        assert_eq!(names(&ledger), ["a"]);
    }

    #[test]
    fn silence_of_the_leaders_own_gives_every_node_a_fresh_start() {
        let mut ledger = Ledger::new(s(4), s(1));
        ledger.prove_live(s(0));
        ledger.beat("a".into(), s(0));
        ledger.prove_live(s(60));
        assert_eq!(names(&ledger), Vec::<String>::new());
        for second in 61..=359 {
            ledger.prove_live(s(second));
        }
        assert_eq!(names(&ledger), Vec::<String>::new());
        ledger.prove_live(s(360));
        ledger.prove_live(s(361));
        assert_eq!(names(&ledger), ["a"]);
    }

    #[test]
    fn a_new_term_waits_for_nodes_it_has_not_heard_of() {
        let mut ledger = Ledger::new(s(20), s(4));
        ledger.expect("a".into(), s(0));
        let mut second = 0;
        while second <= 300 {
            ledger.prove_live(s(second));
            assert_eq!(names(&ledger), Vec::<String>::new());
            second += 2;
        }
        ledger.prove_live(s(302));
        assert_eq!(names(&ledger), ["a"]);
    }

    #[test]
    fn s_171_the_ttl_follows_the_number_of_nodes_and_a_node_expires_10_s_after_it() {
        // Where the reference adds a random part to each answer, here every agent spreads its own renewals.
        assert_eq!((ttl(s(10), 100, 50), ttl(s(10), 1000, 50)), (s(10), s(20)));
        let mut ledger = Ledger::new(ttl(s(10), 1000, 50) + s(10), s(4));
        ledger.beat("a".into(), s(0));
        for second in (0..=30).step_by(2) {
            ledger.prove_live(s(second));
            assert_eq!(names(&ledger), Vec::<String>::new(), "after {second} s");
        }
        ledger.prove_live(s(32));
        assert_eq!(names(&ledger), ["a"]);
    }

    #[test]
    fn the_ttl_grows_in_powers_of_two() {
        for (nodes, wanted) in [(1, 10), (2500, 10), (2501, 20), (5000, 20), (10_000, 40)] {
            assert_eq!(ttl(s(10), nodes, 250), s(wanted), "{nodes}");
        }
    }
}
