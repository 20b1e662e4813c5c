//! What the listeners show and ask for: the newest certificate, whichever replica renewed it, without a restart.

use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context as _;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme, version,
};

/// What is served and who are believed to be replicas.
#[derive(Debug)]
struct Shown {
    own: Arc<CertifiedKey>,
    /// The gateway's own authorities, and the reader of the certificates that they have signed.
    authorities: Arc<RootCertStore>,
    replicas: Arc<dyn ClientCertVerifier>,
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
        let own = CertifiedKey::from_der(chain, key, &provider()).context("using the certificate's key")?;
        let mut roots = RootCertStore::empty();
        for authority in read(authorities).context("reading the authorities' certificates")? {
            roots.add(authority).context("using an authority's certificate")?;
        }
        let authorities = Arc::new(roots);
        let replicas = WebPkiClientVerifier::builder_with_provider(Arc::clone(&authorities), Arc::new(provider()))
            .build()
            .context("using the authorities' certificates")?;
        let shown = Shown { own: Arc::new(own), authorities, replicas };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(shown));
        Ok(())
    }

    /// Whether there is nothing to serve.
    pub(super) fn is_empty(&self) -> bool {
        self.now().is_none()
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

/// Takes the certificates of other replicas, and connections that show none: agents have tokens.
#[derive(Debug)]
struct OnlyReplicas {
    served: Served,
    provider: CryptoProvider,
}

impl ClientCertVerifier for OnlyReplicas {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let shown = self.served.now().ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        shown.replicas.verify_client_cert(own, between, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
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
        .with_client_cert_verifier(Arc::new(OnlyReplicas { served: served.clone(), provider: provider() }))
        .with_cert_resolver(Arc::new(served));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// For the way to another replica: both show the gateway's own certificate.
///
/// # Errors
/// When there is none yet.
pub(crate) fn peers_config(served: &Served) -> anyhow::Result<ClientConfig> {
    let shown = served.now().context("there is no certificate yet")?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&version::TLS13])
        .context("preparing TLS for replicas")?
        .with_root_certificates(Arc::clone(&shown.authorities))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&shown.own))));
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
