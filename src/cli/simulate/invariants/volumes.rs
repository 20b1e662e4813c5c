//! I2: a volume for one writer is written to on one node at a time, and is not free while somebody can write to it. What a controller
//! has detached from a node nobody there can write to.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::CSIVolume;
use drover_core::volume::release::external_id;
use drover_sim::Change;

use crate::agent::simulated::{MountChange, MountRun};
use crate::convert;

/// Who can write to volumes for one writer.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    /// By the provider's id of the volume: node and uid of the allocation.
    published: BTreeMap<String, BTreeSet<(String, String)>>,
}

impl Volumes {
    pub(super) fn observe(&mut self, run: &MountRun, change: MountChange, found: &mut Vec<String>) {
        let users = self.published.entry(run.volume.clone()).or_default();
        let user = (run.node.clone(), run.allocation.clone());
        match change {
            MountChange::Published if run.is_single_writer => {
                users.insert(user);
                if let Some((other, _)) = users.iter().find(|(node, _)| *node != run.node) {
                    found.push(format!("I2: volume {} is published on {} and on {other}", run.volume, run.node));
                }
            }
            MountChange::Published => {}
            MountChange::Unpublished => drop(users.remove(&user)),
            MountChange::Detached => users.retain(|(node, _)| *node != run.node),
        }
        if users.is_empty() {
            self.published.remove(&run.volume);
        }
    }

    /// A claim that is gone must not be of somebody who can still write.
    pub(super) fn observe_volume(&self, change: &Change, found: &mut Vec<String>) {
        let Some(volume) = change.after.as_ref().and_then(|after| after.typed::<CSIVolume>().ok()) else { return };
        let status = volume.status.clone().unwrap_or_default();
        let id = convert::volume_id(volume);
        let external = external_id(&id, &volume.spec, &status);
        for (node, uid) in self.published.get(external).into_iter().flatten() {
            if !status.claims.iter().any(|claim| claim.alloc_id == *uid) {
                found.push(format!("I2: volume {id} is free of allocation {uid}, which can write to it on {node}"));
            }
        }
    }

    pub(super) fn lose_power(&mut self, node: &str) {
        for users in self.published.values_mut() {
            users.retain(|(there, _)| there != node);
        }
    }
}
