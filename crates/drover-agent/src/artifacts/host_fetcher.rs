//! Downloads in processes of their own: `droverd fetch`, in a directory that no task reaches.

use std::sync::Arc;
use std::time::Duration;

use drover_core::service::Cidr;
use drover_fetch::{Answer, FetchLimits, Order};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;

use super::fetcher::{Fetch, Fetcher};
use super::placement::{self, Stage};
use crate::config::ArtifactsConfig;
use crate::helper;
use crate::node::beneath::NOBODY;

/// Most downloads of a node at a time; others wait.
const AT_A_TIME: usize = 8;
/// What a download may take beyond its own limit, to start, to unpack and to be put in its place.
const EXTRA: Duration = Duration::from_mins(1);
/// Largest answer.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;
/// Most characters of a reason that are shown.
const MAX_REASON_CHARS: usize = 512;

/// Fetches artifacts on the node.
#[derive(Debug)]
pub(crate) struct HostFetcher {
    limits: FetchLimits,
    allowed: Vec<Cidr>,
    /// Where certificates are that the node trusts, as the agent was told in its environment.
    certificates: Vec<(String, String)>,
    turns: Arc<Semaphore>,
}

impl HostFetcher {
    /// With the node's limits. Of `environment` only what says where certificates are reaches a download.
    pub(crate) fn new(config: &ArtifactsConfig, environment: impl Iterator<Item = (String, String)>) -> Self {
        let limits = FetchLimits {
            bytes: config.max_size_mb.saturating_mul(1024 * 1024),
            files: config.max_files,
            seconds: config.timeout.as_secs().max(1),
        };
        let of_certificates = |name: &str| ["SSL_CERT_FILE", "SSL_CERT_DIR"].contains(&name);
        Self {
            limits,
            allowed: config.allowed_cidrs.clone(),
            certificates: environment.filter(|(name, _)| of_certificates(name)).collect(),
            turns: Arc::new(Semaphore::new(AT_A_TIME)),
        }
    }
}

impl Fetcher for HostFetcher {
    fn fetch(&self, fetch: Fetch) -> BoxFuture<'static, Result<(), String>> {
        let user = rustix::process::geteuid().is_root().then_some(NOBODY);
        let order = Order { plan: fetch.plan.clone(), allowed: self.allowed.clone(), limits: self.limits, user };
        let (certificates, turns) = (self.certificates.clone(), Arc::clone(&self.turns));
        async move {
            let _turn = turns.acquire().await.map_err(|_| "the agent ends".to_owned())?;
            let (order, fetch) = (place_of_file(order, &fetch)?, fetch);
            let made = fetch.clone();
            let stage = on_disk(move || Stage::make(&made)).await?;
            let fetched = Box::pin(download(&order, &stage, certificates)).await;
            let (stage, placed) = on_disk(move || {
                let placed = fetched.and_then(|()| placement::place(&stage, &fetch, order.limits));
                Ok((stage, placed))
            })
            .await?;
            on_disk(move || stage.remove()).await.and(placed)
        }
        .boxed()
    }
}

/// The name of the file, where the destination says it.
fn place_of_file(mut order: Order, fetch: &Fetch) -> Result<Order, String> {
    if order.plan.is_whole {
        let name = fetch.destination.parts.last();
        order.plan.file_name =
            name.cloned().ok_or("getterMode file needs the file's name in relativeDest, as local/app.conf")?;
    }
    Ok(order)
}

/// Work that waits for a disk.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(format!("it broke off: {error}")))
}

async fn download(order: &Order, stage: &Stage, certificates: Vec<(String, String)>) -> Result<(), String> {
    let whole = Duration::from_secs(order.limits.seconds).saturating_add(EXTRA);
    let begun = helper::command("fetch").envs(certificates).current_dir(stage.path()).spawn();
    let mut child = begun.map_err(|error| format!("the download cannot begin: {error}"))?;
    let answer = tokio::time::timeout(whole, helper::ask(&mut child, order, MAX_ANSWER_BYTES)).await;
    // It is to touch nothing any more when the result is looked at.
    let ended = child.kill().await;
    let answer = answer.map_err(|_| format!("it took longer than {}s", whole.as_secs()))?;
    ended.map_err(|error| format!("the download cannot be ended: {error}"))?;
    match answer
        .map_err(|error| format!("the download broke off, as it does when it needs too much memory: {error}"))?
    {
        Answer::Fetched => Ok(()),
        Answer::Failed(reason) => Err(for_people(&reason)),
    }
}

/// A server may have had its say in it.
fn for_people(reason: &str) -> String {
    let visible = reason.chars().map(|char| if char.is_control() { ' ' } else { char });
    visible.take(MAX_REASON_CHARS).collect()
}
