//! Whom to dial, and whose certificates to believe: from the configuration, or from the API server. Looked at when it
//! is needed, never watched: thousands of agents would hold thousands of watches for what hardly changes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use drover_api::gateway::{GatewayPort, replicas_in, slices_of};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::config::AgentConfig;
use drover_store::{Key, Selection, Store, StoreError};

/// The `ConfigMap` with the certificates of the gateway's authorities.
const AUTHORITIES: &str = "drover-gateway-ca";

/// Why it is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnknownError {
    #[error("the API server does not say")]
    Store(#[from] StoreError),
    #[error("{0} cannot be read")]
    File(PathBuf, #[source] std::io::Error),
    #[error("ConfigMap drover-gateway-ca has no certificate yet")]
    NotPublished,
    #[error("an authority's certificate cannot be used: {0}")]
    Damaged(String),
}

/// Where it is asked.
#[derive(Clone, Debug)]
pub(crate) struct Replicas<S> {
    store: S,
    namespace: String,
    service: String,
    named: Vec<String>,
    named_for_users: Vec<String>,
    ca_file: Option<PathBuf>,
}

impl<S: Store> Replicas<S> {
    /// As the configuration says.
    pub(crate) fn new(config: &AgentConfig, store: S) -> Self {
        let gateway = &config.gateway;
        Self {
            store,
            namespace: config.namespace.clone(),
            service: gateway.service.clone(),
            named: gateway.replicas.clone(),
            named_for_users: gateway.users.clone(),
            ca_file: gateway.ca_file.clone(),
        }
    }

    /// Whether the configuration names them: then nothing else does.
    pub(crate) const fn are_named(&self) -> bool {
        !self.named.is_empty()
    }

    /// The addresses of the replicas that are ready, for this port.
    pub(crate) async fn addresses(&self, port: GatewayPort) -> Result<BTreeSet<String>, UnknownError> {
        if self.are_named() {
            let named = match port {
                GatewayPort::Agents => &self.named,
                GatewayPort::Users => &self.named_for_users,
            };
            return Ok(named.iter().cloned().collect());
        }
        let selection = Selection {
            namespace: Some(self.namespace.clone()),
            labels: Some(slices_of(&self.service)),
            ..Selection::default()
        };
        let slices = self.store.list::<EndpointSlice>(&selection).await?;
        Ok(slices.iter().flat_map(|slice| addresses_of(slice, port)).collect())
    }

    /// The authorities whose certificates are believed.
    pub(crate) async fn authorities(&self) -> Result<Arc<RootCertStore>, UnknownError> {
        let pem = if let Some(path) = &self.ca_file {
            tokio::fs::read(path).await.map_err(|error| UnknownError::File(path.clone(), error))?
        } else {
            let key = Key::namespaced(&self.namespace, AUTHORITIES);
            let map = self.store.get::<ConfigMap>(&key).await?;
            let text = map.and_then(|map| map.data?.remove("ca.crt")).filter(|text| !text.is_empty());
            text.ok_or(UnknownError::NotPublished)?.into_bytes()
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| UnknownError::Damaged(error.to_string()))?;
            roots.add(certificate).map_err(|error| UnknownError::Damaged(error.to_string()))?;
        }
        if roots.is_empty() { Err(UnknownError::NotPublished) } else { Ok(Arc::new(roots)) }
    }
}

/// Of those that are ready.
fn addresses_of(slice: &EndpointSlice, port: GatewayPort) -> impl Iterator<Item = String> + use<> {
    replicas_in(slice, port).into_iter().filter(|(_, is_ready)| *is_ready).map(|(at, _)| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_that_are_ready_are_dialled_at_the_port_for_agents() {
        let slice: EndpointSlice = serde_json::from_value(serde_json::json!({
            "addressType": "IPv4",
            "ports": [{ "name": "users", "port": 8443 }, { "name": "agents", "port": 8444 }],
            "endpoints": [
                { "addresses": ["10.0.0.7"], "conditions": { "ready": true } },
                { "addresses": ["10.0.0.8"], "conditions": { "ready": false } },
                { "addresses": ["fd00::1"] },
            ],
        }))
        .expect("a slice");
        let at = |slice: &EndpointSlice, port| addresses_of(slice, port).collect::<Vec<_>>();
        assert_eq!(at(&slice, GatewayPort::Agents), ["10.0.0.7:8444", "[fd00::1]:8444"]);
        assert_eq!(at(&slice, GatewayPort::Users), ["10.0.0.7:8443", "[fd00::1]:8443"]);
        assert!(at(&EndpointSlice { ports: None, ..slice }, GatewayPort::Agents).is_empty());
    }
}
