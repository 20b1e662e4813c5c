//! A task that is a CSI plugin: where its socket is, and how it fares.

use std::mem;
use std::path::{Path, PathBuf};

use drover_api::names;
use drover_api::task::CsiPlugin;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::watch;

/// How a plugin's task fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PluginHealth {
    /// It has not answered yet.
    Starting,
    /// It answers.
    Healthy,
    /// It answers no more, or says that it is not well; with its words.
    Unhealthy(String),
    /// It was not up in time, and that is how this run of the task ends; with what is wrong.
    NeverUp(String),
}

/// A run of a task that is a plugin; it is over when this is dropped.
#[derive(Debug)]
pub(crate) struct PluginRun {
    /// How it fares.
    pub(crate) health: watch::Receiver<PluginHealth>,
    _over: DropGuard,
}

impl PluginRun {
    /// A run that is over when `over` is dropped.
    pub(super) fn new(health: watch::Receiver<PluginHealth>, over: DropGuard) -> Self {
        Self { health, _over: over }
    }
}

/// A task that is a plugin.
#[derive(Debug)]
pub(crate) struct PluginTask {
    pub(super) uid: String,
    pub(super) task: String,
    pub(super) plugin: CsiPlugin,
    pub(super) socket: PathBuf,
    /// It has been up in this run, in an earlier life of the agent.
    pub(super) was_up: bool,
    pub(super) health: watch::Sender<PluginHealth>,
    /// Ends with the run of the task.
    pub(super) over: CancellationToken,
}

impl PluginTask {
    /// By what it is told from others of its name: the tasks of one allocation may be the two halves of a driver.
    pub(super) fn runner(&self) -> String {
        format!("{}/{}", self.uid, self.task)
    }

    /// Tells how it fares. That its words differ from time to time is no news.
    pub(super) fn note(&self, health: PluginHealth) {
        if mem::discriminant(&*self.health.borrow()) == mem::discriminant(&health) {
            return;
        }
        if let PluginHealth::Unhealthy(error) | PluginHealth::NeverUp(error) = &health {
            tracing::warn!(plugin = self.plugin.id, error, "a CSI plugin is not well");
        }
        self.health.send_replace(health);
    }
}

/// The socket of a plugin's task: short, because the address of a socket has room for 108 bytes.
pub(crate) fn endpoint(root: &Path, uid: &str, task: &str) -> PathBuf {
    root.join("sock").join(names::hex(&digest(uid, task))).join("csi.sock")
}

fn digest(uid: &str, task: &str) -> [u8; 8] {
    use sha2::{Digest, Sha256};
    let whole = Sha256::digest([uid, task].join("/").as_bytes());
    std::array::from_fn(|n| whole[n])
}
