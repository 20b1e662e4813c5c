//! The stage on which the cases of `spec/volumes.md` are tried: two nodes with a plugin, one volume, allocations, and a
//! plugin that answers by a script.

mod claim;
mod cluster;
mod current;
mod handle;
mod instances;
mod plugin;
mod properties;
mod provision;
mod register;
mod release;
mod snapshot;
mod user_actions;
mod wait;
mod watcher;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use drover_api::CSIVolume;
use drover_api::allocation::ClientStatus;
use drover_api::client_node::{CsiInfo, NodePhase};
use drover_api::csi_volume::{
    AccessMode, AttachmentMode, CSIVolumeSpec, CSIVolumeStatus, Claim, ClaimMode, ClaimState, VolumeCapability,
    VolumePhase,
};

use super::claim::{ClaimError, ClaimRequest, Update, take, updated};
use super::plugin::{Plugins, Skipped, refreshed};
use super::release::{
    Answered, AttachedBy, ControllerAnswer, Force, NodeAnswer, ReleaseFacts, ReleaseStep, Unmount, step,
};
use crate::ids::{AllocKey, NodeName, ObjectKey};
use crate::model::{Alloc, Node};
use crate::scheduler::tests::{World, node, now, spec};

/// What the plugin answers, and what it was asked.
struct Script {
    /// Answers of node halves, in turn; after them all is well.
    node: VecDeque<NodeAnswer>,
    /// Answers of controllers, in turn; after them all is well.
    controller: VecDeque<ControllerAnswer>,
    unmount: Unmount,
    force: Force,
    attached: AttachedBy,
    /// Calls and checkpoints.
    log: Vec<String>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            node: VecDeque::new(),
            controller: VecDeque::new(),
            unmount: Unmount::Unknown,
            force: Force::No,
            attached: AttachedBy::Plugin,
            log: Vec::new(),
        }
    }
}

impl Script {
    fn n(&self, prefix: &str) -> usize {
        self.log.iter().filter(|line| line.starts_with(prefix)).count()
    }

    /// How many node calls and controller calls were made.
    fn calls(&self) -> (usize, usize) {
        (self.n("node "), self.n("controller "))
    }

    fn text(&self) -> String {
        self.log.join("; ")
    }
}

struct Stage {
    world: World,
    plugins: Plugins,
    volume: ObjectKey,
}

fn v1() -> ObjectKey {
    ObjectKey::new("shop", "v1")
}

/// A node with both halves of plugin `p`.
fn plugin_node(name: &str, change: impl FnOnce(&mut CsiInfo)) -> Node {
    let mut info = CsiInfo {
        controller: true,
        node: true,
        healthy: true,
        requires_controller_plugin: true,
        node_id: format!("i-{name}"),
        provider: "disks".to_owned(),
        capabilities: ["CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME", "EXPAND_VOLUME"].map(str::to_owned).to_vec(),
        ..CsiInfo::default()
    };
    change(&mut info);
    Node { csi: BTreeMap::from([("p".to_owned(), info)]), ..node(name) }
}

fn capability(access_mode: AccessMode) -> VolumeCapability {
    VolumeCapability { access_mode, attachment_mode: AttachmentMode::FileSystem }
}

impl Stage {
    /// Volume `v1` with one way to use it, unclaimed, and plugin `p` on nodes `n-1` and `n-2`.
    fn new(mode: AccessMode) -> Self {
        let mut stage = Self { world: World::new(&spec(0)), plugins: Plugins::default(), volume: v1() };
        for name in ["n-1", "n-2"] {
            stage.put_node(plugin_node(name, |_| {}));
        }
        let spec = CSIVolumeSpec {
            plugin_id: "p".to_owned(),
            external_id: "vol-1".to_owned(),
            capabilities: vec![capability(mode)],
            ..CSIVolumeSpec::default()
        };
        let status =
            CSIVolumeStatus { phase: VolumePhase::Available, validated_generation: 1, ..CSIVolumeStatus::default() };
        let status = refreshed(&status, stage.plugins.get("p"));
        stage.put_volume(&v1(), spec, status);
        stage
    }

    fn put_node(&mut self, node: Node) {
        self.plugins.put_node(&node);
        self.world.view.put_node(node);
    }

    fn remove_node(&mut self, name: &str) {
        self.plugins.remove_node(&name.into());
        self.world.view.remove_node(&name.into());
    }

    fn set_phase(&mut self, name: &str, phase: NodePhase) {
        let known = self.world.view.node(&name.into()).expect("a node");
        self.world.view.put_node(Node { phase, ..(**known).clone() });
    }

    fn put_volume(&mut self, key: &ObjectKey, spec: CSIVolumeSpec, status: CSIVolumeStatus) {
        let mut object = CSIVolume::new("v", spec);
        object.status = Some(status);
        self.world.view.put_volume(key.clone(), Arc::new(object));
    }

    fn spec(&self) -> CSIVolumeSpec {
        self.world.view.volume(&self.volume).expect("a volume").spec.clone()
    }

    /// The status as it is stored.
    fn status(&self) -> CSIVolumeStatus {
        self.world.view.volume(&self.volume).and_then(|volume| volume.status.clone()).expect("a status")
    }

    fn store(&mut self, status: CSIVolumeStatus) {
        let (key, spec) = (self.volume.clone(), self.spec());
        self.put_volume(&key, spec, status);
    }

    fn change_status(&mut self, change: impl FnOnce(&mut CSIVolumeStatus)) {
        let mut status = self.status();
        change(&mut status);
        self.store(status);
    }

    /// A running allocation on a node.
    fn alloc(&mut self, name: &str, on: &str) {
        self.world.allocs([0], |alloc| {
            alloc.key = AllocKey::new("shop", name);
            alloc.uid = name.into();
            alloc.node = on.into();
        });
    }

    fn change_alloc(&mut self, name: &str, change: impl FnOnce(&mut Alloc)) {
        let mut alloc = (**self.world.view.alloc(&AllocKey::new("shop", name)).expect("an allocation")).clone();
        change(&mut alloc);
        self.world.view.put_alloc(alloc);
    }

    /// The allocation ends, as its agent says.
    fn end(&mut self, name: &str) {
        self.change_alloc(name, |alloc| alloc.client = ClientStatus::Complete);
    }

    /// The node is silent for too long, and its allocations are lost.
    fn lose(&mut self, name: &str) {
        self.set_phase(name, NodePhase::Down);
        let on_node = NodeName::from(name);
        let live = self.world.view.allocs_on_node(&on_node).filter(|alloc| !alloc.is_client_terminal());
        let there: Vec<String> = live.map(|alloc| alloc.key.name.to_string()).collect();
        for alloc in there {
            self.change_alloc(&alloc, |alloc| alloc.client = ClientStatus::Lost);
        }
    }

    fn request(&self, alloc: &str, mode: ClaimMode) -> ClaimRequest {
        let access_mode = self.spec().capabilities[0].access_mode;
        ClaimRequest {
            volume: self.volume.clone(),
            alloc: AllocKey::new("shop", alloc),
            alloc_id: alloc.into(),
            mode,
            access_mode,
            attachment_mode: AttachmentMode::FileSystem,
        }
    }

    /// Takes a claim, and says whether that changed anything.
    fn claim(&mut self, alloc: &str, mode: ClaimMode) -> Result<bool, ClaimError> {
        let taken = take(&self.world.view, &self.request(alloc, mode), now())?;
        let has_changed = taken.is_some();
        if let Some(status) = taken {
            self.store(status);
        }
        Ok(has_changed)
    }

    /// Makes a running allocation on a node that holds a claim.
    fn holder(&mut self, alloc: &str, on: &str, mode: ClaimMode) {
        self.alloc(alloc, on);
        assert_eq!(self.claim(alloc, mode), Ok(true), "{alloc}");
    }

    /// The claim of an allocation, as it is stored.
    fn held(&self, alloc: &str) -> Option<Claim> {
        self.status().claims.into_iter().find(|claim| claim.alloc_id == alloc)
    }

    fn state(&self, alloc: &str) -> Option<ClaimState> {
        self.held(alloc).map(|claim| claim.state)
    }

    /// One step of a release: whether anything came of it.
    fn step(&mut self, alloc: &str, script: &mut Script, tried: &mut Vec<Skipped>) -> Result<bool, String> {
        let (spec, status) = (self.spec(), self.status());
        let facts = ReleaseFacts {
            volume: &self.volume,
            spec: &spec,
            status: &status,
            alloc_id: alloc,
            view: &self.world.view,
            plugin: self.plugins.get(&spec.plugin_id),
            unmount: script.unmount,
            force: script.force,
            tried,
            attached: script.attached,
        };
        let reached = match step(&facts).map_err(|error| error.to_string())? {
            ReleaseStep::Checkpoint(state) => state,
            ReleaseStep::Node(call) => {
                let mode = if call.is_read_only { "ro" } else { "rw" };
                script.log.push(format!("node {} {mode}", call.node));
                let answer = script.node.pop_front().unwrap_or(NodeAnswer::Done);
                call.answered(answer).map_err(|error| error.to_string())?
            }
            ReleaseStep::Controller(call) => {
                let (controller, id, node) = (&call.controller, &call.external_id, &call.external_node_id);
                script.log.push(format!("controller {controller} {id} off {node}"));
                let answer = script.controller.pop_front().unwrap_or(ControllerAnswer::Done);
                match call.answered(answer).map_err(|error| error.to_string())? {
                    Answered::Checkpoint(state) => state,
                    Answered::Next(skipped) => {
                        tried.push(skipped);
                        return Ok(true);
                    }
                }
            }
            ReleaseStep::Cluster => {
                script.log.push("cluster".to_owned());
                script.attached = AttachedBy::Plugin;
                ClaimState::ReadyToFree
            }
            ReleaseStep::Wait(fence) => return Err(fence.to_string()),
            ReleaseStep::Freed | ReleaseStep::InUse => return Ok(false),
        };
        script.log.push(reached.to_string());
        let update = Update::Release { alloc_id: alloc.to_owned(), state: reached, error: String::new() };
        self.store(updated(&status, &[update], now()));
        Ok(true)
    }

    /// Releases a claim, until there is no next step.
    fn drive(&mut self, alloc: &str, script: &mut Script) -> Result<(), String> {
        let mut tried = Vec::new();
        while self.step(alloc, script, &mut tried)? {}
        Ok(())
    }

    /// Releases a claim of an allocation with a plugin for which all is well, and says what was done.
    fn release(&mut self, alloc: &str) -> Script {
        let mut script = Script::default();
        self.drive(alloc, &mut script).expect("a release");
        script
    }
}
