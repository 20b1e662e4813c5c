//! What a person requests of a volume's snapshots, and what the volume's status says of them afterwards
//! (`spec/volumes.md` 7).
//!
//! Snapshots are the provider's: nothing here follows from those that a status lists, which is the last answer and no
//! more. A request is made once, like a call of an API: one that fails is told and forgotten, and the person may
//! request again.

use std::collections::BTreeMap;

use drover_api::client_node::CsiCall;
use drover_api::csi_volume::{CSIVolumeSpec, CSIVolumeStatus, MOST_SNAPSHOTS, VolumeSnapshot};
use drover_api::{annotation, message};

use super::plugin::{Capability, Plugin};
use super::provision::{is_for_others_to_make, is_to_be_made};

/// The longest name of a snapshot, in bytes: CSI allows 128 for it and the uid of the volume together.
const LONGEST_NAME: usize = 90;

/// What is requested of a volume's snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotRequest {
    /// Take one with this name.
    Take(String),
    /// Delete the one with this id.
    Delete(String),
    /// Say which there are.
    List,
}

impl SnapshotRequest {
    /// The request among a volume's annotations that is next: one is fulfilled at a time, and a list shows what became
    /// of the others.
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Option<Self> {
        let said = |name: &str| annotations?.get(name).cloned();
        said(annotation::TAKE_SNAPSHOT)
            .map(Self::Take)
            .or_else(|| said(annotation::DELETE_SNAPSHOT).map(Self::Delete))
            .or_else(|| said(annotation::LIST_SNAPSHOTS).map(|_| Self::List))
    }

    /// The annotation that says it.
    pub const fn annotation(&self) -> &'static str {
        match self {
            Self::Take(_) => annotation::TAKE_SNAPSHOT,
            Self::Delete(_) => annotation::DELETE_SNAPSHOT,
            Self::List => annotation::LIST_SNAPSHOTS,
        }
    }

    /// What a controller of the plugin is asked for.
    pub const fn call(&self) -> CsiCall {
        match self {
            Self::Take(_) => CsiCall::CreateSnapshot,
            Self::Delete(_) => CsiCall::DeleteSnapshot,
            Self::List => CsiCall::ListSnapshots,
        }
    }

    /// The snapshot that it is about, as the provider knows it: the name of one to be taken, or the id of one that
    /// there is; empty for all. The provider keeps one snapshot for each name, and other volumes have some of the same
    /// name.
    pub fn snapshot(&self, volume_uid: &str) -> String {
        match self {
            Self::Take(name) => format!("{name}-{volume_uid}"),
            Self::Delete(id) => id.clone(),
            Self::List => String::new(),
        }
    }

    /// Whether anybody can be asked for it.
    ///
    /// # Errors
    /// It cannot be fulfilled; the text says why and what would help.
    pub fn check(&self, spec: &CSIVolumeSpec, status: &CSIVolumeStatus, plugin: Option<&Plugin>) -> Result<(), String> {
        let (annotation, plugin_id) = (self.annotation(), &spec.plugin_id);
        let is_plain =
            |text: &str, most: usize| !text.is_empty() && text.len() <= most && !text.chars().any(char::is_control);
        match self {
            Self::Take(name) if !is_plain(name, LONGEST_NAME) => {
                return Err(format!(
                    "annotation {annotation}: the name of a snapshot has 1 to {LONGEST_NAME} bytes and no control characters"
                ));
            }
            Self::Delete(id) if !is_plain(id, 256) => {
                return Err(format!("annotation {annotation}: give the id of a snapshot, as status.snapshots has it"));
            }
            Self::Take(_) | Self::Delete(_) | Self::List => {}
        }
        let Some(known) = plugin else {
            return Err(format!(
                "plugin {plugin_id} is not known; look at the job that runs it (its task has csiPlugin.id {plugin_id})"
            ));
        };
        if known.is_of_cluster() {
            return Err(format!(
                "plugin {plugin_id} is a driver of the cluster, which takes snapshots for the cluster's own VolumeSnapshots; make one of its PersistentVolumeClaim"
            ));
        }
        let needed = if *self == Self::List { Capability::ListSnapshots } else { Capability::Snapshots };
        if known.can(needed) != Some(true) {
            return Err(format!(
                "no controller of plugin {plugin_id} says that it has the capability {}",
                needed.as_str()
            ));
        }
        if is_to_be_made(spec, status, plugin) || is_for_others_to_make(spec, status, plugin) {
            return Err("the volume does not exist at its provider yet; its conditions say why".to_owned());
        }
        Ok(())
    }
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOutcome {
    /// It.
    pub request: SnapshotRequest,
    /// The snapshots that the provider answered with, or why it was not fulfilled.
    pub answer: Result<Vec<VolumeSnapshot>, String>,
}

impl SnapshotOutcome {
    /// Has a status say what became of the request. Doing so twice changes nothing.
    pub fn tell(&self, status: &mut CSIVolumeStatus) {
        let answered = match &self.answer {
            Ok(answered) => answered,
            Err(why) => {
                status.snapshot_error = message::cut(why);
                return;
            }
        };
        status.snapshot_error.clear();
        match &self.request {
            SnapshotRequest::Take(name) => {
                status.snapshots.retain(|known| answered.iter().all(|new| new.id != known.id));
                let named = |new: &VolumeSnapshot| VolumeSnapshot { name: name.clone(), ..new.clone() };
                status.snapshots.extend(answered.iter().map(named));
            }
            SnapshotRequest::Delete(id) => status.snapshots.retain(|known| known.id != *id),
            SnapshotRequest::List => {
                let before = std::mem::take(&mut status.snapshots);
                let name = |id: &str| before.iter().find(|known| known.id == id).map(|known| known.name.clone());
                let named =
                    |new: &VolumeSnapshot| VolumeSnapshot { name: name(&new.id).unwrap_or_default(), ..new.clone() };
                status.snapshots = answered.iter().map(named).collect();
            }
        }
        // The newest first; those without a time last.
        let place = |one: &VolumeSnapshot| (std::cmp::Reverse(one.created_at), one.id.clone());
        status.snapshots.sort_by_key(place);
        status.snapshots.truncate(MOST_SNAPSHOTS);
    }

    /// Whether a status says it.
    pub fn is_told_by(&self, status: &CSIVolumeStatus) -> bool {
        let mut told = status.clone();
        self.tell(&mut told);
        told.snapshots == status.snapshots && told.snapshot_error == status.snapshot_error
    }
}
