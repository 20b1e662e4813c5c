//! The directories of allocations and tasks: made, found again, taken away.
//!
//! Everything is named from the allocation's uid and the task's name, both of which the API server has checked; nothing
//! here is opened by a path that a task could choose.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use drover_supervisor::unmount_below;

/// Why a directory could not be made or taken away.
#[derive(Debug, thiserror::Error)]
#[error("directory {path}: {source}")]
pub(crate) struct DirError {
    path: PathBuf,
    source: io::Error,
}

/// An allocation's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllocDir {
    root: PathBuf,
}

impl AllocDir {
    /// The directory of this allocation, which need not exist.
    pub(crate) fn new(alloc_dir: &Path, uid: &str) -> Self {
        Self { root: alloc_dir.join(uid) }
    }

    /// Its root.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The directory that tasks share.
    pub(crate) fn shared(&self) -> PathBuf {
        self.root.join("alloc")
    }

    /// A task's directory.
    pub(crate) fn task(&self, task: &str) -> PathBuf {
        self.root.join(task)
    }

    /// Makes the shared directories; those that exist stay as they are.
    pub(crate) fn build(&self) -> Result<(), DirError> {
        make(&self.root, 0o755)?;
        let shared = self.shared();
        for path in [shared.clone(), shared.join("logs"), shared.join("tmp"), shared.join("data")] {
            if make(&path, 0o777)? {
                give_to_nobody(&path)?;
            }
        }
        Ok(())
    }

    /// Makes a task's directories, and mounts the ones for secrets again when the host has been restarted.
    pub(crate) fn build_task(&self, task: &str, secrets_mb: i64) -> Result<(), DirError> {
        let dir = self.task(task);
        for (path, mode) in [(dir.clone(), 0o777), (dir.join("local"), 0o777), (dir.join("tmp"), 0o1777)] {
            if make(&path, mode)? {
                give_to_nobody(&path)?;
            }
        }
        make_secret(&dir.join("secrets"), 0o777, secrets_mb)?;
        make_secret(&dir.join("private"), 0o700, 1)
    }

    /// Unmounts what is mounted below and deletes everything. A mount that stays keeps its files.
    pub(crate) fn destroy(&self) -> Result<(), DirError> {
        if !self.root.exists() {
            return Ok(());
        }
        unmount_below(&self.root).map_err(|source| DirError { path: self.root.clone(), source })?;
        match fs::remove_dir_all(&self.root) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(DirError { path: self.root.clone(), source }),
        }
    }
}

/// Makes a directory with exactly this mode; false when it existed.
fn make(path: &Path, mode: u32) -> Result<bool, DirError> {
    let error = |source| DirError { path: path.to_owned(), source };
    match fs::create_dir(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => return Ok(false),
        Err(source) => return Err(error(source)),
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(error)?;
    Ok(true)
}

/// The owner of shared directories when the agent is root.
const NOBODY: u32 = 65534;

fn give_to_nobody(path: &Path) -> Result<(), DirError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY))
        .map_err(|source| DirError { path: path.to_owned(), source })
}

/// Makes a directory for secrets: in memory when the agent may mount, else a plain one.
fn make_secret(path: &Path, mode: u32, size_mb: i64) -> Result<(), DirError> {
    make(path, mode)?;
    if !rustix::process::geteuid().is_root() || is_mount_point(path) {
        return Ok(());
    }
    let flags = MountFlags::NOEXEC | MountFlags::NOSUID | MountFlags::NODEV;
    let size = size_mb.max(1);
    let mount = |options: &str| {
        let options = std::ffi::CString::new(options).unwrap_or_default();
        rustix::mount::mount("tmpfs", path, "tmpfs", flags, options.as_c_str())
    };
    let plain = format!("size={size}m,mode={mode:o}");
    match mount(&format!("{plain},noswap")).or_else(|_| mount(&plain)) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => {
            tracing::warn!(path = %path.display(), "no right to mount: secrets are kept in a plain directory");
            Ok(())
        }
        Err(error) => Err(DirError { path: path.to_owned(), source: error.into() }),
    }
}

fn is_mount_point(path: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|metadata| metadata.dev()).ok();
    match path.parent() {
        Some(parent) => device(path) != device(parent),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_114_directories_have_their_modes_and_secrets_are_in_memory() {
        let dir = tempfile::tempdir().expect("a directory");
        let alloc = AllocDir::new(dir.path(), "uid");
        alloc.build().expect("built");
        alloc.build_task("web", 1).expect("built");
        alloc.build_task("web", 1).expect("built twice");
        let mode = |path: &str| fs::metadata(alloc.root().join(path)).expect(path).mode() & 0o7777;
        assert_eq!((mode("."), mode("alloc"), mode("alloc/logs")), (0o755, 0o777, 0o777));
        assert_eq!((mode("web/local"), mode("web/tmp"), mode("web/secrets")), (0o777, 0o1777, 0o777));
        if rustix::process::geteuid().is_root() {
            assert_eq!(fs::metadata(alloc.shared()).expect("metadata").uid(), NOBODY);
            let info = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
            let secrets = format!(" {} ", alloc.root().join("web/secrets").display());
            assert_eq!(info.matches(&secrets).count(), 1, "mounted once");
        }
        alloc.destroy().expect("destroyed");
        assert!(!alloc.root().exists());
        let info = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        assert!(!info.contains(&*dir.path().to_string_lossy()), "nothing is left mounted");
    }
}
