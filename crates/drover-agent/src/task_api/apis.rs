//! Which tasks have the API, and for how long.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use drover_store::Store;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use super::line::GatewayLine;
use super::pace::Pace;
use super::{place, relay};
use crate::config::AgentConfig;
use crate::gateway::Dialer;
use crate::node::beneath::Owner;
use crate::random::Random;

/// Connections of a task; more wait.
const CONNECTIONS: usize = 32;
/// The pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Where a task's socket is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApiPlace<'a> {
    /// The directory for secrets.
    pub(crate) dir: &'a Path,
    /// How the task calls it.
    pub(crate) seen_as: &'a str,
    /// Who may connect; none: the agent's user.
    pub(crate) owner: Option<Owner>,
}

/// A task's API, until this is dropped.
#[derive(Debug)]
pub(crate) struct ServedApi {
    address: String,
    _serving: JoinSet<()>,
}

impl ServedApi {
    /// The API's address as Nomad's clients take it, in variable `NOMAD_UNIX_ADDR`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

/// What gives tasks the API.
pub(crate) trait TaskApis: Debug + Send + Sync {
    /// Serves a task's; none: this node knows no gateway.
    ///
    /// # Errors
    /// Why the task has none. It runs all the same.
    fn serve(&self, place: ApiPlace<'_>) -> Result<Option<ServedApi>, String>;
}

/// Without a gateway there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoTaskApis;

impl TaskApis for NoTaskApis {
    fn serve(&self, _: ApiPlace<'_>) -> Result<Option<ServedApi>, String> {
        Ok(None)
    }
}

/// The gateway's.
pub(crate) struct GatewayApis<S> {
    dialer: Dialer<S>,
}

impl<S> Debug for GatewayApis<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GatewayApis")
    }
}

impl<S: Store> GatewayApis<S> {
    /// As the configuration says; none where it names no token.
    pub(crate) fn new(config: &AgentConfig, store: S) -> Option<Self> {
        Some(Self { dialer: Dialer::new(config, store)? })
    }
}

impl<S: Store> TaskApis for GatewayApis<S> {
    fn serve(&self, place: ApiPlace<'_>) -> Result<Option<ServedApi>, String> {
        let path = format!("{}/{}", place.seen_as, place::NAME);
        if place::is_too_long(&path) {
            return Err(format!("it has no API: the path of its socket is too long for one: {path}"));
        }
        let listener = place::listen(place.dir, place.owner).map_err(|error| format!("{path}: {error}"))?;
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, self.dialer.clone()));
        Ok(Some(ServedApi { address: format!("unix://{path}"), _serving: serving }))
    }
}

async fn serve<S: Store>(listener: UnixListener, dialer: Dialer<S>) {
    let (pace, mut connections) = (Arc::new(Pace::new()), JoinSet::new());
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    let line = GatewayLine::new(dialer.clone(), Random::new());
                    connections.spawn(relay::answer(stream, line, Arc::clone(&pace)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection of a task's API cannot be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::unasked_store;

    #[tokio::test]
    async fn a_149_a_socket_whose_path_is_too_long_is_none_and_a_shorter_one_is_served() {
        let text = "stateDir: /s\nallocDir: /a\ngateway: {tokenFile: /token, replicas: [here]}\n";
        let config = AgentConfig::parse(text, Path::new("agent.yaml")).expect("a configuration");
        let apis = GatewayApis::new(&config, unasked_store()).expect("a token");
        let dir = tempfile::tempdir().expect("a directory");
        // A task may know the directory by a longer path than the node.
        let serve = |n: usize| {
            let seen_as = format!("/{}", "x".repeat(n - place::NAME.len() - 2));
            apis.serve(ApiPlace { dir: dir.path(), seen_as: &seen_as, owner: None })
        };
        let refused = serve(108).expect_err("too long");
        assert!(refused.contains("too long"), "{refused}");
        assert!(std::fs::read_dir(dir.path()).expect("a directory").next().is_none(), "nothing is made");
        let served = serve(107).expect("a socket").expect("an API");
        assert_eq!(served.address().len(), "unix://".len() + 107);
        tokio::net::UnixStream::connect(dir.path().join(place::NAME)).await.expect("it listens");
    }
}
