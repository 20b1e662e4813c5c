//! What the node itself uses: its cores over a moment, its memory, and the file system of the allocations.

use std::io;
use std::path::Path;
use std::time::Duration;

use drover_socket::protocol::{CoreStats, HostStats};
use procfs::{CpuTime, Current as _, CurrentSI as _, KernelStats, Meminfo, Uptime};

/// The moment over which cores are looked at.
const MOMENT: Duration = Duration::from_millis(200);

/// Measures it.
///
/// # Errors
/// When the kernel's files cannot be read.
pub(crate) async fn measured(alloc_dir: &Path) -> io::Result<HostStats> {
    let before = KernelStats::current().map_err(io::Error::other)?.cpu_time;
    tokio::time::sleep(MOMENT).await;
    let after = KernelStats::current().map_err(io::Error::other)?.cpu_time;
    let memory = Meminfo::current().map_err(io::Error::other)?;
    let uptime = Uptime::current().map_err(io::Error::other)?;
    let disk = rustix::fs::statvfs(alloc_dir)?;
    let inodes_used = share(disk.f_files.saturating_sub(disk.f_ffree), disk.f_files);
    Ok(HostStats {
        cores: before.iter().zip(&after).map(|(before, after)| core(before, after)).collect(),
        memory_bytes: memory.mem_total,
        memory_available_bytes: memory.mem_available.unwrap_or(memory.mem_free),
        memory_free_bytes: memory.mem_free,
        disk_path: alloc_dir.to_owned(),
        disk_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
        disk_available_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
        disk_inodes_used: inodes_used,
        uptime_seconds: uptime.uptime_duration().as_secs(),
    })
}

/// What a core did between two looks.
fn core(before: &CpuTime, after: &CpuTime) -> CoreStats {
    let of = |times: fn(&CpuTime) -> u64| times(after).saturating_sub(times(before));
    let user = of(|it| it.user.saturating_add(it.nice));
    let system = of(|it| {
        let hidden = [it.irq, it.softirq, it.steal].into_iter().flatten().fold(0, u64::saturating_add);
        it.system.saturating_add(hidden)
    });
    let idle = of(|it| it.idle.saturating_add(it.iowait.unwrap_or(0)));
    let all = user.saturating_add(system).saturating_add(idle);
    CoreStats { user: share(user, all), system: share(system, all), idle: share(idle, all) }
}

/// A part of a whole; of nothing nothing.
fn share(part: u64, whole: u64) -> f64 {
    let number = |n: u64| Duration::from_nanos(n).as_secs_f64();
    if whole == 0 { 0.0 } else { number(part) / number(whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn cores_memory_and_disk_are_those_of_this_machine() {
        let found = measured(Path::new("/")).await.unwrap();
        assert_eq!(found.cores.len(), std::thread::available_parallelism().unwrap().get());
        for core in &found.cores {
            let all = core.user + core.system + core.idle;
            assert!((all - 1.0).abs() < 1e-6 || all == 0.0, "{core:?}");
        }
        assert!(found.memory_free_bytes <= found.memory_available_bytes.max(found.memory_free_bytes));
        assert!(found.memory_available_bytes <= found.memory_bytes && found.memory_bytes > 0);
        assert!(found.disk_available_bytes <= found.disk_bytes && found.disk_bytes > 0);
        assert!((0.0..=1.0).contains(&found.disk_inodes_used) && found.uptime_seconds > 0);
        assert!(measured(Path::new("/none")).await.is_err());
    }

    #[test]
    fn a_core_that_did_nothing_has_no_parts() {
        assert_eq!((share(1, 4), share(0, 0)), (0.25, 0.0));
    }
}
