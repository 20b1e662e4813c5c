//! Snapshots of CSI volumes: asked for by an annotation of the volume, which the controller takes away when its
//! provider has answered. The answer is in the volume's status.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::csi_volume::CSIVolumeStatus;
use drover_api::{CSIVolume, annotation};
use serde::Deserialize;
use serde_json::{Value, json};

use super::body;
use super::order::{Change, Target, WriteOrder, WriteView};
use super::outcome::{Outcome, PROVIDER};
use super::volumes::{annotated, demand, find, known};
use super::written::Written;
use crate::fault::Fault;
use crate::wire::snapshot::wire;
use crate::world::{Kind, Name, World, namespace, volume_id};

/// What is wanted of one snapshot.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct WantedSnapshot {
    #[serde(rename = "SourceVolumeID")]
    source_volume_id: String,
    #[serde(rename = "PluginID")]
    plugin_id: String,
    name: String,
    secrets: Option<BTreeMap<String, String>>,
    parameters: Option<BTreeMap<String, String>>,
}

/// Takes a snapshot. One with the name of an earlier one of the volume is that one.
pub(super) fn take(view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let wanted = wanted(view)?;
    let volume = find(&wanted.source_volume_id, view)?;
    let plugin = &volume.spec.plugin_id;
    if !wanted.plugin_id.is_empty() && wanted.plugin_id != *plugin {
        return Err(Fault::bad(format!(
            "Snapshots[0].PluginID is {:?}, and volume {:?} is of {plugin:?}: leave it out",
            wanted.plugin_id, wanted.source_volume_id
        )));
    }
    let name = match wanted.name.as_str() {
        "" => format!("snap-{}", view.now.strftime("%Y%m%dT%H%M%SZ")),
        name => name.to_owned(),
    };
    let taken = name.clone();
    asked(volume, (annotation::TAKE_SNAPSHOT, &name), move |volume, status| {
        let snapshot = status.snapshots.iter().find(|one| one.name == taken);
        let lacks = || Fault::new(500, format!("snapshot {taken:?}: the provider has answered without it: list them"));
        Ok(json!({ "Snapshots": [wire(volume, snapshot.ok_or_else(lacks)?)] }))
    })
}

/// Deletes a snapshot that a volume of the plugin has in its status.
pub(super) fn delete(view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let needed = |name: &str| {
        let missing = || Fault::bad(format!("{name} is missing: give it, as the list of snapshots shows it"));
        view.query.text(name).ok_or_else(missing)
    };
    let (plugin, id) = (needed("plugin_id")?, needed("snapshot_id")?);
    let space = view.query.namespace();
    let has_it = |volume: &&Arc<CSIVolume>| {
        let known = volume.status.iter().flat_map(|status| &status.snapshots);
        volume.spec.plugin_id == plugin && known.map(|one| one.id.as_str()).any(|known| known == id)
    };
    let volume = view.world.volumes.of_namespace(&space).find(has_it).ok_or_else(|| {
        Fault::new(
            404,
            format!(
                "snapshot {id:?} not found: no volume of plugin {plugin:?} in namespace {space} lists it; ask for them \
                 by `drover volume snapshot list`, or delete it at the provider"
            ),
        )
    })?;
    asked(volume, (annotation::DELETE_SNAPSHOT, id), |_, _| Ok(json!({})))
}

/// The snapshot of a request.
fn wanted(view: WriteView<'_>) -> Result<WantedSnapshot, Fault> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        snapshots: Vec<WantedSnapshot>,
    }
    let Body { mut snapshots } = body::read(view.body)?;
    let n_wanted = snapshots.len();
    let wanted = snapshots.pop().filter(|_| n_wanted == 1).ok_or_else(|| {
        Fault::bad(format!("Snapshots holds {n_wanted} snapshots: give one, and others in requests of their own"))
    })?;
    let is_given = |map: &Option<BTreeMap<String, String>>| map.as_ref().is_some_and(|map| !map.is_empty());
    let refused = [
        (
            wanted.source_volume_id.is_empty(),
            "Snapshots[0].SourceVolumeID is missing: name the volume that it is of, by its id",
        ),
        (
            is_given(&wanted.secrets),
            "Snapshots[0].Secrets: its plugin gets the Secret of the volume's spec.secretsRef: put them there",
        ),
        (
            is_given(&wanted.parameters),
            "Snapshots[0].Parameters: drover hands over none: leave them out, or take the snapshot at the provider",
        ),
    ];
    match refused.iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, why)) => Err(Fault::bad(*why)),
        None => Ok(wanted),
    }
}

/// The order that asks for something by an annotation, and is answered from the status when that is gone again.
fn asked(
    volume: &Arc<CSIVolume>,
    (request, value): (&'static str, &str),
    answer: impl Fn(&CSIVolume, &CSIVolumeStatus) -> Result<Value, Fault> + Send + Sync + 'static,
) -> Result<WriteOrder, Fault> {
    let id = volume_id(volume).to_owned();
    let changes = match requested(volume, request) {
        Some(other) if other != value => {
            return Err(Fault::bad(format!(
                "volume {id:?}: {request}={other} is being carried out: try again when it is over"
            )));
        }
        Some(_) => Vec::new(),
        None => {
            vec![Change::Patch(Target::unchanged(Kind::Volume, &volume.metadata), annotated(request, value))]
        }
    };
    let name = Name::of(&volume.metadata);
    let late = format!(
        "volume {id:?}: its provider has not answered yet, and {request} goes on: look at `drover volume status {} -n {}`",
        name.name,
        namespace(&volume.metadata)
    );
    let seen = move |world: &World, written: &[Written]| {
        let volume = match known(&name, world, written)? {
            Ok(volume) => volume,
            Err(fault) => return Some(Err(fault)),
        };
        if requested(volume, request).is_some() {
            return None;
        }
        let status = volume.status.as_ref()?;
        Some(match status.snapshot_error.as_str() {
            "" => answer(volume, status),
            why => Err(Fault::new(500, format!("volume {id:?}: {why}"))),
        })
    };
    let outcome = Outcome::new((Kind::Volume, PROVIDER), seen, move |_| Err(Fault::new(504, late.clone())));
    Ok(WriteOrder::until(vec![demand(volume, "update")], changes, outcome))
}

/// What is asked for by an annotation.
fn requested<'a>(volume: &'a CSIVolume, request: &str) -> Option<&'a str> {
    volume.metadata.annotations.as_ref()?.get(request).map(String::as_str)
}
