//! Host volumes that are made, registered and taken away while the agent runs.
//!
//! Input: requests of people, what an earlier life has kept. Output: folders, the node's facts. A volume is kept before
//! the node tells of it, and what cannot be kept is not left behind. Must never know who mounts a volume.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_api::client_node::HostVolume;
use tokio::sync::{Mutex, mpsc};

use super::host_volume_record::{Made, VolumeRecord};
use super::removal;
use crate::node::facts::Fact;
use crate::state::{StateError, StateStore};

/// The plugin that makes plain folders.
const MKDIR: &str = "mkdir";

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    /// Another volume has the name.
    #[error("host volume {name}: name exists with id {id}: delete that one first, or give another name")]
    NameExists { name: String, id: String },
    /// A setting that the plugin does not take.
    #[error("host volume parameter {name}: {reason}")]
    Parameter { name: String, reason: String },
    /// Not a volume at all.
    #[error("{0}")]
    Invalid(String),
    /// There is none.
    #[error("there is no host volume {0} that was made or registered at run time")]
    Unknown(String),
    /// The folder was refused.
    #[error("host volume folder {path}: {source}")]
    NotMade { path: PathBuf, source: io::Error },
    /// It could not be kept.
    #[error("the host volumes are not changed: {0}")]
    NotKept(#[from] StateError),
}

/// The volumes; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Volumes {
    /// Where made folders lie.
    dir: PathBuf,
    state: StateStore,
    facts: mpsc::Sender<Fact>,
    /// One change after the other.
    known: Arc<Mutex<BTreeMap<String, VolumeRecord>>>,
}

impl Volumes {
    /// None yet.
    pub(crate) fn new(dir: PathBuf, state: StateStore, facts: mpsc::Sender<Fact>) -> Self {
        Self { dir, state, facts, known: Arc::default() }
    }

    /// Makes again what an earlier life had; one that cannot be made holds up no other.
    pub(crate) async fn restore(&self, saved: &BTreeMap<String, VolumeRecord>) {
        let mut known = self.known.lock().await;
        for (name, record) in saved {
            let made = record.made.as_ref().map_or(Ok(false), |made| make(&record.path, &made.parameters));
            match made {
                Ok(_) => drop(known.insert(name.clone(), record.clone())),
                Err(error) => tracing::error!(error = %error, volume = name, "a host volume is not there again"),
            }
        }
        self.announce(&known).await;
    }

    /// Makes a volume. The same name and id again is no error and changes no folder that is there.
    pub(crate) async fn create(
        &self,
        name: String,
        id: String,
        plugin: String,
        parameters: BTreeMap<String, String>,
    ) -> Result<(), VolumeError> {
        if plugin != MKDIR {
            return Err(VolumeError::Invalid(format!(
                "there is no volume plugin {plugin:?} on this node: use {MKDIR}"
            )));
        }
        check_id(&id)?;
        let path = self.dir.join(&id);
        let record = VolumeRecord { id, path, made: Some(Made { plugin, parameters }) };
        self.enter(name, record).await
    }

    /// Offers a folder that is there.
    pub(crate) async fn register(&self, name: String, id: String, path: PathBuf) -> Result<(), VolumeError> {
        check_id(&id)?;
        if !path.is_absolute() || !path.is_dir() {
            return Err(VolumeError::Invalid(format!(
                "{} is no folder: give the absolute path of one",
                path.display()
            )));
        }
        self.enter(name, VolumeRecord { id, path, made: None }).await
    }

    async fn enter(&self, name: String, record: VolumeRecord) -> Result<(), VolumeError> {
        let mut known = self.known.lock().await;
        if let Some(other) = known.get(&name).filter(|other| other.id != record.id) {
            return Err(VolumeError::NameExists { name, id: other.id.clone() });
        }
        let is_new = record.made.as_ref().map_or(Ok(false), |made| make(&record.path, &made.parameters))?;
        let mut wanted = known.clone();
        wanted.insert(name, record.clone());
        if let Err(error) = self.state.put_volumes(&wanted).await {
            if is_new && let Err(error) = std::fs::remove_dir(&record.path) {
                tracing::warn!(error = %error, path = %record.path.display(), "the folder of no volume is left");
            }
            return Err(error.into());
        }
        *known = wanted;
        self.announce(&known).await;
        Ok(())
    }

    /// Takes a volume away; its files go only when they were made here.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), VolumeError> {
        let mut known = self.known.lock().await;
        let mut wanted = known.clone();
        let record = wanted.remove(name).ok_or_else(|| VolumeError::Unknown(name.to_owned()))?;
        self.state.put_volumes(&wanted).await?;
        *known = wanted;
        self.announce(&known).await;
        drop(known);
        if record.made.is_none() {
            return Ok(());
        }
        // Tasks have written there: it may be deep and take long.
        let path = record.path.clone();
        let removed = tokio::task::spawn_blocking(move || removal::remove(&path)).await;
        let removed = removed.unwrap_or_else(|error| Err(io::Error::other(error)));
        removed.map_err(|source| VolumeError::NotMade { path: record.path, source })
    }

    async fn announce(&self, known: &BTreeMap<String, VolumeRecord>) {
        let volume = |(name, record): (&String, &VolumeRecord)| {
            let path = record.path.to_string_lossy().into_owned();
            (name.clone(), HostVolume { path, id: record.id.clone(), ready: Some(true), ..HostVolume::default() })
        };
        if self.facts.send(Fact::Volumes(known.iter().map(volume).collect())).await.is_err() {
            tracing::debug!("host volumes are not told: the agent ends");
        }
    }
}

/// An id becomes the name of a folder.
fn check_id(id: &str) -> Result<(), VolumeError> {
    let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_plain && !id.is_empty() && id.len() <= 128 {
        return Ok(());
    }
    Err(VolumeError::Invalid(format!("{id:?} is no id of a host volume: use letters, digits, - and _")))
}

/// Makes the folder unless it is there; says whether it did.
fn make(path: &Path, parameters: &BTreeMap<String, String>) -> Result<bool, VolumeError> {
    let wrong = |name: &str, reason: &str| VolumeError::Parameter { name: name.to_owned(), reason: reason.to_owned() };
    let (mut mode, mut uid, mut gid) = (0o700, None, None);
    for (name, value) in parameters {
        let number = || value.parse().map_err(|_| wrong(name, "give a number"));
        match name.as_str() {
            "mode" => mode = u32::from_str_radix(value, 8).map_err(|_| wrong(name, "give an octal mode, as 0755"))?,
            "uid" => uid = Some(number()?),
            "gid" => gid = Some(number()?),
            _ => return Err(wrong(name, "unknown parameter: mkdir takes mode, uid and gid")),
        }
    }
    let refused = |source| VolumeError::NotMade { path: path.to_owned(), source };
    if path.is_dir() {
        return Ok(false);
    }
    if let Some(parent) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o711).create(parent).map_err(refused)?;
    }
    std::fs::create_dir(path).map_err(refused)?;
    std::os::unix::fs::chown(path, uid, gid).map_err(refused)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(refused)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::MemoryState;

    struct Node {
        dir: tempfile::TempDir,
        volumes: Volumes,
        told: mpsc::Receiver<Fact>,
    }

    fn node(state: StateStore) -> Node {
        let dir = tempfile::tempdir().expect("a directory");
        let (facts, told) = mpsc::channel(8);
        let volumes = Volumes::new(dir.path().join("volumes"), state, facts);
        Node { dir, volumes, told }
    }

    impl Node {
        async fn create(&self, id: &str, parameters: &[(&str, &str)]) -> Result<(), String> {
            let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let made = self.volumes.create("v1".into(), id.into(), MKDIR.into(), parameters).await;
            made.map_err(|error| error.to_string())
        }

        fn last_told(&mut self) -> BTreeMap<String, HostVolume> {
            let mut last = BTreeMap::new();
            while let Ok(fact) = self.told.try_recv() {
                if let Fact::Volumes(volumes) = fact {
                    last = volumes;
                }
            }
            last
        }
    }

    #[tokio::test]
    async fn a_022_a_name_belongs_to_one_id() {
        let memory = MemoryState::default();
        let mut node = node(memory.store());
        assert_eq!(node.create("A", &[("mode", "0750")]).await, Ok(()));
        let mode = node.dir.path().join("volumes/A").metadata().expect("a folder").permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
        let error = node.create("B", &[]).await.expect_err("refused");
        assert!(error.contains("name exists"), "{error}");
        assert_eq!(node.last_told()["v1"].id, "A");
        assert_eq!(node.create("A", &[]).await, Ok(()), "what is there stays as it is");
        assert_eq!(memory.saved().volumes["v1"].id, "A");
        node.volumes.delete("v1").await.expect("deleted");
        assert!(node.last_told().is_empty() && !node.dir.path().join("volumes/A").exists());
    }

    #[tokio::test]
    async fn a_023_an_unknown_parameter_is_named() {
        let mut node = node(MemoryState::default().store());
        let error = node.create("A", &[("mod", "0700")]).await.expect_err("refused");
        assert!(error.contains("unknown parameter") && error.contains("mod:"), "{error}");
        for (name, value) in [("mode", "rwx"), ("uid", "root")] {
            let error = node.create("A", &[(name, value)]).await.expect_err("refused");
            assert!(error.contains(name), "{error}");
        }
        assert!(node.create("../A", &[]).await.is_err() && node.last_told().is_empty());
    }

    #[tokio::test]
    async fn what_cannot_be_kept_is_not_left_and_restored_ones_do_not_wait_for_each_other() {
        let refusing = node(StateStore::refusing());
        assert!(refusing.create("A", &[]).await.is_err());
        assert!(!refusing.dir.path().join("volumes/A").exists());
        let mut node = node(MemoryState::default().store());
        let record = |path: PathBuf| VolumeRecord {
            id: "A".into(),
            path,
            made: Some(Made { plugin: MKDIR.into(), parameters: BTreeMap::new() }),
        };
        let saved = [
            ("bad".to_owned(), record("/proc/none/A".into())),
            ("good".to_owned(), record(node.dir.path().join("volumes/A"))),
        ];
        node.volumes.restore(&saved.into()).await;
        assert_eq!(node.last_told().into_keys().collect::<Vec<_>>(), ["good"]);
    }
}
