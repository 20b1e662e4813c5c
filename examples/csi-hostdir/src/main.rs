//! A CSI driver whose volumes are directories of the host.

mod controller;
mod faults;
mod identity;
mod name;
mod node;
mod registration;
mod store;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use drover_csi::controller_server::ControllerServer;
use drover_csi::identity_server::IdentityServer;
use drover_csi::node_server::NodeServer;
use futures::{Stream, stream};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tonic::transport::Server;

use crate::faults::Faults;
use crate::name::NAME;
use crate::store::Store;

/// How the driver is run.
#[derive(Clone, Debug, Parser)]
#[command(version, about)]
struct Options {
    /// Where it listens, as `unix:///csi/csi.sock`
    #[arg(long, env = "CSI_ENDPOINT")]
    endpoint: String,
    /// Where volumes and snapshots lie; all nodes share it
    #[arg(long)]
    data_dir: PathBuf,
    /// The name by which volumes are attached to this node
    #[arg(long)]
    node_id: String,
    /// Gets one line for each call
    #[arg(long)]
    calls: Option<PathBuf>,
    /// Calls that fail, read before each call
    #[arg(long)]
    faults: Option<PathBuf>,
    /// Holds what calls with secrets must bring as `password`, read before each call
    #[arg(long)]
    password_file: Option<PathBuf>,
    /// Volumes are not attached to nodes
    #[arg(long)]
    no_attach: bool,
    /// There is no controller
    #[arg(long)]
    no_controller: bool,
    /// Most volumes on this node; 0 for no limit
    #[arg(long, default_value_t = 0)]
    max_volumes: i64,
    /// A kubelet's folder `plugins_registry`, where the driver registers
    #[arg(long)]
    kubelet_registration: Option<PathBuf>,
}

/// What all services share.
#[derive(Debug)]
struct Driver {
    options: Options,
    store: Store,
    faults: Faults,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let socket = options.endpoint.strip_prefix("unix://").unwrap_or(&options.endpoint).to_owned();
    let incoming = listen(Path::new(&socket))?;
    let registration = options.kubelet_registration.as_deref().map(|folder| folder.join(format!("{NAME}-reg.sock")));
    let store = Store::open(&options.data_dir).context("opening the data directory")?;
    let faults = Faults::new(options.calls.clone(), options.faults.clone(), options.password_file.clone());
    let has_controller = !options.no_controller;
    let driver = Arc::new(Driver { options, store, faults });
    let mut terminated = signal(SignalKind::terminate()).context("listening to signals")?;
    let server = Server::builder()
        .add_service(IdentityServer::from_arc(Arc::clone(&driver)))
        .add_service(NodeServer::from_arc(Arc::clone(&driver)))
        .add_optional_service(has_controller.then(|| ControllerServer::from_arc(driver)));
    let over = async move {
        // Nothing is left to say when no signal can come any more.
        terminated.recv().await.unwrap_or_default();
    };
    let serving = server.serve_with_incoming_shutdown(incoming, over);
    let Some(registration) = registration else { return serving.await.context("serving") };
    let registered = registration::serve(listen(&registration)?, socket);
    let ended = tokio::select! {
        ended = serving => ended.context("serving"),
        ended = registered => ended.context("registering"),
    };
    // A kubelet takes a socket that is there for a driver that runs.
    std::fs::remove_file(&registration).with_context(|| format!("removing {}", registration.display()))?;
    ended
}

/// Connections to a socket, which takes the place of one that an earlier run has left.
fn listen(socket: &Path) -> anyhow::Result<impl Stream<Item = std::io::Result<UnixStream>> + use<>> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing {}", socket.display()));
        }
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(socket).with_context(|| format!("listening at {}", socket.display()))?;
    Ok(stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    }))
}
