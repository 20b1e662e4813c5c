//! Carries out what the controller asks this node's plugins for, and says what came of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::client_node::{CsiAnswer, CsiCall, CsiRequest};
use drover_api::csi_volume::{Topology, VolumeCapability};
use drover_api::{CSIVolume, CSIVolumeSpec, message, names};
use drover_core::volume::mount_flags;
use drover_core::volume::quantity::bytes;
use drover_seal::ClaimId;

use super::plugin::{Attachment, ErrorKind, How, KnownVolume, NewVolume, Plugin, PluginError, VolumeUse, undone};
use super::shared::Csi;

/// How long a controller that is not up is waited for: then the leader may ask another one.
const CONTROLLER_WAIT: Duration = Duration::from_secs(5);

/// Carries out a request. It may have been carried out before.
pub(super) async fn answer(csi: &Csi, request: &CsiRequest) -> CsiAnswer {
    tracing::debug!(call = %request.call, plugin = request.plugin_id, volume = request.volume, alloc = request.alloc_id, "the controller asks a plugin");
    let asked = csi.find_plugin(&request.plugin_id, |info| info.controller);
    let mut done = carry_out(csi, request).await;
    if let (Some(asked), Err(error)) = (&asked, &done)
        && csi.is_disconnected(asked, error)
    {
        done = carry_out(csi, request).await;
    }
    match done {
        Ok(answer) => answer,
        Err(error) => {
            tracing::warn!(call = %request.call, plugin = request.plugin_id, volume = request.volume, error = %error, "a plugin did not do what it was asked for");
            CsiAnswer { retryable: error.is_retryable(), error: message::cut(error.reason), ..CsiAnswer::default() }
        }
    }
}

async fn carry_out(csi: &Csi, request: &CsiRequest) -> Result<CsiAnswer, PluginError> {
    let _turn =
        if request.call.takes_lock() { Some(csi.controller_lock(&request.plugin_id).lock_owned().await) } else { None };
    match request.call {
        CsiCall::NodeUnpublish => {
            let volume_id = volume_id(csi, request).await?;
            csi.unmount_stranger(&request.alloc_id, request, &volume_id).await.map_err(retryable)?;
            Ok(CsiAnswer::default())
        }
        CsiCall::ControllerPublish => {
            let to = attachment(csi, request).await?;
            let context = sealed(&controller(csi, request).await?.attach(&to).await?, request)?;
            Ok(CsiAnswer { context, ..CsiAnswer::default() })
        }
        CsiCall::ControllerUnpublish => {
            let from = attachment(csi, request).await?;
            undone(controller(csi, request).await?.detach(&from).await)?;
            Ok(CsiAnswer::default())
        }
        CsiCall::CreateVolume => {
            let made = controller(csi, request).await?.create(&new_volume(csi, request).await?).await?;
            let topology = |segments| Topology { segments };
            Ok(CsiAnswer {
                external_id: made.external_id,
                context: made.context,
                capacity_bytes: (made.capacity_bytes > 0).then_some(made.capacity_bytes),
                topologies: made.topologies.into_iter().map(topology).collect(),
                ..CsiAnswer::default()
            })
        }
        CsiCall::DeleteVolume => {
            let of = attachment(csi, request).await?;
            undone(controller(csi, request).await?.delete(&of.volume).await)?;
            Ok(CsiAnswer::default())
        }
        CsiCall::ControllerExpand => {
            let of = attachment(csi, request).await?;
            let to = (request.required_bytes.unwrap_or(0), request.limit_bytes.unwrap_or(0));
            let grown = controller(csi, request).await?.expand(&of.volume, to).await?;
            Ok(CsiAnswer {
                capacity_bytes: Some(grown.capacity_bytes),
                node_expansion_required: grown.needs_nodes,
                ..CsiAnswer::default()
            })
        }
        CsiCall::NodeExpand => {
            let object = present(csi, request).await?;
            let secrets = secrets(csi, request, &object.spec).await?;
            csi.expand_mount(request, object.spec.id_or(&request.volume), secrets).await?;
            Ok(CsiAnswer::default())
        }
        CsiCall::CreateSnapshot => {
            let of = attachment(csi, request).await?;
            let taken = controller(csi, request).await?.take_snapshot(&of.volume, &request.snapshot).await?;
            Ok(CsiAnswer { snapshots: vec![taken], ..CsiAnswer::default() })
        }
        CsiCall::DeleteSnapshot => {
            let of = attachment(csi, request).await?;
            undone(controller(csi, request).await?.delete_snapshot(&of.volume, &request.snapshot).await)?;
            Ok(CsiAnswer::default())
        }
        CsiCall::ListSnapshots => {
            let of = attachment(csi, request).await?;
            let snapshots = controller(csi, request).await?.list_snapshots(&of.volume).await?;
            Ok(CsiAnswer { snapshots, ..CsiAnswer::default() })
        }
        CsiCall::ValidateVolume => {
            controller(csi, request).await?.validate(&known_volume(csi, request).await?).await?;
            Ok(CsiAnswer::default())
        }
    }
}

/// The controller half of a plugin; one that is being restarted, or that this life of the agent has not found yet, is
/// waited for.
async fn controller(csi: &Csi, request: &CsiRequest) -> Result<Arc<dyn Plugin>, PluginError> {
    let found = csi.wait_for_half(&request.plugin_id, |info| info.controller, CONTROLLER_WAIT).await;
    let missing = || retryable(format!("the controller of plugin {} does not run on this node", request.plugin_id));
    found.map(|instance| instance.plugin).ok_or_else(missing)
}

/// A publish context as only the node reads it that is to mount.
fn sealed(context: &BTreeMap<String, String>, request: &CsiRequest) -> Result<BTreeMap<String, String>, PluginError> {
    let claim = ClaimId { namespace: &request.namespace, volume: &request.volume, alloc_id: &request.alloc_id };
    drover_seal::seal(context, &request.node_key, claim).map_err(|error| {
        let reason = format!("the publish context cannot be sealed to node {}: {error}", request.node_id);
        PluginError { reason, kind: ErrorKind::Final }
    })
}

fn retryable(reason: String) -> PluginError {
    PluginError { reason, kind: ErrorKind::Retryable }
}

/// The attachment that is asked for; what the request does not say stands in the volume's object.
async fn attachment(csi: &Csi, request: &CsiRequest) -> Result<Attachment, PluginError> {
    let object = stored(csi, request).await?;
    let spec = object.as_ref().map(|object| object.spec.clone()).unwrap_or_default();
    let status = object.and_then(|object| object.status).unwrap_or_default();
    let secrets = secrets(csi, request, &spec).await?;
    let options = spec.mount_options.unwrap_or_default();
    let mount_flags = filled(&options.mount_flags, &secrets)?;
    let mut context = spec.context;
    context.extend(status.context);
    Ok(Attachment {
        volume: VolumeUse {
            external_id: request.external_id.clone(),
            context,
            how: How {
                is_read_only: request.read_only,
                access_mode: request.access_mode,
                attachment_mode: request.attachment_mode.unwrap_or_default(),
                fs_type: options.fs_type,
                mount_flags,
            },
            secrets,
            ..VolumeUse::default()
        },
        node_id: request.node_id.clone(),
    })
}

/// The volume that is to be made, as its object says.
async fn new_volume(csi: &Csi, request: &CsiRequest) -> Result<NewVolume, PluginError> {
    let object = present(csi, request).await?;
    let spec = object.spec;
    let secrets = secrets(csi, request, &spec).await?;
    let capabilities = offered(&spec, &secrets)?;
    let range = spec.capacity.unwrap_or_default();
    let places = |all: Vec<Topology>| all.into_iter().map(|topology| topology.segments).collect();
    let topology = spec.topology_request.unwrap_or_default();
    let named = |id: String| (!id.is_empty()).then_some(id);
    // The provider keeps one volume for each name: the object's own, and no other object's of the same name later.
    let chosen = object.status.map(|status| status.provider_name).filter(|name| !name.is_empty());
    // A controller of the version before has not written down what it chose.
    let name = chosen.unwrap_or_else(|| names::provider_name(&spec.name, &object.metadata.uid.unwrap_or_default()));
    Ok(NewVolume {
        name,
        required_bytes: bytes(&range.min).unwrap_or(0),
        limit_bytes: bytes(&range.max).unwrap_or(0),
        capabilities,
        parameters: spec.parameters,
        secrets,
        clone_of: named(spec.clone_id),
        snapshot: named(spec.snapshot_id),
        required: places(topology.required),
        preferred: places(topology.preferred),
    })
}

/// The volume that is to be confirmed, as its object says.
async fn known_volume(csi: &Csi, request: &CsiRequest) -> Result<KnownVolume, PluginError> {
    let object = present(csi, request).await?;
    let spec = object.spec;
    let secrets = secrets(csi, request, &spec).await?;
    let capabilities = offered(&spec, &secrets)?;
    let mut context = spec.context;
    context.extend(object.status.unwrap_or_default().context);
    let external_id = request.external_id.clone();
    Ok(KnownVolume { external_id, context, capabilities, parameters: spec.parameters, secrets })
}

/// The object of the volume, if there is one.
async fn stored(csi: &Csi, request: &CsiRequest) -> Result<Option<CSIVolume>, PluginError> {
    let found = csi.0.objects.get(request.namespace.clone(), request.volume.clone()).await;
    found.map_err(|error| retryable(format!("volume {} cannot be read: {error}", request.volume)))
}

/// The object of a volume that must be there.
async fn present(csi: &Csi, request: &CsiRequest) -> Result<CSIVolume, PluginError> {
    let object = stored(csi, request).await?;
    object.ok_or_else(|| PluginError { reason: format!("volume {} is gone", request.volume), kind: ErrorKind::Final })
}

/// What the Secret that a volume names holds now.
async fn secrets(
    csi: &Csi,
    request: &CsiRequest,
    spec: &CSIVolumeSpec,
) -> Result<BTreeMap<String, String>, PluginError> {
    let Some(secret) = &spec.secrets_ref else { return Ok(BTreeMap::new()) };
    csi.0.objects.secret(request.namespace.clone(), secret.name.clone()).await.map_err(retryable)
}

/// A volume's flags with values from its Secret.
fn filled(flags: &[String], secrets: &BTreeMap<String, String>) -> Result<Vec<String>, PluginError> {
    mount_flags::filled(flags, secrets).map_err(|reason| PluginError { reason, kind: ErrorKind::Final })
}

/// The ways in which a volume may be used.
fn offered(spec: &CSIVolumeSpec, secrets: &BTreeMap<String, String>) -> Result<Vec<How>, PluginError> {
    let options = spec.mount_options.clone().unwrap_or_default();
    let mount_flags = filled(&options.mount_flags, secrets)?;
    let how = |offered: &VolumeCapability| How {
        access_mode: Some(offered.access_mode),
        attachment_mode: offered.attachment_mode,
        fs_type: options.fs_type.clone(),
        mount_flags: mount_flags.clone(),
        ..How::default()
    };
    Ok(spec.capabilities.iter().map(how).collect())
}

/// The id of the volume; that of its object where there is none any more.
async fn volume_id(csi: &Csi, request: &CsiRequest) -> Result<String, PluginError> {
    let object = stored(csi, request).await?;
    let id = object.map(|object| object.spec.id).filter(|id| !id.is_empty());
    Ok(id.unwrap_or_else(|| request.volume.clone()))
}
