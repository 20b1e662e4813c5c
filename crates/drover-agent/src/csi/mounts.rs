//! What is mounted for whom. A record is on disk before a driver is called, so that what an earlier life began is found
//! and ended.
//!
//! Volumes are mounted by the runners of their allocations, one operation of a volume at a time. They are unmounted
//! here, again and again until it works, whether or not a runner is left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_api::allocation::{VolumeState, VolumeStatus};
use drover_api::client_node::CsiRequest;
use drover_api::csi_volume::{AccessMode, AttachmentMode, PluginSource};
use drover_api::volume_request::VolumeRequest;
use drover_api::{message, names};
use drover_clock::Backoff;
use drover_core::volume::mount_flags;
use drover_seal::ClaimId;
use tokio::time::Instant;

use super::claim::{self, Granted, PLUGIN_WAIT};
use super::kubelet;
use super::mount_record::{MountRecord, Mounts};
use super::mount_table::{Mount, MountKey};
use super::operation_locks::OperationLock;
use super::plugin::{ErrorKind, How, PluginError, VolumeUse, undone};
use super::registry::Instance;
use super::shared::Csi;
use crate::reporting::events::Reason;

/// How long a request to expand a mount waits for the plugin: then the controller asks again.
const EXPANSION_WAIT: Duration = Duration::from_secs(30);
/// First and longest pause before an unmount that failed is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));

impl Csi {
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
        let deadline = Instant::now() + PLUGIN_WAIT;
        self.tell_of_wait(uid, granted);
        let mut plugin = self.wait_for_plugin(&granted.plugin, deadline).await?;
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
        let mut how = granted.how.clone();
        if granted.takes_own_flags {
            how.mount_flags = mount_flags::filled(&how.mount_flags, &secrets)?;
        }
        let lock = self.volume_lock(&record);
        let _turn = lock.lock().await;
        let key = (uid.to_owned(), name.to_owned());
        self.0.mounts.lock().insert(key.clone(), Mount::new(record.clone()));
        self.keep().await?;
        let volume = VolumeUse {
            context: granted.context.clone(),
            publish_context: self.opened(uid, granted)?,
            how,
            secrets,
            ..self.volume_use(&record, uid)
        };
        // A driver that ends in the middle of a call gives no answer: the next life of it is asked, and the one after.
        while let Err(error) = self.stage_and_publish(&plugin, &record, &volume).await {
            let has_answered = error.kind != ErrorKind::Unreachable && !self.is_disconnected(&plugin, &error);
            if has_answered || Instant::now() >= deadline {
                return Err(error.to_string());
            }
            self.tell_of_wait(uid, granted);
            plugin = self.wait_for_plugin(&granted.plugin, deadline).await?;
        }
        if let Some(mount) = self.0.mounts.lock().get_mut(&key) {
            mount.record.is_mounted = true;
        }
        self.keep().await?;
        self.0.mounts.tell();
        Ok(volume.target)
    }

    /// The publish context, which is sealed to this node.
    fn opened(&self, uid: &str, granted: &Granted) -> Result<BTreeMap<String, String>, String> {
        let Some(key) = &self.0.key else { return Ok(granted.publish_context.clone()) };
        let claim = ClaimId { namespace: &granted.namespace, volume: &granted.object, alloc_id: uid };
        key.open(&granted.publish_context, claim).map_err(|error| {
            format!("the publish context of its claim cannot be read: {error}; stop the allocation, and its successor's claim is sealed to the present key")
        })
    }

    /// Tells people that a mount waits, where it does.
    fn tell_of_wait(&self, uid: &str, granted: &Granted) {
        let plugin = self.find_plugin(&granted.plugin, |info| info.node);
        if !plugin.is_some_and(|plugin| plugin.info.healthy) {
            let text = format!(
                "volume {}/{} for allocation {uid} waits up to {} s for plugin {}, which is not healthy on this node; look at its job, or at the cluster's driver of this name",
                granted.namespace,
                granted.volume_id,
                PLUGIN_WAIT.as_secs(),
                granted.plugin
            );
            self.0.events.emit(Reason::MountWaiting, text);
        }
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
        for ((uid, _), mount) in self.0.mounts.lock().iter_mut().filter(|(_, mount)| !mount.is_over) {
            mount.is_over = is_over(uid);
            has_ended |= mount.is_over;
        }
        if has_ended {
            self.wake();
        }
    }

    /// Waits until nothing is mounted for the allocation any more.
    pub(crate) async fn cleared(&self, uid: &str) {
        let mut changed = self.0.mounts.changes();
        changed.mark_changed();
        while !self.is_clear(uid) && changed.changed().await.is_ok() {}
    }

    /// Whether nothing is mounted for the allocation.
    pub(crate) fn is_clear(&self, uid: &str) -> bool {
        !self.0.mounts.lock().keys().any(|(of, _)| of == uid)
    }

    /// How a volume of an allocation fares; none where nothing was mounted, or is any more.
    pub(crate) fn status(&self, uid: &str, name: &str) -> Option<VolumeStatus> {
        let mounts = self.0.mounts.lock();
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
        self.0.mounts.lock().get(&(uid.to_owned(), name.to_owned())).map(|mount| mount.record.clone())
    }

    /// Takes the mounts whose end is due; each is unmounted by the caller.
    pub(super) fn take_due(&self) -> Vec<(MountKey, MountRecord)> {
        let now = Instant::now();
        let mut due = Vec::new();
        for (key, mount) in self.0.mounts.lock().iter_mut().filter(|(_, mount)| mount.is_due(now)) {
            mount.is_busy = true;
            due.push((key.clone(), mount.record.clone()));
        }
        due
    }

    /// When an unmount that failed is tried again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        let mounts = self.0.mounts.lock();
        mounts.values().filter(|mount| mount.is_over && !mount.is_busy).filter_map(|mount| mount.retry_at).min()
    }

    /// Takes in how an unmount went.
    pub(super) async fn note_unmount(&self, key: &MountKey, result: Result<(), String>) {
        let is_done = result.is_ok();
        if let Some(mount) = self.0.mounts.lock().get_mut(key) {
            mount.is_busy = false;
            if let Err(error) = &result {
                tracing::warn!(
                    allocation = key.0,
                    volume = mount.record.volume_id,
                    error,
                    "a volume is not unmounted yet"
                );
                mount.n_failed += 1;
                mount.retry_at = Some(Instant::now() + Backoff::new(PAUSES.0, PAUSES.1).after(mount.n_failed));
                mount.error.clone_from(error);
            }
        }
        if is_done && let Err(error) = self.keep().await {
            tracing::error!(error, allocation = key.0, "an unmounted volume is still in the state file");
        }
        self.0.mounts.tell();
    }

    /// Unpublishes, and unstages what no other allocation on this node uses in the same way.
    pub(super) async fn unmount(&self, key: &MountKey, record: &MountRecord) -> Result<(), String> {
        let lock = self.volume_lock(record);
        let _turn = lock.lock().await;
        let plugin = self.plugin_of(record);
        let done = self.unmount_by(plugin.as_ref(), key, record).await;
        let ended = |plugin: &Instance| done.as_ref().is_err_and(|error| self.is_disconnected(plugin, error));
        let next = plugin.filter(ended).and_then(|_| self.plugin_of(record));
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
                self.0.mounts.lock().remove(key);
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
        self.0.mounts.lock().remove(key);
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
            let mounts = self.0.mounts.lock();
            let is_it = |(key, mount): &(&MountKey, &Mount)| {
                key.0 == request.alloc_id && mount.record.volume_id == volume_id && mount.record.is_mounted
            };
            mounts.iter().find(is_it).map(|(_, mount)| mount.record.clone())
        };
        let Some(record) = record else { return Ok(()) };
        let missing = |reason| PluginError { reason, kind: ErrorKind::Retryable };
        let plugin = self.wait_for_plugin(&record.plugin, Instant::now() + EXPANSION_WAIT).await.map_err(missing)?;
        if !plugin.facts.expands() {
            return Ok(());
        }
        let lock = self.volume_lock(&record);
        let _turn = lock.lock().await;
        let volume = VolumeUse { secrets, ..self.volume_use(&record, &request.alloc_id) };
        let to = (request.required_bytes.unwrap_or(0), request.limit_bytes.unwrap_or(0));
        plugin.plugin.expand_mount(&volume, to).await
    }

    /// Unmounts what an allocation has left that no record here names any more.
    pub(super) async fn unmount_stranger(
        &self,
        uid: &str,
        request: &CsiRequest,
        volume_id: &str,
    ) -> Result<(), String> {
        let known: Vec<MountKey> = {
            let mounts = self.0.mounts.lock();
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

    /// A record of what has none, with the place where it is: that of its plugin, or where something is
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
        let mounts = self.0.mounts.lock();
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
        self.0.locks.of_volume(&record.namespace, &record.volume_id)
    }

    async fn wait_for_plugin(&self, id: &str, deadline: Instant) -> Result<Instance, String> {
        let left = deadline.saturating_duration_since(Instant::now());
        let in_time = self.wait_for_half(id, |info| info.node, left).await;
        in_time.ok_or_else(|| {
            format!(
                "plugin {id} has not become healthy on this node in time; look at its job, or at the cluster's driver of this name"
            )
        })
    }

    async fn keep(&self) -> Result<(), String> {
        let mut saved = Mounts::new();
        for ((uid, name), mount) in &*self.0.mounts.lock() {
            saved.entry(uid.clone()).or_default().insert(name.clone(), mount.record.clone());
        }
        self.0.state.put_mounts(&saved).await.map_err(|error| error.to_string())
    }
}

fn usage(record: &MountRecord) -> String {
    let access = record.access_mode.map_or("any", AccessMode::as_str);
    format!("{}-{}-{access}", if record.read_only { "ro" } else { "rw" }, record.attachment_mode)
}
