//! The one way in which shells reach the API server: typed get, list, watch, create, apply, merge, replace and delete, each with
//! its precondition.
//!
//! [`KubeStore`] is the implementation over HTTP; the simulator's store is another. What is above this trait must never know
//! which one it has. Every call has a time limit. A write that was decided from a read carries that read's resourceVersion or
//! uid as its [`Precondition`], so that two writers cannot undo each other unseen.

mod lean;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, Job, JobVersion};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ObjectMeta, Request};
use kube::runtime::utils::StreamBackoff;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::store::lean::{Lean, Unreadable};

/// A kind that a [`Store`] can hold.
pub trait Object:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    #[doc(hidden)]
    fn lean_api(client: Client, namespace: Option<&str>) -> Api<Lean<Self>>;

    /// Name and namespace of this object.
    fn key(&self) -> Key {
        Key { namespace: self.meta().namespace.clone(), name: self.meta().name.clone().unwrap_or_default() }
    }
}

macro_rules! objects {
    (namespaced: $($namespaced:ty),+; cluster: $($cluster:ty),+) => {
        $(impl Object for $namespaced {
            fn lean_api(client: Client, namespace: Option<&str>) -> Api<Lean<Self>> {
                namespace.map_or_else(|| Api::all(client.clone()), |name| Api::namespaced(client.clone(), name))
            }
        })+
        $(impl Object for $cluster {
            fn lean_api(client: Client, _: Option<&str>) -> Api<Lean<Self>> {
                Api::all(client)
            }
        })+
    };
}
objects!(namespaced: Job, JobVersion, Deployment, Allocation, CSIVolume, Lease, ConfigMap, Secret, Event; cluster: ClientNode, Namespace, VolumeAttachment, CSIDriver);

/// Name of an object within its kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its namespace; none for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl Key {
    /// A namespaced object's.
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }

    /// A cluster-scoped object's.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self { namespace: None, name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Which objects of a kind to list or watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only those that this field selector matches, as `spec.nodeName=n-1`.
    pub fields: Option<String>,
    /// Only those that this label selector matches, as `app.kubernetes.io/managed-by=drover`.
    pub labels: Option<String>,
}

/// What must hold for a write to happen; absent parts are not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Precondition {
    /// The object's uid.
    pub uid: Option<String>,
    /// The object's resourceVersion.
    pub resource_version: Option<String>,
}

impl Precondition {
    /// The object is still the one, and still as it was when it was read.
    pub fn unchanged(meta: &ObjectMeta) -> Self {
        Self { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() }
    }

    /// The object is still the one.
    pub fn same_object(meta: &ObjectMeta) -> Self {
        Self { uid: meta.uid.clone(), resource_version: None }
    }
}

/// Which part of an object a patch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Metadata and spec.
    Spec,
    /// Status.
    Status,
}

/// The body of a write of a status.
pub fn status_body(status: Value) -> Value {
    Value::Object(Map::from_iter([("status".to_owned(), status)]))
}

/// Whether an apply takes over fields that another manager owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It takes them over.
    Force,
    /// It fails with [`StoreError::Conflict`].
    Yield,
}

/// Why a call did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no such object.
    #[error("not found: {0}")]
    NotFound(String),
    /// There is such an object already.
    #[error("already exists: {0}")]
    AlreadyExists(String),
    /// The precondition does not hold any more.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The object breaks a rule; the text names field and remedy.
    #[error("invalid: {0}")]
    Invalid(String),
    /// The caller may not do this.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// Too many requests, or the server is not able to answer now.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// No answer in time. A write may have happened.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Try again later.
    Transient,
    /// Read again and decide anew.
    Conflict,
    /// Trying again does not help.
    Permanent,
}

impl StoreError {
    /// What to do about it.
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Unavailable(_) | Self::Timeout(_) => ErrorClass::Transient,
            Self::Conflict(_) | Self::NotFound(_) | Self::AlreadyExists(_) => ErrorClass::Conflict,
            Self::Invalid(_) | Self::Forbidden(_) => ErrorClass::Permanent,
        }
    }
}

/// What a watch says. After [`Change::Restarted`] every object there is comes as [`Change::Present`], then [`Change::InSync`]:
/// what did not come is gone.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// The watch begins anew.
    Restarted,
    /// An object, new or changed.
    Present(Box<K>),
    /// All objects have come.
    InSync,
    /// An object is gone; this is its last state.
    Gone(Box<K>),
    /// An object cannot be read. It counts as present and unchanged.
    Malformed(Key, String),
    /// The watch broke; it goes on by itself.
    Interrupted(String),
}

/// Access to objects.
pub trait Store: Clone + Send + Sync + 'static {
    /// The object, or none.
    fn get<K: Object>(&self, key: &Key) -> impl Future<Output = Result<Option<K>, StoreError>> + Send;
    /// All objects of a kind that are selected.
    fn list<K: Object>(&self, selection: &Selection) -> impl Future<Output = Result<Vec<K>, StoreError>> + Send;
    /// All objects of a kind that are selected, and every change of them, for ever.
    fn watch<K: Object>(&self, selection: Selection) -> BoxStream<'static, Change<K>>;
    /// Creates the object as it is; its status is dropped where the kind has one.
    fn create<K: Object>(&self, object: &K) -> impl Future<Output = Result<K, StoreError>> + Send;
    /// Sets exactly these fields as this manager's (server-side apply). `body` holds the fields only.
    fn apply<K: Object>(
        &self,
        key: &Key,
        part: Part,
        manager: &'static str,
        ownership: Ownership,
        precondition: &Precondition,
        body: Value,
    ) -> impl Future<Output = Result<K, StoreError>> + Send;
    /// Sets these fields; null removes one (merge patch).
    fn merge<K: Object>(
        &self,
        key: &Key,
        part: Part,
        precondition: &Precondition,
        body: Value,
    ) -> impl Future<Output = Result<K, StoreError>> + Send;
    /// Replaces the object; its metadata.resourceVersion is the precondition.
    fn replace<K: Object>(&self, object: &K) -> impl Future<Output = Result<K, StoreError>> + Send;
    /// Deletes the object, or marks it where finalizers hold it.
    fn delete<K: Object>(
        &self,
        key: &Key,
        precondition: &Precondition,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The API server, over HTTP.
#[derive(Clone)]
pub struct KubeStore {
    client: Client,
    timeout: Duration,
    /// A request holds one of its permits while it is under way.
    line: Arc<Semaphore>,
}

impl Debug for KubeStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeStore").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Requests that are under way at the same time. A burst of thousands would only wait inside the API server, past each one's time
/// limit; what waits here has not begun.
const IN_FLIGHT: usize = 32;
/// Shortest and longest pause before a broken watch begins anew.
const WATCH_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

impl KubeStore {
    /// A store whose calls end after `timeout`, which must be shorter than any Lease that its user holds. A call that waits for
    /// others has not begun; those for Leases never wait.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout, line: Arc::new(Semaphore::new(IN_FLIGHT)) }
    }

    fn request<K: Object>(namespace: Option<&str>) -> Request {
        Request::new(K::url_path(&(), namespace))
    }

    /// Waits until a request for this kind may be sent.
    async fn turn<K: Object>(&self) -> Option<SemaphorePermit<'_>> {
        // Nobody closes it, so that there always is one sometime.
        if K::kind(&()) == "Lease" { None } else { self.line.acquire().await.ok() }
    }

    async fn send<K: Object, T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, StoreError> {
        let request = request.map_err(|error| StoreError::Invalid(error.to_string()))?;
        let _permit = self.turn::<K>().await;
        match tokio::time::timeout(self.timeout, self.client.request::<T>(request)).await {
            Ok(answer) => answer.map_err(|error| store_error(&error)),
            Err(_) => Err(StoreError::Timeout(self.timeout)),
        }
    }

    /// Sends a request that is answered with an object.
    async fn exchange<K: Object>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<K, StoreError> {
        let Lean(object) = self.send::<K, Lean<K>>(request).await?;
        object
            .map_err(|unreadable| StoreError::Unavailable(format!("the answer cannot be read: {}", unreadable.reason)))
    }

    async fn patch<K: Object, P: Serialize + Debug>(
        &self,
        key: &Key,
        part: Part,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, StoreError> {
        let request = Self::request::<K>(key.namespace.as_deref());
        self.exchange(match part {
            Part::Spec => request.patch(&key.name, params, patch),
            Part::Status => request.patch_subresource("status", &key.name, params, patch),
        })
        .await
    }
}

impl Store for KubeStore {
    async fn get<K: Object>(&self, key: &Key) -> Result<Option<K>, StoreError> {
        let request = Self::request::<K>(key.namespace.as_deref()).get(&key.name, &GetParams::default());
        match self.exchange(request).await {
            Ok(object) => Ok(Some(object)),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list<K: Object>(&self, selection: &Selection) -> Result<Vec<K>, StoreError> {
        let params = ListParams {
            field_selector: selection.fields.clone(),
            label_selector: selection.labels.clone(),
            ..ListParams::default()
        };
        let api = K::lean_api(self.client.clone(), selection.namespace.as_deref());
        let _permit = self.turn::<K>().await;
        let listed = tokio::time::timeout(self.timeout, api.list(&params)).await;
        let listed = listed.map_err(|_| StoreError::Timeout(self.timeout))?.map_err(|error| store_error(&error))?;
        Ok(listed.items.into_iter().filter_map(|object| object.0.ok()).collect())
    }

    fn watch<K: Object>(&self, selection: Selection) -> BoxStream<'static, Change<K>> {
        let api = K::lean_api(self.client.clone(), selection.namespace.as_deref());
        let mut config = watcher::Config::default().streaming_lists();
        if let Some(fields) = &selection.fields {
            config = config.fields(fields);
        }
        if let Some(labels) = &selection.labels {
            config = config.labels(labels);
        }
        StreamBackoff::new(watcher(api, config), Pauses(WATCH_PAUSE.0)).into_stream().map(change).boxed()
    }

    async fn create<K: Object>(&self, object: &K) -> Result<K, StoreError> {
        let body = serde_json::to_vec(object).map_err(|error| StoreError::Invalid(error.to_string()))?;
        let namespace = object.meta().namespace.as_deref();
        self.exchange(Self::request::<K>(namespace).create(&PostParams::default(), body)).await
    }

    async fn apply<K: Object>(
        &self,
        key: &Key,
        part: Part,
        manager: &'static str,
        ownership: Ownership,
        precondition: &Precondition,
        mut body: Value,
    ) -> Result<K, StoreError> {
        body["apiVersion"] = json!(K::api_version(&()));
        body["kind"] = json!(K::kind(&()));
        address(&mut body, key, precondition);
        let params = PatchParams {
            field_manager: Some(manager.to_owned()),
            force: ownership == Ownership::Force,
            ..PatchParams::default()
        };
        self.patch(key, part, &params, &Patch::Apply(&body)).await
    }

    async fn merge<K: Object>(
        &self,
        key: &Key,
        part: Part,
        precondition: &Precondition,
        mut body: Value,
    ) -> Result<K, StoreError> {
        address(&mut body, key, precondition);
        self.patch(key, part, &PatchParams::default(), &Patch::Merge(&body)).await
    }

    async fn replace<K: Object>(&self, object: &K) -> Result<K, StoreError> {
        let body = serde_json::to_vec(object).map_err(|error| StoreError::Invalid(error.to_string()))?;
        let key = object.key();
        self.exchange(Self::request::<K>(key.namespace.as_deref()).replace(&key.name, &PostParams::default(), body))
            .await
    }

    async fn delete<K: Object>(&self, key: &Key, precondition: &Precondition) -> Result<(), StoreError> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: precondition.uid.clone(),
                resource_version: precondition.resource_version.clone(),
            }),
            ..DeleteParams::background()
        };
        let request = Self::request::<K>(key.namespace.as_deref()).delete(&key.name, &params);
        self.send::<K, Value>(request).await.map(|_| ())
    }
}

/// Writes name, namespace and precondition into a patch.
fn address(body: &mut Value, key: &Key, precondition: &Precondition) {
    body["metadata"]["name"] = json!(key.name);
    let parts = [
        ("namespace", &key.namespace),
        ("uid", &precondition.uid),
        ("resourceVersion", &precondition.resource_version),
    ];
    for (field, value) in parts {
        if let Some(value) = value {
            body["metadata"][field] = json!(value);
        }
    }
}

/// Pauses between tries of a broken watch: doubling, reset by the first event that arrives.
struct Pauses(Duration);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.0;
        self.0 = (pause * 2).min(WATCH_PAUSE.1);
        Some(pause)
    }
}

impl kube::runtime::utils::Backoff for Pauses {
    fn reset(&mut self) {
        self.0 = WATCH_PAUSE.0;
    }
}

fn change<K: Object>(event: Result<watcher::Event<Lean<K>>, watcher::Error>) -> Change<K> {
    use watcher::Event;
    match event {
        Ok(Event::Init) => Change::Restarted,
        Ok(Event::InitApply(object) | Event::Apply(object)) => {
            object.0.map_or_else(malformed, |object| Change::Present(Box::new(object)))
        }
        Ok(Event::InitDone) => Change::InSync,
        Ok(Event::Delete(object)) => object.0.map_or_else(malformed, |object| Change::Gone(Box::new(object))),
        Err(error) => Change::Interrupted(error.to_string()),
    }
}

fn malformed<K>(object: Unreadable) -> Change<K> {
    let meta = object.metadata;
    Change::Malformed(Key { namespace: meta.namespace, name: meta.name.unwrap_or_default() }, object.reason)
}

fn store_error(error: &kube::Error) -> StoreError {
    let kube::Error::Api(status) = error else { return StoreError::Unavailable(error.to_string()) };
    let text = status.message.clone();
    match (status.code, status.reason.as_str()) {
        (404, _) => StoreError::NotFound(text),
        (409, "AlreadyExists") => StoreError::AlreadyExists(text),
        (409, _) => StoreError::Conflict(text),
        (401 | 403, _) => StoreError::Forbidden(text),
        (400 | 405 | 413 | 415 | 422, _) => StoreError::Invalid(text),
        _ => StoreError::Unavailable(text),
    }
}
