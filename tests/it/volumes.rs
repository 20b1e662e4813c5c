//! Volumes on a real API server, with a real driver that makes real mounts: `examples/csi-hostdir`, run by drover as a
//! job.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use drover_api::allocation::{ClientStatus, TaskEventType};
use drover_api::csi_volume::{Claim, ClaimState, VolumePhase};
use drover_api::{Allocation, CSIVolume, ClientNode};
use drover_testkit::control_plane::{AuditEvent, User};
use drover_testkit::process::{ProcessId, Signal};
use drover_testkit::progress::{Progress, print_note};
use kube::Api;
use serde_json::{Value, json};

use crate::agent::events;
use crate::cli::drover;
use crate::cluster::{Cluster, LONG, Process, Running, Settings, client_status, mounts_below};
use crate::metrics::scrape;

/// As the audit log calls Leases.
const LEASES: &str = "leases.coordination.k8s.io";

/// The driver, built once for all tests.
pub(crate) fn driver() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| drover_testkit::csi_sanity::build_driver(&Progress::silent()).expect("csi-hostdir")).clone()
}

/// A cluster with the driver on its nodes.
pub(crate) struct Disks {
    // Dropped in this order: drover first, then what it talks to.
    pub(crate) controller: Option<Process>,
    pub(crate) agents: BTreeMap<String, Process>,
    pub(crate) cluster: Cluster,
}

impl Disks {
    pub(crate) async fn start(name: &str, nodes: &[&str]) -> Self {
        Self::start_with(name, nodes, Cluster::controller).await
    }

    async fn start_with(name: &str, nodes: &[&str], controller: impl FnOnce(&Cluster) -> Process) -> Self {
        let cluster = Cluster::start(name, Settings::default()).await;
        let controller = controller(&cluster);
        Self::on(cluster, controller, nodes, &[]).await
    }

    /// Adds nodes with the driver, which gets these arguments more.
    pub(crate) async fn on(cluster: Cluster, controller: Process, nodes: &[&str], driver: &[String]) -> Self {
        let mut agents = BTreeMap::new();
        for node in nodes {
            agents.insert((*node).to_owned(), cluster.agent(node).await);
        }
        let disks = Self { controller: Some(controller), agents, cluster };
        disks.cluster.namespace("shop").await;
        disks.cluster.apply("shop", &disks.plugin_job(driver));
        disks
    }

    pub(crate) fn plugin_job(&self, more: &[String]) -> Value {
        plugin_job(&self.cluster, more)
    }

    /// A volume that exists at the driver.
    pub(crate) fn make_at_driver(&self, name: &str) {
        make_at_driver(&self.cluster, name);
    }

    /// A volume that exists at the driver and in the cluster.
    pub(crate) fn volume(&self, name: &str, access_mode: &str) {
        self.make_at_driver(name);
        self.cluster.apply("shop", &made_volume(name, access_mode));
    }

    pub(crate) async fn stored(&self, name: &str) -> CSIVolume {
        let api: Api<CSIVolume> = Api::namespaced(self.cluster.client.clone(), "shop");
        api.get(name).await.expect("a volume")
    }

    /// Waits until a volume looks like this.
    pub(crate) async fn until(&self, name: &str, what: &str, seen: impl Fn(&CSIVolume) -> bool) -> CSIVolume {
        self.cluster.eventually(&format!("volume {name} is {what}"), async || seen(&self.stored(name).await)).await;
        self.stored(name).await
    }

    /// Ends the driver as a crash would, once it is there.
    async fn kill_driver(&self) {
        self.cluster.eventually("the driver runs", async || self.drivers().len() == 1).await;
        self.drivers()[0].signal(Signal::KILL).expect("killed");
    }

    /// The processes of the drivers of this cluster.
    fn drivers(&self) -> Vec<ProcessId> {
        let data = self.cluster.path("disks").to_string_lossy().into_owned();
        ProcessId::all().filter(|id| id.words().contains(&data)).collect()
    }

    /// Volumes of this cluster are mounted nowhere.
    fn nothing_is_mounted(&self) {
        let left = mounts_below(&self.cluster.path("n-1/state/csi"));
        assert!(left.is_empty(), "{left:?}");
    }

    /// Makes calls of the driver fail, as its README says; none when the text is empty.
    pub(crate) fn fail(&self, faults: &str) {
        std::fs::write(self.cluster.path("faults"), faults).expect("faults");
    }

    pub(crate) async fn is_free(&self, name: &str) -> CSIVolume {
        self.until(name, "free", |it| it.status.as_ref().is_some_and(|it| it.claims.is_empty())).await
    }

    /// How often a call of the driver succeeded.
    pub(crate) fn n_done(&self, call: &str) -> usize {
        self.calls(&format!("{call} ")).iter().filter(|line| line.ends_with(" ok")).count()
    }

    pub(crate) fn calls(&self, prefix: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.cluster.path("calls")).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect()
    }

    /// What tasks have written into a volume.
    pub(crate) fn written(&self, name: &str) -> String {
        std::fs::read_to_string(self.cluster.path(&format!("disks/volumes/vol-{name}/data/log"))).unwrap_or_default()
    }

    /// What the driver's task says of the starts of its runs and of how they fare.
    async fn said_of_plugin(&self) -> Vec<TaskEventType> {
        self.cluster.eventually("the driver runs", async || self.running("hostdir", 0).await.is_some()).await;
        let driver = self.running("hostdir", 0).await.expect("the driver runs");
        let told = [TaskEventType::Started, TaskEventType::PluginHealthy, TaskEventType::PluginUnhealthy];
        events(&driver, "driver").into_iter().filter(|said| told.contains(said)).collect()
    }

    /// The allocation of a job that runs, in this version.
    pub(crate) async fn running(&self, job: &str, version: i64) -> Option<Allocation> {
        let allocs = self.cluster.allocs("shop").await;
        allocs.into_iter().find(|alloc| {
            alloc.spec.job_name == job
                && alloc.spec.job_version == version
                && client_status(alloc) == ClientStatus::Running
        })
    }
}

/// A volume that exists at the driver.
/// A job that runs the driver on each node; all share one directory.
pub(crate) fn plugin_job(cluster: &Cluster, more: &[String]) -> Value {
    let text = |path: &str| cluster.path(path).to_string_lossy().into_owned();
    let args = [
        "--data-dir".to_owned(),
        text("disks"),
        "--node-id".to_owned(),
        "i-${node.unique.name}".to_owned(),
        "--calls".to_owned(),
        text("calls"),
        "--faults".to_owned(),
        text("faults"),
    ];
    let args: Vec<String> = args.into_iter().chain(more.iter().cloned()).collect();
    let task = json!({
        "name": "driver", "driver": "raw_exec", "csiPlugin": { "id": "hostdir", "type": "monolith" },
        "config": { "command": driver(), "args": args }, "resources": { "cpu": 10, "memoryMB": 16 },
    });
    json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "hostdir" },
        "spec": { "type": "system", "groups": [{
            "name": "plugin", "ephemeralDisk": { "sizeMB": 110 }, "tasks": [task],
            "restart": { "attempts": 100, "interval": "1h", "delay": "50ms", "mode": "delay" },
        }] },
    })
}

/// A volume that exists at the driver.
pub(crate) fn make_at_driver(cluster: &Cluster, name: &str) {
    let folder = cluster.path(&format!("disks/volumes/vol-{name}"));
    std::fs::create_dir_all(folder.join("attached")).expect("a directory");
    std::fs::create_dir_all(folder.join("data")).expect("a directory");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.join("data"), open).expect("permissions");
    let known = json!({ "id": format!("vol-{name}"), "name": name, "capacity": 1 << 30, "source": null });
    std::fs::write(folder.join("volume.json"), known.to_string()).expect("a file");
}

pub(crate) fn made_volume(name: &str, access_mode: &str) -> Value {
    json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": name },
        "spec": { "pluginID": "hostdir", "externalID": format!("vol-{name}"),
                  "capabilities": [{ "accessMode": access_mode, "attachmentMode": "file-system" }] },
    })
}

pub(crate) fn claims(volume: &CSIVolume) -> Vec<Claim> {
    volume.status.as_ref().map(|status| status.claims.clone()).unwrap_or_default()
}

/// A job that appends to a volume, and holds a lock in it while it runs.
pub(crate) fn ledger(volume: &str, release: u32) -> Value {
    let script = format!(
        "if ! mkdir /data/lock; then echo two >> /data/log; fi; echo began {release} >> /data/log; \
         trap 'echo ended {release} >> /data/log; rmdir /data/lock; exit 0' TERM; while :; do sleep 0.05; done"
    );
    json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "ledger" },
        "spec": { "groups": [{
            "name": "db", "ephemeralDisk": { "sizeMB": 110 },
            "volumes": [{ "name": "data", "type": "csi", "source": volume, "accessMode": "single-node-writer",
                          "attachmentMode": "file-system" }],
            "update": { "minHealthyTime": "0s" },
            "tasks": [{ "name": "append", "driver": "exec", "config": { "command": "/bin/sh", "args": ["-c", script] },
                        "user": "nobody", "killSignal": "SIGTERM", "killTimeout": "5s",
                        "volumeMounts": [{ "volume": "data", "destination": "/data" }],
                        "resources": { "cpu": 10, "memoryMB": 32 } }],
        }] },
    })
}

#[tokio::test]
async fn a_writer_claims_mounts_writes_and_hands_over_to_the_next_version() {
    let disks = Disks::start("vol-hand-over", &["n-1"]).await;
    disks.volume("v1", "single-node-writer");
    let ready = disks.until("v1", "schedulable", |it| it.status.as_ref().is_some_and(|it| it.schedulable)).await;
    let status = ready.status.expect("a status");
    assert_eq!(
        (status.phase, status.controller_required, status.provider.as_str()),
        (VolumePhase::Available, true, "hostdir.csi.drover.dev")
    );
    disks.cluster.apply("shop", &ledger("v1", 1));
    disks.cluster.eventually("version 0 runs", async || disks.running("ledger", 0).await.is_some()).await;
    let claimed = disks.stored("v1").await.status.expect("a status");
    let claim = &claimed.claims[0];
    assert_eq!((claimed.claims.len(), claim.state, &*claim.node_name), (1, ClaimState::Taken, "n-1"));
    assert_eq!(claim.external_node_id, "i-n-1");
    // The driver checks that it gets back what it has answered.
    assert_eq!(claim.publish_context.keys().collect::<Vec<_>>(), ["drover.dev/sealed"]);
    assert_eq!(claimed.columns.claims, "0/1/0");
    let shown = disks.cluster.kubectl(&["get", "csivol", "v1", "-n", "shop"]).expect("a table");
    assert!(shown.contains("single-node-writer") && shown.contains("claimed"), "{shown}");

    disks.cluster.apply("shop", &ledger("v1", 2));
    disks.cluster.eventually("version 1 runs", async || disks.running("ledger", 1).await.is_some()).await;
    disks.cluster.eventually("it has written", async || disks.written("v1").contains("began 2")).await;
    assert_eq!(disks.written("v1"), "began 1\nended 1\nbegan 2\n", "one writer after the other");
    assert_eq!(disks.stored("v1").await.status.expect("a status").claims.len(), 1);

    disks.cluster.kubectl(&["delete", "djob", "ledger", "-n", "shop"]).expect("deleted");
    let free = disks.until("v1", "free", |it| it.status.as_ref().is_some_and(|it| it.claims.is_empty())).await;
    let status = free.status.expect("a status");
    assert_eq!((status.phase, status.access_mode), (VolumePhase::Available, None));
    let n = |call: &str| disks.calls(call).len();
    assert_eq!((n("NodePublishVolume "), n("NodeUnpublishVolume ")), (2, 2), "{:?}", disks.calls(""));
    assert_eq!((n("ControllerPublishVolume "), n("ControllerUnpublishVolume ")), (2, 2), "{:?}", disks.calls(""));
    disks.nothing_is_mounted();
    assert_eq!(disks.said_of_plugin().await, [TaskEventType::Started, TaskEventType::PluginHealthy]);
}

/// A job that counts on in a file, and says when it began.
fn counter(release: i64) -> Value {
    let script = format!(
        "mkdir /data/lock || {{ echo two >> /data/log; exit 1; }}; touch /data/log; n=$(wc -l < /data/log); \
         trap 'rmdir /data/lock; exit 0' TERM; date +%s%N >> /data/starts; \
         while :; do n=$((n+1)); echo {release} $n >> /data/log; sync /data/log; sleep 0.02; done"
    );
    let mut job = ledger("v1", 0);
    job["spec"]["groups"][0]["tasks"][0]["config"]["args"] = json!(["-c", script]);
    job
}

/// When the allocation of a version took its claim, and when its task began to write; seconds between them.
async fn began_after(disks: &Disks, version: i64) -> f64 {
    let alloc = disks.running("ledger", version).await.expect("it runs");
    let claims = claims(&disks.stored("v1").await);
    let claim = claims.iter().find(|claim| Some(&claim.alloc_id) == alloc.metadata.uid.as_ref()).expect("its claim");
    let taken = claim.since.expect("a time").as_nanosecond();
    let starts = std::fs::read_to_string(disks.cluster.path("disks/volumes/vol-v1/data/starts")).expect("starts");
    let began: i128 = starts.lines().last().and_then(|line| line.parse().ok()).expect("a time");
    Duration::from_nanos(u64::try_from(began - taken).expect("it began afterwards")).as_secs_f64()
}

#[tokio::test]
async fn no_record_is_lost_and_no_two_write_while_agent_controller_and_driver_are_killed() {
    const VERSIONS: i64 = 20;
    // A container that is restarted in its pod is the same candidate as before, and leads at once.
    let in_pod = |cluster: &Cluster| cluster.controller_by("controller", &cluster.plane.kubeconfig(User::Admin), "");
    let mut disks = Disks::start_with("vol-kills", &["n-1"], in_pod).await;
    disks.volume("v1", "single-node-writer");
    let mut delays = Vec::new();
    for version in 0..VERSIONS {
        disks.cluster.apply("shop", &counter(version));
        // Whoever is killed is in the middle of the hand-over.
        match version % 3 {
            1 => {
                disks.agents.remove("n-1").expect("it runs").abandon();
                disks.agents.insert("n-1".to_owned(), disks.cluster.agent_unready("n-1"));
            }
            2 => {
                disks.controller.take().expect("it runs").kill();
                disks.controller = Some(in_pod(&disks.cluster));
            }
            _ => disks.kill_driver().await,
        }
        let what = format!("version {version} runs");
        disks.cluster.eventually(&what, async || disks.running("ledger", version).await.is_some()).await;
        let record = format!("{version} ");
        let has_written = || disks.written("v1").lines().any(|line| line.starts_with(&record));
        disks.cluster.eventually("it has written", async || has_written()).await;
        delays.push(began_after(&disks, version).await);
    }
    disks.cluster.kubectl(&["delete", "djob", "ledger", "-n", "shop"]).expect("deleted");
    disks.is_free("v1").await;
    let longest = delays.iter().copied().fold(0.0, f64::max);
    print_note(&format!("{VERSIONS} versions began within {longest:.2} s of the release before them: {delays:.2?}"));
    let written = disks.written("v1");
    let records: Vec<(i64, usize)> = written
        .lines()
        .map(|line| line.split_once(' ').and_then(|(of, n)| of.parse().ok().zip(n.parse().ok())).expect(line))
        .collect();
    assert!(records.iter().zip(1..).all(|((_, n), wanted)| *n == wanted), "a record is lost, or two have counted");
    assert!(records.is_sorted_by_key(|(version, _)| *version), "one writer after the other");
    let seen: BTreeSet<i64> = records.iter().map(|(version, _)| *version).collect();
    assert_eq!(seen, (0..VERSIONS).collect());
    // What a killed agent has left is found, not mounted again (V-075). Where the driver, the agent that asks it or
    // the controller that asks the agent was killed before the answer was written down, the same is asked again, once,
    // and nothing else in between.
    for (done, undone) in
        [("NodePublishVolume", "NodeUnpublishVolume"), ("ControllerPublishVolume", "ControllerUnpublishVolume")]
    {
        let calls = disks.calls("");
        let both: Vec<&str> = calls
            .iter()
            .filter(|call| call.ends_with(" ok"))
            .filter_map(|call| [done, undone].into_iter().find(|name| call.starts_with(*name)))
            .collect();
        let turns: Vec<&[&str]> = both.chunk_by(|one, next| one == next).collect();
        for (turn, repeated) in turns.iter().enumerate().filter(|(_, turn)| turn.len() > 1) {
            let (version, call) = (turn.div_ceil(2), repeated[0]);
            let can_be_lost = match version % 3 {
                1 => call != "NodePublishVolume",
                2 => call.starts_with("Controller"),
                _ => true,
            };
            let by_one_kill = can_be_lost && repeated.len() == 2;
            assert!(by_one_kill, "{call} was repeated for version {version} by none that was killed: {calls:?}");
        }
        let turns: Vec<&str> = turns.iter().map(|turn| turn[0]).collect();
        let wanted: Vec<&str> = (0..VERSIONS).flat_map(|_| [done, undone]).collect();
        assert_eq!(turns, wanted, "{calls:?}");
    }
    disks.nothing_is_mounted();
    // An agent that finds the driver again does not say again that it is well.
    let said = disks.said_of_plugin().await;
    assert!(said.windows(2).all(|two| two[0] != two[1]), "{said:?}");
}

#[test]
fn the_driver_passes_the_csi_projects_own_tests() {
    let sanity = drover_testkit::csi_sanity::find_or_build(&Progress::silent()).expect("csi-sanity");
    let dir = tempfile::Builder::new().prefix("csi-sanity").tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let endpoint = format!("unix://{}", path("csi.sock"));
    let args = ["--endpoint", &endpoint, "--data-dir", &path("data"), "--node-id", "n-1"];
    let _driver = Running(Command::new(driver()).args(args).spawn().expect("the driver"));
    // It waits for the driver's socket.
    let output = Command::new(sanity)
        .args(["--csi.endpoint", &endpoint, "--csi.mountdir", &path("mount"), "--csi.stagingdir", &path("stage")])
        .args(["--ginkgo.no-color", "--ginkgo.json-report", &path("report.json")])
        .current_dir(dir.path())
        .output()
        .expect("csi-sanity");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let report: Value =
        serde_json::from_slice(&std::fs::read(path("report.json")).expect("a report")).expect("a report");
    let specs = report[0]["SpecReports"].as_array().expect("specs");
    let of = |state: &str| specs.iter().filter(|spec| spec["State"] == state).collect::<Vec<_>>();
    assert!(of("passed").len() >= 76, "{} pass", of("passed").len());
    // What the driver does not offer cannot be tried.
    let not_offered =
        ["not supported", "does not have single node multi writer", "testnodevolumeattachlimit not enabled"];
    for skipped in of("skipped") {
        let why = skipped["Failure"]["Message"].as_str().unwrap_or_default();
        assert!(not_offered.iter().any(|known| why.contains(known)), "{}: {why}", skipped["LeafNodeText"]);
    }
}

/// V-017
#[tokio::test]
async fn a_release_that_is_stuck_is_touched_and_nothing_of_its_claims_changes() {
    let gc = "gc: {claimInterval: 1s, claimThreshold: 1s}\n";
    let admin = |cluster: &Cluster| cluster.controller_by("controller", &cluster.plane.kubeconfig(User::Admin), gc);
    let disks = Disks::start_with("vol-gc", &["n-1"], admin).await;
    disks.volume("v1", "single-node-writer");
    disks.cluster.apply("shop", &ledger("v1", 1));
    disks.cluster.eventually("it runs", async || disks.running("ledger", 0).await.is_some()).await;
    let idle = disks.stored("v1").await;
    disks.fail("ControllerUnpublishVolume Internal");
    disks.cluster.kubectl(&["delete", "djob", "ledger", "-n", "shop", "--wait=false"]).expect("deleted");
    let is_told = |it: &CSIVolume| matches!(&claims(it)[..], [claim] if claim.error.contains("is made to fail"));
    let stuck = disks.until("v1", "stuck", is_told).await;
    let at = |volume: &CSIVolume| volume.status.as_ref().and_then(|status| status.modified_at);
    let touched = disks.until("v1", "touched", |it| at(it) > at(&stuck)).await;
    assert_eq!((claims(&touched), claims(&touched)[0].state), (claims(&stuck), ClaimState::NodeDetached));
    assert_ne!(touched.metadata.resource_version, stuck.metadata.resource_version);
    assert!(at(&stuck) > at(&idle), "it was written when its release began");
    disks.fail("");
    disks.is_free("v1").await;
    assert_eq!(disks.n_done("NodeUnpublishVolume"), 1, "{:?}", disks.calls(""));
}

/// V-026
#[tokio::test]
async fn a_leader_that_stood_still_writes_nothing_and_the_next_one_goes_on_where_it_was() {
    let as_controller = |cluster: &Cluster| {
        cluster.empower(User::Controller);
        cluster.controller_by("first", &cluster.plane.kubeconfig(User::Controller), "")
    };
    let disks = Disks::start_with("vol-deposed", &["n-1"], as_controller).await;
    disks.volume("v1", "single-node-writer");
    disks.cluster.apply("shop", &ledger("v1", 1));
    disks.cluster.eventually("it runs", async || disks.running("ledger", 0).await.is_some()).await;
    let first = disks.controller.as_ref().expect("it runs");
    disks.fail("ControllerUnpublishVolume Internal");
    disks.cluster.kubectl(&["delete", "djob", "ledger", "-n", "shop", "--wait=false"]).expect("deleted");
    // Nothing that it writes is under way when it stands still: it waits until it tries again.
    let has_failed = |it: &CSIVolume| matches!(&claims(it)[..], [claim] if claim.state == ClaimState::NodeDetached && !claim.error.is_empty());
    disks.until("v1", "not detached", has_failed).await;
    let is_quiet = async || {
        let node = Api::<ClientNode>::all(disks.cluster.client.clone()).get("n-1").await.expect("a node");
        let events = disks.cluster.kubectl(&["get", "events", "-n", "shop"]).expect("events");
        node.status.is_some_and(|status| status.csi_requests.is_empty()) && events.contains("DetachFailed")
    };
    disks.cluster.eventually("what failed is told", is_quiet).await;
    first.freeze();
    let _second = disks.cluster.controller_by("second", &disks.cluster.plane.kubeconfig(User::Admin), "");
    disks.cluster.eventually("another one leads", async || disks.cluster.log("second").contains("leading")).await;
    disks.fail("");
    disks.is_free("v1").await;
    assert_eq!((disks.n_done("NodeUnpublishVolume"), disks.n_done("ControllerUnpublishVolume")), (1, 1));
    let mut audit = disks.cluster.plane.audit_log().expect("an audit log");
    let n_deposed = || disks.cluster.log("first").matches("following").count();
    let before = n_deposed();
    first.thaw();
    disks.cluster.eventually("it has noticed", async || n_deposed() > before).await;
    let written = audit.read_new().expect("an audit log");
    let is_by_first = |event: &&AuditEvent| event.user == User::Controller.name();
    let others: Vec<&AuditEvent> = written.iter().filter(is_by_first).filter(|it| it.resource != LEASES).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(written.iter().filter(is_by_first).all(|event| event.code == 409), "{written:?}");
}

/// V-027
#[tokio::test]
async fn a_leader_that_leads_again_has_the_credentials_of_that_time() {
    let kubeconfig = |cluster: &Cluster, user: User| {
        let path = cluster.path("leader.kubeconfig");
        std::fs::copy(cluster.plane.kubeconfig(user), &path).expect("a kubeconfig");
        path
    };
    let as_controller = |cluster: &Cluster| {
        cluster.empower(User::Controller);
        cluster.empower(User::Developer);
        cluster.controller_by("controller", &kubeconfig(cluster, User::Controller), "")
    };
    let disks = Disks::start_with("vol-credentials", &["n-1"], as_controller).await;
    disks.volume("v1", "single-node-writer");
    disks.cluster.apply("shop", &ledger("v1", 1));
    disks.cluster.eventually("it runs", async || disks.running("ledger", 0).await.is_some()).await;
    kubeconfig(&disks.cluster, User::Developer);
    let (old, new) = (User::Controller.name(), User::Developer.name());
    let audit = RefCell::new(disks.cluster.plane.audit_log().expect("an audit log"));
    disks.cluster.kubectl(&["delete", "clusterrolebinding", old]).expect("taken back");
    let is_taken = |event: &AuditEvent| event.user == new && event.resource == LEASES && event.code == 200;
    let has_taken = || audit.borrow_mut().read_new().expect("an audit log").iter().any(is_taken);
    disks.cluster.eventually("it leads again", async || has_taken()).await;
    let mut audit = disks.cluster.plane.audit_log().expect("an audit log");
    disks.cluster.kubectl(&["delete", "djob", "ledger", "-n", "shop"]).expect("deleted");
    disks.is_free("v1").await;
    let written = audit.read_new().expect("an audit log");
    let by = |user: &str, resource: &str| {
        written.iter().filter(|event| event.user == user && event.resource == resource).count()
    };
    // What it tells of a volume, and what it asks of an agent.
    for resource in ["csivolumes.drover.dev/status", "clientnodes.drover.dev/status"] {
        assert!(by(new, resource) > 0, "{resource}: {written:?}");
    }
    assert!(written.iter().all(|event| event.user != old), "{written:?}");
    assert_eq!((disks.n_done("NodeUnpublishVolume"), disks.n_done("ControllerUnpublishVolume")), (1, 1));
}

/// What nobody may read.
const CANARY: &str = "canary-6f1c0a9e";
/// The same after it was changed.
const NEXT_CANARY: &str = "canary-b2d47e51";

/// A volume with credentials.
fn secret_volume(name: &str, external_id: Option<&str>, secret: &str) -> Value {
    let mut volume = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": name },
        "spec": { "pluginID": "hostdir", "secretsRef": { "name": secret },
                  "mountOptions": { "mountFlags": ["password=$(password)"] },
                  "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] },
    });
    if let Some(id) = external_id {
        volume["spec"]["externalID"] = json!(id);
    }
    volume
}

/// A volume that its provider makes, and for which nothing secret is told.
fn volume_without_secret(name: &str) -> Value {
    let mut volume = secret_volume(name, None, "none");
    volume["spec"]["secretsRef"] = Value::Null;
    volume["spec"]["mountOptions"] = Value::Null;
    volume
}

/// The files below a folder that hold a text.
fn holding(folder: &Path, text: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a list") {
        let path = entry.expect("an entry").path();
        let kind = std::fs::symlink_metadata(&path).expect("a file").file_type();
        if kind.is_dir() {
            holding(&path, text, found);
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).expect("a file");
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path);
            }
        }
    }
}

impl Disks {
    /// Writes each state of the objects of a kind into a file, for as long as the value lives.
    fn record(&self, kind: &str) -> Running {
        let file = std::fs::File::create(self.cluster.path(&format!("seen-{kind}"))).expect("a file");
        let command = Command::new(self.cluster.plane.binaries().kubectl())
            .arg("--kubeconfig")
            .arg(self.cluster.plane.kubeconfig(User::Admin))
            .args(["get", kind, "-A", "--watch", "-o", "json", "--show-managed-fields"])
            .stdin(Stdio::null())
            .stdout(file)
            .spawn();
        Running(command.expect("kubectl"))
    }

    /// What the driver must be told from now on.
    fn set_password(&self, password: &str) {
        std::fs::create_dir_all(self.cluster.path("private")).expect("a folder");
        std::fs::write(self.cluster.path("private/password"), password).expect("a password");
    }

    fn make_secret(&self, name: &str, password: &str) {
        let literal = format!("--from-literal=password={password}");
        self.cluster.kubectl(&["create", "secret", "generic", name, "-n", "shop", &literal]).expect("a Secret");
    }

    /// The canaries are nowhere but with etcd, which holds the Secrets, and with the provider.
    fn nobody_has_seen_the_canaries(&self) {
        for canary in [CANARY, NEXT_CANARY] {
            let mut found = Vec::new();
            holding(&self.cluster.path(""), canary, &mut found);
            let is_secret_place =
                |path: &Path| ["plane/etcd", "private"].iter().any(|place| path.starts_with(self.cluster.path(place)));
            assert!(found.iter().any(|path| is_secret_place(path)), "the search finds nothing");
            found.retain(|path| !is_secret_place(path));
            assert!(found.is_empty(), "{canary}: {found:?}");
        }
    }
}

/// V-062, X-037: also what a driver repeats of it in its errors is not shown, and a new Secret replaces the old
/// one. The publish context and a mount flag hold it too, and neither is readable in any object.
#[tokio::test]
async fn must_survive_x_037_a_secret_is_told_to_the_driver_and_to_nobody_else() {
    let cluster = Cluster::start("vol-canary", Settings { lease: 15, ..Settings::default() }).await;
    let (controller, controller_at) = cluster.scraped_controller().await;
    let (agent, agent_at) = cluster.scraped_agent("n-1").await;
    let mut disks =
        Disks { controller: Some(controller), agents: BTreeMap::from([("n-1".to_owned(), agent)]), cluster };
    disks.cluster.namespace("shop").await;
    let kinds = ["csivol", "cnode", "alloc", "djob", "ddep", "djv", "events", "cm"];
    let _recorded = kinds.map(|kind| disks.record(kind));
    disks.set_password(CANARY);
    disks.make_secret("login", CANARY);
    let password = disks.cluster.path("private/password").to_string_lossy().into_owned();
    disks.cluster.apply("shop", &disks.plugin_job(&["--password-file".to_owned(), password]));
    // Each call with secrets fails once, and repeats them in its error.
    let calls = [
        "CreateVolume",
        "ValidateVolumeCapabilities",
        "ControllerPublishVolume",
        "NodeStageVolume",
        "NodePublishVolume",
        "ControllerUnpublishVolume",
        "DeleteVolume",
    ];
    let tells = calls.map(|call| format!("{call} tell 1\n")).concat();
    disks.fail(&tells);
    disks.cluster.apply("shop", &secret_volume("made", None, "login"));
    disks.until("made", "made", |it| it.status.as_ref().is_some_and(|it| it.schedulable)).await;
    // Two volumes never name one handle.
    disks.make_at_driver("known");
    disks.cluster.apply("shop", &secret_volume("known", Some("vol-known"), "login"));
    disks.until("known", "confirmed", |it| it.status.as_ref().is_some_and(|it| it.schedulable)).await;
    let mut job = ledger("made", 1);
    let quick = json!({ "delay": "5s", "delayFunction": "constant", "unlimited": true });
    job["spec"]["groups"][0]["reschedule"] = quick;
    disks.cluster.apply("shop", &job);
    // Three of its allocations fail first, each at another call.
    disks.cluster.eventually("it runs", async || disks.running("ledger", 0).await.is_some()).await;

    // The agent ends while it has the Secret in its hands, as a crash with a message would end it.
    disks.fail(&format!("{tells}NodePublishVolume hang 1\n"));
    let n_asked = || disks.calls("NodePublishVolume ").iter().filter(|line| line.ends_with(" hang")).count();
    disks.cluster.apply("shop", &ledger("made", 2));
    disks.cluster.eventually("it publishes", async || n_asked() == 1).await;
    std::fs::write(disks.cluster.path("metrics of the agent"), scrape(agent_at).await).expect("a file");
    disks.agents.remove("n-1").expect("it runs").abort();
    disks.agents.insert("n-1".to_owned(), disks.cluster.agent_unready("n-1"));
    disks.cluster.eventually("it runs again", async || disks.running("ledger", 1).await.is_some()).await;

    // The provider's password is changed, and with it the Secret.
    disks.set_password(NEXT_CANARY);
    disks.make_secret("next-login", NEXT_CANARY);
    let change = r#"{"spec":{"secretsRef":{"name":"next-login"}}}"#;
    disks.cluster.kubectl(&["patch", "csivol", "made", "-n", "shop", "--type=merge", "-p", change]).expect("patched");
    let is_confirmed = |it: &CSIVolume| {
        it.status.as_ref().is_some_and(|status| Some(status.validated_generation) == it.metadata.generation)
    };
    disks.until("made", "confirmed with the new Secret", is_confirmed).await;
    disks.cluster.kubectl(&["delete", "djob", "ledger", "-n", "shop"]).expect("deleted");
    disks.is_free("made").await;
    let shown = disks.cluster.kubectl(&["get", "csivol,cnode,alloc,events", "-A", "-o", "yaml"]).expect("objects");
    std::fs::write(disks.cluster.path("shown"), shown).expect("a file");
    let annotate = ["annotate", "csivol", "made", "-n", "shop", "drover.dev/delete-data=true"];
    disks.cluster.kubectl(&annotate).expect("annotated");
    // Its driver fails once more, and is asked again after a while: how long that takes is not what is tried here.
    let wait = format!("--timeout={}s", LONG.as_secs());
    disks.cluster.kubectl(&["delete", "csivol", "made", "-n", "shop", &wait]).expect("deleted");

    let told: Vec<String> = disks.calls("").into_iter().filter(|line| line.ends_with(" tell")).collect();
    assert_eq!(told.len(), calls.len(), "{told:?}");
    for call in calls {
        assert!(told.iter().any(|line| line.starts_with(&format!("{call} "))), "{call}: {told:?}");
        assert!(disks.n_done(call) > 0, "{call}: {:?}", disks.calls(call));
    }
    std::fs::write(disks.cluster.path("metrics of the controller"), scrape(controller_at).await).expect("a file");
    assert!(disks.cluster.log("controller").contains("[REDACTED]"), "an error that was cleaned is shown");
    disks.nobody_has_seen_the_canaries();
}

/// A volume's life by the CLI: its provider makes it, takes snapshots of it, makes another one from one of them, and
/// deletes both.
#[tokio::test]
async fn a_volume_is_made_copied_and_deleted_and_a_call_that_fails_is_told_once() {
    let disks = Disks::start("vol-snapshots", &["n-1"]).await;
    let kubeconfig = disks.cluster.plane.kubeconfig(User::Admin).display().to_string();
    let run = |args: &[&str], stdin: &str| {
        let at = ["-n", "shop", "--kubeconfig", &kubeconfig];
        drover(&[&["volume"][..], args, &at].concat(), stdin)
    };
    let manifest = |name: &str, snapshot: &str| {
        let mut volume = volume_without_secret(name);
        volume["spec"]["snapshotID"] = json!(snapshot);
        volume.to_string()
    };
    disks.volume("known", "single-node-writer");
    disks.until("known", "schedulable", |it| it.status.as_ref().is_some_and(|it| it.schedulable)).await;
    let known = run(&["create", "-"], &made_volume("known", "single-node-writer").to_string());
    assert!(known.code == 1 && known.err.contains("drover volume register"), "{}", known.err);
    let registered =
        run(&["register", "-", "--force-conflicts"], &made_volume("known", "single-node-writer").to_string());
    assert_eq!(registered.code, 0, "{}", registered.err);

    let made = run(&["create", "-"], &manifest("v1", ""));
    assert!(made.code == 0 && made.err.contains("can be used"), "{}", made.err);
    let folder = |id: &str| disks.cluster.path(&format!("disks/volumes/{id}/data/kept"));
    let id = disks.stored("v1").await.status.expect("a status").external_id;
    std::fs::write(folder(&id), "as it was").expect("a file");

    disks.fail("CreateSnapshot Internal 1\n");
    let failed = run(&["snapshot", "create", "v1", "nightly"], "");
    assert!(failed.code == 1 && failed.err.contains("Internal"), "{}", failed.err);
    assert_eq!(disks.n_done("CreateSnapshot"), 0, "a call that failed is not made again by itself");
    let taken = run(&["snapshot", "create", "v1", "nightly"], "");
    assert_eq!(taken.code, 0, "{}", taken.err);
    let snapshot = taken.out.trim().to_owned();
    let again = run(&["snapshot", "create", "v1", "nightly"], "");
    assert_eq!(again.out.trim(), snapshot, "the same name is the same snapshot");
    let second = run(&["snapshot", "create", "v1"], "");
    let listed = run(&["snapshot", "list", "v1"], "");
    assert!(listed.out.contains(&snapshot) && listed.out.contains(second.out.trim()), "{}", listed.out);
    assert!(listed.out.contains("nightly"), "{}", listed.out);
    std::fs::write(folder(&id), "changed").expect("a file");

    let copied = run(&["create", "-"], &manifest("v2", &snapshot));
    assert_eq!(copied.code, 0, "{}", copied.err);
    let copy = disks.stored("v2").await.status.expect("a status").external_id;
    assert_eq!(std::fs::read_to_string(folder(&copy)).expect("a file"), "as it was");

    let gone = run(&["snapshot", "delete", "v1", &snapshot], "");
    assert_eq!(gone.code, 0, "{}", gone.err);
    let listed = run(&["snapshot", "list", "v1"], "");
    assert!(!listed.out.contains(&snapshot) && listed.out.contains(second.out.trim()), "{}", listed.out);
    let stored = disks.stored("v1").await;
    let requests: Vec<&String> = stored.metadata.annotations.iter().flatten().map(|(name, _)| name).collect();
    assert!(requests.iter().all(|name| !name.starts_with("drover.dev/")), "{requests:?}");

    let deleted = run(&["delete", "v2"], "");
    assert!(deleted.code == 0 && !folder(&copy).exists(), "{}", deleted.err);
    let of_plugin = run(&["status", "--plugin", "hostdir"], "").out;
    assert!(of_plugin.contains("v1") && !of_plugin.contains("v2"), "{of_plugin}");
    assert!(!run(&["status", "--node", "n-1"], "").out.contains("v1"), "nobody holds it there");
}

/// A deletion that waits for its next try is tried at once when an allocation of the volume goes, and is never given
/// up.
#[tokio::test]
async fn the_data_of_a_volume_are_deleted_whatever_happens_between_two_tries() {
    let disks = Disks::start("vol-delete", &["n-1"]).await;
    let mut volume = volume_without_secret("v1");
    volume["metadata"]["annotations"] = json!({ "drover.dev/delete-data": "true" });
    disks.cluster.apply("shop", &volume);
    disks.until("v1", "made", |it| it.status.as_ref().is_some_and(|it| it.schedulable)).await;
    disks.cluster.apply("shop", &ledger("v1", 1));
    disks.cluster.eventually("it runs", async || disks.running("ledger", 0).await.is_some()).await;
    let stop = ["patch", "djob", "ledger", "-n", "shop", "--type=merge", "-p", r#"{"spec":{"stop":true}}"#];
    disks.cluster.kubectl(&stop).expect("patched");
    disks.is_free("v1").await;

    disks.fail("DeleteVolume Internal 2\n");
    disks.cluster.kubectl(&["delete", "csivol", "v1", "-n", "shop", "--wait=false"]).expect("deleted");
    let n_asked = || disks.calls("DeleteVolume ").len();
    disks.cluster.eventually("its deletion has failed twice", async || n_asked() == 2).await;
    let of_job = "drover.dev/job=ledger";
    disks.cluster.kubectl(&["delete", "alloc", "-l", of_job, "-n", "shop", "--wait=false"]).expect("deleted");
    let wait = format!("--timeout={}s", LONG.as_secs());
    disks.cluster.kubectl(&["wait", "--for=delete", "csivol/v1", "-n", "shop", &wait]).expect("it goes");
    assert_eq!((n_asked(), disks.n_done("DeleteVolume")), (3, 1), "{:?}", disks.calls("DeleteVolume"));
}

/// V-066: the driver's controller makes it larger, then the node that has it mounted.
#[tokio::test]
async fn a_volume_that_is_in_use_grows_and_its_mount_with_it() {
    let disks = Disks::start("vol-grow", &["n-1"]).await;
    let mut volume = volume_without_secret("v1");
    volume["spec"]["capacity"] = json!({ "min": "1Gi", "max": "8Gi" });
    disks.cluster.apply("shop", &volume);
    let has_size = |size: u64| {
        move |it: &CSIVolume| it.status.as_ref().is_some_and(|it| it.schedulable && it.capacity == size.to_string())
    };
    disks.until("v1", "made", has_size(1 << 30)).await;
    disks.cluster.apply("shop", &ledger("v1", 1));
    disks.cluster.eventually("it runs", async || disks.running("ledger", 0).await.is_some()).await;
    // The first try of the node fails: the volume counts as larger when all of it is.
    disks.fail("NodeExpandVolume Internal 1\n");
    let change = r#"{"spec":{"capacity":{"min":"4Gi"}}}"#;
    disks.cluster.kubectl(&["patch", "csivol", "v1", "-n", "shop", "--type=merge", "-p", change]).expect("patched");
    disks.until("v1", "larger", has_size(4 << 30)).await;
    assert_eq!(
        (disks.n_done("ControllerExpandVolume"), disks.n_done("NodeExpandVolume")),
        (1, 1),
        "{:?}",
        disks.calls("")
    );
}
