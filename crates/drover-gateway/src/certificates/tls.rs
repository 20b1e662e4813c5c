//! What the listeners show and ask for: the newest certificate, whichever replica renewed it, without a restart.

use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context as _;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};

/// The certificate that is served; clones share it. None until the first is there: then no handshake succeeds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

impl Served {
    /// Serves this certificate with its key from now on, both in PEM.
    ///
    /// # Errors
    /// When they are no certificate and its key.
    pub(super) fn replace(&self, certificate: &str, key: &str) -> anyhow::Result<()> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<_, _>>()
            .context("reading the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).context("reading the certificate's key")?;
        let certified = CertifiedKey::from_der(chain, key, &provider()).context("using the certificate's key")?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certified));
        Ok(())
    }

    /// Whether there is nothing to serve.
    pub(super) fn is_empty(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The one provider of the whole build.
pub(crate) fn provider() -> CryptoProvider {
    aws_lc_rs::default_provider()
}

/// For agents: TLS 1.3 only; a token proves them.
///
/// # Errors
/// When the provider lacks what TLS 1.3 needs.
pub(crate) fn agents_config(served: Served) -> anyhow::Result<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&version::TLS13])
        .context("preparing TLS for agents")?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(served));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// For users and the API server: who shows a certificate must show one that `clients` accepts. HTTP/1.1 only, because
/// an exec is a connection that becomes a WebSocket.
///
/// # Errors
/// When the provider lacks what TLS needs.
pub(crate) fn users_config(served: Served, clients: Arc<dyn ClientCertVerifier>) -> anyhow::Result<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&version::TLS13])
        .context("preparing TLS for users")?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(served));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
