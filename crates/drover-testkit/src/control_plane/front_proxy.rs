//! By what the API server proves itself to aggregated APIs, for which it passes on who asks.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::agent_door::{NAME as SERVER_NAME, believed};
use crate::workspace::write_private;

/// The name in the certificate, and the only one that aggregated APIs take.
const NAME: &str = "front-proxy-client";

/// Its files.
#[derive(Debug)]
pub(super) struct FrontProxy {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl FrontProxy {
    /// Reads them from a folder; makes them where they are missing.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = |name: &str| folder.join(name);
        let files = Self {
            authority: path("front-proxy-ca.crt"),
            certificate: path("front-proxy-client.crt"),
            key: path("front-proxy-client.key"),
        };
        if ![&files.authority, &files.certificate, &files.key].iter().all(|file| file.is_file()) {
            files.make().context("making the certificate of the API server's proxy")?;
        }
        Ok(files)
    }

    fn make(&self) -> Result<()> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "front-proxy-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key)?;
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, NAME);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &issuer)?;
        write_private(&self.authority, &authority.pem())?;
        write_private(&self.certificate, &certificate.pem())?;
        write_private(&self.key, &key.serialize_pem())
    }

    /// Dials the aggregated API at this address as the API server does, for HTTP/2. The other side must be one of these
    /// authorities (PEM).
    async fn dial(&self, authorities: &str, at: SocketAddr) -> Result<TlsStream<TcpStream>> {
        let certificate = CertificateDer::from_pem_file(&self.certificate).context("reading the certificate")?;
        let key = PrivateKeyDer::from_pem_file(&self.key).context("reading the key")?;
        let config = ClientConfig::builder().with_root_certificates(believed(authorities)?);
        let mut config = config.with_client_auth_cert(vec![certificate], key).context("showing the certificate")?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let tcp = TcpStream::connect(at).await.context("dialling the gateway")?;
        tcp.set_nodelay(true).context("preparing the connection")?;
        let name = ServerName::try_from(SERVER_NAME).context("the gateway's name")?;
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await.context("entering the gateway")
    }

    /// What the API server is told of them.
    pub(super) fn args(&self) -> Vec<String> {
        vec![
            format!("--requestheader-client-ca-file={}", self.authority.display()),
            format!("--requestheader-allowed-names={NAME}"),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-uid-headers=X-Remote-Uid".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            format!("--proxy-client-cert-file={}", self.certificate.display()),
            format!("--proxy-client-key-file={}", self.key.display()),
        ]
    }
}

/// Dials the gateway at this address as the API server with this data folder does: over HTTP/2, by the certificate for
/// which the gateway believes who asks. The gateway must be one of these authorities (PEM).
///
/// # Errors
/// When its certificate cannot be read, or nothing answers.
pub async fn dial_as_api_server(data_dir: &Path, authorities: &str, at: SocketAddr) -> Result<TlsStream<TcpStream>> {
    FrontProxy::open(&pki(data_dir))?.dial(authorities, at).await
}

/// Where a control plane keeps what it proves itself by.
pub(super) fn pki(data_dir: &Path) -> PathBuf {
    data_dir.join("pki")
}
