//! The one way in which shells reach the API server: typed get, list, watch, create, apply, merge, replace and delete,
//! each with its precondition.
//!
//! [`KubeStore`] is the implementation over HTTP; the simulator's store is another. What is above this trait must never
//! know which one it has. Every call has a time limit. A write that was decided from a read carries that read's
//! resourceVersion or uid as its [`Precondition`], so that two writers cannot undo each other unseen.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, HostVolume, Job, JobVersion};
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::lean::Lean;

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
objects!(namespaced: Job, JobVersion, Deployment, Allocation, CSIVolume, HostVolume, Lease, ConfigMap, Secret, Event, Service, EndpointSlice; cluster: ClientNode, Namespace, Node, VolumeAttachment, CSIDriver, CSINode);

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
    /// Read again and decide again.
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

/// The object of an answer, or none where there is no such object.
///
/// # Errors
/// With every other error.
pub fn found<K>(result: Result<K, StoreError>) -> Result<Option<K>, StoreError> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a watch says. After [`Change::Restarted`] every object there is comes as [`Change::Present`], then
/// [`Change::InSync`]: what did not come is gone.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// The watch restarts.
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
    /// All objects of a kind that are selected, and every change of them, forever.
    fn watch<K: Object>(&self, selection: Selection) -> BoxStream<'static, Change<K>>;
    /// Creates the object as it is; its status is dropped where the kind has one.
    fn create<K: Object>(&self, object: &K) -> impl Future<Output = Result<K, StoreError>> + Send;
    /// Sets exactly these fields of the status as this manager's (server-side apply), and takes them over from others.
    /// `body` holds the fields only.
    fn apply_status<K: Object>(
        &self,
        key: &Key,
        manager: &'static str,
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
