//! Heartbeats: the renewal of this node's Lease, and the time to live that the controller publishes for all nodes.
//!
//! Registration renews at once; then come renewals spread over the time to live. A failed renewal is tried again by the
//! table of `spec/agent.md` section 1.4. Losing the API server changes nothing for tasks.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::core::ObjectMeta;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::random::Random;
use crate::watch;
use drover_clock::SharedClock;
use drover_store::{Change, Key, Object, Selection, Store, StoreError};

/// The `ConfigMap` in drover's namespace by which the controller publishes the time to live, and its key.
const CONFIG_MAP: &str = "drover-heartbeat";
const TTL_KEY: &str = "ttlSeconds";

/// Keeps the node's Lease.
#[derive(Debug)]
pub(crate) struct Heartbeat<S> {
    pub(crate) store: S,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) node: String,
    pub(crate) namespace: String,
    /// The time to live, as watched.
    pub(crate) ttl: watch::Receiver<Duration>,
    /// The API server answers again.
    pub(crate) reachable: Arc<Notify>,
    /// A renewal is wanted at once.
    pub(crate) wanted: Arc<Notify>,
    /// Time of the last renewal that was accepted.
    pub(crate) last_ok: watch::Sender<Option<Instant>>,
}

impl<S: Store> Heartbeat<S> {
    /// Renews until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut lease = None;
        let mut is_first = true;
        loop {
            let ttl = *self.ttl.borrow();
            let pause = match self.renew(&mut lease, ttl).await {
                Ok(()) => {
                    self.last_ok.send_replace(Some(Instant::now()));
                    if std::mem::take(&mut is_first) { self.random.below(ttl) } else { ttl }
                }
                Err(error) => {
                    lease = None;
                    let since = self.last_ok.borrow().map(|at| at.elapsed());
                    let pause = retry_pause(ttl, since, self.random.unit());
                    tracing::warn!(error = %error, retry_in = ?pause, "heartbeat was not accepted");
                    pause
                }
            };
            tokio::select! {
                biased;
                () = self.wanted.notified() => {}
                // Renewals that are not late wait for their time.
                () = self.reachable.notified(), if lease.is_none() => {}
                // A new time to live may be shorter than what is waited for.
                Ok(()) = self.ttl.changed() => {
                    let ttl = *self.ttl.borrow_and_update();
                    tokio::time::sleep(self.random.below(ttl.min(pause))).await;
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn renew(&self, known: &mut Option<Lease>, ttl: Duration) -> Result<(), StoreError> {
        let now = self.clock.now();
        let key = Key::namespaced(self.namespace.as_str(), drover_api::names::node_lease_name(&self.node));
        if known.is_none() {
            *known = self.store.get(&key).await?;
        }
        if let Some(mut lease) = known.take() {
            lease.metadata.managed_fields = None;
            lease.spec = Some(self.spec(lease.spec.take().and_then(|spec| spec.acquire_time), now, ttl));
            match self.store.replace(&lease).await {
                // Somebody took it away: a node that beats has one.
                Err(StoreError::NotFound(_)) => {}
                result => {
                    *known = Some(result?);
                    return Ok(());
                }
            }
        }
        let metadata = ObjectMeta { name: Some(key.name), namespace: key.namespace, ..ObjectMeta::default() };
        *known = Some(self.store.create(&Lease { metadata, spec: Some(self.spec(None, now, ttl)) }).await?);
        Ok(())
    }

    fn spec(&self, acquired: Option<MicroTime>, now: Timestamp, ttl: Duration) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.node.clone()),
            lease_duration_seconds: i32::try_from(ttl.as_secs().max(1)).ok(),
            acquire_time: acquired.or(Some(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }
    }
}

/// The pause after a failed renewal. `since` is the time since the last accepted one, `unit` a random number in [0, 1).
fn retry_pause(ttl: Duration, since: Option<Duration>, unit: f64) -> Duration {
    let second = Duration::from_secs(1);
    let spread = |base: Duration, by: Duration| base + by.mul_f64(unit);
    let Some(since) = since else { return spread(Duration::from_secs(15), Duration::from_secs(15)) };
    let overdue = since.saturating_sub(ttl);
    let half_minute = Duration::from_secs(30);
    if since > ttl && overdue <= half_minute {
        return spread(second, second);
    }
    let left = if since > ttl { overdue } else { ttl.saturating_sub(since) };
    let pause = left.mul_f64(unit);
    if pause < second {
        spread(second, second)
    } else if pause > half_minute {
        spread(Duration::from_secs(25), Duration::from_secs(5))
    } else {
        pause
    }
}

/// Follows the time to live that the controller publishes. Runs until it is dropped.
pub(crate) async fn follow_ttl<S: Store>(store: S, namespace: String, ttl: watch::Sender<Duration>) {
    let fields = Some(format!("metadata.name={CONFIG_MAP}"));
    let mut changes = store.watch::<ConfigMap>(Selection { namespace: Some(namespace), fields, labels: None });
    while let Some(change) = changes.next().await {
        match change {
            Change::Present(map) => match published(&map) {
                Ok(published) => {
                    ttl.send_if_modified(|known| std::mem::replace(known, published) != published);
                }
                Err(value) => tracing::warn!(key = %map.key(), value, "{TTL_KEY} is not a number of seconds above 0"),
            },
            Change::Interrupted(reason) => tracing::debug!(reason, "watch of the heartbeat settings is interrupted"),
            Change::Malformed(key, reason) => tracing::warn!(key = %key, reason, "heartbeat settings cannot be read"),
            Change::Restarted | Change::InSync | Change::Gone(_) => {}
        }
    }
}

fn published(map: &ConfigMap) -> Result<Duration, String> {
    let text = map.data.as_ref().and_then(|data| data.get(TTL_KEY)).cloned().unwrap_or_default();
    match text.trim().parse::<u64>() {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        Ok(_) | Err(_) => Err(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_009_within_the_ttl_the_retry_comes_before_it_ends() {
        for unit in [0.0, 0.3, 0.99] {
            let pause = retry_pause(s(20), Some(s(5)), unit);
            assert!(pause >= s(1) && pause <= s(15), "{pause:?}");
        }
    }

    #[test]
    fn a_010_just_after_the_ttl_the_retry_is_quick() {
        for unit in [0.0, 0.5, 0.99] {
            let pause = retry_pause(s(10), Some(s(20)), unit);
            assert!(pause >= s(1) && pause < s(2), "{pause:?}");
        }
    }

    #[test]
    fn a_011_a_node_that_was_never_heard_waits() {
        for unit in [0.0, 0.99] {
            let pause = retry_pause(s(10), None, unit);
            assert!(pause >= s(15) && pause < s(30), "{pause:?}");
        }
    }

    #[test]
    fn long_after_the_ttl_retries_are_spread_but_at_most_half_a_minute() {
        assert_eq!(retry_pause(s(10), Some(s(1000)), 0.99), s(25) + s(5).mul_f64(0.99));
        assert_eq!(retry_pause(s(10), Some(s(60)), 0.5), s(25));
    }
}
