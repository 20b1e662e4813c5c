//! Whether a controller leads now.
//!
//! Input: the leader's Lease, wherever drover is installed. No other clock is trusted: a leader is alive when its
//! Lease is seen to change.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{anyhow, bail};
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;

use crate::cluster::connect::Connection;
use crate::ui::output;
use crate::ui::stdio::complain;
use drover_api::LEADER_LEASE;
use drover_clock::{Clock, SystemClock};
use drover_store::{Change, Key, KubeStore, Object, Selection, Store, StoreError};

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a Lease lasts that does not say.
const LEASE_FOR: Duration = Duration::from_secs(15);

/// The Leases that are held, by name.
type Held = BTreeMap<Key, Lease>;

/// Waits for as long as the leader's Lease lasts, and refuses when it is renewed meanwhile. One that was given back
/// needs no wait.
///
/// # Errors
/// When a controller leads, with its name; or that this is unknown.
pub(crate) async fn refuse_beside_leader(connection: &Connection) -> anyhow::Result<()> {
    let store = KubeStore::new(connection.client.clone(), REQUEST_TIMEOUT);
    let selection = Selection { fields: Some(format!("metadata.name={LEADER_LEASE}")), ..Selection::default() };
    let held = held(&store, &selection).await?;
    if held.is_empty() {
        return Ok(());
    }
    let patience = held.values().map(lease_for).max().unwrap_or(LEASE_FOR);
    for (key, lease) in &held {
        let seconds = i64::try_from(patience.as_secs()).unwrap_or(i64::MAX);
        complain(&format!(
            "{} holds the Lease {key} of drover's controller; looking for {} whether it still renews",
            holder(lease),
            output::span(seconds)
        ));
    }
    let mut changes = store.watch::<Lease>(selection.clone());
    let over = tokio::time::sleep(patience);
    tokio::pin!(over);
    loop {
        tokio::select! {
            biased;
            () = &mut over => break,
            Some(change) = changes.next() => {
                if let Change::Present(lease) = change {
                    refuse_renewed(&held, &lease)?;
                }
            }
        }
    }
    // A watch that broke has shown nothing.
    for lease in self::held(&store, &selection).await?.values() {
        refuse_renewed(&held, lease)?;
    }
    Ok(())
}

async fn held(store: &KubeStore, selection: &Selection) -> anyhow::Result<Held> {
    let leases = store.list::<Lease>(selection).await.map_err(|error| match error {
        StoreError::Forbidden(reason) => anyhow!(
            "you may not list leases, which say whether a controller leads: {reason}; ask for the role cluster-admin, or give --force when you know that none runs"
        ),
        error => anyhow!("cannot list leases, which say whether a controller leads: {error}; try again"),
    })?;
    let held = leases.into_iter().filter(|lease| !holder(lease).is_empty());
    Ok(held.map(|lease| (lease.key(), lease)).collect())
}

/// Refuses when this Lease is held and was written since it was looked at first.
fn refuse_renewed(before: &Held, lease: &Lease) -> anyhow::Result<()> {
    let key = lease.key();
    let is_same =
        before.get(&key).is_some_and(|known| known.metadata.resource_version == lease.metadata.resource_version);
    if is_same || holder(lease).is_empty() {
        return Ok(());
    }
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    let ago = renewed.map_or(0, |at| SystemClock.now().duration_since(at.0).as_secs());
    let namespace = key.namespace.clone().unwrap_or_default();
    bail!(
        "not freed: the controller {} leads, it renewed the Lease {key} {} ago; it frees objects itself once their tasks have ended. Stop it first (`kubectl -n {namespace} scale deploy -l app.kubernetes.io/component=controller --replicas=0`), or give --force",
        holder(lease),
        output::span(ago)
    )
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn lease_for(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(LEASE_FOR, Duration::from_secs)
}
