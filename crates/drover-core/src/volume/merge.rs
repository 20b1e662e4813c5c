//! What becomes of a volume that is registered again (`spec/volumes.md` 7.1).
//!
//! Input: the volume as it is stored and what is registered now. Output: the spec to store and whether the volume is to be made
//! larger, or everything that is wrong at once; the volume is then left as it is. No message shows mount flags: they may hold secrets.
//! Must never know where a registration comes from.

use std::collections::BTreeSet;

use drover_api::csi_volume::{CSIVolumeSpec, CSIVolumeStatus, CapacityRange, MountOptions};

use super::expand::Expand;
use super::plugin::{Capability, Plugin};
use super::quantity::bytes;
use crate::validate::{Found, Violation};

/// A volume with what was registered now.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// The spec to store.
    pub spec: CSIVolumeSpec,
    /// Whether a controller is asked to make it larger.
    pub expand: Option<Expand>,
}

/// Merges what is registered into a stored volume. O(both specs).
///
/// # Errors
/// Everything that is wrong.
pub fn merge(
    stored: &CSIVolumeSpec,
    status: &CSIVolumeStatus,
    update: &CSIVolumeSpec,
    plugin: Option<&Plugin>,
) -> Result<Merged, Vec<Violation>> {
    let mut found = Found::default();
    let mut spec = stored.clone();
    found.same_volume(stored, status, update, plugin);
    let is_other = !update.parameters.is_empty() && update.parameters != stored.parameters;
    let message = "take effect when the volume is made and cannot be changed; create another volume";
    found.when(is_other, "Parameters", format_args!("spec.parameters"), message);
    found.capabilities(status, update);
    spec.capabilities.clone_from(&update.capabilities);
    let is_other = !status.topologies.is_empty() && update.topology_request != stored.topology_request;
    let message = "cannot be added, removed or changed once the volume is somewhere; leave it as it was registered";
    found.when(is_other, "Topology", format_args!("spec.topologyRequest"), message);
    let is_other = !are_alike(stored.mount_options.as_ref(), update.mount_options.as_ref());
    let message = "cannot be changed while the volume is claimed; stop its users first, or leave them as they were";
    found.when(is_other && !status.claims.is_empty(), "MountOptions", format_args!("spec.mountOptions"), message);
    if is_other {
        spec.mount_options.clone_from(&update.mount_options);
    }
    spec.secrets_ref.clone_from(&update.secrets_ref);
    if !update.context.is_empty() {
        spec.context.clone_from(&update.context);
    }
    let expand = found.capacity(stored, status, update, plugin);
    if update.capacity.as_ref().is_some_and(|range| !is_unset(range)) {
        spec.capacity.clone_from(&update.capacity);
    }
    let violations = found.finish();
    if violations.is_empty() { Ok(Merged { spec, expand }) } else { Err(violations) }
}

fn is_unset(range: &CapacityRange) -> bool {
    [&range.min, &range.max].into_iter().all(|text| bytes(text) == Some(0))
}

/// Whether mount options mean the same: the order of flags does not count.
fn are_alike(one: Option<&MountOptions>, other: Option<&MountOptions>) -> bool {
    let parts = |options: Option<&MountOptions>| {
        let options = options.cloned().unwrap_or_default();
        (options.fs_type, options.mount_flags.into_iter().collect::<BTreeSet<_>>())
    };
    parts(one) == parts(other)
}

impl Found {
    /// What makes a volume this one.
    fn same_volume(
        &mut self,
        stored: &CSIVolumeSpec,
        status: &CSIVolumeStatus,
        update: &CSIVolumeSpec,
        plugin: Option<&Plugin>,
    ) {
        let external_id = if status.external_id.is_empty() { &stored.external_id } else { &status.external_id };
        for (field, before, after) in [
            ("name", &stored.name, &update.name),
            ("externalID", external_id, &update.external_id),
            ("cloneID", &stored.clone_id, &update.clone_id),
            ("snapshotID", &stored.snapshot_id, &update.snapshot_id),
        ] {
            let is_other = !after.is_empty() && after != before;
            let message =
                format_args!("is {before:?} and cannot become {after:?}; leave it out, or register another volume");
            self.when(is_other, "Identity", format_args!("spec.{field}"), message);
        }
        let (before, after) = (&stored.plugin_id, &update.plugin_id);
        let message = format_args!("is {before:?} and cannot become {after:?}; register another volume");
        self.when(before != after, "Identity", format_args!("spec.pluginID"), message);
        let provider = plugin.map_or("", |plugin| plugin.provider.as_str());
        let is_other = !provider.is_empty() && !status.provider.is_empty() && provider != status.provider;
        let message = format_args!(
            "is now served by {provider:?}, and the volume is of {:?}; run the plugin that made it under this id",
            status.provider
        );
        self.when(is_other, "Identity", format_args!("spec.pluginID"), message);
    }

    /// What a claimed volume is used as must stay among its capabilities.
    fn capabilities(&mut self, status: &CSIVolumeStatus, update: &CSIVolumeSpec) {
        let Some((access, attachment)) = status.access_mode.zip(status.attachment_mode) else { return };
        let has_current = update
            .capabilities
            .iter()
            .any(|offered| offered.access_mode == access && offered.attachment_mode == attachment);
        let message = format_args!(
            "lacks {access} with {attachment}, as which the volume is in use; add that pair, or stop its users first"
        );
        self.when(!has_current, "Capabilities", format_args!("spec.capabilities"), message);
    }

    /// A volume only grows.
    fn capacity(
        &mut self,
        stored: &CSIVolumeSpec,
        status: &CSIVolumeStatus,
        update: &CSIVolumeSpec,
        plugin: Option<&Plugin>,
    ) -> Option<Expand> {
        let range = update.capacity.as_ref().filter(|range| !is_unset(range))?;
        if stored.capacity.as_ref() == Some(range) {
            return None;
        }
        for (field, text) in [("min", &range.min), ("max", &range.max)] {
            let field = format_args!("spec.capacity.{field}");
            self.when(bytes(text).is_none(), "Capacity", field, "is no size; write it as 10Gi");
        }
        let (min, max) = (bytes(&range.min)?, bytes(&range.max)?);
        let current = bytes(&status.capacity).unwrap_or(0);
        let field = format_args!("spec.capacity.max");
        let message = format_args!("{} is below min {}; raise it, or leave it out", range.max, range.min);
        self.when(max > 0 && max < min, "Capacity", field, message);
        let message = format_args!(
            "{} is below the volume's size {}, and a volume never shrinks; raise it",
            range.max, status.capacity
        );
        self.when(max > 0 && max < current, "Capacity", field, message);
        if current == 0 || min <= current {
            return None;
        }
        let can_expand = plugin.and_then(|plugin| plugin.can(Capability::Expand)) == Some(true);
        let message = format_args!(
            "{} is above the volume's size {}, and no controller of plugin {} can make volumes larger; lower it",
            range.min, status.capacity, stored.plugin_id
        );
        self.when(!can_expand, "Capacity", format_args!("spec.capacity.min"), message);
        Some(Expand { required: min, limit: (max > 0).then_some(max) })
    }
}
