//! What the tasks of a group use.

use std::path::PathBuf;

use super::files::{read_field, read_number};
use crate::protocol::{CgroupHandle, CgroupVersion};

/// What the tasks of a group use, for statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in nanoseconds.
    pub cpu_nanos: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The most memory that it had.
    pub memory_peak_bytes: u64,
    /// Processes and threads.
    pub pids: u64,
}

/// Reads what a group uses now; none when it is gone.
pub fn usage(handle: &CgroupHandle) -> Option<Usage> {
    let dirs: Vec<PathBuf> = handle.dirs.iter().map(PathBuf::from).collect();
    if !dirs.first()?.exists() {
        return None;
    }
    let number = |file: &str| dirs.iter().find_map(|dir| read_number(&dir.join(file))).unwrap_or(0);
    Some(match handle.version {
        CgroupVersion::V1 => Usage {
            cpu_nanos: number("cpuacct.usage"),
            memory_bytes: number("memory.usage_in_bytes"),
            memory_peak_bytes: number("memory.max_usage_in_bytes"),
            pids: number("pids.current"),
        },
        CgroupVersion::V2 => Usage {
            cpu_nanos: dirs
                .iter()
                .find_map(|dir| read_field(&dir.join("cpu.stat"), "usage_usec"))
                .unwrap_or(0)
                .saturating_mul(1000),
            memory_bytes: number("memory.current"),
            memory_peak_bytes: number("memory.peak"),
            pids: number("pids.current"),
        },
    })
}
