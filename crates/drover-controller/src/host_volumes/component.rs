//! The component: what changes mean for HostVolumes, and the writes that follow.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::host_volume::HostVolumeStatus;
use drover_api::{Allocation, HostVolume, finalizer};
use drover_core::broker::blocked::Freed;
use drover_core::host_volume::claims::sticky;
use drover_core::host_volume::known::KnownVolume;
use drover_core::host_volume::step::{StepFacts, VolumeStep, step};
use drover_core::ids::{JobKey, NodeName, ObjectKey};
use drover_core::model::Job;
use drover_core::snapshot::ClusterView;
use drover_store::{Precondition, StoreError, convert, status_body};
use serde_json::json;

use crate::actions::Action;
use crate::cache::Observed;
use crate::keys::key_of;
use crate::nodes::NodeChange;
use crate::shared::{RETRY, Shared};
use crate::timers::Wake;

/// What a leader knows of HostVolumes besides their objects: writes that are under way, with the node that they give a
/// volume.
#[derive(Debug, Default)]
pub(crate) struct HostVolumes {
    writing: BTreeMap<ObjectKey, Option<NodeName>>,
}

impl HostVolumes {
    /// The first look at everything.
    pub(crate) fn begin(shared: &mut Shared) {
        let all: Vec<ObjectKey> =
            shared.caches.host_volumes.values().map(|volume| convert::object_key(&volume.metadata)).collect();
        shared.due.host_volumes.extend(all);
    }

    /// Takes in a volume that is new, changed or gone: jobs may wait for it, its node may have something to do.
    pub(crate) fn on_change(shared: &mut Shared, seen: &Observed<HostVolume>) {
        let index = shared.view.host_volumes_mut();
        let (known, before) = match seen {
            Observed::Now(object, before) => {
                let known = convert::host_volume(object);
                index.put(known.clone());
                (known, before.as_ref().map(|before| convert::host_volume(before)))
            }
            Observed::Gone(object) => {
                let known = convert::host_volume(object);
                index.remove(&known.key);
                // Its name and its place may be what another one waits for.
                let waiting: Vec<ObjectKey> = index.without_node().map(|volume| volume.key.clone()).collect();
                shared.due.host_volumes.extend(waiting);
                (known, None)
            }
        };
        if before.as_ref() == Some(&known) {
            return;
        }
        shared.due.host_volumes.insert(known.key.clone());
        shared
            .due
            .nodes
            .extend(known.node.iter().chain(before.iter().filter_map(|before| before.node.as_ref())).cloned());
        Self::free(shared, &known);
    }

    /// Jobs that wait for a volume of this name are looked at again.
    fn free(shared: &mut Shared, volume: &KnownVolume) {
        let ObjectKey { namespace, name } = volume.asked_as();
        shared.free(Freed::Volume(format!("host-volume:{namespace}:{name}")));
        if let Some((source, _)) = name.rsplit_once('[') {
            shared.free(Freed::Volume(format!("host-volume:{namespace}:{source}[]")));
        }
    }

    /// Takes in an allocation that is new, changed or gone: the volumes that it uses may be free now, or its slot's
    /// own.
    pub(crate) fn on_allocation(shared: &mut Shared, seen: &Observed<Allocation>) {
        let (Observed::Now(object, _) | Observed::Gone(object)) = seen;
        if object.spec.host_volumes.is_empty() {
            return;
        }
        let node = NodeName::from(object.spec.node_name.as_str());
        let used: Vec<ObjectKey> = used(&shared.view, &node, &object.spec.host_volumes).collect();
        shared.due.host_volumes.extend(used);
        shared.due.nodes.insert(node);
    }

    /// Takes in that a job is new, changed or gone: its slots may keep volumes from now on, or no more. O(its claims;
    /// where a group keeps volumes, its allocations and the volumes of their nodes too).
    pub(crate) fn on_job(shared: &mut Shared, job: &JobKey) {
        let view = &shared.view;
        let claimed = view.host_volumes().claimed_by_job(job).map(|volume| volume.key.clone());
        let keeps = |job: &Arc<Job>| job.definition.spec.groups.iter().any(|group| sticky(group).next().is_some());
        let of_allocs = view.job(job).filter(|job| keeps(job)).into_iter().flat_map(|_| view.allocs_of_job(job));
        let of_allocs = of_allocs.filter(|alloc| !alloc.host_volumes.is_empty());
        let of_allocs = of_allocs.flat_map(|alloc| used(view, &alloc.node, &alloc.host_volumes));
        let concerned: Vec<ObjectKey> = claimed.chain(of_allocs).collect();
        shared.due.host_volumes.extend(concerned);
    }

    /// Takes in a node that is new, changed or gone: it may have made what it was asked for, or be what others wait
    /// for.
    pub(crate) fn on_node(shared: &mut Shared, change: &NodeChange) {
        let now = change.now.as_ref().map(|(node, _)| node);
        let before = change.before.as_deref();
        let Some(name) = now.or(before).map(|node| &node.name).filter(|_| now != before) else { return };
        let index = shared.view.host_volumes();
        let concerned = index.on_node(name).chain(index.without_node()).map(|volume| volume.key.clone());
        let concerned: Vec<ObjectKey> = concerned.collect();
        shared.due.host_volumes.extend(concerned);
    }

    /// Writes what is due of a volume.
    pub(crate) fn refresh(&mut self, shared: &mut Shared, key: &ObjectKey) {
        if self.writing.contains_key(key) {
            return;
        }
        let Some(object) = shared.caches.host_volumes.get(&key_of(key)).cloned() else { return };
        let Some(volume) = shared.view.host_volumes().get(key).cloned() else { return };
        let stored = object.status.clone().unwrap_or_else(unseen);
        let mut view = shared.view.clone();
        for (other, node) in self.writing.iter().filter(|_| volume.node.is_none()) {
            // What is being given to others counts already.
            if let (Some(known), Some(node)) = (view.host_volumes().get(other).cloned(), node) {
                view.host_volumes_mut().put(KnownVolume { node: Some(node.clone()), ..(*known).clone() });
            }
        }
        let generation = object.metadata.generation.unwrap_or(0);
        let facts = StepFacts { view: &view, volume: &volume, stored: &stored, generation };
        match step(&facts, shared.clock.now()) {
            VolumeStep::Hold => {
                let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
                finalizers.push(finalizer::REMOVE_VOLUME.to_owned());
                self.write_finalizers(shared, key, &object, &json!(finalizers));
            }
            VolumeStep::Free if volume.is_held => {
                let finalizers = finalizer::without(&object.metadata, finalizer::REMOVE_VOLUME);
                self.write_finalizers(shared, key, &object, &json!(finalizers));
            }
            VolumeStep::Free => {}
            VolumeStep::Status(status) if *status == stored => {}
            VolumeStep::Status(status) => {
                let node = (!status.node_name.is_empty()).then(|| NodeName::from(status.node_name.as_str()));
                self.writing.insert(key.clone(), node);
                let (precondition, body) = (Precondition::unchanged(&object.metadata), status_body(json!(status)));
                shared.outbox.push(Action::HostVolumeStatus(key.clone(), precondition, body));
            }
        }
    }

    fn write_finalizers(
        &mut self,
        shared: &mut Shared,
        key: &ObjectKey,
        object: &HostVolume,
        finalizers: &serde_json::Value,
    ) {
        self.writing.insert(key.clone(), None);
        let body = json!({ "metadata": { "finalizers": finalizers } });
        shared.outbox.push(Action::HostVolumeSpec(key.clone(), Precondition::unchanged(&object.metadata), body));
    }

    /// Takes in what became of a write; none where it found the volume gone.
    pub(crate) fn on_written(
        &mut self,
        shared: &mut Shared,
        key: &ObjectKey,
        result: Result<Option<HostVolume>, StoreError>,
    ) {
        self.writing.remove(key);
        match result {
            Ok(object) => {
                if let Some(seen) = object.and_then(|object| shared.caches.host_volumes.update(object)) {
                    Self::on_change(shared, &seen);
                }
                shared.due.host_volumes.insert(key.clone());
            }
            Err(StoreError::NotFound(_)) => {}
            Err(StoreError::Conflict(_)) => shared.wake_in(RETRY / 10, Wake::HostVolume(key.clone())),
            Err(error) => {
                tracing::warn!(volume = %key, %error, "a host volume was not written");
                shared.wake_in(RETRY, Wake::HostVolume(key.clone()));
            }
        }
    }
}

/// The volumes of a node that an allocation names.
fn used<'a>(
    view: &'a ClusterView,
    node: &NodeName,
    named: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = ObjectKey> + use<'a> {
    let on_node: Vec<&Arc<KnownVolume>> = view.host_volumes().on_node(node).collect();
    let is_named = |volume: &&Arc<KnownVolume>| named.values().any(|id| id == volume.id.as_str());
    on_node.into_iter().filter(is_named).map(|volume| volume.key.clone())
}

/// The status of a volume that was never reconciled.
fn unseen() -> HostVolumeStatus {
    HostVolumeStatus { observed_generation: -1, ..HostVolumeStatus::default() }
}
