//! Writes a plan, in an order that a crash may cut anywhere: marks and stops first, then placements, then updates. Every write
//! is idempotent or has a precondition, so that the next evaluation, of this leader or another, finishes what is missing.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use drover_api::allocation::{AllocStateEntry, AllocStateField, AllocationSpec, ClientStatus, DesiredStatus};
use drover_api::names::{self, Slot};
use drover_api::{Allocation, Job, finalizer, label};
use drover_core::ids::{AllocKey, JobKey};
use drover_core::model::Alloc;
use drover_core::scheduler::plan::{AttributeUpdate, InPlace, Placement, Plan, Stop};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use crate::store::{Key, Part, Precondition, Store, StoreError};

/// Writes of one plan that are under way at the same time.
const PARALLEL: usize = 32;

/// A plan with all that its writes need.
#[derive(Debug)]
pub(super) struct Writes {
    /// The job.
    pub(super) job: JobKey,
    stops: Vec<StopWrite>,
    creates: Vec<CreateWrite>,
    patches: Vec<(Key, Precondition, Value)>,
}

#[derive(Debug)]
struct StopWrite {
    key: Key,
    /// The stored object, for the mark's precondition.
    stored: Option<Arc<Allocation>>,
    desired: DesiredStatus,
    description: &'static str,
    client: Option<ClientStatus>,
    at: Timestamp,
}

#[derive(Debug)]
struct CreateWrite {
    object: Box<Allocation>,
    /// The stop that must have happened before.
    after: Option<Key>,
}

/// What became of a plan's writes.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Objects that were made, or found in the place of one to make.
    pub(super) created: Vec<Allocation>,
    /// Objects that were changed, as the API server has them now.
    pub(super) changed: Vec<Allocation>,
    /// Objects that a write found gone.
    pub(super) gone: Vec<Key>,
    /// What did not happen, with the reason.
    pub(super) failed: Vec<(Key, StoreError)>,
}

impl Writes {
    /// Prepares the writes of a plan. `job` is the stored object, where there is one.
    pub(super) fn new(
        key: &JobKey,
        job: Option<&Job>,
        plan: &Plan,
        siblings: &[Arc<Alloc>],
        stored: impl Fn(&AllocKey) -> Option<Arc<Allocation>>,
        is_per_node: bool,
        now: Timestamp,
    ) -> Self {
        let replaced = plan.placements.iter().filter_map(|placement| placement.replaces.as_ref());
        let stops =
            plan.stops.iter().chain(replaced).map(|stop| StopWrite::new(stop, stored(&stop.alloc.key), now)).collect();
        let newest = newest_holders(siblings, is_per_node);
        let creates = job.map_or_else(Vec::new, |job| {
            plan.placements.iter().map(|placement| CreateWrite::new(job, placement, &newest, is_per_node)).collect()
        });
        let in_place = plan.in_place.iter().map(in_place_patch);
        let patches = in_place.chain(plan.attributes.iter().map(attribute_patch)).collect();
        Self { job: key.clone(), stops, creates, patches }
    }

    /// The allocations that will be created.
    pub(super) fn creates(&self) -> impl Iterator<Item = &Allocation> {
        self.creates.iter().map(|create| &*create.object)
    }

    /// Does all of it.
    pub(super) async fn write<S: Store>(self, store: S) -> (JobKey, Written) {
        let mut written = Written::default();
        let stops: Vec<_> = futures::stream::iter(self.stops)
            .map(|stop| {
                let store = store.clone();
                async move { (stop.key.clone(), stop.write(&store).await) }
            })
            .buffered(PARALLEL)
            .collect()
            .await;
        let mut unstopped = HashSet::new();
        for (key, result) in stops {
            match result {
                Ok(objects) => written.changed.extend(objects),
                Err(StoreError::NotFound(_)) => written.gone.push(key),
                Err(error) => {
                    unstopped.insert(key.clone());
                    written.failed.push((key, error));
                }
            }
        }
        let may_follow = |create: &CreateWrite| create.after.as_ref().is_none_or(|stop| !unstopped.contains(stop));
        let created: Vec<_> = futures::stream::iter(self.creates.into_iter().filter(may_follow).collect::<Vec<_>>())
            .map(|create| {
                let store = store.clone();
                async move {
                    let key = crate::store::Object::key(&*create.object);
                    (key.clone(), create_or_adopt(&store, &create.object, &key).await)
                }
            })
            .buffered(PARALLEL)
            .collect()
            .await;
        let patched: Vec<_> = futures::stream::iter(self.patches)
            .map(|(key, precondition, body)| {
                let store = store.clone();
                async move { (key.clone(), store.merge::<Allocation>(&key, Part::Spec, &precondition, body).await) }
            })
            .buffered(PARALLEL)
            .collect()
            .await;
        written.created = keep(created, &mut written);
        let changed = keep(patched, &mut written);
        written.changed.extend(changed);
        (self.job, written)
    }
}

/// The objects of writes that happened; the others are noted.
fn keep(results: Vec<(Key, Result<Allocation, StoreError>)>, written: &mut Written) -> Vec<Allocation> {
    let mut kept = Vec::new();
    for (key, result) in results {
        match result {
            Ok(object) => kept.push(object),
            Err(StoreError::NotFound(_)) => written.gone.push(key),
            Err(error) => written.failed.push((key, error)),
        }
    }
    kept
}

/// Creates an allocation. One of its name that exists already is the answer, whatever node it names.
async fn create_or_adopt<S: Store>(store: &S, object: &Allocation, key: &Key) -> Result<Allocation, StoreError> {
    match store.create(object).await {
        Err(StoreError::AlreadyExists(text)) => {
            let existing = store.get::<Allocation>(key).await?.ok_or(StoreError::Unavailable(text))?;
            if existing.metadata.deletion_timestamp.is_some() {
                return Err(StoreError::Unavailable(format!("{key} is still being deleted")));
            }
            Ok(existing)
        }
        other => other,
    }
}

impl StopWrite {
    fn new(stop: &Stop, stored: Option<Arc<Allocation>>, at: Timestamp) -> Self {
        Self {
            key: key_of(&stop.alloc.key),
            stored,
            desired: stop.desired,
            description: stop.reason.as_str(),
            client: stop.client,
            at,
        }
    }

    /// The mark first, under the precondition that the agent has not written since; then the stop.
    async fn write<S: Store>(self, store: &S) -> Result<Vec<Allocation>, StoreError> {
        let mut objects = Vec::new();
        let mut precondition = Precondition::default();
        if let Some(stored) = &self.stored {
            precondition = Precondition::same_object(&stored.metadata);
            if let Some(client) = self.client {
                let mark = self.mark(stored, client);
                objects.push(
                    store.merge(&self.key, Part::Status, &Precondition::unchanged(&stored.metadata), mark).await?,
                );
            }
        }
        let body = json!({ "spec": { "desiredStatus": self.desired, "desiredDescription": self.description } });
        objects.push(store.merge(&self.key, Part::Spec, &precondition, body).await?);
        Ok(objects)
    }

    fn mark(&self, stored: &Allocation, client: ClientStatus) -> Value {
        let status = stored.status.clone().unwrap_or_default();
        let mut history = status.alloc_states;
        history.push(AllocStateEntry { field: AllocStateField::ClientStatus, value: client, time: self.at });
        json!({ "status": {
            "clientStatus": client,
            "clientDescription": "its node is lost",
            "allocStates": history,
            "modifiedAt": self.at,
            "columns": { "healthy": "-", "reason": "Lost" },
            "conditions": [
                condition("Ready", "False", stored, self.at),
                condition("Stalled", "True", stored, self.at),
            ],
        } })
    }
}

fn condition(kind: &str, status: &str, stored: &Allocation, at: Timestamp) -> Value {
    json!({
        "type": kind,
        "status": status,
        "reason": "Lost",
        "observedGeneration": stored.metadata.generation,
        "lastTransitionTime": at,
        "message": "its node is down or gone; another allocation takes its place",
    })
}

/// For each slot, the newest allocation that held it: index, and node for system jobs.
fn newest_holders(siblings: &[Arc<Alloc>], is_per_node: bool) -> BTreeMap<(String, i64, Option<String>), Arc<Alloc>> {
    let mut newest: BTreeMap<_, Arc<Alloc>> = BTreeMap::new();
    for alloc in siblings {
        let slot = (alloc.group.clone(), alloc.index, is_per_node.then(|| alloc.node.to_string()));
        let entry = newest.entry(slot).or_insert_with(|| Arc::clone(alloc));
        if (alloc.created_at, &alloc.key) > (entry.created_at, &entry.key) {
            *entry = Arc::clone(alloc);
        }
    }
    newest
}

impl CreateWrite {
    fn new(
        job: &Job,
        placement: &Placement,
        newest: &BTreeMap<(String, i64, Option<String>), Arc<Alloc>>,
        is_per_node: bool,
    ) -> Self {
        let meta = job.meta();
        let (name, uid) = (meta.name.clone().unwrap_or_default(), meta.uid.clone().unwrap_or_default());
        let node = is_per_node.then(|| placement.node.to_string());
        let holder = newest.get(&(placement.group.clone(), placement.index, node.clone()));
        let slot = Slot {
            job: &name,
            job_uid: &uid,
            group: &placement.group,
            index: placement.index,
            node: node.as_deref(),
            canary_of: None,
            previous_uid: holder.map(|alloc| alloc.uid.as_str()),
        };
        let previous = placement.previous.as_ref().map(|alloc| alloc.key.name.to_string()).unwrap_or_default();
        let spec = AllocationSpec {
            job_name: name.clone(),
            job_uid: uid.clone(),
            job_version: placement.job_version,
            group: placement.group.clone(),
            index: placement.index,
            node_name: placement.node.to_string(),
            previous_allocation: previous,
            resources: placement.resources.clone(),
            reschedule_tracker: placement.tracker.clone(),
            metrics: Some(placement.metrics.clone()),
            ..AllocationSpec::default()
        };
        let mut object = Allocation::new(&names::allocation_name(slot), spec);
        object.metadata = ObjectMeta {
            name: object.metadata.name.take(),
            namespace: meta.namespace.clone(),
            labels: Some(BTreeMap::from([
                (label::JOB.to_owned(), name),
                (label::GROUP.to_owned(), placement.group.clone()),
            ])),
            owner_references: Some(vec![owner(job)]),
            finalizers: Some(vec![finalizer::NODE_CLEANUP.to_owned()]),
            ..ObjectMeta::default()
        };
        let after = placement.previous.as_ref().map(|alloc| key_of(&alloc.key));
        Self { object: Box::new(object), after }
    }
}

/// The reference that makes a job the owner of what the controller creates for it.
pub(super) fn owner(job: &Job) -> OwnerReference {
    OwnerReference {
        api_version: drover_api::API_VERSION.to_owned(),
        kind: "Job".to_owned(),
        name: job.meta().name.clone().unwrap_or_default(),
        uid: job.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
}

fn in_place_patch(update: &InPlace) -> (Key, Precondition, Value) {
    let body = json!({ "spec": { "jobVersion": update.job_version, "resources": update.resources } });
    (key_of(&update.alloc.key), Precondition { uid: Some(update.alloc.uid.to_string()), resource_version: None }, body)
}

fn attribute_patch(update: &AttributeUpdate) -> (Key, Precondition, Value) {
    let mut spec = json!({ "followUp": update.follow_up });
    if let Some(outcome) = update.last_reschedule {
        spec["rescheduleTracker"] = json!({ "lastReschedule": outcome });
    }
    (key_of(&update.alloc), Precondition::default(), json!({ "spec": spec }))
}

/// The store's key of an allocation.
pub(super) fn key_of(key: &AllocKey) -> Key {
    Key::namespaced(&*key.namespace, &*key.name)
}
