//! This machine's ClientNode: made once, followed, made again when somebody deleted it. The agent writes `status.fingerprint` and
//! nothing else of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::client_node::{Eligibility, Fingerprint, NodePhase};
use drover_api::{ClientNode, ClientNodeSpec, field_manager};
use futures::StreamExt;
use serde_json::json;
use tokio::sync::Notify;

use super::environment::NodeFacts;
use super::random::Random;
use super::watch;
use crate::config::agent::AgentConfig;
use crate::store::{Change, Key, Ownership, Part, Precondition, Selection, Store, StoreError};

/// The pauses after a registration that failed: without an answer, and with a refusal.
const RETRY_UNREACHABLE: Duration = Duration::from_secs(1);
const RETRY_REFUSED: Duration = Duration::from_secs(15);

/// What the agent's parts need to know of their node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeView {
    /// The node's object, as last seen.
    pub(crate) uid: Option<String>,
    /// Where the controller has it.
    pub(crate) phase: NodePhase,
    /// For environments and interpolation.
    pub(crate) facts: Arc<NodeFacts>,
}

impl NodeView {
    /// Whether the controller takes status of its allocations.
    pub(crate) fn may_report(&self) -> bool {
        match self.phase {
            NodePhase::Ready | NodePhase::Initializing => true,
            NodePhase::Down | NodePhase::Disconnected => false,
        }
    }
}

/// Keeps the node registered.
#[derive(Debug)]
pub(crate) struct Node<S> {
    pub(crate) store: S,
    pub(crate) random: Random,
    pub(crate) name: String,
    pub(crate) config: Arc<AgentConfig>,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) view: watch::Sender<NodeView>,
    /// Asks for a heartbeat at once.
    pub(crate) heartbeat: Arc<Notify>,
    /// Says that the API server answers again.
    pub(crate) reachable: Arc<Notify>,
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
            meta: fingerprint.meta.static_meta.clone(),
        };
        NodeView { uid: None, phase: NodePhase::Initializing, facts: Arc::new(facts) }
    }

    /// Registers, and then follows the node for ever.
    pub(crate) async fn run(self) {
        self.register().await;
        let fields = Some(format!("metadata.name={}", self.name));
        let mut changes = self.store.watch::<ClientNode>(Selection { namespace: None, fields });
        let (mut is_listed, mut was_interrupted) = (false, false);
        while let Some(change) = changes.next().await {
            match change {
                Change::Restarted => is_listed = false,
                Change::Present(node) => {
                    is_listed = true;
                    self.observe(&node);
                }
                Change::Gone(_) => self.register().await,
                Change::InSync if !is_listed => self.register().await,
                // The API server is back: whoever waits to try again need not.
                Change::InSync if std::mem::take(&mut was_interrupted) => self.reachable.notify_waiters(),
                Change::InSync => {}
                Change::Malformed(key, reason) => {
                    tracing::warn!(node = %key, reason, "this node's object cannot be read");
                }
                Change::Interrupted(reason) => {
                    was_interrupted = true;
                    tracing::debug!(reason, "watch of this node is interrupted");
                }
            }
        }
    }

    /// Makes the object where there is none, writes the fingerprint, and beats at once. Tries until it works.
    async fn register(&self) {
        loop {
            match self.try_register().await {
                Ok(node) => {
                    tracing::info!(node = self.name, "node is registered");
                    self.observe(&node);
                    self.heartbeat.notify_one();
                    return;
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
        let unchanged = node.status.as_ref().and_then(|status| status.fingerprint.as_ref()) == Some(&self.fingerprint);
        if unchanged {
            return Ok(node);
        }
        let body = json!({ "status": { "fingerprint": self.fingerprint } });
        let precondition = Precondition::same_object(&node.metadata);
        self.store.apply(&key, Part::Status, field_manager::AGENT, Ownership::Force, &precondition, body).await
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
        let mut meta = self.fingerprint.meta.static_meta.clone();
        meta.extend(node.spec.meta.clone());
        let facts = NodeFacts {
            name: self.name.clone(),
            datacenter: node.spec.datacenter.clone(),
            class: node.spec.node_class.clone(),
            pool: node.spec.node_pool.clone(),
            attributes: self.fingerprint.attributes.clone(),
            meta,
        };
        let view = NodeView { uid: node.metadata.uid.clone(), phase: status.phase, facts: Arc::new(facts) };
        self.view.send_if_modified(|known| {
            let is_new = *known != view;
            if known.phase != view.phase {
                tracing::info!(phase = %view.phase, "the controller judges this node anew");
            }
            *known = view;
            is_new
        });
    }
}
