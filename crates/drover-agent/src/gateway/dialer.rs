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
