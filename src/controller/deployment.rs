//! What changes of deployments mean, and their status.

use std::sync::Arc;

use drover_api::deployment::{DeploymentDescription, DeploymentPhase, DeploymentSpec, DeploymentStatus};
use drover_api::job::EvalTrigger;
use drover_api::{Allocation, Deployment, Job, field_manager};
use drover_core::deployment::{self, Standing, Unhealthy};
use drover_core::ids::{JobKey, ObjectKey};
use drover_core::model::Alloc;
use drover_core::scheduler::plan::{DeploymentPlan, Plan};
use jiff::Timestamp;
use kube::Resource;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use crate::controller::allocation::found;
use crate::controller::apply::{key_of, owner};
use crate::controller::cache::Seen;
use crate::controller::term::{Done, RETRY, Term, Wake};
use crate::convert;
use crate::store::{Key, Ownership, Part, Precondition, Store, StoreError};

/// A write of a deployment that a plan asks for: its object, if it is new, and its status.
#[derive(Debug)]
pub(super) struct DeploymentWrite {
    key: Key,
    object: Option<Box<Deployment>>,
    status: DeploymentStatus,
}

/// The writes of deployments that a plan asks for.
pub(super) fn writes(
    plan: &Plan,
    job: Option<&Job>,
    allocs: &[Arc<Alloc>],
    stored: impl Fn(&ObjectKey) -> Option<Arc<Deployment>>,
    now: Timestamp,
) -> Vec<DeploymentWrite> {
    let ends = plan.deployment_updates.iter().filter_map(|update| {
        let object = stored(&update.deployment)?;
        let status = wanted(&object, Some((update.phase, update.description)), None, allocs, now);
        Some(DeploymentWrite { key: key_of(&update.deployment), object: None, status })
    });
    let begins = plan.deployment.iter().filter_map(|begun| {
        let object = if begun.is_new {
            new_object(job?, begun)
        } else {
            let namespace = job?.metadata.namespace.clone().unwrap_or_default();
            (*stored(&ObjectKey::new(namespace, Arc::clone(&begun.name)))?).clone()
        };
        let phase = begun.is_new.then_some((DeploymentPhase::Running, begun.description));
        let status = wanted(&object, phase, Some(begun), allocs, now);
        let key = crate::store::Object::key(&object);
        Some(DeploymentWrite { key, object: begun.is_new.then(|| Box::new(object)), status })
    });
    ends.chain(begins).collect()
}

fn new_object(job: &Job, begun: &DeploymentPlan) -> Deployment {
    let meta = job.meta();
    let spec = DeploymentSpec {
        job_name: meta.name.clone().unwrap_or_default(),
        job_uid: meta.uid.clone().unwrap_or_default(),
        job_version: begun.job_version,
        job_generation: meta.generation.unwrap_or(0),
        eval_priority: job.spec.priority,
        ..DeploymentSpec::default()
    };
    let mut object = Deployment::new(&begun.name, spec);
    object.metadata = ObjectMeta {
        name: object.metadata.name.take(),
        namespace: meta.namespace.clone(),
        labels: Some([(drover_api::label::JOB.to_owned(), meta.name.clone().unwrap_or_default())].into()),
        owner_references: Some(vec![owner(job)]),
        ..ObjectMeta::default()
    };
    object
}

fn wanted(
    object: &Deployment,
    phase: Option<(DeploymentPhase, DeploymentDescription)>,
    begun: Option<&DeploymentPlan>,
    allocs: &[Arc<Alloc>],
    now: Timestamp,
) -> DeploymentStatus {
    let stored = object.status.clone().unwrap_or_default();
    let (phase, description) = phase.unwrap_or((stored.phase, stored.description));
    let mut groups = stored.groups.clone();
    for (name, state) in begun.iter().flat_map(|begun| &begun.groups) {
        groups.insert(name.clone(), state.clone());
    }
    let standing = Standing {
        name: object.metadata.name.as_deref().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or(1),
        stored,
        phase,
        description,
        groups,
    };
    deployment::status(standing, allocs, now)
}

impl DeploymentWrite {
    /// Creates the object, if it is new, and writes the status.
    pub(super) async fn write<S: Store>(self, store: &S) -> Result<Deployment, StoreError> {
        let mut uid = None;
        if let Some(object) = &self.object {
            let made = match store.create(&**object).await {
                Err(StoreError::AlreadyExists(text)) => {
                    store.get::<Deployment>(&self.key).await?.ok_or(StoreError::Unavailable(text))?
                }
                other => other?,
            };
            uid = made.metadata.uid;
        }
        write_status(store, &self.key, uid, json!(self.status)).await
    }

    /// The deployment's name.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }
}

async fn write_status<S: Store>(
    store: &S,
    key: &Key,
    uid: Option<String>,
    status: Value,
) -> Result<Deployment, StoreError> {
    let precondition = Precondition { uid, resource_version: None };
    let (manager, body) = (field_manager::CONTROLLER_DEPLOYMENT, json!({ "status": status }));
    store.apply(key, Part::Status, manager, Ownership::Force, &precondition, body).await
}

impl<S: Store> Term<S> {
    pub(super) fn on_deployment(&mut self, seen: Seen<Deployment>) {
        match seen {
            Seen::Now(object, before) => {
                let known = convert::deployment(&object);
                let (key, job) = (known.key.clone(), known.job.clone());
                let phase = |object: &Deployment| object.status.as_ref().map(|status| status.phase);
                let has_moved = before.as_deref().is_some_and(|before| phase(before) != phase(&object));
                self.view.put_deployment(known);
                self.dirty_jobs.insert(job.clone());
                self.dirty_deployments.insert(key);
                if has_moved {
                    self.enqueue(&job, EvalTrigger::DeploymentWatcher);
                }
            }
            Seen::Gone(object) => {
                let known = convert::deployment(&object);
                self.view.remove_deployment(&known.job, &known.key);
                self.dirty_jobs.insert(known.job);
            }
        }
    }

    /// Writes a deployment's status where it differs. What is over stays as it was, but for the first status of its end.
    pub(super) fn refresh_deployment(&mut self, key: &ObjectKey) {
        let Some(object) = self.deployments.get(&key_of(key)).cloned() else { return };
        let job = JobKey::new(Arc::clone(&key.namespace), object.spec.job_name.clone());
        // A plan that is being written brings the status of its deployment with it.
        if self.broker.is_under_way(&job) || self.writing_deployments.contains(key) {
            return self.wake_in(RETRY / 10, Wake::Deployment(key.clone()));
        }
        let is_over = object.status.as_ref().is_none_or(|status| !status.phase.is_active());
        if is_over {
            return;
        }
        let allocs: Vec<Arc<Alloc>> = self.view.allocs_of_job(&job).cloned().collect();
        let has_failed = self.allow_replacements(&object, &allocs);
        let end = has_failed.then_some((DeploymentPhase::Failed, DeploymentDescription::FailedAllocations));
        let status = wanted(&object, end, None, &allocs, self.clock.now());
        if object.status.as_ref() == Some(&status) {
            return;
        }
        self.writing_deployments.insert(key.clone());
        let (store, key, uid) = (self.store.clone(), key.clone(), object.metadata.uid.clone());
        self.writes.spawn(async move {
            let result = write_status(&store, &key_of(&key), uid, json!(status)).await;
            Done::DeploymentStatus(key, Box::new(result))
        });
    }

    /// Lets unhealthy allocations be replaced. Says whether one cannot be, so that the deployment has failed.
    fn allow_replacements(&mut self, object: &Deployment, allocs: &[Arc<Alloc>]) -> bool {
        let status = object.status.clone().unwrap_or_default();
        let name = object.metadata.name.as_deref();
        let unhealthy =
            allocs.iter().filter(|alloc| alloc.deployment.as_deref() == name && deployment::is_unhealthy(alloc));
        for alloc in unhealthy.filter(|alloc| !alloc.transition.reschedule) {
            let definition = self.view.definition_of(alloc);
            let policy = definition.and_then(|known| known.group(&alloc.group)?.reschedule.as_ref());
            let state = status.groups.get(&alloc.group).cloned().unwrap_or_default();
            if deployment::judge_unhealthy(alloc, &state, policy) == Unhealthy::FailsDeployment {
                return true;
            }
            let (store, key, uid) = (self.store.clone(), alloc.key.clone(), alloc.uid.to_string());
            self.writes.spawn(async move {
                let body = json!({ "spec": { "desiredTransition": { "reschedule": true } } });
                let same = Precondition { uid: Some(uid), resource_version: None };
                let result = store.merge::<Allocation>(&key_of(&key), Part::Spec, &same, body).await;
                Done::Settled(key, Box::new(found(result)))
            });
        }
        false
    }

    pub(super) fn on_deployment_status(&mut self, key: &ObjectKey, result: Result<Deployment, StoreError>) {
        self.writing_deployments.remove(key);
        match result {
            Ok(object) => {
                if let Some(seen) = self.deployments.update(object) {
                    self.on_deployment(seen);
                }
            }
            Err(StoreError::NotFound(_) | StoreError::Conflict(_)) => {}
            Err(error) => {
                tracing::warn!(deployment = %key, %error, "a deployment's status was not written");
                self.wake_in(RETRY, Wake::Deployment(key.clone()));
            }
        }
    }
}
