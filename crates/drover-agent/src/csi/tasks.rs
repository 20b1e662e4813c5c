//! Tasks that are CSI plugins: found by their sockets, asked again and again how they fare. What the node says of all
//! plugins.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drover_api::client_node::CsiInfo;
use drover_api::csi_volume::{PluginSource, PluginType};
use drover_api::task::CsiPlugin;
use drover_api::{message, names};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::{Halves, SocketPlugin};
use super::mounts::{Csi, lock};
use super::plugin::{ErrorKind, Plugin, PluginError, PluginFacts};
use super::registry::Instance;
use crate::watch;

/// How often a plugin is asked how it fares: while it is well, until it has answered once, and while it is not well.
const PROBE_EVERY: Duration = Duration::from_secs(30);
const PROBE_FIRST: Duration = Duration::from_millis(250);
const PROBE_ILL: Duration = Duration::from_secs(1);
/// By when a plugin must have answered after its start, where it does not say.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(30);
/// What is wrong with one that does not listen.
const NO_SOCKET: &str = "the task does not listen at the socket that CSI_ENDPOINT names; pass it to the driver";

/// How a plugin's task fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PluginHealth {
    /// It has not answered yet.
    Starting,
    /// It answers.
    Healthy,
    /// It answers no more, or says that it is not well; with its words.
    Unhealthy(String),
    /// It was not up in time, and that is how this run of the task ends; with what is wrong.
    NeverUp(String),
}

/// A run of a task that is a plugin; it is over when this is dropped.
#[derive(Debug)]
pub(crate) struct PluginRun {
    /// How it fares.
    pub(crate) health: watch::Receiver<PluginHealth>,
    _over: DropGuard,
}

/// A task that is a plugin.
#[derive(Debug)]
pub(crate) struct PluginTask {
    uid: String,
    task: String,
    plugin: CsiPlugin,
    socket: PathBuf,
    /// It has been up in this run, in an earlier life of the agent.
    was_up: bool,
    health: watch::Sender<PluginHealth>,
    /// Ends with the run of the task.
    over: CancellationToken,
}

impl PluginTask {
    /// By what it is told from others of its name: the tasks of one allocation may be the two halves of a driver.
    fn runner(&self) -> String {
        format!("{}/{}", self.uid, self.task)
    }

    /// Tells how it fares. That its words differ from time to time is no news.
    fn note(&self, health: PluginHealth) {
        if mem::discriminant(&*self.health.borrow()) == mem::discriminant(&health) {
            return;
        }
        if let PluginHealth::Unhealthy(error) | PluginHealth::NeverUp(error) = &health {
            tracing::warn!(plugin = self.plugin.id, error, "a CSI plugin is not well");
        }
        self.health.send_replace(health);
    }
}

/// The socket of a plugin's task: short, because the address of a socket has room for 108 bytes.
pub(crate) fn endpoint(root: &Path, uid: &str, task: &str) -> PathBuf {
    root.join("sock").join(names::hex(&digest(uid, task))).join("csi.sock")
}

fn digest(uid: &str, task: &str) -> [u8; 8] {
    use sha2::{Digest, Sha256};
    let whole = Sha256::digest([uid, task].join("/").as_bytes());
    std::array::from_fn(|n| whole[n])
}

impl Csi {
    /// Where the sockets of plugins lie.
    pub(crate) fn root(&self) -> &Path {
        &self.0.root
    }

    /// A run of a task that is a plugin has begun, or goes on after an earlier life of the agent in which it `was_up`.
    pub(crate) fn begin_plugin(&self, uid: &str, task: &str, plugin: &CsiPlugin, was_up: bool) -> PluginRun {
        let over = CancellationToken::new();
        let (health, seen) = watch::channel(PluginHealth::Starting);
        lock(&self.0.begun).push(PluginTask {
            uid: uid.to_owned(),
            task: task.to_owned(),
            plugin: plugin.clone(),
            socket: endpoint(&self.0.root, uid, task),
            was_up,
            health,
            over: over.clone(),
        });
        self.wake();
        PluginRun { health: seen, _over: over.drop_guard() }
    }

    /// Asks a plugin how it fares until its task is over.
    pub(super) async fn follow_plugin(self, task: PluginTask) {
        let over = task.over.clone();
        tokio::select! {
            biased;
            () = over.cancelled() => {}
            () = self.probe_for_ever(&task) => {}
        }
        tracing::info!(plugin = task.plugin.id, allocation = task.uid, "a CSI plugin has ended");
        self.drop_plugin(&task.plugin.id, &task.runner());
    }

    /// A plugin is gone.
    pub(super) fn drop_plugin(&self, id: &str, runner: &str) {
        lock(&self.0.plugins).remove(id, runner);
        self.publish_plugins();
    }

    async fn probe_for_ever(&self, task: &PluginTask) {
        let halves = Halves {
            controller: task.plugin.r#type != PluginType::Node,
            node: task.plugin.r#type != PluginType::Controller,
        };
        let plugin: Arc<dyn Plugin> = Arc::new(SocketPlugin::new(task.socket.clone(), halves));
        let patience = task.plugin.health_timeout.map_or(HEALTH_TIMEOUT, drover_api::GoDuration::to_std);
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

    /// A plugin is there, or says something new.
    pub(crate) fn put_plugin(&self, id: &str, runner: &str, instance: Instance) {
        let works = lock(&self.0.plugins).put(id, runner, instance);
        self.publish_plugins();
        if works {
            self.unmount_now(id);
        }
    }

    fn publish_plugins(&self) {
        let (said, doubled) = {
            let plugins = lock(&self.0.plugins);
            (plugins.said(), plugins.doubled().map(str::to_owned).collect::<Vec<_>>())
        };
        for id in &doubled {
            self.tell_of_two(id);
        }
        self.publish(|print| print.plugins = said);
        self.0.plugins_changed.send_modify(|n| *n += 1);
    }

    /// Says once of a plugin that a task runs what the cluster runs too.
    fn tell_of_two(&self, id: &str) {
        if lock(&self.0.doubled).insert(id.to_owned()) {
            tracing::warn!(
                plugin = id,
                "a job's task and the cluster both run this CSI driver here; the task is used, stop its job to use the cluster's"
            );
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
