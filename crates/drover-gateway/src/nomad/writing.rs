//! Writes of Nomad's clients: from an order, over its caller's rights, to objects, and back when readers see them, at
//! whichever replica.
//!
//! The gateway writes with rights of its own, after the API server has been asked whether the caller may do the same.
//! Where another writer was first, the request is ordered again from what is then known, so that no caller sees a
//! conflict. Must never know what a request means.

use std::sync::Arc;
use std::time::Duration;

use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, Job, JobVersion};
use drover_nomad::{
    Change, Fault, Kind, Outcome, Target, WholeObject, World, WriteOrder, WriteView, Written, order, told,
};
use drover_store::{ErrorClass, Key, KubeStore, Object, Part, Precondition, Store as _, StoreError};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::parts::NomadParts;
use super::submitted::{Submitted, aside};
use crate::answers::Refusal;
use crate::reviews::Identity;

/// How often a request is ordered because others wrote at the same time.
const ATTEMPTS: usize = 8;

/// A write under way.
pub(super) struct Writing<'a> {
    /// What the API writes with.
    pub(super) parts: &'a NomadParts,
    /// Who asks.
    pub(super) identity: &'a Identity,
    /// What for.
    pub(super) submitted: Submitted,
    /// Those that wait for what others do, with the readers that wait.
    pub(super) blocked: &'a Semaphore,
}

impl Writing<'_> {
    /// Does it; the answer, and the index at which it is seen.
    ///
    /// # Errors
    /// What is wrong with the request, 403 when the caller may not, 503 when the API server does not answer.
    pub(super) async fn carry_out(&self) -> Result<(Value, u64), Refusal> {
        let NomadParts { caches, reviews, store, .. } = self.parts;
        let Some(store) = store else {
            return Err(Refusal::new(403, "clients of Nomad only read here: the chart's gateway.nomadWrites is false"));
        };
        let random = fastrand::u32(..);
        let (mut last, mut goes_on) = (None, false);
        for _ in 0..ATTEMPTS {
            let before = caches.complete().await?;
            let mut order = match self.order(Arc::clone(&before), random, goes_on).await? {
                Ok(order) => order,
                Err(fault) => return Err(self.submitted.refused(reviews, self.identity, fault.into()).await),
            };
            self.submitted.permit_all(reviews, self.identity, &order.demands).await?;
            let (written, end) = write_all(store, &order.changes).await;
            goes_on |= !written.is_empty();
            match end {
                Ok(()) => {
                    // Where the watch lags, a reader with the answer's index waits for it.
                    let states: Vec<(Kind, u64)> = written.iter().map(|one| (one.kind, one.index())).collect();
                    tokio::join!(caches.reach(&states), self.known_elsewhere(&states));
                    let mut answer = match order.outcome.take() {
                        Some(outcome) => self.come(&outcome, &written).await?,
                        None => order.answer(&written),
                    };
                    let index = index_of(&written, &caches.now());
                    if let Some(answer) = answer.as_object_mut().filter(|_| !written.is_empty()) {
                        answer.entry("Index").or_insert_with(|| json!(index));
                    }
                    return Ok((answer, index));
                }
                Err(error) if error.class() == ErrorClass::Conflict => {
                    let first = order.changes.first().map(Change::kind);
                    let newer = first.map(|kind| (kind, before.index(kind) + 1));
                    caches.reach(newer.as_slice()).await;
                    last = Some(error);
                }
                Err(error) => return Err(refused(&error)),
            }
        }
        let why = last.map(|error| error.to_string()).unwrap_or_default();
        Err(Refusal::new(500, format!("others change this all the time: try again ({why})")))
    }

    /// Waits for what others do of a write; the answer. Where too many wait already, it is that of an end of the time.
    async fn come(&self, outcome: &Outcome, written: &[Written]) -> Result<Value, Refusal> {
        let NomadParts { caches, ends, .. } = self.parts;
        let comes = async {
            let mut news = caches.news(outcome.kind)?;
            loop {
                let found = outcome.seen(&caches.now(), written);
                if found.is_some() {
                    return found;
                }
                news.changed().await.ok()?;
            }
        };
        let turn = self.blocked.try_acquire();
        let within = if turn.is_ok() { outcome.within } else { Duration::ZERO };
        let found = tokio::select! {
            biased;
            () = ends.cancelled() => None,
            found = tokio::time::timeout(within, comes) => found.ok().flatten(),
        };
        Ok(found.unwrap_or_else(|| outcome.late(&caches.now()))?)
    }

    /// The caller may reach another replica next.
    async fn known_elsewhere(&self, states: &[(Kind, u64)]) {
        if !states.is_empty() {
            self.parts.nodes.arrive(&json!(states).to_string()).await;
        }
    }

    /// Orders it, beside the threads that carry others: a job of a megabyte takes a while to read.
    async fn order(&self, world: Arc<World>, random: u32, goes_on: bool) -> Result<Result<WriteOrder, Fault>, Refusal> {
        let (submitted, now) = (self.submitted.clone(), self.parts.clock.now());
        aside(move || {
            let Submitted { endpoint, query, body } = &submitted;
            order(endpoint, WriteView { world: &world, query, body, now, random, goes_on })
        })
        .await
    }
}

/// Writes the changes of an order, one after the other, until one fails; what was written.
async fn write_all(store: &KubeStore, changes: &[Change]) -> (Vec<Written>, Result<(), StoreError>) {
    let mut written = Vec::new();
    for change in changes {
        match write(store, change).await {
            Ok(one) => written.push(one),
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

async fn write(store: &KubeStore, change: &Change) -> Result<Written, StoreError> {
    let of = |kind: Kind, meta: ObjectMeta| Written { kind, meta };
    match change {
        Change::Create(WholeObject::Job(job)) => Ok(of(Kind::Job, store.create::<Job>(job).await?.metadata)),
        Change::Create(WholeObject::Volume(volume)) => {
            Ok(of(Kind::Volume, store.create::<CSIVolume>(volume).await?.metadata))
        }
        Change::Replace(WholeObject::Job(job)) => Ok(of(Kind::Job, store.replace::<Job>(job).await?.metadata)),
        Change::Replace(WholeObject::Volume(volume)) => {
            Ok(of(Kind::Volume, store.replace::<CSIVolume>(volume).await?.metadata))
        }
        Change::Patch(target, body) => {
            let meta = match target.kind {
                Kind::Job => merge::<Job>(store, target, Part::Spec, body).await?,
                Kind::Allocation => merge::<Allocation>(store, target, Part::Spec, body).await?,
                Kind::Deployment => merge::<Deployment>(store, target, Part::Spec, body).await?,
                Kind::Node => merge::<ClientNode>(store, target, Part::Spec, body).await?,
                Kind::Volume => merge::<CSIVolume>(store, target, Part::Spec, body).await?,
                Kind::Version => merge::<JobVersion>(store, target, Part::Status, body).await?,
                Kind::HostVolume | Kind::Namespace => return Err(never(target)),
            };
            Ok(of(target.kind, meta))
        }
        Change::Delete(target) => {
            let (key, same) = (key_of(target), Precondition { uid: target.uid.clone(), resource_version: None });
            match target.kind {
                Kind::Job => store.delete::<Job>(&key, &same).await?,
                Kind::Node => store.delete::<ClientNode>(&key, &same).await?,
                Kind::Volume => store.delete::<CSIVolume>(&key, &same).await?,
                Kind::Version | Kind::Allocation | Kind::Deployment | Kind::HostVolume | Kind::Namespace => {
                    return Err(never(target));
                }
            }
            // A deletion answers with no object: what was known stands for it.
            let meta = ObjectMeta { uid: target.uid.clone(), ..ObjectMeta::default() };
            Ok(of(target.kind, meta))
        }
    }
}

async fn merge<K: Object>(
    store: &KubeStore,
    target: &Target,
    part: Part,
    body: &Value,
) -> Result<ObjectMeta, StoreError> {
    let precondition = Precondition { uid: target.uid.clone(), resource_version: target.resource_version.clone() };
    let object = store.merge::<K>(&key_of(target), part, &precondition, body.clone()).await?;
    Ok(object.meta().clone())
}

fn key_of(target: &Target) -> Key {
    let namespace = Some(target.name.namespace.clone()).filter(|namespace| !namespace.is_empty());
    Key { namespace, name: target.name.name.clone() }
}

/// No order changes such objects; one that did would be refused.
fn never(target: &Target) -> StoreError {
    StoreError::Invalid(format!("{:?} {} is not changed by clients of Nomad", target.kind, target.name.name))
}

/// The index at which all that was written is seen; where nothing was, that of jobs.
fn index_of(written: &[Written], world: &World) -> u64 {
    let last = written.iter().map(Written::index).max().filter(|index| *index > 0);
    told(last.unwrap_or_else(|| world.index(Kind::Job)))
}

fn refused(error: &StoreError) -> Refusal {
    let code = match error {
        StoreError::Invalid(_) => 400,
        StoreError::Forbidden(_) => 403,
        StoreError::NotFound(_) => 404,
        StoreError::AlreadyExists(_) | StoreError::Conflict(_) => 500,
        StoreError::Unavailable(_) | StoreError::Timeout(_) => 503,
    };
    Refusal::new(code, error.to_string())
}
