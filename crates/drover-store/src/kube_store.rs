//! The store over HTTP: the API server itself, by kube's client and watchers.
//!
//! Every call ends within a time limit; a watch that breaks restarts by itself, after growing pauses. Must never
//! know what is above it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use drover_clock::Backoff;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt, TryStreamExt as _, future};
use kube::Client;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::runtime::utils::StreamBackoff;
use kube::runtime::watcher::{self, watcher};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::lean::{Lean, Unreadable};
use crate::store::{Change, Key, Object, Part, Precondition, Selection, Store, StoreError};

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

/// Requests that are under way at the same time. A burst of thousands would only wait inside the API server, past each
/// one's time limit; what waits here has not begun.
const IN_FLIGHT: usize = 32;
/// Shortest and longest pause before a broken watch restarts.
const WATCH_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

impl KubeStore {
    /// A store whose calls end after `timeout`, which must be shorter than any Lease that its user holds. A call that
    /// waits for others has not begun; those for Leases never wait.
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
        let mut config = watcher::Config::default();
        if let Some(fields) = &selection.fields {
            config = config.fields(fields);
        }
        if let Some(labels) = &selection.labels {
            config = config.labels(labels);
        }
        let streamed = watcher(api.clone(), config.clone().streaming_lists());
        // It ends at nothing else.
        let streamed = streamed.take_while(|event| future::ready(!is_no_streamed_list(event)));
        let listed = future::lazy(move |_| watcher(api, config));
        let watched = streamed.chain(listed.flatten_stream());
        StreamBackoff::new(watched, Pauses(Backoff::new(WATCH_PAUSE.0, WATCH_PAUSE.1)))
            .into_stream()
            .map(change)
            .boxed()
    }

    async fn create<K: Object>(&self, object: &K) -> Result<K, StoreError> {
        let body = serde_json::to_vec(object).map_err(|error| StoreError::Invalid(error.to_string()))?;
        let namespace = object.meta().namespace.as_deref();
        self.exchange(Self::request::<K>(namespace).create(&PostParams::default(), body)).await
    }

    async fn apply_status<K: Object>(
        &self,
        key: &Key,
        manager: &'static str,
        precondition: &Precondition,
        mut body: Value,
    ) -> Result<K, StoreError> {
        body["apiVersion"] = json!(K::api_version(&()));
        body["kind"] = json!(K::kind(&()));
        address(&mut body, key, precondition);
        let params = PatchParams { field_manager: Some(manager.to_owned()), force: true, ..PatchParams::default() };
        self.patch(key, Part::Status, &params, &Patch::Apply(&body)).await
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

/// Pauses between tries of a broken watch: spread at random, reset by the first event that arrives.
struct Pauses(Backoff);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Backoff::spread(self.0.failed(), &mut fastrand::Rng::new()))
    }
}

impl kube::runtime::utils::Backoff for Pauses {
    fn reset(&mut self) {
        self.0.worked();
    }
}

/// Whether the API server refuses to begin a watch with a list: without its feature gate `WatchList`, as Kubernetes
/// 1.33 is by default, the watch's parameter `sendInitialEvents` is invalid.
fn is_no_streamed_list<T>(event: &Result<T, watcher::Error>) -> bool {
    match event {
        Err(watcher::Error::WatchStartFailed(kube::Error::Api(status))) => {
            status.code == 422 && status.message.contains("sendInitialEvents")
        }
        _ => false,
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
