//! The controller as a process: follows, leads, follows again. Each term begins with what the API server holds, and
//! nothing else.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::config::ControllerConfig;
use drover_api::LEADER_LEASE;
use drover_clock::{SharedClock, SystemClock};

use crate::leader::{Candidacy, Candidate};
use crate::leader_loop::LeaderLoop;
use crate::recorder::Recorder;
use crate::shared::Shared;
use drover_daemon::monitor::{self, Health, Installation, Metrics};
use drover_daemon::shutdown;
use drover_store::{KubeStore, Store};

/// The controller as a process: until SIGTERM or SIGINT.
///
/// # Errors
/// When the configuration or the kubeconfig cannot be used.
pub fn main(
    config: &Path,
    kubeconfig: Option<&Path>,
    identity: Option<String>,
    listen: Option<SocketAddr>,
) -> anyhow::Result<()> {
    let config = ControllerConfig::read(config)?;
    let identity = identity.unwrap_or_else(default_identity);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async move {
        let metrics = Metrics::default();
        metrics.leads(false);
        let stores = KubeStores { kubeconfig, metrics: &metrics, timeout: request_timeout(&config) };
        let client = stores.client().await?;
        let token = CancellationToken::new();
        let signals = shutdown::on_signal(token.clone()).context("listening to signals")?;
        let monitor = monitor(&config, client.clone(), listen, metrics.clone(), token.clone());
        // Until the token: follows, leads, and gives the leader's Lease back at the end.
        let clock = Arc::new(SystemClock);
        let process = Process { config: config.clone(), identity, clock, rng: fastrand::Rng::new() };
        let work = lead(&stores, process, Some(&metrics), token.clone());
        let watched = monitor::watch_progress(token.clone());
        let ((), (), (), watched) = tokio::join!(signals, monitor, work, watched);
        watched
    })
}

/// Host name and process id: no two processes of one machine, and no two machines, have the same. A container that is
/// restarted in its pod has the same as before, its process id being 1 again, and goes on leading without waiting for
/// its own Lease.
fn default_identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}

/// Answers probes and scrapes where that is asked for.
async fn monitor(
    config: &ControllerConfig,
    client: Client,
    listen: Option<SocketAddr>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let Some(address) = listen else { return };
    let policies = config.policies();
    let health = Health::of(&monitor::parts(&policies));
    let installation = Installation { namespace: &config.namespace, lease: LEADER_LEASE, policies: &policies };
    let watch = monitor::watch_cluster(client, installation, health.clone(), stop.clone());
    tokio::join!(watch, monitor::serve(address, health, metrics, stop));
}

/// A request must end before the leader's Lease does: half of the renew deadline, at most 5 s.
fn request_timeout(config: &ControllerConfig) -> Duration {
    (config.leader_election.renew_deadline() / 2).min(Duration::from_secs(5))
}

/// The pause between the leader's renewals. They also prove that its watch of Leases is live, so that they must come
/// more often than the grace of a node ends.
fn renew_period(config: &ControllerConfig) -> Duration {
    config.leader_election.retry_period().min(config.heartbeat.grace() / 4)
}

/// A controller as it is started.
#[derive(Debug)]
pub struct Process {
    /// What its file says.
    pub config: ControllerConfig,
    /// Its name in the leader election.
    pub identity: String,
    /// The time of day.
    pub clock: SharedClock,
    /// The source of everything that it draws.
    pub rng: fastrand::Rng,
}

/// Runs a controller on any store, until `shutdown`.
pub async fn run_on<S: Store>(store: S, process: Process, shutdown: CancellationToken) {
    lead(&Always(store), process, None, shutdown).await;
}

/// Where the API server is, and with which credentials it is asked, at the time of the question.
trait Stores: Sync {
    /// The API server's store.
    type Store: Store;

    /// Reads both.
    ///
    /// # Errors
    /// When they cannot be read or used.
    fn connect(&self) -> impl Future<Output = anyhow::Result<Self::Store>> + Send;
}

/// What a kubeconfig says.
struct KubeStores<'a> {
    kubeconfig: Option<&'a Path>,
    metrics: &'a Metrics,
    timeout: Duration,
}

impl KubeStores<'_> {
    async fn client(&self) -> anyhow::Result<Client> {
        monitor::counting_client(drover_connect::config(self.kubeconfig).await?, self.metrics)
    }
}

impl Stores for KubeStores<'_> {
    type Store = KubeStore;

    async fn connect(&self) -> anyhow::Result<KubeStore> {
        Ok(KubeStore::new(self.client().await?, self.timeout))
    }
}

/// One store that does not change.
struct Always<S>(S);

impl<S: Store> Stores for Always<S> {
    type Store = S;

    async fn connect(&self) -> anyhow::Result<S> {
        Ok(self.0.clone())
    }
}

/// Follows and leads; counts for its caller. Each term begins with credentials as they are then (`stores`):
/// those of an earlier one may have been taken back.
async fn lead(stores: &impl Stores, process: Process, metrics: Option<&Metrics>, shutdown: CancellationToken) {
    let Process { config, identity, clock, mut rng } = process;
    let renew_period = renew_period(&config);
    let pause = config.leader_election.retry_period();
    while let Some(store) = connected(stores, pause, &shutdown).await {
        let mut candidate = Candidate::new(
            store,
            clock.clone(),
            Candidacy {
                namespace: &config.namespace,
                identity: identity.clone(),
                times: config.leader_election,
                renew_period,
            },
        );
        let Some(lease) = candidate.acquire(&shutdown).await else { return };
        // It may have followed for days.
        let store = match stores.connect().await {
            Ok(store) => store,
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the leader's lease is given back: the API server's address and credentials cannot be read"
                );
                candidate.release(lease).await;
                wait(pause, &shutdown).await;
                continue;
            }
        };
        tracing::info!(identity, "leading");
        if let Some(metrics) = metrics {
            metrics.leads(true);
        }
        let over = shutdown.child_token();
        let recorder = Recorder::of(metrics.cloned(), config.metrics.per_job);
        let shared = Shared::new(clock.clone(), config.clone(), identity.clone(), rng.fork(), recorder);
        let leading = LeaderLoop::new(store, shared, renew_period);
        let guard = candidate.guard();
        let (lease, ()) = tokio::join!(candidate.hold(lease, &over), leading.run(guard, &over));
        if shutdown.is_cancelled() {
            candidate.release(lease).await;
            return;
        }
        tracing::info!(identity, "following");
        if let Some(metrics) = metrics {
            metrics.leads(false);
        }
    }
}

/// A store with the credentials as they are now, tried until there is one; none when `shutdown` came first.
async fn connected<T: Stores>(stores: &T, pause: Duration, shutdown: &CancellationToken) -> Option<T::Store> {
    while !shutdown.is_cancelled() {
        match stores.connect().await {
            Ok(store) => return Some(store),
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "the API server's address and credentials cannot be read");
            }
        }
        wait(pause, shutdown).await;
    }
    None
}

async fn wait(pause: Duration, shutdown: &CancellationToken) {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = tokio::time::sleep(pause) => {}
    }
}
