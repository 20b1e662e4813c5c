//! What the parts of the volumes' work share: the plugins that are there, what is mounted, what the node tells of both.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover_api::client_node::{CsiInfo, CsiRequest};
use drover_seal::NodeKey;
use tokio::sync::Notify;

use super::mount_record::Mounts;
use super::mount_table::MountTable;
use super::objects::VolumeObjects;
use super::operation_locks::{OperationLock, OperationLocks};
use super::plugin::PluginError;
use super::plugin_table::PluginTable;
use super::print::CsiPrint;
use super::registry::Instance;
use crate::node::disk::Disk;
use crate::reporting::events::NodeEvents;
use crate::state::StateStore;
use crate::watch;

/// What the agent's part for volumes is made of.
pub(crate) struct CsiParts {
    /// Where sockets, stages and targets lie.
    pub(crate) root: PathBuf,
    pub(crate) state: StateStore,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) objects: Arc<dyn VolumeObjects>,
    /// Where people are told of mounts.
    pub(crate) events: NodeEvents,
    /// What an earlier life has mounted.
    pub(crate) saved: Mounts,
    /// The kubelet's folder, if drivers of the cluster are used.
    pub(crate) kubelet_dir: Option<PathBuf>,
    /// To which publish contexts are sealed; agents on virtual time have none, and get them as they are.
    pub(crate) key: Option<NodeKey>,
}

/// The volumes of this node; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Csi(pub(super) Arc<PluginsShared>);

#[derive(Debug)]
pub(super) struct PluginsShared {
    pub(super) root: PathBuf,
    pub(super) state: StateStore,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) objects: Arc<dyn VolumeObjects>,
    pub(super) events: NodeEvents,
    pub(super) mounts: MountTable,
    pub(super) plugins: PluginTable,
    pub(super) locks: OperationLocks,
    pub(super) print: watch::Sender<CsiPrint>,
    pub(super) requests: watch::Sender<BTreeMap<String, CsiRequest>>,
    pub(super) wake: Notify,
    pub(super) kubelet_dir: Option<PathBuf>,
    pub(super) key: Option<NodeKey>,
}

impl Csi {
    /// Knows no plugin yet.
    pub(crate) fn new(parts: CsiParts) -> Self {
        Self(Arc::new(PluginsShared {
            root: parts.root,
            state: parts.state,
            disk: parts.disk,
            objects: parts.objects,
            events: parts.events,
            mounts: MountTable::new(parts.saved),
            plugins: PluginTable::default(),
            locks: OperationLocks::default(),
            print: watch::Sender::new(CsiPrint::default()),
            requests: watch::Sender::new(BTreeMap::new()),
            wake: Notify::new(),
            kubelet_dir: parts.kubelet_dir,
            key: parts.key,
        }))
    }

    /// The key to which publish contexts for this node are sealed; empty for none.
    pub(crate) fn sealing_key(&self) -> String {
        self.0.key.as_ref().map(NodeKey::public).unwrap_or_default()
    }

    /// What the node says of its plugins.
    pub(crate) fn print(&self) -> watch::Receiver<CsiPrint> {
        self.0.print.subscribe()
    }

    /// Takes in what the controller asks this node's plugins for.
    pub(crate) fn take_requests(&self, requests: &BTreeMap<String, CsiRequest>) {
        self.0.requests.send_if_modified(|known| {
            let is_other = known != requests;
            if is_other {
                known.clone_from(requests);
            }
            is_other
        });
    }

    /// Changes what the node says.
    pub(super) fn publish(&self, change: impl FnOnce(&mut CsiPrint)) {
        self.0.print.send_if_modified(|print| {
            let before = print.clone();
            change(print);
            *print != before
        });
    }

    pub(super) fn wake(&self) {
        self.0.wake.notify_one();
    }

    /// A plugin is there, or says something new.
    pub(crate) fn put_plugin(&self, id: &str, runner: &str, instance: Instance) {
        let works = self.0.plugins.registry().put(id, runner, instance);
        self.publish_plugins();
        if works {
            self.unmount_now(id);
        }
    }

    fn publish_plugins(&self) {
        let (said, doubled) = {
            let plugins = self.0.plugins.registry();
            (plugins.said(), plugins.doubled().map(str::to_owned).collect::<Vec<_>>())
        };
        for id in &doubled {
            self.tell_of_two(id);
        }
        self.publish(|print| print.plugins = said);
        self.0.plugins.tell();
    }

    /// Says once of a plugin that a task runs what the cluster runs too.
    fn tell_of_two(&self, id: &str) {
        if self.0.plugins.is_first_time_twofold(id) {
            tracing::warn!(
                plugin = id,
                "a job's task and the cluster both run this CSI driver here; the cluster's is used, give csiPlugin.id another name to use the job's"
            );
        }
    }

    /// A plugin is gone.
    pub(super) fn drop_plugin(&self, id: &str, runner: &str) {
        self.0.plugins.registry().remove(id, runner);
        self.publish_plugins();
    }

    /// The plugin that serves here, of those with the half that is asked for.
    pub(super) fn find_plugin(&self, id: &str, has_half: impl Fn(&CsiInfo) -> bool) -> Option<Instance> {
        self.0.plugins.registry().find(id, has_half).cloned()
    }

    /// A healthy plugin with the half that is asked for, once there is one.
    pub(super) async fn wait_for_half(
        &self,
        id: &str,
        has_half: impl Fn(&CsiInfo) -> bool,
        longest: Duration,
    ) -> Option<Instance> {
        let found = async {
            let mut changed = self.0.plugins.changes();
            changed.mark_changed();
            while changed.changed().await.is_ok() {
                let plugin = self.find_plugin(id, &has_half);
                if let Some(plugin) = plugin.filter(|plugin| plugin.info.healthy) {
                    return Some(plugin);
                }
            }
            None
        };
        tokio::time::timeout(longest, found).await.ok().flatten()
    }

    /// Whether a call was of no use because the driver ended in the middle of it. CSI lets every call be made again,
    /// and the next life of the driver may be asked at once.
    pub(super) fn is_disconnected(&self, plugin: &Instance, error: &PluginError) -> bool {
        error.is_retryable() && !self.0.plugins.registry().runs(&plugin.plugin)
    }

    /// One call of a plugin's controller at a time on this node.
    pub(super) fn controller_lock(&self, plugin: &str) -> OperationLock {
        self.0.locks.of_controller(plugin)
    }

    /// A plugin is there again: what it is to unmount waits no longer.
    pub(super) fn unmount_now(&self, plugin: &str) {
        for mount in self.0.mounts.lock().values_mut().filter(|mount| mount.record.plugin == plugin) {
            mount.retry_at = None;
        }
        self.wake();
    }
}
