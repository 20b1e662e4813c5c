//! A CSI driver without a disk, for agents on virtual time: it attaches in a cloud that all nodes of a run share, and mounts on a disk
//! that remembers names alone. Calls take their time, and some fail, before or after they were carried out.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drover_api::client_node::CsiInfo;
use drover_api::csi_volume::AccessMode;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::agent::csi::{
    Attachment, ErrorKind, Failure, Instance, KnownVolume, MadeVolume, NewVolume, Plugin, PluginError, PluginFacts,
    Tries, VolumeUse,
};
use crate::agent::disk::MemoryDisk;
use crate::agent::random::Random;

/// What became of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountChange {
    /// An allocation can write to it.
    Published,
    /// It cannot any more.
    Unpublished,
    /// Nothing on the node can.
    Detached,
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
    /// Whether the volume is for one writer.
    pub is_single_writer: bool,
}

/// Hears of every change of a volume's use.
pub type MountObserver = Arc<dyn Fn(MountRun, MountChange) + Send + Sync>;

/// Where volumes are attached: by the provider's id of the volume, the nodes and whether they share it.
#[derive(Clone, Debug, Default)]
pub struct Cloud(Arc<Mutex<BTreeMap<String, BTreeMap<String, bool>>>>);

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
    pub(super) observer: MountObserver,
}

impl fmt::Debug for SimulatedPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedPlugin").field("id", &self.spec.id).finish_non_exhaustive()
    }
}

impl SimulatedPlugin {
    /// The driver as it runs.
    pub(super) fn instance(self) -> Instance {
        let node = vec!["STAGE_UNSTAGE_VOLUME".to_owned()];
        let facts = PluginFacts { node, ..PluginFacts::default() };
        Instance { info: self.spec.info.clone(), plugin: Arc::new(self), facts }
    }

    /// Has a call carried out, again where the driver does not answer; then it may have been carried out all the same.
    async fn call<T>(&self, work: impl Fn() -> Result<T, PluginError> + Send + Sync) -> Result<T, PluginError> {
        let mut tries = Tries::default();
        loop {
            match self.attempt(&work).await {
                Ok(done) => return Ok(done),
                Err(failure) => tries.again(failure).await?,
            }
        }
    }

    async fn attempt<T>(&self, work: impl Fn() -> Result<T, PluginError> + Send + Sync) -> Result<T, Failure> {
        tokio::time::sleep(self.spec.delay).await;
        let drawn = if self.spec.errors > 0.0 { self.random.unit() } else { 1.0 };
        let fault = || {
            let reason = "Unavailable: a simulated fault".to_owned();
            Failure::Temporary(PluginError { reason, kind: ErrorKind::Retryable })
        };
        if drawn < self.spec.errors / 2.0 {
            return Err(fault());
        }
        let done = work().map_err(Failure::ForGood)?;
        if drawn < self.spec.errors { Err(fault()) } else { Ok(done) }
    }

    fn is_attached(&self, volume: &str) -> bool {
        let cloud = self.cloud.0.lock().unwrap_or_else(PoisonError::into_inner);
        cloud.get(volume).is_some_and(|nodes| nodes.contains_key(&self.spec.info.node_id))
    }

    fn tell(&self, volume: &str, node: &str, target: Option<&Path>, mode: Option<AccessMode>, change: MountChange) {
        // The folder of a target: the allocation's uid, the volume, how it is used.
        let uid = target.and_then(|target| target.iter().rev().nth(2));
        let run = MountRun {
            volume: volume.to_owned(),
            node: node.to_owned(),
            allocation: uid.map(|uid| uid.to_string_lossy().into_owned()).unwrap_or_default(),
            is_single_writer: mode == Some(AccessMode::SingleNodeWriter),
        };
        (self.observer)(run, change);
    }
}

impl Plugin for SimulatedPlugin {
    fn probe(&self) -> BoxFuture<'_, Result<PluginFacts, PluginError>> {
        std::future::ready(Ok(PluginFacts::default())).boxed()
    }

    fn stage<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        self.call(|| {
            let is_missing = self.spec.info.requires_controller_plugin && !self.is_attached(&volume.external_id);
            if is_missing {
                let reason = format!("volume {} is not attached to {}", volume.external_id, self.spec.info.node_id);
                return Err(PluginError { reason, kind: ErrorKind::Final });
            }
            self.disk.set_mount(&volume.staging, true);
            Ok(())
        })
        .boxed()
    }

    fn unstage<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        self.call(|| {
            self.disk.set_mount(&volume.staging, false);
            Ok(())
        })
        .boxed()
    }

    fn publish<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        self.call(|| {
            self.disk.set_mount(&volume.target, true);
            if !volume.how.is_read_only {
                let (id, node, mode) = (&volume.external_id, &self.spec.info.node_id, volume.how.access_mode);
                self.tell(id, node, Some(&volume.target), mode, MountChange::Published);
            }
            Ok(())
        })
        .boxed()
    }

    fn unpublish<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        self.call(|| {
            self.disk.set_mount(&volume.target, false);
            let (id, node, mode) = (&volume.external_id, &self.spec.info.node_id, volume.how.access_mode);
            self.tell(id, node, Some(&volume.target), mode, MountChange::Unpublished);
            Ok(())
        })
        .boxed()
    }

    fn attach<'a>(&'a self, to: &'a Attachment) -> BoxFuture<'a, Result<BTreeMap<String, String>, PluginError>> {
        self.call(|| {
            let is_shared = !matches!(
                to.volume.how.access_mode,
                Some(AccessMode::SingleNodeWriter | AccessMode::SingleNodeReaderOnly)
            );
            let mut cloud = self.cloud.0.lock().unwrap_or_else(PoisonError::into_inner);
            let nodes = cloud.entry(to.volume.external_id.clone()).or_default();
            let other = nodes.iter().find(|(node, shares)| **node != to.node_id && !(**shares && is_shared));
            if let Some((other, _)) = other {
                let reason = format!("FailedPrecondition: volume {} is attached to {other}", to.volume.external_id);
                return Err(PluginError { reason, kind: ErrorKind::Retryable });
            }
            nodes.insert(to.node_id.clone(), is_shared);
            Ok(BTreeMap::from([("attachedTo".to_owned(), to.node_id.clone())]))
        })
        .boxed()
    }

    fn detach<'a>(&'a self, from: &'a Attachment) -> BoxFuture<'a, Result<(), PluginError>> {
        self.call(|| {
            let mut cloud = self.cloud.0.lock().unwrap_or_else(PoisonError::into_inner);
            let nodes = cloud.get_mut(&from.volume.external_id);
            let was_there = nodes.is_some_and(|nodes| nodes.remove(&from.node_id).is_some());
            drop(cloud);
            if was_there {
                self.tell(&from.volume.external_id, &from.node_id, None, None, MountChange::Detached);
            }
            Ok(())
        })
        .boxed()
    }

    fn create<'a>(&'a self, volume: &'a NewVolume) -> BoxFuture<'a, Result<MadeVolume, PluginError>> {
        self.call(|| Ok(MadeVolume { external_id: volume.name.clone(), ..MadeVolume::default() })).boxed()
    }

    fn validate<'a>(&'a self, volume: &'a KnownVolume) -> BoxFuture<'a, Result<(), PluginError>> {
        tracing::debug!(volume = volume.external_id, "a simulated volume is confirmed");
        self.call(|| Ok(())).boxed()
    }

    fn delete<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        self.call(|| {
            self.cloud.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&volume.external_id);
            Ok(())
        })
        .boxed()
    }

    fn expand<'a>(&'a self, volume: &'a VolumeUse, to: (i64, i64)) -> BoxFuture<'a, Result<i64, PluginError>> {
        tracing::debug!(volume = volume.external_id, "a simulated volume grows");
        self.call(move || Ok(to.0)).boxed()
    }
}
