//! The node half: bind mounts of the volume's directory.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::Path;

use drover_csi::node_server::Node;
use drover_csi::node_service_capability::{Rpc, Type, rpc};
use drover_csi::volume_capability::AccessType;
use drover_csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse,
    NodeGetInfoRequest, NodeGetInfoResponse, NodeGetStorageHealthRequest, NodeGetStorageHealthResponse,
    NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse, Topology, VolumeCapability, VolumeUsage, volume_usage,
};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use tonic::{Request, Response, Status};

use crate::Driver;

/// The key of the topology: each node is a place of its own, and volumes are everywhere.
const TOPOLOGY: &str = "hostdir.csi.drover.dev/all";

impl Driver {
    /// A volume that is attached to this node, where volumes are.
    fn attached(&self, id: &str) -> Result<(), Status> {
        needed("volume_id", id)?;
        self.store.volume(id).ok_or_else(|| Status::not_found(format!("volume {id} does not exist")))?;
        let is_here = || self.store.attachments(id).iter().any(|attachment| attachment.node == self.options.node_id);
        if self.options.no_attach || self.options.no_controller || is_here() {
            return Ok(());
        }
        Err(Status::failed_precondition(format!("volume {id} is not attached to {}", self.options.node_id)))
    }
}

impl Driver {
    /// The publish context is what the controller has answered for this node.
    fn attached_to_here(&self, context: &HashMap<String, String>) -> Result<(), Status> {
        let is_needed = !self.options.no_attach && !self.options.no_controller;
        if is_needed && context.get("attachedTo") != Some(&self.options.node_id) {
            return Err(Status::invalid_argument("the publish context is not this driver's; pass on what it answered"));
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl Node for Driver {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let asked = request.into_inner();
        let about = format!("{} {}", asked.volume_id, asked.staging_target_path);
        self.faults.enter_with("NodeStageVolume", &about, &asked.secrets).await?;
        needed("staging_target_path", &asked.staging_target_path)?;
        files_only(asked.volume_capability.as_ref())?;
        self.attached(&asked.volume_id)?;
        let path = Path::new(&asked.staging_target_path);
        bind(&self.store.data(&asked.volume_id), path, false).map_err(|error| failed("staging", path, &error))?;
        Ok(Response::new(NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let asked = request.into_inner();
        self.faults.enter("NodeUnstageVolume", &format!("{} {}", asked.volume_id, asked.staging_target_path)).await?;
        needed("volume_id", &asked.volume_id)?;
        needed("staging_target_path", &asked.staging_target_path)?;
        let path = Path::new(&asked.staging_target_path);
        unbind(path).map_err(|error| failed("unstaging", path, &error))?;
        Ok(Response::new(NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let asked = request.into_inner();
        let mode = if asked.readonly { "ro" } else { "rw" };
        let about = format!("{} {} {mode}", asked.volume_id, asked.target_path);
        self.faults.enter_with("NodePublishVolume", &about, &asked.secrets).await?;
        needed("target_path", &asked.target_path)?;
        self.faults.check_credentials(&asked)?;
        files_only(asked.volume_capability.as_ref())?;
        self.attached(&asked.volume_id)?;
        self.attached_to_here(&asked.publish_context)?;
        let (source, path) = (Path::new(&asked.staging_target_path), Path::new(&asked.target_path));
        if asked.staging_target_path.is_empty() || !is_mounted(source) {
            return Err(Status::failed_precondition(format!("volume {} is not staged", asked.volume_id)));
        }
        let published = fs::create_dir_all(path).and_then(|()| bind(source, path, asked.readonly));
        published.map_err(|error| failed("publishing", path, &error))?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let asked = request.into_inner();
        self.faults.enter("NodeUnpublishVolume", &format!("{} {}", asked.volume_id, asked.target_path)).await?;
        needed("volume_id", &asked.volume_id)?;
        needed("target_path", &asked.target_path)?;
        let path = Path::new(&asked.target_path);
        let removed = unbind(path).and_then(|()| match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        });
        removed.map_err(|error| failed("unpublishing", path, &error))?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let asked = request.into_inner();
        needed("volume_id", &asked.volume_id)?;
        needed("volume_path", &asked.volume_path)?;
        let path = Path::new(&asked.volume_path);
        if self.store.volume(&asked.volume_id).is_none() || !path.exists() {
            return Err(Status::not_found(format!("volume {} is not at {}", asked.volume_id, asked.volume_path)));
        }
        let found = rustix::fs::statvfs(path).map_err(|error| failed("asking", path, &error.into()))?;
        let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX);
        let (total, available) = (bytes(found.f_blocks), bytes(found.f_bavail));
        let usage = VolumeUsage { total, available, used: total - available, unit: volume_usage::Unit::Bytes.into() };
        Ok(Response::new(NodeGetVolumeStatsResponse { usage: vec![usage] }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let asked = request.into_inner();
        let about = format!("{} {}", asked.volume_id, asked.volume_path);
        self.faults.enter_with("NodeExpandVolume", &about, &asked.secrets).await?;
        needed("volume_id", &asked.volume_id)?;
        needed("volume_path", &asked.volume_path)?;
        let volume = self.store.volume(&asked.volume_id);
        let volume = volume.ok_or_else(|| Status::not_found(format!("volume {} does not exist", asked.volume_id)))?;
        if !Path::new(&asked.volume_path).exists() {
            return Err(Status::not_found(format!("nothing is at {}", asked.volume_path)));
        }
        Ok(Response::new(NodeExpandVolumeResponse { capacity_bytes: volume.capacity }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let all = [rpc::Type::StageUnstageVolume, rpc::Type::GetVolumeStats, rpc::Type::ExpandVolume];
        let capability = |one: rpc::Type| NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: one.into() })) };
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities: all.map(capability).to_vec() }))
    }

    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Result<Response<NodeGetInfoResponse>, Status> {
        let segments = BTreeMap::from([(TOPOLOGY.to_owned(), "true".to_owned())]);
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.options.node_id.clone(),
            max_volumes_per_node: self.options.max_volumes,
            accessible_topology: Some(Topology { segments: segments.into_iter().collect() }),
        }))
    }

    async fn node_get_volume_health(
        &self,
        _: Request<NodeGetVolumeHealthRequest>,
    ) -> Result<Response<NodeGetVolumeHealthResponse>, Status> {
        Err(Status::unimplemented("directories have no health"))
    }

    async fn node_get_storage_health(
        &self,
        _: Request<NodeGetStorageHealthRequest>,
    ) -> Result<Response<NodeGetStorageHealthResponse>, Status> {
        Err(Status::unimplemented("directories have no health"))
    }
}

/// An argument that must be there.
pub(crate) fn needed(name: &str, value: &str) -> Result<(), Status> {
    if value.is_empty() { Err(Status::invalid_argument(format!("{name} is missing"))) } else { Ok(()) }
}

/// Directories are mounted as files only.
pub(crate) fn files_only(capability: Option<&VolumeCapability>) -> Result<(), Status> {
    let capability = capability.ok_or_else(|| Status::invalid_argument("volume_capability is missing"))?;
    match &capability.access_type {
        Some(AccessType::Mount(_)) => Ok(()),
        Some(AccessType::Block(_)) => Err(Status::invalid_argument("a directory is no block device")),
        None => Err(Status::invalid_argument("access_type is missing")),
    }
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> Status {
    Status::internal(format!("{doing} at {}: {error}", path.display()))
}

/// Mounts a directory at a place, unless something is mounted there.
fn bind(source: &Path, target: &Path, read_only: bool) -> io::Result<()> {
    if is_mounted(target) {
        return Ok(());
    }
    mount_bind(source, target)?;
    if read_only {
        mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, "")?;
    }
    Ok(())
}

fn unbind(target: &Path) -> io::Result<()> {
    while is_mounted(target) {
        unmount(target, UnmountFlags::NOFOLLOW)?;
    }
    Ok(())
}

/// Whether something is mounted at a place: a bind mount within one file system has no device of its own.
fn is_mounted(path: &Path) -> bool {
    let Ok(place) = path.canonicalize() else { return false };
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .any(|point| Path::new(&point.replace("\\040", " ")) == place)
}
