//! The writer: carries out what the components of a leader have decided, beside its loop.
//!
//! What became of an [`Action`] comes back as a [`Done`]. So many are under way at most that the loop takes nothing in
//! before some have ended. Must never decide anything.

use std::time::Duration;

use drover_api::{
    Allocation, CSIVolume, ClientNode, Deployment, HostVolume, Job, JobVersion, field_manager, finalizer, names,
};
use drover_core::ids::ObjectKey;
use drover_store::{ErrorClass, Key, Object, Part, Precondition, Store, StoreError, found, status_body};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::{Value, json};
use tokio::task::{JoinError, JoinSet};

use crate::actions::{Action, DeploymentStatusWrite, Done, GarbageKind};
use crate::deployments;
use crate::heartbeat_config;
use crate::jobs;
use crate::keys::key_of;

/// Actions under way, above which the loop takes nothing in. A start with ten thousand deployments stays below.
const MOST_UNDER_WAY: usize = 16 * 1024;

/// When an Event is written again that the API server did not take.
const REPORT_PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(20)];

/// Carries actions out, each as a task of its own.
#[derive(Debug)]
pub(crate) struct Writer<S> {
    store: S,
    under_way: JoinSet<Done>,
}

impl<S: Store> Writer<S> {
    /// A writer to this store.
    pub(crate) fn new(store: S) -> Self {
        Self { store, under_way: JoinSet::new() }
    }

    /// Begins an action.
    pub(crate) fn begin(&mut self, action: Action) {
        let store = self.store.clone();
        self.under_way.spawn(carry_out(action, store));
    }

    /// Whether more may be begun.
    pub(crate) fn has_room(&self) -> bool {
        self.under_way.len() < MOST_UNDER_WAY
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// The next action that ends; none when nothing is under way.
    pub(crate) async fn ended(&mut self) -> Option<Result<Done, JoinError>> {
        self.under_way.join_next().await
    }
}

/// Writes an Event; again after a while when the API server does not answer: it is what people look for then. One that
/// was written although no answer came is there already.
async fn report<S: Store>(store: &S, event: &Event) -> Result<(), StoreError> {
    for pause in REPORT_PAUSES {
        match store.create(event).await {
            Err(error) if error.class() == ErrorClass::Transient => tokio::time::sleep(pause).await,
            written => return written.map(|_| ()),
        }
    }
    store.create(event).await.map(|_| ())
}

pub(crate) async fn carry_out<S: Store>(action: Action, store: S) -> Done {
    match action {
        Action::Report(event) => Done::Other("event", report(&store, &event).await),
        Action::Prepare(preparation, trigger) => {
            let (job, prepared) = preparation.write(store).await;
            Done::Prepared(job, trigger, Box::new(prepared))
        }
        Action::Plan(writes, created) => {
            let (job, written) = writes.write(store).await;
            Done::Applied(job, created, written)
        }
        Action::JobStatus(key, precondition, status) => {
            let (job, result) = jobs::write_status(store, key, precondition, status).await;
            Done::JobStatus(job, Box::new(result))
        }
        Action::FetchVersion(job, number) => {
            let key = Key::namespaced(&*job.namespace, names::job_version_name(&job.name, number));
            let result = store.get::<JobVersion>(&key).await;
            Done::VersionFetched(job, number, Box::new(result))
        }
        Action::FreeJob(key, object) => {
            let body = without(&*object, finalizer::STOP_ALLOCATIONS);
            let precondition = Precondition::unchanged(&object.metadata);
            let result = store.merge::<Job>(&key_of(&key), Part::Spec, &precondition, body).await;
            Done::JobFreed(key, Box::new(found(result)))
        }
        Action::Launch(key, at, child) => {
            let result = jobs::create_launch(store, *child).await;
            Done::Launched(key, at, Box::new(result))
        }
        Action::Settle(key, object) => {
            let body = without(&*object, finalizer::NODE_CLEANUP);
            let precondition = Precondition::unchanged(&object.metadata);
            let result = store.merge::<Allocation>(&key_of(&key), Part::Spec, &precondition, body).await;
            Done::Settled(key, Box::new(found(result)))
        }
        Action::Mark(key, precondition, body) => {
            let result = store.merge::<Allocation>(&key_of(&key), Part::Spec, &precondition, body).await;
            Done::Marked(key, Box::new(result))
        }
        Action::NodeStatus(name, precondition, status) => {
            let key = Key::cluster(name.as_str());
            let (manager, body) = (field_manager::CONTROLLER_NODE, status_body(Value::clone(&status)));
            let result = store.apply_status(&key, manager, &precondition, body).await;
            Done::NodeStatus(name, Box::new(result))
        }
        Action::NodeSpec(name, precondition, body) => {
            let key = Key::cluster(name.as_str());
            let result = store.merge::<ClientNode>(&key, Part::Spec, &precondition, body).await;
            Done::NodeSpec(name, Box::new(result))
        }
        Action::Ttl(namespace, ttl) => Done::Ttl(Box::new(heartbeat_config::write_ttl(store, namespace, ttl).await)),
        Action::ConfigOutcome(key, outcome) => {
            let result = heartbeat_config::write_outcome(store, &key, outcome).await;
            Done::Other("outcome of the configuration", result)
        }
        Action::DeploymentStatus(DeploymentStatusWrite { key, precondition, status, evaluate, promoted }) => {
            let result = deployments::write_status(&store, &key_of(&key), &precondition, json!(status)).await;
            let promoted = if result.is_ok() { promoted } else { Vec::new() };
            let acted = deployments::act(&store, Vec::new(), promoted).await;
            Done::DeploymentStatus(key, evaluate, Box::new((result, acted)))
        }
        Action::Act(act) => {
            let acted = deployments::act(&store, act.restores, act.changes).await;
            Done::DeploymentActed(act.key, Box::new(acted))
        }
        Action::VolumeSpec(id, key, precondition, body) => {
            let result = store.merge::<CSIVolume>(&key, Part::Spec, &precondition, body).await;
            Done::VolumeSpec(id, Box::new(found(result)))
        }
        Action::VolumeStatus(id, key, precondition, body) => {
            let manager = field_manager::CONTROLLER_VOLUME;
            let result = store.apply_status(&key, manager, &precondition, body).await;
            Done::VolumeStatus(id, Box::new(result))
        }
        Action::HostVolumeSpec(key, precondition, body) => host_volume_spec(&store, key, &precondition, body).await,
        Action::HostVolumeStatus(key, precondition, body) => host_volume_status(&store, key, &precondition, body).await,
        Action::MakeAttachment(caller, attachment) => {
            let name = attachment.metadata.name.clone().unwrap_or_default();
            let result = store.create(&*attachment).await;
            Done::AttachmentMade(caller, name, Box::new(result))
        }
        Action::DeleteAttachment(caller, name, precondition) => {
            let result = store.delete::<VolumeAttachment>(&Key::cluster(name.as_str()), &precondition).await;
            Done::AttachmentDeleted(caller, name, result)
        }
        Action::Endpoints(alloc, slice, write) => {
            let result = write.write(&store, &slice).await;
            Done::Endpoints(alloc, slice, Box::new(result))
        }
        Action::Collect(kind, key, precondition) => match kind {
            GarbageKind::Allocation => Done::Other("garbage", store.delete::<Allocation>(&key, &precondition).await),
            GarbageKind::Deployment => Done::Other("garbage", store.delete::<Deployment>(&key, &precondition).await),
            GarbageKind::Node => Done::Other("garbage", store.delete::<ClientNode>(&key, &precondition).await),
            GarbageKind::Job => Done::Other("garbage", store.delete::<Job>(&key, &precondition).await),
            GarbageKind::Version => Done::Other("version", store.delete::<JobVersion>(&key, &precondition).await),
        },
    }
}

async fn host_volume_spec<S: Store>(store: &S, key: ObjectKey, precondition: &Precondition, body: Value) -> Done {
    let result = store.merge::<HostVolume>(&key_of(&key), Part::Spec, precondition, body).await;
    Done::HostVolume(key, Box::new(found(result)))
}

async fn host_volume_status<S: Store>(store: &S, key: ObjectKey, precondition: &Precondition, body: Value) -> Done {
    let manager = field_manager::CONTROLLER_HOST_VOLUME;
    let result = store.apply_status(&key_of(&key), manager, precondition, body).await;
    Done::HostVolume(key, Box::new(found(result)))
}

/// The change of an object that takes one finalizer off.
fn without<K: Object>(object: &K, finalizer: &str) -> Value {
    json!({ "metadata": { "finalizers": finalizer::without(object.meta(), finalizer) } })
}
