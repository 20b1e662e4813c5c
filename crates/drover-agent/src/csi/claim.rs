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
use tokio::time::Instant;

use super::plugin::How;

/// How long an allocation waits for a volume.
const LONGEST_WAIT: Duration = Duration::from_hours(24);
/// How long a volume waits for its plugin, over all the lives that the plugin has meanwhile; as long as an allocation
/// has for becoming healthy where its job says nothing.
pub(super) const PLUGIN_WAIT: Duration = Duration::from_mins(5);

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
    /// Its plugin is not well, and need not stay so.
    WaitForPlugin,
    Refused(String),
}

/// Waits until the allocation of this uid may mount what it requests.
pub(super) async fn wait(
    mut volumes: BoxStream<'static, Option<Arc<CSIVolume>>>,
    uid: &str,
    volume_id: &str,
    request: &VolumeRequest,
) -> Result<Granted, String> {
    let latest = Instant::now() + LONGEST_WAIT;
    let mut plugin_until: Option<Instant> = None;
    loop {
        let Ok(next) = tokio::time::timeout_at(plugin_until.unwrap_or(latest).min(latest), volumes.next()).await else {
            return Err(match plugin_until {
                Some(_) => unschedulable(volume_id, request),
                None => format!("volume {volume_id} was not free within {LONGEST_WAIT:?}"),
            });
        };
        let Some(seen) = next else { return Err(format!("volume {volume_id} cannot be watched any more")) };
        let Some(volume) = seen else {
            return Err(format!("volume {volume_id} does not exist; create a CSIVolume with this id"));
        };
        match look(&volume, uid, volume_id, request) {
            Look::Granted(granted) => return Ok(*granted),
            Look::Refused(reason) => return Err(reason),
            Look::Wait => plugin_until = None,
            Look::WaitForPlugin => drop(plugin_until.get_or_insert_with(|| Instant::now() + PLUGIN_WAIT)),
        }
        tracing::debug!(allocation = uid, volume = volume_id, ?plugin_until, "waiting for a volume");
    }
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
    // It was placed when all was well, and a driver that has crashed since is back in a moment.
    if !status.schedulable {
        return Look::WaitForPlugin;
    }
    Look::Refused(unschedulable(volume_id, request))
}

fn unschedulable(volume_id: &str, request: &VolumeRequest) -> String {
    let mode = if request.read_only { ClaimMode::Read } else { ClaimMode::Write };
    format!("volume {volume_id} is unschedulable for {mode} claims; its conditions say why (kubectl describe csivol)")
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

#[cfg(test)]
mod tests {
    use drover_api::CSIVolumeSpec;
    use drover_api::csi_volume::{AccessMode, AttachmentMode, VolumeCapability};
    use drover_clock::{Clock as _, SystemClock};
    use serde_json::json;

    use super::*;

    /// What comes of waiting for a volume to write to that looks so, each look as long after the one before; and when.
    async fn waited(looks: Vec<(Duration, Option<Arc<CSIVolume>>)>) -> (Result<Granted, String>, Duration) {
        let request: VolumeRequest =
            serde_json::from_value(json!({ "name": "v", "type": "csi", "source": "v1" })).expect("a request");
        let looks = futures::stream::iter(looks).then(async |(after, seen)| {
            tokio::time::sleep(after).await;
            seen
        });
        let begun = Instant::now();
        (wait(looks.chain(futures::stream::pending()).boxed(), "a", "v1", &request).await, begun.elapsed())
    }

    fn volume(schedulable: bool, change: impl Fn(&mut CSIVolumeStatus)) -> Arc<CSIVolume> {
        let (access_mode, attachment_mode) = (AccessMode::SingleNodeWriter, AttachmentMode::FileSystem);
        let capability = VolumeCapability { access_mode, attachment_mode };
        let spec = CSIVolumeSpec { capabilities: vec![capability], ..CSIVolumeSpec::default() };
        let mut volume = CSIVolume::new("v1", spec);
        let mut status = CSIVolumeStatus { schedulable, observed_generation: 1, ..CSIVolumeStatus::default() };
        change(&mut status);
        volume.status = Some(status);
        Arc::new(volume)
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_dies_before_the_claim_is_taken_is_waited_for_as_before_a_mount() {
        let claimed = |status: &mut CSIVolumeStatus| {
            let claim = json!({ "allocID": "a", "mode": "write", "attach": "attached" });
            status.claims.push(serde_json::from_value(claim).expect("a claim"));
        };
        // It dies twice, and each time is back before it is given up.
        let dies = [
            (PLUGIN_WAIT, volume(false, |_| {})),
            (PLUGIN_WAIT / 2, volume(false, |status| status.nodes_expected = 1)),
            (PLUGIN_WAIT / 4, volume(true, |_| {})),
        ];
        let last = (PLUGIN_WAIT, volume(false, claimed));
        let looks =
            dies.iter().chain(&dies).chain([&last]).map(|(after, seen)| (*after, Some(Arc::clone(seen)))).collect();
        let (granted, after) = waited(looks).await;
        assert_eq!((granted.expect("granted").volume_id.as_str(), after), ("v1", PLUGIN_WAIT * 9 / 2));

        let (refused, after) = waited(vec![(Duration::ZERO, Some(volume(false, |_| {})))]).await;
        let refused = refused.expect_err("it has waited long enough");
        assert!(refused.contains("unschedulable for write claims") && after == PLUGIN_WAIT, "{after:?}: {refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn v_058_what_the_provider_told_of_the_volume_goes_before_its_manifest() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let mut made = volume(true, |status| {
            let claim = json!({ "allocID": "a", "mode": "write", "attach": "attached" });
            status.claims.push(serde_json::from_value(claim).expect("a claim"));
            status.context = map(&[("pool", "fast"), ("path", "/made")]);
        });
        Arc::make_mut(&mut made).spec.context = map(&[("path", "/wanted"), ("owner", "shop")]);
        let (granted, _) = waited(vec![(Duration::ZERO, Some(made))]).await;
        let wanted: BTreeMap<String, String> = map(&[("pool", "fast"), ("path", "/made"), ("owner", "shop")]);
        assert_eq!(granted.expect("granted").context, wanted);
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_driver_can_change_is_refused_at_once() {
        let exhausted = |status: &mut CSIVolumeStatus| status.resource_exhausted = Some(SystemClock.now());
        let is_read = |status: &mut CSIVolumeStatus| status.access_mode = Some(AccessMode::MultiNodeReaderOnly);
        for seen in [Some(volume(true, exhausted)), Some(volume(true, is_read)), None] {
            let (refused, after) = waited(vec![(Duration::ZERO, seen)]).await;
            refused.expect_err("refused");
            assert_eq!(after, Duration::ZERO);
        }
    }
}
