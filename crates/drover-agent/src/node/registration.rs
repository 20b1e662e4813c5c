//! This machine's ClientNode: made once, followed, made again when it was deleted. The agent writes
//! `status.fingerprint` and nothing else of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::client_node::{Eligibility, Fingerprint, NodePhase};
use drover_api::host_volume::HostVolumeRequest;
use drover_api::{ClientNode, ClientNodeSpec, field_manager};
use futures::StreamExt;
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::view::{NodeNews, NodeView};
use crate::config::AgentConfig;
use crate::csi::Csi;
use crate::node::facts::effective_meta;
use crate::node::fingerprint;
use crate::random::Random;
use crate::reporting::events::{NodeEvents, Reason};
use crate::watch;
use drover_clock::sleep_until;
use drover_core::task::environment::NodeFacts;
use drover_store::{Change, Key, Precondition, Selection, Store, StoreError};

/// The pauses after a registration that failed: without an answer, and with a refusal.
const RETRY_UNREACHABLE: Duration = Duration::from_secs(1);
const RETRY_REFUSED: Duration = Duration::from_secs(15);

/// The pause before changed facts are written, doubled at random: what changes meanwhile goes along.
const GATHER_CHANGES: Duration = Duration::from_secs(5);

/// The same for what CSI plugins say, and for host volumes.
const GATHER_PLUGINS: Duration = Duration::from_millis(20);

/// How long plugins of an earlier life of the agent count as there without their saying so again.
const PLUGIN_GRACE: Duration = Duration::from_secs(15);

/// Keeps the node registered.
#[derive(Debug)]
pub(crate) struct Node<S> {
    pub(crate) store: S,
    pub(crate) random: Random,
    pub(crate) name: String,
    pub(crate) config: Arc<AgentConfig>,
    /// What the machine is and has, as it changes.
    pub(crate) fingerprint: watch::Receiver<Fingerprint>,
    /// Its CSI plugins.
    pub(crate) csi: Csi,
    /// What the controller asks of its host volumes.
    pub(crate) host_volumes: watch::Sender<BTreeMap<String, HostVolumeRequest>>,
    pub(crate) news: mpsc::Receiver<NodeNews>,
    pub(crate) events: NodeEvents,
    pub(crate) view: watch::Sender<NodeView>,
    /// Asks for a heartbeat at once.
    pub(crate) heartbeat: Arc<Notify>,
    /// Says that the API server answers again.
    pub(crate) reachable: Arc<Notify>,
    /// From when on plugins that have not reported count as gone.
    pub(crate) plugins_known_at: Option<Instant>,
}

impl<S: Store> Node<S> {
    /// What is known of the node before the API server has answered.
    pub(crate) fn first_view(name: &str, config: &AgentConfig, fingerprint: &Fingerprint) -> NodeView {
        let facts = NodeFacts {
            name: name.to_owned(),
            datacenter: config.datacenter.clone(),
            class: config.node_class.clone(),
            pool: config.node_pool.clone(),
            attributes: fingerprint.attributes.clone(),
            meta: effective_meta(&fingerprint.meta.static_meta, &fingerprint.meta.dynamic),
            cgroup_parent: fingerprint.cgroup_parent.clone(),
        };
        // Until its object was read nobody knows how the controller judges it: nothing is reported.
        NodeView { uid: None, phase: NodePhase::Disconnected, facts: Arc::new(facts) }
    }

    /// Registers, and then follows the node until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut facts = self.fingerprint.clone();
        facts.mark_unchanged();
        let mut plugins = self.csi.print();
        plugins.mark_unchanged();
        self.plugins_known_at = Some(Instant::now() + PLUGIN_GRACE);
        let node = self.register().await;
        let known = node.status.and_then(|status| status.fingerprint);
        if known.is_none_or(|known| known.csi.is_empty()) {
            self.plugins_known_at = None;
        }
        let mut write_at: Option<Instant> = self.plugins_known_at;
        let fields = Some(format!("metadata.name={}", self.name));
        let mut changes = self.store.watch::<ClientNode>(Selection { fields, ..Selection::default() });
        let mut seen = Seen::default();
        let mut volumes = facts.borrow().host_volumes.clone();
        loop {
            tokio::select! {
                biased;
                Ok(()) = facts.changed() => {
                    let told = facts.borrow().host_volumes.clone();
                    // A job waits for a volume.
                    let is_awaited = std::mem::replace(&mut volumes, told) != volumes;
                    let pause = if is_awaited { GATHER_PLUGINS } else { self.random.jitter(GATHER_CHANGES) };
                    write_at = Some(sooner(write_at, pause));
                }
                // A volume waits for what a plugin says.
                Ok(()) = plugins.changed() => write_at = Some(sooner(write_at, GATHER_PLUGINS)),
                () = sleep_until(write_at) => {
                    write_at = self.plugins_known_at.filter(|at| *at > Instant::now());
                    drop(self.register().await);
                }
                Some(news) = self.news.recv() => self.tell(news),
                Some(change) = changes.next() => self.follow(change, &mut seen).await,
            }
        }
    }

    async fn follow(&self, change: Change<ClientNode>, seen: &mut Seen) {
        match change {
            Change::Restarted => seen.is_listed = false,
            Change::Present(node) => {
                seen.is_listed = true;
                self.observe(&node);
            }
            Change::Gone(_) => drop(self.register().await),
            Change::InSync if !seen.is_listed => drop(self.register().await),
            // The API server is back: whoever waits to try again need not.
            Change::InSync if std::mem::take(&mut seen.was_interrupted) => self.reachable.notify_waiters(),
            Change::InSync => {}
            Change::Malformed(key, reason) => {
                tracing::warn!(node = %key, reason, "this node's object cannot be read");
            }
            Change::Interrupted(reason) => {
                seen.was_interrupted = true;
                tracing::debug!(reason, "watch of this node is interrupted");
            }
        }
    }

    fn tell(&self, news: NodeNews) {
        let (reason, text) = match news {
            NodeNews::Driver(name, info) if !info.healthy && !info.description.is_empty() => {
                (Reason::DriverUnhealthy, format!("driver {name}: {}", info.description))
            }
            NodeNews::Driver(name, info) => {
                tracing::info!(driver = name, healthy = info.healthy, "a driver's health has changed");
                return;
            }
            NodeNews::StateLost(why) => (Reason::StateDamaged, why),
        };
        self.events.emit(reason, text);
    }

    /// Makes the object where there is none, writes the fingerprint, and beats at once. Tries until it works; returns
    /// the object.
    async fn register(&self) -> ClientNode {
        loop {
            match self.try_register().await {
                Ok(node) => {
                    tracing::info!(node = self.name, "node is registered");
                    self.observe(&node);
                    self.heartbeat.notify_one();
                    return node;
                }
                Err(error) => {
                    let base = match &error {
                        StoreError::Unavailable(_) | StoreError::Timeout(_) | StoreError::Conflict(_) => {
                            RETRY_UNREACHABLE
                        }
                        StoreError::NotFound(_)
                        | StoreError::AlreadyExists(_)
                        | StoreError::Invalid(_)
                        | StoreError::Forbidden(_) => RETRY_REFUSED,
                    };
                    let pause = self.random.jitter(base);
                    tracing::warn!(error = %error, retry_in = ?pause, "node is not registered");
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn try_register(&self) -> Result<ClientNode, StoreError> {
        let key = Key::cluster(&self.name);
        let node = match self.store.get::<ClientNode>(&key).await? {
            Some(node) => node,
            None => match self.store.create(&self.new_node()).await {
                Err(StoreError::AlreadyExists(_)) => {
                    let found = self.store.get(&key).await?;
                    found.ok_or_else(|| StoreError::Conflict(format!("node {} comes and goes", self.name)))?
                }
                result => result?,
            },
        };
        let known = node.status.as_ref().and_then(|status| status.fingerprint.as_ref());
        let found = self.with_plugins(self.fingerprint.borrow().clone(), known);
        if node.status.as_ref().and_then(|status| status.fingerprint.as_ref()) == Some(&found) {
            return Ok(node);
        }
        let body = json!({ "status": { "fingerprint": found } });
        let precondition = Precondition::same_object(&node.metadata);
        self.store.apply_status(&key, field_manager::AGENT, &precondition, body).await
    }

    /// The fingerprint with the CSI plugins. Those that an earlier life of the agent told of stay in it for a while:
    /// their tasks go on, and are asked again how they fare.
    fn with_plugins(&self, mut found: Fingerprint, known: Option<&Fingerprint>) -> Fingerprint {
        let print = self.csi.print().borrow().clone();
        if self.plugins_known_at.is_some_and(|at| Instant::now() < at) {
            found.csi = known.map(|known| known.csi.clone()).unwrap_or_default();
        }
        found.csi.extend(print.plugins);
        found.csi_answers = print.answers;
        found.sealing_key = self.csi.sealing_key();
        let cut = fingerprint::cut(&mut found);
        if !cut.is_empty() {
            tracing::warn!(fields = ?cut, "the node has more to tell than its object takes: some of it is left out");
        }
        found
    }

    fn new_node(&self) -> ClientNode {
        let config = &self.config;
        let spec = ClientNodeSpec {
            datacenter: config.datacenter.clone(),
            node_pool: config.node_pool.clone(),
            node_class: config.node_class.clone(),
            meta: BTreeMap::new(),
            eligibility: if config.default_ineligible { Eligibility::Ineligible } else { Eligibility::Eligible },
            drain: None,
        };
        ClientNode::new(&self.name, spec)
    }

    fn observe(&self, node: &ClientNode) {
        let status = node.status.clone().unwrap_or_default();
        self.csi.take_requests(&status.csi_requests);
        self.host_volumes.send_if_modified(|known| {
            let is_other = *known != status.volume_requests;
            if is_other {
                known.clone_from(&status.volume_requests);
            }
            is_other
        });
        let found = self.fingerprint.borrow();
        let mut meta = effective_meta(&found.meta.static_meta, &found.meta.dynamic);
        meta.extend(node.spec.meta.clone());
        let facts = NodeFacts {
            name: self.name.clone(),
            datacenter: node.spec.datacenter.clone(),
            class: node.spec.node_class.clone(),
            pool: node.spec.node_pool.clone(),
            attributes: found.attributes.clone(),
            meta,
            cgroup_parent: found.cgroup_parent.clone(),
        };
        let view = NodeView { uid: node.metadata.uid.clone(), phase: status.phase, facts: Arc::new(facts) };
        self.view.send_if_modified(|known| {
            let is_new = *known != view;
            if known.phase != view.phase {
                tracing::info!(phase = %view.phase, "the controller judges this node again");
            }
            *known = view;
            is_new
        });
    }
}

/// The earlier one of a time and the end of a span that begins now.
fn sooner(at: Option<Instant>, span: Duration) -> Instant {
    let end = Instant::now() + span;
    at.map_or(end, |at| at.min(end))
}

/// What the watch has shown of the node.
#[derive(Debug, Default)]
struct Seen {
    is_listed: bool,
    was_interrupted: bool,
}
