//! Host volumes that are made, registered and taken away while the agent runs.
//!
//! Input: requests of people and of the controller, what an earlier life has kept. Output: folders, the node's facts. A
//! volume is kept before the node tells of it, and what cannot be kept is not left behind. Must never know who mounts a
//! volume.
//!
//! What the controller asks for lies below the state folder, or below a folder that the configuration names: its
//! requests reach nothing else of the machine.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drover_api::client_node::OfferedVolume;
use drover_api::host_volume::{HostVolumeCall, HostVolumeRequest};
use drover_api::message;
use drover_clock::sleep_until;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use super::host_volume_record::{Made, VolumeRecord};
use super::removal;
use crate::node::facts::Fact;
use crate::state::{StateError, StateStore};
use crate::watch;

/// The plugin that makes plain folders.
const MKDIR: &str = "mkdir";

/// How soon a request that was not carried out is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(30);

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
    /// A folder that the node does not give away.
    #[error(
        "hostPath {0} is not below a folder that this node gives away: name one in hostVolumePaths of the agent's configuration, or take plugin mkdir"
    )]
    NotAllowed(PathBuf),
    /// A folder of another volume, or of the agent itself.
    #[error("hostPath {path} and {other} overlap: take another folder")]
    Overlaps { path: PathBuf, other: String },
    /// It could not be kept.
    #[error("the host volumes are not changed: {0}")]
    NotKept(#[from] StateError),
}

/// The volumes; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Volumes {
    folders: Arc<VolumeFolders>,
    state: StateStore,
    facts: mpsc::Sender<Fact>,
    /// One change after the other.
    known: Arc<Mutex<Known>>,
}

/// Where volumes may be.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeFolders {
    /// Where made folders lie.
    pub(crate) made: PathBuf,
    /// Below which folders the controller may have others registered.
    pub(crate) given_away: Vec<PathBuf>,
    /// The agent's own folders.
    pub(crate) own: Vec<PathBuf>,
}

/// What there is.
#[derive(Debug, Default)]
struct Known {
    volumes: BTreeMap<String, VolumeRecord>,
    /// What the controller is told besides: what it asked for and is not there, by id.
    answers: BTreeMap<String, OfferedVolume>,
}

impl Volumes {
    /// None yet.
    pub(crate) fn new(folders: VolumeFolders, state: StateStore, facts: mpsc::Sender<Fact>) -> Self {
        Self { folders: Arc::new(folders), state, facts, known: Arc::default() }
    }

    /// Makes again what an earlier life had; one that cannot be made holds up no other.
    pub(crate) async fn restore(&self, saved: &BTreeMap<String, VolumeRecord>) {
        let mut known = self.known.lock().await;
        for (name, record) in saved {
            let made = match &record.made {
                Some(made) => make(&record.path, &made.parameters).map(|_| ()),
                // What the node gives away may be something else now.
                None if record.namespace.is_empty() => Ok(()),
                None => self.given_away(&record.path, (&record.id, &known.volumes)).map(|_| ()),
            };
            match made {
                Ok(()) => drop(known.volumes.insert(name.clone(), record.clone())),
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
        let path = self.folders.made.join(&id);
        let record = VolumeRecord { id, path, namespace: String::new(), made: Some(Made { plugin, parameters }) };
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
        self.enter(name, VolumeRecord { id, path, namespace: String::new(), made: None }).await
    }

    /// Carries out what the controller asks for until it asks for nothing more, and answers.
    pub(crate) async fn follow(self, mut requests: watch::Receiver<BTreeMap<String, HostVolumeRequest>>) {
        loop {
            let wanted = requests.borrow_and_update().clone();
            let is_complete = self.carry_out(&wanted).await;
            let again = (!is_complete).then(|| Instant::now() + TRY_AGAIN);
            tokio::select! {
                biased;
                changed = requests.changed() => if changed.is_err() { return },
                () = sleep_until(again) => {}
            }
        }
    }

    /// Carries requests out; whether all of them are.
    async fn carry_out(&self, requests: &BTreeMap<String, HostVolumeRequest>) -> bool {
        let mut answers = BTreeMap::new();
        let mut is_complete = true;
        for (id, request) in requests {
            let done = match request.call {
                HostVolumeCall::Keep => self.keep(id, request).await.map(|()| None),
                HostVolumeCall::Remove => self.remove(id, request).await.map(|()| Some(String::new())),
            };
            let error = done.unwrap_or_else(|error| {
                tracing::warn!(%error, volume = id, "a host volume is not as the controller wants it");
                is_complete = false;
                Some(message::cut(error.to_string()))
            });
            if let Some(error) = error {
                let (id, namespace) = (id.clone(), request.namespace.clone());
                let answer = OfferedVolume { id, namespace, error, ready: Some(false), ..OfferedVolume::default() };
                answers.insert(answer.id.clone(), answer);
            }
        }
        let mut known = self.known.lock().await;
        if known.answers != answers {
            known.answers = answers;
            self.announce(&known).await;
        }
        is_complete
    }

    /// Makes or registers a HostVolume; one that is there stays as it is.
    async fn keep(&self, id: &str, request: &HostVolumeRequest) -> Result<(), VolumeError> {
        check_id(id)?;
        let known = {
            let known = self.known.lock().await;
            if let Some(record) = known.volumes.get(id) {
                return is_of(record, request);
            }
            request.plugin.is_none().then(|| self.given_away(Path::new(&request.host_path), (id, &known.volumes)))
        };
        let path = known.transpose()?;
        let made =
            request.plugin.map(|plugin| Made { plugin: plugin.to_string(), parameters: request.parameters.clone() });
        let path = path.unwrap_or_else(|| self.folders.made.join(id));
        let record = VolumeRecord { id: id.to_owned(), path, namespace: request.namespace.clone(), made };
        self.enter(id.to_owned(), record).await
    }

    /// Takes a HostVolume away, with its files where they were made here. What is not there is no error.
    async fn remove(&self, id: &str, request: &HostVolumeRequest) -> Result<(), VolumeError> {
        check_id(id)?;
        let record = self.known.lock().await.volumes.get(id).cloned();
        if let Some(record) = record {
            is_of(&record, request)?;
            return self.delete(id).await;
        }
        // An earlier try may have come so far that only files are left.
        if request.plugin.is_some() { self.remove_files(self.folders.made.join(id)).await } else { Ok(()) }
    }

    /// A folder that the controller may have registered, without links in its path.
    fn given_away(
        &self,
        path: &Path,
        (id, known): (&str, &BTreeMap<String, VolumeRecord>),
    ) -> Result<PathBuf, VolumeError> {
        let refused = || VolumeError::NotAllowed(path.to_owned());
        let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let is_below = |path: &Path, roots: &[PathBuf]| roots.iter().any(|root| path.starts_with(root));
        // Of what lies elsewhere not even whether it is there is told.
        if !is_plain || !path.is_absolute() || !is_below(path, &self.folders.given_away) {
            return Err(refused());
        }
        let real = |path: &Path| std::fs::canonicalize(path);
        let roots: Vec<PathBuf> = self.folders.given_away.iter().filter_map(|root| real(root).ok()).collect();
        let found = real(path).ok().filter(|found| found.is_dir());
        let found = found.ok_or_else(|| {
            VolumeError::Invalid(format!("hostPath {} is no folder of this node: make it first", path.display()))
        })?;
        if !is_below(&found, &roots) {
            return Err(refused());
        }
        let overlaps = |other: &Path| found.starts_with(other) || other.starts_with(&found);
        let own = self.folders.own.iter().map(|own| real(own).unwrap_or_else(|_| own.clone()));
        let others = known.values().filter(|other| other.id != id && other.made.is_none());
        let others = others.map(|other| {
            (other.path.clone(), format!("that of volume {} of namespace {:?}", other.id, other.namespace))
        });
        let all = own.map(|own| (own, "the agent's own folder".to_owned())).chain(others);
        match { all }.find(|(other, _)| overlaps(other)) {
            Some((_, other)) => Err(VolumeError::Overlaps { path: path.to_owned(), other }),
            None => Ok(found),
        }
    }

    async fn enter(&self, name: String, record: VolumeRecord) -> Result<(), VolumeError> {
        let mut known = self.known.lock().await;
        if let Some(other) = known.volumes.get(&name).filter(|other| other.id != record.id) {
            return Err(VolumeError::NameExists { name, id: other.id.clone() });
        }
        let is_new = record.made.as_ref().map_or(Ok(false), |made| make(&record.path, &made.parameters))?;
        let mut wanted = known.volumes.clone();
        wanted.insert(name, record.clone());
        if let Err(error) = self.state.put_volumes(&wanted).await {
            if is_new && let Err(error) = std::fs::remove_dir(&record.path) {
                tracing::warn!(error = %error, path = %record.path.display(), "the folder of no volume is left");
            }
            return Err(error.into());
        }
        known.volumes = wanted;
        known.answers.remove(&record.id);
        self.announce(&known).await;
        Ok(())
    }

    /// Takes a volume away; its files go only when they were made here.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), VolumeError> {
        let mut known = self.known.lock().await;
        let mut wanted = known.volumes.clone();
        let record = wanted.remove(name).ok_or_else(|| VolumeError::Unknown(name.to_owned()))?;
        self.state.put_volumes(&wanted).await?;
        known.volumes = wanted;
        self.announce(&known).await;
        drop(known);
        if record.made.is_some() { self.remove_files(record.path).await } else { Ok(()) }
    }

    /// Takes a folder away that was made here. Tasks have written there: it may be deep and take long.
    async fn remove_files(&self, folder: PathBuf) -> Result<(), VolumeError> {
        let path = folder.clone();
        let removed = tokio::task::spawn_blocking(move || removal::remove(&path)).await;
        let removed = removed.unwrap_or_else(|error| Err(io::Error::other(error)));
        removed.map_err(|source| VolumeError::NotMade { path: folder, source })
    }

    async fn announce(&self, known: &Known) {
        let volume = |(name, record): (&String, &VolumeRecord)| {
            let (path, id) = (record.path.to_string_lossy().into_owned(), record.id.clone());
            let namespace = record.namespace.clone();
            (name.clone(), OfferedVolume { path, id, namespace, ready: Some(true), ..OfferedVolume::default() })
        };
        let answers = known.answers.clone().into_iter();
        let told = answers.chain(known.volumes.iter().map(volume)).collect();
        if self.facts.send(Fact::Volumes(told)).await.is_err() {
            tracing::debug!("host volumes are not told: the agent ends");
        }
    }
}

/// Whether a volume that is there is the one that is asked for.
fn is_of(record: &VolumeRecord, request: &HostVolumeRequest) -> Result<(), VolumeError> {
    if record.namespace == request.namespace && !record.namespace.is_empty() {
        return Ok(());
    }
    let (id, namespace) = (&record.id, &record.namespace);
    Err(VolumeError::Invalid(format!("volume {id} is of namespace {namespace:?}: create another HostVolume")))
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
    use drover_api::host_volume::HostVolumePlugin;

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
        let folders = VolumeFolders {
            made: dir.path().join("volumes"),
            given_away: vec![dir.path().join("data")],
            own: vec![dir.path().join("data/state")],
        };
        let volumes = Volumes::new(folders, state, facts);
        Node { dir, volumes, told }
    }

    impl Node {
        async fn create(&self, id: &str, parameters: &[(&str, &str)]) -> Result<(), String> {
            let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let made = self.volumes.create("v1".into(), id.into(), MKDIR.into(), parameters).await;
            made.map_err(|error| error.to_string())
        }

        fn last_told(&mut self) -> BTreeMap<String, OfferedVolume> {
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

    fn asked(call: HostVolumeCall, namespace: &str, host_path: &Path) -> HostVolumeRequest {
        let is_made = host_path.as_os_str().is_empty();
        HostVolumeRequest {
            call,
            namespace: namespace.into(),
            name: "data".into(),
            plugin: is_made.then_some(HostVolumePlugin::Mkdir),
            parameters: BTreeMap::new(),
            host_path: host_path.to_string_lossy().into_owned(),
        }
    }

    impl Node {
        /// Carries out one request of the controller; what the node says of it then.
        async fn carry_out(&mut self, id: &str, request: HostVolumeRequest) -> OfferedVolume {
            self.volumes.carry_out(&BTreeMap::from([(id.to_owned(), request)])).await;
            let known = self.volumes.known.lock().await;
            self.volumes.announce(&known).await;
            drop(known);
            self.last_told().remove(id).unwrap_or_default()
        }

        /// What the node says when a folder is to be registered for namespace `shop`.
        async fn register(&mut self, id: &str, path: &Path) -> String {
            let told = self.carry_out(id, asked(HostVolumeCall::Keep, "shop", path)).await;
            if told.ready == Some(true) { told.path } else { told.error }
        }
    }

    #[tokio::test]
    async fn what_the_controller_asks_for_is_made_once_and_taken_away_with_its_files() {
        let memory = MemoryState::default();
        let mut node = node(memory.store());
        let unnamed = Path::new("");
        let told = node.carry_out("u-1", asked(HostVolumeCall::Keep, "shop", unnamed)).await;
        let folder = node.dir.path().join("volumes/u-1");
        assert_eq!((told.ready, told.namespace.as_str(), Path::new(&told.path)), (Some(true), "shop", &*folder));
        assert_eq!(memory.saved().volumes["u-1"].namespace, "shop");
        std::fs::write(folder.join("file"), "kept").expect("a file");
        node.carry_out("u-1", asked(HostVolumeCall::Keep, "shop", unnamed)).await;
        assert!(folder.join("file").exists());
        let told = node.carry_out("u-1", asked(HostVolumeCall::Remove, "shop", unnamed)).await;
        let gone = OfferedVolume { id: "u-1".into(), namespace: "shop".into(), ready: Some(false), ..told.clone() };
        assert_eq!(
            (told, folder.exists()),
            (OfferedVolume { path: String::new(), error: String::new(), ..gone }, false)
        );
        node.volumes.carry_out(&BTreeMap::new()).await;
        assert!(node.last_told().is_empty(), "an answer goes with its request");
        // An agent that has lost its state file is asked again, and so is one that was never asked before.
        std::fs::create_dir_all(&folder).expect("a folder");
        node.carry_out("u-1", asked(HostVolumeCall::Remove, "shop", unnamed)).await;
        assert!(!folder.exists());
    }

    #[tokio::test]
    async fn what_the_controller_no_longer_mentions_stays() {
        let mut node = node(MemoryState::default().store());
        node.carry_out("u-1", asked(HostVolumeCall::Keep, "shop", Path::new(""))).await;
        assert!(node.volumes.carry_out(&BTreeMap::new()).await);
        let known = node.volumes.known.lock().await;
        node.volumes.announce(&known).await;
        drop(known);
        assert_eq!(node.last_told()["u-1"].ready, Some(true));
    }

    #[tokio::test]
    async fn must_survive_requests_for_folders_that_the_node_does_not_give_away() {
        let mut node = node(MemoryState::default().store());
        let data = node.dir.path().join("data");
        for folder in ["a/b", "state/x"] {
            std::fs::create_dir_all(data.join(folder)).expect("a folder");
        }
        std::os::unix::fs::symlink("/etc", data.join("etc")).expect("a link");
        let refused =
            ["/etc", "/", "/nowhere", &data.join("etc").to_string_lossy(), &data.join("../x").to_string_lossy()]
                .map(PathBuf::from);
        for path in &refused {
            let said = node.register("u-1", path).await;
            assert!(said.contains("hostVolumePaths of the agent's configuration"), "{}: {said}", path.display());
        }
        for own in ["state", "state/x", ""] {
            let said = node.register("u-1", &data.join(own)).await;
            assert!(said.contains("the agent's own folder"), "{own}: {said}");
        }
        let made = node.carry_out("../x", asked(HostVolumeCall::Keep, "shop", Path::new(""))).await;
        assert!(made.error.contains("is no id of a host volume"), "{}", made.error);
        let missing = node.register("u-1", &data.join("none")).await;
        assert!(missing.contains("make it first"), "{missing}");
        let real = std::fs::canonicalize(data.join("a")).expect("a path");
        assert_eq!(Path::new(&node.register("u-1", &data.join("a")).await), real);
    }

    #[tokio::test]
    async fn must_survive_a_volume_of_another_namespace() {
        let mut node = node(MemoryState::default().store());
        let folder = node.dir.path().join("data/a/b");
        std::fs::create_dir_all(&folder).expect("a folder");
        node.register("u-1", &folder).await;
        for path in [folder.clone(), node.dir.path().join("data/a")] {
            let told = node.carry_out("u-2", asked(HostVolumeCall::Keep, "blog", &path)).await;
            assert!(told.error.contains("overlap"), "{}: {}", path.display(), told.error);
        }
        for call in [HostVolumeCall::Keep, HostVolumeCall::Remove] {
            let known = BTreeMap::from([("u-1".to_owned(), asked(call, "blog", &folder))]);
            assert!(!node.volumes.carry_out(&known).await, "{call}");
        }
        let told = node.carry_out("u-1", asked(HostVolumeCall::Keep, "shop", &folder)).await;
        assert_eq!((told.ready, told.namespace.as_str()), (Some(true), "shop"));
        node.carry_out("u-1", asked(HostVolumeCall::Remove, "shop", &folder)).await;
        assert!(folder.is_dir(), "what was there before stays");
    }

    #[tokio::test]
    async fn a_folder_that_is_not_given_away_any_more_is_not_offered_after_a_restart() {
        let memory = MemoryState::default();
        let mut before = node(memory.store());
        let folder = before.dir.path().join("data/a");
        std::fs::create_dir_all(&folder).expect("a folder");
        before.register("u-1", &folder).await;
        let mut after = node(memory.store());
        after.volumes.restore(&memory.saved().volumes).await;
        assert!(after.last_told().is_empty(), "its configuration names another folder");
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
            namespace: String::new(),
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
