//! Objects that are wanted: one watch for each, as long as it is wanted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_api::value_object::{ValueKind, ValueObject};
use drover_socket::values::ValueAnswer;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Client, Resource};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::one_object::OneObject;
use super::read_object::{ObjectState, ReadObject, know};
use super::services;

/// An object: its namespace, and what it is.
type ObjectKey = (String, ValueObject);

/// Watches what is wanted; clones are the same.
#[derive(Clone)]
pub(super) struct Objects {
    client: Client,
    watched: Arc<Mutex<BTreeMap<ObjectKey, Weak<WatchedObject>>>>,
    tasks: TaskTracker,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Objects")
    }
}

/// An object under watch, until the last who wants it lets it go.
#[derive(Debug)]
pub(super) struct WatchedObject {
    known: watch::Receiver<ObjectState>,
    _until: DropGuard,
}

impl WatchedObject {
    /// What is known, now and later.
    pub(super) fn known(&self) -> watch::Receiver<ObjectState> {
        self.known.clone()
    }
}

impl Objects {
    /// Watches nothing yet.
    pub(super) fn new(client: Client) -> Self {
        Self { client, watched: Arc::default(), tasks: TaskTracker::new() }
    }

    /// The object, watched from now on.
    pub(super) fn want(&self, namespace: &str, object: &ValueObject) -> Arc<WatchedObject> {
        let key = (namespace.to_owned(), object.clone());
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = watched.get(&key).and_then(Weak::upgrade) {
            return there;
        }
        let (tell, known) = watch::channel(None);
        let until = CancellationToken::new();
        let fresh = Arc::new(WatchedObject { known, _until: until.clone().drop_guard() });
        watched.insert(key.clone(), Arc::downgrade(&fresh));
        let it = self.clone();
        drop(self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = until.cancelled() => {}
                () = follow(&it.client, &key.0, &key.1, &tell) => {}
            }
            it.forget(&key);
        }));
        fresh
    }

    /// The object is not wanted any more, unless another watch of it has begun meanwhile.
    fn forget(&self, key: &ObjectKey) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.get(key).is_some_and(|there| there.strong_count() == 0) {
            watched.remove(key);
        }
    }
}

async fn follow(client: &Client, namespace: &str, object: &ValueObject, tell: &watch::Sender<ObjectState>) {
    let one = OneObject { client, namespace, name: &object.name };
    match object.kind {
        ValueKind::Secret => match one.follow(|change| take(change, of_secret, (namespace, object), tell)).await {},
        ValueKind::ConfigMap => {
            match one.follow(|change| take(change, of_config_map, (namespace, object), tell)).await {}
        }
        // In a box: thousands follow objects, and each would hold the room for services too.
        ValueKind::Service | ValueKind::Services => {
            match Box::pin(services::follow(client, namespace, object, tell)).await {}
        }
        // It is signed for who asks, and not watched; nobody is granted what is not known.
        ValueKind::Identity | ValueKind::Unknown => {}
    }
}

/// Makes a change of an object known.
fn take<K: Resource>(
    change: kube::Result<Option<K>>,
    values: impl Fn(&K) -> BTreeMap<String, String>,
    (namespace, object): (&str, &ValueObject),
    tell: &watch::Sender<ObjectState>,
) {
    let next = match change {
        Ok(Some(found)) => {
            let version = found.meta().resource_version.clone().unwrap_or_default();
            ReadObject { answer: ValueAnswer::Values(values(&found)), version }
        }
        Ok(None) => ReadObject { answer: ValueAnswer::Absent, version: String::new() },
        Err(error) => {
            tracing::debug!(namespace, %object, %error, "a watch of values restarts");
            let is_answer = |read: &ReadObject| matches!(read.answer, ValueAnswer::Values(_) | ValueAnswer::Absent);
            let is_known = tell.borrow().as_deref().is_some_and(is_answer);
            let answer = match refusal(&error, namespace, object) {
                Some(refused) => refused,
                // What was known stays so while the API server is away.
                None if is_known => return,
                None => ValueAnswer::Unavailable(format!("{object} in {namespace} cannot be read: {error}")),
            };
            ReadObject { answer, version: String::new() }
        }
    };
    know(tell, next);
}

/// When the gateway has no right to it.
fn refusal(error: &kube::Error, namespace: &str, object: &ValueObject) -> Option<ValueAnswer> {
    let kube::Error::Api(status) = error else { return None };
    (status.code == 403).then(|| {
        ValueAnswer::Refused(format!(
            "the gateway may not read {object} in namespace {namespace}; name it in the chart's gateway.secretNamespaces"
        ))
    })
}

fn of_secret(secret: &Secret) -> BTreeMap<String, String> {
    let data = secret.data.iter().flatten();
    data.map(|(key, value)| (key.clone(), STANDARD.encode(&value.0))).collect()
}

fn of_config_map(map: &ConfigMap) -> BTreeMap<String, String> {
    let text = map.data.iter().flatten().map(|(key, value)| (key.clone(), STANDARD.encode(value)));
    let binary = map.binary_data.iter().flatten().map(|(key, value)| (key.clone(), STANDARD.encode(&value.0)));
    text.chain(binary).collect()
}
