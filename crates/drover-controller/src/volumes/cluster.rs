//! Volumes of drivers that the cluster runs itself: attached and detached by `VolumeAttachment`s, which the drivers'
//! own attachers carry out.
//!
//! There is one object for a volume and a node, under a name that follows from both; each is written and answered by
//! itself, so that these calls wait for no turn among those of the plugin. What the attacher says comes by the watch of
//! drover's own objects. An object without a claim, because a leader ended between two writes, is found by
//! its label and deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::csi_volume::{AttachState, Claim, ClaimState};
use drover_api::{CSIVolume, annotation, label, names};
use drover_core::ids::ObjectKey;
use drover_core::volume::claim::Attachment;
use drover_core::volume::cluster::{
    Access, Attaching, Detaching, Seen as Word, WantedAttachment, attaching, detaching,
};
use drover_core::volume::cluster::{is_for_somebody, wanted};
use drover_core::volume::plugin::Plugin;
use drover_core::volume::plugin_lock::Caller;
use drover_core::volume::release::{AttachedBy, ReleaseError};
use drover_store::{Change, Key, Precondition, StoreError, convert};
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolumeSpec, SecretReference};
use k8s_openapi::api::storage::v1::{
    CSIDriver, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec, VolumeError,
};
use kube::core::ObjectMeta;
use tokio::time::Instant;

use super::index::node_names;
use super::request::Claimed;
use super::sealing::sealed;
use super::state::Volumes;
use crate::actions::Action;
use crate::cache::Observed;
use crate::nodes::Nodes;
use crate::shared::Shared;
use crate::timers::Wake;

/// How long an attacher may be silent before people are told.
const ATTACHER_PATIENCE: Duration = Duration::from_mins(2);
/// How long an object without a claim is left: the watch of volumes may show its claim later.
const FOR_NOBODY_AFTER: Duration = Duration::from_secs(10);

impl Volumes {
    /// Has a claim's volume attached to its node, or takes in that it is.
    pub(super) fn attach_by_cluster(&mut self, shared: &mut Shared, caller: &Caller, claimed: Claimed<'_>) {
        let Claimed { volume: object, status, claim } = claimed;
        if !Self::knows_cluster(shared) {
            let why = "the cluster's CSIDrivers and VolumeAttachments cannot be listed; look at the controller's log and at its ClusterRole";
            return self.wait_to_attach(shared, caller, claim, why);
        }
        let name = attachment_of(object, &claim.node_name);
        match attaching(self.word_of(shared, &name).as_ref()) {
            Attaching::Create if self.objects.making.contains(&name) => {}
            Attaching::Create => {
                let request = wanted(&caller.0, &object.spec, status, claim);
                let attachment = attachment(&name, object, request);
                tracing::debug!(volume = %caller.0, alloc = caller.1, attachment = name, "the cluster is asked to attach a volume");
                self.ask_attacher(caller);
                self.objects.making.insert(name.clone());
                shared.outbox.push(Action::MakeAttachment(caller.clone(), Box::new(attachment)));
            }
            Attaching::Wait => {
                let why = format!(
                    "VolumeAttachment {name} has had no answer for {ATTACHER_PATIENCE:?}; look at the external-attacher of driver {}",
                    object.spec.plugin_id
                );
                self.wait_to_attach(shared, caller, claim, &why);
            }
            Attaching::Attached(context) => {
                let context = match sealed(shared, object, claim, &context) {
                    Ok(context) => context,
                    Err(why) => return self.wait_to_attach(shared, caller, claim, &why),
                };
                let (alloc_id, state) = (caller.1.clone(), AttachState::Attached);
                let said = Attachment { alloc_id, state, context, error: String::new() };
                self.attachments.entry(caller.0.clone()).or_default().push(said);
                shared.due.volumes.insert(caller.0.clone());
                self.end_work(shared, caller);
            }
            // The attacher tries again, and the watch tells what comes of it.
            Attaching::Failing(error) => {
                self.note_attachment(shared, caller, claim, &format!("VolumeAttachment {name}: {error}"));
            }
        }
    }

    /// From now on the attacher has its time.
    fn ask_attacher(&mut self, caller: &Caller) {
        if let Some(work) = self.work.get_mut(caller) {
            work.attacher_asked = Some(Instant::now());
        }
    }

    /// Waits for the attacher; people are told what is waited for when that takes long.
    fn wait_to_attach(&mut self, shared: &mut Shared, caller: &Caller, claim: &Claim, why: &str) {
        if self.is_attacher_late(caller) {
            self.note_attachment(shared, caller, claim, why);
        }
    }

    /// Whether the attacher is silent for long. While it is not, it is waited for.
    fn is_attacher_late(&mut self, caller: &Caller) -> bool {
        let Some(work) = self.work.get_mut(caller) else { return false };
        let late_at = *work.attacher_asked.get_or_insert_with(Instant::now) + ATTACHER_PATIENCE;
        let is_late = late_at <= Instant::now();
        if !is_late {
            self.retry_at(caller, late_at);
        }
        is_late
    }

    /// Who attached a volume to a node.
    pub(super) fn attached_by(&self, shared: &Shared, object: &CSIVolume, node: &str) -> AttachedBy {
        let name = attachment_of(object, node);
        let is_there = shared.caches.attachments.get(&Key::cluster(name.as_str())).is_some();
        if is_there || self.objects.making.contains(&name) { AttachedBy::Cluster } else { AttachedBy::Plugin }
    }

    /// Whether a claim's volume is off its node; has it taken off if not.
    pub(super) fn is_detached_by_cluster(
        &mut self,
        shared: &mut Shared,
        caller: &Caller,
        object: &CSIVolume,
        claim: &Claim,
    ) -> bool {
        let name = attachment_of(object, &claim.node_name);
        let error = |reason: String| ReleaseError::Attacher {
            volume: caller.0.clone(),
            attachment: name.clone(),
            driver: object.spec.plugin_id.clone(),
            node: claim.node_name.as_str().into(),
            reason,
        };
        if !Self::knows_cluster(shared) {
            if self.is_attacher_late(caller) {
                self.fail(shared, caller, claim, &error("the cluster's VolumeAttachments cannot be listed".to_owned()));
            }
            return false;
        }
        match detaching(self.word_of(shared, &name).as_ref()) {
            // What is being made is deleted when it is there.
            Detaching::Done => return !self.objects.making.contains(&name),
            Detaching::Delete => {
                self.ask_attacher(caller);
                self.delete_attachment(shared, Some(caller.clone()), name);
            }
            Detaching::Wait => {
                if self.is_attacher_late(caller) {
                    let reason = format!("its attacher has not detached it within {ATTACHER_PATIENCE:?}");
                    self.fail(shared, caller, claim, &error(reason));
                }
            }
            Detaching::Failing(reason) => self.fail(shared, caller, claim, &error(reason)),
        }
        false
    }

    fn delete_attachment(&mut self, shared: &mut Shared, caller: Option<Caller>, name: String) {
        let key = Key::cluster(name.as_str());
        let Some(precondition) =
            shared.caches.attachments.get(&key).map(|known| Precondition::same_object(&known.metadata))
        else {
            return;
        };
        tracing::debug!(attachment = name, "the cluster is asked to detach a volume");
        self.objects.deleting.insert(name.clone());
        shared.outbox.push(Action::DeleteAttachment(caller, name, precondition));
    }

    /// Whether all of drover's objects and the cluster's drivers were listed: before, one that is not known may be
    /// there.
    fn knows_cluster(shared: &Shared) -> bool {
        shared.caches.attachments.is_synced() && shared.caches.drivers.is_synced()
    }

    /// How an object stands, with what was written of it since.
    fn word_of(&self, shared: &Shared, name: &str) -> Option<Word> {
        let known = shared.caches.attachments.get(&Key::cluster(name))?;
        let status = known.status.clone().unwrap_or_default();
        let text = |error: Option<VolumeError>| {
            error
                .map(|error| error.message.unwrap_or_else(|| "its attacher says no more".to_owned()))
                .unwrap_or_default()
        };
        Some(Word {
            is_attached: status.attached,
            context: status.attachment_metadata.unwrap_or_default(),
            attach_error: text(status.attach_error),
            detach_error: text(status.detach_error),
            is_going: known.metadata.deletion_timestamp.is_some() || self.objects.deleting.contains(name),
        })
    }

    pub(crate) fn on_attachment_change(&mut self, shared: &mut Shared, change: Change<VolumeAttachment>) {
        let is_list = matches!(change, Change::InSync);
        for seen in shared.caches.attachments.take(change) {
            self.on_attachment(shared, &seen);
        }
        if is_list && shared.has_begun {
            Self::begin(shared);
            self.look_at_volumes_of_cluster();
        }
    }

    fn on_attachment(&mut self, shared: &mut Shared, seen: &Observed<VolumeAttachment>) {
        let (now, is_new) = match seen {
            Observed::Now(now, before) => {
                let is_new = before.as_ref().is_none_or(|before| before.metadata.uid != now.metadata.uid);
                (now, is_new)
            }
            Observed::Gone(last) => (last, true),
        };
        let name = now.metadata.name.clone().unwrap_or_default();
        if is_new {
            self.objects.deleting.remove(&name);
        }
        if let Some((volume, _)) = Self::volume_of(shared, now) {
            self.ready.insert(volume);
        }
        Self::note_if_for_nobody(shared, &name);
    }

    pub(crate) fn on_attachment_made(
        &mut self,
        shared: &mut Shared,
        caller: &Caller,
        name: &str,
        result: Result<VolumeAttachment, StoreError>,
    ) {
        self.objects.making.remove(name);
        let error = match result {
            Ok(object) => {
                if let Some(seen) = shared.caches.attachments.observe(object) {
                    self.on_attachment(shared, &seen);
                }
                return;
            }
            Err(error) => error,
        };
        let is_ours = matches!(error, StoreError::AlreadyExists(_));
        let claims =
            Self::stored_volume(shared, &caller.0).and_then(|volume| Some(volume.status.as_ref()?.claims.clone()));
        let claim = claims.into_iter().flatten().find(|claim| claim.alloc_id == caller.1);
        match claim.filter(|claim| claim.state == ClaimState::Taken && self.work.contains_key(caller)) {
            // A leader before has made it, and the watch shows it soon.
            Some(claim) if is_ours => {
                let why = format!(
                    "there is a VolumeAttachment {name} without the label {}={}, which drover has not made; delete it",
                    label::MANAGED_BY,
                    label::DROVER
                );
                self.wait_to_attach(shared, caller, &claim, &why);
            }
            Some(claim) => {
                let why = format!("VolumeAttachment {name} cannot be made: {error}");
                self.note_attachment(shared, caller, &claim, &why);
            }
            None => self.advance_claim(shared, caller),
        }
    }

    pub(crate) fn on_attachment_deleted(
        &mut self,
        shared: &mut Shared,
        caller: Option<&Caller>,
        name: &str,
        result: Result<(), StoreError>,
    ) {
        let Err(error) = result else { return };
        self.objects.deleting.remove(name);
        if matches!(error, StoreError::NotFound(_)) {
            shared.caches.attachments.forget(&Key::cluster(name));
        }
        let Some(caller) = caller else {
            return Self::note_if_for_nobody(shared, name);
        };
        if matches!(error, StoreError::NotFound(_) | StoreError::Conflict(_)) {
            self.ready.insert(caller.0.clone());
            return;
        }
        let stored = Self::stored_volume(shared, &caller.0);
        let claims = stored.as_ref().and_then(|volume| volume.status.as_ref()).map(|status| &status.claims[..]);
        let Some(claim) = claims.unwrap_or_default().iter().find(|claim| claim.alloc_id == caller.1) else { return };
        let error = ReleaseError::Attacher {
            volume: caller.0.clone(),
            attachment: name.to_owned(),
            driver: stored.as_ref().map(|volume| volume.spec.plugin_id.clone()).unwrap_or_default(),
            node: claim.node_name.as_str().into(),
            reason: format!("it cannot be deleted: {error}"),
        };
        self.fail(shared, caller, claim, &error);
    }

    /// The volume that an object of drover's is about, while that is there.
    fn volume_of(shared: &Shared, attachment: &VolumeAttachment) -> Option<(ObjectKey, Arc<CSIVolume>)> {
        let named = attachment.metadata.annotations.as_ref()?.get(annotation::VOLUME)?;
        let (namespace, volume) = named.split_once('/')?;
        let object = shared.caches.volumes.get(&Key::namespaced(namespace, volume))?;
        // Another volume of the same name has objects of other names.
        let is_it = attachment_of(object, &attachment.spec.node_name) == attachment.metadata.name.as_deref()?;
        is_it.then(|| (convert::volume_id(object), Arc::clone(object)))
    }

    fn is_for_nobody(shared: &Shared, name: &str) -> bool {
        let Some(known) = shared.caches.attachments.get(&Key::cluster(name)) else { return false };
        let volume = Self::volume_of(shared, known);
        let status = volume.as_ref().and_then(|(_, volume)| volume.status.as_ref());
        known.metadata.deletion_timestamp.is_none() && !is_for_somebody(status, &known.spec.node_name)
    }

    /// An object without a claim is looked at again, and then deleted.
    fn note_if_for_nobody(shared: &mut Shared, name: &str) {
        // Before the first look at everything nobody can tell.
        if shared.has_begun && Self::is_for_nobody(shared, name) {
            shared.wake_in(FOR_NOBODY_AFTER, Wake::Attachment(name.to_owned()));
        }
    }

    pub(crate) fn delete_if_for_nobody(&mut self, shared: &mut Shared, name: &str) {
        if Self::is_for_nobody(shared, name) && !self.objects.deleting.contains(name) {
            tracing::info!(attachment = name, "a VolumeAttachment has no claim any more and is deleted");
            self.delete_attachment(shared, None, name.to_owned());
        }
    }

    /// Finds what leaders before have left.
    pub(crate) fn begin(shared: &mut Shared) {
        let mut names: Vec<String> =
            shared.caches.attachments.values().filter_map(|one| one.metadata.name.clone()).collect();
        names.retain(|name| Self::is_for_nobody(shared, name));
        names.sort();
        for name in names {
            shared.wake_in(FOR_NOBODY_AFTER, Wake::Attachment(name));
        }
    }

    /// A volume has no claim any more on some of the nodes where it had.
    pub(super) fn note_left_nodes(shared: &mut Shared, before: Option<&CSIVolume>, now: Option<&CSIVolume>) {
        let Some(before) = before else { return };
        let here: BTreeSet<&str> = now.into_iter().flat_map(node_names).collect();
        let left: BTreeSet<&str> = node_names(before).filter(|node| !here.contains(node)).collect();
        for node in left {
            Self::note_if_for_nobody(shared, &attachment_of(before, node));
        }
    }

    /// What the cluster says of its drivers has changed.
    pub(crate) fn on_driver_change(&mut self, shared: &mut Shared, change: Change<CSIDriver>) {
        let is_list = matches!(change, Change::InSync);
        for seen in shared.caches.drivers.take(change) {
            let (driver, is_there) = match &seen {
                Observed::Now(driver, _) => (driver, true),
                Observed::Gone(driver) => (driver, false),
            };
            let id = driver.metadata.name.clone().unwrap_or_default();
            let is_unattached = driver.spec.attach_required == Some(false);
            self.change_plugins(shared, &BTreeSet::from([id.clone()]), |plugins| match (is_there, is_unattached) {
                (false, _) => plugins.forget_driver(&id),
                (true, true) => plugins.forgo_attaching(&id),
                (true, false) => plugins.need_attaching(&id),
            });
            Nodes::review_plugin(shared, &id);
        }
        if is_list && shared.has_begun {
            self.look_at_volumes_of_cluster();
        }
    }

    /// Now it is known what is attached: claims that have waited for that go on.
    fn look_at_volumes_of_cluster(&mut self) {
        let plugins = &self.plugins;
        let is_of_cluster = |id: &String| plugins.get(id).is_none_or(Plugin::is_of_cluster);
        let of_cluster = self.index.by_plugin.iter().filter(|(id, _)| is_of_cluster(id));
        let volumes: Vec<ObjectKey> = of_cluster.flat_map(|(_, volumes)| volumes.iter().cloned()).collect();
        self.ready.extend(volumes);
    }
}

/// The name of a volume's object for a node.
fn attachment_of(volume: &CSIVolume, node: &str) -> String {
    names::attachment_name(volume.metadata.uid.as_deref().unwrap_or_default(), node)
}

/// The object. A volume that is no `PersistentVolume` has no size in it, and no mode: the API server refuses both
/// there.
fn attachment(name: &str, volume: &CSIVolume, request: WantedAttachment) -> VolumeAttachment {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let namespace = text(&volume.metadata.namespace);
    let of = format!("{namespace}/{}", text(&volume.metadata.name));
    let secret = |name: String| SecretReference { name: Some(name), namespace: Some(namespace.clone()) };
    let access = match request.access {
        Access::OneNode => "ReadWriteOnce",
        Access::ReadOnly => "ReadOnlyMany",
        Access::ManyNodes => "ReadWriteMany",
    };
    let csi = CSIPersistentVolumeSource {
        driver: request.driver.clone(),
        volume_handle: request.external_id,
        volume_attributes: Some(request.context).filter(|context| !context.is_empty()),
        fs_type: Some(request.fs_type).filter(|fs_type| !fs_type.is_empty()),
        read_only: (request.access == Access::ReadOnly).then_some(true),
        controller_publish_secret_ref: request.secret.map(secret),
        ..CSIPersistentVolumeSource::default()
    };
    VolumeAttachment {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([(label::MANAGED_BY.to_owned(), label::DROVER.to_owned())])),
            annotations: Some(BTreeMap::from([(annotation::VOLUME.to_owned(), of)])),
            ..ObjectMeta::default()
        },
        spec: VolumeAttachmentSpec {
            attacher: request.driver,
            node_name: request.node.to_string(),
            source: VolumeAttachmentSource {
                inline_volume_spec: Some(PersistentVolumeSpec {
                    access_modes: Some(vec![access.to_owned()]),
                    csi: Some(csi),
                    ..PersistentVolumeSpec::default()
                }),
                persistent_volume_name: None,
            },
        },
        status: None,
    }
}
