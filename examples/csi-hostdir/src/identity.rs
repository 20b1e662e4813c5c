//! Who the driver is.

use drover_csi::identity_server::Identity;
use drover_csi::plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion};
use drover_csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};
use tonic::{Request, Response, Status};

use crate::Driver;
use crate::name::NAME;

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: NAME.to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..GetPluginInfoResponse::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let expansion = Type::VolumeExpansion(VolumeExpansion { r#type: volume_expansion::Type::Online.into() });
        let controller = Type::Service(Service { r#type: service::Type::ControllerService.into() });
        let all = if self.options.no_controller { Vec::new() } else { vec![controller, expansion] };
        let capabilities = all.into_iter().map(|one| PluginCapability { r#type: Some(one) }).collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        self.faults.enter("Probe", "").await?;
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
