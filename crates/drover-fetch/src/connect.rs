//! Connections: a name is looked up once, each address is asked about before it is reached, and the one that was asked
//! about is the one that is reached.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use drover_core::artifact::{WebAddress, refusal};
use drover_core::service::Cidr;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longest wait for a connection, or for a look-up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Most addresses of a name that are tried.
const MAX_TRIES: usize = 4;

/// Certificates that the node trusts; read before the process is confined.
#[derive(Debug)]
pub(crate) struct Trust(RootCertStore);

impl Trust {
    /// Those of the node.
    pub(crate) fn of_node() -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self(roots)
    }

    /// Begins TLS on a connection.
    pub(crate) async fn handshake(&self, stream: TcpStream, host: &str) -> Result<TlsStream<TcpStream>, String> {
        if self.0.is_empty() {
            return Err("the node trusts no certificates: set SSL_CERT_FILE of its agent".to_owned());
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let config = builder.with_root_certificates(self.0.clone()).with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host} is no name of a server"))?;
        let shaken =
            tokio::time::timeout(CONNECT_TIMEOUT, TlsConnector::from(Arc::new(config)).connect(name, stream)).await;
        shaken
            .map_err(|_| format!("no TLS with {host} within {}s", CONNECT_TIMEOUT.as_secs()))?
            .map_err(|error| format!("no TLS with {host}: {error}"))
    }
}

/// Connects to a server.
pub(crate) async fn connect(to: &WebAddress, allowed: &[Cidr]) -> Result<TcpStream, String> {
    let found = if let Ok(address) = to.host.parse::<IpAddr>() {
        vec![SocketAddr::new(address, to.port)]
    } else {
        let looked_up = tokio::time::timeout(CONNECT_TIMEOUT, tokio::net::lookup_host((to.host.as_str(), to.port)));
        let looked_up = looked_up.await.map_err(|_| format!("no look-up of {} answered", to.host))?;
        looked_up.map_err(|error| format!("{} is not known: {error}", to.host))?.collect()
    };
    let mut problem = format!("{} has no address", to.host);
    for address in permitted(&to.host, &found, allowed)?.into_iter().take(MAX_TRIES) {
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => problem = format!("no connection to {address}: {error}"),
            Err(_) => problem = format!("no connection to {address} within {}s", CONNECT_TIMEOUT.as_secs()),
        }
    }
    Err(problem)
}

/// The addresses of a host that may be reached, or why none may.
fn permitted(host: &str, found: &[SocketAddr], allowed: &[Cidr]) -> Result<Vec<SocketAddr>, String> {
    let (mut taken, mut refused) = (Vec::new(), None);
    for address in found {
        match refusal(address.ip(), allowed) {
            None => taken.push(*address),
            Some(reason) => refused = Some((address.ip(), reason)),
        }
    }
    match refused.filter(|_| taken.is_empty()) {
        Some((address, reason)) => Err(format!(
            "{host} is not asked, because its address is {address}: {reason}; an operator may allow it in the node's artifacts.allowedCIDRs"
        )),
        None => Ok(taken),
    }
}
