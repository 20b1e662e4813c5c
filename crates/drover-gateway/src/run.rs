//! The gateway as a process: what runs, and the order in which it ends.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use drover_clock::{SharedClock, SystemClock};
use drover_daemon::monitor::{self, Health, Metrics};
use drover_daemon::shutdown;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::{Clients, Entrance, EntranceParts, FRONT_PROXY, Trust, follow};
use crate::certificates::{CERTIFICATE, Keeper, agents_config, users_config, withdraw};
use crate::config::GatewayConfig;
use crate::connections::Port;
use crate::reviews::Reviews;
use crate::tunnels::{Listener, Tunnels};

/// How long calls that run may take to end.
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
        let client = monitor::counting_client(api, &metrics)?;
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
    let stop = CancellationToken::new();
    let mut beside = JoinSet::new();
    beside.spawn(shutdown::on_signal(stop.clone()).context("listening for signals")?);
    let health = Health::of(&[CERTIFICATE, FRONT_PROXY]);
    if let Some(address) = listen {
        beside.spawn(monitor::serve(address, health.clone(), metrics, stop.clone()));
    }
    let progress = stop.clone();
    beside.spawn(async move {
        if let Err(error) = monitor::watch_progress(progress).await {
            tracing::error!("{error:#}");
        }
    });

    let (reviews, tunnels, trust) = (Reviews::new(client.clone()), Tunnels::default(), Trust::default());
    let keeper = Keeper::new(client.clone(), config, (Arc::clone(&clock), health.clone()));
    let served = keeper.served();
    let agents = Port::open(config.agents, agents_config(served.clone())?, "agents").await?;
    let clients = Arc::new(Clients::new(trust.clone()));
    let users = Port::open(config.users, users_config(served, clients)?, "users").await?;
    beside.spawn(until(stop.clone(), keeper.run()));
    beside.spawn(until(stop.clone(), follow(client.clone(), trust.clone(), health)));

    let listener = Listener::new(reviews.clone(), tunnels.clone(), &config.agent_user(), clock);
    let entrance = Entrance::new(EntranceParts {
        client: client.clone(),
        reviews,
        tunnels,
        trust,
        recheck_every: config.recheck_every,
    });
    tokio::join!(agents.serve(listener.clone(), stop.clone()), users.serve(entrance.clone(), stop.clone()));
    // Tunnels end first: then what they carry ends too.
    let ended = async { tokio::join!(listener.end(), entrance.end()) };
    if tokio::time::timeout(END_TIMEOUT, ended).await.is_err() {
        tracing::warn!("calls that run are ended");
    }
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
