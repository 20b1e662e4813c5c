//! Dials replicas, and keeps whom to believe: a certificate that is not believed may be of a new authority, so those
//! are read again once.

use std::path::PathBuf;
use std::sync::Arc;

use hyper::upgrade::Upgraded;
use rustls::RootCertStore;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::task::TaskTracker;

use super::dial::{DialError, Door, Replica, connect, enter};
use super::replicas::Replicas;
use crate::config::AgentConfig;
use crate::random::Random;
use drover_api::gateway::GatewayPort;
use drover_store::Store;

/// What a dial needs; a clone reads the authorities for itself.
#[derive(Debug)]
pub(crate) struct Dialer<S> {
    replicas: Replicas<S>,
    server_name: String,
    token_file: PathBuf,
    authorities: Option<Arc<RootCertStore>>,
}

impl<S: Clone> Clone for Dialer<S> {
    fn clone(&self) -> Self {
        Self {
            replicas: self.replicas.clone(),
            server_name: self.server_name.clone(),
            token_file: self.token_file.clone(),
            authorities: None,
        }
    }
}

impl<S: Store> Dialer<S> {
    /// As the configuration says; none where it names no token.
    pub(crate) fn new(config: &AgentConfig, store: S) -> Option<Self> {
        Some(Self {
            replicas: Replicas::new(config, store),
            server_name: format!("{}.{}.svc", config.gateway.service, config.namespace),
            token_file: config.gateway.token_file.clone()?,
            authorities: None,
        })
    }

    /// The replicas that may be dialled.
    pub(crate) const fn replicas(&self) -> &Replicas<S> {
        &self.replicas
    }

    /// The file with the token.
    pub(crate) fn token_file(&self) -> &std::path::Path {
        &self.token_file
    }

    /// A connection to a replica, which then speaks the protocol that was asked for.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn open(&mut self, address: &str, door: Door, tasks: &TaskTracker) -> Result<Upgraded, String> {
        let connection = self.connect(address).await?;
        let entered = enter(connection, (&self.server_name, door), &self.token_file, tasks).await;
        entered.map_err(|error| error.to_string())
    }

    /// The same to any replica, but to another one than this where there are several. Returns the replica's address
    /// too.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn open_one(
        &mut self,
        door: Door,
        but: &str,
        random: &Random,
        tasks: &TaskTracker,
    ) -> Result<(String, Upgraded), String> {
        let addresses = self.replicas.addresses(GatewayPort::Agents).await.map_err(|error| error.to_string())?;
        let others: Vec<&String> = addresses.iter().filter(|address| *address != but || addresses.len() == 1).collect();
        let Some(address) = others.get(random.place(others.len())) else {
            return Err("no replica of it is ready".to_owned());
        };
        let address = (*address).clone();
        match self.open(&address, door, tasks).await {
            Ok(connection) => Ok((address, connection)),
            Err(reason) => Err(format!("{address}: {reason}")),
        }
    }

    /// An encrypted connection to a replica, which has heard nothing of this node yet. Where the certificate is not
    /// believed, it is tried once more with authorities that are read again.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn connect(&mut self, address: &str) -> Result<TlsStream<TcpStream>, String> {
        let was_known = self.authorities.is_some();
        let mut dialled = connect(&self.replica(address).await?).await;
        if was_known && matches!(dialled, Err(DialError::Untrusted(_))) {
            self.authorities = None;
            dialled = connect(&self.replica(address).await?).await;
        }
        if matches!(dialled, Err(DialError::Untrusted(_))) {
            self.authorities = None;
        }
        dialled.map_err(|error| error.to_string())
    }

    /// How the gateway is called in its certificate.
    pub(crate) fn server_name(&self) -> &str {
        &self.server_name
    }

    async fn replica(&mut self, address: &str) -> Result<Replica, String> {
        let authorities = if let Some(authorities) = &self.authorities {
            Arc::clone(authorities)
        } else {
            let read = self.replicas.authorities().await.map_err(|error| error.to_string())?;
            Arc::clone(self.authorities.insert(read))
        };
        Ok(Replica { address: address.to_owned(), server_name: self.server_name.clone(), authorities })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;
    use std::net::SocketAddr;
    use std::path::Path;
    use std::sync::Mutex;
    use std::time::Duration;

    use drover_store::KubeStore;
    use kube::client::Body;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use rustls::ServerConfig;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;
    use tokio::task::JoinSet;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    const DOOR: Door = Door { path: "/values/v1", protocol: "drover-values/1" };

    /// An authority, and what a replica serves that has a certificate of it.
    struct Issued {
        authority: String,
        served: Arc<ServerConfig>,
    }

    fn issued() -> Issued {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).expect("an authority").pem();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().expect("a key");
        let names = vec!["drover-gateway.drover-system.svc".to_owned()];
        let leaf = CertificateParams::new(names).expect("parameters").signed_by(&key, &issuer).expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let served = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .expect("a certificate and its key");
        Issued { authority, served: Arc::new(served) }
    }

    /// A replica, which tells what each that dials it sends; none: it was not believed.
    struct FakeReplica {
        at: SocketAddr,
        served: Arc<Mutex<Arc<ServerConfig>>>,
        heard: mpsc::UnboundedReceiver<Option<String>>,
        _answering: JoinSet<()>,
    }

    impl FakeReplica {
        async fn start(first: &Issued) -> Self {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
            let at = listener.local_addr().expect("an address");
            let served = Arc::new(Mutex::new(Arc::clone(&first.served)));
            let (tell, heard) = mpsc::unbounded_channel();
            let (now, mut answering) = (Arc::clone(&served), JoinSet::new());
            answering.spawn(async move {
                while let Ok((tcp, _)) = listener.accept().await {
                    let config = Arc::clone(&now.lock().expect("no panic"));
                    let said = match TlsAcceptor::from(config).accept(tcp).await {
                        Err(_) => None,
                        Ok(mut tls) => {
                            let mut bytes = [0; 1024];
                            // A client that does not believe learns so after the server's last word.
                            match tls.read(&mut bytes).await {
                                Ok(n) if n > 0 => Some(String::from_utf8_lossy(&bytes[..n]).into_owned()),
                                _ => None,
                            }
                        }
                    };
                    if tell.send(said).is_err() {
                        return;
                    }
                }
            });
            Self { at, served, heard, _answering: answering }
        }

        fn serve(&self, issued: &Issued) {
            *self.served.lock().expect("no panic") = Arc::clone(&issued.served);
        }

        async fn next(&mut self) -> Option<String> {
            tokio::time::timeout(Duration::from_mins(1), self.heard.recv()).await.expect("in time").expect("a dial")
        }
    }

    /// A store that is never asked.
    pub(crate) fn unasked_store() -> KubeStore {
        let none = tower::service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>(io::Error::other("it is not asked"))
        });
        KubeStore::new(kube::Client::new(none, "default"), Duration::from_secs(1))
    }

    /// One whose store is never asked.
    fn dialer(dir: &Path) -> Dialer<KubeStore> {
        let text = format!(
            "stateDir: /s\nallocDir: /a\ngateway: {{tokenFile: {0}/token, caFile: {0}/ca, replicas: [\"here\"]}}\n",
            dir.display()
        );
        let config = AgentConfig::parse(&text, Path::new("agent.yaml")).expect("a configuration");
        std::fs::write(dir.join("token"), "the-token").expect("a file");
        Dialer::new(&config, unasked_store()).expect("a token")
    }

    #[tokio::test]
    async fn g_019_a_wrong_certificate_gets_no_token_and_authorities_are_read_again_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let [first, second, third] = [issued(), issued(), issued()];
        let mut replica = FakeReplica::start(&second).await;
        let (mut dialer, tasks) = (dialer(dir.path()), TaskTracker::new());
        let believe = |issued: &Issued| std::fs::write(dir.path().join("ca"), &issued.authority).expect("a file");
        let address = replica.at.to_string();
        let is_refused = |opened: Result<Upgraded, String>| {
            opened.expect_err("no answer").contains("its certificate is not believed")
        };

        // Never believed: nothing is sent.
        believe(&first);
        assert!(is_refused(dialer.open(&address, DOOR, &tasks).await));
        assert_eq!(replica.next().await, None);
        // The right one: only then the token.
        believe(&second);
        assert!(!is_refused(dialer.open(&address, DOOR, &tasks).await), "it has only not answered");
        assert!(replica.next().await.expect("a request").contains("Bearer the-token"));
        // Another authority, which is published: read again, and dialled once more.
        replica.serve(&third);
        believe(&third);
        assert!(!is_refused(dialer.open(&address, DOOR, &tasks).await));
        assert_eq!(replica.next().await, None);
        assert!(replica.next().await.expect("a request").contains("Bearer the-token"));
        // One that is not: two tries, and no token in either.
        replica.serve(&first);
        assert!(is_refused(dialer.open(&address, DOOR, &tasks).await));
        assert_eq!([replica.next().await, replica.next().await], [None, None]);
        assert!(replica.heard.try_recv().is_err(), "there is no third");
    }
}
