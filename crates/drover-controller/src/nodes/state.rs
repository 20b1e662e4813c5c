//! What a leader knows of nodes besides their objects.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::ClientNode;
use drover_api::client_node::{
    CsiRequest, Drain, DrainState, NodeColumns, NodeConditionType as Type, NodeEvent, NodePhase, NodeReason as Reason,
    NodeResources,
};
use drover_api::condition::Condition;
use drover_api::host_volume::HostVolumeRequest;
use drover_core::ids::NodeName;
use drover_core::model::Node;
use drover_core::node::drain::Leaving;
use drover_core::node::heartbeat::{Allowed, Ledger};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::status_queue::StatusQueue;
use crate::config::ControllerConfig;
use crate::status_writes::Memo;
use crate::timers::TimerId;
/// Events that a node's status keeps.
pub(super) const KEPT_EVENTS: usize = 10;

/// What the leader knows of a node besides its object.
#[derive(Debug, Default)]
pub(super) struct NodeKnowledge {
    pub(super) phase: Option<NodePhase>,
    pub(super) phase_changed_at: Option<Timestamp>,
    pub(super) events: Vec<NodeEvent>,
    pub(super) sent: Option<(Arc<Value>, Instant)>,
    /// The status as it was wanted last, with its JSON: mostly it is wanted so again.
    pub(super) wanted: Memo<Shown>,
    pub(super) is_writing: bool,
    /// The drain under way, or the last one.
    pub(super) drain: Option<DrainState>,
    /// What the node says of plugins and does not count, and why.
    pub(super) ignored_plugins: Vec<String>,
    /// What the drain under way was asked to do when its deadline was set.
    pub(super) drain_request: Option<Drain>,
}

/// The controller's part of a node's status.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    pub(super) observed_generation: i64,
    pub(super) phase: NodePhase,
    pub(super) phase_changed_at: Option<Timestamp>,
    pub(super) allocatable: NodeResources,
    pub(super) drain: Option<DrainState>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) csi_requests: BTreeMap<String, CsiRequest>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) volume_requests: BTreeMap<String, HostVolumeRequest>,
    pub(super) events: Vec<NodeEvent>,
    pub(super) columns: NodeColumns,
    pub(super) conditions: Vec<Condition<Type, Reason>>,
}

/// How a status differs from the one that was written last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Differs {
    /// In phase or a condition.
    Urgently,
    /// In fields that can wait.
    Quietly {
        /// When the next one may be written.
        not_before: Option<Instant>,
    },
}

impl NodeKnowledge {
    /// Whether it was heard of again.
    pub(super) fn is_back(&self) -> bool {
        matches!(self.phase, Some(NodePhase::Initializing | NodePhase::Ready))
    }
}

/// The nodes of a leader.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(super) known: HashMap<NodeName, NodeKnowledge>,
    pub(super) heartbeats: Heartbeats,
    pub(super) drains: Drains,
    /// Nodes whose status differs only in fields that can wait.
    pub(super) status_queue: StatusQueue,
    /// When one of them is written next.
    pub(super) status_queue_timer: Option<TimerId>,
}

/// Who is heard of.
#[derive(Debug)]
pub(super) struct Heartbeats {
    pub(super) ledger: Ledger,
    /// Nodes that were heard of in this term.
    pub(super) heard: HashSet<NodeName>,
    /// Silent nodes that are marked later, with what is told of their pool.
    pub(super) held: BTreeMap<NodeName, Arc<str>>,
    /// Nodes that are late beside nodes that were marked.
    pub(super) suspects: BTreeSet<NodeName>,
    pub(super) published_ttl: Option<Duration>,
}

impl Heartbeats {
    pub(super) fn forget(&mut self, node: &NodeName) {
        self.ledger.forget(node);
        self.heard.remove(node);
        self.held.remove(node);
        self.suspects.remove(node);
    }
}

/// What a change of a node is to others.
#[derive(Debug)]
pub(crate) struct NodeChange {
    /// The node as the scheduler saw it before; none where it is new.
    pub(crate) before: Option<Arc<Node>>,
    /// As it is now, with its object; none where it is gone.
    pub(crate) now: Option<(Node, Arc<ClientNode>)>,
}

/// The drains of a leader.
#[derive(Debug, Default)]
pub(super) struct Drains {
    pub(super) under_way: BTreeMap<NodeName, Leaving>,
    /// Whether what they need is to be looked at now.
    pub(super) is_due: bool,
    /// When that is planned for.
    pub(super) wake_at: Option<Instant>,
}

impl Nodes {
    /// The nodes of a leader that renews its Lease so often.
    pub(crate) fn new(config: &ControllerConfig, renew_period: Duration) -> Self {
        let allowed = Allowed { ttl: config.heartbeat.min_ttl(), grace: config.heartbeat.grace() };
        Self {
            known: HashMap::new(),
            heartbeats: Heartbeats {
                ledger: Ledger::new(allowed, renew_period * 2),
                heard: HashSet::new(),
                held: BTreeMap::new(),
                suspects: BTreeSet::new(),
                published_ttl: None,
            },
            drains: Drains::default(),
            status_queue: StatusQueue::default(),
            status_queue_timer: None,
        }
    }
}
