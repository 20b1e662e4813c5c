//! The `ConfigMap` that carries the TTL of heartbeats to all agents, and tells operators what became of the
//! configuration in the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_store::{Key, Part, Precondition, Store, StoreError};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

/// Name of the `ConfigMap`, and the key of the TTL.
pub(crate) const HEARTBEAT_CONFIG: (&str, &str) = ("drover-heartbeat", "ttlSeconds");
/// The key that says what became of the scheduler's configuration.
const OUTCOME: &str = "config";

/// Publishes the TTL, where it is another one.
pub(crate) async fn write_ttl<S: Store>(store: S, namespace: String, ttl: Duration) -> Result<ConfigMap, StoreError> {
    let (name, field) = HEARTBEAT_CONFIG;
    let key = Key::namespaced(namespace, name);
    let wanted = seconds(ttl);
    if let Some(map) = store.get::<ConfigMap>(&key).await? {
        if map.data.iter().flatten().any(|(known, value)| known == field && *value == wanted) {
            return Ok(map);
        }
        let body = json!({ "data": { field: wanted } });
        return store.merge(&key, Part::Spec, &Precondition::same_object(&map.metadata), body).await;
    }
    let map = ConfigMap {
        metadata: kube::core::ObjectMeta {
            name: Some(key.name.clone()),
            namespace: key.namespace.clone(),
            ..Default::default()
        },
        data: Some(BTreeMap::from([(field.to_owned(), wanted)])),
        ..ConfigMap::default()
    };
    store.create(&map).await
}

/// Seconds, with a fraction where there is one.
fn seconds(duration: Duration) -> String {
    let text = format!("{:.3}", duration.as_secs_f64());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Writes what became of the configuration, where that is news.
pub(crate) async fn write_outcome<S: Store>(store: S, key: &Key, outcome: String) -> Result<(), StoreError> {
    let known = store.get::<ConfigMap>(key).await?;
    if known.as_ref().and_then(|map| map.data.as_ref()?.get(OUTCOME)) == Some(&outcome) {
        return Ok(());
    }
    let body = json!({ "data": { OUTCOME: outcome } });
    if known.is_none() {
        let data = [(OUTCOME.to_owned(), outcome)].into();
        let mut map = ConfigMap { data: Some(data), ..ConfigMap::default() };
        map.metadata.name = Some(key.name.clone());
        map.metadata.namespace.clone_from(&key.namespace);
        match store.create(&map).await {
            Err(StoreError::AlreadyExists(_)) => {}
            other => return other.map(|_| ()),
        }
    }
    store.merge::<ConfigMap>(key, Part::Spec, &Precondition::default(), body).await.map(|_| ())
}
