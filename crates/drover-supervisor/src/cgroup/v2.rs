//! Control groups of the second version: one tree with all controllers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::files::{SHIMS, make_dir, read_field, read_number, remove_dir, write};
use super::{cores, devices, sys};
use crate::protocol::{CgroupSpec, OomKill, Slice};

/// What the groups of tasks need.
const CONTROLLERS: [&str; 5] = ["cpuset", "cpu", "io", "memory", "pids"];

/// The length of the period that a quota is of.
const PERIOD_US: u64 = 100_000;

/// The mount point of the tree.
pub(super) fn root(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, point, "cgroup2", ..] = fields.as_slice() else { return None };
        Some(PathBuf::from(point))
    })
}

/// Fails with the names of the controllers that the tree lacks.
pub(super) fn missing(root: &Path) -> io::Result<()> {
    let offered = fs::read_to_string(root.join("cgroup.controllers"))?;
    let missing: Vec<&str> =
        CONTROLLERS.into_iter().filter(|wanted| !offered.split_whitespace().any(|it| it == *wanted)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let reason = format!("{} lacks the controllers {}", root.display(), missing.join(", "));
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}

/// The folder of all tasks, below ours: the supervisor is beside it, out of reach of its cap.
const TASKS: &str = "tasks.slice";
/// The folder of the tasks without cores of their own, in that one.
const SHARE: &str = "share.slice";
/// The folder of those with.
const RESERVE: &str = "reserve.slice";

/// Our folder.
#[derive(Clone, Debug)]
pub(crate) struct BaseV2 {
    dir: PathBuf,
}

impl BaseV2 {
    /// Makes the folder `name` and lets the groups in it have the controllers.
    pub(super) fn prepare(root: &Path, name: &str) -> io::Result<Self> {
        missing(root)?;
        let dir = root.join(name);
        let tasks = dir.join(TASKS);
        let all = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
        write(&root.join("cgroup.subtree_control"), &all)?;
        for dir in [dir.clone(), tasks.clone(), tasks.join(SHARE), tasks.join(RESERVE)] {
            make_dir(&dir)?;
            write(&dir.join("cgroup.subtree_control"), &all)?;
        }
        make_dir(&dir.join(SHIMS))?;
        let base = Self { dir };
        base.share_cores()?;
        Ok(base)
    }

    pub(super) fn share_cores(&self) -> io::Result<()> {
        let tasks = self.dir.join(TASKS);
        let read = |path: &Path| fs::read_to_string(path).map(|text| cores::parse(&text));
        let mut held = std::collections::BTreeSet::new();
        for entry in fs::read_dir(tasks.join(RESERVE))? {
            let dir = entry?.path();
            if dir.is_dir() {
                held.extend(read(&dir.join("cpuset.cpus"))?);
            }
        }
        let shared = tasks.join(SHARE).join("cpuset.cpus");
        let wanted = cores::shared(&read(&tasks.join("cpuset.cpus.effective"))?, &held);
        if read(&shared)? == cores::parse(&wanted) { Ok(()) } else { write(&shared, &wanted) }
    }

    pub(super) fn cap(&self, slice: &Slice) -> io::Result<()> {
        let tasks = self.dir.join(TASKS);
        let text = |value: Option<u64>| value.map_or_else(|| "max".to_owned(), |value| value.to_string());
        write(&tasks.join("memory.max"), &text(slice.memory_bytes))?;
        write(&tasks.join("cpu.max"), &format!("{} {PERIOD_US}", text(slice.cpu_quota_us)))
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.dir.clone()
    }

    pub(super) fn own_dir(&self) -> io::Result<PathBuf> {
        let dir = self.dir.join("supervisor");
        make_dir(&dir)?;
        Ok(dir)
    }

    pub(super) fn create(&self, spec: &CgroupSpec) -> io::Result<PathBuf> {
        let slice = if spec.cores.is_empty() { SHARE } else { RESERVE };
        let dir = self.dir.join(TASKS).join(slice).join(format!("{}.scope", spec.name));
        make_dir(&dir)?;
        if let Err(error) = limit(&dir, spec) {
            if let Err(error) = remove_dir(&dir) {
                tracing::warn!(error = %error, "a group that was not finished is left");
            }
            return Err(error);
        }
        Ok(dir)
    }
}

/// Where the group of a container lies below ours.
pub(super) fn container_place(name: &str, has_cores: bool) -> PathBuf {
    Path::new(TASKS).join(if has_cores { RESERVE } else { SHARE }).join(format!("{name}.scope"))
}

fn limit(dir: &Path, spec: &CgroupSpec) -> io::Result<()> {
    let set = |file: &str, value: Option<String>| match value {
        Some(value) => write(&dir.join(file), &value),
        None => Ok(()),
    };
    set("cpu.weight", spec.cpu_shares.map(|shares| weight(shares).to_string()))?;
    set("cpu.max", spec.cpu_quota_us.map(|quota| format!("{quota} {PERIOD_US}")))?;
    set("memory.max", spec.memory_hard_bytes.map(|bytes| bytes.to_string()))?;
    set("memory.low", spec.memory_soft_bytes.map(|bytes| bytes.to_string()))?;
    set("cpuset.cpus", (!spec.cores.is_empty()).then(|| spec.cores.clone()))?;
    set("pids.max", spec.pids_max.map(|pids| pids.to_string()))?;
    if !spec.restrict_devices {
        return Ok(());
    }
    let own = spec.devices.iter().map(String::as_str);
    let program = devices::program(devices::USUAL.into_iter().chain(own))?;
    sys::allow_devices(dir, &program).map_err(|error| named("devices of its group", &error))
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Fails when programs that keep tasks from devices cannot be loaded.
pub(super) fn devices_missing() -> io::Result<()> {
    let program = devices::program(devices::USUAL)?;
    sys::try_devices(&program).map_err(|error| {
        named("tasks cannot be kept from devices: the kernel loads no BPF program of type CGROUP_DEVICE", &error)
    })
}

/// The usual conversion of shares (2 to 262144) to a weight (1 to 10000).
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

/// Whether memory ran out.
pub(super) fn oom(dir: &Path) -> Option<OomKill> {
    let kills = read_field(&dir.join("memory.events"), "oom_kill")?;
    (kills > 0).then(|| OomKill {
        limit_bytes: read_number(&dir.join("memory.max")).unwrap_or(0),
        peak_bytes: read_number(&dir.join("memory.peak")).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_become_weights() {
        assert_eq!([2, 500, 1024, 262_144].map(weight), [1, 19, 39, 10_000]);
    }
}
