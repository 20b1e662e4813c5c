//! Mounting and unmounting with a plugin that notes what it is asked, on a disk without files.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_api::allocation::VolumeState;
use drover_api::client_node::{CsiCall, CsiInfo, CsiRequest};
use drover_api::csi_volume::{AccessMode, AttachmentMode, PluginSource, VolumeSnapshot};
use drover_api::{CSIVolume, CSIVolumeSpec};
use drover_seal::NodeKey;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Granted;
use super::client::{Halves, SocketPlugin};
use super::objects::VolumeObjects;
use super::plugin::{
    Attachment, ErrorKind, Grown, How, KnownVolume, MadeVolume, NewVolume, Plugin, PluginError, PluginFacts, VolumeUse,
};
use super::registry::Instance;
use super::shared::{Csi, CsiParts};
use crate::node::disk::Disk;
use crate::node::memory_disk::MemoryDisk;
use crate::node::view::NodeView;
use crate::reporting::events::{EventSink, EventsLeft, NodeEvents, Reason};
use crate::state::{MemoryState, StateStore};
use crate::watch;
use drover_clock::SystemClock;
use drover_store::StoreError;

/// For tests of what has nothing to do with volumes.
pub(crate) fn without_volumes(state: StateStore, root: PathBuf) -> Csi {
    let (disk, objects) = (Arc::new(MemoryDisk::default()), Arc::new(OneVolume));
    Csi::new(CsiParts {
        root,
        state,
        disk,
        objects,
        events: told().0,
        saved: super::Mounts::new(),
        kubelet_dir: None,
        key: None,
    })
}

/// As after the end of an agent that had mounted volume `v1` for an allocation under this name, by a plugin that fails
/// to unpublish so many times. Tells how often the plugin staged, published, unpublished and unstaged, too.
pub(crate) async fn with_a_mount(
    state: &MemoryState,
    uid: &str,
    name: &str,
    failures: usize,
) -> (Csi, impl Fn() -> [usize; 4]) {
    let plugin = Noted::default();
    (0..failures).for_each(|_| plugin.fail("unpublish", ErrorKind::Retryable));
    let first = Stage::begin(&plugin, state);
    first.csi.mount(uid, name, &granted("v1", false)).await.expect("mounted");
    drop(first);
    (Stage::begin(&plugin, state).csi, move || plugin.counts())
}

/// What people are told of node `n-1`.
fn told() -> (NodeEvents, EventsLeft) {
    let (sink, left) = EventSink::kept(Arc::new(SystemClock));
    (NodeEvents::new(sink, "n-1".to_owned(), watch::Sender::new(NodeView::default()).subscribe()), left)
}

/// There is one volume, `v1`.
#[derive(Debug)]
struct OneVolume;

impl VolumeObjects for OneVolume {
    fn follow(&self, _: String, name: String) -> BoxStream<'static, Option<Arc<CSIVolume>>> {
        let seen = (name != "v1").then_some(None);
        futures::stream::iter(seen).chain(futures::stream::pending()).boxed()
    }

    fn get(&self, _: String, name: String) -> BoxFuture<'static, Result<Option<CSIVolume>, StoreError>> {
        std::future::ready(Ok((name == "v1").then(|| CSIVolume::new("v1", CSIVolumeSpec::default())))).boxed()
    }

    fn secret(&self, _: String, name: String) -> BoxFuture<'static, Result<BTreeMap<String, String>, String>> {
        let login = || BTreeMap::from([("password".to_owned(), "canary".to_owned())]);
        std::future::ready((name == "login").then(login).ok_or_else(|| format!("no secret {name}"))).boxed()
    }
}

/// Notes calls, fails as it is told, and mounts on a disk without files.
#[derive(Clone, Debug, Default)]
struct Noted {
    log: Arc<Mutex<Vec<String>>>,
    failures: Arc<Mutex<VecDeque<(&'static str, ErrorKind)>>>,
    /// Where it is known: there it is restarted in the middle of the calls that fail.
    restarted_in: Arc<Mutex<Option<Csi>>>,
    /// The publish contexts that it got.
    contexts: Arc<Mutex<Vec<BTreeMap<String, String>>>>,
    /// The volumes' contexts that it got, at each stage and publish.
    volume_contexts: Arc<Mutex<Vec<BTreeMap<String, String>>>>,
    /// And the mount flags.
    flags: Arc<Mutex<Vec<Vec<String>>>>,
    disk: MemoryDisk,
}

impl Noted {
    fn call(&self, what: &'static str, path: &Path) -> Result<(), PluginError> {
        let tail: Vec<_> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let tail = tail[tail.len().saturating_sub(3)..].join("/");
        self.log.lock().expect("no panic").push(format!("{what} {tail}"));
        let mut failures = self.failures.lock().expect("no panic");
        match failures.front() {
            Some((of, kind)) if *of == what => {
                let kind = *kind;
                failures.pop_front();
                if let Some(csi) = &*self.restarted_in.lock().expect("no panic") {
                    csi.drop_plugin("p", "");
                    self.begin(csi, true);
                }
                Err(PluginError { reason: format!("{what} is made to fail"), kind })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A life of it that works, or does not yet.
    fn begin(&self, csi: &Csi, healthy: bool) {
        self.begin_as(csi, "", healthy);
    }

    /// The same, run by the allocation of this uid.
    fn begin_as(&self, csi: &Csi, uid: &str, healthy: bool) {
        let info = CsiInfo { controller: true, node: true, healthy, alloc_id: uid.to_owned(), ..CsiInfo::default() };
        csi.put_plugin("p", uid, Instance { plugin: Arc::new(self.clone()), info, facts: facts() });
    }

    fn fail(&self, what: &'static str, kind: ErrorKind) {
        self.failures.lock().expect("no panic").push_back((what, kind));
    }

    fn n(&self, what: &str) -> usize {
        let start = format!("{what} ");
        self.log.lock().expect("no panic").iter().filter(|line| line.starts_with(&start)).count()
    }

    /// How often it staged, published, unpublished and unstaged.
    fn counts(&self) -> [usize; 4] {
        ["stage", "publish", "unpublish", "unstage"].map(|what| self.n(what))
    }
}

impl Plugin for Noted {
    fn probe(&self) -> BoxFuture<'_, Result<PluginFacts, PluginError>> {
        std::future::ready(Ok(facts())).boxed()
    }

    fn stage<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        let done = self.call("stage", &volume.staging);
        self.volume_contexts.lock().expect("no panic").push(volume.context.clone());
        self.disk.set_mount(&volume.staging, done.is_ok());
        std::future::ready(done).boxed()
    }

    fn unstage<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        let done = self.call("unstage", &volume.staging);
        self.disk.set_mount(&volume.staging, done.is_err());
        std::future::ready(done).boxed()
    }

    fn publish<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        let done = self.call("publish", &volume.target);
        self.contexts.lock().expect("no panic").push(volume.publish_context.clone());
        self.volume_contexts.lock().expect("no panic").push(volume.context.clone());
        self.flags.lock().expect("no panic").push(volume.how.mount_flags.clone());
        self.disk.set_mount(&volume.target, done.is_ok());
        std::future::ready(done).boxed()
    }

    fn unpublish<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        let done = self.call("unpublish", &volume.target);
        self.disk.set_mount(&volume.target, done.is_err());
        std::future::ready(done).boxed()
    }

    fn attach<'a>(&'a self, to: &'a Attachment) -> BoxFuture<'a, Result<BTreeMap<String, String>, PluginError>> {
        let done = self.call("attach", Path::new(&to.node_id));
        std::future::ready(done.map(|()| BTreeMap::from([("password".to_owned(), "canary".to_owned())]))).boxed()
    }

    fn detach<'a>(&'a self, from: &'a Attachment) -> BoxFuture<'a, Result<(), PluginError>> {
        std::future::ready(self.call("detach", Path::new(&from.node_id))).boxed()
    }

    fn create<'a>(&'a self, volume: &'a NewVolume) -> BoxFuture<'a, Result<MadeVolume, PluginError>> {
        let made = self.call("create", Path::new(&volume.name));
        let external_id = format!("vol-{}", volume.name);
        std::future::ready(made.map(|()| MadeVolume { external_id, ..MadeVolume::default() })).boxed()
    }

    fn validate<'a>(&'a self, volume: &'a KnownVolume) -> BoxFuture<'a, Result<(), PluginError>> {
        std::future::ready(self.call("validate", Path::new(&volume.external_id))).boxed()
    }

    fn delete<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>> {
        std::future::ready(self.call("delete", Path::new(&volume.external_id))).boxed()
    }

    fn expand<'a>(&'a self, volume: &'a VolumeUse, to: (i64, i64)) -> BoxFuture<'a, Result<Grown, PluginError>> {
        let grown = Grown { capacity_bytes: to.0, needs_nodes: true };
        std::future::ready(self.call("expand", Path::new(&volume.external_id)).map(|()| grown)).boxed()
    }

    fn take_snapshot<'a>(
        &'a self,
        volume: &'a VolumeUse,
        name: &'a str,
    ) -> BoxFuture<'a, Result<VolumeSnapshot, PluginError>> {
        let taken = VolumeSnapshot { id: format!("{name}-of-{}", volume.external_id), ..VolumeSnapshot::default() };
        std::future::ready(self.call("take_snapshot", Path::new(name)).map(|()| taken)).boxed()
    }

    fn delete_snapshot<'a>(&'a self, _: &'a VolumeUse, id: &'a str) -> BoxFuture<'a, Result<(), PluginError>> {
        std::future::ready(self.call("delete_snapshot", Path::new(id))).boxed()
    }

    fn list_snapshots<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<Vec<VolumeSnapshot>, PluginError>> {
        std::future::ready(self.call("list_snapshots", Path::new(&volume.external_id)).map(|()| Vec::new())).boxed()
    }

    fn expand_mount<'a>(&'a self, volume: &'a VolumeUse, _: (i64, i64)) -> BoxFuture<'a, Result<(), PluginError>> {
        std::future::ready(self.call("expand_mount", &volume.target)).boxed()
    }
}

fn facts() -> PluginFacts {
    let node = ["STAGE_UNSTAGE_VOLUME", "EXPAND_VOLUME"].map(str::to_owned).to_vec();
    PluginFacts { node, ..PluginFacts::default() }
}

/// A node with plugin `p`.
struct Stage {
    csi: Csi,
    plugin: Noted,
    state: MemoryState,
    told: EventsLeft,
    _running: JoinSet<()>,
}

impl Stage {
    fn new() -> Self {
        Self::begin(&Noted::default(), &MemoryState::default())
    }

    /// An agent's life over what an earlier one has left.
    fn begin(plugin: &Noted, state: &MemoryState) -> Self {
        Self::begin_with(plugin, state, None)
    }

    /// The same, of a node to whose key publish contexts are sealed.
    fn begin_with(plugin: &Noted, state: &MemoryState, key: Option<NodeKey>) -> Self {
        let kubelet_dir = Some(PathBuf::from("/none/kubelet"));
        let (disk, objects) = (Arc::new(plugin.disk.clone()), Arc::new(OneVolume));
        let (events, told) = told();
        let (state_file, saved) = (state.store(), state.saved().mounts);
        let parts = CsiParts { root: "/csi".into(), state: state_file, disk, objects, events, saved, kubelet_dir, key };
        let csi = Csi::new(parts);
        let mut running = JoinSet::new();
        running.spawn(csi.clone().run());
        let life = Self { csi, plugin: plugin.clone(), state: state.clone(), told, _running: running };
        life.set_healthy(true);
        life
    }

    /// The plugin works, or is being restarted.
    fn set_healthy(&self, healthy: bool) {
        self.plugin.begin(&self.csi, healthy);
    }

    /// The kubelet knows the plugin too, or instead of a task.
    fn register(&self) {
        let info = CsiInfo { source: PluginSource::Kubelet, node: true, healthy: true, ..CsiInfo::default() };
        self.csi.put_plugin("p", "/reg.sock", Instance { plugin: Arc::new(self.plugin.clone()), info, facts: facts() });
    }

    async fn mount(&self, uid: &str, volume: &str, is_read_only: bool) -> Result<(), String> {
        self.csi.mount(uid, "data", &granted(volume, is_read_only)).await.map(drop)
    }

    async fn unmount(&self, uid: &str) {
        self.csi.release(uid);
        self.csi.cleared(uid).await;
    }
}

fn granted(volume: &str, is_read_only: bool) -> Granted {
    Granted {
        namespace: "shop".to_owned(),
        object: volume.to_owned(),
        volume_id: volume.to_owned(),
        plugin: "p".to_owned(),
        external_id: format!("vol-{volume}"),
        context: BTreeMap::new(),
        publish_context: BTreeMap::new(),
        how: How {
            is_read_only,
            access_mode: Some(AccessMode::MultiNodeMultiWriter),
            attachment_mode: AttachmentMode::FileSystem,
            ..How::default()
        },
        takes_own_flags: true,
        secret: None,
    }
}

/// As when a new version of a driver's job starts beside the old one.
#[tokio::test(start_paused = true)]
async fn of_two_tasks_that_run_one_driver_the_newer_one_serves_as_long_as_it_works() {
    let stage = Stage::new();
    let print = stage.csi.print();
    let said = || print.borrow().plugins.get("p").map(|info| (info.alloc_id.clone(), info.healthy));
    // Its uid is none that sorts before or after by chance.
    let newer = ["a", "z"].map(|uid| (uid, Noted { disk: stage.plugin.disk.clone(), ..Noted::default() }));
    for (n_older, (uid, newer)) in newer.iter().enumerate() {
        newer.begin_as(&stage.csi, uid, false);
        assert_eq!(said(), Some((String::new(), true)), "it is not up yet");
        stage.mount(&format!("older-{uid}"), "v1", false).await.expect("mounted");
        assert_eq!((stage.plugin.n("publish"), newer.n("publish")), (n_older + 1, 0));
        newer.begin_as(&stage.csi, uid, true);
        assert_eq!(said(), Some(((*uid).to_owned(), true)));
        stage.mount(&format!("newer-{uid}"), "v1", false).await.expect("mounted");
        assert_eq!((stage.plugin.n("publish"), newer.n("publish")), (n_older + 1, 1));
        stage.csi.drop_plugin("p", uid);
        assert_eq!(said(), Some((String::new(), true)), "the older one serves again");
    }
}

/// A-161
#[tokio::test(start_paused = true)]
async fn v_076_two_allocations_share_a_stage_until_the_second_one_stops() {
    let stage = Stage::new();
    stage.mount("a1", "v1", false).await.expect("mounted");
    stage.mount("a2", "v1", false).await.expect("mounted");
    assert_eq!(stage.plugin.counts(), [1, 2, 0, 0]);
    stage.unmount("a1").await;
    assert_eq!(stage.plugin.counts(), [1, 2, 1, 0]);
    stage.unmount("a2").await;
    assert_eq!(stage.plugin.counts(), [1, 2, 2, 1]);
}

/// V-076
#[tokio::test(start_paused = true)]
async fn of_two_allocations_that_stop_at_once_one_takes_the_stage_away() {
    let stage = Stage::new();
    stage.mount("a1", "v1", false).await.expect("mounted");
    stage.mount("a2", "v1", false).await.expect("mounted");
    stage.csi.release_all_but(|_| false);
    stage.csi.cleared("a1").await;
    stage.csi.cleared("a2").await;
    assert_eq!(stage.plugin.counts(), [1, 2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn v_077_read_only_and_writing_users_have_stages_of_their_own() {
    let stage = Stage::new();
    stage.mount("a1", "v1", true).await.expect("mounted");
    stage.mount("a2", "v1", false).await.expect("mounted");
    assert_eq!(stage.plugin.counts(), [2, 2, 0, 0]);
    stage.unmount("a1").await;
    assert_eq!(stage.plugin.counts(), [2, 2, 1, 1]);
    stage.unmount("a2").await;
    assert_eq!(stage.plugin.counts(), [2, 2, 2, 2]);
    let log = stage.plugin.log.lock().expect("no panic").clone();
    assert!(log.contains(&"stage shop/v1/ro-file-system-multi-node-multi-writer".to_owned()), "{log:?}");
    assert!(log.contains(&"publish a2/v1/rw-file-system-multi-node-multi-writer".to_owned()), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn v_078_a_volume_that_is_not_published_is_taken_back() {
    let mut stage = Stage::new();
    stage.plugin.fail("publish", ErrorKind::Final);
    let error = stage.mount("a1", "v1", false).await.expect_err("refused");
    assert!(error.contains("publish"), "{error}");
    let of = "volume shop/v1 for allocation a1";
    assert_eq!(stage.told.take(), [(Reason::MountFailed, format!("{of} is not mounted: {error}"))]);
    stage.unmount("a1").await;
    assert_eq!(stage.plugin.counts(), [1, 1, 1, 1]);
    assert_eq!(stage.told.take(), [(Reason::VolumeUnmounted, format!("{of} is unmounted"))]);
    assert!(stage.state.saved().mounts.is_empty(), "nothing is kept of it");
}

#[tokio::test(start_paused = true)]
async fn v_079_an_unmount_that_fails_is_tried_again_and_again() {
    let mut stage = Stage::new();
    stage.mount("a1", "v1", false).await.expect("mounted");
    for _ in 0..3 {
        stage.plugin.fail("unpublish", ErrorKind::Retryable);
    }
    let began = Instant::now();
    stage.csi.release("a1");
    let patience = Duration::from_secs(1);
    assert!(tokio::time::timeout(patience, stage.csi.cleared("a1")).await.is_err(), "who waits may stop waiting");
    let shown = stage.csi.status("a1", "data").expect("it is mounted still");
    assert_eq!((shown.state, &*shown.error), (VolumeState::UnmountFailed, "unpublish is made to fail"));
    stage.csi.cleared("a1").await;
    assert_eq!(stage.plugin.counts(), [1, 1, 4, 1]);
    assert_eq!(began.elapsed().as_secs(), 2 + 4 + 8, "pauses double");
    let told: Vec<Reason> = stage.told.take().into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(told, [Reason::UnmountFailed, Reason::VolumeMounted, Reason::VolumeUnmounted], "each once");
}

#[tokio::test(start_paused = true)]
async fn v_075_mounts_of_an_earlier_life_are_kept_and_what_vanished_is_mounted_again() {
    let (plugin, state) = (Noted::default(), MemoryState::default());
    let first = Stage::begin(&plugin, &state);
    first.mount("a1", "v1", false).await.expect("mounted");
    first.mount("a2", "v2", false).await.expect("mounted");
    drop(first);
    let next = Stage::begin(&plugin, &state);
    let target = next.csi.mounted("a1", "data").expect("it is mounted still");
    assert_eq!(plugin.counts(), [2, 2, 0, 0]);
    plugin.disk.set_mount(&target, false);
    assert_eq!(next.csi.mounted("a1", "data"), None);
    next.mount("a1", "v1", false).await.expect("mounted");
    // All is done again that is gone: a staging path that is a mount still is not staged (`spec/volumes.md` 6.2).
    assert_eq!(plugin.counts(), [2, 3, 0, 0], "what is staged stays so");
    plugin.disk.lose_mounts();
    assert_eq!(next.csi.mounted("a1", "data"), None);
    next.mount("a1", "v1", false).await.expect("mounted");
    assert_eq!(plugin.counts(), [3, 4, 0, 0], "both mounts were gone");
    // Of an allocation that nobody knows any more nothing stays.
    next.csi.release_all_but(|uid| uid == "a1");
    next.csi.cleared("a2").await;
    assert_eq!(plugin.counts(), [3, 4, 1, 1]);
}

fn request(call: CsiCall) -> CsiRequest {
    CsiRequest {
        call,
        plugin_id: "p".to_owned(),
        namespace: "shop".to_owned(),
        volume: "v1".to_owned(),
        external_id: "vol-v1".to_owned(),
        alloc_id: "a1".to_owned(),
        node_id: "i-1".to_owned(),
        node_key: String::new(),
        read_only: false,
        access_mode: None,
        attachment_mode: None,
        required_bytes: None,
        limit_bytes: None,
        snapshot: "nightly".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_publish_context_is_read_by_the_node_that_mounts_alone() {
    let key = || NodeKey::generate().expect("a key");
    let (mounting, other) = (key(), key());
    // The node of the controller plugin seals what that answers to the node that mounts.
    let controller = Stage::begin_with(&Noted::default(), &MemoryState::default(), Some(other));
    let mut print = controller.csi.print();
    let asked = CsiRequest { node_key: mounting.public(), ..request(CsiCall::ControllerPublish) };
    controller.csi.take_requests(&[("r".to_owned(), asked)].into());
    let answers = print.wait_for(|print| print.answers.contains_key("r")).await.expect("an answer").answers.clone();
    let sealed = answers["r"].context.clone();
    assert_eq!(sealed.keys().collect::<Vec<_>>(), [drover_seal::SEALED]);
    assert!(!format!("{answers:?}").contains("canary"));
    // It reads nothing of that itself, and the other node's driver gets what the controller has answered.
    let granted = || Granted { publish_context: sealed.clone(), ..granted("v1", false) };
    let error = controller.csi.mount("a1", "data", &granted()).await.expect_err("not for this node");
    assert!(error.contains("sealed to another key"), "{error}");
    let stage = Stage::begin_with(&Noted::default(), &MemoryState::default(), Some(mounting));
    let error = stage.csi.mount("a2", "data", &granted()).await.expect_err("not for this claim");
    assert!(error.contains("for another claim"), "{error}");
    stage.csi.mount("a1", "data", &granted()).await.expect("mounted");
    let context = BTreeMap::from([("password".to_owned(), "canary".to_owned())]);
    assert_eq!(*stage.plugin.contexts.lock().expect("no panic"), [context]);
}

#[tokio::test(start_paused = true)]
async fn v_058_a_volumes_context_is_handed_to_its_driver() {
    let stage = Stage::new();
    let context = BTreeMap::from([("pool".to_owned(), "fast".to_owned())]);
    let granted = Granted { context: context.clone(), ..granted("v1", false) };
    stage.csi.mount("a1", "data", &granted).await.expect("mounted");
    assert_eq!(*stage.plugin.volume_contexts.lock().expect("no panic"), [context.clone(), context]);
}

#[tokio::test(start_paused = true)]
async fn a_volumes_flags_take_values_from_its_secret_and_a_jobs_do_not() {
    let stage = Stage::new();
    let granted = |takes_own_flags, secret: &str| {
        let mut granted = granted("v1", false);
        granted.how.mount_flags = vec!["password=$(password)".to_owned(), "ro".to_owned()];
        Granted { takes_own_flags, secret: Some(secret.to_owned()).filter(|name| !name.is_empty()), ..granted }
    };
    stage.csi.mount("a1", "data", &granted(true, "login")).await.expect("mounted");
    stage.csi.mount("a2", "data", &granted(false, "login")).await.expect("mounted");
    let flags = stage.plugin.flags.lock().expect("no panic").clone();
    assert_eq!(flags, [["password=canary", "ro"], ["password=$(password)", "ro"]]);
    let error = stage.csi.mount("a3", "data", &granted(true, "")).await.expect_err("there is no such key");
    assert!(error.contains("$(password)") && error.contains("secretsRef"), "{error}");
    assert_eq!(stage.plugin.counts()[1], 2, "it is not published");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_plugin_goes_on_as_soon_as_it_is_there_again() {
    let stage = Stage::new();
    stage.mount("a1", "v1", false).await.expect("mounted");
    stage.plugin.fail("unpublish", ErrorKind::Retryable);
    stage.set_healthy(false);
    let began = Instant::now();
    stage.csi.release("a1");
    let patience = Duration::from_millis(300);
    assert!(tokio::time::timeout(patience, stage.csi.cleared("a1")).await.is_err(), "it is tried again later");
    stage.set_healthy(true);
    stage.csi.cleared("a1").await;
    assert_eq!(began.elapsed(), patience);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_restarted_in_the_middle_of_a_call_is_asked_again_at_once_and_once_only() {
    let stage = Stage::new();
    *stage.plugin.restarted_in.lock().expect("no panic") = Some(stage.csi.clone());
    let began = Instant::now();
    stage.plugin.fail("publish", ErrorKind::Retryable);
    stage.mount("a1", "v1", false).await.expect("mounted");
    stage.plugin.fail("unpublish", ErrorKind::Retryable);
    stage.unmount("a1").await;
    assert_eq!(stage.plugin.counts(), [1, 2, 2, 1]);
    let mut print = stage.csi.print();
    for (n_failures, n_asked) in [(1, 2), (2, 4)] {
        (0..n_failures).for_each(|_| stage.plugin.fail("attach", ErrorKind::Retryable));
        let name = format!("r{n_failures}");
        stage.csi.take_requests(&[(name.clone(), request(CsiCall::ControllerPublish))].into());
        let answered = print.wait_for(|print| print.answers.contains_key(&name)).await.expect("an answer");
        let is_told = answered.answers[&name].retryable;
        assert_eq!((is_told, stage.plugin.n("attach")), (n_failures > 1, n_asked));
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// Kills and slow starts of a driver end no hand-over of a volume, as long as they are over in time.
#[tokio::test(start_paused = true)]
async fn a_mount_waits_for_a_driver_that_dies_again_and_again_and_comes_back_late() {
    let mut stage = Stage::new();
    *stage.plugin.restarted_in.lock().expect("no panic") = Some(stage.csi.clone());
    for _ in 0..4 {
        stage.plugin.fail("publish", ErrorKind::Unreachable);
        stage.plugin.fail("publish", ErrorKind::Retryable);
    }
    stage.set_healthy(false);
    let began = Instant::now();
    let late = async {
        tokio::time::sleep(Duration::from_secs(200)).await;
        stage.set_healthy(true);
    };
    let (mounted, ()) = tokio::join!(stage.mount("a1", "v1", false), late);
    mounted.expect("mounted");
    assert_eq!((stage.plugin.counts(), began.elapsed().as_secs()), ([1, 9, 0, 0], 200));
    let told: Vec<Reason> = stage.told.take().into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(told, [Reason::MountWaiting, Reason::VolumeMounted]);
}

#[tokio::test(start_paused = true)]
async fn a_mount_does_not_wait_for_a_driver_without_end() {
    let stage = Stage::new();
    stage.set_healthy(false);
    let began = Instant::now();
    let error = stage.mount("a1", "v1", false).await.expect_err("it has waited long enough");
    assert_eq!((error.contains("plugin p has not become healthy"), began.elapsed().as_secs()), (true, 300), "{error}");
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_of_a_call_is_no_answer_of_the_driver() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("csi.sock");
    let listener = tokio::net::UnixListener::bind(&socket).expect("a socket");
    let n_calls = Arc::new(Mutex::new(0));
    let mut running = JoinSet::new();
    let seen = Arc::clone(&n_calls);
    running.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a call");
            *seen.lock().expect("no panic") += 1;
            // The greetings of HTTP/2, the call, and then the end.
            tokio::io::AsyncWriteExt::write_all(&mut stream, &[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("greeted");
            while tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await.is_ok_and(|n| n > 4000) {}
        }
    });
    let driver = SocketPlugin::new(socket, Halves { controller: true, node: true });
    let to = Attachment { volume: VolumeUse::default(), node_id: "i-1".to_owned() };
    let error = driver.attach(&to).await.expect_err("nobody answers");
    assert_eq!((error.kind, error.is_retryable()), (ErrorKind::Unreachable, true), "{error}");
    assert!(*n_calls.lock().expect("no panic") >= 4, "it is called three times more");
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_being_restarted_is_waited_for_a_while() {
    let stage = Stage::new();
    let mut print = stage.csi.print();
    let began = Instant::now();
    for (name, is_back_after) in [("r1", Some(Duration::from_secs(3))), ("r2", None)] {
        stage.set_healthy(false);
        stage.csi.take_requests(&[(name.to_owned(), request(CsiCall::ControllerPublish))].into());
        if let Some(after) = is_back_after {
            tokio::time::sleep(after).await;
            assert!(!print.borrow().answers.contains_key(name), "it waits");
            stage.set_healthy(true);
        }
        let answers =
            print.wait_for(|print| print.answers.contains_key(name)).await.expect("an answer").answers.clone();
        assert_eq!(answers[name].retryable, is_back_after.is_none(), "{answers:?}");
    }
    assert_eq!(began.elapsed(), Duration::from_secs(3 + 5));
}

#[tokio::test(start_paused = true)]
async fn a_mount_follows_its_volume_that_is_larger_and_what_is_not_mounted_need_not() {
    let stage = Stage::new();
    stage.mount("a1", "v1", false).await.expect("mounted");
    let of = |alloc_id: &str| CsiRequest { alloc_id: alloc_id.to_owned(), ..request(CsiCall::NodeExpand) };
    let mut print = stage.csi.print();
    stage.csi.take_requests(&[("r1".to_owned(), of("a1")), ("r2".to_owned(), of("a2"))].into());
    let answers = print.wait_for(|print| print.answers.len() == 2).await.expect("answers").answers.clone();
    assert!(answers.values().all(|answer| answer.error.is_empty()), "{answers:?}");
    assert_eq!(stage.plugin.n("expand_mount"), 1);
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_the_plugins_and_one_that_is_gone_is_deleted() {
    let stage = Stage::new();
    stage.plugin.fail("delete_snapshot", ErrorKind::NotFound);
    let mut print = stage.csi.print();
    let calls = [CsiCall::CreateSnapshot, CsiCall::DeleteSnapshot, CsiCall::ListSnapshots];
    stage.csi.take_requests(&calls.map(|call| (call.to_string(), request(call))).into());
    let answers = print.wait_for(|print| print.answers.len() == 3).await.expect("answers").answers.clone();
    assert!(answers.values().all(|answer| answer.error.is_empty()), "{answers:?}");
    let taken: Vec<&str> = answers["create-snapshot"].snapshots.iter().map(|one| &*one.id).collect();
    assert_eq!(taken, ["nightly-of-vol-v1"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_controller_asks_for_is_answered_once_and_the_answer_goes_with_the_request() {
    let stage = Stage::new();
    let wanted: BTreeMap<String, CsiRequest> = [
        ("r1".to_owned(), request(CsiCall::ControllerPublish)),
        ("r2".to_owned(), request(CsiCall::ControllerUnpublish)),
        ("r3".to_owned(), request(CsiCall::NodeUnpublish)),
    ]
    .into();
    stage.plugin.fail("attach", ErrorKind::Retryable);
    stage.plugin.fail("detach", ErrorKind::NotFound);
    let mut print = stage.csi.print();
    stage.csi.take_requests(&wanted);
    let answers = print.wait_for(|print| print.answers.len() == 3).await.expect("answers").answers.clone();
    assert!(answers["r1"].retryable && answers["r1"].error.contains("attach"), "{answers:?}");
    assert_eq!(answers["r2"].error, "", "what is not attached is detached");
    assert_eq!(answers["r3"].error, "", "what is not mounted is unmounted");
    // The same list again asks for nothing.
    stage.csi.take_requests(&wanted);
    assert_eq!((stage.plugin.n("attach"), stage.plugin.n("detach")), (1, 1));
    let again: BTreeMap<String, CsiRequest> = [("r4".to_owned(), request(CsiCall::ControllerPublish))].into();
    stage.csi.take_requests(&again);
    let answers = print.wait_for(|print| print.answers.contains_key("r4")).await.expect("an answer").answers.clone();
    assert_eq!(answers.keys().collect::<Vec<_>>(), ["r4"], "answers go with their requests");
    assert_eq!(answers["r4"].context["password"], "canary");
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_of_the_cluster_mounts_lies_in_the_kubelets_folder_and_ends_there() {
    let (plugin, state) = (Noted::default(), MemoryState::default());
    let first = Stage::begin(&plugin, &state);
    first.csi.drop_plugin("p", "");
    first.register();
    let path = first.csi.mount("a1", "data", &granted("v1", false)).await.expect("mounted");
    assert!(path.starts_with("/none/kubelet/plugins/drover.dev/csi/p/per-alloc/a1/v1"), "{}", path.display());
    drop(first);
    // The next life has a task that is the same driver; what is mounted stays where it is.
    let next = Stage::begin(&plugin, &state);
    assert_eq!(next.csi.mounted("a1", "data"), Some(path.clone()));
    next.register();
    next.unmount("a1").await;
    assert_eq!((plugin.counts(), plugin.disk.is_mount(&path)), ([1, 1, 1, 1], false));
    let own = next.csi.mount("a2", "data", &granted("v1", false)).await.expect("mounted");
    assert!(!own.starts_with("/csi/p"), "the cluster's is used first: {}", own.display());
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_of_the_cluster_mounts_where_nobody_sees_it_is_not_given_to_a_task() {
    let stage = Stage::new();
    stage.csi.drop_plugin("p", "");
    let hidden = Noted { disk: MemoryDisk::default(), ..stage.plugin.clone() };
    let info = CsiInfo { source: PluginSource::Kubelet, node: true, healthy: true, ..CsiInfo::default() };
    stage.csi.put_plugin("p", "/reg.sock", Instance { plugin: Arc::new(hidden), info, facts: facts() });
    let error = stage.mount("a1", "v1", false).await.expect_err("refused");
    assert!(error.contains("mountPropagation Bidirectional"), "{error}");
    stage.unmount("a1").await;
    assert_eq!(stage.plugin.counts(), [1, 1, 1, 1], "it is taken back");
}

#[tokio::test(start_paused = true)]
async fn the_clusters_driver_hides_a_task_and_of_two_of_the_clusters_one_that_works_counts() {
    let stage = Stage::new();
    let print = stage.csi.print();
    let said = || print.borrow().plugins.get("p").map(|info| (info.source, info.healthy));
    assert_eq!(said(), Some((PluginSource::Job, true)));
    stage.register();
    assert_eq!(said(), Some((PluginSource::Kubelet, true)), "a task never takes the name of one of the cluster");
    stage.set_healthy(false);
    assert_eq!(said(), Some((PluginSource::Kubelet, true)));
    stage.csi.drop_plugin("p", "");
    assert_eq!(said(), Some((PluginSource::Kubelet, true)));
    let info = CsiInfo { source: PluginSource::Kubelet, node: true, ..CsiInfo::default() };
    let before = Instance { plugin: Arc::new(stage.plugin.clone()), info, facts: facts() };
    stage.csi.put_plugin("p", "/earlier.sock", before);
    assert_eq!(said(), Some((PluginSource::Kubelet, true)));
    stage.mount("a1", "v1", false).await.expect("by the one that works");
    stage.csi.drop_plugin("p", "/reg.sock");
    assert_eq!(said(), Some((PluginSource::Kubelet, false)));
    stage.csi.drop_plugin("p", "/earlier.sock");
    assert_eq!(said(), None);
}
