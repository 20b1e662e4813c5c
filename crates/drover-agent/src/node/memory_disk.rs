//! A disk in memory, for agents on virtual time: it remembers which directories there are, what is mounted, and the
//! files that the agent itself has written for tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_core::lifecycle::NodeUsage;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use super::alloc_dir::{AllocDir, DirError, TaskFolder};
use super::beneath::Owner;
use super::disk::{Disk, KeptDisk, ReceiveError};
use super::disk_reader::DiskPiece;
use super::disk_writer::Written;
use super::task_file::{NewFile, TaskFile};

/// A disk in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryDisk {
    dirs: Arc<Mutex<BTreeSet<PathBuf>>>,
    mounts: Arc<Mutex<BTreeSet<PathBuf>>>,
    files: Arc<Mutex<BTreeMap<PathBuf, Vec<u8>>>>,
}

impl MemoryDisk {
    /// Something is mounted there now, or no longer.
    pub(crate) fn set_mount(&self, path: &Path, is_mounted: bool) {
        let mut mounts = self.mounts();
        if is_mounted {
            mounts.insert(path.to_owned());
        } else {
            mounts.remove(path);
        }
    }

    /// Power is gone, and with it what was mounted.
    pub(crate) fn lose_mounts(&self) {
        self.mounts().clear();
    }

    fn mounts(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Vec<u8>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.dirs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for MemoryDisk {
    fn has(&self, dir: &AllocDir) -> bool {
        self.lock().contains(dir.root())
    }

    fn build(&self, dir: &AllocDir, _: Option<Owner>) -> Result<(), DirError> {
        self.lock().insert(dir.root().to_owned());
        Ok(())
    }

    fn build_task(&self, _: &AllocDir, _: &TaskFolder<'_>) -> Result<(), DirError> {
        Ok(())
    }

    fn write_once(&self, _: &AllocDir, _: &str, _: &str, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn read_file(&self, file: &TaskFile<'_>, _: u64) -> io::Result<Vec<u8>> {
        let path = file.base().join(file.path.parts.join("/"));
        self.files().get(&path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn replace_file(&self, file: &TaskFile<'_>, new: &NewFile<'_>) -> io::Result<()> {
        let path = file.base().join(file.path.parts.join("/"));
        self.files().insert(path, new.bytes.to_vec());
        Ok(())
    }

    fn take_over(&self, _: &AllocDir, _: &AllocDir, _: Vec<String>) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }

    fn receive(
        &self,
        _: &AllocDir,
        _: KeptDisk,
        _: mpsc::Receiver<DiskPiece>,
    ) -> BoxFuture<'static, Result<Written, ReceiveError>> {
        std::future::ready(Ok(Written::default())).boxed()
    }

    fn destroy(&self, dir: &AllocDir) -> BoxFuture<'static, Result<(), DirError>> {
        self.lock().remove(dir.root());
        self.files().retain(|path, _| !path.starts_with(dir.root()));
        std::future::ready(Ok(())).boxed()
    }

    fn remove_fifos(&self, _: &Path) {}

    fn usage(&self, _: &Path) -> NodeUsage {
        NodeUsage::default()
    }

    fn is_mount(&self, path: &Path) -> bool {
        self.mounts().contains(path)
    }

    fn make_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn make_private_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}
