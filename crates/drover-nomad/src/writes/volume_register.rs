//! CSI volumes as clients submit them: registered, or made by their provider.

use std::sync::Arc;

use drover_api::CSIVolume;
use drover_api::condition::ConditionStatus;
use drover_api::csi_volume::{CSIVolumeSpec, VolumeCondition, VolumeConditionType, VolumeReason};
use drover_core::ids::ObjectKey;
use drover_core::validate;
use drover_core::volume::plugin::Capability;
use drover_core::volume::register::violations;
use serde_json::{Value, json};

use super::order::{Change, Demand, WriteOrder, WriteView};
use super::outcome::{Outcome, PROVIDER};
use super::volumes::{demand, gone, known};
use super::written::Written;
use crate::fault::Fault;
use crate::wire::{plugin, volume as volume_wire};
use crate::world::{Kind, Name, World, namespace, volume_id};

/// A volume that is to stand in the place of the one with its id, or to be made.
struct WantedVolume<'a> {
    /// The volume, in its namespace.
    volume: CSIVolume,
    /// The one that is there.
    before: Option<&'a Arc<CSIVolume>>,
}

/// Makes a volume known that its provider has, or changes one that is known.
pub(super) fn register(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let wanted = WantedVolume::read(id, view)?;
    wanted.check_plugin(view.world)?;
    Ok(WriteOrder::new(vec![wanted.demand()], wanted.changes(), |_| json!({})))
}

/// Makes a volume known that its provider is to make. One that is known is changed, and made once.
pub(super) fn create(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let wanted = WantedVolume::read(id, view)?;
    wanted.check_plugin(view.world)?;
    wanted.check_it_can_be_made(view.world)?;
    let name = Name::of(&wanted.volume.metadata);
    let late = name.clone();
    let outcome = Outcome::new(
        (Kind::Volume, PROVIDER),
        move |world, written| made(&name, world, written),
        // It is there, and its making goes on: a read shows when its provider has named it.
        move |world| {
            let volume = world.volumes.named(&late.namespace, &late.name);
            volume.map(|volume| answer(volume, world)).ok_or_else(|| gone(&late))
        },
    );
    Ok(WriteOrder::until(vec![wanted.demand()], wanted.changes(), outcome))
}

/// The answer once the provider has made a volume, or why it does not.
fn made(name: &Name, world: &World, written: &[Written]) -> Option<Result<Value, Fault>> {
    let volume = match known(name, world, written)? {
        Ok(volume) => volume,
        Err(fault) => return Some(Err(fault)),
    };
    let generation = volume.metadata.generation.unwrap_or(0);
    let status = volume.status.as_ref().filter(|status| status.observed_generation >= generation)?;
    if !status.external_id.is_empty() {
        return Some(Ok(answer(volume, world)));
    }
    // That its plugin is missing may be older than what is known here of the plugin.
    let is_stalled = |one: &&VolumeCondition| {
        one.r#type == VolumeConditionType::Stalled
            && one.status == ConditionStatus::True
            && one.reason != VolumeReason::PluginMissing
    };
    let stalled = status.conditions.iter().find(is_stalled)?;
    Some(Err(Fault::new(
        500,
        format!(
            "volume {:?} is not made: {}: {}; it stays and is tried again: correct it, or deregister it",
            volume_id(volume),
            stalled.reason,
            stalled.message
        ),
    )))
}

/// A volume as its author sees it: allocations are a right of their own.
fn answer(volume: &CSIVolume, world: &World) -> Value {
    let mut full = volume_wire::full(volume, world);
    full["Allocations"] = json!([]);
    json!({ "Volumes": [full] })
}

impl<'a> WantedVolume<'a> {
    /// The volume of a request, whose path names its id.
    ///
    /// # Errors
    /// 400 where it is none, has another id or what it cannot have, or its object's name is another volume's.
    fn read(id: &str, view: WriteView<'a>) -> Result<Self, Fault> {
        let mut volume = submitted(view)?;
        let own = volume_id(&volume).to_owned();
        if own != id {
            return Err(Fault::bad(format!("Volumes[0].ID is {own:?}, and the path names {id:?}: give that one")));
        }
        let key = ObjectKey { namespace: namespace(&volume.metadata).into(), name: id.into() };
        let wrong = violations(&key, &volume.spec);
        if !wrong.is_empty() {
            return Err(Fault::all(&wrong));
        }
        let before = view.world.volume(&key.namespace, id);
        let name = volume.metadata.name.clone().unwrap_or_default();
        match before {
            Some(before) if before.metadata.deletion_timestamp.is_some() => {
                return Err(Fault::bad(format!("volume {id:?} is being deleted: wait until it is gone")));
            }
            Some(before) => {
                volume.spec = merged(before, volume.spec);
                volume.metadata = before.metadata.clone();
            }
            None => {
                if let Some(other) = view.world.volumes.named(&key.namespace, &name) {
                    return Err(Fault::bad(format!(
                        "Volumes[0].ID: {id:?} and {:?}, which is there, would be one object, csivol/{name}: take \
                         another id",
                        volume_id(other)
                    )));
                }
            }
        }
        Ok(Self { volume, before })
    }

    /// Checks that its plugin is one that works.
    ///
    /// # Errors
    /// 404 for one that no node knows, 400 for one without a controller that works, where its volumes need one.
    fn check_plugin(&self, world: &World) -> Result<(), Fault> {
        let id = &self.volume.spec.plugin_id;
        let plugins = plugin::all(world);
        let Some(plugin) = plugins.get(id) else {
            let why = format!("plugin {id:?} not found: run the job that serves it (its task has csiPlugin.id {id})");
            return Err(Fault::new(404, format!("Volumes[0].PluginID: {why}")));
        };
        if plugin.lacks_controller() {
            return Err(Fault::bad(format!(
                "Volumes[0].PluginID: no controller of plugin {id:?} is healthy: look at the allocations of its job"
            )));
        }
        Ok(())
    }

    /// Checks that its provider can be asked to make it, or has made it.
    ///
    /// # Errors
    /// 400 with what to do instead.
    fn check_it_can_be_made(&self, world: &World) -> Result<(), Fault> {
        let (id, spec) = (&self.volume.spec.plugin_id, &self.volume.spec);
        let is_made = self.before.is_some_and(|before| !volume_wire::external_id(before).is_empty());
        if is_made {
            return Ok(());
        }
        if !spec.external_id.is_empty() {
            return Err(Fault::bad(format!(
                "Volumes[0].ExternalID is {:?}, a volume that its provider has: register it, or leave ExternalID out",
                spec.external_id
            )));
        }
        if plugin::all(world).get(id).is_some_and(|plugin| plugin.can(Capability::CreateDelete)) {
            return Ok(());
        }
        Err(Fault::bad(format!(
            "Volumes[0].PluginID: no controller of plugin {id:?} can make volumes: make it at its provider, and register \
             it with its ExternalID"
        )))
    }

    /// What its author must be allowed to do.
    fn demand(&self) -> Demand {
        demand(&self.volume, if self.before.is_some() { "update" } else { "create" })
    }

    /// What is written: nothing where it is there as it is wanted.
    fn changes(self) -> Vec<Change> {
        match self.before {
            None => vec![Change::Create(self.volume.into())],
            Some(before) if before.spec == self.volume.spec => Vec::new(),
            Some(_) => vec![Change::Replace(self.volume.into())],
        }
    }
}

/// The volume of a request, in its namespace.
fn submitted(view: WriteView<'_>) -> Result<CSIVolume, Fault> {
    let text = std::str::from_utf8(view.body).map_err(|_| Fault::bad("the body is no text: encode it as UTF-8"))?;
    let manifests = drover_jobspec::wire_volume_manifests("request", text).map_err(|faults| Fault::all(&faults))?;
    let Some((manifest, [])) = manifests.split_last() else {
        return Err(Fault::bad(
            "Volumes[0].Secrets: the gateway writes no Secrets: make one by `kubectl create secret generic`, name it in \
             spec.secretsRef of the CSIVolume by `kubectl apply`, and leave Secrets out here",
        ));
    };
    let wrong = validate::shape("CSIVolume", manifest);
    if !wrong.is_empty() {
        return Err(Fault::all(&wrong));
    }
    let read = serde_json::from_value(manifest.clone());
    let mut volume: CSIVolume = read.map_err(|error| Fault::bad(format!("the volume cannot be read: {error}")))?;
    // The volume's own word counts, as a job's does.
    let own = volume.metadata.namespace.take().filter(|namespace| !namespace.is_empty());
    volume.metadata.namespace = Some(own.unwrap_or_else(|| view.query.namespace()));
    Ok(volume)
}

/// A spec in the place of one that is there (`spec/volumes.md` 7.1): what a request leaves out stays. What may not
/// change the API server refuses, by rules of its own.
fn merged(before: &CSIVolume, wanted: CSIVolumeSpec) -> CSIVolumeSpec {
    let kept = &before.spec;
    let text = |wanted: String, kept: &String| if wanted.is_empty() { kept.clone() } else { wanted };
    // Who registers what was read names what a volume has that says neither.
    let name = if wanted.name == volume_id(before) && kept.name.is_empty() { String::new() } else { wanted.name };
    let is_made = wanted.external_id == volume_wire::external_id(before);
    let external_id = if is_made { String::new() } else { wanted.external_id };
    CSIVolumeSpec {
        id: kept.id.clone(),
        name: text(name, &kept.name),
        external_id: text(external_id, &kept.external_id),
        clone_id: text(wanted.clone_id, &kept.clone_id),
        snapshot_id: text(wanted.snapshot_id, &kept.snapshot_id),
        parameters: if wanted.parameters.is_empty() { kept.parameters.clone() } else { wanted.parameters },
        context: if wanted.context.is_empty() { kept.context.clone() } else { wanted.context },
        capacity: wanted.capacity.or_else(|| kept.capacity.clone()),
        secrets_ref: kept.secrets_ref.clone(),
        plugin_id: wanted.plugin_id,
        capabilities: wanted.capabilities,
        mount_options: wanted.mount_options,
        topology_request: wanted.topology_request,
    }
}
