//! Whether a node has the host volumes that a group mounts (`spec/scheduler.md` 4.5): HostVolumes of the job's own
//! namespace, else what the node offers by its configuration. A name that a HostVolume of the namespace has stands for
//! nothing else, wherever that volume is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::client_node::{NodePhase, OfferedVolume};
use drover_api::csi_volume::AttachmentMode;
use drover_api::group::Group;
use drover_api::host_volume::HostVolumeCapability;
use drover_api::message::some_of;
use drover_api::volume_request::{RequestAccessMode, VolumeRequest};

use super::WantedGroup;
use crate::host_volume::claims::{claim, sticky};
use crate::host_volume::known::KnownVolume;
use crate::ids::{NodeName, ObjectKey};
use crate::model::{Alloc, newest_of_slot};
use crate::scheduler::proposed::Proposed;
use crate::snapshot::{ClusterView, NodeEntry};
use crate::volume::access::{is_csi, source};

/// Nodes that a reason names.
const TOLD: usize = 3;

/// A slot that looks for a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    /// Its number.
    pub(super) index: i64,
    /// The ids of the HostVolumes that are its own.
    pub(super) own: &'a BTreeSet<String>,
}

/// The key of the first rule of host volumes that a node breaks.
pub(super) fn missing_host(
    wanted: WantedGroup<'_>,
    entry: &NodeEntry,
    proposed: &Proposed<'_>,
    slot: Slot<'_>,
) -> Option<String> {
    host_requests(wanted.group).find_map(|request| {
        let source = source(request, slot.index);
        let named: Vec<&Arc<KnownVolume>> =
            proposed.view().host_volumes().named(&ObjectKey::new(wanted.job.namespace.clone(), &*source)).collect();
        if named.is_empty() {
            let known = entry.node.host_volumes.get(&source).filter(|volume| volume.namespace.is_empty());
            let suits = known.is_some_and(|volume| {
                let is_exclusive = !volume.id.is_empty() && is_single_writer(request);
                suits(volume, request) && !(is_exclusive && has_writer(wanted, &source, entry, proposed))
            });
            return (!suits).then(|| format!("missingHostVolumes:{source}"));
        }
        let why = refusal(wanted, (request, &named), entry, (proposed, slot))?;
        Some(format!("missingHostVolumes:{source} {why}"))
    })
}

/// Why a node's HostVolume of a name does not do.
fn refusal(
    wanted: WantedGroup<'_>,
    (request, named): (&VolumeRequest, &[&Arc<KnownVolume>]),
    entry: &NodeEntry,
    (proposed, slot): (&Proposed<'_>, Slot<'_>),
) -> Option<String> {
    let (view, node) = (proposed.view(), &entry.node.name);
    // One that is gone binds to no place.
    let own = named.iter().find(|volume| request.sticky && slot.own.contains(volume.id.as_str()));
    if let Some(place) = own.and_then(|own| own.node.as_ref()).filter(|place| *place != node) {
        return Some(format!("is sticky, and the allocation's own is on node {place}{}", state_of(view, place)));
    }
    let Some(volume) = named.iter().find(|volume| volume.node.as_ref() == Some(node)) else {
        return Some(elsewhere(view, named));
    };
    let access = access_mode(request);
    let attachment = request.attachment_mode.unwrap_or_default();
    if volume.is_deleting {
        Some(format!("is being deleted on node {node}"))
    } else if !volume.is_offered(&entry.node) {
        Some(format!("is not ready on node {node}"))
    } else if !offers(&volume.spec.capabilities, request) {
        Some(format!("offers no {access} with {attachment} on node {node}"))
    } else if is_single_writer(request) && has_writer(wanted, &source(request, slot.index), entry, proposed) {
        Some(format!("has the one writer that it may have on node {node}"))
    } else {
        None
    }
}

/// Where the volumes of a name are.
fn elsewhere(view: &ClusterView, named: &[&Arc<KnownVolume>]) -> String {
    let mut places: Vec<&NodeName> = named.iter().filter_map(|volume| volume.node.as_ref()).collect();
    places.sort_unstable();
    if places.is_empty() {
        return "has no node yet".to_owned();
    }
    let told = places.iter().map(|place| format!("{place}{}", state_of(view, place)));
    format!("is on node {}", some_of(told, TOLD))
}

/// Why nothing is placed on a node; empty where something may be.
fn state_of(view: &ClusterView, node: &NodeName) -> String {
    match view.node(node) {
        None => ", which is gone".to_owned(),
        Some(node) if node.phase != NodePhase::Ready => format!(", which is {}", node.phase),
        Some(node) if node.is_draining => ", which is being drained".to_owned(),
        Some(node) if !node.is_eligible => ", which is ineligible".to_owned(),
        Some(_) => String::new(),
    }
}

fn host_requests(group: &Group) -> impl Iterator<Item = &VolumeRequest> {
    group.volumes.iter().filter(|request| !is_csi(request))
}

/// The HostVolumes that a group's slot uses on a node: their ids, by the names of the group's volumes.
pub fn taken(view: &ClusterView, wanted: WantedGroup<'_>, node: &NodeName, index: i64) -> BTreeMap<String, String> {
    let id = |request: &VolumeRequest| {
        let name = ObjectKey::new(wanted.job.namespace.clone(), source(request, index));
        let mut named = view.host_volumes().named(&name);
        let volume = named.find(|volume| volume.node.as_ref() == Some(node))?;
        Some((request.name.clone(), volume.id.to_string()))
    };
    host_requests(wanted.group).filter_map(id).collect()
}

/// The ids of the HostVolumes that are a slot's own, where the group's volumes are sticky: those that its newest holder
/// used, and where the view has no holder, those that keep a claim of it. O(allocations of the job).
pub(super) fn own(view: &ClusterView, wanted: WantedGroup<'_>, index: i64) -> BTreeSet<String> {
    let Some(job) = view.job(wanted.job).filter(|_| sticky(wanted.group).next().is_some()) else {
        return BTreeSet::new();
    };
    let is_holder = |alloc: &&Arc<Alloc>| {
        let is_of_slot = alloc.job_uid == job.uid && alloc.group == wanted.group.name && alloc.index == index;
        is_of_slot && !alloc.host_volumes.is_empty()
    };
    let holders: Vec<&Arc<Alloc>> = view.allocs_of_job(wanted.job).filter(is_holder).collect();
    if let Some(newest) = newest_of_slot(&holders) {
        return newest.host_volumes.values().cloned().collect();
    }
    let claim = claim(job, &wanted.group.name, index);
    view.host_volumes().claimed(&claim).map(|volume| volume.id.to_string()).collect()
}

/// Whether the group asks for volumes of each slot's own, or each slot for the one that it had.
pub fn depends_on_slot(group: &Group) -> bool {
    group.volumes.iter().any(|volume| volume.per_alloc) || sticky(group).next().is_some()
}

/// The names by which a group asks for host volumes; one of each slot's own ends with `[]`.
pub fn asked_names(group: &Group) -> impl Iterator<Item = String> {
    let name = |request: &VolumeRequest| {
        if request.per_alloc { format!("{}[]", request.source) } else { request.source.clone() }
    };
    host_requests(group).map(name)
}

/// Whether a volume that no HostVolume stands behind does.
fn suits(volume: &OfferedVolume, request: &VolumeRequest) -> bool {
    let is_writable = request.read_only || !volume.read_only;
    if volume.id.is_empty() {
        return is_writable && !request.sticky;
    }
    is_writable && offers(&volume.capabilities, request) && volume.ready == Some(true)
}

fn offers(capabilities: &[HostVolumeCapability], request: &VolumeRequest) -> bool {
    let (access, attachment) = (access_mode(request), request.attachment_mode.unwrap_or(AttachmentMode::FileSystem));
    capabilities.iter().any(|one| one.access_mode == access && one.attachment_mode == attachment)
}

/// How a group uses a host volume, where it does not say.
fn access_mode(request: &VolumeRequest) -> RequestAccessMode {
    let unsaid =
        if request.read_only { RequestAccessMode::SingleNodeReader } else { RequestAccessMode::SingleNodeWriter };
    request.access_mode.unwrap_or(unsaid)
}

/// Whether a request is for the only writer of a volume.
fn is_single_writer(request: &VolumeRequest) -> bool {
    !request.read_only && access_mode(request) == RequestAccessMode::SingleNodeSingleWriter
}

/// Whether an allocation that will be on the node writes to the volume of this name of the namespace.
fn has_writer(wanted: WantedGroup<'_>, asked: &str, entry: &NodeEntry, proposed: &Proposed<'_>) -> bool {
    let mut found = false;
    proposed.each_on(&entry.node.name, wanted, |namespace, group, index| {
        let mut writers = host_requests(group).filter(|one| !one.read_only);
        found |= namespace == wanted.job.namespace && writers.any(|one| source(one, index) == asked);
    });
    found
}
