//! A CSI driver behind its Unix socket.
//!
//! Each call has two minutes, and is made again up to three times where the driver was busy or did not answer. Secrets
//! are part of requests alone: where a driver repeats them in an error, they are taken out.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_api::csi_volume::{AccessMode, AttachmentMode, MOST_SNAPSHOTS, VolumeSnapshot};
use drover_csi as csi;
use drover_csi::controller_client::ControllerClient;
use drover_csi::identity_client::IdentityClient;
use drover_csi::node_client::NodeClient;
use drover_csi::registration::registration_client::RegistrationClient;
use drover_csi::registration::{InfoRequest, PluginInfo};
use drover_csi::volume_capability::access_mode::Mode;
use drover_csi::volume_capability::{AccessMode as Access, AccessType, BlockVolume, MountVolume};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::plugin::{
    Attachment, ErrorKind, Grown, How, KnownVolume, MadeVolume, NewVolume, Plugin, PluginError, PluginFacts, VolumeUse,
};

/// How long a call may take.
const TIMEOUT: Duration = Duration::from_mins(2);
/// How long a driver has for saying that it works.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// So often a call is made again.
const TRIES: u32 = 3;
/// The pause before the first time, doubled each time.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a call did not work.
#[derive(Debug)]
pub(crate) enum CallFailure {
    /// The same call may work a moment later.
    Temporary(PluginError),
    /// It will not.
    ForGood(PluginError),
}

/// How often a call was made again.
#[derive(Debug, Default)]
pub(crate) struct Tries(u32);

impl Tries {
    /// Waits until a call that did not work is to be made again.
    ///
    /// # Errors
    /// It is not to be made again.
    pub(crate) async fn again(&mut self, failure: CallFailure) -> Result<(), PluginError> {
        match failure {
            CallFailure::Temporary(error) if self.0 < TRIES => {
                tracing::debug!(error = %error, tries = self.0, "a call of a driver is made again");
                tokio::time::sleep(PAUSE * 2_u32.pow(self.0)).await;
                self.0 += 1;
                Ok(())
            }
            CallFailure::Temporary(error) | CallFailure::ForGood(error) => Err(error),
        }
    }
}

/// A driver's socket. Each call has a connection of its own: a driver may have been restarted since the last one.
#[derive(Clone, Debug)]
pub(crate) struct SocketPlugin {
    socket: PathBuf,
    /// Which halves it has.
    halves: Halves,
}

/// The halves of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Halves {
    pub(crate) controller: bool,
    pub(crate) node: bool,
}

impl SocketPlugin {
    /// The driver that listens there.
    pub(crate) fn new(socket: PathBuf, halves: Halves) -> Self {
        Self { socket, halves }
    }

    async fn connect(&self) -> Result<Channel, PluginError> {
        let socket = self.socket.clone();
        let connector = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(&socket).await.map(TokioIo::new) }
        });
        // The name is asked for and means nothing on a Unix socket.
        let connected = Endpoint::from_static("http://csi.sock").connect_with_connector(connector).await;
        connected.map_err(|error| unavailable(&self.socket, &error))
    }

    /// Makes a call without secrets until it is answered for good.
    async fn call<T, F>(&self, timeout: Duration, call: impl Fn(Channel) -> F + Send + Sync) -> Result<T, PluginError>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>> + Send,
    {
        self.call_with(Vec::new(), timeout, call).await
    }

    /// Makes a call until it is answered for good. No error of it holds what is confidential.
    async fn call_with<T, F>(
        &self,
        confidential: Vec<String>,
        timeout: Duration,
        call: impl Fn(Channel) -> F + Send + Sync,
    ) -> Result<T, PluginError>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>> + Send,
    {
        let mut tries = Tries::default();
        loop {
            let made = async { Ok::<_, PluginError>(call(self.connect().await?).await) };
            let failure = match tokio::time::timeout(timeout, made).await {
                Ok(Ok(Ok(answer))) => return Ok(answer.into_inner()),
                Ok(Ok(Err(status))) => failure(&status, &confidential),
                Ok(Err(error)) => CallFailure::Temporary(error),
                Err(_) => {
                    let reason = format!("the driver has not answered within {timeout:?}");
                    CallFailure::Temporary(PluginError { reason, kind: ErrorKind::Retryable })
                }
            };
            tries.again(failure).await?;
        }
    }

    /// What is registered with the kubelet at this socket. Whether the kubelet takes it is not known here.
    pub(super) async fn registered(&self) -> Result<PluginInfo, PluginError> {
        self.call(
            PROBE_TIMEOUT,
            |channel| async move { RegistrationClient::new(channel).get_info(InfoRequest {}).await },
        )
        .await
    }

    async fn facts(&self) -> Result<PluginFacts, PluginError> {
        let probed = self.call(PROBE_TIMEOUT, |channel| async move {
            IdentityClient::new(channel).probe(csi::ProbeRequest {}).await
        });
        if probed.await?.ready == Some(false) {
            return Err(PluginError {
                reason: "the driver says that it is not ready".to_owned(),
                kind: ErrorKind::Retryable,
            });
        }
        let info = self.call(PROBE_TIMEOUT, |channel| async move {
            IdentityClient::new(channel).get_plugin_info(csi::GetPluginInfoRequest {}).await
        });
        let info = info.await?;
        let capable = self.call(PROBE_TIMEOUT, |channel| async move {
            IdentityClient::new(channel).get_plugin_capabilities(csi::GetPluginCapabilitiesRequest {}).await
        });
        let services = capable.await?.capabilities.into_iter().filter_map(|one| match one.r#type {
            Some(csi::plugin_capability::Type::Service(service)) => Some(service.r#type()),
            Some(csi::plugin_capability::Type::VolumeExpansion(_)) | None => None,
        });
        let needs_controller =
            services.into_iter().any(|service| service == csi::plugin_capability::service::Type::ControllerService);
        let mut facts = PluginFacts {
            provider: info.name,
            version: info.vendor_version,
            needs_controller,
            ..PluginFacts::default()
        };
        if self.halves.controller && needs_controller {
            facts.controller = self.controller_capabilities().await?;
        }
        if self.halves.node {
            self.add_node_facts(&mut facts).await?;
        }
        Ok(facts)
    }

    async fn controller_capabilities(&self) -> Result<Vec<String>, PluginError> {
        let asked = self.call(PROBE_TIMEOUT, |channel| async move {
            ControllerClient::new(channel).controller_get_capabilities(csi::ControllerGetCapabilitiesRequest {}).await
        });
        let name = |one: csi::ControllerServiceCapability| {
            one.r#type.map(|csi::controller_service_capability::Type::Rpc(rpc)| rpc.r#type().as_str_name().to_owned())
        };
        Ok(asked.await?.capabilities.into_iter().filter_map(name).collect())
    }

    async fn add_node_facts(&self, facts: &mut PluginFacts) -> Result<(), PluginError> {
        let asked = self.call(PROBE_TIMEOUT, |channel| async move {
            NodeClient::new(channel).node_get_capabilities(csi::NodeGetCapabilitiesRequest {}).await
        });
        let name = |one: csi::NodeServiceCapability| {
            one.r#type.map(|csi::node_service_capability::Type::Rpc(rpc)| rpc.r#type().as_str_name().to_owned())
        };
        facts.node = asked.await?.capabilities.into_iter().filter_map(name).collect();
        let info = self.call(PROBE_TIMEOUT, |channel| async move {
            NodeClient::new(channel).node_get_info(csi::NodeGetInfoRequest {}).await
        });
        let info = info.await?;
        facts.node_id = info.node_id;
        facts.max_volumes = info.max_volumes_per_node;
        facts.topology = info.accessible_topology.map(|place| place.segments.into_iter().collect()).unwrap_or_default();
        Ok(())
    }
}

impl Plugin for SocketPlugin {
    fn probe(&self) -> BoxFuture<'_, Result<PluginFacts, PluginError>> {
        self.facts().boxed()
    }

    fn stage<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        let request = csi::NodeStageVolumeRequest {
            volume_id: volume.external_id.clone(),
            publish_context: map(&volume.publish_context),
            staging_target_path: text(&volume.staging),
            volume_capability: Some(capability(&volume.how)),
            secrets: map(&volume.secrets),
            volume_context: map(&volume.context),
        };
        let call = self.call_with(volume.confidential(), TIMEOUT, move |channel| {
            let request = request.clone();
            async move { NodeClient::new(channel).node_stage_volume(request).await }
        });
        async move { call.await.map(drop) }.boxed()
    }

    fn unstage<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        let request = csi::NodeUnstageVolumeRequest {
            volume_id: volume.external_id.clone(),
            staging_target_path: text(&volume.staging),
        };
        let call = self.call(TIMEOUT, move |channel| {
            let request = request.clone();
            async move { NodeClient::new(channel).node_unstage_volume(request).await }
        });
        async move { call.await.map(drop) }.boxed()
    }

    fn publish<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        let request = csi::NodePublishVolumeRequest {
            volume_id: volume.external_id.clone(),
            publish_context: map(&volume.publish_context),
            staging_target_path: text(&volume.staging),
            target_path: text(&volume.target),
            volume_capability: Some(capability(&volume.how)),
            readonly: volume.how.is_read_only,
            secrets: map(&volume.secrets),
            volume_context: map(&volume.context),
        };
        let call = self.call_with(volume.confidential(), TIMEOUT, move |channel| {
            let request = request.clone();
            async move { NodeClient::new(channel).node_publish_volume(request).await }
        });
        async move { call.await.map(drop) }.boxed()
    }

    fn unpublish<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        let request = csi::NodeUnpublishVolumeRequest {
            volume_id: volume.external_id.clone(),
            target_path: text(&volume.target),
        };
        let call = self.call(TIMEOUT, move |channel| {
            let request = request.clone();
            async move { NodeClient::new(channel).node_unpublish_volume(request).await }
        });
        async move { call.await.map(drop) }.boxed()
    }

    fn attach<'a>(&'a self, to: &'a Attachment) -> BoxFuture<'a, Result<BTreeMap<String, String>, PluginError>> {
        let request = csi::ControllerPublishVolumeRequest {
            volume_id: to.volume.external_id.clone(),
            node_id: to.node_id.clone(),
            volume_capability: Some(capability(&to.volume.how)),
            readonly: to.volume.how.is_read_only,
            secrets: map(&to.volume.secrets),
            volume_context: map(&to.volume.context),
        };
        let call = self.call_with(to.volume.confidential(), TIMEOUT, move |channel| {
            let request = request.clone();
            async move { ControllerClient::new(channel).controller_publish_volume(request).await }
        });
        async move { call.await.map(|answer| answer.publish_context.into_iter().collect()) }.boxed()
    }

    fn detach<'a>(&'a self, from: &'a Attachment) -> BoxFuture<'a, Result<(), PluginError>> {
        let request = csi::ControllerUnpublishVolumeRequest {
            volume_id: from.volume.external_id.clone(),
            node_id: from.node_id.clone(),
            secrets: map(&from.volume.secrets),
        };
        let call = self.call_with(from.volume.confidential(), TIMEOUT, move |channel| {
            let request = request.clone();
            async move { ControllerClient::new(channel).controller_unpublish_volume(request).await }
        });
        async move { call.await.map(drop) }.boxed()
    }

    fn create<'a>(&'a self, volume: &'a NewVolume) -> BoxFuture<'a, Result<MadeVolume, PluginError>> {
        let places = |all: &[BTreeMap<String, String>]| -> Vec<csi::Topology> {
            all.iter().map(|segments| csi::Topology { segments: map(segments) }).collect()
        };
        let has_places = !volume.required.is_empty() || !volume.preferred.is_empty();
        let places =
            csi::TopologyRequirement { requisite: places(&volume.required), preferred: places(&volume.preferred) };
        let (required_bytes, limit_bytes) = (volume.required_bytes, volume.limit_bytes);
        let has_size = required_bytes > 0 || limit_bytes > 0;
        let request = csi::CreateVolumeRequest {
            name: volume.name.clone(),
            capacity_range: has_size.then_some(csi::CapacityRange { required_bytes, limit_bytes }),
            volume_capabilities: volume.capabilities.iter().map(capability).collect(),
            parameters: map(&volume.parameters),
            secrets: map(&volume.secrets),
            volume_content_source: content(volume),
            accessibility_requirements: has_places.then_some(places),
            mutable_parameters: HashMap::new(),
        };
        let call = self.call_with(volume.confidential(), TIMEOUT, move |channel| {
            let request = request.clone();
            async move { ControllerClient::new(channel).create_volume(request).await }
        });
        async move {
            let made = call.await?.volume.ok_or_else(|| PluginError {
                reason: "the driver has answered without a volume".to_owned(),
                kind: ErrorKind::Final,
            })?;
            Ok(MadeVolume {
                external_id: made.volume_id,
                context: made.volume_context.into_iter().collect(),
                capacity_bytes: made.capacity_bytes,
                topologies: made.accessible_topology.into_iter().map(|it| it.segments.into_iter().collect()).collect(),
            })
        }
        .boxed()
    }

    fn validate<'a>(&'a self, volume: &'a KnownVolume) -> BoxFuture<'a, Result<(), PluginError>> {
        let request = csi::ValidateVolumeCapabilitiesRequest {
            volume_id: volume.external_id.clone(),
            volume_context: map(&volume.context),
            volume_capabilities: volume.capabilities.iter().map(capability).collect(),
            parameters: map(&volume.parameters),
            secrets: map(&volume.secrets),
            mutable_parameters: HashMap::new(),
        };
        let call = self.call_with(volume.confidential(), TIMEOUT, move |channel| {
            let request = request.clone();
            async move { ControllerClient::new(channel).validate_volume_capabilities(request).await }
        });
        async move {
            let answer = call.await?;
            if answer.confirmed.is_some() {
                return Ok(());
            }
            let why = if answer.message.is_empty() { "it says no more" } else { &answer.message };
            let reason = format!("the driver does not confirm these capabilities: {why}");
            Err(PluginError { reason, kind: ErrorKind::Final }.without(&volume.confidential()))
        }
        .boxed()
    }

    fn delete<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        let request = csi::DeleteVolumeRequest { volume_id: volume.external_id.clone(), secrets: map(&volume.secrets) };
        let call = self.call_with(volume.confidential(), TIMEOUT, move |channel| {
            let request = request.clone();
            async move { ControllerClient::new(channel).delete_volume(request).await }
        });
        async move { call.await.map(drop) }.boxed()
    }

    fn expand<'a>(&'a self, volume: &'a VolumeUse, to: (i64, i64)) -> BoxFuture<'a, Result<Grown, PluginError>> {
        let request = csi::ControllerExpandVolumeRequest {
            volume_id: volume.external_id.clone(),
            capacity_range: Some(csi::CapacityRange { required_bytes: to.0, limit_bytes: to.1 }),
            secrets: map(&volume.secrets),
            volume_capability: None,
        };
        let call = self.call_with(volume.confidential(), TIMEOUT, move |channel| {
            let request = request.clone();
            async move { ControllerClient::new(channel).controller_expand_volume(request).await }
        });
        let grown = |answer: csi::ControllerExpandVolumeResponse| Grown {
            capacity_bytes: answer.capacity_bytes,
            needs_nodes: answer.node_expansion_required,
        };
        async move { call.await.map(grown) }.boxed()
    }

    fn take_snapshot<'a>(
        &'a self,
        volume: &'a VolumeUse,
        name: &'a str,
    ) -> BoxFuture<'a, Result<VolumeSnapshot, PluginError>> {
        let request = csi::CreateSnapshotRequest {
            source_volume_id: volume.external_id.clone(),
            name: name.to_owned(),
            secrets: map(&volume.secrets),
            parameters: HashMap::new(),
            accessibility_requirements: None,
        };
        let call = self.call_with(volume.confidential(), TIMEOUT, move |channel| {
            let request = request.clone();
            async move { ControllerClient::new(channel).create_snapshot(request).await }
        });
        async move {
            call.await?.snapshot.map(snapshot).ok_or_else(|| PluginError {
                reason: "the driver has answered without a snapshot".to_owned(),
                kind: ErrorKind::Final,
            })
        }
        .boxed()
    }

    fn delete_snapshot<'a>(&'a self, volume: &'a VolumeUse, id: &'a str) -> BoxFuture<'a, Result<(), PluginError>> {
        let request = csi::DeleteSnapshotRequest { snapshot_id: id.to_owned(), secrets: map(&volume.secrets) };
        let call = self.call_with(volume.confidential(), TIMEOUT, move |channel| {
            let request = request.clone();
            async move { ControllerClient::new(channel).delete_snapshot(request).await }
        });
        async move { call.await.map(drop) }.boxed()
    }

    fn list_snapshots<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<Vec<VolumeSnapshot>, PluginError>> {
        async move {
            let (mut found, mut starting_token) = (Vec::new(), String::new());
            loop {
                let most = MOST_SNAPSHOTS - found.len();
                let request = csi::ListSnapshotsRequest {
                    max_entries: i32::try_from(most).unwrap_or(i32::MAX),
                    starting_token,
                    source_volume_id: volume.external_id.clone(),
                    snapshot_id: String::new(),
                    secrets: map(&volume.secrets),
                };
                let call = self.call_with(volume.confidential(), TIMEOUT, move |channel| {
                    let request = request.clone();
                    async move { ControllerClient::new(channel).list_snapshots(request).await }
                });
                let page = call.await?;
                // A driver that gives more than it was asked for, or a page without a snapshot on it, is not asked for
                // ever.
                let before = found.len();
                found.extend(page.entries.into_iter().filter_map(|entry| entry.snapshot).map(snapshot).take(most));
                let has_nothing = found.len() == before;
                if page.next_token.is_empty() || has_nothing || found.len() == MOST_SNAPSHOTS {
                    return Ok(found);
                }
                starting_token = page.next_token;
            }
        }
        .boxed()
    }

    fn expand_mount<'a>(&'a self, volume: &'a VolumeUse, to: (i64, i64)) -> BoxFuture<'a, Result<(), PluginError>> {
        let request = csi::NodeExpandVolumeRequest {
            volume_id: volume.external_id.clone(),
            volume_path: text(&volume.target),
            capacity_range: Some(csi::CapacityRange { required_bytes: to.0, limit_bytes: to.1 }),
            staging_target_path: text(&volume.staging),
            volume_capability: Some(capability(&volume.how)),
            secrets: map(&volume.secrets),
        };
        let call = self.call_with(volume.confidential(), TIMEOUT, move |channel| {
            let request = request.clone();
            async move { NodeClient::new(channel).node_expand_volume(request).await }
        });
        async move { call.await.map(drop) }.boxed()
    }
}

/// What a new volume begins as a copy of.
fn content(volume: &NewVolume) -> Option<csi::VolumeContentSource> {
    use csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
    let of_volume = volume.clone_of.clone().map(|volume_id| Type::Volume(VolumeSource { volume_id }));
    let of_snapshot = || volume.snapshot.clone().map(|snapshot_id| Type::Snapshot(SnapshotSource { snapshot_id }));
    of_volume.or_else(of_snapshot).map(|source| csi::VolumeContentSource { r#type: Some(source) })
}

fn snapshot(told: csi::Snapshot) -> VolumeSnapshot {
    let at = told.creation_time.and_then(|at| Timestamp::new(at.seconds, at.nanos).ok());
    VolumeSnapshot {
        id: told.snapshot_id,
        name: String::new(),
        created_at: at,
        size_bytes: (told.size_bytes > 0).then_some(told.size_bytes),
        ready_to_use: told.ready_to_use,
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn map(of: &BTreeMap<String, String>) -> HashMap<String, String> {
    of.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// How a volume is used, in CSI's words.
fn capability(how: &How) -> csi::VolumeCapability {
    let mode = match how.access_mode {
        Some(AccessMode::SingleNodeReaderOnly) => Mode::SingleNodeReaderOnly,
        Some(AccessMode::MultiNodeReaderOnly) => Mode::MultiNodeReaderOnly,
        Some(AccessMode::MultiNodeSingleWriter) => Mode::MultiNodeSingleWriter,
        Some(AccessMode::MultiNodeMultiWriter) => Mode::MultiNodeMultiWriter,
        Some(AccessMode::SingleNodeWriter) | None => Mode::SingleNodeWriter,
    };
    let access_type = match how.attachment_mode {
        AttachmentMode::BlockDevice => AccessType::Block(BlockVolume {}),
        AttachmentMode::FileSystem => AccessType::Mount(MountVolume {
            fs_type: how.fs_type.clone(),
            mount_flags: how.mount_flags.clone(),
            volume_mount_group: String::new(),
        }),
    };
    csi::VolumeCapability { access_mode: Some(Access { mode: mode.into() }), access_type: Some(access_type) }
}

fn unavailable(socket: &Path, error: &dyn std::error::Error) -> PluginError {
    let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    let reason = format!("the driver's socket {} cannot be reached: {cause}", socket.display());
    PluginError { reason, kind: ErrorKind::Unreachable }
}

/// Why a call did not work. Of a connection that broke, as when a driver is killed, `tonic` says `Unknown`, `Cancelled`
/// or `Internal`, with what broke it as the source. It is no answer of the driver.
fn failure(status: &Status, confidential: &[String]) -> CallFailure {
    if std::error::Error::source(status).is_some() {
        let reason = format!("the connection to the driver broke: {}", status.message());
        let error = PluginError { reason, kind: ErrorKind::Unreachable };
        return CallFailure::Temporary(error.without(confidential));
    }
    let error = told(status).without(confidential);
    if is_temporary(status.code()) { CallFailure::Temporary(error) } else { CallFailure::ForGood(error) }
}

/// Whether the same call may work a moment later.
fn is_temporary(code: Code) -> bool {
    matches!(code, Code::DeadlineExceeded | Code::Unavailable | Code::ResourceExhausted)
}

/// What an answer means. A volume that is attached elsewhere (`FailedPrecondition`) or worked on (`Aborted`) may be
/// free later.
fn told(status: &Status) -> PluginError {
    let kind = match status.code() {
        Code::NotFound => ErrorKind::NotFound,
        Code::FailedPrecondition | Code::Aborted => ErrorKind::Retryable,
        code if is_temporary(code) => ErrorKind::Retryable,
        _ => ErrorKind::Final,
    };
    PluginError { reason: format!("{:?}: {}", status.code(), status.message()), kind }
}
