//! The controller half: makes volumes and snapshots, and attaches volumes to nodes.

use std::collections::HashMap;
use std::path::PathBuf;

use drover_csi::controller_server::Controller;
use drover_csi::controller_service_capability::{Rpc, Type, rpc};
use drover_csi::validate_volume_capabilities_response::Confirmed;
use drover_csi::volume_capability::access_mode::Mode;
use drover_csi::volume_content_source::Type as Source;
use drover_csi::{self as csi, list_snapshots_response, list_volumes_response};
use prost_types::Timestamp;
use tonic::{Request, Response, Status};

use crate::Driver;
use crate::node::{files_only, needed};
use crate::store::{Attachment, Snapshot, Volume, id_of};

/// The size of a volume without one in its request.
const DEFAULT_SIZE: i64 = 1 << 30;

type Answer<T> = Result<Response<T>, Status>;

impl Driver {
    fn volume(&self, id: &str) -> Result<Volume, Status> {
        needed("volume_id", id)?;
        self.store.volume(id).ok_or_else(|| Status::not_found(format!("volume {id} does not exist")))
    }

    /// The files that a new volume begins with, and what they are of.
    fn source(&self, source: Option<&csi::VolumeContentSource>) -> Result<Option<(String, PathBuf)>, Status> {
        let Some(of) = source.and_then(|source| source.r#type.as_ref()) else { return Ok(None) };
        match of {
            Source::Volume(from) => {
                let known = self.volume(&from.volume_id)?;
                Ok(Some((known.id.clone(), self.store.data(&known.id))))
            }
            Source::Snapshot(from) => {
                let known = self.store.snapshots().into_iter().find(|known| known.id == from.snapshot_id);
                let missing = || Status::not_found(format!("snapshot {} does not exist", from.snapshot_id));
                let known = known.ok_or_else(missing)?;
                Ok(Some((known.id.clone(), self.store.snapshot_data(&known.id))))
            }
        }
    }
}

#[tonic::async_trait]
impl Controller for Driver {
    async fn create_volume(&self, request: Request<csi::CreateVolumeRequest>) -> Answer<csi::CreateVolumeResponse> {
        let asked = request.into_inner();
        self.faults.enter_with("CreateVolume", &asked.name, &asked.secrets).await?;
        needed("name", &asked.name)?;
        capabilities(&asked.volume_capabilities)?;
        let (required, limit) = size(asked.capacity_range.as_ref())?;
        let source = self.source(asked.volume_content_source.as_ref())?;
        let from = source.as_ref().map(|(id, _)| id.clone());
        let id = id_of("vol", &asked.name);
        let volume = if let Some(known) = self.store.volume(&id) {
            let fits = known.capacity >= required && (limit == 0 || known.capacity <= limit);
            if known.name != asked.name || known.source != from || !fits {
                return Err(Status::already_exists(format!("volume {} exists and is another one", asked.name)));
            }
            known
        } else {
            let default = if limit == 0 { DEFAULT_SIZE } else { DEFAULT_SIZE.min(limit) };
            let capacity = if required == 0 { default } else { required };
            let volume = Volume { id, name: asked.name.clone(), capacity, source: from };
            let files = source.as_ref().map(|(_, files)| files.as_path());
            self.store.create(&volume, files).map_err(|error| internal(&error))?;
            volume
        };
        let volume = csi::Volume { content_source: asked.volume_content_source, ..shown(&volume) };
        Ok(Response::new(csi::CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(&self, request: Request<csi::DeleteVolumeRequest>) -> Answer<csi::DeleteVolumeResponse> {
        let asked = request.into_inner();
        self.faults.enter_with("DeleteVolume", &asked.volume_id, &asked.secrets).await?;
        needed("volume_id", &asked.volume_id)?;
        if let Some(attachment) = self.store.attachments(&asked.volume_id).first() {
            let reason = format!("volume {} is attached to {}", asked.volume_id, attachment.node);
            return Err(Status::failed_precondition(reason));
        }
        self.store.delete(&asked.volume_id).map_err(|error| internal(&error))?;
        Ok(Response::new(csi::DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<csi::ControllerPublishVolumeRequest>,
    ) -> Answer<csi::ControllerPublishVolumeResponse> {
        let asked = request.into_inner();
        let about = format!("{} {}", asked.volume_id, asked.node_id);
        self.faults.enter_with("ControllerPublishVolume", &about, &asked.secrets).await?;
        needed("volume_id", &asked.volume_id)?;
        needed("node_id", &asked.node_id)?;
        files_only(asked.volume_capability.as_ref())?;
        let volume = self.volume(&asked.volume_id)?;
        if asked.node_id.contains("fake") {
            return Err(Status::not_found(format!("node {} does not exist", asked.node_id)));
        }
        let mode = asked.volume_capability.as_ref().and_then(|capability| capability.access_mode.as_ref());
        let is_shared = mode.is_some_and(|mode| is_shared(mode.mode()));
        let wanted = Attachment { node: asked.node_id.clone(), read_only: asked.readonly, is_shared };
        for known in self.store.attachments(&volume.id) {
            if known.node == wanted.node && (known.read_only, known.is_shared) != (wanted.read_only, is_shared) {
                return Err(Status::already_exists(format!("volume {} is attached in another way", volume.id)));
            }
            if known.node != wanted.node && !(known.is_shared && is_shared) {
                let reason = format!("volume {} is attached to node {}", volume.id, known.node);
                return Err(Status::failed_precondition(reason));
            }
        }
        self.store.attach(&volume.id, &wanted).map_err(|error| internal(&error))?;
        let mut publish_context = HashMap::from([("attachedTo".to_owned(), asked.node_id)]);
        publish_context.extend(self.faults.session(&asked.secrets));
        Ok(Response::new(csi::ControllerPublishVolumeResponse { publish_context }))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<csi::ControllerUnpublishVolumeRequest>,
    ) -> Answer<csi::ControllerUnpublishVolumeResponse> {
        let asked = request.into_inner();
        let about = format!("{} {}", asked.volume_id, asked.node_id);
        self.faults.enter_with("ControllerUnpublishVolume", &about, &asked.secrets).await?;
        needed("volume_id", &asked.volume_id)?;
        self.store.detach(&asked.volume_id, &asked.node_id).map_err(|error| internal(&error))?;
        Ok(Response::new(csi::ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<csi::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<csi::ValidateVolumeCapabilitiesResponse> {
        let asked = request.into_inner();
        self.faults.enter_with("ValidateVolumeCapabilities", &asked.volume_id, &asked.secrets).await?;
        needed("volume_id", &asked.volume_id)?;
        if asked.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("volume_capabilities is missing"));
        }
        self.volume(&asked.volume_id)?;
        let answer = match capabilities(&asked.volume_capabilities) {
            Ok(()) => csi::ValidateVolumeCapabilitiesResponse {
                confirmed: Some(Confirmed {
                    volume_context: asked.volume_context,
                    volume_capabilities: asked.volume_capabilities,
                    parameters: asked.parameters,
                    ..Confirmed::default()
                }),
                message: String::new(),
            },
            Err(status) => {
                csi::ValidateVolumeCapabilitiesResponse { confirmed: None, message: status.message().to_owned() }
            }
        };
        Ok(Response::new(answer))
    }

    async fn list_volumes(&self, request: Request<csi::ListVolumesRequest>) -> Answer<csi::ListVolumesResponse> {
        let asked = request.into_inner();
        let (page, next_token) = page(self.store.volumes(), asked.max_entries, &asked.starting_token)?;
        let entry = |volume: &Volume| list_volumes_response::Entry {
            volume: Some(shown(volume)),
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids: self.store.attachments(&volume.id).into_iter().map(|one| one.node).collect(),
            }),
        };
        Ok(Response::new(csi::ListVolumesResponse { entries: page.iter().map(entry).collect(), next_token }))
    }

    async fn get_capacity(&self, _: Request<csi::GetCapacityRequest>) -> Answer<csi::GetCapacityResponse> {
        let available_capacity = self.store.free().map_err(|error| internal(&error))?;
        Ok(Response::new(csi::GetCapacityResponse { available_capacity, ..csi::GetCapacityResponse::default() }))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> Answer<csi::ControllerGetCapabilitiesResponse> {
        let mut all = vec![
            rpc::Type::CreateDeleteVolume,
            rpc::Type::ListVolumes,
            rpc::Type::GetCapacity,
            rpc::Type::CreateDeleteSnapshot,
            rpc::Type::ListSnapshots,
            rpc::Type::CloneVolume,
            rpc::Type::ExpandVolume,
        ];
        if !self.options.no_attach {
            all.extend([
                rpc::Type::PublishUnpublishVolume,
                rpc::Type::PublishReadonly,
                rpc::Type::ListVolumesPublishedNodes,
            ]);
        }
        let capability =
            |one: rpc::Type| csi::ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: one.into() })) };
        let capabilities = all.into_iter().map(capability).collect();
        Ok(Response::new(csi::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_snapshot(
        &self,
        request: Request<csi::CreateSnapshotRequest>,
    ) -> Answer<csi::CreateSnapshotResponse> {
        let asked = request.into_inner();
        self.faults.enter_with("CreateSnapshot", &asked.name, &asked.secrets).await?;
        needed("name", &asked.name)?;
        needed("source_volume_id", &asked.source_volume_id)?;
        let known = self.store.snapshots().into_iter().find(|known| known.name == asked.name);
        let snapshot = match known {
            Some(known) if known.volume != asked.source_volume_id => {
                return Err(Status::already_exists(format!("snapshot {} exists and is of another volume", asked.name)));
            }
            Some(known) => known,
            None => {
                let volume = self.volume(&asked.source_volume_id)?;
                let now = std::fs::metadata("/proc/self").and_then(|found| found.modified());
                let created = now.ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
                let made = Snapshot {
                    id: id_of("snap", &asked.name),
                    name: asked.name,
                    volume: volume.id,
                    size: volume.capacity,
                    created: created.and_then(|span| i64::try_from(span.as_secs()).ok()).unwrap_or(0),
                };
                self.store.snapshot(&made).map_err(|error| internal(&error))?;
                made
            }
        };
        Ok(Response::new(csi::CreateSnapshotResponse { snapshot: Some(shown_snapshot(&snapshot)) }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<csi::DeleteSnapshotRequest>,
    ) -> Answer<csi::DeleteSnapshotResponse> {
        let asked = request.into_inner();
        self.faults.enter_with("DeleteSnapshot", &asked.snapshot_id, &asked.secrets).await?;
        needed("snapshot_id", &asked.snapshot_id)?;
        self.store.delete_snapshot(&asked.snapshot_id).map_err(|error| internal(&error))?;
        Ok(Response::new(csi::DeleteSnapshotResponse {}))
    }

    async fn list_snapshots(&self, request: Request<csi::ListSnapshotsRequest>) -> Answer<csi::ListSnapshotsResponse> {
        let asked = request.into_inner();
        let is_meant = |known: &Snapshot| {
            (asked.snapshot_id.is_empty() || known.id == asked.snapshot_id)
                && (asked.source_volume_id.is_empty() || known.volume == asked.source_volume_id)
        };
        let all: Vec<Snapshot> = self.store.snapshots().into_iter().filter(is_meant).collect();
        let (page, next_token) = page(all, asked.max_entries, &asked.starting_token)?;
        let entry = |one: &Snapshot| list_snapshots_response::Entry { snapshot: Some(shown_snapshot(one)) };
        Ok(Response::new(csi::ListSnapshotsResponse { entries: page.iter().map(entry).collect(), next_token }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<csi::ControllerExpandVolumeRequest>,
    ) -> Answer<csi::ControllerExpandVolumeResponse> {
        let asked = request.into_inner();
        self.faults.enter_with("ControllerExpandVolume", &asked.volume_id, &asked.secrets).await?;
        needed("volume_id", &asked.volume_id)?;
        if asked.capacity_range.is_none() {
            return Err(Status::invalid_argument("capacity_range is missing"));
        }
        let mut volume = self.volume(&asked.volume_id)?;
        let (required, _) = size(asked.capacity_range.as_ref())?;
        if required > volume.capacity {
            volume.capacity = required;
            self.store.update(&volume).map_err(|error| internal(&error))?;
        }
        let node_expansion_required = true;
        let capacity_bytes = volume.capacity;
        Ok(Response::new(csi::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required }))
    }

    async fn controller_list_volume_health(
        &self,
        _: Request<csi::ControllerListVolumeHealthRequest>,
    ) -> Answer<csi::ControllerListVolumeHealthResponse> {
        Err(Status::unimplemented("directories have no health"))
    }

    async fn controller_get_volume_health(
        &self,
        _: Request<csi::ControllerGetVolumeHealthRequest>,
    ) -> Answer<csi::ControllerGetVolumeHealthResponse> {
        Err(Status::unimplemented("directories have no health"))
    }

    async fn get_snapshot(&self, _: Request<csi::GetSnapshotRequest>) -> Answer<csi::GetSnapshotResponse> {
        Err(Status::unimplemented("list snapshots by their id"))
    }

    async fn controller_get_volume(
        &self,
        _: Request<csi::ControllerGetVolumeRequest>,
    ) -> Answer<csi::ControllerGetVolumeResponse> {
        Err(Status::unimplemented("list the volumes"))
    }

    async fn controller_modify_volume(
        &self,
        _: Request<csi::ControllerModifyVolumeRequest>,
    ) -> Answer<csi::ControllerModifyVolumeResponse> {
        Err(Status::unimplemented("directories cannot be modified"))
    }
}

fn internal(error: &std::io::Error) -> Status {
    Status::internal(error.to_string())
}

/// Whether several nodes may use a volume at once.
fn is_shared(mode: Mode) -> bool {
    matches!(mode, Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter)
}

fn capabilities(all: &[csi::VolumeCapability]) -> Result<(), Status> {
    if all.is_empty() {
        return Err(Status::invalid_argument("volume_capabilities is missing"));
    }
    all.iter().try_for_each(|one| files_only(Some(one)))
}

/// At least and at most so many bytes; 0 for no limit.
fn size(range: Option<&csi::CapacityRange>) -> Result<(i64, i64), Status> {
    let (required, limit) = range.map_or((0, 0), |range| (range.required_bytes, range.limit_bytes));
    if required < 0 || limit < 0 || (limit > 0 && limit < required) {
        return Err(Status::out_of_range(format!("no volume has at least {required} and at most {limit} bytes")));
    }
    Ok((required, limit))
}

fn shown(volume: &Volume) -> csi::Volume {
    csi::Volume {
        capacity_bytes: volume.capacity,
        volume_id: volume.id.clone(),
        volume_context: HashMap::from([("name".to_owned(), volume.name.clone())]),
        ..csi::Volume::default()
    }
}

fn shown_snapshot(snapshot: &Snapshot) -> csi::Snapshot {
    csi::Snapshot {
        size_bytes: snapshot.size,
        snapshot_id: snapshot.id.clone(),
        source_volume_id: snapshot.volume.clone(),
        creation_time: Some(Timestamp { seconds: snapshot.created, nanos: 0 }),
        ready_to_use: true,
        ..csi::Snapshot::default()
    }
}

/// A page of a list, and the token of the next one; the token is the number of its first entry.
fn page<T>(all: Vec<T>, max_entries: i32, token: &str) -> Result<(Vec<T>, String), Status> {
    let first: usize = if token.is_empty() { Ok(0) } else { token.parse() }
        .map_err(|_| Status::aborted(format!("there is no page {token:?}; begin again")))?;
    if first > all.len() {
        return Err(Status::aborted(format!("there is no page {token:?} any more; begin again")));
    }
    let n = usize::try_from(max_entries).unwrap_or(0);
    let last = if n == 0 { all.len() } else { (first + n).min(all.len()) };
    let next = if last < all.len() { last.to_string() } else { String::new() };
    Ok((all.into_iter().skip(first).take(last - first).collect(), next))
}
