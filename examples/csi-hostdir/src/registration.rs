//! Registers the driver with a kubelet, as the sidecar `node-driver-registrar` does: says who it is to a client that
//! asks in the kubelet's folder.

use drover_csi::registration::registration_server::{Registration, RegistrationServer};
use drover_csi::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use futures::Stream;
use tokio::net::UnixStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::name::NAME;

struct Registrar {
    /// The driver's own socket.
    endpoint: String,
}

/// Answers each client.
pub(crate) async fn serve(
    incoming: impl Stream<Item = std::io::Result<UnixStream>>,
    endpoint: String,
) -> Result<(), tonic::transport::Error> {
    let service = RegistrationServer::new(Registrar { endpoint });
    Server::builder().add_service(service).serve_with_incoming(incoming).await
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: NAME.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        _: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
