//! The directories of allocations and tasks: made, found again, taken away.
//!
//! Everything is named from the allocation's uid and the task's name, both of which the API server has checked. Tasks
//! may write below: nothing there is made, opened, changed or mounted on by a path, and no link is followed, also when
//! a directory is made again beside live tasks.

use std::io;
use std::path::{Path, PathBuf};

use drover_core::task::sandbox_path::SandboxBase;
use rustix::mount::MountFlags;

use super::beneath::{Owner, Place, nobody};
use super::removal;
use drover_supervisor::unmount_below;

/// Why a directory could not be made or taken away.
#[derive(Debug, thiserror::Error)]
#[error("directory {path}: {source}")]
pub(crate) struct DirError {
    path: PathBuf,
    source: io::Error,
}

impl DirError {
    /// This happened to that directory.
    pub(super) fn at(path: &Path, source: io::Error) -> Self {
        Self { path: path.to_owned(), source }
    }
}

/// A task's directory that is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskFolder<'a> {
    /// The task's name.
    pub(crate) task: &'a str,
    /// The most that its secrets take, in MiB.
    pub(crate) secrets_mb: i64,
    /// Whose it is; none: the user `nobody`'s, or the agent's own where that is not root.
    pub(crate) owner: Option<Owner>,
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
        self.root.join(SHARED)
    }

    /// A task's directory.
    pub(crate) fn task(&self, task: &str) -> PathBuf {
        self.root.join(task)
    }

    /// The directory that a path of a task begins in.
    pub(crate) fn base(&self, task: &str, base: SandboxBase) -> PathBuf {
        match base {
            SandboxBase::Task => self.task(task),
            SandboxBase::Shared => self.shared(),
        }
    }

    /// Makes the shared directories; what is there stays as it is, be it a link that a task has made.
    ///
    /// The agent and the group of the owner get into the allocation's directory, and no other user of the host: none
    /// reaches a file of it, whatever that file's mode, not even a program that runs as whom it belongs to.
    pub(crate) fn build(&self, owner: Option<Owner>) -> Result<(), DirError> {
        let root = self.make_root(owner).map_err(|source| DirError::at(&self.root, source))?;
        let owner = owner.or_else(nobody);
        let shared = self.agents_own(&root, SHARED, owner)?;
        for (name, mode) in [("logs", 0o777), ("tmp", 0o777), ("data", 0o777)] {
            shared.make(name, mode, owner).map_err(|source| DirError::at(&self.shared().join(name), source))?;
        }
        Ok(())
    }

    /// Makes a task's directories, and mounts the ones for secrets again when the host has been restarted. What a task
    /// has put in the place of a directory of its own stays; in the place of one for secrets it is refused.
    pub(crate) fn build_task(&self, task: &TaskFolder<'_>) -> Result<(), DirError> {
        let TaskFolder { task, secrets_mb, owner } = *task;
        let owner = owner.or_else(nobody);
        let root = Place::open(&self.root).map_err(|source| DirError::at(&self.root, source))?;
        let dir = self.agents_own(&root, task, owner)?;
        let path = self.task(task);
        for (name, mode) in [("local", 0o777), ("tmp", 0o1777)] {
            dir.make(name, mode, owner).map_err(|source| DirError::at(&path.join(name), source))?;
        }
        for (name, mode, size_mb) in [("secrets", 0o777, secrets_mb), ("private", 0o700, 1)] {
            make_secret(&dir, name, mode, size_mb).map_err(|source| DirError::at(&path.join(name), source))?;
        }
        Ok(())
    }

    /// Unmounts what is mounted below and deletes everything. A mount that stays keeps its files. May take minutes.
    pub(crate) fn destroy(&self) -> Result<(), DirError> {
        unmount_below(&self.root)
            .and_then(|()| removal::remove(&self.root))
            .map_err(|source| DirError::at(&self.root, source))
    }

    fn make_root(&self, owner: Option<Owner>) -> io::Result<Place> {
        let (Some(above), Some(name)) = (self.root.parent(), self.root.file_name().and_then(|name| name.to_str()))
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // One that an agent without users has made keeps its mode: tasks that reach it by that go on.
        let owner = owner.map(|owner| Owner { uid: rustix::process::geteuid().as_raw(), gid: owner.gid });
        let mode = if owner.is_some() { 0o710 } else { 0o700 };
        Place::open(above)?.make(name, mode, owner)?.ok_or_else(replaced)
    }

    /// A directory in the root, where no task can write: another thing there is not a task's.
    fn agents_own(&self, root: &Place, name: &str, owner: Option<Owner>) -> Result<Place, DirError> {
        let made = root.make(name, 0o777, owner).and_then(|made| made.ok_or_else(replaced));
        made.map_err(|source| DirError::at(&self.root.join(name), source))
    }
}

/// The directory that tasks share.
const SHARED: &str = "alloc";

fn replaced() -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, "something else than a directory is in its place: remove it")
}

/// Makes a directory for secrets: in memory when the agent may mount, else a plain one.
fn make_secret(task: &Place, name: &str, mode: u32, size_mb: i64) -> io::Result<()> {
    let place = task.make(name, mode, None)?.ok_or_else(replaced)?;
    if !rustix::process::geteuid().is_root() || place.is_mounted_in(task)? {
        return Ok(());
    }
    let flags = MountFlags::NOEXEC | MountFlags::NOSUID | MountFlags::NODEV;
    let size = size_mb.max(1);
    let mount = |options: &str| {
        let options = std::ffi::CString::new(options).unwrap_or_default();
        rustix::mount::mount("tmpfs", place.path(), "tmpfs", flags, options.as_c_str())
    };
    let plain = format!("size={size}m,mode={mode:o}");
    match mount(&format!("{plain},noswap")).or_else(|_| mount(&plain)) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => {
            tracing::warn!(directory = name, "no right to mount: secrets are kept in a plain directory");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::beneath::NOBODY;
    use super::*;

    const OWNER: Option<Owner> = Some(Owner { uid: 2_000_001, gid: 2_000_001 });
    const WEB: TaskFolder<'_> = TaskFolder { task: "web", secrets_mb: 1, owner: OWNER };

    #[test]
    fn a_114_directories_have_their_modes_and_secrets_are_in_memory() {
        let dir = tempfile::tempdir().expect("a directory");
        let alloc = AllocDir::new(dir.path(), "uid");
        alloc.build(OWNER).expect("built");
        alloc.build_task(&WEB).expect("built");
        alloc.build_task(&WEB).expect("built twice");
        let mode = |path: &str| fs::metadata(alloc.root().join(path)).expect(path).mode() & 0o7777;
        assert_eq!((mode("."), mode("alloc"), mode("alloc/logs")), (0o710, 0o777, 0o777));
        assert_eq!((mode("web/local"), mode("web/tmp"), mode("web/secrets")), (0o777, 0o1777, 0o777));
        if rustix::process::geteuid().is_root() {
            let owner = |path: &str| {
                let found = fs::metadata(alloc.root().join(path)).expect(path);
                (found.uid(), found.gid())
            };
            assert_eq!((owner("."), owner("alloc")), ((0, 2_000_001), (2_000_001, 2_000_001)));
            let info = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
            let secrets = format!(" {} ", alloc.root().join("web/secrets").display());
            assert_eq!(info.matches(&secrets).count(), 1, "mounted once");
        }
        alloc.destroy().expect("destroyed");
        assert!(!alloc.root().exists());
        let info = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        assert!(!info.contains(&*dir.path().to_string_lossy()), "nothing is left mounted");
    }

    /// What others must not change.
    fn state(path: &Path) -> (u32, u32, u32, String) {
        let found = fs::metadata(path).expect("metadata");
        (found.mode(), found.uid(), found.gid(), fs::read_to_string(path.join("precious")).expect("a file"))
    }

    /// The task's side of the race: a link to a directory of others, and at once the directory again, without pause.
    fn swap(places: &[PathBuf], canary: &Path, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            for place in places {
                let aside = place.with_extension("aside");
                drop(fs::rename(place, &aside));
                drop(symlink(canary, place));
                std::thread::yield_now();
                drop(fs::remove_file(place));
                drop(fs::rename(&aside, place));
                drop(fs::remove_dir(place));
            }
        }
    }

    #[test]
    fn must_survive_x_009_links_in_the_place_of_directories_that_are_made_again() {
        let (dir, canary) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        fs::write(canary.path().join("precious"), "here").expect("a file");
        fs::set_permissions(canary.path(), fs::Permissions::from_mode(0o750)).expect("a mode");
        let before = state(canary.path());
        let alloc = AllocDir::new(dir.path(), "uid");
        alloc.build(OWNER).expect("built");
        alloc.build_task(&WEB).expect("built");
        let places = ["alloc/tmp", "alloc/data", "web/local", "web/tmp"].map(|path| alloc.root().join(path));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| swap(&places, canary.path(), &is_over));
            // A directory that vanishes while it is made is the next run's to make.
            let made = |result: Result<(), DirError>| match result {
                Err(error) if error.source.kind() != io::ErrorKind::NotFound => panic!("{error}"),
                Err(_) | Ok(()) => {}
            };
            for _ in 0..2000 {
                made(alloc.build(OWNER));
                made(alloc.build_task(&WEB));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(state(canary.path()), before, "a directory of others was changed");
        alloc.destroy().expect("destroyed");
        assert_eq!(state(canary.path()), before, "a directory of others was changed");
    }

    #[test]
    fn a_directory_that_was_begun_is_finished_and_one_without_a_user_stays_as_it_is() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let state = |alloc: &AllocDir| {
            let [root, shared] =
                [alloc.root().to_owned(), alloc.shared()].map(|path| fs::metadata(path).expect("made"));
            (root.mode() & 0o777, root.gid(), shared.uid())
        };
        let make = |uid: &str, mode: u32| {
            fs::create_dir(dir.path().join(uid)).expect("a directory");
            fs::set_permissions(dir.path().join(uid), fs::Permissions::from_mode(mode)).expect("a mode");
            AllocDir::new(dir.path(), uid)
        };
        // As an agent leaves it that ends between two calls.
        let begun = make("begun", 0o700);
        begun.build(OWNER).expect("built");
        assert_eq!(state(&begun), (0o710, 2_000_001, 2_000_001));
        // As an agent has made it that gave allocations no users.
        let old = make("old", 0o755);
        old.build(None).expect("built");
        assert_eq!(state(&old), (0o755, 0, NOBODY));
    }

    #[test]
    fn must_survive_x_009_a_link_in_the_place_of_the_secrets() {
        let (dir, canary) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let alloc = AllocDir::new(dir.path(), "uid");
        alloc.build(OWNER).expect("built");
        fs::create_dir(alloc.task("web")).expect("a directory");
        symlink(canary.path(), alloc.task("web").join("secrets")).expect("a link");
        let error = alloc.build_task(&WEB).expect_err("refused").to_string();
        assert!(error.contains("web/secrets") && error.contains("in its place"), "{error}");
        let info = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        assert!(!info.contains(&*canary.path().to_string_lossy()), "nothing is mounted over others' files");
        alloc.destroy().expect("destroyed");
        assert!(canary.path().is_dir());
    }
}
