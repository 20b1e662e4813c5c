//! Volumes on a real API server, with a real driver that makes real mounts: `examples/csi-hostdir`, run by drover as a job.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::OnceLock;

use drover_api::allocation::ClientStatus;
use drover_api::csi_volume::{ClaimState, VolumePhase};
use drover_api::{Allocation, CSIVolume};
use kube::Api;
use serde_json::{Value, json};
use xtask::progress::Progress;

use crate::cluster::{Cluster, Process, Settings, client_status};

/// The driver, built once for all tests.
fn driver() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--workspace", "--bin", "csi-hostdir"])
            .args(["--message-format", "json-render-diagnostics"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            // What runs the tests sets it, and with it everything would be built anew.
            .env_remove("RUSTC_BOOTSTRAP")
            .output()
            .expect("cargo");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let text = String::from_utf8(built.stdout).expect("text");
        let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let path = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
        path.expect("an executable")
    };
    BUILT.get_or_init(build).clone()
}

/// A cluster with the driver on its nodes.
struct Disks {
    // Dropped in this order: drover first, then what it talks to.
    controller: Option<Process>,
    agents: Vec<Process>,
    cluster: Cluster,
}

impl Disks {
    async fn start(name: &str, nodes: &[&str]) -> Self {
        let cluster = Cluster::start(name, Settings::default()).await;
        let controller = Some(cluster.controller());
        let mut agents = Vec::new();
        for node in nodes {
            agents.push(cluster.agent(node).await);
        }
        let disks = Self { controller, agents, cluster };
        disks.cluster.namespace("shop").await;
        disks.cluster.apply("shop", &disks.plugin_job());
        disks
    }

    /// Drivers on all nodes share one directory.
    fn plugin_job(&self) -> Value {
        let text = |path: &str| self.cluster.path(path).to_string_lossy().into_owned();
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

    /// A volume that exists at the driver and in the cluster.
    fn volume(&self, name: &str, access_mode: &str) {
        let folder = self.cluster.path(&format!("disks/volumes/vol-{name}"));
        std::fs::create_dir_all(folder.join("attached")).expect("a directory");
        std::fs::create_dir_all(folder.join("data")).expect("a directory");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.join("data"), open).expect("permissions");
        let known = json!({ "id": format!("vol-{name}"), "name": name, "capacity": 1 << 30, "source": null });
        std::fs::write(folder.join("volume.json"), known.to_string()).expect("a file");
        let volume = json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": name },
            "spec": { "pluginID": "hostdir", "externalID": format!("vol-{name}"),
                      "capabilities": [{ "accessMode": access_mode, "attachmentMode": "file-system" }] },
        });
        self.cluster.apply("shop", &volume);
    }

    async fn stored(&self, name: &str) -> CSIVolume {
        let api: Api<CSIVolume> = Api::namespaced(self.cluster.client.clone(), "shop");
        api.get(name).await.expect("a volume")
    }

    /// Waits until a volume looks like this.
    async fn until(&self, name: &str, what: &str, seen: impl Fn(&CSIVolume) -> bool) -> CSIVolume {
        self.cluster.eventually(&format!("volume {name} is {what}"), async || seen(&self.stored(name).await)).await;
        self.stored(name).await
    }

    /// Ends the driver as a crash would.
    fn kill_driver(&self) {
        let data = self.cluster.path("disks");
        let is_it = |entry: &std::fs::DirEntry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == data.as_os_str().as_encoded_bytes())
        };
        let entries = std::fs::read_dir("/proc").expect("a list").filter_map(Result::ok).filter(is_it);
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let pids: Vec<_> = pids.filter_map(rustix::process::Pid::from_raw).collect();
        assert_eq!(pids.len(), 1, "the driver of one node");
        rustix::process::kill_process(pids[0], rustix::process::Signal::KILL).expect("killed");
    }

    /// Volumes of this cluster are mounted nowhere.
    fn nothing_is_mounted(&self) {
        let csi = self.cluster.path("n-1/state/csi");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("a table");
        let left: Vec<&str> = mounts.lines().filter(|line| line.contains(&*csi.to_string_lossy())).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    fn calls(&self, prefix: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.cluster.path("calls")).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect()
    }

    /// What tasks have written into a volume.
    fn written(&self, name: &str) -> String {
        std::fs::read_to_string(self.cluster.path(&format!("disks/volumes/vol-{name}/data/log"))).unwrap_or_default()
    }

    /// The allocation of a job that runs, in this version.
    async fn running(&self, job: &str, version: i64) -> Option<Allocation> {
        let allocs = self.cluster.allocs("shop").await;
        allocs.into_iter().find(|alloc| {
            alloc.spec.job_name == job
                && alloc.spec.job_version == version
                && client_status(alloc) == ClientStatus::Running
        })
    }
}

/// A job that appends to a volume, and holds a lock in it while it runs.
fn ledger(volume: &str, release: u32) -> Value {
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
                        "killSignal": "SIGTERM", "killTimeout": "5s",
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
    assert_eq!((&*claim.external_node_id, &*claim.publish_context["attachedTo"]), ("i-n-1", "i-n-1"));
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
}

#[tokio::test]
async fn no_record_is_lost_and_no_two_write_while_agent_controller_and_driver_are_killed() {
    let mut disks = Disks::start("vol-kills", &["n-1"]).await;
    disks.volume("v1", "single-node-writer");
    let mut wanted = String::new();
    for (release, version) in (1..=7).zip(0..) {
        disks.cluster.apply("shop", &ledger("v1", release));
        let what = format!("version {version} runs");
        disks.cluster.eventually(&what, async || disks.running("ledger", version).await.is_some()).await;
        let (began, ended) = (format!("began {release}\n"), format!("ended {release}\n"));
        disks.cluster.eventually("it has written", async || disks.written("v1").ends_with(&began)).await;
        wanted.push_str(&began);
        assert_eq!(disks.written("v1"), wanted);
        wanted.push_str(&ended);
        match release % 3 {
            1 => {
                disks.agents.remove(0).abandon();
                disks.agents.push(disks.cluster.agent_unready("n-1"));
            }
            2 => {
                disks.controller.take().expect("it runs").kill();
                disks.controller = Some(disks.cluster.controller());
            }
            _ => disks.kill_driver(),
        }
    }
    disks.cluster.kubectl(&["delete", "djob", "ledger", "-n", "shop"]).expect("deleted");
    disks.until("v1", "free", |it| it.status.as_ref().is_some_and(|it| it.claims.is_empty())).await;
    assert_eq!(disks.written("v1"), wanted);
    let n = |call: &str| disks.calls(call).iter().filter(|line| line.ends_with(" ok")).count();
    // What a killed agent has left is found, not mounted again (V-075).
    assert_eq!((n("NodePublishVolume "), n("ControllerPublishVolume ")), (7, 7), "{:?}", disks.calls(""));
    disks.nothing_is_mounted();
}

/// Ends with this value.
struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        // That it has ended already is fine.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn the_driver_passes_the_csi_projects_own_tests() {
    let sanity = xtask::csi_sanity::find_or_build(&Progress::silent()).expect("csi-sanity");
    let dir = tempfile::Builder::new().prefix("csi-sanity").tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let endpoint = format!("unix://{}", path("csi.sock"));
    let args = ["--endpoint", &endpoint, "--data-dir", &path("data"), "--node-id", "n-1"];
    let _driver = Driver(Command::new(driver()).args(args).spawn().expect("the driver"));
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
