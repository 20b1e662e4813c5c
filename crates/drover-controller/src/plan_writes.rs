//! Writes a plan, in an order that a crash may cut anywhere: marks and stops first, then placements, then updates.
//! Every write is idempotent or has a precondition, so that the next evaluation, of this leader or another, finishes
//! what is missing.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::{
    AllocStateEntry, AllocStateField, AllocationReason, AllocationSpec, ClientStatus, DesiredStatus, LastReschedule,
};
use drover_api::names::{self, Slot};
use drover_api::{Allocation, Deployment, Job, JobVersion, PlanWrite, annotation, finalizer, label};
use drover_core::ids::{AllocKey, JobKey};
use drover_core::model::{Alloc, newest_of_slot};
use drover_core::scheduler::plan::{AttributeUpdate, InPlace, Placement, Plan, Stop, StopReason};
use futures::StreamExt;
use jiff::Timestamp;
use kube::Resource;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use crate::deployments::{self, DeploymentWrite};
use crate::keys::key_of;
use crate::services;
use crate::stored::Stored;
use drover_store::{ErrorClass, Key, Part, Precondition, Store, StoreError};

/// Writes of one plan that are under way at the same time.
const PARALLEL: usize = 32;

/// When it is asked again for what may have been created, while the API server does not answer.
const ASK_PAUSES: [Duration; 3] = [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];

/// A plan with all that its writes need.
#[derive(Debug)]
pub(crate) struct Writes {
    /// The job.
    pub(crate) job: JobKey,
    deployments: Vec<DeploymentWrite>,
    stops: Vec<StopWrite>,
    creates: Vec<CreateWrite>,
    patches: Vec<(Key, Precondition, Value)>,
}

#[derive(Debug)]
struct StopWrite {
    key: Key,
    /// The stored object, for the mark's precondition.
    stored: Option<Arc<Allocation>>,
    /// The change of its spec; none where only its status changes.
    spec: Option<Value>,
    mark: Option<Mark>,
    /// What is found of it: deleted before it is stopped.
    slices: Vec<Key>,
    /// Whether it is back from where it was disconnected.
    is_return: bool,
    at: Timestamp,
}

/// What the controller notes in an allocation's status.
#[derive(Clone, Copy, Debug)]
struct Mark {
    client: ClientStatus,
    reason: AllocationReason,
    description: &'static str,
    message: &'static str,
}

const LOST: Mark = Mark {
    client: ClientStatus::Lost,
    reason: AllocationReason::Lost,
    description: "its node is lost",
    message: "its node is down or gone; another allocation takes its place",
};
const CUT_OFF: Mark = Mark {
    client: ClientStatus::Unknown,
    reason: AllocationReason::Reconnecting,
    description: "NodeDisconnected",
    message: "its node is disconnected; it may still run there",
};

#[derive(Debug)]
struct CreateWrite {
    object: Box<Allocation>,
    /// The stops that must have happened before.
    after: Vec<Key>,
}

/// What became of a plan's writes.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Deployments that were made or changed.
    pub(crate) deployments: Vec<Deployment>,
    /// Versions that became stable.
    pub(crate) versions: Vec<JobVersion>,
    /// Objects that were made, or found in the place of one to make.
    pub(crate) created: Vec<Allocation>,
    /// Objects that were changed, as the API server has them now.
    pub(crate) changed: Vec<Allocation>,
    /// Objects that a write found gone.
    pub(crate) gone: Vec<Key>,
    /// What did not happen, with the reason.
    pub(crate) failed: Vec<(Key, StoreError)>,
    /// Objects that were not touched because of what failed before.
    pub(crate) untouched: Vec<Key>,
}

impl Writes {
    /// Prepares the writes of a plan.
    pub(crate) fn new(key: &JobKey, plan: &Plan, stored: &Stored<'_>, is_per_node: bool, now: Timestamp) -> Self {
        let (job, siblings) = (stored.job, stored.siblings);
        let newest = newest_holders(siblings, is_per_node);
        let creates: Vec<CreateWrite> = job.map_or_else(Vec::new, |job| {
            let create = |placement| CreateWrite::new((job, stored.eval_id), placement, &newest, is_per_node);
            plan.placements.iter().map(create).collect()
        });
        let is_rescheduled = plan.placements.iter().filter(|placement| placement.tracker.is_some());
        let rescheduled: HashSet<&AllocKey> =
            is_rescheduled.filter_map(|placement| placement.replaces.as_ref()).map(|stop| &stop.alloc.key).collect();
        let write =
            |alloc: &Arc<Alloc>, spec, mark| StopWrite::new(alloc, stored.allocation(&alloc.key), spec, mark, now);
        let mut stops: Vec<StopWrite> = plan
            .stops
            .iter()
            .chain(plan.replaced())
            .map(|stop| {
                let spec = Some(stop_spec(stop, rescheduled.contains(&stop.alloc.key)));
                StopWrite { slices: stored.slices_of(&stop.alloc), ..write(&stop.alloc, spec, mark_of(stop)) }
            })
            .collect();
        for (placement, create) in plan.placements.iter().zip(&creates) {
            let by = create.object.metadata.name.as_deref().unwrap_or_default();
            stops.extend(placement.preempts.iter().map(|victim| StopWrite {
                slices: stored.slices_of(victim),
                ..write(victim, Some(evict_spec(by)), None)
            }));
        }
        stops.extend(plan.disconnects.iter().map(|cut| {
            let spec = cut.follow_up.as_ref().map(|follow_up| json!({ "spec": { "followUp": follow_up } }));
            write(&cut.alloc, spec, Some(CUT_OFF))
        }));
        stops.extend(plan.reconnects.iter().map(|alloc| {
            let spec = alloc.follow_up.is_some().then(|| json!({ "spec": { "followUp": null } }));
            StopWrite { is_return: true, ..write(alloc, spec, None) }
        }));
        let in_place = plan.in_place.iter().map(|update| in_place_patch(update, stored.eval_id));
        let patches = in_place.chain(plan.attributes.iter().map(attribute_patch));
        let deployments = deployments::writes(plan, stored, now);
        let mut writes = Self { job: key.clone(), deployments, stops, creates, patches: patches.collect() };
        writes.belong_together(stored.eval_id);
        writes
    }

    /// Names the plan in each of its writes, but for notes in the status of allocations.
    fn belong_together(&mut self, eval_id: &str) {
        let n_stops = self.stops.iter().filter(|stop| stop.spec.is_some()).count();
        let n_of_deployments: usize = self.deployments.iter().map(DeploymentWrite::n_writes).sum();
        let writes = n_of_deployments + n_stops + self.creates.len() + self.patches.len();
        let plan = PlanWrite { eval_id: eval_id.to_owned(), writes: u32::try_from(writes).unwrap_or(u32::MAX) };
        let plan = plan.to_string();
        for deployment in &mut self.deployments {
            deployment.belongs_to(&plan);
        }
        let bodies = self.stops.iter_mut().filter_map(|stop| stop.spec.as_mut());
        for body in bodies.chain(self.patches.iter_mut().map(|(.., body)| body)) {
            body["metadata"] = json!({ "annotations": { annotation::PLAN: plan } });
        }
        for create in &mut self.creates {
            deployments::name_plan(&mut create.object.metadata, &plan);
        }
    }

    /// The allocations that will be created.
    pub(crate) fn creates(&self) -> impl Iterator<Item = &Allocation> {
        self.creates.iter().map(|create| &*create.object)
    }

    /// Does all of it.
    pub(crate) async fn write<S: Store>(self, store: S) -> (JobKey, Written) {
        let mut written = Written::default();
        for deployment in self.deployments {
            let key = deployment.key().clone();
            match deployment.write(&store).await {
                Ok((object, stable)) => {
                    written.deployments.push(object);
                    written.versions.extend(stable);
                }
                Err(error) => {
                    // Without its deployment nothing of the roll-out may begin.
                    written.failed.push((key, error));
                    let stops = self.stops.into_iter().map(|stop| stop.key);
                    written.untouched = stops.chain(self.patches.into_iter().map(|(key, ..)| key)).collect();
                    return (self.job, written);
                }
            }
        }
        // That one is back is noted last: until then the next evaluation decides again who stays.
        let (returns, stops): (Vec<_>, Vec<_>) = self.stops.into_iter().partition(|stop| stop.is_return);
        let unstopped = stop_all(&store, stops, &mut written).await;
        if unstopped.is_empty() {
            stop_all(&store, returns, &mut written).await;
        }
        let may_follow = |create: &CreateWrite| create.after.iter().all(|stop| !unstopped.contains(stop));
        let created: Vec<_> = futures::stream::iter(self.creates.into_iter().filter(may_follow).collect::<Vec<_>>())
            .map(|create| {
                let store = store.clone();
                async move {
                    let key = drover_store::Object::key(&*create.object);
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

/// Writes marks and stops, and gives back which did not happen.
async fn stop_all<S: Store>(store: &S, stops: Vec<StopWrite>, written: &mut Written) -> HashSet<Key> {
    let stops: Vec<_> = futures::stream::iter(stops)
        .map(|stop| async move { (stop.key.clone(), stop.write(store).await) })
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
    unstopped
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

/// Creates an allocation. One of its name that exists already is the answer, whatever node it names; where no answer
/// came it may exist, and is asked for: taken for unwritten, its room would be given to another one before the watch
/// shows it.
async fn create_or_adopt<S: Store>(store: &S, object: &Allocation, key: &Key) -> Result<Allocation, StoreError> {
    match store.create(object).await {
        Err(error) if error.class() == ErrorClass::Transient => found_after(store, key, error).await,
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

/// The allocation whose creation ended with this error, if it exists; else the error.
async fn found_after<S: Store>(store: &S, key: &Key, error: StoreError) -> Result<Allocation, StoreError> {
    for pause in ASK_PAUSES {
        match store.get::<Allocation>(key).await {
            Ok(Some(existing)) if existing.metadata.deletion_timestamp.is_none() => return Ok(existing),
            Ok(_) => return Err(error),
            Err(_) => tokio::time::sleep(pause).await,
        }
    }
    Err(error)
}

/// The change of an allocation that ends.
fn stop_spec(stop: &Stop, is_rescheduled: bool) -> Value {
    let mut spec = json!({ "desiredStatus": stop.desired, "desiredDescription": stop.reason.to_string() });
    if let Some(follow_up) = &stop.follow_up {
        spec["followUp"] = json!(follow_up);
    }
    if is_rescheduled {
        spec["rescheduleTracker"] = json!({ "lastReschedule": LastReschedule::Ok });
    }
    json!({ "spec": spec })
}

/// The change of an allocation that is evicted for another one.
fn evict_spec(by: &str) -> Value {
    json!({ "spec": {
        "desiredStatus": DesiredStatus::Evict,
        "desiredDescription": StopReason::PreemptedBy(by.into()).to_string(),
        "preemptedBy": by,
    } })
}

fn mark_of(stop: &Stop) -> Option<Mark> {
    stop.client.map(|client| Mark { client, ..LOST })
}

impl StopWrite {
    fn new(
        alloc: &Alloc,
        stored: Option<Arc<Allocation>>,
        spec: Option<Value>,
        mark: Option<Mark>,
        at: Timestamp,
    ) -> Self {
        Self { key: key_of(&alloc.key), stored, spec, mark, slices: Vec::new(), is_return: false, at }
    }

    /// First nothing finds it any more, then the mark, under the precondition that the agent has not written since;
    /// then the stop.
    async fn write<S: Store>(self, store: &S) -> Result<Vec<Allocation>, StoreError> {
        services::delete_all(store, &self.slices).await;
        let mut objects = Vec::new();
        let mut precondition = Precondition::default();
        if let Some(stored) = &self.stored {
            precondition = Precondition::same_object(&stored.metadata);
            if let Some(status) = self.status(stored) {
                let unchanged = Precondition::unchanged(&stored.metadata);
                objects.push(store.merge(&self.key, Part::Status, &unchanged, status).await?);
            }
        }
        if let Some(spec) = self.spec {
            objects.push(store.merge(&self.key, Part::Spec, &precondition, spec).await?);
        }
        Ok(objects)
    }

    /// What the controller notes in the status, if anything.
    fn status(&self, stored: &Allocation) -> Option<Value> {
        let status = stored.status.clone().unwrap_or_default();
        let note = |value| {
            let mut history = status.alloc_states.clone();
            history.push(AllocStateEntry { field: AllocStateField::ClientStatus, value, time: self.at });
            history
        };
        if self.is_return {
            return Some(json!({ "status": { "allocStates": note(status.client_status), "modifiedAt": self.at } }));
        }
        let mark = self.mark?;
        let condition = |kind: &str, holds: bool| {
            json!({
                "type": kind,
                "status": if holds { "True" } else { "False" },
                "reason": mark.reason,
                "observedGeneration": stored.metadata.generation,
                "lastTransitionTime": self.at,
                "message": mark.message,
            })
        };
        let stuck = if mark.client == ClientStatus::Unknown { "Reconciling" } else { "Stalled" };
        Some(json!({ "status": {
            "clientStatus": mark.client,
            "clientDescription": mark.description,
            "allocStates": note(mark.client),
            "modifiedAt": self.at,
            "columns": { "healthy": "-", "reason": mark.reason },
            "conditions": [condition("Ready", false), condition(stuck, true)],
        } }))
    }
}

/// For each slot, the newest allocation that held it: index, and node for system jobs.
fn newest_holders(siblings: &[Arc<Alloc>], is_per_node: bool) -> BTreeMap<(String, i64, Option<String>), Arc<Alloc>> {
    let mut slots: BTreeMap<_, Vec<&Arc<Alloc>>> = BTreeMap::new();
    for alloc in siblings {
        // Canaries have slots of their own.
        let canary_of = alloc.canary.then(|| alloc.deployment.as_ref().map(ToString::to_string)).flatten();
        let slot = (alloc.group.clone(), alloc.index, is_per_node.then(|| alloc.node.to_string()).or(canary_of));
        slots.entry(slot).or_default().push(alloc);
    }
    slots.into_iter().filter_map(|(slot, held)| Some((slot, Arc::clone(newest_of_slot(&held)?)))).collect()
}

impl CreateWrite {
    fn new(
        (job, eval_id): (&Job, &str),
        placement: &Placement,
        newest: &BTreeMap<(String, i64, Option<String>), Arc<Alloc>>,
        is_per_node: bool,
    ) -> Self {
        let meta = job.meta();
        let (name, uid) = (meta.name.clone().unwrap_or_default(), meta.uid.clone().unwrap_or_default());
        let node = is_per_node.then(|| placement.node.to_string());
        let canary_of = placement.deployment.as_deref().filter(|_| placement.canary);
        let holder = newest.get(&(
            placement.group.to_string(),
            placement.index,
            node.clone().or_else(|| canary_of.map(str::to_owned)),
        ));
        let slot = Slot {
            job: &name,
            job_uid: &uid,
            group: &placement.group,
            index: placement.index,
            node: node.as_deref(),
            canary_of,
            previous_uid: holder.map(|alloc| alloc.uid.as_str()),
        };
        let previous = placement.previous.as_ref().map(|alloc| alloc.key.name.to_string()).unwrap_or_default();
        let spec = AllocationSpec {
            job_name: name.clone(),
            job_uid: uid.clone(),
            job_version: placement.job_version,
            group: placement.group.to_string(),
            index: placement.index,
            node_name: placement.node.to_string(),
            deployment_name: placement.deployment.as_deref().unwrap_or_default().to_owned(),
            eval_id: eval_id.to_owned(),
            canary: placement.canary,
            preempted_allocations: placement.preempts.iter().map(|victim| victim.key.name.to_string()).collect(),
            previous_allocation: previous,
            resources: (*placement.resources).clone(),
            host_volumes: placement.host_volumes.clone(),
            reschedule_tracker: placement.tracker.clone(),
            metrics: Some(placement.metrics.to_api()),
            ..AllocationSpec::default()
        };
        let mut object = Allocation::new(&names::allocation_name(slot), spec);
        object.metadata = ObjectMeta {
            name: object.metadata.name.take(),
            namespace: meta.namespace.clone(),
            labels: Some(BTreeMap::from([
                (label::JOB.to_owned(), name),
                (label::GROUP.to_owned(), placement.group.to_string()),
            ])),
            owner_references: Some(vec![drover_api::owner::owner(job)]),
            finalizers: Some(vec![finalizer::NODE_CLEANUP.to_owned()]),
            ..ObjectMeta::default()
        };
        let ended = placement.replaces.as_ref().map(|stop| &stop.alloc).or(placement.previous.as_ref());
        let after = ended.map(|alloc| key_of(&alloc.key)).into_iter();
        let after = after.chain(placement.preempts.iter().map(|victim| key_of(&victim.key))).collect();
        Self { object: Box::new(object), after }
    }
}

fn in_place_patch(update: &InPlace, eval_id: &str) -> (Key, Precondition, Value) {
    let deployment = update.deployment.as_deref().unwrap_or_default();
    let body = json!({ "spec": {
        "jobVersion": update.job_version,
        "resources": *update.resources,
        "deploymentName": deployment,
        "evalID": eval_id,
    } });
    (key_of(&update.alloc.key), Precondition { uid: Some(update.alloc.uid.to_string()), resource_version: None }, body)
}

fn attribute_patch(update: &AttributeUpdate) -> (Key, Precondition, Value) {
    let mut spec = json!({ "followUp": update.follow_up });
    if let Some(outcome) = update.last_reschedule {
        spec["rescheduleTracker"] = json!({ "lastReschedule": outcome });
    }
    (key_of(&update.alloc), Precondition::default(), json!({ "spec": spec }))
}
