//! Waits until an allocation may mount a volume: the controller takes the claim and has the volume attached, the agent
//! looks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::CSIVolume;
use drover_api::csi_volume::{AttachState, CSIVolumeStatus, Claim, ClaimMode, ClaimState, MountOptions};
use drover_api::volume_request::VolumeRequest;
use drover_core::ids::ObjectKey;
use drover_core::volume::{access, release};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::plugin::How;

/// How long an allocation waits for a volume.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// What an allocation may mount now.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    /// Namespace of the volume's object.
    pub(super) namespace: String,
    /// Name of the volume's object.
    pub(super) object: String,
    /// The volume's id.
    pub(super) volume_id: String,
    pub(super) plugin: String,
    pub(super) external_id: String,
    pub(super) context: BTreeMap<String, String>,
    /// Sealed, where this node has a key.
    pub(super) publish_context: BTreeMap<String, String>,
    pub(super) how: How,
    /// Whether its flags are the volume's own, in which keys of the Secret stand, and not the job's.
    pub(super) takes_own_flags: bool,
    /// The Secret with the credentials.
    pub(super) secret: Option<String>,
}

/// What a look at a volume means to one that waits for it.
enum Look {
    Granted(Box<Granted>),
    /// It is not free, or not attached.
    Wait,
    Refused(String),
}

/// Waits until the allocation of this uid may mount what it requests.
pub(super) async fn wait(
    mut volumes: BoxStream<'static, Option<Arc<CSIVolume>>>,
    uid: &str,
    volume_id: &str,
    request: &VolumeRequest,
) -> Result<Granted, String> {
    let granted = async {
        while let Some(seen) = volumes.next().await {
            let Some(volume) = seen else {
                return Err(format!("volume {volume_id} does not exist; create a CSIVolume with this id"));
            };
            match look(&volume, uid, volume_id, request) {
                Look::Granted(granted) => return Ok(*granted),
                Look::Refused(reason) => return Err(reason),
                Look::Wait => tracing::debug!(allocation = uid, volume = volume_id, "waiting for a volume"),
            }
        }
        Err(format!("volume {volume_id} cannot be watched any more"))
    };
    let in_time = tokio::time::timeout(LONGEST_WAIT, granted).await;
    in_time.unwrap_or_else(|_| Err(format!("volume {volume_id} was not free within {LONGEST_WAIT:?}")))
}

fn look(volume: &CSIVolume, uid: &str, volume_id: &str, request: &VolumeRequest) -> Look {
    let Some(status) = &volume.status else { return Look::Wait };
    let Some(claim) = status.claims.iter().find(|claim| claim.alloc_id == uid) else {
        return unclaimed(volume, status, volume_id, request);
    };
    match (claim.state, claim.attach) {
        (ClaimState::Taken, AttachState::Attached) => {
            Look::Granted(Box::new(granted(volume, status, claim, volume_id, request)))
        }
        (ClaimState::Taken, AttachState::Pending) => Look::Wait,
        (ClaimState::Taken, AttachState::Failed) => {
            Look::Refused(format!("volume {volume_id} cannot be attached to this node: {}", claim.error))
        }
        (
            ClaimState::Unpublishing
            | ClaimState::NodeDetached
            | ClaimState::ControllerDetached
            | ClaimState::ReadyToFree,
            _,
        ) => Look::Refused(format!("the claim on volume {volume_id} is being released")),
    }
}

/// Whether it is worth waiting for a claim that is not taken.
fn unclaimed(volume: &CSIVolume, status: &CSIVolumeStatus, volume_id: &str, request: &VolumeRequest) -> Look {
    // Before the controller's first look its status says nothing.
    if status.observed_generation < 0 {
        return Look::Wait;
    }
    let wanted = request.attachment_mode.unwrap_or_default();
    if let Some(current) = status.attachment_mode.filter(|current| *current != wanted) {
        return Look::Refused(format!(
            "attachment mode cannot change while claimed: volume {volume_id} is used as {current}, and {wanted} is asked for; stop its users first"
        ));
    }
    let is_schedulable = if request.read_only {
        access::is_read_schedulable(status)
    } else {
        access::is_write_schedulable(&volume.spec, status)
    };
    if is_schedulable {
        return Look::Wait;
    }
    let mode = if request.read_only { ClaimMode::Read } else { ClaimMode::Write };
    Look::Refused(format!(
        "volume {volume_id} is unschedulable for {mode} claims; its conditions say why (kubectl describe csivol)"
    ))
}

fn granted(
    volume: &CSIVolume,
    status: &CSIVolumeStatus,
    claim: &Claim,
    volume_id: &str,
    request: &VolumeRequest,
) -> Granted {
    let namespace = volume.metadata.namespace.clone().unwrap_or_default();
    let key = ObjectKey::new(namespace.as_str(), volume_id);
    let mut context = volume.spec.context.clone();
    context.extend(status.context.clone());
    let options = merged(volume.spec.mount_options.as_ref(), request.mount_options.as_ref());
    let takes_own = request.mount_options.as_ref().is_none_or(|options| options.mount_flags.is_empty());
    Granted {
        volume_id: volume_id.to_owned(),
        plugin: volume.spec.plugin_id.clone(),
        external_id: release::external_id(&key, &volume.spec, status).to_owned(),
        context,
        publish_context: claim.publish_context.clone(),
        how: How {
            is_read_only: request.read_only,
            access_mode: claim.access_mode,
            attachment_mode: claim.attachment_mode.unwrap_or_default(),
            fs_type: options.fs_type,
            mount_flags: options.mount_flags,
        },
        takes_own_flags: takes_own,
        object: volume.metadata.name.clone().unwrap_or_default(),
        secret: volume.spec.secrets_ref.as_ref().map(|secret| secret.name.clone()),
        namespace,
    }
}

/// The volume's options, overridden field by field by the request's.
fn merged(volume: Option<&MountOptions>, request: Option<&MountOptions>) -> MountOptions {
    let (volume, request) = (volume.cloned().unwrap_or_default(), request.cloned().unwrap_or_default());
    MountOptions {
        fs_type: if request.fs_type.is_empty() { volume.fs_type } else { request.fs_type },
        mount_flags: if request.mount_flags.is_empty() { volume.mount_flags } else { request.mount_flags },
    }
}
