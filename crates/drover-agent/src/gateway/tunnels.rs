//! Keeps one tunnel to each replica.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::task::TaskTracker;

use super::dial::{DialError, Replica, dial};
use super::replicas::Replicas;
use super::serve::serve;
use crate::config::AgentConfig;
use crate::random::Random;
use crate::socket::Server;
use drover_store::Store;

/// How often it is looked which replicas there are.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The same while none is known.
const LOOK_SOON: Duration = Duration::from_secs(2);
/// The pauses between dials: thousands of agents lose their tunnels at the same moment.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The agent's tunnels.
#[derive(Debug)]
pub(crate) struct Tunnels<S> {
    replicas: Replicas<S>,
    line: Line<S>,
}

/// What each tunnel needs.
#[derive(Clone, Debug)]
struct Line<S> {
    replicas: Replicas<S>,
    server_name: String,
    token_file: PathBuf,
    server: Server,
    random: Random,
}

impl<S: Store> Tunnels<S> {
    /// Tunnels as the configuration says; none where it names no token.
    pub(crate) fn new(config: &AgentConfig, store: S, server: Server) -> Option<Self> {
        let replicas = Replicas::new(config, store);
        let line = Line {
            replicas: replicas.clone(),
            server_name: format!("{}.{}.svc", config.gateway.service, config.namespace),
            token_file: config.gateway.token_file.clone()?,
            server,
            random: Random::new(),
        };
        Some(Self { replicas, line })
    }

    /// Keeps them until it is dropped, and ends them then.
    pub(crate) async fn run(self) {
        let mut held: BTreeMap<String, AbortHandle> = BTreeMap::new();
        let mut lines = JoinSet::new();
        loop {
            match self.replicas.addresses().await {
                Ok(addresses) => {
                    held.retain(|address, line| {
                        let stays = addresses.contains(address);
                        if !stays {
                            line.abort();
                        }
                        stays
                    });
                    for address in addresses {
                        let line = &self.line;
                        held.entry(address.clone()).or_insert_with(|| lines.spawn(line.clone().hold(address)));
                    }
                }
                // Those that are open stay open.
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "the gateway's replicas are unknown");
                }
            }
            let pause = if held.is_empty() { LOOK_SOON } else { LOOK_EVERY };
            tokio::time::sleep(self.line.random.jitter(pause)).await;
            while lines.try_join_next().is_some() {}
        }
    }
}

impl<S: Store> Line<S> {
    /// Dials again and again.
    async fn hold(self, address: String) {
        let mut authorities: Option<Arc<RootCertStore>> = None;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.open(&address, &mut authorities).await {
                Ok(()) => pause = FIRST_PAUSE,
                Err(reason) => {
                    tracing::warn!(address, reason, "there is no tunnel to the gateway");
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
            tokio::time::sleep(self.random.jitter(pause)).await;
        }
    }

    /// Opens a tunnel and answers through it until it ends. A certificate that is not believed may be of a new
    /// authority: those are read again once.
    async fn open(&self, address: &str, known: &mut Option<Arc<RootCertStore>>) -> Result<(), String> {
        let was_known = known.is_some();
        let tasks = TaskTracker::new();
        let mut dialled = self.dial(address, known, &tasks).await?;
        if was_known && matches!(dialled, Err(DialError::Untrusted(_))) {
            *known = None;
            dialled = self.dial(address, known, &tasks).await?;
        }
        if matches!(dialled, Err(DialError::Untrusted(_))) {
            *known = None;
        }
        let tunnel = dialled.map_err(|error| error.to_string())?;
        tracing::info!(address, "a tunnel to the gateway is open");
        match serve(tunnel, self.server.clone(), &tasks).await {
            Ok(()) => tracing::info!(address, "a tunnel to the gateway has ended"),
            Err(error) => tracing::info!(address, %error, "a tunnel to the gateway broke"),
        }
        Ok(())
    }

    async fn dial(
        &self,
        address: &str,
        known: &mut Option<Arc<RootCertStore>>,
        tasks: &TaskTracker,
    ) -> Result<Result<hyper::upgrade::Upgraded, DialError>, String> {
        let authorities = if let Some(authorities) = known {
            Arc::clone(authorities)
        } else {
            let read = self.replicas.authorities().await.map_err(|error| error.to_string())?;
            Arc::clone(known.insert(read))
        };
        let replica = Replica { address: address.to_owned(), server_name: self.server_name.clone(), authorities };
        Ok(dial(&replica, &self.token_file, tasks).await)
    }
}
