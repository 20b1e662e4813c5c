//! What runners need of the node's disk, behind one small trait: the machine's own, and one that remembers names alone,
//! for agents on virtual time.
//!
//! Must never know why a directory is wanted. What a sticky disk keeps is `alloc/data` and each task's `local`. A task
//! may have put anything in their place: only directories are moved, by name beneath directories that no task can
//! change.

use std::fmt::Debug;
use std::io;
use std::path::Path;

use drover_core::lifecycle::{GarbageLimits, NodeUsage, garbage_reason};
use futures::FutureExt;
use futures::future::BoxFuture;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use tokio::sync::mpsc;

use crate::folder;
use crate::node::alloc_dir::{AllocDir, DirError, TaskFolder};
use crate::node::beneath::{Owner, Place};
use crate::node::disk_reader::DiskPiece;
use crate::node::disk_writer::{DiskWriter, Room, Written};
use crate::node::hand_over;
use crate::node::removal;
use crate::node::task_file::{NewFile, TaskFile};

/// The disk of a node.
pub(crate) trait Disk: Debug + Send + Sync {
    /// Whether the allocation's directory is there.
    fn has(&self, dir: &AllocDir) -> bool;
    /// Makes the directories that an allocation's tasks share, for their user.
    fn build(&self, dir: &AllocDir, owner: Option<Owner>) -> Result<(), DirError>;
    /// Makes a task's directories, for its user.
    fn build_task(&self, dir: &AllocDir, task: &TaskFolder<'_>) -> Result<(), DirError>;
    /// Writes a file beneath a task's `local`, unless it is there.
    fn write_once(&self, dir: &AllocDir, task: &str, file: &str, bytes: &[u8]) -> io::Result<()>;
    /// Reads a file of a task, of at most `most` bytes.
    fn read_file(&self, file: &TaskFile<'_>, most: u64) -> io::Result<Vec<u8>>;
    /// Puts a file of a task in its place, whole.
    fn replace_file(&self, file: &TaskFile<'_>, new: &NewFile<'_>) -> io::Result<()>;
    /// Moves the files of a sticky disk, and gives those of the earlier allocation's user to that of the new one. What
    /// cannot be moved is left, and the allocation begins without it. However long that takes, no other work waits.
    fn take_over(&self, from: &AllocDir, to: &AllocDir, tasks: Vec<String>) -> BoxFuture<'static, ()>;
    /// Takes in what another node sends of a sticky disk, and puts it in its place when all of it has come. Else
    /// nothing of it stays.
    fn receive(
        &self,
        to: &AllocDir,
        kept: KeptDisk,
        pieces: mpsc::Receiver<DiskPiece>,
    ) -> BoxFuture<'static, Result<Written, ReceiveError>>;
    /// Takes the allocation's directory away, however long that takes: no other work waits for it.
    fn destroy(&self, dir: &AllocDir) -> BoxFuture<'static, Result<(), DirError>>;
    /// Takes the FIFOs of an allocation's output away.
    fn remove_fifos(&self, fifos: &Path);
    /// How full the disk of the allocations is.
    fn usage(&self, alloc_dir: &Path) -> NodeUsage;
    /// Whether something is mounted there.
    fn is_mount(&self, path: &Path) -> bool;
    /// Makes a directory of the agent's own, with those above it.
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory that only the agent's user enters, with those above it.
    fn make_private_dir(&self, path: &Path) -> io::Result<()>;
    /// Takes an empty directory, or a file, of the agent's own away, if it is there.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// What a disk that comes from elsewhere may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptDisk {
    /// The tasks whose files are wanted.
    pub(crate) tasks: Vec<String>,
    /// How much the group has reserved, in bytes. More may come while the node's disk has room.
    pub(crate) reserved: u64,
}

/// Why a disk was not received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReceiveError {
    /// It ended before its end: who sends it knows why.
    #[error("not all of it has come")]
    NotAll,
    /// It cannot be taken.
    #[error("{0}")]
    Refused(String),
}

impl From<String> for ReceiveError {
    fn from(reason: String) -> Self {
        Self::Refused(reason)
    }
}

/// The machine's disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostDisk {
    /// Above these it is full: ended allocations are given up, and no files come from elsewhere that nothing has
    /// reserved room for.
    pub(crate) limits: GarbageLimits,
}

impl Disk for HostDisk {
    fn has(&self, dir: &AllocDir) -> bool {
        dir.root().exists()
    }

    fn build(&self, dir: &AllocDir, owner: Option<Owner>) -> Result<(), DirError> {
        dir.build(owner)
    }

    fn build_task(&self, dir: &AllocDir, task: &TaskFolder<'_>) -> Result<(), DirError> {
        dir.build_task(task)
    }

    fn write_once(&self, dir: &AllocDir, task: &str, file: &str, bytes: &[u8]) -> io::Result<()> {
        let local = dir.task(task).join("local");
        write_beneath(&local, file, bytes)
    }

    fn read_file(&self, file: &TaskFile<'_>, most: u64) -> io::Result<Vec<u8>> {
        file.read(most)
    }

    fn replace_file(&self, file: &TaskFile<'_>, new: &NewFile<'_>) -> io::Result<()> {
        file.replace(new)
    }

    fn take_over(&self, from: &AllocDir, to: &AllocDir, tasks: Vec<String>) -> BoxFuture<'static, ()> {
        let (from, to) = (from.clone(), to.clone());
        async move {
            let moved = tokio::task::spawn_blocking(move || move_kept(&from, &to, &tasks)).await;
            if let Err(error) = moved {
                tracing::error!(error = %error, "moving the files of a sticky disk broke off");
            }
        }
        .boxed()
    }

    fn receive(
        &self,
        to: &AllocDir,
        kept: KeptDisk,
        pieces: mpsc::Receiver<DiskPiece>,
    ) -> BoxFuture<'static, Result<Written, ReceiveError>> {
        let (to, limits) = (to.clone(), self.limits);
        async move {
            let received = tokio::task::spawn_blocking(move || receive(&to, (&kept, &limits), pieces)).await;
            received.unwrap_or_else(|error| Err(format!("it broke off: {error}").into()))
        }
        .boxed()
    }

    fn destroy(&self, dir: &AllocDir) -> BoxFuture<'static, Result<(), DirError>> {
        let dir = dir.clone();
        async move {
            let root = dir.root().to_owned();
            let removed = tokio::task::spawn_blocking(move || dir.destroy()).await;
            removed.unwrap_or_else(|error| Err(DirError::at(&root, io::Error::other(error))))
        }
        .boxed()
    }

    fn remove_fifos(&self, fifos: &Path) {
        match std::fs::remove_dir_all(fifos) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(error = %error, path = %fifos.display(), "fifos are left"),
        }
    }

    fn usage(&self, alloc_dir: &Path) -> NodeUsage {
        usage(alloc_dir)
    }

    fn is_mount(&self, path: &Path) -> bool {
        match drover_supervisor::is_mount_point(path) {
            Ok(is_mount) => is_mount,
            Err(error) => {
                tracing::warn!(error = %error, path = %path.display(), "it cannot be told whether something is mounted");
                false
            }
        }
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        folder::make(path, 0o711)
    }

    fn make_private_dir(&self, path: &Path) -> io::Result<()> {
        folder::make(path, 0o750)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = match path.symlink_metadata() {
            Ok(found) if found.is_dir() => std::fs::remove_dir(path),
            Ok(_) => std::fs::remove_file(path),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

/// How full a disk is. One that cannot be asked counts as empty.
fn usage(alloc_dir: &Path) -> NodeUsage {
    // As df reckons: what only root may still take counts neither as used nor as room.
    let percent = |used: u64, room: u64| match used.saturating_add(room) {
        0 => 0,
        all => used.saturating_mul(100).div_ceil(all),
    };
    match rustix::fs::statvfs(alloc_dir) {
        Ok(found) => NodeUsage {
            disk_percent: percent(found.f_blocks.saturating_sub(found.f_bfree), found.f_bavail),
            inode_percent: percent(found.f_files.saturating_sub(found.f_ffree), found.f_favail),
            live: 0,
        },
        Err(error) => {
            tracing::warn!(error = %error, path = %alloc_dir.display(), "the disk cannot be asked for its room");
            NodeUsage::default()
        }
    }
}

/// Writes a new file beneath a directory that a task may have filled with links: none is followed out of it. A file
/// that is there stays as it is.
fn write_beneath(root: &Path, file: &str, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let mut here = Place::open(root)?;
    let mut parts: Vec<&str> = file.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let name = parts.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it names no file"))?;
    for part in parts {
        if part == ".." {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it leads out of the directory"));
        }
        let made = here.make(part, 0o777, None)?;
        here = made.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotADirectory,
                format!("the task has put something else in the place of {part}"),
            )
        })?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(&here, name, flags, Mode::from_raw_mode(0o644)) {
        Ok(made) => std::fs::File::from(made).write_all(bytes),
        Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Where files of another node wait until all have come. A task's name is a DNS label, so that none is called so.
const ARRIVING: &str = ".arriving";

/// Takes in what comes, beside the tasks' directories, where none writes; and then moves it.
fn receive(
    to: &AllocDir,
    (kept, limits): (&KeptDisk, &GarbageLimits),
    pieces: mpsc::Receiver<DiskPiece>,
) -> Result<Written, ReceiveError> {
    let stage = AllocDir::new(to.root(), ARRIVING);
    let cannot = |error: io::Error| format!("directory {} cannot be made: {error}", stage.root().display());
    removal::remove(stage.root()).map_err(cannot)?;
    let made = make_stage(to, &stage, &kept.tasks).map_err(cannot)?;
    let written = write_pieces(&made, kept, &|| garbage_reason(&usage(to.root()), limits).is_none(), pieces);
    if written.is_ok() {
        move_kept(&stage, to, &kept.tasks);
    }
    let removed = removal::remove(stage.root());
    removed.map_err(|error| format!("directory {} is left: {error}", stage.root().display()))?;
    written
}

fn make_stage(to: &AllocDir, stage: &AllocDir, tasks: &[String]) -> io::Result<Place> {
    let taken = || io::Error::from(io::ErrorKind::NotADirectory);
    let place = Place::open(to.root())?.make(ARRIVING, 0o700, None)?.ok_or_else(taken)?;
    let tops = std::iter::once(stage.shared()).chain(tasks.iter().map(|task| stage.task(task)));
    for top in tops {
        let name = top.file_name().and_then(|name| name.to_str()).ok_or_else(taken)?.to_owned();
        place.make(&name, 0o700, None)?.ok_or_else(taken)?;
    }
    Ok(place)
}

fn write_pieces(
    stage: &Place,
    kept: &KeptDisk,
    has_more: &dyn Fn() -> bool,
    mut pieces: mpsc::Receiver<DiskPiece>,
) -> Result<Written, ReceiveError> {
    let mut writer = DiskWriter::new(stage, &kept.tasks, Room { reserved: kept.reserved, has_more });
    while let Some(piece) = pieces.blocking_recv() {
        match piece {
            DiskPiece::Entry(entry) => writer.entry(entry)?,
            DiskPiece::Data(bytes) => writer.data(&bytes)?,
            DiskPiece::End => return Ok(writer.end()?),
        }
    }
    Err(ReceiveError::NotAll)
}

/// Moves what a sticky disk keeps.
fn move_kept(from: &AllocDir, to: &AllocDir, tasks: &[String]) {
    let data = [(from.shared(), to.shared(), "data")];
    let locals = tasks.iter().map(|task| (from.task(task), to.task(task), "local"));
    for (source, target, name) in data.into_iter().chain(locals) {
        match move_directory(&source, &target, name) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(error = %error, dir = %source.join(name).display(), "files stay with the earlier allocation");
            }
        }
    }
}

/// Takes the place of an empty directory of the same name, whose owner gets the files.
fn move_directory(from: &Path, to: &Path, name: &str) -> io::Result<()> {
    let (source, target) = (Place::open(from)?, Place::open(to)?);
    let found = rustix::fs::statat(&source, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no directory any more"));
    }
    let new = rustix::fs::statat(&target, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let (old, new) = (owner_of(&found), owner_of(&new));
    if old != new && rustix::process::geteuid().is_root() {
        hand_over::hand_over(&source, name, old.uid, new)?;
    }
    Ok(rustix::fs::renameat(&source, name, &target, name)?)
}

fn owner_of(found: &rustix::fs::Stat) -> Owner {
    Owner { uid: found.st_uid, gid: found.st_gid }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn allocs(dir: &Path) -> [AllocDir; 2] {
        ["one", "two"].map(|uid| {
            let alloc = AllocDir::new(dir, uid);
            alloc.build(None).expect("built");
            alloc.build_task(&TaskFolder { task: "web", secrets_mb: 1, owner: None }).expect("built");
            alloc
        })
    }

    #[test]
    fn a_166_a_replacement_on_the_same_node_goes_on_with_the_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let [one, two] = allocs(dir.path());
        fs::write(one.shared().join("data/rows"), "kept").expect("a file");
        fs::write(one.task("web").join("local/cache"), "kept too").expect("a file");
        fs::write(one.task("web").join("secrets/key"), "not kept").expect("a file");
        move_kept(&one, &two, &["web".to_owned(), "other".to_owned()]);
        assert_eq!(fs::read_to_string(two.shared().join("data/rows")).expect("text"), "kept");
        assert_eq!(fs::read_to_string(two.task("web").join("local/cache")).expect("text"), "kept too");
        assert!(!two.task("web").join("secrets/key").exists());
        one.destroy().and(two.destroy()).expect("destroyed");
    }

    /// the thread that asks for the removal has other work, heartbeats among it.
    #[test]
    fn must_survive_x_011_a_removal_that_takes_long() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().expect("a runtime");
        let dir = tempfile::tempdir().expect("a directory");
        let [one, two] = allocs(dir.path());
        let (done, busy) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            // As long as this one waits, no removal ends.
            let other = tokio::task::spawn_blocking(move || busy.recv());
            let mut removals = [&one, &two].map(|dir| HostDisk::default().destroy(dir));
            for removal in &mut removals {
                assert!(removal.now_or_never().is_none(), "the thread that asked has removed the files itself");
            }
            assert!(one.root().exists() && two.root().exists());
            done.send(()).expect("it waits");
            for removal in removals {
                removal.await.expect("removed");
            }
            other.await.expect("its end").expect("told");
        });
        assert!(!one.root().exists() && !two.root().exists());
    }

    #[test]
    fn a_file_is_written_once_and_beneath_the_tasks_directory() {
        let root = tempfile::tempdir().unwrap();
        let read = |name: &str| std::fs::read_to_string(root.path().join(name)).unwrap();
        write_beneath(root.path(), "in/put.txt", b"hello").unwrap();
        write_beneath(root.path(), "in/put.txt", b"again").unwrap();
        assert_eq!(read("in/put.txt"), "hello");
    }

    #[test]
    fn must_survive_a_link_in_the_place_of_the_payload() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(outside.path(), root.path().join("in")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("x"), root.path().join("x")).unwrap();
        assert!(write_beneath(root.path(), "in/put.txt", b"hello").is_err());
        assert!(write_beneath(root.path(), "../put.txt", b"hello").is_err());
        write_beneath(root.path(), "x", b"hello").unwrap();
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn must_survive_a_link_in_the_place_of_the_data() {
        let dir = tempfile::tempdir().expect("a directory");
        let [one, two] = allocs(dir.path());
        fs::remove_dir(one.shared().join("data")).expect("removed");
        std::os::unix::fs::symlink("/etc", one.shared().join("data")).expect("a link");
        move_kept(&one, &two, &["web".to_owned()]);
        let data = two.shared().join("data").symlink_metadata().expect("metadata");
        assert!(data.is_dir(), "a new allocation has its own empty directory");
        one.destroy().and(two.destroy()).expect("destroyed");
        assert!(Path::new("/etc/passwd").exists());
    }
}
