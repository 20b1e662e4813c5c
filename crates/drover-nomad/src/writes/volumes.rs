//! CSI volumes that are there: taken out with their data or without, and released.

use std::sync::Arc;
use std::time::Duration;

use drover_api::csi_volume::{Claim, ClaimState, VolumeConditionType};
use drover_api::{CSIVolume, GROUP, annotation};
use drover_core::volume::provision::may_delete_data;
use serde_json::{Value, json};

use super::order::{Change, Demand, Target, Way, WriteOrder, WriteView};
use super::outcome::{Outcome, PROVIDER};
use super::written::Written;
use crate::fault::Fault;
use crate::world::{Kind, Name, World, namespace, version};

/// How long is waited for the controller to let an object go.
const LET_GO: Duration = Duration::from_secs(2);

/// Takes a volume out; its data stays at the provider.
pub(super) fn deregister(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let volume = find(id, view)?;
    let target = Target::same(Kind::Volume, &volume.metadata);
    let (mut demands, mut changes) = (vec![demand(volume, "delete")], Vec::new());
    if view.query.is("force", false) {
        demands.push(demand(volume, "update"));
        changes.push(Change::Patch(target.clone(), annotated(annotation::DEREGISTER, "force")));
    } else {
        refuse_in_use(id, volume, ", or, where that is over and cannot be released, take force=true")?;
    }
    changes.push(Change::Delete(target));
    let outcome = Outcome::new((Kind::Volume, LET_GO), is_gone(volume), |_| Ok(json!({})));
    Ok(WriteOrder::until(demands, changes, outcome))
}

/// Takes a volume out when its provider has deleted its data.
pub(super) fn delete(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let volume = find(id, view)?;
    refuse_in_use(id, volume, "")?;
    may_delete_data(&volume.spec, &volume.status.clone().unwrap_or_default()).map_err(|why| {
        Fault::bad(format!("volume {id:?}: {why}; deregister it, and delete its data at the provider"))
    })?;
    let target = Target::same(Kind::Volume, &volume.metadata);
    let changes =
        vec![Change::Patch(target.clone(), annotated(annotation::DELETE_DATA, "true")), Change::Delete(target)];
    let (name, wanted) = (Name::of(&volume.metadata), id.to_owned());
    let late = move |world: &World| {
        let now = world.volumes.named(&name.namespace, &name.name);
        let conditions = now.and_then(|now| now.status.as_ref()).map(|status| &status.conditions[..]);
        let schedulable =
            conditions.unwrap_or_default().iter().find(|one| one.r#type == VolumeConditionType::Schedulable);
        let why = schedulable.map_or("its provider has not answered", |one| one.message.as_str());
        Err(Fault::new(504, format!("volume {wanted:?} is not deleted yet, and goes on being so: {why}")))
    };
    let demands = vec![demand(volume, "delete"), demand(volume, "update")];
    Ok(WriteOrder::until(demands, changes, Outcome::new((Kind::Volume, PROVIDER), is_gone(volume), late)))
}

/// Releases a volume from a node. The controller does so by itself, again and again: what is left to say is whether it
/// is about it.
pub(super) fn detach(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let wanted = view.query.text("node").ok_or_else(|| Fault::bad("node is missing: name the node, by its id"))?;
    let volume = find(id, view)?;
    let node = view.world.nodes.with_uid(wanted).and_then(|node| node.metadata.name.clone());
    let node = node.ok_or_else(|| Fault::missing("node", wanted))?;
    let there: Vec<&Claim> = claims(volume).iter().filter(|claim| claim.node_name == node).collect();
    match there.iter().find(|claim| claim.state == ClaimState::Taken) {
        Some(claim) => Err(Fault::bad(format!(
            "volume {id:?}: allocation {} on node {node} uses it: stop its job, and it is released by itself",
            claim.allocation
        ))),
        None if there.is_empty() => {
            Err(Fault::bad(format!("volume {id:?}: no allocation on node {node} holds it: name another node")))
        }
        None => Ok(WriteOrder::nothing(vec![demand(volume, "update")], json!({}))),
    }
}

/// A volume of the namespace that is asked for.
pub(super) fn find<'a>(id: &str, view: WriteView<'a>) -> Result<&'a Arc<CSIVolume>, Fault> {
    view.world.volume(&view.query.namespace(), id).ok_or_else(|| Fault::missing("volume", id))
}

/// The right to do something with a volume. One to make it is asked for without its name.
pub(super) fn demand(volume: &CSIVolume, verb: &'static str) -> Demand {
    let name = volume.metadata.name.clone().filter(|_| verb != "create").unwrap_or_default();
    let namespace = namespace(&volume.metadata).to_owned();
    Way { group: GROUP, resource: "csivolumes", verb, namespace, name, ..Way::default() }.into()
}

/// The patch that puts an annotation on an object.
pub(super) fn annotated(annotation: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { annotation: value } } })
}

/// A volume once the state of it that was written last is known; that it was deleted meanwhile is an answer too.
pub(super) fn known<'a>(
    name: &Name,
    world: &'a World,
    written: &[Written],
) -> Option<Result<&'a Arc<CSIVolume>, Fault>> {
    let volume = world.volumes.named(&name.namespace, &name.name);
    let newest = written.iter().map(Written::index).max().unwrap_or(0);
    let at = volume.map_or_else(|| world.index(Kind::Volume), |volume| version(&volume.metadata));
    (at >= newest).then(|| volume.ok_or_else(|| gone(name)))
}

/// That a volume is not there any more.
pub(super) fn gone(name: &Name) -> Fault {
    Fault::new(500, format!("csivol/{} of namespace {} was deleted meanwhile", name.name, name.namespace))
}

/// Finds that a volume is gone.
fn is_gone(volume: &CSIVolume) -> impl Fn(&World, &[Written]) -> Option<Result<Value, Fault>> + Send + Sync + 'static {
    let uid = volume.metadata.uid.clone().unwrap_or_default();
    move |world, _| world.volumes.with_uid(&uid).is_none().then(|| Ok(json!({})))
}

fn refuse_in_use(id: &str, volume: &CSIVolume, or: &str) -> Result<(), Fault> {
    let Some(claim) = claims(volume).first() else { return Ok(()) };
    Err(Fault::bad(format!(
        "volume {id:?} is in use by allocation {} on node {}: stop its job and wait for the release{or}",
        claim.allocation, claim.node_name
    )))
}

fn claims(volume: &CSIVolume) -> &[Claim] {
    volume.status.as_ref().map(|status| &status.claims[..]).unwrap_or_default()
}
