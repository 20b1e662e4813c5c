//! What may be registered as a volume, and what is stored then (`spec/volumes.md` 1 and 7).
//!
//! Input: what is registered, the volume as it is stored, its plugin and the time. Output: what to store, whether the provider has to
//! make it first, or everything that is wrong at once. Must never know how a provider is called.

use drover_api::csi_volume::{CSIVolumeSpec, CSIVolumeStatus, VolumePhase};
use jiff::Timestamp;

use super::expand::Expand;
use super::merge::{Merged, merge};
use super::plugin::{Capability, Plugin, refreshed};
use super::shown::shown;
use crate::ids::ObjectKey;
use crate::validate::{Found, Violation};

/// A volume as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// Its spec.
    pub spec: &'a CSIVolumeSpec,
    /// Its status.
    pub status: &'a CSIVolumeStatus,
}

/// What is registered.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'a> {
    /// The volume, by its namespace and its id.
    pub volume: &'a ObjectKey,
    /// What is wanted of it.
    pub spec: &'a CSIVolumeSpec,
    /// Its plugin, where it is known.
    pub plugin: Option<&'a Plugin>,
}

/// What to store.
#[derive(Clone, Debug, PartialEq)]
pub struct Registered {
    /// The spec.
    pub spec: CSIVolumeSpec,
    /// The status.
    pub status: CSIVolumeStatus,
    /// Whether a controller is asked to make it larger.
    pub expand: Option<Expand>,
}

/// What follows on the wish for a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum Creation {
    /// The provider makes it.
    Call,
    /// It was made before: what is wanted is stored.
    Store(Box<Registered>),
}

/// Registers a volume that exists at its provider, or what is to change of a stored one.
///
/// # Errors
/// Everything that is wrong; a stored volume is then left as it is.
pub fn register(
    stored: Option<Stored<'_>>,
    wish: Registration<'_>,
    now: Timestamp,
) -> Result<Registered, Vec<Violation>> {
    let mut violations = violations(wish.volume, wish.spec);
    violations.extend(plugin_violations(wish));
    let merged = match stored {
        Some(stored) => merge(stored.spec, stored.status, wish.spec, wish.plugin),
        None => Ok(Merged { spec: wish.spec.clone(), expand: None }),
    };
    let merged = match merged {
        Ok(merged) if violations.is_empty() => merged,
        Ok(_) => return Err(violations),
        Err(others) => {
            violations.extend(others);
            return Err(violations);
        }
    };
    let status = stored.map_or_else(|| fresh(wish.spec), |stored| stored.status.clone());
    let status = CSIVolumeStatus { modified_at: Some(now), ..refreshed(&status, wish.plugin) };
    Ok(Registered { spec: merged.spec, status: shown(&status), expand: merged.expand })
}

/// Makes a volume, unless it was made before.
///
/// # Errors
/// Everything that is wrong.
pub fn create(stored: Option<Stored<'_>>, wish: Registration<'_>, now: Timestamp) -> Result<Creation, Vec<Violation>> {
    if stored.is_some() {
        return register(stored, wish, now).map(|registered| Creation::Store(Box::new(registered)));
    }
    let mut violations = violations(wish.volume, wish.spec);
    violations.extend(plugin_violations(wish));
    let mut found = Found::default();
    let can = wish
        .plugin
        .is_some_and(|plugin| plugin.is_controller_required() && plugin.can(Capability::CreateDelete) == Some(true));
    let message = format_args!(
        "{} cannot make volumes; make it at the provider and register it with its externalID, or take another plugin",
        wish.spec.plugin_id
    );
    found.when(wish.plugin.is_some() && !can, "Create", format_args!("spec.pluginID"), message);
    violations.extend(found.finish());
    if violations.is_empty() { Ok(Creation::Call) } else { Err(violations) }
}

/// What is wrong with a volume by itself.
pub fn violations(volume: &ObjectKey, spec: &CSIVolumeSpec) -> Vec<Violation> {
    let mut found = Found::default();
    for (field, text) in
        [("metadata.namespace", &*volume.namespace), ("spec.id", &*volume.name), ("spec.pluginID", &spec.plugin_id)]
    {
        found.when(text.is_empty(), "Missing", format_args!("{field}"), "is missing; give it");
    }
    let has_both = !spec.clone_id.is_empty() && !spec.snapshot_id.is_empty();
    let message = "and spec.snapshotID exclude each other; remove one of them";
    found.when(has_both, "TwoSources", format_args!("spec.cloneID"), message);
    let message = "is empty; name at least one accessMode with its attachmentMode";
    found.when(spec.capabilities.is_empty(), "Capabilities", format_args!("spec.capabilities"), message);
    for (list, topologies) in spec
        .topology_request
        .iter()
        .flat_map(|request| [("required", &request.required), ("preferred", &request.preferred)])
    {
        for (n, topology) in topologies.iter().enumerate() {
            let field = format_args!("spec.topologyRequest.{list}[{n}].segments");
            found.when(topology.segments.is_empty(), "Topology", field, "is empty; name at least one, as zone: a");
        }
    }
    found.finish()
}

fn plugin_violations(wish: Registration<'_>) -> Vec<Violation> {
    let mut found = Found::default();
    let id = &wish.spec.plugin_id;
    let is_unknown = wish.plugin.is_none() && !id.is_empty();
    let message = format_args!("{id} is not known; run a job with this csiPlugin, or correct the id");
    found.when(is_unknown, "PluginUnknown", format_args!("spec.pluginID"), message);
    let lacks_controller =
        wish.plugin.is_some_and(|plugin| plugin.needs_controller() && plugin.controllers_healthy() == 0);
    let message = format_args!("{id} needs a controller, and none is healthy; look at the job that runs it");
    found.when(lacks_controller, "NoController", format_args!("spec.pluginID"), message);
    found.finish()
}

/// The status of a volume that nobody holds yet.
fn fresh(spec: &CSIVolumeSpec) -> CSIVolumeStatus {
    CSIVolumeStatus {
        phase: VolumePhase::Available,
        external_id: spec.external_id.clone(),
        topologies: spec.topology_request.as_ref().map(|request| request.required.clone()).unwrap_or_default(),
        ..CSIVolumeStatus::default()
    }
}
