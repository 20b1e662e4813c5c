//! Who may use a volume beside whom (`spec/volumes.md` 3.3 and 3.4). The scheduler and the taking of claims ask the
//! same functions, so that they cannot differ.

use drover_api::csi_volume::{AccessMode, CSIVolumeSpec, CSIVolumeStatus, Claim, ClaimMode};
use drover_api::volume_request::{RequestAccessMode, VolumeRequest, VolumeType};

/// How many claims of each mode a volume has; those being released count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Read claims.
    pub readers: usize,
    /// Write claims.
    pub writers: usize,
}

impl Held {
    /// Counts claims.
    pub fn by<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> Self {
        let mut held = Self::default();
        for claim in claims {
            match claim.mode {
                ClaimMode::Read => held.readers += 1,
                ClaimMode::Write => held.writers += 1,
            }
        }
        held
    }

    /// Whether one more claim of a mode is free. `current` is how the volume is used now; none while it is unclaimed.
    pub const fn has_room(self, current: Option<AccessMode>, wanted: ClaimMode) -> bool {
        let Some(current) = current else { return true };
        match (wanted, current) {
            (ClaimMode::Read, AccessMode::SingleNodeReaderOnly) => self.readers == 0,
            (ClaimMode::Read, AccessMode::SingleNodeWriter) => self.readers == 0 && self.writers == 0,
            (ClaimMode::Write, AccessMode::SingleNodeReaderOnly | AccessMode::MultiNodeReaderOnly) => false,
            (ClaimMode::Write, AccessMode::SingleNodeWriter | AccessMode::MultiNodeSingleWriter) => self.writers == 0,
            (
                ClaimMode::Read,
                AccessMode::MultiNodeReaderOnly | AccessMode::MultiNodeSingleWriter | AccessMode::MultiNodeMultiWriter,
            )
            | (ClaimMode::Write, AccessMode::MultiNodeMultiWriter) => true,
        }
    }
}

/// Whether a volume that is used in this way can be written to.
pub const fn is_writer(mode: AccessMode) -> bool {
    match mode {
        AccessMode::SingleNodeWriter | AccessMode::MultiNodeSingleWriter | AccessMode::MultiNodeMultiWriter => true,
        AccessMode::SingleNodeReaderOnly | AccessMode::MultiNodeReaderOnly => false,
    }
}

/// Whether a volume can be read from now.
pub const fn is_read_schedulable(status: &CSIVolumeStatus) -> bool {
    status.schedulable && status.resource_exhausted.is_none()
}

/// Whether a volume can be written to now; as it is used, or, while it is unclaimed, in one of the ways that its spec
/// offers.
pub fn is_write_schedulable(spec: &CSIVolumeSpec, status: &CSIVolumeStatus) -> bool {
    let offers_writing = || spec.capabilities.iter().any(|offered| is_writer(offered.access_mode));
    is_read_schedulable(status) && status.access_mode.map_or_else(offers_writing, is_writer)
}

/// Whether a request is for a CSI volume.
pub fn is_csi(request: &VolumeRequest) -> bool {
    request.r#type == VolumeType::Csi
}

/// The id of the volume that a slot gets: with volumes of each slot's own, the slot is part of it.
pub fn source(request: &VolumeRequest, index: i64) -> String {
    if request.per_alloc { format!("{}[{index}]", request.source) } else { request.source.clone() }
}

/// How a request uses a CSI volume; none for a mode of host volumes.
pub(super) const fn of_csi(mode: RequestAccessMode) -> Option<AccessMode> {
    match mode {
        RequestAccessMode::SingleNodeReaderOnly => Some(AccessMode::SingleNodeReaderOnly),
        RequestAccessMode::SingleNodeWriter => Some(AccessMode::SingleNodeWriter),
        RequestAccessMode::MultiNodeReaderOnly => Some(AccessMode::MultiNodeReaderOnly),
        RequestAccessMode::MultiNodeSingleWriter => Some(AccessMode::MultiNodeSingleWriter),
        RequestAccessMode::MultiNodeMultiWriter => Some(AccessMode::MultiNodeMultiWriter),
        RequestAccessMode::SingleNodeReader
        | RequestAccessMode::SingleNodeSingleWriter
        | RequestAccessMode::SingleNodeMultiWriter => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use expect_test::expect;

    use super::*;

    #[test]
    fn free_claims_follow_from_the_current_mode_and_who_is_there() {
        let modes = AccessMode::ALL.iter().copied().map(Some).chain([None]);
        let mut table = String::new();
        for mode in modes {
            let name = mode.map_or("unclaimed", AccessMode::as_str);
            write!(table, "{name:26}").unwrap();
            for (readers, writers) in [(0, 0), (1, 0), (0, 1), (2, 1)] {
                let held = Held { readers, writers };
                let free = |wanted, letter| if held.has_room(mode, wanted) { letter } else { '-' };
                let (read, write) = (free(ClaimMode::Read, 'r'), free(ClaimMode::Write, 'w'));
                write!(table, "  R{readers}W{writers} {read}{write}").unwrap();
            }
            table.push('\n');
        }
        expect![[r"
            single-node-reader-only     R0W0 r-  R1W0 --  R0W1 r-  R2W1 --
            single-node-writer          R0W0 rw  R1W0 -w  R0W1 --  R2W1 --
            multi-node-reader-only      R0W0 r-  R1W0 r-  R0W1 r-  R2W1 r-
            multi-node-single-writer    R0W0 rw  R1W0 rw  R0W1 r-  R2W1 r-
            multi-node-multi-writer     R0W0 rw  R1W0 rw  R0W1 rw  R2W1 rw
            unclaimed                   R0W0 rw  R1W0 rw  R0W1 rw  R2W1 rw
        "]]
        .assert_eq(&table);
    }
}
