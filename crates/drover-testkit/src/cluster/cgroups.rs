//! The control groups of a node: one folder in each hierarchy, which is the root of what the node sees.
//!
//! Must never know what runs in them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    point: PathBuf,
    kind: String,
    options: String,
}

fn hierarchies() -> Result<Vec<Hierarchy>> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("reading /proc/self/mounts")?;
    Ok(parse(&mounts))
}

fn parse(mounts: &str) -> Vec<Hierarchy> {
    let row = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let own =
            options.split(',').filter(|option| !matches!(*option, "rw" | "relatime" | "nosuid" | "nodev" | "noexec"));
        (kind == "cgroup" || kind == "cgroup2").then(|| Hierarchy {
            point: PathBuf::from(point),
            kind: kind.to_owned(),
            options: own.collect::<Vec<_>>().join(","),
        })
    };
    mounts.lines().filter_map(row).collect()
}

/// Moves this process into the group `name` of each hierarchy, which is made.
pub(super) fn enter(name: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let folder = hierarchy.point.join(name);
        let enter = || -> io::Result<()> {
            fs::create_dir_all(&folder)?;
            // A new group of this hierarchy has no processors and no memory until it is given some.
            for file in ["cpuset.cpus", "cpuset.mems"].map(|file| (hierarchy.point.join(file), folder.join(file))) {
                if hierarchy.kind == "cgroup" && file.1.exists() {
                    fs::write(&file.1, fs::read_to_string(&file.0)?)?;
                }
            }
            fs::write(folder.join("cgroup.procs"), std::process::id().to_string())
        };
        enter().with_context(|| format!("entering the control group {}", folder.display()))?;
    }
    Ok(())
}

/// Mounts every hierarchy again: in a namespace of control groups, one sees its own groups only.
pub(super) fn mount_own() -> Result<()> {
    for Hierarchy { point, kind, options } in hierarchies()? {
        let context = || format!("mounting {}", point.display());
        unmount(&point, UnmountFlags::DETACH).with_context(context)?;
        let data =
            (kind == "cgroup").then(|| std::ffi::CString::new(options.clone())).transpose().with_context(context)?;
        mount("cgroup", &point, kind.as_str(), MountFlags::empty(), data.as_deref()).with_context(context)?;
    }
    Ok(())
}

/// Removes the group `name` with all below it, in which no process is any more.
pub(super) fn remove(name: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let folder = hierarchy.point.join(name);
        remove_tree(&folder).with_context(|| format!("removing the control group {}", folder.display()))?;
    }
    Ok(())
}

/// The groups of clusters whose process is gone.
pub(super) fn remove_left(prefix: &str) -> Result<()> {
    let mut names = std::collections::BTreeSet::new();
    for hierarchy in hierarchies()? {
        let Ok(entries) = fs::read_dir(&hierarchy.point) else { continue };
        names.extend(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()));
    }
    for name in names {
        let owner = name.strip_prefix(prefix).and_then(|rest| rest.split('-').next()?.parse::<i32>().ok());
        if owner.is_some_and(|pid| crate::process::ProcessId::of(pid).is_none()) {
            remove(&name)?;
        }
    }
    Ok(())
}

fn remove_tree(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found_with_what_makes_them() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,nosuid,relatime,cpu,cpuacct 0 0\n\
                      cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        let found: Vec<(String, String)> =
            parse(mounts).into_iter().map(|one| (one.point.display().to_string(), one.options)).collect();
        let expected = [("cpu", "cpu,cpuacct"), ("systemd", "name=systemd"), ("unified", "")];
        assert_eq!(found, expected.map(|(name, options)| (format!("/sys/fs/cgroup/{name}"), options.to_owned())));
    }
}
