//! `CSIVolume`s and the Secrets that they name, as an agent reads them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use drover_api::{CSIVolume, names};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Secret;

use drover_store::{Change, Key, Selection, Store, StoreError};

/// Reads volumes; without the type of the store, so that runners need not know it.
pub(crate) trait VolumeObjects: fmt::Debug + Send + Sync {
    /// A volume by its id and every change of it; none while there is no such volume. Ends when it cannot be looked
    /// for.
    fn follow(&self, namespace: String, id: String) -> BoxStream<'static, Option<Arc<CSIVolume>>>;
    /// A volume by the name of its object.
    fn get(&self, namespace: String, name: String) -> BoxFuture<'static, Result<Option<CSIVolume>, StoreError>>;
    /// What a Secret holds.
    fn secret(&self, namespace: String, name: String) -> BoxFuture<'static, Result<BTreeMap<String, String>, String>>;
}

/// The API server's.
#[derive(Clone)]
pub(crate) struct StoredVolumes<S>(pub(crate) S);

impl<S> fmt::Debug for StoredVolumes<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredVolumes")
    }
}

impl<S: Store> VolumeObjects for StoredVolumes<S> {
    fn follow(&self, namespace: String, id: String) -> BoxStream<'static, Option<Arc<CSIVolume>>> {
        let store = self.0.clone();
        async move {
            let name = find(&store, &namespace, &id).await;
            let fields = Some(format!("metadata.name={name}"));
            let changes = store.watch::<CSIVolume>(Selection { namespace: Some(namespace), fields, labels: None });
            let mut is_there = false;
            changes.filter_map(move |change| {
                let seen = match change {
                    Change::Restarted => {
                        is_there = false;
                        None
                    }
                    Change::Present(volume) => {
                        is_there = true;
                        Some(Some(Arc::new(*volume)))
                    }
                    Change::InSync if !is_there => Some(None),
                    Change::Gone(_) => Some(None),
                    Change::InSync | Change::Malformed(..) | Change::Interrupted(_) => None,
                };
                std::future::ready(seen)
            })
        }
        .flatten_stream()
        .boxed()
    }

    fn get(&self, namespace: String, name: String) -> BoxFuture<'static, Result<Option<CSIVolume>, StoreError>> {
        let store = self.0.clone();
        async move { store.get::<CSIVolume>(&Key::namespaced(namespace, name)).await }.boxed()
    }

    fn secret(&self, namespace: String, name: String) -> BoxFuture<'static, Result<BTreeMap<String, String>, String>> {
        let store = self.0.clone();
        async move {
            let key = Key::namespaced(namespace, name);
            match store.get::<Secret>(&key).await {
                Ok(Some(secret)) => {
                    let plain = |(name, value): (String, k8s_openapi::ByteString)| {
                        String::from_utf8(value.0).map(|value| (name.clone(), value)).map_err(|_| {
                            format!("entry {name} of Secret {key} is no text, and CSI takes nothing else")
                        })
                    };
                    secret.data.unwrap_or_default().into_iter().map(plain).collect()
                }
                Ok(None) => Err(format!("Secret {key} does not exist; create it, or correct secretsRef")),
                Err(StoreError::Forbidden(_)) => Err(format!(
                    "this agent may not read Secret {key}; name it in the chart's agent.volumeSecrets, or give the agents' service account `get` on it by a Role in that namespace"
                )),
                Err(error) => Err(format!("Secret {key} cannot be read: {error}")),
            }
        }
        .boxed()
    }
}

/// The name of the object with an id: the one that follows from the id, unless another object of the namespace has it.
async fn find<S: Store>(store: &S, namespace: &str, id: &str) -> String {
    let derived = names::object_name(id);
    let has_id = |volume: &CSIVolume| {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        volume.spec.id == id || (volume.spec.id.is_empty() && name == id)
    };
    let named = store.get::<CSIVolume>(&Key::namespaced(namespace, derived.clone())).await;
    if matches!(&named, Ok(Some(volume)) if has_id(volume)) {
        return derived;
    }
    let all = Selection { namespace: Some(namespace.to_owned()), ..Selection::default() };
    match store.list::<CSIVolume>(&all).await {
        Ok(volumes) => {
            let found = volumes.into_iter().find(has_id).and_then(|volume| volume.metadata.name);
            found.unwrap_or(derived)
        }
        Err(error) => {
            tracing::warn!(error = %error, namespace, volume = id, "the volumes of a namespace cannot be listed");
            derived
        }
    }
}
