//! Processor, memory and disk.

use std::fs;

use drover_api::client_node::Fingerprint;

use super::attribute::put;
use crate::config::AgentConfig;

/// `cpu.arch`, in Go's spelling, which job files know.
#[expect(clippy::unnecessary_wraps, reason = "all detectors have one signature")]
pub(super) fn arch(_: &AgentConfig, found: &mut Fingerprint) -> Result<(), String> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    };
    put(found, "cpu.arch", arch.to_owned());
    Ok(())
}

/// Cores and their clock rate.
pub(super) fn cpu(_: &AgentConfig, found: &mut Fingerprint) -> Result<(), String> {
    let text = fs::read_to_string("/proc/cpuinfo").map_err(|error| format!("/proc/cpuinfo: {error}"))?;
    let cores = text.lines().filter(|line| line.starts_with("processor")).count();
    let cores = i64::try_from(cores.max(1)).map_err(|error| error.to_string())?;
    let megahertz = max_frequency().or_else(|| field(&text, "cpu MHz").and_then(whole)).unwrap_or(1000);
    put(found, "cpu.modelname", field(&text, "model name").unwrap_or_default().to_owned());
    put(found, "cpu.frequency", megahertz.to_string());
    put(found, "cpu.numcores", cores.to_string());
    put(found, "cpu.reservablecores", cores.to_string());
    put(found, "cpu.totalcompute", (cores * megahertz).to_string());
    put(found, "numa.node.count", numa_nodes().to_string());
    found.resources.cpu = cores * megahertz;
    found.resources.cores = cores;
    Ok(())
}

fn max_frequency() -> Option<i64> {
    let text = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").ok()?;
    text.trim().parse::<i64>().ok().map(|kilohertz| kilohertz / 1000)
}

fn numa_nodes() -> usize {
    let Ok(entries) = fs::read_dir("/sys/devices/system/node") else { return 1 };
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
    entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count().max(1)
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()))
}

fn whole(number: &str) -> Option<i64> {
    number.split('.').next().and_then(|whole| whole.parse().ok())
}

/// Memory of the machine.
pub(super) fn memory(_: &AgentConfig, found: &mut Fingerprint) -> Result<(), String> {
    let text = fs::read_to_string("/proc/meminfo").map_err(|error| format!("/proc/meminfo: {error}"))?;
    let kibibytes: i64 = field(&text, "MemTotal")
        .and_then(|value| value.split(' ').next())
        .and_then(|value| value.parse().ok())
        .ok_or("MemTotal is missing in /proc/meminfo")?;
    put(found, "memory.totalbytes", (kibibytes * 1024).to_string());
    found.resources.memory_mb = kibibytes / 1024;
    Ok(())
}

/// The file system that holds the allocations' directories.
pub(super) fn storage(config: &AgentConfig, found: &mut Fingerprint) -> Result<(), String> {
    let dir = &config.alloc_dir;
    let stat = rustix::fs::statvfs(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let bytes = stat.f_blocks.saturating_mul(stat.f_frsize);
    put(found, "unique.storage.volume", dir.to_string_lossy().into_owned());
    put(found, "unique.storage.bytestotal", bytes.to_string());
    found.resources.disk_mb = i64::try_from(bytes / (1024 * 1024)).unwrap_or(i64::MAX);
    Ok(())
}
