//! The writes of deployments: objects and statuses that a plan asks for, and what follows from a stored status.
//!
//! Every write has a precondition or is idempotent; a crash between two of them leaves what the next look finishes.

use std::sync::Arc;

use drover_api::deployment::{DeploymentDescription, DeploymentPhase, DeploymentSpec, DeploymentStatus};
use drover_api::{Allocation, Deployment, Job, JobVersion, annotation, field_manager};
use drover_core::deployment::{self, Standing};
use drover_core::ids::{AllocKey, ObjectKey};
use drover_core::model::Alloc;
use drover_core::scheduler::plan::{DeploymentPlan, Plan};
use drover_store::{Key, Part, Precondition, Store, StoreError, found, status_body};
use futures::StreamExt;
use jiff::Timestamp;
use kube::Resource;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use crate::jobs;
use crate::keys::key_of;
use crate::stored::Stored;

/// Changes of one deployment's allocations that are under way at the same time.
const PARALLEL: usize = 32;

/// A write of a deployment that a plan asks for: its object, if it is new, and its status.
#[derive(Debug)]
pub(crate) struct DeploymentWrite {
    key: Key,
    object: Option<Box<Deployment>>,
    precondition: Precondition,
    status: DeploymentStatus,
    /// The version that becomes stable by its success.
    stable: Option<Arc<JobVersion>>,
}

/// The writes of deployments that a plan asks for.
pub(crate) fn writes(plan: &Plan, stored: &Stored<'_>, now: Timestamp) -> Vec<DeploymentWrite> {
    let Stored { job, siblings: allocs, versions, .. } = *stored;
    let ends = plan.deployment_updates.iter().filter_map(|update| {
        let object = stored.deployment(&update.deployment)?;
        // What the plan changes of its groups is in the same write: a second one would be refused.
        let changed = plan.deployment.as_ref().filter(|begun| begun.name == update.deployment.name);
        let status = wanted(&object, Some((update.phase, update.description)), changed, allocs, now);
        let stable = (update.phase == DeploymentPhase::Successful)
            .then(|| versions.iter().find(|one| one.spec.version == object.spec.job_version && !one.is_stable()))
            .flatten()
            .cloned();
        let precondition = Precondition::unchanged(&object.metadata);
        Some(DeploymentWrite { key: key_of(&update.deployment), object: None, precondition, status, stable })
    });
    let ends_too =
        |begun: &&DeploymentPlan| plan.deployment_updates.iter().any(|one| one.deployment.name == begun.name);
    let begins = plan.deployment.iter().filter(|begun| !ends_too(begun)).filter_map(|begun| {
        let object = if begun.is_new {
            new_object(job?, begun)
        } else {
            let namespace = job?.metadata.namespace.clone().unwrap_or_default();
            (*stored.deployment(&ObjectKey::new(namespace, Arc::clone(&begun.name)))?).clone()
        };
        // A leader may have died between the object and its first status.
        let is_untold =
            |status: &DeploymentStatus| status.groups.is_empty() && status.phase == DeploymentPhase::Running;
        let is_first = begun.is_new || object.status.as_ref().is_none_or(is_untold);
        let phase = is_first.then_some((DeploymentPhase::Running, begun.description));
        let status = wanted(&object, phase, Some(begun), allocs, now);
        let (key, precondition) = (drover_store::Object::key(&object), Precondition::unchanged(&object.metadata));
        let object = begun.is_new.then(|| Box::new(object));
        Some(DeploymentWrite { key, object, precondition, status, stable: None })
    });
    ends.chain(begins).collect()
}

/// Names the plan that makes an object.
pub(crate) fn name_plan(meta: &mut ObjectMeta, plan: &str) {
    meta.annotations.get_or_insert_default().insert(annotation::PLAN.to_owned(), plan.to_owned());
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
        owner_references: Some(vec![drover_api::owner::owner(job)]),
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
    let mut wanted = stored.clone();
    (wanted.phase, wanted.description) = phase.unwrap_or((stored.phase, stored.description));
    for (name, state) in begun.iter().flat_map(|begun| &begun.groups) {
        wanted.groups.insert(name.clone(), state.clone());
    }
    let standing = Standing {
        name: object.metadata.name.as_deref().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or(1),
        created_at: object.metadata.creation_timestamp.as_ref().map_or(now, |at| at.0),
        before: &stored,
        wanted,
    };
    deployment::status(standing, allocs, now)
}

impl DeploymentWrite {
    /// Creates the object, if it is new, and writes the status. A version becomes stable before its deployment is
    /// successful: a crash between the two leaves a deployment that is found complete once more.
    pub(crate) async fn write<S: Store>(self, store: &S) -> Result<(Deployment, Option<JobVersion>), StoreError> {
        let version = match &self.stable {
            Some(version) => Some(jobs::mark_stable(store, version).await?),
            None => None,
        };
        let mut precondition = self.precondition;
        if let Some(object) = &self.object {
            let made = match store.create(&**object).await {
                Err(StoreError::AlreadyExists(text)) => {
                    let made = store.get::<Deployment>(&self.key).await?.ok_or(StoreError::Unavailable(text))?;
                    // An earlier try may have made it; what it has become since is not known to this plan.
                    if made.status.as_ref().is_some_and(|status| status.observed_generation >= 0) {
                        return Err(StoreError::Conflict(format!("{} is under way already", self.key)));
                    }
                    made
                }
                other => other?,
            };
            precondition = Precondition::unchanged(&made.metadata);
        }
        let object = write_status(store, &self.key, &precondition, json!(self.status)).await?;
        Ok((object, version))
    }

    /// How many writes it takes.
    pub(crate) fn n_writes(&self) -> usize {
        1 + usize::from(self.object.is_some())
    }

    /// Names the plan that it is a part of.
    pub(crate) fn belongs_to(&mut self, plan: &str) {
        self.status.plan = Some(plan.to_owned());
        if let Some(object) = &mut self.object {
            name_plan(&mut object.metadata, plan);
        }
    }

    /// The deployment's name.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }
}

pub(crate) async fn write_status<S: Store>(
    store: &S,
    key: &Key,
    precondition: &Precondition,
    status: Value,
) -> Result<Deployment, StoreError> {
    let (manager, body) = (field_manager::CONTROLLER_DEPLOYMENT, status_body(status));
    store.apply_status(key, manager, precondition, body).await
}

/// Carries out what follows from a status: versions first, then the allocations.
pub(crate) async fn act<S: Store>(
    store: &S,
    restores: Vec<Restore>,
    changes: Vec<(AllocKey, Precondition, Value)>,
) -> Acted {
    let mut acted = Acted::default();
    for restore in restores {
        acted.versions.push(restore.write(store).await);
    }
    acted.allocs = futures::stream::iter(changes)
        .map(|(key, same, body)| async move {
            found(store.merge::<Allocation>(&key_of(&key), Part::Spec, &same, body).await)
        })
        .buffered(PARALLEL)
        .collect()
        .await;
    acted
}

/// A stable version that becomes the newest one.
#[derive(Debug)]
pub(crate) enum Restore {
    Make(Box<JobVersion>),
    /// It is there, and not yet marked.
    Mark(Arc<JobVersion>),
}

impl Restore {
    /// Creates the version, and marks it stable at once: what it runs was deployed successfully.
    async fn write<S: Store>(self, store: &S) -> Result<JobVersion, StoreError> {
        let version = match self {
            Self::Mark(made) => return jobs::mark_stable(store, &made).await,
            Self::Make(version) => version,
        };
        let intent = version.spec.intent.clone();
        let made = jobs::create_version(store, *version).await?;
        if made.spec.intent != intent {
            let name = made.metadata.name.unwrap_or_default();
            return Err(StoreError::Conflict(format!("{name} is a newer spec of the job")));
        }
        jobs::mark_stable(store, &made).await
    }
}

/// What became of what follows from a deployment's status.
#[derive(Debug, Default)]
pub(crate) struct Acted {
    pub(crate) allocs: Vec<Result<Option<Allocation>, StoreError>>,
    pub(crate) versions: Vec<Result<JobVersion, StoreError>>,
}

impl Acted {
    /// The first of what did not happen.
    pub(crate) fn error(&self) -> Option<&StoreError> {
        let allocs = self.allocs.iter().filter_map(|result| result.as_ref().err());
        allocs.chain(self.versions.iter().filter_map(|result| result.as_ref().err())).next()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use drover_api::deployment::GroupState;
    use futures::stream::BoxStream;

    use super::*;
    use drover_store::{Change, Object, Selection};

    /// An API server with one deployment, which checks preconditions.
    #[derive(Clone)]
    struct OneDeployment(Arc<Mutex<Value>>);

    impl OneDeployment {
        fn new(promoted: bool) -> Self {
            let mut object = Deployment::new("web-1", DeploymentSpec::default());
            object.metadata.resource_version = Some("7".to_owned());
            object.status = Some(status(promoted));
            Self(Arc::new(Mutex::new(json!(object))))
        }

        fn stored<K: Object>(&self) -> K {
            serde_json::from_value(self.0.lock().expect("no panic").clone()).expect("an object")
        }

        fn is_promoted(&self) -> bool {
            self.stored::<Deployment>().status.is_some_and(|status| status.groups["api"].promoted)
        }
    }

    impl Store for OneDeployment {
        async fn get<K: Object>(&self, _key: &Key) -> Result<Option<K>, StoreError> {
            Ok(Some(self.stored()))
        }

        async fn list<K: Object>(&self, _selection: &Selection) -> Result<Vec<K>, StoreError> {
            Ok(vec![self.stored()])
        }

        fn watch<K: Object>(&self, _selection: Selection) -> BoxStream<'static, Change<K>> {
            futures::stream::pending().boxed()
        }

        async fn create<K: Object>(&self, _object: &K) -> Result<K, StoreError> {
            Err(StoreError::AlreadyExists("it is there".to_owned()))
        }

        async fn apply_status<K: Object>(
            &self,
            key: &Key,
            _manager: &'static str,
            precondition: &Precondition,
            body: Value,
        ) -> Result<K, StoreError> {
            self.merge(key, Part::Status, precondition, body).await
        }

        async fn merge<K: Object>(
            &self,
            _key: &Key,
            _part: Part,
            precondition: &Precondition,
            body: Value,
        ) -> Result<K, StoreError> {
            let mut object = self.0.lock().expect("no panic");
            let wanted = precondition.resource_version.as_deref();
            if wanted.is_some_and(|wanted| object["metadata"]["resourceVersion"] != wanted) {
                return Err(StoreError::Conflict("it was changed".to_owned()));
            }
            object["status"] = body["status"].clone();
            object["metadata"]["resourceVersion"] = json!("8");
            serde_json::from_value(object.clone()).map_err(|error| StoreError::Invalid(error.to_string()))
        }

        async fn replace<K: Object>(&self, _object: &K) -> Result<K, StoreError> {
            Err(StoreError::Forbidden("nobody replaces deployments".to_owned()))
        }

        async fn delete<K: Object>(&self, _key: &Key, _precondition: &Precondition) -> Result<(), StoreError> {
            Err(StoreError::Forbidden("nobody deletes deployments".to_owned()))
        }
    }

    fn status(promoted: bool) -> DeploymentStatus {
        let state = GroupState { promoted, desired_canaries: 1, desired_total: 3, ..GroupState::default() };
        DeploymentStatus {
            observed_generation: 1,
            groups: [("api".to_owned(), state)].into(),
            ..DeploymentStatus::default()
        }
    }

    /// What a plan of a leader that has not seen the promotion would write.
    fn stale(object: Option<Deployment>, precondition: Precondition) -> DeploymentWrite {
        let key = Key::namespaced("default", "web-1");
        DeploymentWrite { key, object: object.map(Box::new), precondition, status: status(false), stable: None }
    }

    #[tokio::test]
    async fn d_032_a_plan_on_a_stale_copy_does_not_take_a_promotion_back() {
        let store = OneDeployment::new(true);
        let seen = Precondition { uid: None, resource_version: Some("6".to_owned()) };
        let refused = stale(None, seen).write(&store).await;
        assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
        // One that believes that it makes the deployment is refused too.
        let refused = stale(Some(store.stored()), Precondition::default()).write(&store).await;
        assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
        assert!(store.is_promoted());
        // A plan that is refused so is made again, on what is there by then.
        assert_eq!(StoreError::Conflict(String::new()).class(), drover_store::ErrorClass::Conflict);
        let seen = Precondition { uid: None, resource_version: Some("7".to_owned()) };
        let write = DeploymentWrite { status: status(true), ..stale(None, seen) };
        assert!(write.write(&store).await.is_ok() && store.is_promoted());
    }
}
