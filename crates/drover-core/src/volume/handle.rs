//! Which volume of the provider a `CSIVolume` names, and who of several that name the same one may be used
//! (`spec/security.md`, rule 10): the first one, whatever namespaces they are in.
//!
//! Input: each volume as it changes; each costs the volumes that name the same as it does, of which there should be
//! one. Output: who comes before a volume. Must never know claims, nor what a provider has.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::csi_volume::{CSIVolumeSpec, CSIVolumeStatus, VolumeReason};
use jiff::Timestamp;

use super::provision::Nameless;
use super::release::external_id;
use crate::ids::ObjectKey;

/// A volume among those that name the same volume of the provider, in the order in which they may use it: one that
/// an allocation holds before others, then the older one, then the one that was the first so far (times have whole
/// seconds, and who is quick takes no volume over), then the one with the lesser uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Naming {
    /// No allocation holds it.
    is_free: bool,
    created_at: Timestamp,
    /// Its status does not say yet what becomes of it, or that another one comes before it.
    is_behind: bool,
    uid: String,
    /// The volume.
    pub volume: ObjectKey,
    /// It names nothing yet: its provider may have to make it. Where the plugin makes none, its id is the name.
    is_nameless: bool,
}

/// What identifies a volume's object.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The volume.
    pub volume: &'a ObjectKey,
    /// When its object was made.
    pub created_at: Timestamp,
    /// The uid of its object.
    pub uid: &'a str,
}

/// The volumes by plugin and by the provider's id.
#[derive(Clone, Debug, Default)]
pub struct Handles {
    by_handle: BTreeMap<(String, String), BTreeSet<Naming>>,
    /// Where each one stands.
    known: BTreeMap<ObjectKey, ((String, String), Naming)>,
}

impl Handles {
    /// Takes in a volume. Returns the others that have to be looked at, because one comes before them that did not, or
    /// no longer.
    pub fn put(&mut self, of: Identity<'_>, spec: &CSIVolumeSpec, status: Option<&CSIVolumeStatus>) -> Vec<ObjectKey> {
        let unseen = CSIVolumeStatus::default();
        let status = status.unwrap_or(&unseen);
        let handle = (spec.plugin_id.clone(), external_id(of.volume, spec, status).to_owned());
        let naming = Naming {
            is_free: status.claims.is_empty(),
            created_at: of.created_at,
            is_behind: status.modified_at.is_none() || is_told_to_wait(status),
            uid: of.uid.to_owned(),
            volume: of.volume.clone(),
            is_nameless: spec.external_id.is_empty() && status.external_id.is_empty() && status.claims.is_empty(),
        };
        if self.known.get(of.volume).is_some_and(|known| *known == (handle.clone(), naming.clone())) {
            return Vec::new();
        }
        let mut others = self.remove(of.volume);
        let named = self.by_handle.entry(handle.clone()).or_default();
        named.insert(naming.clone());
        others.extend(named.iter().map(|other| other.volume.clone()).filter(|other| other != of.volume));
        self.known.insert(of.volume.clone(), (handle, naming));
        others
    }

    /// Takes a volume out. Returns the others that have to be looked at.
    pub fn remove(&mut self, volume: &ObjectKey) -> Vec<ObjectKey> {
        let Some((handle, naming)) = self.known.remove(volume) else { return Vec::new() };
        let Some(named) = self.by_handle.get_mut(&handle) else { return Vec::new() };
        named.remove(&naming);
        let others = named.iter().map(|other| other.volume.clone()).collect();
        if named.is_empty() {
            self.by_handle.remove(&handle);
        }
        others
    }

    /// The volume that may be used in the place of this one, if this one names what another one does.
    pub fn before(&self, volume: &ObjectKey, nameless: Nameless) -> Option<&ObjectKey> {
        let (handle, own) = self.known.get(volume)?;
        let names = |naming: &Naming| !naming.is_nameless || nameless == Nameless::OwnId;
        let first = self.by_handle.get(handle)?.iter().find(|naming| names(naming))?;
        (names(own) && first.volume != *volume).then_some(&first.volume)
    }
}

fn is_told_to_wait(status: &CSIVolumeStatus) -> bool {
    status.conditions.iter().any(|condition| condition.reason == VolumeReason::HandleInUse)
}
