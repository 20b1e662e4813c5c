//! What a HostVolume's object is to say now, and whether it may go.

use drover_api::client_node::NodePhase;
use drover_api::condition::{ConditionStatus, Wanted, merged};
use drover_api::host_volume::{
    HostVolumeColumns, HostVolumeConditionType as Type, HostVolumePhase as Phase, HostVolumeReason as Reason,
    HostVolumeStatus,
};
use drover_api::message::some_of;
use jiff::Timestamp;

use super::choose::{NoNode, choose};
use super::claims::claims;
use super::known::KnownVolume;
use super::request::users;
use crate::ids::NodeName;
use crate::model::Node;
use crate::snapshot::ClusterView;

/// Allocations that a condition names.
const TOLD: usize = 3;

/// What is known of a volume.
#[derive(Clone, Copy, Debug)]
pub struct StepFacts<'a> {
    /// The cluster.
    pub view: &'a ClusterView,
    /// The volume.
    pub volume: &'a KnownVolume,
    /// Its status as it is stored.
    pub stored: &'a HostVolumeStatus,
    /// Its metadata.generation.
    pub generation: i64,
}

/// What is to be written.
#[must_use]
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeStep {
    /// Its finalizer: nothing is made before it is there.
    Hold,
    /// That its finalizer goes: nothing is left that drover would have to take away, or can.
    Free,
    /// This status.
    Status(Box<HostVolumeStatus>),
}

/// Decides what is to be written of a volume. Total.
pub fn step(facts: &StepFacts<'_>, now: Timestamp) -> VolumeStep {
    let StepFacts { view, volume, stored, generation } = *facts;
    let mut node = volume.node.clone();
    let found = if volume.is_deleting {
        match leaving(view, volume) {
            None => return VolumeStep::Free,
            Some(found) => found,
        }
    } else if !volume.is_held {
        return VolumeStep::Hold;
    } else {
        // What never was anywhere is lost with no node.
        if stored.phase == Phase::Pending && node.as_ref().is_some_and(|node| view.node(node).is_none()) {
            node = None;
        }
        let chosen = node.map_or_else(|| choose(view, volume), Ok);
        let found = there(facts, chosen.as_ref());
        node = chosen.ok();
        found
    };
    let mut status = HostVolumeStatus {
        observed_generation: generation,
        phase: found.phase,
        node_name: node.as_ref().map(ToString::to_string).unwrap_or_default(),
        id: volume.id.to_string(),
        claims: claims(view, volume).into_iter().collect(),
        columns: HostVolumeColumns::default(),
        conditions: merged(&stored.conditions, found.conditions(), generation, now),
    };
    status.columns = columns(view, volume, &status);
    VolumeStep::Status(Box::new(status))
}

/// Where a volume stands, and why.
struct Found {
    phase: Phase,
    reason: Reason,
    message: String,
}

impl Found {
    fn conditions(&self) -> Vec<Wanted<Type, Reason>> {
        let says = |kind, status| Wanted { r#type: kind, status, reason: self.reason, message: self.message.clone() };
        let (ready, more) = match self.reason {
            Reason::Available => (ConditionStatus::True, None),
            Reason::Making => (ConditionStatus::Unknown, Some(Type::Reconciling)),
            Reason::InUse | Reason::Removing => (ConditionStatus::False, Some(Type::Reconciling)),
            Reason::NoNode
            | Reason::NameInUse
            | Reason::MakeFailed
            | Reason::NodeUnavailable
            | Reason::RemoveFailed => (ConditionStatus::False, Some(Type::Stalled)),
        };
        let more = more.map(|kind| says(kind, ConditionStatus::True));
        [says(Type::Ready, ready)].into_iter().chain(more).collect()
    }
}

/// Where a volume stands that is to be there.
fn there(facts: &StepFacts<'_>, chosen: Result<&NodeName, &NoNode>) -> Found {
    let StepFacts { view, volume, stored, .. } = *facts;
    let phase = if stored.phase == Phase::Pending { Phase::Pending } else { Phase::Unavailable };
    let name = match chosen {
        Ok(name) => name,
        Err(none) => return Found { phase, reason: none.reason, message: none.message.clone() },
    };
    let Some(node) = view.node(name) else {
        let message = format!(
            "ClientNode {name} is gone, and the volume's files with it: delete the volume, or start the agent of the node again"
        );
        return Found { phase, reason: Reason::NodeUnavailable, message };
    };
    if let Some(why) = silence(node) {
        let message = format!("node {name} is {why}: look at its agent");
        return Found { phase, reason: Reason::NodeUnavailable, message };
    }
    let offered = volume.offer(node);
    if volume.is_offered(node) {
        let message = format!("it is on node {name}");
        return Found { phase: Phase::Ready, reason: Reason::Available, message };
    }
    match offered.map(|offered| offered.error.as_str()).filter(|error| !error.is_empty()) {
        Some(error) => Found { phase, reason: Reason::MakeFailed, message: format!("node {name}: {error}") },
        None => Found { phase, reason: Reason::Making, message: format!("node {name} is asked for it") },
    }
}

/// What a volume waits for that is being deleted; none: nothing.
fn leaving(view: &ClusterView, volume: &KnownVolume) -> Option<Found> {
    let phase = Phase::Unavailable;
    let node = view.node(volume.node.as_ref().filter(|_| volume.is_held)?)?;
    let mut names: Vec<&str> = users(view, volume).map(|alloc| &*alloc.key.name).collect();
    names.sort_unstable();
    if !names.is_empty() {
        let names = some_of(names, TOLD);
        let message =
            format!("it goes when no allocation uses it, and {names} does; stop the job, or take the volume out of it");
        return Some(Found { phase, reason: Reason::InUse, message });
    }
    let name = &node.name;
    let offered = volume.offer(node);
    // It has answered: neither a folder nor an error is left.
    if offered
        .is_some_and(|offered| offered.ready == Some(false) && offered.path.is_empty() && offered.error.is_empty())
    {
        return None;
    }
    if let Some(why) = silence(node) {
        let message = format!(
            "node {name} is {why} and cannot take it away: look at its agent, or delete the ClientNode to let the volume go with its files left there"
        );
        return Some(Found { phase, reason: Reason::NodeUnavailable, message });
    }
    Some(match offered.map(|offered| offered.error.as_str()).filter(|error| !error.is_empty()) {
        Some(error) => Found { phase, reason: Reason::RemoveFailed, message: format!("node {name}: {error}") },
        None => Found { phase, reason: Reason::Removing, message: format!("node {name} is asked to take it away") },
    })
}

/// Why a node's agent does not answer.
fn silence(node: &Node) -> Option<&'static str> {
    (node.phase != NodePhase::Ready).then(|| node.phase.as_str())
}

fn columns(view: &ClusterView, volume: &KnownVolume, status: &HostVolumeStatus) -> HostVolumeColumns {
    let spec = &volume.spec;
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let ready = status.conditions.first().filter(|ready| ready.status != ConditionStatus::True);
    HostVolumeColumns {
        source: spec.plugin.map_or_else(|| or_dash(&spec.host_path), |plugin| plugin.to_string()),
        node: or_dash(&status.node_name),
        allocs: users(view, volume).count().to_string(),
        reason: ready.map_or_else(|| "-".to_owned(), |ready| ready.reason.to_string()),
    }
}
