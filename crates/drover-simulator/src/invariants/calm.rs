//! Since when nothing is wrong between controller and API server: what is late then has no excuse.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_api::LEADER_LEASE;
use drover_store::memory::Stored;
use serde_json::Value;

use crate::link::Client;

/// How long after a fault calls and watches may still suffer from it: their time-out.
const TAIL: Duration = Duration::from_secs(5);
/// How long a leader may act after its last renewal.
const RENEWS_WITHIN: Duration = Duration::from_secs(10);

/// What can be wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    Outage,
    Slowness,
    Conflicts,
    TwoLeaders,
    LeaseWatch,
    ClockStep,
}

/// The leader, as its Lease shows it.
#[derive(Clone, Debug)]
struct Leader {
    client: Client,
    acquired: Value,
    since: Duration,
    renewed: Duration,
}

/// What is known of the controller's way.
#[derive(Debug, Default)]
pub(super) struct Calm {
    ongoing: BTreeSet<Trouble>,
    /// When the last of that ended.
    ended: Duration,
    leader: Option<Leader>,
}

impl Calm {
    /// Things go wrong by chance until then.
    pub(super) fn begin(&mut self, faults_until: Duration) {
        self.ended = faults_until;
    }

    /// Something goes wrong from now on, or does no more.
    pub(super) fn note(&mut self, at: Duration, trouble: Trouble, begins: bool) {
        if begins {
            self.ongoing.insert(trouble);
        } else {
            self.ongoing.remove(&trouble);
        }
        self.ended = self.ended.max(at);
    }

    /// A controller is gone.
    pub(super) fn note_crash(&mut self, client: Client) {
        if self.leader.as_ref().is_some_and(|leader| leader.client == client) {
            self.leader = None;
        }
    }

    /// A controller has taken or renewed the leader's Lease.
    pub(super) fn note_lease(&mut self, at: Duration, by: Client, lease: &Stored) {
        if lease.key.name != LEADER_LEASE {
            return;
        }
        let acquired = lease.value["spec"]["acquireTime"].clone();
        let is_same = |leader: &Leader| {
            leader.client == by && leader.acquired == acquired && at <= leader.renewed + RENEWS_WITHIN
        };
        let since = self.leader.as_ref().filter(|leader| is_same(leader)).map_or(at, |leader| leader.since);
        self.leader = Some(Leader { client: by, acquired, since, renewed: at });
    }

    /// Since when all is well; none where it is not.
    pub(super) fn since(&self, at: Duration) -> Option<Duration> {
        let leader = self.leader.as_ref().filter(|leader| at <= leader.renewed + RENEWS_WITHIN)?;
        let since = (self.ended + TAIL).max(leader.since);
        (self.ongoing.is_empty() && since <= at).then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_calm_when_all_trouble_is_over_and_a_leader_is_there() {
        let s = Duration::from_secs;
        let mut calm = Calm::default();
        calm.begin(s(20));
        assert_eq!(calm.since(s(100)), None, "no leader");
        let leader = |client, since| Leader { client, acquired: Value::Null, since: s(since), renewed: s(99) };
        calm.leader = Some(leader(Client::Controller(1), 3));
        assert_eq!(calm.since(s(100)), Some(s(25)));
        calm.note(s(50), Trouble::Outage, true);
        assert_eq!(calm.since(s(100)), None);
        calm.note(s(60), Trouble::Outage, false);
        assert_eq!(calm.since(s(100)), Some(s(65)));
        assert_eq!(calm.since(s(120)), None, "it has not renewed");
        calm.note_crash(Client::Controller(2));
        assert_eq!(calm.since(s(100)), Some(s(65)));
        calm.note_crash(Client::Controller(1));
        assert_eq!(calm.since(s(100)), None);
    }
}
