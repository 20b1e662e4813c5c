//! CSI volumes: taken out, and released.

use std::sync::Arc;

use drover_api::csi_volume::{Claim, ClaimState};
use drover_api::{CSIVolume, GROUP, annotation};
use serde_json::json;

use super::order::{Change, Demand, Target, Way, WriteOrder, WriteView};
use crate::fault::Fault;
use crate::world::{Kind, namespace};

/// Takes a volume out; its data stays at the provider.
pub(super) fn deregister(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let volume = find(id, view)?;
    let target = Target::same(Kind::Volume, &volume.metadata);
    let mut changes = Vec::new();
    if view.query.is("force", false) {
        let forced = json!({ "metadata": { "annotations": { annotation::DEREGISTER: "force" } } });
        changes.push(Change::Patch(target.clone(), forced));
    } else if let Some(claim) = claims(volume).first() {
        return Err(Fault::bad(format!(
            "volume {id:?} is in use by allocation {} on node {}: stop its job and wait for the release, or, where \
             that is over and cannot be released, take force=true",
            claim.allocation, claim.node_name
        )));
    }
    changes.push(Change::Delete(target));
    Ok(WriteOrder::new(vec![demand(volume, "delete")], changes, |_| json!({})))
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

fn find<'a>(id: &str, view: WriteView<'a>) -> Result<&'a Arc<CSIVolume>, Fault> {
    view.world.volume(&view.query.namespace(), id).ok_or_else(|| Fault::missing("volume", id))
}

fn claims(volume: &CSIVolume) -> &[Claim] {
    volume.status.as_ref().map(|status| &status.claims[..]).unwrap_or_default()
}

fn demand(volume: &CSIVolume, verb: &'static str) -> Demand {
    let (namespace, name) = (namespace(&volume.metadata).to_owned(), volume.metadata.name.clone().unwrap_or_default());
    Way { group: GROUP, resource: "csivolumes", verb, namespace, name, ..Way::default() }.into()
}
