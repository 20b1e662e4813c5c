//! The containers of the node: which of them belong to tasks that are known, whether containerd works, and what is
//! taken away.
//!
//! A container that is held belongs to a task that is being started, runs, or has ended and is not forgotten. All
//! others of our namespace are what a crash has left, or what could not be taken away while containerd was down.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use drover_api::client_node::DriverInfo;
use drover_containerd::api::task::Status;
use drover_containerd::{CallError, Containerd};
use drover_supervisor::protocol::LogSpec;
use tokio::sync::{Notify, mpsc};

use super::maker::Maker;
use super::node_images::NodeImages;
use super::settings::ContainerSettings;
use crate::config::Enabled;
use crate::turns::Turns;
use crate::watch;

/// containerd's namespace of everything that is drover's.
const NAMESPACE: &str = "drover.dev";
/// Ended containers that wait for being taken away; more are found by the next look for leftovers.
const DISCARDS: usize = 1024;
/// Says of a container which task's it is.
pub(super) const OF_TASK: &str = "drover.dev/task-id";
/// Keeps containerd from collecting a snapshot before its container is written down.
pub(super) const ROOT: &str = "containerd.io/gc.root";

/// The containers of the node.
#[derive(Debug)]
pub(crate) struct NodeContainers {
    pub(super) api: Containerd,
    pub(super) settings: ContainerSettings,
    pub(super) images: NodeImages,
    pub(super) maker: Maker,
    /// By id.
    held: Mutex<BTreeSet<String>>,
    discards: mpsc::Sender<String>,
    /// Keep starts of an allocation's containers and their removals apart: the process that looks after them must not
    /// end with the last one while it is asked for the next one. Starts share a turn, a removal takes it.
    pub(super) turns: Turns,
    /// Whether containerd works; counts its changes.
    state: watch::Sender<ContainerdState>,
    pub(super) wakes_sweep: Notify,
}

/// What is known of containerd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ContainerdState {
    /// It has never answered.
    #[default]
    Absent,
    /// It works, in this version.
    Works(String),
    /// It has answered before, or should, and does not work.
    Ill(String),
}

/// Ended containers on their way out.
pub(crate) type Discards = mpsc::Receiver<String>;

impl NodeContainers {
    /// The containers of the node's containerd, and those of them that are to be taken away.
    ///
    /// # Errors
    /// When the settings name no containerd.
    pub(crate) fn new(settings: ContainerSettings) -> Result<(Self, Discards), CallError> {
        let api = Containerd::new(&settings.address, NAMESPACE)?;
        let (discards, queue) = mpsc::channel(DISCARDS);
        let images = NodeImages::new(api.clone(), &settings);
        let maker = Maker::new(&settings.address, NAMESPACE, &settings.cgroup_base, settings.orders.clone());
        let node = Self {
            api,
            settings,
            images,
            maker,
            held: Mutex::default(),
            discards,
            turns: Turns::default(),
            state: watch::Sender::new(ContainerdState::default()),
            wakes_sweep: Notify::new(),
        };
        Ok((node, queue))
    }

    /// Asks containerd whether it works. Returns whether it does again, after it did not.
    pub(crate) async fn probe(&self) -> bool {
        if self.settings.enabled == Enabled::No {
            return false;
        }
        let version = self.api.version().await;
        let was = self.state.borrow().clone();
        let is = match version {
            Ok(version) => match self.images.is_unpacked("drover-probe").await {
                Ok(_) => ContainerdState::Works(version),
                Err(error) => ContainerdState::Ill(error.to_string()),
            },
            Err(_) if was == ContainerdState::Absent && self.settings.enabled == Enabled::Auto => was.clone(),
            Err(error) => {
                let address = self.settings.address.display();
                ContainerdState::Ill(format!("containerd does not answer at {address}: {error}"))
            }
        };
        if is == was {
            return false;
        }
        let works = matches!(is, ContainerdState::Works(_));
        match &is {
            ContainerdState::Ill(reason) => tracing::warn!(reason, "containerd does not work"),
            ContainerdState::Works(version) => tracing::info!(version, "containerd works"),
            ContainerdState::Absent => {}
        }
        self.state.send_replace(is);
        works
    }

    /// Changes when containerd begins or ceases to work.
    pub(crate) fn news(&self) -> watch::Receiver<ContainerdState> {
        self.state.subscribe()
    }

    /// Whether the node has the driver and whether it works.
    pub(super) fn fingerprint(&self, driver: &str) -> DriverInfo {
        let is_root = rustix::process::geteuid().is_root();
        let state = self.state.borrow().clone();
        let is_there = self.settings.enabled == Enabled::Yes || state != ContainerdState::Absent;
        let detected = self.settings.enabled != Enabled::No && is_there && is_root;
        let (healthy, description) = match (self.unusable(), &state) {
            (Some(reason), _) => (false, reason),
            (None, ContainerdState::Works(_)) => (true, String::new()),
            (None, ContainerdState::Ill(reason)) => (false, reason.clone()),
            (None, ContainerdState::Absent) => {
                (false, format!("containerd does not listen at {}", self.settings.address.display()))
            }
        };
        let mut attributes = BTreeMap::new();
        if let (true, ContainerdState::Works(version)) = (detected, &state) {
            attributes.insert(format!("driver.{driver}.version"), version.trim_start_matches('v').to_owned());
        }
        DriverInfo { detected, healthy: detected && healthy, description, attributes }
    }

    /// Why no container can be started here, whatever containerd says; none: one can.
    pub(super) fn unusable(&self) -> Option<String> {
        if self.settings.enabled == Enabled::No {
            return Some("driver containerd is disabled on this node: set drivers.containerd.enabled".to_owned());
        }
        if !rustix::process::geteuid().is_root() {
            return Some("the agent is not root".to_owned());
        }
        self.settings.unfit.clone()
    }

    /// The container belongs to a task.
    pub(super) fn hold(&self, id: &str) {
        self.lock().insert(id.to_owned());
    }

    /// The container belongs to no task any more, and is to be taken away.
    pub(super) fn discard(&self, id: &str) {
        self.lock().remove(id);
        if let Err(error) = self.discards.try_send(id.to_owned()) {
            tracing::debug!(error = %error, container = id, "the next look for leftovers takes it away");
        }
    }

    /// Takes away a container, whatever it does, when nothing makes its first process any more: what begins after its
    /// record is gone would stay. What is gone is taken away.
    ///
    /// # Errors
    /// When containerd refuses or does not answer.
    pub(super) async fn remove(&self, id: &str) -> Result<(), CallError> {
        let _alone = self.turns.take(id.rsplit_once('-').map_or(id, |(allocation, _)| allocation)).await;
        self.maker.settled(id).await;
        if let Some(process) = self.api.task(id).await? {
            if process.status != i32::from(Status::Stopped) {
                self.api.kill_task(id, 9).await?;
                self.api.wait_task(id).await?;
            }
            self.api.delete_task(id).await?;
        }
        self.api.delete_container(id).await?;
        self.api.remove_snapshot(&self.settings.snapshotter, id).await
    }

    /// Takes away every container and snapshot of ours that belongs to no task.
    ///
    /// # Errors
    /// When containerd does not answer.
    pub(super) async fn sweep(&self) -> Result<(), CallError> {
        let containers = self.api.containers().await?;
        let snapshots = self.api.snapshots(&self.settings.snapshotter, OF_TASK).await?;
        let ours = containers.into_iter().filter(|it| it.labels.contains_key(OF_TASK)).map(|it| it.id);
        for id in ours.chain(snapshots).collect::<BTreeSet<String>>() {
            if self.lock().contains(&id) {
                continue;
            }
            match self.remove(&id).await {
                Ok(()) => tracing::info!(container = id, "a container that no task has was taken away"),
                Err(error) => tracing::warn!(error = %error, container = id, "a container that no task has is left"),
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a container's labels say of its task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ContainerLabels {
    /// The task's id.
    pub(super) id: String,
    pub(super) logs: Option<LogSpec>,
    pub(super) kill_timeout_ms: u64,
}

const LOGS: &str = "drover.dev/logs";
const KILL_TIMEOUT: &str = "drover.dev/kill-timeout-ms";

impl ContainerLabels {
    /// As labels.
    pub(super) fn write(&self) -> Result<BTreeMap<String, String>, serde_json::Error> {
        let mut labels = BTreeMap::from([
            (OF_TASK.to_owned(), self.id.clone()),
            (KILL_TIMEOUT.to_owned(), self.kill_timeout_ms.to_string()),
        ]);
        if let Some(logs) = &self.logs {
            labels.insert(LOGS.to_owned(), serde_json::to_string(logs)?);
        }
        Ok(labels)
    }

    /// Of labels; none: it is no task's container.
    pub(super) fn read(labels: &std::collections::HashMap<String, String>) -> Option<Self> {
        let id = labels.get(OF_TASK)?.clone();
        let logs = labels.get(LOGS).and_then(|text| serde_json::from_str(text).ok());
        let kill_timeout_ms = labels.get(KILL_TIMEOUT).and_then(|text| text.parse().ok()).unwrap_or(0);
        Some(Self { id, logs, kill_timeout_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::tests::settings;
    use super::*;

    #[tokio::test]
    async fn b_023_a_node_without_containerd_has_no_driver_unless_it_should() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |enabled| {
            let mut settings = settings();
            (settings.address, settings.enabled) = (dir.path().join("none.sock"), enabled);
            NodeContainers::new(settings).expect("settings").0
        };
        for (enabled, is_detected, said) in [
            (Enabled::Auto, false, "containerd does not listen at"),
            (Enabled::Yes, true, "containerd does not answer at"),
            (Enabled::No, false, "drivers.containerd.enabled"),
        ] {
            let node = at(enabled);
            node.probe().await;
            let info = node.fingerprint("docker");
            let is_root = rustix::process::geteuid().is_root();
            assert_eq!((info.detected, info.healthy), (is_detected && is_root, false), "{enabled:?}");
            assert!(!is_root || info.description.contains(said), "{enabled:?}: {}", info.description);
        }
    }

    #[test]
    fn what_a_crash_leaves_says_whose_it_was() {
        let logs = LogSpec {
            alloc_dir: "/a".into(),
            fifo_dir: "/f".into(),
            task: "t".into(),
            max_files: 3,
            max_file_bytes: 9,
        };
        let labels = ContainerLabels { id: "a/t/1".into(), logs: Some(logs), kill_timeout_ms: 7 };
        let written = labels.write().expect("labels").into_iter().collect();
        assert_eq!(ContainerLabels::read(&written), Some(labels));
        assert_eq!(ContainerLabels::read(&std::collections::HashMap::new()), None);
    }
}
