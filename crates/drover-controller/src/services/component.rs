//! Which slices differ from what they should be. Looked at when an allocation, a version, a slice, a Service or the
//! addresses of a Kubernetes node change; nothing is looked at that they do not concern.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::condition::Wanted;
use drover_api::job::{JobConditionType, JobReason};
use drover_api::{Allocation, names};
use drover_core::ids::{AllocKey, JobKey, NodeName};
use drover_core::service::{self, Endpoints, EndpointsFault, EndpointsInput};
use drover_store::{Change, Key, Object as _, Precondition, convert};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;

use super::objects;
use super::plans::ServicePlans;
use super::write::{EndpointsError, EndpointsWrite};
use crate::actions::Action;
use crate::cache::Observed;
use crate::keys::key_of;
use crate::shared::{Notice, RETRY, Shared};
use crate::timers::Wake;

/// How soon a name that was taken is tried again: a Service that is not drover's is not watched.
const TAKEN_AGAIN: Duration = Duration::from_secs(30);
/// How soon a slice that could not be deleted is tried again; doubled with each failure, up to [`RETRY`].
const REMOVED_AGAIN: Duration = Duration::from_millis(100);
/// Faults that one condition names.
const SHOWN_FAULTS: usize = 3;

/// Why something of an allocation cannot be found.
type Fault = (JobReason, String);

/// The component.
#[derive(Debug, Default)]
pub(crate) struct Services {
    /// Slices that are being written.
    writing: BTreeSet<Key>,
    /// Slices that are to go, and how often their deletion has failed.
    going: BTreeMap<Key, u32>,
    /// Services that have changed, or are gone, since one was written: what they lack is written once.
    changed: BTreeSet<Key>,
    /// What should be found of each allocation.
    plans: ServicePlans,
    /// What stands in the way, by job and allocation.
    faults: BTreeMap<JobKey, BTreeMap<AllocKey, Fault>>,
}

impl Services {
    /// The first look at everything: what agents report, and what leaders before have left.
    pub(crate) fn begin(shared: &mut Shared) {
        let has_services =
            |alloc: &&Arc<Allocation>| alloc.status.as_ref().is_some_and(|status| !status.services.is_empty());
        let reported = shared.caches.allocs.values().filter(has_services);
        let mut due: Vec<AllocKey> = reported.map(|alloc| convert::object_key(&alloc.metadata)).collect();
        due.extend(shared.caches.slices.values().filter_map(|slice| alloc_of(slice)));
        shared.due.endpoints.extend(due);
    }

    /// Takes in a change of an allocation.
    pub(crate) fn on_allocation(&mut self, shared: &mut Shared, seen: &Observed<Allocation>) {
        let (object, is_gone) = match seen {
            Observed::Now(object, _) => (object, false),
            Observed::Gone(object) => (object, true),
        };
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let is_known = shared.caches.slice_index.has_some(uid);
        let reports = object.status.as_ref().is_some_and(|status| !status.services.is_empty());
        let key = convert::object_key(&object.metadata);
        if is_gone {
            self.plans.forget(uid);
            // Its slices go with it, as what it owns.
            self.clear_fault(shared, &job_of(object), &key);
        } else if is_known || reports {
            shared.due.endpoints.insert(key);
        }
    }

    /// The versions of a job have changed: allocations that waited for theirs are looked at again.
    pub(crate) fn on_versions_of(shared: &mut Shared, job: &JobKey) {
        let of_job: Vec<AllocKey> = shared.view.allocs_of_job(job).map(|alloc| alloc.key.clone()).collect();
        shared.due.endpoints.extend(of_job);
    }

    /// Takes in a change of drover's slices.
    pub(crate) fn on_slice_change(&mut self, shared: &mut Shared, change: Change<EndpointSlice>) {
        let is_list = matches!(change, Change::InSync);
        for seen in shared.caches.slices.take(change) {
            self.on_slice(shared, &seen);
        }
        if is_list && shared.has_begun {
            Self::begin(shared);
        }
    }

    fn on_slice(&mut self, shared: &mut Shared, seen: &Observed<EndpointSlice>) {
        let index = &mut shared.caches.slice_index;
        let slice = match seen {
            Observed::Now(slice, before) => {
                index.note(before.as_deref(), Some(slice));
                slice
            }
            Observed::Gone(slice) => {
                index.note(Some(slice), None);
                self.going.remove(&slice.key());
                slice
            }
        };
        shared.due.endpoints.extend(alloc_of(slice));
    }

    /// Takes in a change of drover's Services: the allocations below one that is gone or was changed are looked at.
    pub(crate) fn on_service_change(&mut self, shared: &mut Shared, change: Change<Service>) {
        for seen in shared.caches.services.take(change) {
            let (Observed::Now(service, _) | Observed::Gone(service)) = &seen;
            let (caches, key) = (&shared.caches, service.key());
            let slices = caches.slice_index.below(&key).filter_map(|slice| caches.slices.get(slice));
            let below: Vec<AllocKey> = slices.filter_map(|slice| alloc_of(slice)).collect();
            if !below.is_empty() {
                self.changed.insert(key);
            }
            shared.due.endpoints.extend(below);
        }
    }

    /// Takes in a change of the cluster's nodes: only their addresses matter.
    pub(crate) fn on_core_node_change(shared: &mut Shared, change: Change<Node>) {
        for seen in shared.caches.core_nodes.take(change) {
            let (node, before) = match &seen {
                Observed::Now(node, before) => (node, before.as_ref().map(|before| objects::addresses(before))),
                Observed::Gone(node) => (node, None),
            };
            if before.is_some_and(|before| before == objects::addresses(node)) {
                continue;
            }
            let name = NodeName::from(node.metadata.name.clone().unwrap_or_default());
            let there: Vec<AllocKey> = shared.view.allocs_on_node(&name).map(|alloc| alloc.key.clone()).collect();
            shared.due.endpoints.extend(there);
        }
    }

    /// Has written what differs of one allocation's slices.
    pub(crate) fn refresh(&mut self, shared: &mut Shared, key: &AllocKey) {
        // A list comes, and everything is looked at then.
        if !shared.caches.slices.is_synced() || !shared.caches.services.is_synced() {
            return;
        }
        let Some(object) = shared.caches.allocs.get(&key_of(key)).cloned() else { return };
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let (wanted, faults) = self.wanted(shared, key, &object);
        let mut known: BTreeSet<Key> = shared.caches.slice_index.of_allocation(&uid).cloned().collect();
        let mut is_settled = true;
        for endpoints in wanted {
            let slice_key = Key { namespace: object.metadata.namespace.clone(), name: endpoints.slice.clone() };
            known.remove(&slice_key);
            if let Some(write) = self.write(shared, &object, &endpoints, &slice_key) {
                is_settled = false;
                self.begin_write(shared, key, slice_key, write);
            }
        }
        for gone in known {
            let Some(stored) = shared.caches.slices.get(&gone) else { continue };
            let precondition = Precondition::same_object(&stored.metadata);
            is_settled = false;
            self.begin_write(shared, key, gone, EndpointsWrite::Delete(precondition));
        }
        let job = job_of(&object);
        match faults.first() {
            Some(fault) => self.note_fault(shared, &job, key, (JobReason::AddressRefused, fault.to_string())),
            // What a write has found holds until nothing is left to be written.
            None if is_settled || self.is_refused(&job, key) => self.clear_fault(shared, &job, key),
            None => {}
        }
    }

    /// What should be found of an allocation.
    fn wanted(
        &mut self,
        shared: &Shared,
        key: &AllocKey,
        object: &Allocation,
    ) -> (Vec<Endpoints>, Vec<EndpointsFault>) {
        let spec = &object.spec;
        let Some(status) = object.status.as_ref().filter(|status| !status.services.is_empty()) else {
            return (Vec::new(), Vec::new());
        };
        // What was decided counts before it is stored: a slice must not come back while its stop is being written.
        let known = shared.view.alloc(key).filter(|known| Some(known.uid.as_str()) == object.metadata.uid.as_deref());
        let is_wanted = spec.desired_status == DesiredStatus::Run
            && object.metadata.deletion_timestamp.is_none()
            && known.is_some_and(|known| known.desired == DesiredStatus::Run && !known.is_client_terminal());
        if !is_wanted {
            return (Vec::new(), Vec::new());
        }
        let version = Key::namespaced(&*key.namespace, names::job_version_name(&spec.job_name, spec.job_version));
        let version = shared.caches.versions.get(&version).filter(|version| version.spec.job_uid == spec.job_uid);
        let planned = version.map(|version| self.plans.of(object, version)).unwrap_or_default();
        let node = shared.caches.core_nodes.get(&Key::cluster(spec.node_name.as_str()));
        let node_addresses = node.map(|node| objects::addresses(node)).unwrap_or_default();
        service::endpoints(&EndpointsInput {
            uid: object.metadata.uid.as_deref().unwrap_or_default(),
            planned: &planned,
            reported: &status.services,
            client: if known.is_some_and(|known| known.client == ClientStatus::Unknown) {
                ClientStatus::Unknown
            } else {
                status.client_status
            },
            is_wanted,
            node_addresses: &node_addresses,
            allowed: &shared.config.services.allowed_cidrs,
        })
    }

    /// The write that makes a slice and its Service what they should be; none where they are.
    fn write(&self, shared: &Shared, object: &Allocation, wanted: &Endpoints, slice: &Key) -> Option<EndpointsWrite> {
        let service = objects::service(object, wanted);
        let stored = shared.caches.services.get(&service.key());
        let is_complete = stored.is_some_and(|stored| objects::missing(stored, &service).is_none());
        // A Service that is lent is never seen: of others only a change tells that something may be lacking.
        let is_due = !is_complete && self.changed.contains(&service.key());
        let service = (!is_complete).then(|| Box::new(service));
        let node = shared.view.node(&object.spec.node_name.as_str().into());
        let made = objects::slice(object, wanted, node.map(|node| &*node.datacenter));
        let Some(stored) = shared.caches.slices.get(slice) else {
            return Some(EndpointsWrite::Make { service, slice: Box::new(made) });
        };
        let body = objects::difference(stored, &made).or_else(|| is_due.then(|| json!({})))?;
        let precondition = Precondition::unchanged(&stored.metadata);
        Some(EndpointsWrite::Change { service, precondition, body })
    }

    fn begin_write(&mut self, shared: &mut Shared, key: &AllocKey, slice: Key, write: EndpointsWrite) {
        // What is under way ends first; then it is looked at again.
        if self.writing.insert(slice.clone()) {
            match &write {
                EndpointsWrite::Delete(_) => drop(self.going.entry(slice.clone()).or_default()),
                EndpointsWrite::Make { service, .. } | EndpointsWrite::Change { service, .. } => {
                    self.going.remove(&slice);
                    if let Some(service) = service {
                        self.changed.remove(&service.key());
                    }
                }
            }
            shared.outbox.push(Action::Endpoints(key.clone(), slice, Box::new(write)));
        }
    }

    /// Takes in what became of a write.
    pub(crate) fn on_written(
        &mut self,
        shared: &mut Shared,
        key: &AllocKey,
        slice: &Key,
        result: Result<Option<EndpointSlice>, EndpointsError>,
    ) {
        self.writing.remove(slice);
        let again = match result {
            Ok(Some(object)) => {
                if let Some(seen) = shared.caches.slices.observe(object) {
                    self.on_slice(shared, &seen);
                }
                Duration::ZERO
            }
            Ok(None) => {
                if let Some(gone) = shared.caches.slices.forget(slice) {
                    self.on_slice(shared, &Observed::Gone(gone));
                }
                Duration::ZERO
            }
            Err(error) => {
                let (reason, again) = match &error {
                    EndpointsError::NameTaken(_) => (JobReason::NameTaken, TAKEN_AGAIN),
                    EndpointsError::Store(error) if error.class() == drover_store::ErrorClass::Conflict => {
                        tracing::debug!(%slice, %error, "a slice has changed meanwhile and is looked at again");
                        return shared.wake_in(RETRY / 10, Wake::Endpoints(key.clone()));
                    }
                    EndpointsError::Store(_) => (JobReason::EndpointsFailed, self.pause_after_failure(slice)),
                };
                tracing::warn!(%slice, %error, "the endpoints of an allocation are not written");
                self.changed.extend(shared.caches.slices.get(slice).and_then(|slice| objects::service_of(slice)));
                let job = shared.caches.allocs.get(&key_of(key)).map(|alloc| job_of(alloc));
                if let Some(job) = job {
                    self.note_fault(shared, &job, key, (reason, error.to_string()));
                }
                again
            }
        };
        if again.is_zero() {
            shared.due.endpoints.insert(key.clone());
        } else {
            shared.wake_in(again, Wake::Endpoints(key.clone()));
        }
    }

    /// How soon a write of a slice that failed is tried again: what should be found no more soonest.
    fn pause_after_failure(&mut self, slice: &Key) -> Duration {
        let Some(n_failed) = self.going.get_mut(slice) else { return RETRY };
        let pause = REMOVED_AGAIN.saturating_mul(1 << (*n_failed).min(8));
        *n_failed += 1;
        pause.min(RETRY)
    }

    /// What a job's status says of its services; nothing where all are as they should be.
    fn condition(&self, job: &JobKey) -> Option<Wanted<JobConditionType, JobReason>> {
        let faults = self.faults.get(job)?;
        let (reason, _) = faults.values().next()?;
        let texts: BTreeSet<&str> = faults.values().map(|(_, text)| text.as_str()).collect();
        let shown: Vec<&str> = texts.into_iter().take(SHOWN_FAULTS).collect();
        Some(Wanted::no(JobConditionType::Services, *reason, shown.join("; ")))
    }

    /// This stands in the way.
    fn note_fault(&mut self, shared: &mut Shared, job: &JobKey, alloc: &AllocKey, fault: Fault) {
        let faults = self.faults.entry(job.clone()).or_default();
        if faults.get(alloc) == Some(&fault) {
            return;
        }
        faults.insert(alloc.clone(), fault);
        shared.notify(Notice::Services(job.clone(), self.condition(job)));
    }

    /// Whether an address of an allocation was the last that stood in its way.
    fn is_refused(&self, job: &JobKey, alloc: &AllocKey) -> bool {
        let fault = self.faults.get(job).and_then(|faults| faults.get(alloc));
        fault.is_some_and(|(reason, _)| *reason == JobReason::AddressRefused)
    }

    fn clear_fault(&mut self, shared: &mut Shared, job: &JobKey, alloc: &AllocKey) {
        let Some(faults) = self.faults.get_mut(job) else { return };
        let is_news = faults.remove(alloc).is_some();
        if faults.is_empty() {
            self.faults.remove(job);
        }
        if is_news {
            shared.notify(Notice::Services(job.clone(), self.condition(job)));
        }
    }
}

/// The allocation that a slice belongs to.
fn alloc_of(slice: &EndpointSlice) -> Option<AllocKey> {
    let namespace = slice.metadata.namespace.clone().unwrap_or_default();
    Some(AllocKey::new(namespace, objects::owner(slice)?.name.clone()))
}

fn job_of(object: &Allocation) -> JobKey {
    JobKey::new(object.metadata.namespace.clone().unwrap_or_default(), object.spec.job_name.clone())
}
