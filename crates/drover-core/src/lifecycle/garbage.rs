//! Which ended allocations a node gives up, and why.
//!
//! A running allocation is never in question. The oldest ended one goes first, one after the other, until the node is
//! below its limits again.

use std::collections::BTreeSet;

use jiff::Timestamp;

/// What the node uses now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// Of the disk that holds the allocations, in percent.
    pub disk_percent: u64,
    /// Of its inodes, in percent.
    pub inode_percent: u64,
    /// Allocations whose files are there, ended ones included.
    pub live: usize,
}

/// Above these something has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GarbageLimits {
    /// Of the disk, in percent.
    pub disk_percent: u64,
    /// Of the inodes, in percent.
    pub inode_percent: u64,
    /// Allocations.
    pub live: usize,
}

impl Default for GarbageLimits {
    fn default() -> Self {
        Self { disk_percent: 80, inode_percent: 70, live: 50 }
    }
}

/// Why something has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageReason {
    /// The disk fills up.
    Disk,
    /// The inodes run out.
    Inodes,
    /// There are too many allocations.
    Count,
}

/// Why something has to go, if so. Limits themselves are still fine.
pub fn garbage_reason(usage: &NodeUsage, limits: &GarbageLimits) -> Option<GarbageReason> {
    if usage.disk_percent > limits.disk_percent {
        Some(GarbageReason::Disk)
    } else if usage.inode_percent > limits.inode_percent {
        Some(GarbageReason::Inodes)
    } else if usage.live > limits.live {
        Some(GarbageReason::Count)
    } else {
        None
    }
}

/// The ended allocation that goes first: the one that ended first, by its id where two ended together.
pub fn oldest<'a>(ended: &BTreeSet<(Timestamp, &'a str)>) -> Option<&'a str> {
    ended.first().map(|(_, uid)| *uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_164_disk_inodes_and_count_each_are_a_reason() {
        let limits = GarbageLimits::default();
        let table = [
            (NodeUsage { disk_percent: 85, inode_percent: 0, live: 1 }, GarbageReason::Disk),
            (NodeUsage { disk_percent: 0, inode_percent: 90, live: 1 }, GarbageReason::Inodes),
            (NodeUsage { disk_percent: 0, inode_percent: 0, live: 51 }, GarbageReason::Count),
            (NodeUsage { disk_percent: 85, inode_percent: 90, live: 51 }, GarbageReason::Disk),
        ];
        for (usage, wanted) in table {
            assert_eq!(garbage_reason(&usage, &limits), Some(wanted), "{usage:?}");
        }
        let at = |second| Timestamp::from_second(second).expect("a time");
        let ended = [(at(3), "c"), (at(1), "b"), (at(2), "a")].into();
        assert_eq!(oldest(&ended), Some("b"));
        assert_eq!(oldest(&BTreeSet::new()), None);
    }

    #[test]
    fn a_165_at_the_limits_nothing_goes() {
        let usage = NodeUsage { disk_percent: 80, inode_percent: 70, live: 50 };
        assert_eq!(garbage_reason(&usage, &GarbageLimits::default()), None);
    }
}
