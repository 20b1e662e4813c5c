//! Control groups of the first version: a hierarchy per controller, each with a folder of ours.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::files::{SHIMS, make_dir, read_field, read_number, remove_dir, write};
use super::{cores, devices};
use crate::protocol::{CgroupSpec, OomKill, Slice};

/// The hierarchies that tasks are put into, the one that lists and kills first.
const WANTED: [&str; 7] = ["pids", "freezer", "memory", "cpu", "cpuacct", "cpuset", "devices"];

/// The length of the period that a quota is of.
const PERIOD_US: u64 = 100_000;

/// The mount points of the wanted controllers, by name.
pub(super) fn hierarchies(mounts: &str) -> BTreeMap<&'static str, PathBuf> {
    let mut found = BTreeMap::new();
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, point, "cgroup", options, ..] = fields.as_slice() else { continue };
        for name in WANTED {
            if options.split(',').any(|option| option == name) {
                found.entry(name).or_insert_with(|| PathBuf::from(point));
            }
        }
    }
    // The last controllers of a host may live in a tree of the second version; without these two there is no first
    // version.
    if found.contains_key("memory") && found.contains_key("cpu") { found } else { BTreeMap::new() }
}

/// The folder of all tasks, below ours: the supervisor is beside it, out of reach of its cap.
const TASKS: &str = "tasks.slice";
/// The folder of the tasks without cores of their own, in the hierarchy of the cores.
const SHARE: &str = "share.slice";

/// Our folders.
#[derive(Clone, Debug)]
pub(crate) struct BaseV1 {
    /// By hierarchy, in the order of [`WANTED`]; controllers that share one are there once.
    dirs: Vec<(Vec<&'static str>, PathBuf)>,
}

impl BaseV1 {
    /// Makes the folder `name` in each hierarchy.
    pub(super) fn prepare(found: &BTreeMap<&'static str, PathBuf>, name: &str) -> io::Result<Self> {
        let mut dirs: Vec<(Vec<&'static str>, PathBuf)> = Vec::new();
        for controller in WANTED {
            let Some(point) = found.get(controller) else { continue };
            let dir = point.join(name);
            if let Some((controllers, _)) = dirs.iter_mut().find(|(_, known)| *known == dir) {
                controllers.push(controller);
                continue;
            }
            for dir in [dir.clone(), dir.join(TASKS)] {
                make_dir(&dir)?;
                if controller == "cpuset" {
                    inherit_cpuset(&dir)?;
                }
            }
            dirs.push((vec![controller], dir));
        }
        for (controllers, dir) in &dirs {
            for dir in [dir.join(TASKS).join(SHARE), dir.join(SHIMS)] {
                make_dir(&dir)?;
                if controllers.contains(&"cpuset") {
                    inherit_cpuset(&dir)?;
                }
            }
        }
        let base = Self { dirs };
        if let Some(shared) = base.shared() {
            make_dir(&shared)?;
            inherit_cpuset(&shared)?;
            base.share_cores()?;
        }
        Ok(base)
    }

    /// The folder that tasks without cores of their own enter beside theirs. Where the cores share a hierarchy with
    /// another controller each task has its own folder there, and cores cannot be kept free of the others.
    pub(super) fn shared(&self) -> Option<PathBuf> {
        let alone = |(controllers, _): &&(Vec<&str>, PathBuf)| controllers.as_slice() == ["cpuset"];
        self.dirs.iter().find(alone).map(|(_, base)| base.join(TASKS).join(SHARE))
    }

    pub(super) fn share_cores(&self) -> io::Result<()> {
        let Some(shared) = self.shared() else { return Ok(()) };
        let Some(tasks) = shared.parent() else { return Ok(()) };
        let read = |dir: &Path| fs::read_to_string(dir.join("cpuset.cpus")).map(|text| cores::parse(&text));
        let mut held = std::collections::BTreeSet::new();
        for entry in fs::read_dir(tasks)? {
            let dir = entry?.path();
            if dir.is_dir() && dir != shared {
                held.extend(read(&dir)?);
            }
        }
        let wanted = cores::shared(&read(tasks)?, &held);
        if read(&shared)? == cores::parse(&wanted) {
            return Ok(());
        }
        // Containers and those who look after them are below: no group may have a core that the one above it lacks.
        let below = || fs::read_dir(&shared).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
        let give_below = || {
            for dir in below().filter(|dir| dir.is_dir()) {
                if let Err(error) = write(&dir.join("cpuset.cpus"), &wanted) {
                    tracing::debug!(error = %error, "a container has other cores");
                }
            }
        };
        give_below();
        write(&shared.join("cpuset.cpus"), &wanted)?;
        give_below();
        Ok(())
    }

    pub(super) fn cap(&self, slice: &Slice) -> io::Result<()> {
        let text = |value: Option<u64>| value.map_or_else(|| "-1".to_owned(), |value| value.to_string());
        for (controllers, base) in &self.dirs {
            let tasks = base.join(TASKS);
            if controllers.contains(&"memory") {
                write(&tasks.join("memory.limit_in_bytes"), &text(slice.memory_bytes))?;
            }
            if controllers.contains(&"cpu") {
                write(&tasks.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                write(&tasks.join("cpu.cfs_quota_us"), &text(slice.cpu_quota_us))?;
            }
        }
        Ok(())
    }

    pub(super) fn dirs(&self) -> Vec<PathBuf> {
        self.dirs.iter().map(|(_, dir)| dir.clone()).collect()
    }

    pub(super) fn own_dirs(&self) -> io::Result<Vec<PathBuf>> {
        self.dirs
            .iter()
            .map(|(controllers, base)| {
                let dir = base.join("supervisor");
                make_dir(&dir)?;
                if controllers.contains(&"cpuset") {
                    inherit_cpuset(&dir)?;
                }
                Ok(dir)
            })
            .collect()
    }

    pub(super) fn create(&self, spec: &CgroupSpec) -> io::Result<Vec<PathBuf>> {
        let mut made = Vec::new();
        let result = self.dirs.iter().filter(|(controllers, _)| is_needed(controllers, spec)).try_for_each(
            |(controllers, base)| {
                let dir = base.join(TASKS).join(&spec.name);
                make_dir(&dir)?;
                made.push(dir.clone());
                controllers.iter().try_for_each(|controller| limit(controller, &dir, spec))
            },
        );
        if let Err(error) = result {
            for dir in &made {
                if let Err(error) = remove_dir(dir) {
                    tracing::warn!(error = %error, "a group that was not finished is left");
                }
            }
            return Err(error);
        }
        Ok(made)
    }
}

/// Where the group of a container lies below ours, in each hierarchy.
pub(super) fn container_place(name: &str, has_cores: bool) -> PathBuf {
    let tasks = Path::new(TASKS);
    // What has no cores of its own is below what all of those share, in the other hierarchies too: a runtime knows one
    // path for all.
    if has_cores { tasks.join(name) } else { tasks.join(SHARE).join(name) }
}

/// The mount points, the one that lists and kills first.
pub(super) fn roots(found: &BTreeMap<&'static str, PathBuf>) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = Vec::new();
    for point in WANTED.into_iter().filter_map(|controller| found.get(controller)) {
        if !roots.contains(point) {
            roots.push(point.clone());
        }
    }
    roots
}

/// A hierarchy that would limit nothing and count nothing only costs time at each start.
fn is_needed(controllers: &[&str], spec: &CgroupSpec) -> bool {
    controllers.iter().any(|controller| match *controller {
        "cpu" => spec.cpu_shares.is_some() || spec.cpu_quota_us.is_some(),
        "cpuset" => !spec.cores.is_empty(),
        "devices" => spec.restrict_devices,
        _ => true,
    })
}

fn limit(controller: &str, dir: &Path, spec: &CgroupSpec) -> io::Result<()> {
    let set = |file: &str, value: Option<u64>| match value {
        Some(value) => write(&dir.join(file), &value.to_string()),
        None => Ok(()),
    };
    match controller {
        "cpu" => {
            set("cpu.shares", spec.cpu_shares)?;
            if spec.cpu_quota_us.is_some() {
                set("cpu.cfs_period_us", Some(PERIOD_US))?;
            }
            set("cpu.cfs_quota_us", spec.cpu_quota_us)
        }
        "memory" => {
            set("memory.limit_in_bytes", spec.memory_hard_bytes)?;
            set("memory.soft_limit_in_bytes", spec.memory_soft_bytes)?;
            // Without swap accounting the file is missing; then there is no swap to limit either.
            let swap = dir.join("memory.memsw.limit_in_bytes");
            match spec.memory_hard_bytes {
                Some(hard) if swap.exists() => write(&swap, &hard.to_string()),
                Some(_) | None => Ok(()),
            }
        }
        "cpuset" => {
            inherit_cpuset(dir)?;
            if spec.cores.is_empty() { Ok(()) } else { write(&dir.join("cpuset.cpus"), &spec.cores) }
        }
        "pids" => set("pids.max", spec.pids_max),
        "devices" if spec.restrict_devices => {
            write(&dir.join("devices.deny"), "a")?;
            let own = spec.devices.iter().map(String::as_str);
            devices::USUAL.into_iter().chain(own).try_for_each(|device| write(&dir.join("devices.allow"), device))
        }
        _ => Ok(()),
    }
}

/// A new cpuset is empty, and nothing can enter it until it has cores and memory nodes.
fn inherit_cpuset(dir: &Path) -> io::Result<()> {
    let Some(parent) = dir.parent() else { return Ok(()) };
    for file in ["cpuset.mems", "cpuset.cpus"] {
        let own = fs::read_to_string(dir.join(file))?;
        if own.trim().is_empty() {
            let inherited = fs::read_to_string(parent.join(file))?;
            write(&dir.join(file), inherited.trim())?;
        }
    }
    Ok(())
}

/// Whether memory ran out.
pub(super) fn oom(dirs: &[PathBuf]) -> Option<OomKill> {
    let dir = dirs.iter().find(|dir| dir.join("memory.oom_control").exists())?;
    let kills = read_field(&dir.join("memory.oom_control"), "oom_kill")?;
    (kills > 0).then(|| OomKill {
        limit_bytes: read_number(&dir.join("memory.limit_in_bytes")).unwrap_or(0),
        peak_bytes: read_number(&dir.join("memory.max_usage_in_bytes")).unwrap_or(0),
    })
}
