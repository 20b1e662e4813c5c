//! What is mounted for whom. A record is on disk before a driver is called, so that what an earlier life began is found
//! and ended.
//!
//! Volumes are mounted by the runners of their allocations, one operation of a volume at a time. They are unmounted
//! here, again and again until it works, whether or not a runner is left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::allocation::{VolumeState, VolumeStatus};
use drover_api::client_node::{CsiAnswer, CsiInfo, CsiRequest};
use drover_api::csi_volume::{AccessMode, AttachmentMode, PluginSource};
use drover_api::volume_request::VolumeRequest;
use drover_api::{message, names};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::claim::{self, Granted};
use super::kubelet;
use super::objects::VolumeObjects;
use super::plugin::{ErrorKind, How, PluginError, VolumeUse, undone};
use super::registry::{Instance, Registry};
use super::tasks::PluginTask;
use super::{CsiPrint, answers};
use crate::node::disk::Disk;
use crate::reporting::events::{NodeEvents, Reason};
use crate::state::StateStore;
use crate::watch;
use drover_clock::sleep_until;

/// How long a plugin that is not up is waited for.
const PLUGIN_WAIT: Duration = Duration::from_secs(30);
/// First and longest pause before an unmount that failed is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));

/// What is kept of a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MountRecord {
    namespace: String,
    /// The volume's id.
    volume_id: String,
    plugin: String,
    external_id: String,
    read_only: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    access_mode: Option<AccessMode>,
    attachment_mode: AttachmentMode,
    /// Where stage and target lie, for a driver that does not see the agent's own folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root: Option<PathBuf>,
    /// All of it was done.
    is_mounted: bool,
}

/// The mounts of all allocations: by uid, then by the name of the volume in its group.
pub(crate) type Mounts = BTreeMap<String, BTreeMap<String, MountRecord>>;

#[derive(Clone, Debug)]
struct Mount {
    record: MountRecord,
    /// It is to be unmounted.
    is_over: bool,
    is_busy: bool,
    error: String,
    n_failed: u32,
    retry_at: Option<Instant>,
}

impl Mount {
    fn new(record: MountRecord) -> Self {
        Self { record, is_over: false, is_busy: false, error: String::new(), n_failed: 0, retry_at: None }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.is_over && !self.is_busy && self.retry_at.is_none_or(|at| at <= now)
    }
}

/// An allocation's uid and the name of the volume in its group.
type MountKey = (String, String);

/// Held while a volume, or a plugin's controller, is worked with.
type OperationLock = Arc<tokio::sync::Mutex<()>>;

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
}

/// The volumes of this node; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Csi(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) root: PathBuf,
    state: StateStore,
    disk: Arc<dyn Disk>,
    pub(super) objects: Arc<dyn VolumeObjects>,
    events: NodeEvents,
    mounts: Mutex<BTreeMap<MountKey, Mount>>,
    /// Told when a mount has changed.
    changed: watch::Sender<u64>,
    pub(super) plugins: Mutex<Registry>,
    /// Told when a plugin comes, goes or changes its health.
    pub(super) plugins_changed: watch::Sender<u64>,
    /// Tasks that are plugins and are to be followed.
    pub(super) begun: Mutex<Vec<PluginTask>>,
    locks: Mutex<BTreeMap<(String, String), OperationLock>>,
    print: watch::Sender<CsiPrint>,
    requests: watch::Sender<BTreeMap<String, CsiRequest>>,
    wake: Notify,
    kubelet_dir: Option<PathBuf>,
    /// Plugins of the cluster beside which a task runs the same; people were told.
    pub(super) doubled: Mutex<BTreeSet<String>>,
}

/// Something that was under way.
pub(super) enum Done {
    Unmounted(MountKey, Result<(), String>),
    Answered(String, Box<CsiAnswer>),
    Followed,
}

impl Csi {
    /// Knows no plugin yet.
    pub(crate) fn new(parts: CsiParts) -> Self {
        let mounts = parts.saved.into_iter().flat_map(|(uid, volumes)| {
            volumes.into_iter().map(move |(name, record)| ((uid.clone(), name), Mount::new(record)))
        });
        Self(Arc::new(Shared {
            root: parts.root,
            state: parts.state,
            disk: parts.disk,
            objects: parts.objects,
            events: parts.events,
            mounts: Mutex::new(mounts.collect()),
            changed: watch::Sender::new(0),
            plugins: Mutex::default(),
            plugins_changed: watch::Sender::new(0),
            begun: Mutex::default(),
            locks: Mutex::default(),
            print: watch::Sender::new(CsiPrint::default()),
            requests: watch::Sender::new(BTreeMap::new()),
            wake: Notify::new(),
            kubelet_dir: parts.kubelet_dir,
            doubled: Mutex::default(),
        }))
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

    /// Follows plugins, unmounts what is over and answers the controller, for ever.
    pub(crate) async fn run(self) {
        let mut under_way = JoinSet::new();
        let mut requests = self.0.requests.subscribe();
        requests.mark_changed();
        let mut answering = BTreeSet::new();
        if let Some(dir) = self.0.kubelet_dir.clone() {
            let csi = self.clone();
            under_way.spawn(async move {
                csi.follow_kubelet(&dir).await;
                Done::Followed
            });
        }
        loop {
            self.start_unmounts(&mut under_way);
            for task in std::mem::take(&mut *lock(&self.0.begun)) {
                let csi = self.clone();
                under_way.spawn(async move {
                    csi.follow_plugin(task).await;
                    Done::Followed
                });
            }
            tokio::select! {
                biased;
                Some(done) = under_way.join_next() => match done {
                    Ok(Done::Unmounted(key, result)) => self.note_unmount(&key, result).await,
                    Ok(Done::Answered(name, answer)) => {
                        answering.remove(&name);
                        // Who has taken the request back does not read the answer.
                        if requests.borrow().contains_key(&name) {
                            self.publish(|print| drop(print.answers.insert(name, *answer)));
                        }
                    }
                    Ok(Done::Followed) => {}
                    Err(error) => tracing::error!(error = %error, "a part of the volumes' work broke off"),
                },
                Ok(()) = requests.changed() => {
                    let wanted = requests.borrow_and_update().clone();
                    self.publish(|print| print.answers.retain(|name, _| wanted.contains_key(name)));
                    let known = self.0.print.subscribe();
                    for (name, request) in wanted {
                        if !known.borrow().answers.contains_key(&name) && answering.insert(name.clone()) {
                            let csi = self.clone();
                            under_way.spawn(async move {
                                let answer = answers::answer(&csi, &request).await;
                                Done::Answered(name, Box::new(answer))
                            });
                        }
                    }
                }
                () = self.0.wake.notified() => {}
                () = sleep_until(self.next_retry()) => {}
            }
        }
    }

    /// Waits until the allocation may mount a volume that it requests.
    pub(crate) async fn claimed(
        &self,
        namespace: &str,
        uid: &str,
        volume_id: &str,
        request: &VolumeRequest,
    ) -> Result<Granted, String> {
        let volumes = self.0.objects.follow(namespace.to_owned(), volume_id.to_owned());
        claim::wait(volumes, uid, volume_id, request).await
    }

    /// Where a volume is that an earlier life has mounted and that is mounted still.
    pub(crate) fn mounted(&self, uid: &str, name: &str) -> Option<PathBuf> {
        let record = self.record(uid, name).filter(|record| record.is_mounted)?;
        let target = self.target(&record, uid);
        self.0.disk.is_mount(&target).then_some(target)
    }

    /// Mounts a volume for an allocation; returns where.
    pub(crate) async fn mount(&self, uid: &str, name: &str, granted: &Granted) -> Result<PathBuf, String> {
        let mounted = self.try_mount(uid, name, granted).await;
        let of = format!("volume {}/{} for allocation {uid}", granted.namespace, granted.volume_id);
        match &mounted {
            Ok(_) => self.0.events.emit(Reason::VolumeMounted, format!("{of} is mounted")),
            Err(error) => self.0.events.emit(Reason::MountFailed, format!("{of} is not mounted: {error}")),
        }
        mounted
    }

    async fn try_mount(&self, uid: &str, name: &str, granted: &Granted) -> Result<PathBuf, String> {
        let plugin = self.wait_for_plugin(&granted.plugin).await?;
        // What an earlier try has begun elsewhere is ended there.
        let root = self.record(uid, name).map_or_else(|| self.root_for(&plugin), |known| known.root);
        let record = MountRecord {
            namespace: granted.namespace.clone(),
            volume_id: granted.volume_id.clone(),
            plugin: granted.plugin.clone(),
            external_id: granted.external_id.clone(),
            read_only: granted.how.is_read_only,
            access_mode: granted.how.access_mode,
            attachment_mode: granted.how.attachment_mode,
            root,
            is_mounted: false,
        };
        let secrets = match &granted.secret {
            Some(secret) => self.0.objects.secret(granted.namespace.clone(), secret.clone()).await?,
            None => BTreeMap::new(),
        };
        let lock = self.volume_lock(&record);
        let _turn = lock.lock().await;
        let key = (uid.to_owned(), name.to_owned());
        lock_mounts(&self.0).insert(key.clone(), Mount::new(record.clone()));
        self.keep().await?;
        let volume = VolumeUse {
            context: granted.context.clone(),
            publish_context: granted.publish_context.clone(),
            how: granted.how.clone(),
            secrets,
            ..self.volume_use(&record, uid)
        };
        let mut done = self.stage_and_publish(&plugin, &record, &volume).await;
        if self.is_cut_off(&plugin, &done) {
            let next = self.wait_for_plugin(&granted.plugin).await?;
            done = self.stage_and_publish(&next, &record, &volume).await;
        }
        done.map_err(|error| error.to_string())?;
        if let Some(mount) = lock_mounts(&self.0).get_mut(&key) {
            mount.record.is_mounted = true;
        }
        self.keep().await?;
        self.tell();
        Ok(volume.target)
    }

    async fn stage_and_publish(
        &self,
        plugin: &Instance,
        record: &MountRecord,
        volume: &VolumeUse,
    ) -> Result<(), PluginError> {
        if plugin.facts.stages() && !self.0.disk.is_mount(&volume.staging) {
            self.make_dir(record, &volume.staging)?;
            plugin.plugin.stage(volume).await?;
        }
        if !self.0.disk.is_mount(&volume.target) {
            if let Some(parent) = volume.target.parent() {
                self.make_dir(record, parent)?;
            }
            plugin.plugin.publish(volume).await?;
        }
        // A driver in a pod may mount where nobody else sees it, and the task would write into an empty directory.
        let is_seen = record.attachment_mode == AttachmentMode::BlockDevice || self.0.disk.is_mount(&volume.target);
        if record.root.is_some() && !is_seen {
            let reason = format!(
                "driver {} says that the volume is published, and nothing is mounted at {}; its pod must have the kubelet's folder plugins mounted with mountPropagation Bidirectional",
                record.plugin,
                volume.target.display()
            );
            return Err(PluginError { reason, kind: ErrorKind::Final });
        }
        Ok(())
    }

    fn make_dir(&self, record: &MountRecord, path: &Path) -> Result<(), PluginError> {
        let failed = |error: std::io::Error| PluginError {
            reason: format!("{} cannot be made: {error}", path.display()),
            kind: ErrorKind::Retryable,
        };
        let disk = &self.0.disk;
        if record.root.is_some() { disk.make_private_dir(path) } else { disk.make_dir(path) }.map_err(failed)
    }

    /// Where a plugin's stages and targets lie, if not in the agent's own folder.
    fn root_for(&self, plugin: &Instance) -> Option<PathBuf> {
        match plugin.info.source {
            PluginSource::Job => None,
            PluginSource::Kubelet => self.0.kubelet_dir.as_deref().map(kubelet::root),
        }
    }

    /// The plugin that has mounted what a record is about, else one with the same id.
    fn plugin_of(&self, record: &MountRecord) -> Option<Instance> {
        let source = if record.root.is_some() { PluginSource::Kubelet } else { PluginSource::Job };
        let same = self.find_plugin(&record.plugin, |info| info.node && info.source == source);
        same.or_else(|| self.find_plugin(&record.plugin, |info| info.node))
    }

    /// Nothing of the allocation uses its volumes any more.
    pub(crate) fn release(&self, uid: &str) {
        self.end(|of| of == uid);
    }

    /// What belongs to no allocation of this node is unmounted.
    pub(crate) fn release_all_but(&self, is_known: impl Fn(&str) -> bool) {
        self.end(|uid| !is_known(uid));
    }

    fn end(&self, is_over: impl Fn(&str) -> bool) {
        let mut has_ended = false;
        for ((uid, _), mount) in lock_mounts(&self.0).iter_mut().filter(|(_, mount)| !mount.is_over) {
            mount.is_over = is_over(uid);
            has_ended |= mount.is_over;
        }
        if has_ended {
            self.wake();
        }
    }

    /// Waits until nothing is mounted for the allocation any more.
    pub(crate) async fn cleared(&self, uid: &str) {
        let mut changed = self.0.changed.subscribe();
        changed.mark_changed();
        while !self.is_clear(uid) && changed.changed().await.is_ok() {}
    }

    /// Whether nothing is mounted for the allocation.
    pub(crate) fn is_clear(&self, uid: &str) -> bool {
        !lock_mounts(&self.0).keys().any(|(of, _)| of == uid)
    }

    /// How a volume of an allocation fares; none where nothing was mounted, or is any more.
    pub(crate) fn status(&self, uid: &str, name: &str) -> Option<VolumeStatus> {
        let mounts = lock_mounts(&self.0);
        let mount = mounts.get(&(uid.to_owned(), name.to_owned()))?;
        let state = match (mount.record.is_mounted, mount.error.is_empty()) {
            (_, false) => VolumeState::UnmountFailed,
            (true, true) => VolumeState::Mounted,
            (false, true) => VolumeState::Pending,
        };
        let error = message::cut(&mount.error);
        Some(VolumeStatus { volume_id: mount.record.volume_id.clone(), state, error })
    }

    fn record(&self, uid: &str, name: &str) -> Option<MountRecord> {
        lock_mounts(&self.0).get(&(uid.to_owned(), name.to_owned())).map(|mount| mount.record.clone())
    }

    fn start_unmounts(&self, under_way: &mut JoinSet<Done>) {
        let now = Instant::now();
        for (key, mount) in lock_mounts(&self.0).iter_mut().filter(|(_, mount)| mount.is_due(now)) {
            mount.is_busy = true;
            let (csi, key, record) = (self.clone(), key.clone(), mount.record.clone());
            under_way.spawn(async move {
                let result = csi.unmount(&key, &record).await;
                Done::Unmounted(key, result)
            });
        }
    }

    fn next_retry(&self) -> Option<Instant> {
        let mounts = lock_mounts(&self.0);
        mounts.values().filter(|mount| mount.is_over && !mount.is_busy).filter_map(|mount| mount.retry_at).min()
    }

    /// A plugin is there again: what it is to unmount waits no longer.
    pub(super) fn unmount_now(&self, plugin: &str) {
        for mount in lock_mounts(&self.0).values_mut().filter(|mount| mount.record.plugin == plugin) {
            mount.retry_at = None;
        }
        self.wake();
    }

    async fn note_unmount(&self, key: &MountKey, result: Result<(), String>) {
        let is_done = result.is_ok();
        if let Some(mount) = lock_mounts(&self.0).get_mut(key) {
            mount.is_busy = false;
            if let Err(error) = &result {
                tracing::warn!(
                    allocation = key.0,
                    volume = mount.record.volume_id,
                    error,
                    "a volume is not unmounted yet"
                );
                let pause = PAUSES.0 * 2_u32.saturating_pow(mount.n_failed.min(5));
                mount.retry_at = Some(Instant::now() + pause.min(PAUSES.1));
                mount.n_failed += 1;
                mount.error.clone_from(error);
            }
        }
        if is_done && let Err(error) = self.keep().await {
            tracing::error!(error, allocation = key.0, "an unmounted volume is still in the state file");
        }
        self.tell();
    }

    /// Unpublishes, and unstages what nobody else on this node uses in the same way.
    async fn unmount(&self, key: &MountKey, record: &MountRecord) -> Result<(), String> {
        let lock = self.volume_lock(record);
        let _turn = lock.lock().await;
        let plugin = self.plugin_of(record);
        let done = self.unmount_by(plugin.as_ref(), key, record).await;
        let next = plugin.filter(|plugin| self.is_cut_off(plugin, &done)).and_then(|_| self.plugin_of(record));
        let done = if next.is_some() { self.unmount_by(next.as_ref(), key, record).await } else { done };
        let done = done.map_err(|error| error.to_string());
        self.tell_of_unmount(key, record, &done);
        done
    }

    /// Tells people how an unmount went; of one that fails again and again with the same words once.
    fn tell_of_unmount(&self, (uid, name): &MountKey, record: &MountRecord, done: &Result<(), String>) {
        let of = format!("volume {}/{} for allocation {uid}", record.namespace, record.volume_id);
        match done {
            Ok(()) => self.0.events.emit(Reason::VolumeUnmounted, format!("{of} is unmounted")),
            Err(error) if self.status(uid, name).is_some_and(|known| known.error == *error) => {}
            Err(error) => self.0.events.emit(Reason::UnmountFailed, format!("{of} is not unmounted yet: {error}")),
        }
    }

    async fn unmount_by(
        &self,
        plugin: Option<&Instance>,
        key: &MountKey,
        record: &MountRecord,
    ) -> Result<(), PluginError> {
        let failed = |reason| PluginError { reason, kind: ErrorKind::Retryable };
        let volume = self.volume_use(record, &key.0);
        let is_mounted = self.0.disk.is_mount(&volume.target);
        let is_shared = self.is_shared(key, record);
        let is_staged = !is_shared && self.0.disk.is_mount(&volume.staging);
        let Some(plugin) = plugin else {
            if !is_mounted && !is_staged && !record.is_mounted {
                lock_mounts(&self.0).remove(key);
                return Ok(());
            }
            return Err(failed(format!(
                "plugin {} does not run on this node; run its job, or the cluster's driver of this name, here again",
                record.plugin
            )));
        };
        let remove =
            |path: &Path| self.0.disk.remove(path).map_err(|error| failed(format!("{}: {error}", path.display())));
        undone(plugin.plugin.unpublish(&volume).await)?;
        remove(&volume.target)?;
        if !is_shared && plugin.facts.stages() {
            undone(plugin.plugin.unstage(&volume).await)?;
            remove(&volume.staging)?;
        }
        // Before another one's turn, which would leave the stage to this one.
        lock_mounts(&self.0).remove(key);
        Ok(())
    }

    /// Makes the mount of an allocation follow its volume, which was made larger. What is not mounted need not follow.
    pub(super) async fn expand_mount(
        &self,
        request: &CsiRequest,
        volume_id: &str,
        secrets: BTreeMap<String, String>,
    ) -> Result<(), PluginError> {
        let record = {
            let mounts = lock_mounts(&self.0);
            let is_it = |(key, mount): &(&MountKey, &Mount)| {
                key.0 == request.alloc_id && mount.record.volume_id == volume_id && mount.record.is_mounted
            };
            mounts.iter().find(is_it).map(|(_, mount)| mount.record.clone())
        };
        let Some(record) = record else { return Ok(()) };
        let missing = |reason| PluginError { reason, kind: ErrorKind::Retryable };
        let plugin = self.wait_for_plugin(&record.plugin).await.map_err(missing)?;
        if !plugin.facts.expands() {
            return Ok(());
        }
        let lock = self.volume_lock(&record);
        let _turn = lock.lock().await;
        let volume = VolumeUse { secrets, ..self.volume_use(&record, &request.alloc_id) };
        let to = (request.required_bytes.unwrap_or(0), request.limit_bytes.unwrap_or(0));
        plugin.plugin.expand_mount(&volume, to).await
    }

    /// Unmounts what an allocation has left of which nobody here knows any more.
    pub(super) async fn unmount_stranger(
        &self,
        uid: &str,
        request: &CsiRequest,
        volume_id: &str,
    ) -> Result<(), String> {
        let known: Vec<MountKey> = {
            let mounts = lock_mounts(&self.0);
            let is_it = |(key, mount): &(&MountKey, &Mount)| key.0 == uid && mount.record.volume_id == volume_id;
            mounts.iter().filter(is_it).map(|(key, _)| key.clone()).collect()
        };
        if !known.is_empty() {
            self.release(uid);
            self.cleared(uid).await;
            return Ok(());
        }
        let record = MountRecord {
            namespace: request.namespace.clone(),
            volume_id: volume_id.to_owned(),
            plugin: request.plugin_id.clone(),
            external_id: request.external_id.clone(),
            read_only: request.read_only,
            access_mode: request.access_mode,
            attachment_mode: request.attachment_mode.unwrap_or_default(),
            root: None,
            is_mounted: false,
        };
        let record = self.where_it_is(record, uid);
        self.unmount(&(uid.to_owned(), String::new()), &record).await
    }

    /// The record of what nobody remembers, with the place where it is: that of its plugin, or where something is
    /// mounted.
    fn where_it_is(&self, record: MountRecord, uid: &str) -> MountRecord {
        let root = self.0.kubelet_dir.as_deref().map(kubelet::root);
        let at_kubelet = MountRecord { root, ..record.clone() };
        let is_there = match self.find_plugin(&record.plugin, |info| info.node) {
            Some(plugin) => plugin.info.source == PluginSource::Kubelet,
            None => self.0.disk.is_mount(&self.target(&at_kubelet, uid)),
        };
        if is_there { at_kubelet } else { record }
    }

    /// Whether another allocation here uses the same volume in the same way.
    fn is_shared(&self, key: &MountKey, record: &MountRecord) -> bool {
        let staging = self.staging(record);
        let mounts = lock_mounts(&self.0);
        mounts.iter().any(|(other, mount)| other != key && self.staging(&mount.record) == staging)
    }

    fn volume_use(&self, record: &MountRecord, uid: &str) -> VolumeUse {
        VolumeUse {
            external_id: record.external_id.clone(),
            staging: self.staging(record),
            target: self.target(record, uid),
            how: How {
                is_read_only: record.read_only,
                access_mode: record.access_mode,
                attachment_mode: record.attachment_mode,
                ..How::default()
            },
            ..VolumeUse::default()
        }
    }

    fn plugin_root(&self, record: &MountRecord) -> PathBuf {
        record.root.as_ref().unwrap_or(&self.0.root).join(names::object_name(&record.plugin))
    }

    fn staging(&self, record: &MountRecord) -> PathBuf {
        let root = self.plugin_root(record).join("staging").join(&record.namespace);
        root.join(names::object_name(&record.volume_id)).join(usage(record))
    }

    fn target(&self, record: &MountRecord, uid: &str) -> PathBuf {
        let root = self.plugin_root(record).join("per-alloc").join(uid);
        root.join(names::object_name(&record.volume_id)).join(usage(record))
    }

    /// One operation of a volume at a time on this node.
    fn volume_lock(&self, record: &MountRecord) -> OperationLock {
        self.lock_of((record.namespace.clone(), record.volume_id.clone()))
    }

    /// One call of a plugin's controller at a time on this node.
    pub(super) fn controller_lock(&self, plugin: &str) -> OperationLock {
        self.lock_of((String::new(), plugin.to_owned()))
    }

    fn lock_of(&self, of: (String, String)) -> OperationLock {
        let mut locks = lock(&self.0.locks);
        // Whoever holds one has a clone of it.
        locks.retain(|_, known| Arc::strong_count(known) > 1);
        Arc::clone(locks.entry(of).or_default())
    }

    /// Whether a call was of no use because the driver ended in the middle of it. CSI lets every call be made again,
    /// and the next life of the driver may be asked at once.
    pub(super) fn is_cut_off<T>(&self, plugin: &Instance, done: &Result<T, PluginError>) -> bool {
        let runs = || lock(&self.0.plugins).runs(&plugin.plugin);
        done.as_ref().is_err_and(|error| error.kind == ErrorKind::Retryable) && !runs()
    }

    async fn wait_for_plugin(&self, id: &str) -> Result<Instance, String> {
        let in_time = self.wait_for_half(id, |info| info.node, PLUGIN_WAIT).await;
        in_time.ok_or_else(|| {
            format!(
                "plugin {id} is not healthy on this node within {PLUGIN_WAIT:?}; look at its job, or at the cluster's driver of this name"
            )
        })
    }

    /// A healthy plugin with the half that is asked for, once there is one.
    pub(super) async fn wait_for_half(
        &self,
        id: &str,
        has_half: impl Fn(&CsiInfo) -> bool,
        longest: Duration,
    ) -> Option<Instance> {
        let found = async {
            let mut changed = self.0.plugins_changed.subscribe();
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

    async fn keep(&self) -> Result<(), String> {
        let mut saved = Mounts::new();
        for ((uid, name), mount) in &*lock_mounts(&self.0) {
            saved.entry(uid.clone()).or_default().insert(name.clone(), mount.record.clone());
        }
        self.0.state.put_mounts(&saved).await.map_err(|error| error.to_string())
    }

    fn tell(&self) {
        self.0.changed.send_modify(|n| *n += 1);
    }
}

fn usage(record: &MountRecord) -> String {
    let access = record.access_mode.map_or("any", AccessMode::as_str);
    format!("{}-{}-{access}", if record.read_only { "ro" } else { "rw" }, record.attachment_mode)
}

fn lock_mounts(shared: &Shared) -> MutexGuard<'_, BTreeMap<MountKey, Mount>> {
    lock(&shared.mounts)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Csi {
    /// The plugin that serves here, of those with the half that is asked for.
    pub(super) fn find_plugin(&self, id: &str, has_half: impl Fn(&CsiInfo) -> bool) -> Option<Instance> {
        lock(&self.0.plugins).find(id, has_half).cloned()
    }
}
