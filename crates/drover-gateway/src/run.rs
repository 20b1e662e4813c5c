//! The gateway as a process: what runs, and the order in which it ends.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use drover_clock::{SharedClock, SystemClock};
use drover_daemon::monitor::{self, CountRequests, Health, Metrics};
use drover_daemon::shutdown;
use drover_nomad::AgentFacts;
use drover_store::KubeStore;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::apart::Apart;
use crate::api::{Entrance, EntranceParts, FRONT_PROXY, Trust, follow};
use crate::certificates::{
    CERTIFICATE, Keeper, OptionalCertificates, Watched, agents_config, provider, users_config, withdraw,
};
use crate::config::{GatewayConfig, ShutdownConfig};
use crate::connections::Port;
use crate::disks::Disks;
use crate::identities::{IdentityKeeper, IdentitySigner};
use crate::nomad::{Caches, Controllers, Feed, Nomad, NomadParts};
use crate::reviews::Reviews;
use crate::tunnels::{Arrivals, Fleet, Listener, ListenerParts, Nodes, Peers, Tunnels};
use crate::values::Values;

/// The part of the gateway's health that is its own end.
const SHUTDOWN: &str = "shutdown";
/// How long a call of the store for the caches may take; watches have limits of their own.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long calls that are cut may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the gateway until SIGTERM or SIGINT.
///
/// # Errors
/// When the configuration or the kubeconfig cannot be used, or a port is taken.
pub fn main(config: &Path, kubeconfig: Option<&Path>, listen: Option<SocketAddr>) -> anyhow::Result<()> {
    let config = GatewayConfig::read(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let result = runtime.block_on(async {
        let metrics = Metrics::default();
        let mut api = drover_connect::config(kubeconfig).await?;
        // Watches are quiet for long; calls have limits of their own.
        api.read_timeout = None;
        let client = drover_connect::shared(api).await?.with_layer(&CountRequests::new(metrics.clone())).build();
        Box::pin(serve(client, &config, listen, metrics)).await
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn serve(
    client: Client,
    config: &GatewayConfig,
    listen: Option<SocketAddr>,
    metrics: Metrics,
) -> anyhow::Result<()> {
    let clock: SharedClock = Arc::new(SystemClock);
    let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
    let mut beside = JoinSet::new();
    beside.spawn(shutdown::on_signal(stop.clone()).context("listening for signals")?);
    let health = Health::of(&[CERTIFICATE, FRONT_PROXY]);
    if let Some(address) = listen {
        beside.spawn(monitor::serve(address, health.clone(), metrics.clone(), ended.clone()));
    }
    beside.spawn(monitor::watch_progress_beside(ended.clone()));

    let gateway = metrics.gateway.clone();
    gateway.begin();
    let reviews = Reviews::new(client.clone(), gateway.clone());
    let (tunnels, watchman) = Tunnels::new(gateway.clone());
    let (trust, fleet) = (Trust::default(), Fleet::new(config));
    let watched = Watched { clock: Arc::clone(&clock), health: health.clone(), metrics: gateway.clone() };
    let keeper = Keeper::new(client.clone(), config, watched);
    let signer = IdentitySigner::new(&config.identities.issuer, Arc::clone(&clock));
    let keys = IdentityKeeper::new(client.clone(), config, signer.clone());
    let served = keeper.served();
    // Thousands of tunnels of which each has a word to say now and then: it is to wake one thread.
    let apart = Apart::start("agents").context("starting a thread for agents")?;
    let agents = apart.run(Port::open(config.agents, agents_config(served.clone())?, "agents")).await?;
    let clients = Arc::new(OptionalCertificates::new(trust.clone(), provider()));
    let users = Port::open(config.users, users_config(served.clone(), clients)?, "users").await?;
    beside.spawn(until(ended.clone(), keeper.run()));
    beside.spawn(until(ended.clone(), keys.run()));
    beside.spawn(until(ended.clone(), watchman.run()));
    beside.spawn(until(ended.clone(), follow(client.clone(), trust.clone(), health.clone())));
    let (following, replicas) = (fleet.clone(), config.clone());
    let api = client.clone();
    beside.spawn(until(ended.clone(), async move { following.follow(api, &replicas).await }));

    let caches = config.nomad.then(|| Caches::new(config.events.kept().map(Feed::new)));
    let peers = Peers::new(fleet.clone(), served, &config.server_name(), gateway.clone());
    let nodes = Nodes::new(tunnels.clone(), peers);
    let listener = Listener::new(ListenerParts {
        reviews: reviews.clone(),
        tunnels: tunnels.clone(),
        fleet: fleet.clone(),
        values: Values::new(client.clone(), reviews.clone(), signer.clone(), &config.agent_user(), Arc::clone(&clock)),
        disks: Disks::new(client.clone(), nodes.clone()),
        arrivals: caches.clone().map(|caches| Arc::new(caches) as Arc<dyn Arrivals>),
        agent_user: config.agent_user(),
        clock: Arc::clone(&clock),
    });
    let last = CancellationToken::new();
    let nomad = caches.map(|caches| {
        let store = KubeStore::new(client.clone(), STORE_TIMEOUT);
        beside.spawn(until(ended.clone(), caches.clone().follow(store.clone())));
        let facts = AgentFacts {
            name: config.server_name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: config.scheduler.clone(),
            ..AgentFacts::default()
        };
        let controllers = Controllers::new(client.clone(), config.namespace.clone());
        let (reviews, metrics, ends) = (reviews.clone(), metrics.clone(), last.clone());
        let (store, nodes) = (config.nomad_writes.then_some(store), nodes.clone());
        Nomad::new(NomadParts { caches, reviews, facts, controllers, metrics, nodes, store, clock, ends })
    });
    let entrance = Entrance::new(EntranceParts {
        client: client.clone(),
        reviews,
        nodes,
        trust,
        signer,
        metrics: gateway,
        recheck_every: config.recheck_every,
        nomad,
    });
    let serving = async {
        let agents = apart.run(agents.serve(listener.clone(), last.clone()));
        tokio::join!(agents, users.serve(entrance.clone(), last.clone()));
        tokio::join!(entrance.end(), listener.relays_end());
    };
    let ShutdownConfig { unready_for, streams_for } = config.shutdown;
    let ending = async {
        stop.cancelled().await;
        // Others learn late that this replica is not ready any more: until then it answers.
        health.ill(SHUTDOWN, "the gateway ends");
        tokio::time::sleep(unready_for).await;
        fleet.leave();
        tunnels.close();
        last.cancel();
        tokio::time::sleep(streams_for).await;
    };
    tokio::select! {
        biased;
        () = serving => {}
        () = ending => tracing::info!("what is still under way is cut"),
    }
    // Tunnels end first: then what they carry ends too.
    let torn = async { tokio::join!(listener.end(), entrance.end()) };
    if tokio::time::timeout(END_TIMEOUT, torn).await.is_err() {
        tracing::warn!("calls that run are ended");
    }
    ended.cancel();
    withdraw(client, config).await;
    while beside.join_next().await.is_some() {}
    tracing::info!("gateway has ended; tasks go on");
    Ok(())
}

async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = work => {}
    }
}
