//! Leader election on one Lease (CONVENTIONS, section 4).
//!
//! A Lease is taken and renewed by an update with resourceVersion; its expiry is judged by when this process last saw
//! it change, never by another machine's clock. A leader that could not renew for the renew deadline has lost, whatever
//! the Lease says. A Lease is no lock: a deposed leader's writes stay harmless by their names and preconditions.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::LeaderElection;
use drover_api::LEADER_LEASE;
use drover_clock::SharedClock;
use drover_store::{Key, Store, StoreError};

/// One process's part in the election.
#[derive(Debug)]
pub(super) struct Candidate<S> {
    store: S,
    clock: SharedClock,
    key: Key,
    identity: String,
    times: LeaderElection,
    renew_period: Duration,
    seen: Option<SeenLease>,
    /// When the Lease was taken or renewed last.
    renewed_at: watch::Sender<Instant>,
}

/// Who is a candidate, and for what.
#[derive(Clone, Debug)]
pub(super) struct Candidacy<'a> {
    /// The namespace of the leader's Lease.
    pub(super) namespace: &'a str,
    /// The name of this process.
    pub(super) identity: String,
    pub(super) times: LeaderElection,
    /// The pause between a leader's renewals, at most the retry period.
    pub(super) renew_period: Duration,
}

/// What a leader may act on: its Lease, renewed a while ago at most, whatever happened to the process since.
#[derive(Clone, Debug)]
pub(super) struct LeaseGuard {
    renewed_at: watch::Receiver<Instant>,
    lasts: Duration,
}

impl LeaseGuard {
    /// Whether the renew deadline has not passed.
    pub(super) fn holds(&self) -> bool {
        self.renewed_at.borrow().elapsed() < self.lasts
    }

    /// Waits until the Lease is renewed.
    pub(super) async fn renewed(&mut self) {
        if self.renewed_at.changed().await.is_err() {
            // Nobody renews it any more; whoever waits is ended.
            std::future::pending::<()>().await;
        }
    }
}

/// The Lease as last seen, and when this process saw it change.
#[derive(Debug)]
struct SeenLease {
    holder: String,
    resource_version: Option<String>,
    changed_at: Instant,
    lease_for: Duration,
}

impl<S: Store> Candidate<S> {
    /// A candidate that has seen nothing yet.
    pub(super) fn new(store: S, clock: SharedClock, candidacy: Candidacy<'_>) -> Self {
        let Candidacy { namespace, identity, times, renew_period } = candidacy;
        let key = Key::namespaced(namespace, LEADER_LEASE);
        let renewed_at = watch::Sender::new(Instant::now());
        Self { store, clock, key, identity, times, renew_period, seen: None, renewed_at }
    }

    /// What the present term is led by.
    pub(super) fn guard(&self) -> LeaseGuard {
        LeaseGuard { renewed_at: self.renewed_at.subscribe(), lasts: self.times.renew_deadline() }
    }

    /// Waits until this process is the leader; none when `shutdown` came first.
    pub(super) async fn acquire(&mut self, shutdown: &CancellationToken) -> Option<Lease> {
        loop {
            let sent = Instant::now();
            match self.try_acquire().await {
                Ok(Some(lease)) => {
                    self.renewed_at.send_replace(sent);
                    return Some(lease);
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(lease = %self.key, %error, "the leader's lease cannot be taken"),
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return None,
                () = tokio::time::sleep(self.times.retry_period().min(self.renew_period)) => {}
            }
        }
    }

    async fn try_acquire(&mut self) -> Result<Option<Lease>, StoreError> {
        let Some(lease) = self.store.get::<Lease>(&self.key).await? else {
            let fresh = Lease {
                metadata: ObjectMeta {
                    name: Some(self.key.name.clone()),
                    namespace: self.key.namespace.clone(),
                    ..ObjectMeta::default()
                },
                spec: Some(self.spec(0)),
            };
            return match self.store.create(&fresh).await {
                Ok(lease) => Ok(Some(lease)),
                Err(StoreError::AlreadyExists(_)) => Ok(None),
                Err(error) => Err(error),
            };
        };
        self.observe(&lease);
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let is_free = holder.is_empty() || holder == self.identity || self.is_expired();
        if !is_free {
            return Ok(None);
        }
        let taken = Lease { spec: Some(self.spec(spec.lease_transitions.unwrap_or(0) + 1)), ..lease };
        match self.store.replace(&taken).await {
            Ok(lease) => Ok(Some(lease)),
            Err(StoreError::Conflict(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn observe(&mut self, lease: &Lease) {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
        let is_same = self.seen.as_ref().is_some_and(|seen| seen.resource_version == lease.metadata.resource_version);
        if !is_same {
            self.seen = Some(SeenLease {
                holder: spec.holder_identity.unwrap_or_default(),
                resource_version: lease.metadata.resource_version.clone(),
                changed_at: Instant::now(),
                lease_for: Duration::from_secs(seconds),
            });
        }
    }

    fn is_expired(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.holder.is_empty() || seen.changed_at.elapsed() > seen.lease_for)
    }

    fn spec(&self, transitions: i32) -> LeaseSpec {
        let now = MicroTime(self.clock.now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(
                i32::try_from(self.times.lease_duration().as_secs()).unwrap_or(i32::MAX).max(1),
            ),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    /// Renews until it fails for the renew deadline, or `term` ends. Cancels `term` when leadership is lost.
    pub(super) async fn hold(&mut self, mut lease: Lease, term: &CancellationToken) -> Lease {
        loop {
            tokio::select! {
                biased;
                () = term.cancelled() => return lease,
                () = tokio::time::sleep(self.renew_period) => {}
            }
            // From then on others may count.
            let sent = Instant::now();
            match self.renew(&lease).await {
                Ok(newer) => {
                    self.renewed_at.send_replace(sent);
                    lease = newer;
                }
                Err(StoreError::Conflict(_) | StoreError::NotFound(_)) => {
                    if !self.is_still_ours(&mut lease).await {
                        tracing::warn!(lease = %self.key, "another controller took the leader's lease");
                        term.cancel();
                        return lease;
                    }
                }
                Err(error) => tracing::warn!(lease = %self.key, %error, "the leader's lease cannot be renewed"),
            }
            if !self.guard().holds() {
                tracing::warn!(lease = %self.key, "the leader's lease was not renewed in time");
                term.cancel();
                return lease;
            }
        }
    }

    async fn renew(&self, lease: &Lease) -> Result<Lease, StoreError> {
        let mut renewed = lease.clone();
        if let Some(spec) = &mut renewed.spec {
            spec.renew_time = Some(MicroTime(self.clock.now()));
        }
        self.store.replace(&renewed).await
    }

    /// After a conflict: a renewal whose answer was lost also moves the resourceVersion.
    async fn is_still_ours(&self, lease: &mut Lease) -> bool {
        match self.store.get::<Lease>(&self.key).await {
            Ok(Some(stored)) => {
                let is_ours =
                    stored.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref()) == Some(&self.identity);
                if is_ours {
                    *lease = stored;
                }
                is_ours
            }
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Gives the Lease back, so that another candidate need not wait for its expiry.
    pub(super) async fn release(&self, lease: Lease) {
        let mut free = lease;
        if let Some(spec) = &mut free.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::clone(&self.clock.now())));
        }
        if let Err(error) = self.store.replace(&free).await {
            tracing::warn!(lease = %self.key, %error, "the leader's lease could not be released");
        }
    }
}
