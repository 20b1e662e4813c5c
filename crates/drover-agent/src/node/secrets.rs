//! Secrets of the API server that agents may read: the chart's `agent.volumeSecrets` names them.

use std::collections::BTreeMap;
use std::fmt;

use drover_store::{Key, Store, StoreError};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;

/// Why a Secret was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SecretError {
    /// There is none.
    #[error("Secret {0} does not exist; create it, or correct the name")]
    Missing(String),
    /// This agent may not.
    #[error(
        "this agent may not read Secret {0}; name it in the chart's agent.volumeSecrets, or give the agents' service account `get` on it by a Role in that namespace"
    )]
    Forbidden(String),
    /// The API server cannot say.
    #[error("Secret {0} cannot be read: {1}")]
    Unavailable(String, String),
}

/// Reads Secrets; without the type of the store, so that runners need not know it.
pub(crate) trait SecretReader: fmt::Debug + Send + Sync {
    /// What a Secret holds now, by key.
    fn read(
        &self,
        namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<BTreeMap<String, Vec<u8>>, SecretError>>;
}

/// The API server's.
#[derive(Clone)]
pub(crate) struct StoredSecrets<S>(pub(crate) S);

impl<S> fmt::Debug for StoredSecrets<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredSecrets")
    }
}

impl<S: Store> SecretReader for StoredSecrets<S> {
    fn read(
        &self,
        namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<BTreeMap<String, Vec<u8>>, SecretError>> {
        let store = self.0.clone();
        async move {
            let key = Key::namespaced(namespace, name);
            match store.get::<Secret>(&key).await {
                Ok(Some(secret)) => {
                    let data = secret.data.unwrap_or_default();
                    Ok(data.into_iter().map(|(name, value)| (name, value.0)).collect())
                }
                Ok(None) => Err(SecretError::Missing(key.to_string())),
                Err(StoreError::Forbidden(_)) => Err(SecretError::Forbidden(key.to_string())),
                Err(error) => Err(SecretError::Unavailable(key.to_string(), error.to_string())),
            }
        }
        .boxed()
    }
}

/// There are none.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoSecrets;

#[cfg(test)]
impl SecretReader for NoSecrets {
    fn read(
        &self,
        namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<BTreeMap<String, Vec<u8>>, SecretError>> {
        std::future::ready(Err(SecretError::Missing(format!("{namespace}/{name}")))).boxed()
    }
}
