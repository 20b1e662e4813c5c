//! Requests to agents on behalf of volumes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use drover_api::CSIVolume;
use drover_api::client_node::{CsiCall, CsiRequest};
use drover_api::csi_volume::{CSIVolumeStatus, Claim, ClaimMode};
use drover_core::ids::NodeName;
use drover_core::volume::expand::Expand;
use drover_core::volume::plugin_lock::{Caller, PluginLock};
use drover_core::volume::release::{ControllerCall, NodeCall};
use drover_core::volume::snapshot::SnapshotRequest;

/// A call for a volume itself.
#[derive(Clone, Debug)]
pub(super) struct ProviderCall {
    pub(super) call: CsiCall,
    /// The node whose controller, or whose mount, is asked.
    pub(super) controller: NodeName,
    pub(super) plugin: String,
    /// The provider's id of the volume, once it has one.
    pub(super) external_id: String,
    /// How large it is to become.
    pub(super) expand: Option<Expand>,
    /// What a person requests of its snapshots.
    pub(super) request: Option<SnapshotRequest>,
    /// The generation of the spec that it is about.
    pub(super) generation: i64,
}

/// A call, with all that follows on its answer.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// Attach it.
    Publish(ControllerCall),
    /// Detach it.
    Unpublish(ControllerCall),
    /// Unmount what an allocation that is gone has left.
    Node(NodeCall),
    /// Make it, confirm it, enlarge it, see to its snapshots, or delete it.
    Provider(ProviderCall),
}

impl Asked {
    pub(super) fn call(&self) -> CsiCall {
        match self {
            Self::Provider(call) => call.call,
            Self::Publish(_) => CsiCall::ControllerPublish,
            Self::Unpublish(_) => CsiCall::ControllerUnpublish,
            Self::Node(_) => CsiCall::NodeUnpublish,
        }
    }

    /// The node whose agent is asked.
    pub(super) fn agent(&self) -> &NodeName {
        match self {
            Self::Publish(call) | Self::Unpublish(call) => &call.controller,
            Self::Provider(call) => &call.controller,
            Self::Node(call) => &call.node,
        }
    }

    pub(super) fn plugin(&self) -> &str {
        match self {
            Self::Publish(call) | Self::Unpublish(call) => &call.plugin,
            Self::Provider(call) => &call.plugin,
            Self::Node(call) => &call.plugin,
        }
    }

    pub(super) fn external_id(&self) -> &str {
        match self {
            Self::Publish(call) | Self::Unpublish(call) => &call.external_id,
            Self::Provider(call) => &call.external_id,
            Self::Node(call) => &call.external_id,
        }
    }

    /// What the agent reads; `claim` is the one that it is about.
    pub(super) fn request(&self, volume: &CSIVolume, claim: Option<&Claim>) -> CsiRequest {
        let node_id = match self {
            Self::Publish(call) | Self::Unpublish(call) => call.external_node_id.clone(),
            Self::Node(_) | Self::Provider(_) => String::new(),
        };
        let (expand, request) = match self {
            Self::Provider(call) => (call.expand, call.request.as_ref()),
            Self::Publish(_) | Self::Unpublish(_) | Self::Node(_) => (None, None),
        };
        let snapshot = request.map(|request| request.snapshot(volume.metadata.uid.as_deref().unwrap_or_default()));
        CsiRequest {
            call: self.call(),
            plugin_id: self.plugin().to_owned(),
            namespace: volume.metadata.namespace.clone().unwrap_or_default(),
            volume: volume.metadata.name.clone().unwrap_or_default(),
            external_id: self.external_id().to_owned(),
            alloc_id: claim.map(|claim| claim.alloc_id.clone()).unwrap_or_default(),
            node_id,
            // Who knows the nodes adds it.
            node_key: String::new(),
            read_only: claim.is_some_and(|claim| claim.mode == ClaimMode::Read),
            access_mode: claim.and_then(|claim| claim.access_mode),
            attachment_mode: claim.and_then(|claim| claim.attachment_mode),
            required_bytes: expand.map(|expand| expand.required),
            limit_bytes: expand.and_then(|expand| expand.limit),
            snapshot: snapshot.unwrap_or_default(),
        }
    }
}

/// What a request is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestSubject<'a> {
    pub(super) volume: &'a Arc<CSIVolume>,
    /// The claim, where it is about one.
    pub(super) claim: Option<&'a Claim>,
}

/// A claim of a volume, as both are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed<'a> {
    pub(super) volume: &'a Arc<CSIVolume>,
    pub(super) status: &'a CSIVolumeStatus,
    pub(super) claim: &'a Claim,
}

impl<'a> Claimed<'a> {
    /// The same for a request.
    pub(super) fn about(self) -> RequestSubject<'a> {
        RequestSubject { volume: self.volume, claim: Some(self.claim) }
    }
}

/// A request that waits for its answer.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) caller: Caller,
    pub(super) asked: Asked,
}

/// The calls of agents that are under way.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) lock: PluginLock,
    /// What agents are asked for, by the name of the request.
    pub(super) by_name: BTreeMap<String, Call>,
    pub(super) n_asked: u64,
    /// The same, as the agents read it.
    pub(super) requests: HashMap<NodeName, BTreeMap<String, CsiRequest>>,
}

impl Calls {
    /// How many have no answer yet.
    pub(super) fn n_under_way(&self) -> usize {
        self.by_name.len()
    }
}
