//! Carries out what `keys` decides: one Secret, which all replicas share, and the keys that are used.

use std::time::Duration;

use anyhow::Context as _;
use drover_api::Allocation;
use drover_core::task::identity::oldest_living;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};

use super::keys::{IdentityKeys, KeyStep, Living, Rotation, has_superseded, step};
use super::signing::IdentitySigner;
use crate::config::GatewayConfig;

/// The Secret with the keys.
const SECRET: &str = "drover-identity";
/// Its key.
const KEYS: &str = "keys.json";
/// How long one look may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after a look that failed.
const RETRY: Duration = Duration::from_secs(2);
/// How often it is asked which allocations live, while a key waits for their end.
const ASK_EVERY: Duration = Duration::from_hours(1);
/// Allocations in one answer.
const PAGE: u32 = 500;
/// Writes in one look; more would mean that two replicas undo each other.
const MOST_STEPS: usize = 8;

/// Keeps the keys.
#[derive(Debug)]
pub(crate) struct IdentityKeeper {
    secrets: Api<Secret>,
    allocations: Api<Allocation>,
    rotation: Rotation,
    signer: IdentitySigner,
    asked: Option<Timestamp>,
}

impl IdentityKeeper {
    /// Keys for this signer, as the configuration says.
    pub(crate) fn new(client: Client, config: &GatewayConfig, signer: IdentitySigner) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), &config.namespace),
            allocations: Api::all(client),
            rotation: Rotation::new(config.identities.key_life),
            signer,
            asked: None,
        }
    }

    /// Keeps them until it is dropped. What is known signs on while the API server is away.
    pub(crate) async fn run(mut self) {
        let mut changes = std::pin::pin!(watch_object(self.secrets.clone(), SECRET).default_backoff());
        loop {
            let next = match tokio::time::timeout(LOOK_TIMEOUT, self.look()).await {
                Ok(Ok(next)) => Duration::try_from(next.duration_since(self.signer.now())).unwrap_or_default(),
                Ok(Err(error)) => failed(&format!("{error:#}")),
                Err(_) => failed("the API server does not answer"),
            };
            tokio::select! {
                biased;
                Some(change) = changes.next() => {
                    if let Err(error) = change {
                        tracing::debug!(%error, "the watch of the keys of identities restarts");
                        tokio::time::sleep(RETRY).await;
                    }
                }
                () = tokio::time::sleep(next.min(ASK_EVERY)) => {}
            }
        }
    }

    /// Brings the keys to what they should be; returns when to look again.
    async fn look(&mut self) -> anyhow::Result<Timestamp> {
        for _ in 0..MOST_STEPS {
            let found = self.secrets.get_opt(SECRET).await.context("reading the Secret of the identities' keys")?;
            let mut secret = found.with_context(|| format!("Secret {SECRET} is missing: the chart makes it"))?;
            let stored = secret.data.as_ref().and_then(|data| data.get(KEYS));
            let keys: IdentityKeys = match stored {
                None => IdentityKeys::default(),
                Some(bytes) => serde_json::from_slice(&bytes.0)
                    .with_context(|| format!("{KEYS} in Secret {SECRET} cannot be read; remove it to have new keys"))?,
            };
            self.signer.replace(keys.clone());
            let now = self.signer.now();
            let living = if has_superseded(&keys, now) && self.is_time_to_ask(now) {
                let oldest = self.oldest().await?;
                self.asked = Some(now);
                Living::Oldest(oldest)
            } else {
                Living::Unknown
            };
            match step(&keys, self.rotation, living, now).context("making a key for identities")? {
                KeyStep::Wait(until) => return Ok(until),
                KeyStep::Store(next) => {
                    let bytes = serde_json::to_vec(&next).context("writing keys of identities")?;
                    secret.data.get_or_insert_default().insert(KEYS.to_owned(), ByteString(bytes));
                    match self.secrets.replace(SECRET, &PostParams::default(), &secret).await {
                        Ok(_) => tracing::info!(keys = next.0.len(), "the keys of identities have changed"),
                        // Another replica was first: its keys are as good.
                        Err(kube::Error::Api(status)) if status.code == 409 => {}
                        Err(error) => return Err(error).context("storing the keys of identities"),
                    }
                }
            }
        }
        anyhow::bail!("the keys of identities change faster than they can be looked at")
    }

    fn is_time_to_ask(&self, now: Timestamp) -> bool {
        self.asked.is_none_or(|asked| now.duration_since(asked).unsigned_abs() >= ASK_EVERY)
    }

    /// When the oldest allocation that lives was made, page by page.
    async fn oldest(&self) -> anyhow::Result<Option<Timestamp>> {
        let (mut oldest, mut params) = (None::<Timestamp>, ListParams::default().limit(PAGE));
        loop {
            let page = self.allocations.list(&params).await.context("asking which allocations live")?;
            oldest = [oldest, oldest_living(&page.items)].into_iter().flatten().min();
            match page.metadata.continue_.filter(|next| !next.is_empty()) {
                None => return Ok(oldest),
                Some(next) => params.continue_token = Some(next),
            }
        }
    }
}

fn failed(reason: &str) -> Duration {
    tracing::warn!(reason, "the keys of identities could not be looked after");
    RETRY
}
