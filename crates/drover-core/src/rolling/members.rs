//! The allocations of a group as a roll-out of values sees them.

use std::collections::BTreeMap;

use drover_api::Allocation;
use drover_api::allocation::{AllocationStatus, ClientStatus, DesiredStatus};
use jiff::Timestamp;

/// What an allocation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// Older values.
    Behind,
    /// The newest, or it starts with them; since then.
    Newest(Timestamp),
    /// It had the newest, or was to start with them, and has failed; nothing has taken its place yet.
    Failed,
}

/// An allocation that takes part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Participant<'a> {
    pub(super) alloc: &'a Allocation,
    pub(super) stand: Stand,
}

impl<'a> Participant<'a> {
    pub(super) fn name(&self) -> &'a str {
        self.alloc.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn uid(&self) -> &'a str {
        self.alloc.metadata.uid.as_deref().unwrap_or_default()
    }
}

/// Those who take part, in their order: lower slots are first. `key` names the object. One that runs and tells of no
/// version has no template that rolls, and takes no part; nor does one whose node is away and that is behind.
pub(super) fn members<'a>(
    allocations: impl IntoIterator<Item = &'a Allocation>,
    key: &str,
    newest: &str,
) -> Vec<Participant<'a>> {
    let mut slots: BTreeMap<i64, Vec<&Allocation>> = BTreeMap::new();
    for alloc in allocations.into_iter().filter(|alloc| alloc.spec.desired_status == DesiredStatus::Run) {
        slots.entry(alloc.spec.index).or_default().push(alloc);
    }
    let mut all = Vec::new();
    for mut slot in slots.into_values() {
        slot.sort_by_key(|alloc| (alloc.metadata.creation_timestamp.as_ref().map(|at| at.0), &alloc.metadata.name));
        let (alive, ended): (Vec<_>, Vec<_>) = slot.into_iter().partition(|alloc| is_alive(alloc));
        let counts = if alive.is_empty() { ended.into_iter().next_back().into_iter().collect() } else { alive };
        all.extend(
            counts.into_iter().filter_map(|alloc| Some(Participant { alloc, stand: stand(alloc, key, newest)? })),
        );
    }
    all
}

fn is_alive(alloc: &Allocation) -> bool {
    matches!(client_status(alloc), ClientStatus::Pending | ClientStatus::Running | ClientStatus::Unknown)
}

fn client_status(alloc: &Allocation) -> ClientStatus {
    alloc.status.as_ref().map(|status| status.client_status).unwrap_or_default()
}

fn stand(alloc: &Allocation, key: &str, newest: &str) -> Option<Stand> {
    let held = alloc.status.as_ref().and_then(|status| held(status, key, newest));
    let created_at = || alloc.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |at| at.0);
    match client_status(alloc) {
        ClientStatus::Pending => Some(held.unwrap_or_else(|| Stand::Newest(created_at()))),
        ClientStatus::Running => held,
        ClientStatus::Unknown => held.filter(|held| *held != Stand::Behind),
        ClientStatus::Failed => (held != Some(Stand::Behind)).then_some(Stand::Failed),
        ClientStatus::Complete | ClientStatus::Lost => None,
    }
}

/// What its tasks tell; none: nothing. It has the newest when all have that tell of the object.
fn held(status: &AllocationStatus, key: &str, newest: &str) -> Option<Stand> {
    let told: Vec<_> = status.task_states.values().filter_map(|state| state.values.get(key)).collect();
    let since = told.iter().map(|values| values.since).max()?;
    let is_newest = told.iter().all(|values| values.version == newest);
    Some(if is_newest { Stand::Newest(since) } else { Stand::Behind })
}
