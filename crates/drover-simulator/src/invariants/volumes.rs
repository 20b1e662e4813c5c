//! I2: a volume for one writer is written to on one node at a time, and is not free while anything can write to it.
//! What a controller has detached from a node cannot be written to there.
//!
//! And no call of a plugin does harm because it came again, late, or from another leader: nothing is detached,
//! unmounted or deleted under a task that uses it, and nothing is mounted for an allocation whose claim is released.
//! Nodes that were down meanwhile are excepted: there a controller detaches what is mounted, and that is what fences
//! them.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::client_node::NodePhase;
use drover_api::csi_volume::ClaimState;
use drover_api::{CSIVolume, ClientNode};
use drover_core::volume::release::external_id;
use drover_store::memory::StoredChange;

use drover_agent::simulated::{MountChange, MountRun};
use drover_store::convert;

/// Node and uid of an allocation that can use a volume.
type User = (String, String);

/// Who can use volumes, by the provider's ids of the volumes.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    /// Those that can write to a volume for one writer.
    writers: BTreeMap<String, BTreeSet<User>>,
    /// Allocations for which something is mounted.
    published: BTreeMap<String, BTreeSet<User>>,
    /// Nodes to which a volume is attached, and those on which it is staged.
    attached: BTreeMap<String, BTreeSet<String>>,
    staged: BTreeMap<String, BTreeSet<String>>,
    /// How far the claims are, by the uid of their allocation, with its node.
    claims: BTreeMap<String, BTreeMap<String, (ClaimState, String)>>,
    /// Nodes that are down or gone, and allocations on nodes that have been so since.
    down: BTreeSet<String>,
    cut_off: BTreeSet<String>,
}

impl Volumes {
    /// Takes in what became of a volume. `has_tasks` says of an allocation whether tasks of it run.
    pub(super) fn observe(
        &mut self,
        run: &MountRun,
        change: MountChange,
        has_tasks: impl Fn(&str) -> bool,
        found: &mut Vec<String>,
    ) {
        let MountRun { volume, node, allocation, .. } = run;
        let user = (node.clone(), allocation.clone());
        match change {
            MountChange::Attached => drop(of(&mut self.attached, volume).insert(node.clone())),
            MountChange::Staged if self.down.contains(node) => {}
            MountChange::Staged => drop(of(&mut self.staged, volume).insert(node.clone())),
            MountChange::Unstaged => drop(of(&mut self.staged, volume).remove(node)),
            MountChange::Published => {
                self.check_publish(run, found);
                of(&mut self.published, volume).insert(user.clone());
                if run.is_single_writer {
                    let writers = of(&mut self.writers, volume);
                    writers.insert(user);
                    if let Some((other, _)) = writers.iter().find(|(there, _)| there != node) {
                        found.push(format!("I2: volume {volume} is published on {node} and on {other}"));
                    }
                }
            }
            MountChange::Unpublished => {
                if has_tasks(allocation) {
                    found.push(format!(
                        "I2: volume {volume} is unpublished on {node} while tasks of allocation {allocation} run"
                    ));
                }
                of(&mut self.published, volume).remove(&user);
                of(&mut self.writers, volume).remove(&user);
            }
            MountChange::Detached => {
                self.check_detach(run, found);
                of(&mut self.attached, volume).remove(node);
                of(&mut self.writers, volume).retain(|(there, _)| there != node);
            }
            MountChange::Deleted => self.check_delete(volume, found),
        }
    }

    /// A claim that is gone must not be of an allocation that can still write.
    pub(super) fn observe_volume(&mut self, change: &StoredChange, found: &mut Vec<String>) {
        let Ok(volume) = change.object().typed::<CSIVolume>() else { return };
        let status = volume.status.clone().unwrap_or_default();
        let id = convert::volume_id(volume);
        let external = external_id(&id, &volume.spec, &status).to_owned();
        if change.after.is_none() {
            self.claims.remove(&external);
            return;
        }
        for (node, uid) in self.writers.get(&external).into_iter().flatten() {
            if !status.claims.iter().any(|claim| claim.alloc_id == *uid) {
                found.push(format!("I2: volume {id} is free of allocation {uid}, which can write to it on {node}"));
            }
        }
        let claims = status.claims.into_iter().map(|claim| (claim.alloc_id, (claim.state, claim.node_name)));
        self.claims.insert(external, claims.collect());
    }

    /// What is used on a node that is down, or gone, may be detached from it.
    pub(super) fn observe_node(&mut self, change: &StoredChange) {
        let Ok(node) = change.object().typed::<ClientNode>() else { return };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let phase = node.status.as_ref().map(|status| status.phase);
        if change.after.is_some() && phase != Some(NodePhase::Down) {
            self.down.remove(name);
            return;
        }
        self.down.insert(name.to_owned());
        let published = self.published.values().flatten().filter(|(there, _)| there == name).map(|(_, uid)| uid);
        let claims = self.claims.values().flatten().filter(|(_, (_, there))| there == name).map(|(uid, _)| uid);
        self.cut_off.extend(published.chain(claims).cloned());
        self.staged.values_mut().for_each(|nodes| {
            nodes.remove(name);
        });
    }

    pub(super) fn lose_power(&mut self, node: &str) {
        for users in self.writers.values_mut().chain(self.published.values_mut()) {
            users.retain(|(there, _)| there != node);
        }
        self.staged.values_mut().for_each(|nodes| {
            nodes.remove(node);
        });
    }

    fn check_publish(&self, run: &MountRun, found: &mut Vec<String>) {
        let MountRun { volume, node, allocation, needs_attachment, .. } = run;
        if self.cut_off.contains(allocation) {
            return;
        }
        if *needs_attachment && !self.attached.get(volume).is_some_and(|nodes| nodes.contains(node)) {
            found.push(format!("I2: volume {volume} is published on {node}, to which it is not attached"));
        }
        let claim = self.claims.get(volume).and_then(|claims| claims.get(allocation));
        if let Some((state, _)) = claim.filter(|(state, _)| *state >= ClaimState::NodeDetached) {
            found.push(format!(
                "I2: volume {volume} is published on {node} for allocation {allocation}, whose claim is {state}"
            ));
        }
    }

    fn check_detach(&self, run: &MountRun, found: &mut Vec<String>) {
        let MountRun { volume, node, .. } = run;
        let users = self.published.get(volume).into_iter().flatten();
        let mut users = users.filter(|(there, uid)| there == node && !self.cut_off.contains(uid));
        if let Some((_, uid)) = users.next() {
            found.push(format!("I2: volume {volume} is detached from {node}, where allocation {uid} uses it"));
        } else if self.staged.get(volume).is_some_and(|nodes| nodes.contains(node)) {
            found.push(format!("I2: volume {volume} is detached from {node}, where it is staged"));
        }
    }

    fn check_delete(&self, volume: &str, found: &mut Vec<String>) {
        let attached = self.attached.get(volume).into_iter().flatten().next();
        let published = self.published.get(volume).into_iter().flatten().map(|(node, _)| node).next();
        if let Some(node) = attached.or(published) {
            found.push(format!("I2: volume {volume} is deleted while it is used on {node}"));
        }
    }
}

fn of<'a, T: Default>(all: &'a mut BTreeMap<String, T>, volume: &str) -> &'a mut T {
    all.entry(volume.to_owned()).or_default()
}
