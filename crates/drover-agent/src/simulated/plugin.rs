//! A CSI driver without a disk, for agents on virtual time: it attaches in a cloud that all nodes of a run share, and
//! mounts on a disk that remembers names alone. Calls take their time, and some fail, before or after they were carried
//! out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::client_node::CsiInfo;
use drover_api::csi_volume::{AccessMode, VolumeSnapshot};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::csi::{
    Attachment, CallFailure, ErrorKind, Grown, Instance, KnownVolume, MadeVolume, NewVolume, Plugin, PluginError,
    PluginFacts, Tries, VolumeUse,
};
use crate::node::memory_disk::MemoryDisk;
use crate::random::Random;

/// What became of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountChange {
    /// It is attached to the node.
    Attached,
    /// It is mounted on the node.
    Staged,
    /// An allocation can use it.
    Published,
    /// It cannot any more.
    Unpublished,
    /// It is not mounted on the node any more.
    Unstaged,
    /// Nothing on the node can use it.
    Detached,
    /// It is gone, with its data.
    Deleted,
}

/// A call of a driver, as CSI names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum PluginCall {
    /// Make it larger.
    ControllerExpandVolume,
    /// Attach it.
    ControllerPublishVolume,
    /// Detach it.
    ControllerUnpublishVolume,
    /// Make it.
    CreateVolume,
    /// Take a snapshot of it.
    CreateSnapshot,
    /// Delete a snapshot.
    DeleteSnapshot,
    /// Say which snapshots there are.
    ListSnapshots,
    /// Delete it.
    DeleteVolume,
    /// Have its mount follow when it is larger.
    NodeExpandVolume,
    /// Mount it for an allocation.
    NodePublishVolume,
    /// Mount it on the node.
    NodeStageVolume,
    /// Take the allocation's mount away.
    NodeUnpublishVolume,
    /// Take the node's mount away.
    NodeUnstageVolume,
    /// Confirm how it can be used.
    ValidateVolumeCapabilities,
}

/// What happens to a driver.
#[derive(Clone, Debug)]
pub enum PluginNews {
    /// It is called.
    Called(PluginCall),
    /// It has answered, or broke off.
    Answered {
        /// The call.
        call: PluginCall,
        /// The answer is a fault of the driver that a scenario asks for.
        is_fault: bool,
    },
    /// Something has become of a volume.
    Mount(MountRun, MountChange),
}

/// A use of a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountRun {
    /// The provider's id of the volume.
    pub volume: String,
    /// The node.
    pub node: String,
    /// The uid of the allocation; empty where it is about the whole node.
    pub allocation: String,
    /// Whether the allocation writes, and no other may.
    pub is_single_writer: bool,
    /// Whether the volume has to be attached before it is used.
    pub needs_attachment: bool,
}

/// Hears of everything that happens to drivers.
pub type PluginObserver = Arc<dyn Fn(PluginNews) + Send + Sync>;

/// What a provider knows of its volumes, by its ids of them.
#[derive(Clone, Debug, Default)]
pub struct Cloud(Arc<Mutex<Provider>>);

#[derive(Debug, Default)]
struct Provider {
    /// The nodes to which each is attached, and whether they share it.
    attached: BTreeMap<String, BTreeMap<String, bool>>,
    snapshots: BTreeMap<String, BTreeSet<String>>,
}

impl Cloud {
    fn lock(&self) -> MutexGuard<'_, Provider> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A driver on a node, as a scenario has it.
#[derive(Clone, Debug)]
pub struct PluginSpec {
    /// The plugin's id.
    pub id: String,
    /// What the node says of it.
    pub info: CsiInfo,
    /// How long a call takes.
    pub delay: Duration,
    /// How many of all calls fail, between 0 and 1.
    pub errors: f64,
}

/// A driver on a node.
#[derive(Clone)]
pub(super) struct SimulatedPlugin {
    pub(super) spec: PluginSpec,
    pub(super) cloud: Cloud,
    pub(super) disk: MemoryDisk,
    pub(super) random: Random,
    pub(super) observer: PluginObserver,
}

impl fmt::Debug for SimulatedPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedPlugin").field("id", &self.spec.id).finish_non_exhaustive()
    }
}

impl SimulatedPlugin {
    /// The driver as it runs.
    pub(super) fn instance(self) -> Instance {
        let node = ["STAGE_UNSTAGE_VOLUME", "EXPAND_VOLUME"].map(str::to_owned).to_vec();
        let facts = PluginFacts { node, ..PluginFacts::default() };
        Instance { info: self.spec.info.clone(), plugin: Arc::new(self), facts }
    }

    /// Has a call carried out, again where the driver does not answer; then it may have been carried out all the same.
    async fn call<T>(
        &self,
        call: PluginCall,
        work: impl Fn() -> Result<T, PluginError> + Send + Sync,
    ) -> Result<T, PluginError> {
        let mut tries = Tries::default();
        loop {
            (self.observer)(PluginNews::Called(call));
            let answer = self.attempt(&work).await;
            let is_fault = matches!(answer, Err(CallFailure::Temporary(_)));
            (self.observer)(PluginNews::Answered { call, is_fault });
            match answer {
                Ok(done) => return Ok(done),
                Err(failure) => tries.again(failure).await?,
            }
        }
    }

    async fn attempt<T>(&self, work: impl Fn() -> Result<T, PluginError> + Send + Sync) -> Result<T, CallFailure> {
        tokio::time::sleep(self.spec.delay).await;
        let drawn = if self.spec.errors > 0.0 { self.random.unit() } else { 1.0 };
        let fault = || {
            let reason = "Unavailable: a simulated fault".to_owned();
            CallFailure::Temporary(PluginError { reason, kind: ErrorKind::Retryable })
        };
        if drawn < self.spec.errors / 2.0 {
            return Err(fault());
        }
        let done = work().map_err(CallFailure::ForGood)?;
        if drawn < self.spec.errors { Err(fault()) } else { Ok(done) }
    }

    fn is_attached(&self, volume: &str) -> bool {
        self.cloud.lock().attached.get(volume).is_some_and(|nodes| nodes.contains_key(&self.spec.info.node_id))
    }

    /// Tells of a change on a node as a whole.
    fn tell(&self, volume: &str, node: &str, change: MountChange) {
        let run = MountRun {
            volume: volume.to_owned(),
            node: node.to_owned(),
            allocation: String::new(),
            is_single_writer: false,
            needs_attachment: self.spec.info.requires_controller_plugin,
        };
        (self.observer)(PluginNews::Mount(run, change));
    }

    /// Tells of a change for one allocation on this node.
    fn tell_of(&self, volume: &VolumeUse, change: MountChange) {
        // The folder of a target: the allocation's uid, the volume, how it is used.
        let uid = volume.target.iter().rev().nth(2);
        let run = MountRun {
            volume: volume.external_id.clone(),
            node: self.spec.info.node_id.clone(),
            allocation: uid.map(|uid| uid.to_string_lossy().into_owned()).unwrap_or_default(),
            is_single_writer: volume.how.access_mode == Some(AccessMode::SingleNodeWriter) && !volume.how.is_read_only,
            needs_attachment: self.spec.info.requires_controller_plugin,
        };
        (self.observer)(PluginNews::Mount(run, change));
    }
}

impl Plugin for SimulatedPlugin {
    fn probe(&self) -> BoxFuture<'_, Result<PluginFacts, PluginError>> {
        std::future::ready(Ok(PluginFacts::default())).boxed()
    }

    fn stage<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        self.call(PluginCall::NodeStageVolume, || {
            let is_missing = self.spec.info.requires_controller_plugin && !self.is_attached(&volume.external_id);
            if is_missing {
                let reason = format!("volume {} is not attached to {}", volume.external_id, self.spec.info.node_id);
                return Err(PluginError { reason, kind: ErrorKind::Final });
            }
            self.disk.set_mount(&volume.staging, true);
            self.tell(&volume.external_id, &self.spec.info.node_id, MountChange::Staged);
            Ok(())
        })
        .boxed()
    }

    fn unstage<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        self.call(PluginCall::NodeUnstageVolume, || {
            self.disk.set_mount(&volume.staging, false);
            self.tell(&volume.external_id, &self.spec.info.node_id, MountChange::Unstaged);
            Ok(())
        })
        .boxed()
    }

    fn publish<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        self.call(PluginCall::NodePublishVolume, || {
            self.disk.set_mount(&volume.target, true);
            self.tell_of(volume, MountChange::Published);
            Ok(())
        })
        .boxed()
    }

    fn unpublish<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        self.call(PluginCall::NodeUnpublishVolume, || {
            self.disk.set_mount(&volume.target, false);
            self.tell_of(volume, MountChange::Unpublished);
            Ok(())
        })
        .boxed()
    }

    fn attach<'a>(&'a self, to: &'a Attachment) -> BoxFuture<'a, Result<BTreeMap<String, String>, PluginError>> {
        self.call(PluginCall::ControllerPublishVolume, || {
            let is_shared = !matches!(
                to.volume.how.access_mode,
                Some(AccessMode::SingleNodeWriter | AccessMode::SingleNodeReaderOnly)
            );
            let mut cloud = self.cloud.lock();
            let nodes = cloud.attached.entry(to.volume.external_id.clone()).or_default();
            let other = nodes.iter().find(|(node, shares)| **node != to.node_id && !(**shares && is_shared));
            if let Some((other, _)) = other {
                let reason = format!("FailedPrecondition: volume {} is attached to {other}", to.volume.external_id);
                return Err(PluginError { reason, kind: ErrorKind::Retryable });
            }
            nodes.insert(to.node_id.clone(), is_shared);
            drop(cloud);
            self.tell(&to.volume.external_id, &to.node_id, MountChange::Attached);
            Ok(BTreeMap::from([("attachedTo".to_owned(), to.node_id.clone())]))
        })
        .boxed()
    }

    fn detach<'a>(&'a self, from: &'a Attachment) -> BoxFuture<'a, Result<(), PluginError>> {
        self.call(PluginCall::ControllerUnpublishVolume, || {
            let mut cloud = self.cloud.lock();
            let nodes = cloud.attached.get_mut(&from.volume.external_id);
            let was_there = nodes.is_some_and(|nodes| nodes.remove(&from.node_id).is_some());
            drop(cloud);
            if was_there {
                self.tell(&from.volume.external_id, &from.node_id, MountChange::Detached);
            }
            Ok(())
        })
        .boxed()
    }

    fn create<'a>(&'a self, volume: &'a NewVolume) -> BoxFuture<'a, Result<MadeVolume, PluginError>> {
        self.call(PluginCall::CreateVolume, || {
            let (external_id, capacity_bytes) = (volume.name.clone(), volume.required_bytes);
            Ok(MadeVolume { external_id, capacity_bytes, ..MadeVolume::default() })
        })
        .boxed()
    }

    fn validate<'a>(&'a self, volume: &'a KnownVolume) -> BoxFuture<'a, Result<(), PluginError>> {
        tracing::debug!(volume = volume.external_id, "a simulated volume is confirmed");
        self.call(PluginCall::ValidateVolumeCapabilities, || Ok(())).boxed()
    }

    fn delete<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        self.call(PluginCall::DeleteVolume, || {
            self.cloud.lock().attached.remove(&volume.external_id);
            self.tell(&volume.external_id, "", MountChange::Deleted);
            Ok(())
        })
        .boxed()
    }

    fn expand<'a>(&'a self, volume: &'a VolumeUse, to: (i64, i64)) -> BoxFuture<'a, Result<Grown, PluginError>> {
        tracing::debug!(volume = volume.external_id, "a simulated volume grows");
        let grown = Grown { capacity_bytes: to.0, needs_nodes: true };
        self.call(PluginCall::ControllerExpandVolume, move || Ok(grown)).boxed()
    }

    fn take_snapshot<'a>(
        &'a self,
        volume: &'a VolumeUse,
        name: &'a str,
    ) -> BoxFuture<'a, Result<VolumeSnapshot, PluginError>> {
        self.call(PluginCall::CreateSnapshot, || {
            self.cloud.lock().snapshots.entry(volume.external_id.clone()).or_default().insert(name.to_owned());
            Ok(snapshot(name))
        })
        .boxed()
    }

    fn delete_snapshot<'a>(&'a self, _: &'a VolumeUse, id: &'a str) -> BoxFuture<'a, Result<(), PluginError>> {
        self.call(PluginCall::DeleteSnapshot, || {
            self.cloud.lock().snapshots.values_mut().for_each(|known| drop(known.take(id)));
            Ok(())
        })
        .boxed()
    }

    fn list_snapshots<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<Vec<VolumeSnapshot>, PluginError>> {
        self.call(PluginCall::ListSnapshots, || {
            let cloud = self.cloud.lock();
            Ok(cloud.snapshots.get(&volume.external_id).into_iter().flatten().map(|id| snapshot(id)).collect())
        })
        .boxed()
    }

    fn expand_mount<'a>(&'a self, volume: &'a VolumeUse, _: (i64, i64)) -> BoxFuture<'a, Result<(), PluginError>> {
        tracing::debug!(volume = volume.external_id, "a simulated mount grows");
        self.call(PluginCall::NodeExpandVolume, || Ok(())).boxed()
    }
}

/// A snapshot that has its name for its id, and no time: it shows in no order but that of the names.
fn snapshot(id: &str) -> VolumeSnapshot {
    VolumeSnapshot { id: id.to_owned(), ready_to_use: true, ..VolumeSnapshot::default() }
}
