//! What the provider is asked for before a volume can be used: to make it, to confirm it, to make it larger.

use drover_api::csi_volume::{CSIVolumeSpec, CSIVolumeStatus};

use super::expand::Expand;
use super::plugin::{Capability, Plugin};
use super::quantity::bytes;

/// Whether the provider has to make the volume before it can be used: the spec does not say which of the provider's
/// volumes it is, and the plugin can make some. (With a plugin that cannot, drover's own id is the provider's.)
pub fn is_to_be_made(spec: &CSIVolumeSpec, status: &CSIVolumeStatus, plugin: Option<&Plugin>) -> bool {
    let can_make =
        |plugin: &Plugin| plugin.is_controller_required() && plugin.can(Capability::CreateDelete) == Some(true);
    let is_nameless = spec.external_id.is_empty() && status.external_id.is_empty() && status.claims.is_empty();
    is_nameless && plugin.is_some_and(can_make)
}

/// What a volume that has no provider's id names at its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nameless {
    /// Nothing: it is still to be made, or it is not known yet whether it is.
    Nothing,
    /// What has drover's own id there.
    OwnId,
}

impl Nameless {
    /// With this plugin.
    pub fn with(plugin: Option<&Plugin>) -> Self {
        let makes_none = |plugin: &Plugin| {
            let can_make = plugin.is_controller_required() && plugin.can(Capability::CreateDelete) != Some(false);
            !plugin.is_of_cluster() && !can_make
        };
        if plugin.is_some_and(makes_none) { Self::OwnId } else { Self::Nothing }
    }
}

/// Why drover does not delete a volume's data at its provider, if it does not: it has not made it there.
///
/// # Errors
/// What a person can do instead.
pub fn may_delete_data(spec: &CSIVolumeSpec, status: &CSIVolumeStatus) -> Result<(), String> {
    if !status.created_by_drover {
        return Err(
            "drover has not made this volume at its provider (status.createdByDrover is not set), it was registered"
                .to_owned(),
        );
    }
    if status.external_id.is_empty() {
        return Err(format!(
            "the provider has not confirmed that it made the volume {}, as drover named it there",
            status.provider_name
        ));
    }
    if !spec.external_id.is_empty() && spec.external_id != status.external_id {
        return Err("spec.externalID names another volume than the one that drover has made".to_owned());
    }
    Ok(())
}

/// Whether the plugin is asked whether the provider's volume can be used as the spec says: its controller has not
/// confirmed this generation. (Without a controller of drover's there is none to ask.)
pub fn is_to_be_validated(
    spec: &CSIVolumeSpec,
    status: &CSIVolumeStatus,
    generation: i64,
    plugin: Option<&Plugin>,
) -> bool {
    let is_known = !is_to_be_made(spec, status, plugin);
    is_known && status.validated_generation != generation && plugin.is_some_and(Plugin::needs_controller)
}

/// Whether the volume would have to be made, and its plugin is a driver of the cluster, which makes volumes for the
/// cluster's own claims alone. (drover's own id is no provider's.)
pub(super) fn is_for_others_to_make(spec: &CSIVolumeSpec, status: &CSIVolumeStatus, plugin: Option<&Plugin>) -> bool {
    let is_nameless = spec.external_id.is_empty() && status.external_id.is_empty() && status.claims.is_empty();
    is_nameless && plugin.is_some_and(Plugin::is_of_cluster)
}

/// How much larger the provider has to make the volume, if it can.
pub fn is_to_grow(spec: &CSIVolumeSpec, status: &CSIVolumeStatus, plugin: Option<&Plugin>) -> Option<Expand> {
    let range = spec.capacity.as_ref()?;
    let (required, limit, current) = (bytes(&range.min)?, bytes(&range.max)?, bytes(&status.capacity)?);
    let can = plugin.and_then(|plugin| plugin.can(Capability::Expand)) == Some(true);
    (can && current > 0 && required > current).then_some(Expand { required, limit: (limit > 0).then_some(limit) })
}
