//! What the listeners show and ask for: the newest certificate, whichever replica renewed it, without a restart.

use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context as _;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig, version};

use super::optional::{Believer, OptionalCertificates};

/// How TLS names HTTP/2.
pub(crate) const HTTP2: &[u8] = b"h2";

/// What is served and who are believed to be replicas.
#[derive(Debug)]
struct Shown {
    own: Arc<CertifiedKey>,
    /// The reader of certificates that the gateway's own authorities have signed.
    replicas: Arc<dyn ClientCertVerifier>,
    /// For the way to other replicas.
    to_peers: Arc<ClientConfig>,
}

/// The certificate that is served; clones share it. None until the first is there: then no handshake succeeds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served(Arc<RwLock<Option<Arc<Shown>>>>);

impl Served {
    /// Serves this certificate with its key from now on, and believes replicas whose certificates these authorities
    /// have signed; all in PEM.
    ///
    /// # Errors
    /// When they are no certificate, its key and authorities.
    pub(super) fn replace(&self, certificate: &str, key: &str, authorities: &str) -> anyhow::Result<()> {
        let read = |pem: &str| CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = read(certificate).context("reading the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).context("reading the certificate's key")?;
        let own = Arc::new(CertifiedKey::from_der(chain, key, &provider()).context("using the certificate's key")?);
        let mut roots = RootCertStore::empty();
        for authority in read(authorities).context("reading the authorities' certificates")? {
            roots.add(authority).context("using an authority's certificate")?;
        }
        let authorities = Arc::new(roots);
        let replicas = WebPkiClientVerifier::builder_with_provider(Arc::clone(&authorities), Arc::new(provider()))
            .build()
            .context("using the authorities' certificates")?;
        let to_peers = Arc::new(peers_config(Arc::clone(&own), authorities)?);
        let shown = Shown { own, replicas, to_peers };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(shown));
        Ok(())
    }

    /// Whether there is nothing to serve.
    pub(super) fn is_empty(&self) -> bool {
        self.now().is_none()
    }

    /// How to reach another replica; none as long as there is no certificate.
    pub(crate) fn to_peers(&self) -> Option<Arc<ClientConfig>> {
        self.now().map(|shown| Arc::clone(&shown.to_peers))
    }

    fn now(&self) -> Option<Arc<Shown>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.now().map(|shown| Arc::clone(&shown.own))
    }
}

impl Believer for Served {
    /// Those of other replicas.
    fn believe(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let shown = self.now().ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        shown.replicas.verify_client_cert(own, between, now)
    }
}

/// The one provider of the whole build.
pub(crate) fn provider() -> CryptoProvider {
    aws_lc_rs::default_provider()
}

/// For agents, which a token proves, and for other replicas, which their certificate does: TLS 1.3 only.
///
/// # Errors
/// When the provider lacks what TLS 1.3 needs.
pub(crate) fn agents_config(served: Served) -> anyhow::Result<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&version::TLS13])
        .context("preparing TLS for agents")?
        .with_client_cert_verifier(Arc::new(OptionalCertificates::new(served.clone(), provider())))
        .with_cert_resolver(Arc::new(served));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// For the way to another replica: both show the gateway's own certificate.
fn peers_config(own: Arc<CertifiedKey>, authorities: Arc<RootCertStore>) -> anyhow::Result<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&version::TLS13])
        .context("preparing TLS for replicas")?
        .with_root_certificates(authorities)
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// For users and the API server: who shows a certificate must show one that `clients` accepts. The API server
/// carries its users' requests over HTTP/2; an exec is a connection of HTTP/1.1 that becomes a WebSocket.
///
/// # Errors
/// When the provider lacks what TLS needs.
pub(crate) fn users_config(served: Served, clients: Arc<dyn ClientCertVerifier>) -> anyhow::Result<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&version::TLS13])
        .context("preparing TLS for users")?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(served));
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
