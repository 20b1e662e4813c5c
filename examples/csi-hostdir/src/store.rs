//! Volumes, attachments and snapshots on the disk.
//!
//! A volume is `volumes/<id>/`: its files in `data`, what is known of it in `volume.json`, a file in `attached` for
//! each node. What is new gets its name last, so that a driver that dies leaves nothing half made under a name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What is known of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volume {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) capacity: i64,
    /// The volume or snapshot that it was made from.
    pub(crate) source: Option<String>,
}

/// What is known of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) volume: String,
    pub(crate) size: i64,
    /// Seconds since 1970.
    pub(crate) created: i64,
}

/// How a volume is attached to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    pub(crate) node: String,
    pub(crate) read_only: bool,
    /// Other nodes may have it too.
    pub(crate) is_shared: bool,
}

/// The data directory.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    root: PathBuf,
}

impl Store {
    /// Makes what is missing of it.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        for folder in ["volumes", "snapshots"] {
            fs::create_dir_all(root.join(folder))?;
        }
        Ok(Self { root: root.canonicalize()? })
    }

    /// Room that is left.
    pub(crate) fn free(&self) -> io::Result<i64> {
        let found = rustix::fs::statvfs(&self.root)?;
        Ok(i64::try_from(found.f_bavail.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX))
    }

    fn folder(&self, id: &str) -> Option<PathBuf> {
        is_id(id).then(|| self.root.join("volumes").join(id))
    }

    /// The files of a volume.
    pub(crate) fn data(&self, id: &str) -> PathBuf {
        self.root.join("volumes").join(id).join("data")
    }

    /// A volume.
    pub(crate) fn volume(&self, id: &str) -> Option<Volume> {
        read(&self.folder(id)?.join("volume.json"))
    }

    /// All volumes, by id.
    pub(crate) fn volumes(&self) -> Vec<Volume> {
        all(&self.root.join("volumes"), "volume.json")
    }

    /// Makes a volume, with the files of another one or of a snapshot.
    pub(crate) fn create(&self, volume: &Volume, files_of: Option<&Path>) -> io::Result<()> {
        let new = self.root.join("volumes").join(format!(".new-{}", volume.id));
        remove(&new)?;
        fs::create_dir_all(new.join("attached"))?;
        match files_of {
            Some(files) => copy(files, &new.join("data"))?,
            None => open_to_all(&new.join("data"))?,
        }
        write(&new.join("volume.json"), volume)?;
        fs::rename(&new, self.root.join("volumes").join(&volume.id))
    }

    /// Stores what has changed of a volume.
    pub(crate) fn update(&self, volume: &Volume) -> io::Result<()> {
        write(&self.root.join("volumes").join(&volume.id).join("volume.json"), volume)
    }

    /// Deletes a volume with its files.
    pub(crate) fn delete(&self, id: &str) -> io::Result<()> {
        self.folder(id).map_or(Ok(()), |folder| remove(&folder))
    }

    /// To which nodes a volume is attached.
    pub(crate) fn attachments(&self, id: &str) -> Vec<Attachment> {
        let Some(folder) = self.folder(id) else { return Vec::new() };
        let entries = fs::read_dir(folder.join("attached")).into_iter().flatten();
        let is_whole = |path: &PathBuf| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_whole).filter_map(|path| read(&path)).collect()
    }

    /// Attaches a volume to a node.
    pub(crate) fn attach(&self, id: &str, attachment: &Attachment) -> io::Result<()> {
        write(&self.root.join("volumes").join(id).join("attached").join(file_name(&attachment.node)), attachment)
    }

    /// Detaches a volume from a node, if it is attached.
    pub(crate) fn detach(&self, id: &str, node: &str) -> io::Result<()> {
        self.folder(id).map_or(Ok(()), |folder| remove(&folder.join("attached").join(file_name(node))))
    }

    /// A snapshot's files.
    pub(crate) fn snapshot_data(&self, id: &str) -> PathBuf {
        self.root.join("snapshots").join(id).join("data")
    }

    /// All snapshots, by id.
    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        all(&self.root.join("snapshots"), "snapshot.json")
    }

    /// Makes a snapshot of a volume.
    pub(crate) fn snapshot(&self, snapshot: &Snapshot) -> io::Result<()> {
        let new = self.root.join("snapshots").join(format!(".new-{}", snapshot.id));
        remove(&new)?;
        fs::create_dir_all(&new)?;
        copy(&self.data(&snapshot.volume), &new.join("data"))?;
        write(&new.join("snapshot.json"), snapshot)?;
        fs::rename(&new, self.root.join("snapshots").join(&snapshot.id))
    }

    /// Deletes a snapshot.
    pub(crate) fn delete_snapshot(&self, id: &str) -> io::Result<()> {
        if is_id(id) { remove(&self.root.join("snapshots").join(id)) } else { Ok(()) }
    }
}

/// An id that follows from a name: making it twice meets the first one.
pub(crate) fn id_of(prefix: &str, name: &str) -> String {
    // FNV-1a: the same on every machine, and short.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{prefix}-{hash:016x}")
}

/// Whether it can be the name of a folder.
fn is_id(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 128
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn file_name(node: &str) -> String {
    node.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' }).collect()
}

fn all<T: DeserializeOwned>(folder: &Path, file: &str) -> Vec<T> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths.iter().filter_map(|path| read(&path.join(file))).collect()
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    // Beside it, where no list of the directory finds it.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".new-{name}"));
    fs::write(&new, serde_json::to_vec(value)?)?;
    fs::rename(new, path)
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Volumes have no owner: any task that mounts one may write to it.
fn open_to_all(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    open_to_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&source, &target)?;
        } else {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}
