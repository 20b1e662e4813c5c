//! The files that a sandboxed task sees: its own directory as the root, chosen paths of the host read-only, fresh
//! `/proc` and `/dev`.
//!
//! The root belongs to the task, which may have put anything there: every mount point is made and opened beneath it
//! without following links, and mounted on by descriptor. Nothing that is mounted has devices or raises rights, and
//! what is read-only is so with all that is mounted below it.

use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_remount, unmount};

use super::held::Held;
use super::sys::{attributes, restrict_mount};
use crate::protocol::{BindMount, SandboxSpec, ViewFile};

/// Character devices of `/dev`: name, major, minor.
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

/// Hidden below `/proc`.
const MASKED: [&str; 4] = ["proc/kcore", "proc/keys", "proc/timer_list", "proc/sched_debug"];

/// Read-only below `/proc`.
const FROZEN: [&str; 5] = ["proc/sys", "proc/sysrq-trigger", "proc/irq", "proc/bus", "proc/fs"];

const QUIET: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Builds the view and enters it: afterwards `/` is the task's directory and nothing of the host's tree is left.
pub(super) fn build(spec: &SandboxSpec) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let given = Held { fd: rustix::fs::openat(CWD, spec.root.as_str(), flags, Mode::empty())? };
    // A root has to be a mount point.
    mount_bind_recursive(given.path(), spec.root.as_str())?;
    let root = Held { fd: rustix::fs::openat(CWD, spec.root.as_str(), flags, Mode::empty())? };
    restrict(&root, Access::Write)?;
    make_etc(&root, &spec.files).map_err(|error| named("/etc", &error))?;
    for path in &spec.host_paths {
        show_host_path(&root, spec.rootfs.as_deref(), path).map_err(|error| named(path, &error))?;
    }
    bind(&root, &spec.shared, "alloc", Access::Write)?;
    let logs = Path::new(&spec.shared).join("logs");
    bind(&root, &logs.to_string_lossy(), "alloc/logs", Access::Read)?;
    // What lies in the fresh /dev is mounted there.
    let (devices, mounts): (Vec<_>, Vec<_>) = spec.mounts.iter().partition(|mount| mount.target.starts_with("/dev/"));
    let mount = |mount: &BindMount| {
        let access = if mount.read_only { Access::Read } else { Access::Write };
        bind(&root, &mount.source, mount.target.trim_start_matches('/'), access)
            .map_err(|error| named(&mount.target, &error))
    };
    mounts.into_iter().try_for_each(mount)?;
    freeze_etc(&root, &spec.files).map_err(|error| named("/etc", &error))?;
    make_dev(&root).map_err(|error| named("/dev", &error))?;
    devices.into_iter().try_for_each(|device| {
        bind(&root, &device.source, device.target.trim_start_matches('/'), Access::Device)
            .map_err(|error| named(&device.target, &error))
    })?;
    make_proc(&root).map_err(|error| named("/proc", &error))?;
    make_sys(&root).map_err(|error| named("/sys", &error))?;
    rustix::process::fchdir(&root.fd)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")?;
    Ok(())
}

/// Why sandboxes cannot be mounted on this host; none: they can.
pub fn missing() -> Option<String> {
    super::sys::missing()
        .map(|error| format!("mounts cannot be kept from tasks: mount_setattr needs Linux 5.12 or newer: {error}"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    /// A device that the task was given.
    Device,
}

fn named(path: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// Shows a path of the host, or of a root that lies there, at the same place: directories and files by a read-only
/// mount, links as links.
fn show_host_path(root: &Held, rootfs: Option<&str>, path: &str) -> io::Result<()> {
    let source = rootfs.map_or_else(|| path.to_owned(), |rootfs| format!("{rootfs}{path}"));
    let metadata = match std::fs::symlink_metadata(&source) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let inside = path.trim_start_matches('/');
    if metadata.is_symlink() {
        let target = std::fs::read_link(&source)?;
        return match rustix::fs::symlinkat(&target, &root.fd, inside) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) if rustix::fs::readlinkat(&root.fd, inside, Vec::new()).is_ok() => Ok(()),
            Err(error) => Err(error.into()),
        };
    }
    bind(root, &source, inside, Access::Read)
}

/// Mounts a directory or file of the host on a place beneath the root.
fn bind(root: &Held, source: &str, inside: &str, access: Access) -> io::Result<()> {
    let is_dir = std::fs::metadata(source).map_err(|error| named(source, &error))?.is_dir();
    let target = place(root, inside, is_dir)?;
    mount_bind_recursive(source, target.path())?;
    // The mount is on top now: only a new look finds it.
    restrict(&place(root, inside, is_dir)?, access)
}

/// Forbids what this access does not need, on the mount and on all mounts below it.
fn restrict(target: &Held, access: Access) -> io::Result<()> {
    let forbidden = match access {
        Access::Read => attributes::READ_ONLY | attributes::NO_SUID | attributes::NO_DEVICES,
        Access::Write => attributes::NO_SUID | attributes::NO_DEVICES,
        Access::Device => attributes::NO_SUID | attributes::NO_EXEC,
    };
    restrict_mount(target.fd.as_fd(), forbidden)
}

/// Where the files lie that are made for the task.
const ETC: &str = "etc";

/// An `/etc` of its own in memory, with these files; none of them: as the task's directory has it.
fn make_etc(root: &Held, files: &[ViewFile]) -> io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let etc = place(root, ETC, true)?;
    mount("tmpfs", etc.path(), "tmpfs", QUIET, c"mode=755,size=256k")?;
    let etc = place(root, ETC, true)?;
    files.iter().try_for_each(|ViewFile { name, text }| {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&etc.fd, name.as_str(), flags, Mode::from_raw_mode(0o644))?;
        std::fs::File::from(fd).write_all(text.as_bytes())
    })
}

/// Nothing more is mounted there.
fn freeze_etc(root: &Held, files: &[ViewFile]) -> io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let etc = place(root, ETC, true)?;
    Ok(mount_remount(etc.path(), MountFlags::BIND | MountFlags::RDONLY | QUIET, "")?)
}

/// Makes a mount point beneath the root if there is none, and opens it without following a link.
fn place(root: &Held, inside: &str, is_dir: bool) -> io::Result<Held> {
    let parts: Vec<&str> = inside.split('/').filter(|part| !part.is_empty()).collect();
    let Some((name, parents)) = parts.split_last() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut dir = open_beneath(root, ".", OFlags::DIRECTORY)?;
    for parent in parents {
        make_dir(&dir, parent)?;
        dir = open_beneath(&dir, parent, OFlags::DIRECTORY)?;
    }
    if is_dir {
        make_dir(&dir, name)?;
        return open_beneath(&dir, name, OFlags::DIRECTORY);
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match rustix::fs::openat(&dir.fd, *name, flags | OFlags::EXCL, Mode::from_raw_mode(0o644)) {
        Ok(_) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    open_beneath(&dir, name, OFlags::empty())
}

fn make_dir(dir: &Held, name: &str) -> io::Result<()> {
    match rustix::fs::mkdirat(&dir.fd, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn open_beneath(dir: &Held, name: &str, more: OFlags) -> io::Result<Held> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC | more;
    match rustix::fs::openat2(&dir.fd, name, flags, Mode::empty(), resolve) {
        Ok(fd) => Ok(Held { fd }),
        Err(Errno::LOOP | Errno::NOTDIR) => {
            let reason = format!("{name} is not what belongs there: the task has put something else in its place");
            Err(io::Error::new(io::ErrorKind::InvalidData, reason))
        }
        Err(error) => Err(named(name, &error.into())),
    }
}

fn make_dev(root: &Held) -> io::Result<()> {
    let dev = place(root, "dev", true)?;
    mount("tmpfs", dev.path(), "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, c"mode=755,size=64k")?;
    let dev = place(root, "dev", true)?;
    for (name, major, minor) in DEVICES {
        let mode = Mode::from_raw_mode(0o666);
        let device = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(&dev.fd, name, FileType::CharacterDevice, mode, device)?;
        rustix::fs::chmodat(&dev.fd, name, mode, AtFlags::empty())?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        rustix::fs::symlinkat(target, &dev.fd, name)?;
    }
    let terminals = MountFlags::NOSUID | MountFlags::NOEXEC;
    for (name, kind, flags, options) in [
        ("shm", "tmpfs", QUIET, c"mode=1777,size=64m"),
        ("pts", "devpts", terminals, c"newinstance,ptmxmode=0666,mode=620"),
    ] {
        let target = place(&dev, name, true)?;
        mount(kind, target.path(), kind, flags, options)?;
    }
    Ok(())
}

fn make_proc(root: &Held) -> io::Result<()> {
    let proc = place(root, "proc", true)?;
    mount("proc", proc.path(), "proc", QUIET, c"")?;
    for path in MASKED {
        if let Some(target) = existing(root, path)? {
            mount_bind("/dev/null", target.path())?;
        }
    }
    for path in FROZEN {
        if let Some(target) = existing(root, path)? {
            mount_bind(target.path(), target.path())?;
            if let Some(target) = existing(root, path)? {
                read_only_quiet(&target)?;
            }
        }
    }
    Ok(())
}

/// The host's `/sys` without what is mounted below it (control groups), read-only, its firmware hidden.
fn make_sys(root: &Held) -> io::Result<()> {
    let sys = place(root, "sys", true)?;
    mount_bind("/sys", sys.path())?;
    read_only_quiet(&place(root, "sys", true)?)?;
    for path in ["sys/firmware", "sys/fs/cgroup"] {
        if let Some(target) = existing(root, path)? {
            mount("tmpfs", target.path(), "tmpfs", QUIET | MountFlags::RDONLY, c"size=0")?;
        }
    }
    Ok(())
}

fn read_only_quiet(target: &Held) -> io::Result<()> {
    Ok(mount_remount(target.path(), MountFlags::BIND | MountFlags::RDONLY | QUIET, "")?)
}

/// Opens what is there; `None` when the kernel does not have it.
fn existing(root: &Held, inside: &str) -> io::Result<Option<Held>> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(&root.fd, inside, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Ok(fd) => Ok(Some(Held { fd })),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(named(inside, &error.into())),
    }
}
