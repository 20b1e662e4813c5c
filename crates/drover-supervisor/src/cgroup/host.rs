//! The hierarchies of this host, and our folder in each.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::files::{SHIMS, remove_tree, write};
use super::group::Cgroup;
use super::{v1, v2};
use crate::protocol::{CgroupHandle, CgroupSpec, CgroupVersion, Slice};

/// The place of this supervisor's groups.
#[derive(Clone, Debug)]
pub(crate) enum Cgroups {
    /// One folder per hierarchy.
    V1(v1::BaseV1),
    /// One folder.
    V2(v2::BaseV2),
}

impl Cgroups {
    /// Finds the hierarchies and makes the folder `name` in each.
    pub(crate) fn prepare(name: &str) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        Self::prepare_in(&mounts, name)
    }

    pub(super) fn prepare_in(mounts: &str, name: &str) -> io::Result<Self> {
        let v1 = v1::hierarchies(mounts);
        if v1.is_empty() {
            let root = v2::root(mounts)
                .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no cgroup hierarchy is mounted"))?;
            return v2::BaseV2::prepare(&root, name).map(Self::V2);
        }
        v1::BaseV1::prepare(&v1, name).map(Self::V1)
    }

    /// Makes the group of a task and sets its limits. When this fails nothing is left of it.
    pub(crate) fn create(&self, spec: &CgroupSpec) -> io::Result<Cgroup> {
        let cgroup = match self {
            Self::V1(base) => {
                let dirs = base.create(spec)?;
                let shared = if spec.cores.is_empty() { base.shared() } else { None };
                Cgroup { version: CgroupVersion::V1, dirs, shared }
            }
            Self::V2(base) => Cgroup { version: CgroupVersion::V2, dirs: vec![base.create(spec)?], shared: None },
        };
        if !spec.cores.is_empty() {
            self.share_cores();
        }
        Ok(cgroup)
    }

    /// Caps what all tasks together may use.
    pub(crate) fn cap(&self, slice: &Slice) -> io::Result<()> {
        match self {
            Self::V1(base) => base.cap(slice),
            Self::V2(base) => base.cap(slice),
        }
    }

    /// Gives the cores that no task has for itself to all others. Without that they still run, on the reserved cores
    /// too.
    pub(crate) fn share_cores(&self) {
        let shared = match self {
            Self::V1(base) => base.share_cores(),
            Self::V2(base) => base.share_cores(),
        };
        if let Err(error) = shared {
            tracing::warn!(error = %error, "reserved cores are not kept free of other tasks");
        }
    }

    /// Moves a process of our own into a group beside those of the tasks, out of the one that started it.
    pub(crate) fn take_in(&self, pid: u32) -> io::Result<()> {
        let dirs = match self {
            Self::V1(base) => base.own_dirs()?,
            Self::V2(base) => vec![base.own_dir()?],
        };
        dirs.iter().try_for_each(|dir| write(&dir.join("cgroup.procs"), &pid.to_string()))?;
        self.leave_others(&fs::read_to_string("/proc/self/mounts")?, pid)
    }

    /// Moves a process of our own to the root of each hierarchy in which we have no folder. One that stays in a pod's
    /// group anywhere is killed with the pod, and so are the tasks that it starts.
    pub(super) fn leave_others(&self, mounts: &str, pid: u32) -> io::Result<()> {
        let bases = self.bases();
        let ours: Vec<&Path> = bases.iter().filter_map(|base| base.parent()).collect();
        let mut others = hierarchies(mounts).filter(|root| !ours.contains(root));
        others.try_for_each(|point| write(&point.join("cgroup.procs"), &pid.to_string()))
    }

    /// Our folder of each hierarchy.
    fn bases(&self) -> Vec<PathBuf> {
        match self {
            Self::V1(base) => base.dirs(),
            Self::V2(base) => vec![base.dir()],
        }
    }

    /// Removes our folders again, once `pid`, the last process in them, has been moved to the roots.
    pub(crate) fn leave(&self, pid: u32) -> io::Result<()> {
        for base in self.bases() {
            if let Some(root) = base.parent() {
                write(&root.join("cgroup.procs"), &pid.to_string())?;
                release_shims(root, &base);
            }
            remove_tree(&base)?;
        }
        self.remove_from_others(&fs::read_to_string("/proc/self/mounts")?)
    }

    /// The runtime of containers makes their groups in every hierarchy.
    fn remove_from_others(&self, mounts: &str) -> io::Result<()> {
        let Some(name) = self.bases().first().and_then(|base| base.file_name().map(PathBuf::from)) else {
            return Ok(());
        };
        let mut dirs = hierarchies(mounts).map(|root| root.join(&name)).filter(|dir| dir.is_dir());
        dirs.try_for_each(|dir| remove_tree(&dir))
    }
}

/// Where hierarchies of control groups are mounted, of both versions, as `/proc/self/mounts` lists them.
fn hierarchies(mounts: &str) -> impl Iterator<Item = &Path> {
    mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind) = (Path::new(fields.next()?), fields.next()?);
        matches!(kind, "cgroup" | "cgroup2").then_some(point)
    })
}

/// Where the control group of a container lies, which its runtime makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerGroup {
    /// Its path in each hierarchy.
    pub path: String,
    /// The path of the group of the processes that look after containers.
    pub shims: String,
    /// What finds it again.
    pub handle: CgroupHandle,
    /// Whether swap can be limited.
    pub limits_swap: bool,
}

/// The control group of a container, beside those of the tasks of the supervisor whose groups have this name.
///
/// # Errors
/// When no hierarchy is mounted.
pub fn container_group(base: &str, name: &str, has_cores: bool) -> io::Result<ContainerGroup> {
    container_group_in(&fs::read_to_string("/proc/self/mounts")?, base, (name, has_cores))
}

pub(super) fn container_group_in(
    mounts: &str,
    base: &str,
    (name, has_cores): (&str, bool),
) -> io::Result<ContainerGroup> {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let v1 = v1::hierarchies(mounts);
    let (version, place, roots, swap) = if v1.is_empty() {
        let root = v2::root(mounts)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no cgroup hierarchy is mounted"))?;
        let swap = root.join(base).join("memory.swap.max");
        (CgroupVersion::V2, v2::container_place(name, has_cores), vec![root], Some(swap))
    } else {
        let swap = v1.get("memory").map(|root| root.join("memory.memsw.limit_in_bytes"));
        (CgroupVersion::V1, v1::container_place(name, has_cores), v1::roots(&v1), swap)
    };
    let place = Path::new(base).join(place);
    Ok(ContainerGroup {
        path: text(Path::new("/").join(&place)),
        shims: text(Path::new("/").join(base).join(SHIMS)),
        handle: CgroupHandle {
            version,
            dirs: roots.iter().map(|root| text(root.join(&place))).collect(),
            shared: None,
        },
        limits_swap: swap.is_some_and(|file| file.exists()),
    })
}

/// Moves a process to those that look after containers, and to the roots of the hierarchies where we have no folder: it
/// outlives the pod of the one that has started it.
///
/// # Errors
/// When a hierarchy refuses.
pub fn join_shims(base: &str, pid: u32) -> io::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    for root in hierarchies(&mounts) {
        let ours = root.join(base).join(SHIMS);
        let group = if ours.is_dir() { ours } else { root.to_owned() };
        write(&group.join("cgroup.procs"), &pid.to_string())?;
    }
    Ok(())
}

/// Moves the processes that look after containers out of our folder: they end by themselves, when their containers are
/// taken away.
fn release_shims(root: &Path, base: &Path) {
    let text = fs::read_to_string(base.join(SHIMS).join("cgroup.procs")).unwrap_or_default();
    for pid in text.lines() {
        if let Err(error) = write(&root.join("cgroup.procs"), pid) {
            tracing::debug!(error = %error, pid, "a process of a container's runtime has ended meanwhile");
        }
    }
}

/// Why tasks cannot be limited on this host; `None` when they can.
pub fn missing() -> Option<String> {
    let mounts = match fs::read_to_string("/proc/self/mounts") {
        Ok(mounts) => mounts,
        Err(error) => return Some(format!("the mounts cannot be read: {error}")),
    };
    let v1 = v1::hierarchies(&mounts);
    if !v1.is_empty() {
        let reason = "tasks cannot be kept from devices: mount the control group hierarchy of controller devices";
        return (!v1.contains_key("devices")).then(|| reason.to_owned());
    }
    match v2::root(&mounts) {
        Some(root) => v2::missing(&root).and_then(|()| v2::devices_missing()).err().map(|error| error.to_string()),
        None => Some("no cgroup hierarchy is mounted".to_owned()),
    }
}
