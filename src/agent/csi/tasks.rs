//! Tasks that are CSI plugins: found by their sockets, asked again and again how they fare. What the node says of all plugins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drover_api::client_node::CsiInfo;
use drover_api::csi_volume::{PluginSource, PluginType};
use drover_api::task::CsiPlugin;
use drover_api::{message, names};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::{Halves, SocketPlugin};
use super::mounts::{Csi, lock};
use super::plugin::{Plugin, PluginFacts};

/// How often a plugin is asked how it fares, and how often until it has answered once.
const PROBE_EVERY: Duration = Duration::from_secs(30);
const PROBE_FIRST: Duration = Duration::from_millis(250);
/// By when a plugin must have answered after its start, where it does not say.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(30);

/// A plugin that runs here.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) plugin: Arc<dyn Plugin>,
    pub(crate) info: CsiInfo,
    pub(crate) facts: PluginFacts,
}

/// A task that is a plugin.
#[derive(Clone, Debug)]
pub(crate) struct PluginTask {
    uid: String,
    plugin: CsiPlugin,
    socket: PathBuf,
    /// Ends with the run of the task.
    over: CancellationToken,
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

    /// A run of a task that is a plugin has begun; it is over with what is returned.
    pub(crate) fn begin_plugin(&self, uid: &str, task: &str, plugin: &CsiPlugin) -> tokio_util::sync::DropGuard {
        let over = CancellationToken::new();
        let socket = endpoint(&self.0.root, uid, task);
        lock(&self.0.begun).push(PluginTask {
            uid: uid.to_owned(),
            plugin: plugin.clone(),
            socket,
            over: over.clone(),
        });
        self.wake();
        over.drop_guard()
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
        self.drop_plugin(&task.plugin.id, &task.uid);
    }

    /// A plugin is gone.
    pub(super) fn drop_plugin(&self, id: &str, uid: &str) {
        lock(&self.0.plugins).remove(&(id.to_owned(), uid.to_owned()));
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
            // Until it is up there is no socket, and nothing to say about that.
            let probed = if known.is_none() && !task.socket.exists() { None } else { Some(plugin.probe().await) };
            match probed {
                Some(Ok(facts)) => {
                    if known.is_none() {
                        tracing::info!(
                            plugin = task.plugin.id,
                            provider = facts.provider,
                            version = facts.version,
                            "a CSI plugin is up"
                        );
                    }
                    let info = info(&facts, halves, &task.uid);
                    self.put_plugin(
                        &task.plugin.id,
                        &task.uid,
                        Instance { plugin: Arc::clone(&plugin), info, facts: facts.clone() },
                    );
                    known = Some(facts);
                }
                Some(Err(error)) if known.is_some() || Instant::now() >= deadline => {
                    tracing::warn!(plugin = task.plugin.id, error = %error, "a CSI plugin is not well");
                    let facts = known.clone().unwrap_or_default();
                    let info = CsiInfo {
                        healthy: false,
                        description: message::cut(error.reason),
                        ..info(&facts, halves, &task.uid)
                    };
                    self.put_plugin(&task.plugin.id, &task.uid, Instance { plugin: Arc::clone(&plugin), info, facts });
                }
                Some(Err(error)) => {
                    tracing::debug!(plugin = task.plugin.id, error = %error, "a CSI plugin is not up yet");
                }
                None => {}
            }
            let is_healthy = lock(&self.0.plugins)
                .get(&(task.plugin.id.clone(), task.uid.clone()))
                .is_some_and(|instance| instance.info.healthy);
            tokio::time::sleep(if is_healthy { PROBE_EVERY } else { PROBE_FIRST }).await;
        }
    }

    /// A plugin is there, or says something new.
    pub(crate) fn put_plugin(&self, id: &str, uid: &str, instance: Instance) {
        let is_healthy = instance.info.healthy;
        let before = lock(&self.0.plugins).insert((id.to_owned(), uid.to_owned()), instance);
        self.publish_plugins();
        if is_healthy && before.is_none_or(|before| !before.info.healthy) {
            self.unmount_now(id);
        }
    }

    /// Of a plugin whose halves run in two tasks the node says what both are together. One that a task runs hides that of the cluster; of
    /// two drivers that the kubelet knows by one name, as while the one follows the other, one that works counts.
    fn publish_plugins(&self) {
        let mut all: BTreeMap<String, CsiInfo> = BTreeMap::new();
        let plugins = lock(&self.0.plugins).clone();
        let of = |source: PluginSource| plugins.iter().filter(move |(_, instance)| instance.info.source == source);
        for ((id, _), instance) in of(PluginSource::Job) {
            let info = instance.info.clone();
            match all.get_mut(id) {
                None => drop(all.insert(id.clone(), info)),
                Some(known) => join(known, info),
            }
        }
        for ((id, _), instance) in of(PluginSource::Kubelet) {
            match all.get_mut(id) {
                None => drop(all.insert(id.clone(), instance.info.clone())),
                Some(known) if known.source == PluginSource::Job => self.tell_of_two(id),
                Some(known) if !known.healthy => known.clone_from(&instance.info),
                Some(_) => {}
            }
        }
        self.publish(|print| print.plugins = all);
        self.0.plugins_changed.send_modify(|n| *n += 1);
    }
}

impl Csi {
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

fn join(known: &mut CsiInfo, other: CsiInfo) {
    known.controller |= other.controller;
    known.node |= other.node;
    known.healthy &= other.healthy;
    known.requires_controller_plugin |= other.requires_controller_plugin;
    known.max_volumes = known.max_volumes.max(other.max_volumes);
    for (own, of_other) in [(&mut known.description, other.description), (&mut known.node_id, other.node_id)] {
        if own.is_empty() {
            *own = of_other;
        }
    }
    known.topology.extend(other.topology);
    known.capabilities.extend(other.capabilities);
    known.capabilities.sort();
    known.capabilities.dedup();
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
