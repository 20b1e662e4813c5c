//! Network namespaces that are pinned by a mount: they stay without any process in them.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns, unshare};
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::links::Links;
use crate::network_error::NetworkError;
use crate::sysctl;

/// The number of the file system of namespaces (`NSFS_MAGIC` of linux/magic.h).
const OF_NAMESPACES: i64 = 0x6e73_6673;

/// A folder with one file for each namespace.
#[derive(Clone, Debug)]
pub struct Namespaces {
    dir: PathBuf,
}

impl Namespaces {
    /// Those of this folder, which is made with the first.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The file by which a namespace is entered.
    pub fn path(&self, id: &str) -> PathBuf {
        self.dir.join(id)
    }

    /// Makes the namespace, with its loopback device up. One that is there stays as it is. Says whether it is new.
    ///
    /// # Errors
    /// When its file, the namespace or the mount cannot be made.
    pub fn make(&self, id: &str) -> Result<bool, NetworkError> {
        let path = self.path(id);
        let failed = |error: io::Error| NetworkError(format!("network namespace {}: {error}", path.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(failed)?;
        if is_pinned(&path).map_err(failed)? {
            return Ok(false);
        }
        File::create(&path).map_err(failed)?;
        on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|error| failed(error.into()))?;
            Links::open().raise_loopback()?;
            // Ports below 1024 are for everyone in here: no other has this network.
            sysctl::set("net/ipv4/ip_unprivileged_port_start", "0")?;
            mount_bind("/proc/thread-self/ns/net", &path).map_err(|error| failed(error.into()))
        })?;
        Ok(true)
    }

    /// Takes the pin and its file away. The namespace goes with its last process.
    ///
    /// # Errors
    /// When it cannot be unmounted or removed. One that is not there is no error.
    pub fn remove(&self, id: &str) -> Result<(), NetworkError> {
        let path = self.path(id);
        let failed = |error: io::Error| NetworkError(format!("network namespace {}: {error}", path.display()));
        while is_pinned(&path).map_err(failed)? {
            unmount(&path, UnmountFlags::DETACH).map_err(|error| failed(error.into()))?;
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The ids of all files, and whether each pins a namespace.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(&self) -> Result<BTreeMap<String, bool>, NetworkError> {
        let failed = |error: io::Error| NetworkError(format!("network namespaces in {}: {error}", self.dir.display()));
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries.map_err(failed)?,
        };
        let mut found = BTreeMap::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            if let Ok(name) = entry.file_name().into_string() {
                found.insert(name, is_pinned(&entry.path()).map_err(failed)?);
            }
        }
        Ok(found)
    }

    /// Does something within a namespace.
    ///
    /// # Errors
    /// When it cannot be entered, and those of the work.
    pub fn within<T: Send>(
        &self,
        id: &str,
        work: impl FnOnce() -> Result<T, NetworkError> + Send,
    ) -> Result<T, NetworkError> {
        let path = self.path(id);
        on_a_thread(|| {
            let entered = File::open(&path).and_then(|file| Ok(setns(file, CloneFlags::CLONE_NEWNET)?));
            entered.map_err(NetworkError::because(format_args!("entering network namespace {}", path.display())))?;
            work()
        })
    }
}

fn is_pinned(path: &Path) -> io::Result<bool> {
    match rustix::fs::statfs(path) {
        Ok(of) => Ok(of.f_type == OF_NAMESPACES),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// On a thread of its own, which ends at once: no other work ever runs in the namespace that it has gone to.
fn on_a_thread<T: Send>(work: impl FnOnce() -> Result<T, NetworkError> + Send) -> Result<T, NetworkError> {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|_| Err(NetworkError("the work in a network namespace broke off".to_owned())))
}
