//! `CSIVolume`s and the Secrets that they name, as an agent reads them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use drover_api::{CSIVolume, names};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};

use drover_store::{Change, Key, Selection, Store, StoreError};

use crate::node::secrets::{SecretReader as _, StoredSecrets};

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
        let read = StoredSecrets(self.0.clone()).read(namespace.clone(), name.clone());
        async move {
            let plain = |(entry, value): (String, Vec<u8>)| {
                String::from_utf8(value).map(|value| (entry.clone(), value)).map_err(|_| {
                    format!("entry {entry} of Secret {namespace}/{name} is no text, and CSI takes nothing else")
                })
            };
            let data = read.await.map_err(|error| error.to_string())?;
            data.into_iter().map(plain).collect()
        }
        .boxed()
    }
}

/// The name of the object with an id: the one that follows from the id, unless another object of the namespace has it.
async fn find<S: Store>(store: &S, namespace: &str, id: &str) -> String {
    let derived = names::object_name(id);
    let has_id = |volume: &CSIVolume| {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        volume.spec.id_or(name) == id
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
