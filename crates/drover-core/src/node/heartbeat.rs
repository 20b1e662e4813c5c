//! Which nodes have been silent for too long (`spec/scheduler.md`, 11; DESIGN, section 2).
//!
//! Time here is that of one process's monotonic clock, as a duration since its start. A beat counts when this process
//! saw the Lease change, never by what another machine wrote into it. Silence of the leader's own never counts against
//! a node: the leader renews its own Lease and sees that in the same watch; a gap between two of these proofs means
//! that the watch was not live, and after it every live node has a fresh start.
//!
//! Where most of a pool falls silent at once, it is rather a switch that fails than all these nodes: they are then
//! marked one after the other. Whether it is so is asked of the nodes whose heartbeats were due since the first missing
//! one: of those, how many came?

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ids::NodeName;

/// How long every live node has after a new leader began, or could see again.
pub const FRESH_START: Duration = Duration::from_mins(5);
/// Marking never slows for a pool of fewer nodes.
pub const LEAST_POOL: usize = 5;
/// Nor while fewer heartbeats are missing: the least of such a pool that are most of it.
pub const LEAST_MISSING: usize = 3;
/// Percent of a pool's heartbeats beyond which missing ones slow marking.
pub const MOST_MISSING: usize = 55;
/// Pause between two marks in a pool whose marking is slowed.
pub const SLOW_PAUSE: Duration = Duration::from_secs(10);

/// An agent that was disconnected tries again at least that often: so long marking stays slow after most of a pool are
/// heard of again.
pub const RETURN: Duration = Duration::from_secs(30);

/// When nodes were last heard of.
#[derive(Clone, Debug)]
pub struct Ledger {
    allowed: Allowed,
    /// Longest gap between two proofs that the watch is live.
    proof_gap: Duration,
    last_proof: Option<Duration>,
    nodes: BTreeMap<NodeName, Heard>,
    /// Nodes that were marked not long ago, or while marking is slowed.
    marked: BTreeMap<NodeName, HeartbeatMark>,
    /// Nodes whose heartbeat was missing when another one was marked, and that were not heard of since.
    suspects: BTreeSet<NodeName>,
    /// Until when marking is slow in a pool.
    slow_until: BTreeMap<String, Duration>,
    /// When a node of a pool was marked last, where that was not long ago.
    last_marks: BTreeMap<String, Duration>,
}

/// Silence that is still fine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The time between two heartbeats of a node.
    pub ttl: Duration,
    /// How long one may be late.
    pub grace: Duration,
}

impl Allowed {
    fn sum(self) -> Duration {
        self.ttl + self.grace
    }
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    /// The last heartbeat, or since when one is waited for.
    since: Duration,
    deadline: Duration,
}

#[derive(Clone, Debug)]
struct HeartbeatMark {
    pool: String,
    /// When the heartbeat was due that did not come.
    due: Duration,
    at: Duration,
}

/// What silence is proven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Nodes to mark now. They are not waited for any more.
    pub nodes: Vec<NodeName>,
    /// Pools in which others are left for later.
    pub slowed: Vec<Slowed>,
    /// Nodes that are late beside nodes that were marked: what took those may have taken them too, so that what is
    /// placed on them would soon be lost again. Their own deadline is still to come.
    pub suspects: BTreeSet<NodeName>,
}

/// A pool whose nodes are marked one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slowed {
    /// The pool.
    pub pool: String,
    /// Its nodes that are silent, whether they are marked or not.
    pub n_silent: usize,
    /// Its nodes.
    pub n_nodes: usize,
    /// Its silent nodes that are not marked yet.
    pub held: Vec<NodeName>,
}

/// What heartbeats say of a pool.
#[derive(Debug, Default)]
struct PoolTally {
    n_nodes: usize,
    n_missing: usize,
    /// Heartbeats that came since the first missing one was due.
    n_came: usize,
    /// When the first missing one was due.
    first_missing: Option<Duration>,
}

impl PoolTally {
    fn miss(&mut self, due: Duration) {
        self.n_missing += 1;
        self.first_missing = Some(self.first_missing.map_or(due, |first| first.min(due)));
    }

    fn is_mass(&self) -> bool {
        let is_much = self.n_nodes >= LEAST_POOL && self.n_missing >= LEAST_MISSING;
        is_much && self.n_missing * 100 > (self.n_missing + self.n_came) * MOST_MISSING
    }
}

impl Ledger {
    /// A ledger for nodes that may be silent for so long, in a term whose proofs come at least every `proof_gap`.
    pub fn new(allowed: Allowed, proof_gap: Duration) -> Self {
        Self {
            allowed,
            proof_gap,
            last_proof: None,
            nodes: BTreeMap::new(),
            marked: BTreeMap::new(),
            suspects: BTreeSet::new(),
            slow_until: BTreeMap::new(),
            last_marks: BTreeMap::new(),
        }
    }

    /// Changes how long nodes may be silent, from their next beats on.
    pub fn set_allowed(&mut self, allowed: Allowed) {
        self.allowed = allowed;
    }

    /// A node that was known before this term: it has a fresh start.
    pub fn expect(&mut self, node: NodeName, now: Duration) {
        self.nodes.entry(node).or_insert(Heard { since: now, deadline: now + FRESH_START });
    }

    /// A node was heard of.
    pub fn beat(&mut self, node: NodeName, now: Duration) {
        self.marked.remove(&node);
        self.suspects.remove(&node);
        self.nodes.insert(node, Heard { since: now, deadline: now + self.allowed.sum() });
    }

    /// A node is not waited for any more: it is gone.
    pub fn forget(&mut self, node: &NodeName) {
        self.nodes.remove(node);
        self.marked.remove(node);
        self.suspects.remove(node);
    }

    /// The leader saw its own renewal in the watch. After a gap every node has a fresh start.
    pub fn prove_live(&mut self, now: Duration) {
        if self.last_proof.is_some_and(|last| now.saturating_sub(last) > self.proof_gap) {
            self.blink(now);
        }
        self.last_proof = Some(now);
    }

    /// The watch restarted: what happened meanwhile was not seen.
    pub fn blink(&mut self, now: Duration) {
        for heard in self.nodes.values_mut() {
            *heard = Heard { since: now, deadline: heard.deadline.max(now + FRESH_START) };
        }
        self.suspects.clear();
        self.last_proof = Some(now);
    }

    /// Takes the nodes out whose silence is proven: their deadline has passed, and the watch was live after it. In a
    /// pool of which most fell silent at once, one at a time. `pool_of` names a node's pool. O(nodes).
    pub fn expire<'a>(&mut self, pool_of: impl Fn(&NodeName) -> Option<&'a str>) -> Expired {
        let Some(proof) = self.last_proof else { return Expired::default() };
        let over = self.nodes.iter().filter(|(_, heard)| heard.deadline < proof);
        let mut silent: BTreeMap<Option<&str>, Vec<(Duration, NodeName)>> = BTreeMap::new();
        for (node, heard) in over {
            silent.entry(pool_of(node)).or_default().push((heard.deadline, node.clone()));
        }
        self.marked.retain(|_, mark| mark.at + self.allowed.ttl >= proof || silent.contains_key(&Some(&*mark.pool)));
        self.slow_until.retain(|_, until| *until > proof);
        self.last_marks.retain(|_, at| *at + SLOW_PAUSE > proof);
        let mut expired = Expired::default();
        if silent.is_empty() {
            expired.suspects.clone_from(&self.suspects);
            return expired;
        }
        let tallies = self.tally(&silent.keys().copied().flatten().collect(), &pool_of, proof);
        for (pool, mut nodes) in silent {
            nodes.sort();
            let tally = pool.and_then(|pool| Some((pool, tallies.get(pool)?)));
            if let Some((pool, tally)) = tally.filter(|(pool, tally)| self.is_slow(pool, tally, proof)) {
                let n_now = usize::from(!self.last_marks.contains_key(pool));
                let held = nodes.split_off(n_now.min(nodes.len()));
                expired.slowed.push(Slowed {
                    pool: pool.to_owned(),
                    n_silent: tally.n_missing,
                    n_nodes: tally.n_nodes,
                    held: held.into_iter().map(|(_, node)| node).collect(),
                });
            }
            for (_, node) in nodes {
                self.mark(&node, pool, proof);
                expired.nodes.push(node);
            }
        }
        expired.slowed.retain(|slowed| !slowed.held.is_empty());
        if !expired.nodes.is_empty() {
            self.suspect_late(proof);
        }
        expired.suspects.clone_from(&self.suspects);
        expired
    }

    /// Suspects all whose heartbeat is missing and not merely on its way.
    fn suspect_late(&mut self, proof: Duration) {
        let late_after = self.allowed.ttl + self.on_its_way();
        let late = self.nodes.iter().filter(|(_, heard)| heard.since + late_after < proof);
        self.suspects.extend(late.map(|(node, _)| node.clone()));
    }

    /// How late a heartbeat may be without being missing.
    fn on_its_way(&self) -> Duration {
        self.allowed.grace / 5
    }

    /// Whether marking is slow in a pool: most of it is missing, or was not long ago.
    fn is_slow(&mut self, pool: &str, tally: &PoolTally, proof: Duration) -> bool {
        if tally.is_mass() {
            self.slow_until.insert(pool.to_owned(), proof + self.allowed.ttl.max(RETURN));
        }
        self.slow_until.contains_key(pool)
    }

    fn mark(&mut self, node: &NodeName, pool: Option<&str>, proof: Duration) {
        self.suspects.remove(node);
        let Some(heard) = self.nodes.remove(node) else { return };
        if let Some(pool) = pool {
            let due = heard.since + self.allowed.ttl;
            self.last_marks.insert(pool.to_owned(), proof);
            self.marked.insert(node.clone(), HeartbeatMark { pool: pool.to_owned(), due, at: proof });
        }
    }

    /// Counts the heartbeats of these pools that came, and those that did not.
    fn tally<'a>(
        &self,
        pools: &BTreeSet<&'a str>,
        pool_of: &impl Fn(&NodeName) -> Option<&'a str>,
        proof: Duration,
    ) -> BTreeMap<&'a str, PoolTally> {
        let mut tallies: BTreeMap<&str, PoolTally> = pools.iter().map(|pool| (*pool, PoolTally::default())).collect();
        let on_its_way = self.on_its_way();
        for (node, heard) in &self.nodes {
            let Some(tally) = pool_of(node).and_then(|pool| tallies.get_mut(pool)) else { continue };
            tally.n_nodes += 1;
            let due = heard.since + self.allowed.ttl;
            if (due + on_its_way).min(heard.deadline) < proof {
                tally.miss(due);
            }
        }
        for mark in self.marked.values() {
            let Some(tally) = tallies.get_mut(&*mark.pool) else { continue };
            tally.n_nodes += 1;
            tally.miss(mark.due);
        }
        for (node, heard) in &self.nodes {
            let Some(tally) = pool_of(node).and_then(|pool| tallies.get_mut(pool)) else { continue };
            // Those that came just before were due at the same time as the first missing one.
            let is_counted = |first| heard.since + on_its_way / 2 >= first && heard.since + on_its_way < proof;
            tally.n_came += usize::from(tally.first_missing.is_some_and(is_counted));
        }
        tallies
    }
}

/// The TTL for a number of nodes: `minimum` times a power of two, so that they beat at most `rate` times per second
/// together.
pub fn ttl(minimum: Duration, n_nodes: usize, rate: u32) -> Duration {
    let mut ttl = minimum.max(Duration::from_millis(1));
    let needed = u128::try_from(n_nodes).unwrap_or(u128::MAX).saturating_mul(1000) / u128::from(rate.max(1));
    while ttl.as_millis() < needed && ttl < Duration::from_hours(24) {
        ttl *= 2;
    }
    ttl
}

#[cfg(test)]
mod tests;
