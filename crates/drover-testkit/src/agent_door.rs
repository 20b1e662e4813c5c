//! What an agent has of a gateway, for those who play one: a token that names a node, and a connection that becomes
//! another protocol by it.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Returns a token of an account, as this `spec` of a `TokenRequest` wants it.
///
/// # Errors
/// When the API server gives none.
pub async fn token(accounts: &Api<ServiceAccount>, name: &str, spec: &Value) -> Result<String> {
    let request = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).context("a request for a token")?;
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
    let answer = answer.with_context(|| format!("asking for a token of {name}"))?;
    answer.status.and_then(|status| status.token).with_context(|| format!("the API server gave no token for {name}"))
}

/// A connection that speaks another protocol by now.
pub type AgentConnection = BufReader<TlsStream<TcpStream>>;

/// Where a gateway answers agents, and by whom it must be known.
#[derive(Debug)]
pub struct AgentDoor {
    config: Arc<ClientConfig>,
    at: SocketAddr,
}

/// By which name agents and the API server know it.
pub(crate) const NAME: &str = "drover-gateway.drover-system.svc";

/// The authorities in a text (PEM).
pub(crate) fn believed(authorities: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(certificate.context("reading the gateway's authorities")?).context("an authority")?;
    }
    Ok(roots)
}

impl AgentDoor {
    /// At this address, with a certificate of these authorities (PEM).
    ///
    /// # Errors
    /// When they are none.
    pub fn new(authorities: &str, at: SocketAddr) -> Result<Self> {
        let config = ClientConfig::builder().with_root_certificates(believed(authorities)?).with_no_client_auth();
        Ok(Self { config: Arc::new(config), at })
    }

    /// Asks at this path for this protocol, by a token.
    ///
    /// # Errors
    /// When nothing answers; the first line of another answer than that the connection is turned.
    pub async fn enter(&self, token: &str, (path, protocol): (&str, &str)) -> Result<AgentConnection> {
        let tcp = TcpStream::connect(self.at).await.context("dialling the gateway")?;
        let name = ServerName::try_from(NAME).context("the gateway's name")?;
        let tls =
            TlsConnector::from(Arc::clone(&self.config)).connect(name, tcp).await.context("entering the gateway")?;
        let mut connection = BufReader::new(tls);
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {NAME}\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\
             Authorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).await.context("asking the gateway")?;
        let mut line = String::new();
        connection.read_line(&mut line).await.context("reading the gateway's answer")?;
        if !line.contains("101") {
            bail!("{}", line.trim());
        }
        while !line.trim().is_empty() {
            line.clear();
            connection.read_line(&mut line).await.context("reading the gateway's answer")?;
        }
        Ok(connection)
    }
}
