//! The images of the node: pulled once for all who wait, kept for the allocation that has begun with them, given up
//! when no task has used them for a while.
//!
//! What an allocation has begun with is a name of its own in containerd, which leads to the same documents whatever
//! becomes of the image's name: so a restart runs the same program, also after the agent's own restart.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_containerd::api::containers::Container;
use drover_containerd::api::images::Image;
use drover_containerd::api::types::Descriptor;
use drover_containerd::{CallError, Containerd, Import, Login, Pull};
use drover_core::task::pull_credentials::{PullCredentials, PullProof};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Semaphore;

use super::image_facts::ImageFacts;
use super::machine;
use super::settings::ContainerSettings;
use crate::drivers::driver::StartError;
use crate::drivers::found_image::NeededImages;

/// Images that are downloaded at the same time.
const PULLS: usize = 3;
/// The most images whose facts are known at the same time.
const KNOWN_IMAGES: usize = 256;
/// How long layers are kept whose unpacking was broken off.
const UNPACK_LEASE: SignedDuration = SignedDuration::from_hours(24);
/// Says of a name to which allocation it belongs.
pub(super) const OF_ALLOCATION: &str = "drover.dev/allocation";
/// Says of an allocation's own name which image it was.
const OF_IMAGE: &str = "drover.dev/image";
/// Says of an image that it came by credentials: who begins with it later has to show the registry its own.
const IS_PRIVATE: &str = "drover.dev/pulled-with-credentials";
/// Says of an image since when no task uses it.
const UNUSED_SINCE: &str = "drover.dev/unused-since";

type PullResult = Result<(), CallError>;
/// An image, and by what it is pulled.
type PullKey = (String, Option<PullCredentials>);

/// The images of the node.
#[derive(Debug)]
pub(super) struct NodeImages {
    api: Containerd,
    snapshotter: String,
    hosts_dir: String,
    delay: Duration,
    turns: Arc<Semaphore>,
    /// Downloads that a start waits for.
    pulls: Mutex<BTreeMap<PullKey, WeakShared<BoxFuture<'static, PullResult>>>>,
    unpacking: tokio::sync::Mutex<()>,
    pub(super) needed: NeededImages,
    /// What images say of themselves, by the digests of their first documents: those never change.
    facts: Mutex<BTreeMap<String, Arc<ImageFacts>>>,
}

/// One task's image.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImageOfTask<'a> {
    pub(super) allocation: &'a str,
    pub(super) task: &'a str,
    /// The image's full name.
    pub(super) name: &'a str,
}

impl ImageOfTask<'_> {
    fn own_name(&self) -> String {
        format!("allocation.drover.dev/{}/{}", self.allocation, self.task)
    }
}

impl NodeImages {
    /// The images of this containerd.
    pub(super) fn new(api: Containerd, settings: &ContainerSettings) -> Self {
        let hosts_dir = settings.hosts_dir.as_ref().map(|dir| dir.to_string_lossy().into_owned());
        Self {
            api,
            snapshotter: settings.snapshotter.clone(),
            hosts_dir: hosts_dir.unwrap_or_default(),
            delay: settings.image_delay,
            turns: Arc::new(Semaphore::new(PULLS)),
            pulls: Mutex::default(),
            unpacking: tokio::sync::Mutex::default(),
            needed: NeededImages::default(),
            facts: Mutex::default(),
        }
    }

    /// What the task has begun with; none: it has not begun with this image.
    pub(super) async fn kept(&self, image: ImageOfTask<'_>) -> Result<Option<Descriptor>, StartError> {
        let own = self.find(&image.own_name()).await?;
        Ok(own.filter(|own| own.labels.get(OF_IMAGE).is_some_and(|name| name == image.name)).and_then(|own| own.target))
    }

    /// Has the task keep what the name of its image leads to now.
    pub(super) async fn keep(&self, image: ImageOfTask<'_>, target: Descriptor) -> Result<(), StartError> {
        let labels = [(OF_ALLOCATION, image.allocation), (OF_IMAGE, image.name)];
        let own = Image {
            name: image.own_name(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            target: Some(target),
            ..Image::default()
        };
        self.api.put_image(own).await.map_err(|error| of_containerd(&error))
    }

    /// What the name of an image leads to; none: the image is not on the node.
    pub(super) async fn target(&self, name: &str) -> Result<Option<Descriptor>, StartError> {
        Ok(self.find(name).await?.and_then(|image| image.target))
    }

    /// The same, unless the image came by credentials.
    pub(super) async fn free_target(&self, name: &str) -> Result<Option<Descriptor>, StartError> {
        let found = self.find(name).await?.filter(|image| !image.labels.contains_key(IS_PRIVATE));
        Ok(found.and_then(|image| image.target))
    }

    async fn find(&self, name: &str) -> Result<Option<Image>, StartError> {
        self.api.image(name).await.map_err(|error| of_containerd(&error))
    }

    /// What an image says of itself, which is read once.
    pub(super) async fn facts(&self, name: &str, target: &Descriptor) -> Result<Arc<ImageFacts>, StartError> {
        let found = lock(&self.facts).get(&target.digest).cloned();
        if let Some(facts) = found {
            return Ok(facts);
        }
        let facts = Arc::new(ImageFacts::read(&self.api, name, target).await?);
        let mut known = lock(&self.facts);
        if known.len() >= KNOWN_IMAGES {
            known.clear();
        }
        known.insert(target.digest.clone(), Arc::clone(&facts));
        Ok(facts)
    }

    /// Downloads an image and unpacks it; one download for all who ask at the same time with the same credentials.
    pub(super) async fn pull(
        &self,
        name: &str,
        credentials: Option<PullCredentials>,
        limit: Duration,
    ) -> Result<(), StartError> {
        let key = (name.to_owned(), credentials);
        let pull = self.pull_of(&key, limit);
        let result = pull.await;
        let mut pulls = lock(&self.pulls);
        if pulls.get(&key).and_then(WeakShared::upgrade).is_none_or(|pull| pull.peek().is_some()) {
            pulls.remove(&key);
        }
        drop(pulls);
        result.map_err(|error| StartError::Recoverable(self.pull_failure(&key, limit, &error)))
    }

    fn pull_of(&self, key: &PullKey, limit: Duration) -> Shared<BoxFuture<'static, PullResult>> {
        let mut pulls = lock(&self.pulls);
        if let Some(under_way) = pulls.get(key).and_then(WeakShared::upgrade) {
            return under_way;
        }
        let (api, turns) = (self.api.clone(), Arc::clone(&self.turns));
        let (name, credentials) = key;
        let pull = Pull {
            reference: name.clone(),
            platform: machine::platform(),
            snapshotter: self.snapshotter.clone(),
            hosts_dir: self.hosts_dir.clone(),
            login: credentials.as_ref().map(login),
            labels: credentials.iter().map(|_| (IS_PRIVATE.to_owned(), "true".to_owned())).collect(),
        };
        let download = async move {
            // The semaphore is never closed.
            let _turn = turns.acquire_owned().await;
            api.pull(pull, limit).await
        };
        let shared = download.boxed().shared();
        if let Some(weak) = shared.downgrade() {
            pulls.insert(key.clone(), weak);
        }
        shared
    }

    /// What went wrong, with the registry and what to do.
    fn pull_failure(&self, (name, credentials): &PullKey, limit: Duration, error: &CallError) -> String {
        let registry = name.split('/').next().unwrap_or_default();
        let text = error.to_string();
        // The name of a registry or image may hold anything, a number of an error too.
        let about = text.replace(name.as_str(), "").replace(registry, "");
        let has = |words: &[&str]| words.iter().any(|word| about.contains(word));
        let remedy = if error.is_unreachable() && has(&["has not answered within"]) {
            format!(
                "it was not there after {limit:?}: is {registry} reachable from the node? config.imagePullTimeout \
                     gives it longer"
            )
        } else if has(&["snapshotter"]) {
            format!("drivers.containerd.snapshotter of the agent's configuration is {}", self.snapshotter)
        } else if has(&["no match for platform"]) {
            format!("take one that is for linux/{}", machine::architecture())
        } else if has(&["401", "403", "authorization", "denied", "unauthorized"]) {
            match credentials {
                Some(_) => {
                    format!("{registry} does not take the credentials in imagePullSecrets for it: correct the Secret")
                }
                None => format!(
                    "{registry} wants credentials: name a Secret of type kubernetes.io/dockerconfigjson that has some for \
                     it in imagePullSecrets"
                ),
            }
        } else if has(&["not found"]) {
            "correct config.image, or push it there".to_owned()
        } else {
            format!("is {registry} reachable from the node?")
        };
        format!("image {name} was not pulled: {registry}: {text}: {remedy}")
    }

    /// Takes in the images of an archive that the task has.
    pub(super) async fn load(&self, name: &str, archive: File, limit: Duration) -> Result<(), StartError> {
        let _turn = self.turns.acquire().await;
        let import = Import {
            repository: repository(name).to_owned(),
            platform: machine::platform(),
            snapshotter: self.snapshotter.clone(),
        };
        self.api.import(import, archive, limit).await.map_err(|error| {
            StartError::Recoverable(format!(
                "config.load: the archive was not taken in: {error}: it has to be an archive of images (docker save, or \
                 an OCI layout as tar)"
            ))
        })
    }

    /// Whether the layers of an image are unpacked.
    pub(super) async fn is_unpacked(&self, snapshot: &str) -> Result<bool, StartError> {
        self.api.has_snapshot(&self.snapshotter, snapshot).await.map_err(|error| {
            StartError::Recoverable(format!(
                "containerd has no layers with its snapshotter {}: {error}: does drivers.containerd.snapshotter of the \
                 agent's configuration name one that it has?",
                self.snapshotter
            ))
        })
    }

    /// Has the layers of an image unpacked; those that are stay.
    pub(super) async fn unpack(&self, name: &str, facts: &ImageFacts, now: Timestamp) -> Result<(), StartError> {
        if facts.layers.is_empty() || self.is_unpacked(facts.snapshot()).await? {
            return Ok(());
        }
        // Several tasks may begin with the same image.
        let _alone = self.unpacking.lock().await;
        let expires = now.saturating_add(UNPACK_LEASE).unwrap_or(now).to_string();
        self.api.unpack(&facts.layers, &self.snapshotter, &facts.config, &expires).await.map_err(|error| {
            StartError::Recoverable(format!(
                "image {name} was not unpacked for snapshotter {}: {error}",
                self.snapshotter
            ))
        })
    }

    /// Gives up what no container has used for a while.
    ///
    /// # Errors
    /// When containerd refuses or does not answer.
    pub(super) async fn collect(&self, containers: &[Container], now: Timestamp) -> Result<(), CallError> {
        let images = self.api.images().await?;
        for (name, fate) in fates(&images, containers, self.delay, now) {
            let image = images.iter().find(|image| image.name == name).cloned().unwrap_or_default();
            if self.needed.has(&name) {
                continue;
            }
            match fate {
                ImageFate::Delete => {
                    tracing::info!(image = name, "an image that no task uses is given up");
                    self.api.delete_image(&name).await?;
                }
                ImageFate::Mark(since) => self.api.put_image(with_mark(image, since)).await?,
            }
        }
        Ok(())
    }
}

/// What a registry is shown. Docker's own is asked under another name than images have.
fn login(credentials: &PullCredentials) -> Login {
    let registry = credentials.registry.clone();
    let hosts =
        if registry == "docker.io" { vec![registry, "registry-1.docker.io".to_owned()] } else { vec![registry] };
    let (username, secret) = match &credentials.proof {
        PullProof::Password { username, password } => (username.clone(), password.clone()),
        PullProof::IdentityToken(token) => (String::new(), token.clone()),
    };
    Login { hosts, username, secret }
}

/// What becomes of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageFate {
    /// It is unused since then; none: it is used again.
    Mark(Option<Timestamp>),
    Delete,
}

/// The images of which something changes.
fn fates(images: &[Image], containers: &[Container], delay: Duration, now: Timestamp) -> Vec<(String, ImageFate)> {
    let allocations: BTreeSet<&str> =
        containers.iter().filter_map(|it| it.labels.get(OF_ALLOCATION)).map(String::as_str).collect();
    let used: BTreeSet<&str> = containers.iter().map(|it| it.image.as_str()).collect();
    let is_used = |image: &Image| match image.labels.get(OF_ALLOCATION) {
        Some(allocation) => allocations.contains(allocation.as_str()),
        None => used.contains(image.name.as_str()),
    };
    let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
    let fate = |image: &Image| {
        let since = image.labels.get(UNUSED_SINCE).and_then(|text| text.parse::<Timestamp>().ok());
        match (is_used(image), since) {
            (true, Some(_)) => Some(ImageFate::Mark(None)),
            (false, Some(since)) if now.duration_since(since) >= delay => Some(ImageFate::Delete),
            (true, None) | (false, Some(_)) => None,
            (false, None) => Some(ImageFate::Mark(Some(now))),
        }
    };
    images.iter().filter_map(|image| Some((image.name.clone(), fate(image)?))).collect()
}

fn with_mark(mut image: Image, since: Option<Timestamp>) -> Image {
    match since {
        Some(since) => image.labels.insert(UNUSED_SINCE.to_owned(), since.to_string()),
        None => image.labels.remove(UNUSED_SINCE),
    };
    image
}

/// Opens the archive that `config.load` names: beneath the task's own files or those of its allocation, where no link
/// is followed.
pub(super) fn open_archive(load: &str, alloc_dir: &Path, task_dir: &Path) -> Result<File, StartError> {
    use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
    let refused = |reason: String| StartError::Invalid(format!("config.load {load:?}: {reason}"));
    let (root, beneath) = match load.strip_prefix("/alloc/") {
        Some(rest) => (alloc_dir.join("alloc"), rest),
        None => (task_dir.join("local"), load.strip_prefix("/local/").unwrap_or(load)),
    };
    if beneath.starts_with('/') {
        return Err(refused("is no file of the task: name one below /local or /alloc".to_owned()));
    }
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, &root, directory, Mode::empty()).and_then(|root| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat2(&root, beneath, flags, Mode::empty(), resolve)
    });
    let file =
        opened.map_err(|error| refused(format!("{error}: name a file below /local or /alloc, without links")))?;
    let stat = rustix::fs::fstat(&file).map_err(|error| refused(error.to_string()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refused("is no plain file".to_owned()));
    }
    Ok(file.into())
}

/// The name of an image without tag and digest.
fn repository(name: &str) -> &str {
    let name = name.split('@').next().unwrap_or_default();
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        Some(_) | None => name,
    }
}

/// A call that has nothing to do with the task.
pub(super) fn of_containerd(error: &CallError) -> StartError {
    StartError::Recoverable(format!("containerd: {error}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_017_an_image_is_given_up_when_nothing_has_used_it_for_the_whole_delay() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let image = |name: &str, labels: &[(&str, String)]| Image {
            name: name.into(),
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
            ..Image::default()
        };
        let container = Container {
            image: "used".into(),
            labels: [(OF_ALLOCATION.to_owned(), "a-1".to_owned())].into(),
            ..Container::default()
        };
        let since = |second: i64| (UNUSED_SINCE, at(second).to_string());
        let images = [
            image("used", &[]),
            image("used-again", &[since(0)]),
            image("old", &[since(0)]),
            image("younger", &[since(50)]),
            image("new", &[]),
            image("own-1", &[(OF_ALLOCATION, "a-1".into())]),
            image("own-2", &[(OF_ALLOCATION, "a-2".into()), since(0)]),
        ];
        let again = Container { image: "used-again".into(), ..Container::default() };
        let found = fates(&images, &[container, again], Duration::from_secs(100), at(100));
        let wanted = [
            ("used-again", ImageFate::Mark(None)),
            ("old", ImageFate::Delete),
            ("new", ImageFate::Mark(Some(at(100)))),
            ("own-2", ImageFate::Delete),
        ];
        assert_eq!(found, wanted.map(|(name, fate)| (name.to_owned(), fate)));
    }

    #[test]
    fn a_repository_is_a_name_without_tag_and_digest() {
        for (name, wanted) in [
            ("example.com/web:1", "example.com/web"),
            ("example.com:5000/web@sha256:aa", "example.com:5000/web"),
            ("example.com:5000/web", "example.com:5000/web"),
        ] {
            assert_eq!(repository(name), wanted);
        }
    }

    #[test]
    fn an_archive_is_opened_beneath_the_tasks_own_files_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let (alloc, task) = (dir.path().to_owned(), dir.path().join("t"));
        for path in ["alloc/data", "t/local"] {
            std::fs::create_dir_all(alloc.join(path)).expect("a directory");
        }
        std::fs::write(alloc.join("alloc/data/i.tar"), "shared").expect("a file");
        std::fs::write(task.join("local/i.tar"), "own").expect("a file");
        std::os::unix::fs::symlink("/etc/passwd", task.join("local/link")).expect("a link");
        let read = |load: &str| {
            open_archive(load, &alloc, &task).map(|mut file| {
                let mut text = String::new();
                std::io::Read::read_to_string(&mut file, &mut text).expect("text");
                text
            })
        };
        for (load, wanted) in [("i.tar", "own"), ("/local/i.tar", "own"), ("/alloc/data/i.tar", "shared")] {
            assert_eq!(read(load).expect("opened"), wanted, "{load}");
        }
        for load in ["/etc/passwd", "../../alloc/data/i.tar", "link", "none", "/alloc/data", "/alloc/../t/local/i.tar"]
        {
            let error = read(load).expect_err("refused").to_string();
            assert!(error.contains("config.load"), "{load}: {error}");
        }
    }
}
