//! What people see of a volume at a glance: its phase and the columns of `kubectl get csivol`.

use drover_api::condition::ConditionStatus;
use drover_api::csi_volume::{AccessMode, CSIVolumeStatus, VolumeColumns, VolumeConditionType as Type, VolumePhase};

use super::access::Held;
use super::claim;

/// The status with phase and columns that say the rest of it. A volume whose claims are being released is not shown as
/// free: who would take it then would meet what is still attached. O(claims).
#[must_use]
pub fn with_columns(status: &CSIVolumeStatus) -> CSIVolumeStatus {
    let mut status = status.clone();
    let n_past = claim::past(&status).count();
    status.phase = if status.claims.is_empty() {
        if status.phase == VolumePhase::Pending { VolumePhase::Pending } else { VolumePhase::Available }
    } else if n_past > 0 {
        VolumePhase::Reaping
    } else {
        VolumePhase::Claimed
    };
    let held = Held::by(&status.claims);
    status.columns = VolumeColumns {
        access: status.access_mode.map_or("-", AccessMode::as_str).to_owned(),
        schedulable: status.schedulable.to_string(),
        claims: format!("{}/{}/{n_past}", held.readers, held.writers),
        capacity: if status.capacity.is_empty() { "-".to_owned() } else { status.capacity.clone() },
        reason: reason(&status).to_owned(),
    };
    status
}

/// The reason that matters most: what needs a person, else what is being done, else why it cannot be used.
fn reason(status: &CSIVolumeStatus) -> &'static str {
    let of = |kind| status.conditions.iter().find(|condition| condition.r#type == kind);
    let is_unwell = |ready: &&drover_api::csi_volume::VolumeCondition| ready.status != ConditionStatus::True;
    let found = of(Type::Stalled).or_else(|| of(Type::Reconciling)).or_else(|| of(Type::Ready).filter(is_unwell));
    found.map_or("-", |condition| condition.reason.as_str())
}
