//! Tasks that are CSI plugins: found by their sockets, asked again and again how they fare. What the node says of all
//! plugins.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use drover_api::client_node::CsiInfo;
use drover_api::csi_volume::{PluginSource, PluginType};
use drover_api::message;
use drover_api::task::CsiPlugin;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::{Halves, SocketPlugin};
use super::plugin::{ErrorKind, Plugin, PluginError, PluginFacts};
use super::plugin_task::{PluginHealth, PluginRun, PluginTask, endpoint};
use super::registry::Instance;
use super::shared::Csi;
use crate::watch;

/// How often a plugin is asked how it fares: while it is well, until it has answered once, and while it is not well.
const PROBE_EVERY: Duration = Duration::from_secs(30);
const PROBE_FIRST: Duration = Duration::from_millis(250);
const PROBE_ILL: Duration = Duration::from_secs(1);
/// By when a plugin must have answered after its start, where it does not say.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(30);
/// What is wrong with one that does not listen.
const NO_SOCKET: &str = "the task does not listen at the socket that CSI_ENDPOINT names; pass it to the driver";

impl Csi {
    /// Where the sockets of plugins lie.
    pub(crate) fn root(&self) -> &Path {
        &self.0.root
    }

    /// A run of a task that is a plugin has begun, or goes on after an earlier life of the agent in which it `was_up`.
    pub(crate) fn begin_plugin(&self, uid: &str, task: &str, plugin: &CsiPlugin, was_up: bool) -> PluginRun {
        let over = CancellationToken::new();
        let (health, seen) = watch::channel(PluginHealth::Starting);
        self.0.plugins.begun().push(PluginTask {
            uid: uid.to_owned(),
            task: task.to_owned(),
            plugin: plugin.clone(),
            socket: endpoint(&self.0.root, uid, task),
            was_up,
            health,
            over: over.clone(),
        });
        self.wake();
        PluginRun::new(seen, over.drop_guard())
    }

    /// Asks a plugin how it fares until its task is over.
    pub(super) async fn follow_plugin(self, task: PluginTask) {
        let over = task.over.clone();
        // What is there from the start, on virtual time, listens at no socket.
        if self.0.plugins.registry().is_given(&task.plugin.id) {
            task.note(PluginHealth::Healthy);
            return over.cancelled().await;
        }
        tokio::select! {
            biased;
            () = over.cancelled() => {}
            () = self.probe_until_dropped(&task) => {}
        }
        tracing::info!(plugin = task.plugin.id, allocation = task.uid, "a CSI plugin has ended");
        self.drop_plugin(&task.plugin.id, &task.runner());
    }

    async fn probe_until_dropped(&self, task: &PluginTask) {
        let halves = Halves {
            controller: task.plugin.r#type != PluginType::Node,
            node: task.plugin.r#type != PluginType::Controller,
        };
        let plugin: Arc<dyn Plugin> = Arc::new(SocketPlugin::new(task.socket.clone(), halves));
        let patience = task.plugin.health_timeout.map(drover_api::GoDuration::to_std);
        let patience = patience.filter(|patience| !patience.is_zero()).unwrap_or(HEALTH_TIMEOUT);
        let deadline = Instant::now() + patience;
        let mut known: Option<PluginFacts> = None;
        loop {
            let probed = if known.is_none() && !task.socket.exists() {
                Err(PluginError { reason: NO_SOCKET.to_owned(), kind: ErrorKind::Retryable })
            } else {
                plugin.probe().await
            };
            let is_late = Instant::now() >= deadline;
            let said = match probed {
                Ok(facts) => {
                    if known.is_none() {
                        tracing::info!(
                            plugin = task.plugin.id,
                            provider = facts.provider,
                            version = facts.version,
                            "a CSI plugin is up"
                        );
                    }
                    let info = info(&facts, halves, &task.uid);
                    known = Some(facts.clone());
                    Some((Instance { plugin: Arc::clone(&plugin), info, facts }, PluginHealth::Healthy))
                }
                Err(error) if known.is_some() || is_late => {
                    let facts = known.clone().unwrap_or_default();
                    let description = message::cut(&error.reason);
                    let info = CsiInfo { healthy: false, description, ..info(&facts, halves, &task.uid) };
                    let has_been_up = known.is_some() || task.was_up;
                    let health = if has_been_up { PluginHealth::Unhealthy } else { PluginHealth::NeverUp };
                    Some((Instance { plugin: Arc::clone(&plugin), info, facts }, health(error.reason)))
                }
                Err(error) => {
                    tracing::debug!(plugin = task.plugin.id, error = %error, "a CSI plugin is not up yet");
                    None
                }
            };
            let pause = match &said {
                None => PROBE_FIRST,
                Some((_, PluginHealth::Healthy)) => PROBE_EVERY,
                Some(_) => PROBE_ILL,
            };
            if let Some((instance, health)) = said {
                self.put_plugin(&task.plugin.id, &task.runner(), instance);
                task.note(health);
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// What the node says of a plugin.
pub(super) fn info(facts: &PluginFacts, halves: Halves, uid: &str) -> CsiInfo {
    // Both halves have an EXPAND_VOLUME.
    let of_node = facts.node.iter().map(|capability| format!("NODE_{capability}"));
    CsiInfo {
        controller: halves.controller,
        node: halves.node,
        healthy: true,
        description: String::new(),
        requires_controller_plugin: facts.needs_controller,
        source: PluginSource::Job,
        alloc_id: uid.to_owned(),
        max_volumes: facts.max_volumes,
        node_id: facts.node_id.clone(),
        topology: facts.topology.clone(),
        provider: facts.provider.clone(),
        provider_version: facts.version.clone(),
        capabilities: facts.controller.iter().cloned().chain(of_node).collect(),
        access_modes: Vec::new(),
    }
}
