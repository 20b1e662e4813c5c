//! I1: at most one live allocation in a slot.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use drover_api::Allocation;
use drover_api::allocation::{AllocStateField, ClientStatus, DesiredStatus};
use drover_store::Key;
use drover_store::memory::StoredChange;

use super::definitions::{Definitions, is_per_node};

/// How long two may share a slot when one of them is back from where it was disconnected, or was a canary.
const OVERLAP: Duration = Duration::from_mins(5);

/// Namespace, uid of the job, group, index, and the node where each has its own.
type Slot = (String, String, String, i64, Option<String>);

/// Who holds which slot.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// The live allocations, and whether each may share its slot for a while.
    held: HashMap<Slot, BTreeMap<Key, bool>>,
    /// Those that were created as canaries.
    canaries: std::collections::HashSet<Key>,
    /// Slots that are shared, with the time since when.
    shared: BTreeMap<Slot, Duration>,
}

impl Slots {
    pub(super) fn observe(
        &mut self,
        at: Duration,
        change: &StoredChange,
        definitions: &Definitions,
        found: &mut Vec<String>,
    ) {
        let key = change.object().key.clone();
        if let Some(before) = change.before.as_ref().and_then(|before| before.typed::<Allocation>().ok()) {
            self.leave(&slot_of(before, definitions), &key);
        }
        match change.after.as_ref().and_then(|after| after.typed::<Allocation>().ok()) {
            Some(after) => {
                if after.spec.canary {
                    self.canaries.insert(key.clone());
                }
                if is_live(after) {
                    found.extend(self.enter(at, slot_of(after, definitions), key, after));
                }
            }
            None => drop(self.canaries.remove(&key)),
        }
        self.check_overlaps(at, found);
    }

    fn leave(&mut self, slot: &Slot, key: &Key) {
        let Some(holders) = self.held.get_mut(slot) else { return };
        holders.remove(key);
        if holders.len() < 2 {
            self.shared.remove(slot);
        }
        if holders.is_empty() {
            self.held.remove(slot);
        }
    }

    /// Notes who holds a slot; what is wrong with that.
    fn enter(&mut self, at: Duration, slot: Slot, key: Key, alloc: &Allocation) -> Option<String> {
        let may_share = was_away(alloc) || self.canaries.contains(&key);
        let holders = self.held.entry(slot.clone()).or_default();
        holders.insert(key, may_share);
        if holders.len() < 2 {
            return None;
        }
        if holders.values().any(|may_share| *may_share) {
            self.shared.entry(slot).or_insert(at);
            return None;
        }
        let names: Vec<&str> = holders.keys().map(|key| key.name.as_str()).collect();
        Some(format!("I1: {}[{}] is held by {}", slot.2, slot.3, names.join(" and ")))
    }

    /// Names slots that were shared for too long.
    pub(super) fn check_overlaps(&mut self, at: Duration, found: &mut Vec<String>) {
        let held = &self.held;
        self.shared.retain(|slot, since| {
            let is_over = at.saturating_sub(*since) > OVERLAP;
            if is_over {
                let names: Vec<&str> =
                    held.get(slot).into_iter().flat_map(BTreeMap::keys).map(|key| key.name.as_str()).collect();
                found.push(format!("I1: {}[{}] is held by {} for minutes", slot.2, slot.3, names.join(" and ")));
            }
            !is_over
        });
    }
}

fn slot_of(alloc: &Allocation, definitions: &Definitions) -> Slot {
    let spec = &alloc.spec;
    let node = is_per_node(definitions, &spec.job_uid).then(|| spec.node_name.clone());
    let namespace = alloc.metadata.namespace.clone().unwrap_or_default();
    (namespace, spec.job_uid.clone(), spec.group.clone(), spec.index, node)
}

fn is_live(alloc: &Allocation) -> bool {
    let client = alloc.status.as_ref().map(|status| status.client_status).unwrap_or_default();
    alloc.spec.desired_status == DesiredStatus::Run
        && !alloc.spec.canary
        && !client.is_terminal()
        && client != ClientStatus::Unknown
        && alloc.metadata.deletion_timestamp.is_none()
}

fn was_away(alloc: &Allocation) -> bool {
    alloc
        .status
        .iter()
        .flat_map(|status| &status.alloc_states)
        .any(|entry| entry.field == AllocStateField::ClientStatus && entry.value == ClientStatus::Unknown)
}
