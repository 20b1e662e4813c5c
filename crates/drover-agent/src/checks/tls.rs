//! TLS of checks: verified with the certificates that the node trusts, or, where a check says so, not at all.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The settings of both ways; made when a check needs them first.
#[derive(Debug, Default)]
pub(super) struct Tls {
    verified: OnceCell<Arc<ClientConfig>>,
    unverified: OnceCell<Arc<ClientConfig>>,
}

/// What is spoken over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    /// HTTP/1.1, which needs no agreement.
    Http1,
    /// HTTP/2, on which both sides have to agree.
    Http2,
}

impl Tls {
    /// Begins TLS on a connection. A certificate has to be for the address, which is all that is known of the server.
    ///
    /// # Errors
    /// Why the server is not trusted, or does not speak TLS.
    pub(super) async fn handshake(
        &self,
        stream: TcpStream,
        ip: &str,
        skip_verify: bool,
        spoken: Spoken,
    ) -> Result<TlsStream<TcpStream>, String> {
        let address: IpAddr = ip.parse().map_err(|_| format!("{ip} is no address"))?;
        let config = if skip_verify {
            self.unverified.get_or_try_init(|| std::future::ready(unverified())).await?
        } else {
            self.verified.get_or_try_init(verified).await?
        };
        let mut config = Arc::clone(config);
        if spoken == Spoken::Http2 {
            Arc::make_mut(&mut config).alpn_protocols = vec![b"h2".to_vec()];
        }
        let connector = TlsConnector::from(config);
        connector.connect(ServerName::from(address), stream).await.map_err(|error| {
            let hint = if skip_verify { "" } else { "; tlsSkipVerify takes any certificate" };
            format!("no TLS with {ip}: {error}{hint}")
        })
    }
}

async fn verified() -> Result<Arc<ClientConfig>, String> {
    let read = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs).await;
    let found = read.map_err(|error| format!("reading the node's certificates broke off: {error}"))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(format!(
            "the node trusts no certificates{why}: set SSL_CERT_FILE of its agent, or tlsSkipVerify of the check"
        ));
    }
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

fn unverified() -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let any = Arc::new(AnyCertificate(provider()));
    Ok(Arc::new(builder.dangerous().with_custom_certificate_verifier(any).with_no_client_auth()))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Takes any certificate: a check with `tlsSkipVerify` asks whether a server answers, not which one.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
