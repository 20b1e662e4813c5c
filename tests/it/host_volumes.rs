//! HostVolumes on a real API server, with real agents, folders and processes.

use std::path::PathBuf;

use drover_api::allocation::DesiredStatus;
use drover_api::host_volume::{HostVolumePhase, HostVolumeStatus};
use drover_api::job::JobConditionType;
use drover_api::{Allocation, HostVolume};
use drover_testkit::control_plane::User;
use kube::Api;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Process, Settings};

const NS: &str = "shop";
const SSD: (&str, &str) = ("${meta.disk}", "ssd");

/// A controller and two nodes of which the second alone has an SSD; both give a folder away.
struct Disks {
    _drover: [Process; 3],
    cluster: Cluster,
}

impl Disks {
    async fn start(name: &str) -> Self {
        let cluster = Cluster::start(name, Settings::default()).await;
        let controller = cluster.controller();
        let agent = |node: &str, disk: &str| {
            let given = cluster.path(&format!("{node}/given"));
            std::fs::create_dir_all(given.join("old")).expect("a folder");
            let more = format!("meta: {{disk: {disk}}}\nhostVolumePaths: [{}]\n", given.display());
            cluster.agent_more(node, &cluster.plane.kubeconfig(User::Admin), &more)
        };
        let agents = [agent("n-1", "hdd"), agent("n-2", "ssd")];
        for node in ["n-1", "n-2"] {
            cluster.ready(node).await;
        }
        cluster.namespace(NS).await;
        let [first, second] = agents;
        Self { _drover: [controller, first, second], cluster }
    }

    /// Applies a HostVolume with more in its spec than how it may be used.
    fn volume(&self, name: &str, more: &Value) -> Result<String, String> {
        let mut spec =
            json!({ "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] });
        for (field, value) in more.as_object().expect("an object") {
            spec[field] = value.clone();
        }
        let volume = json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "HostVolume", "metadata": { "name": name },
                             "spec": spec });
        self.cluster.kubectl_with(&["apply", "-n", NS, "-f", "-"], Some(&volume.to_string()))
    }

    async fn status(&self, name: &str) -> Option<HostVolumeStatus> {
        let volumes: Api<HostVolume> = Api::namespaced(self.cluster.client.clone(), NS);
        volumes.get_opt(name).await.expect("an answer").map(|volume| volume.status.unwrap_or_default())
    }

    /// Waits until a volume's condition Ready has this reason.
    async fn until(&self, name: &str, reason: &str) -> HostVolumeStatus {
        let found = async || {
            let status = self.status(name).await?;
            status.conditions.first().is_some_and(|ready| ready.reason.as_str() == reason).then_some(status)
        };
        self.cluster.eventually(&format!("volume {name} is {reason}"), async || found().await.is_some()).await;
        found().await.expect("a status")
    }

    /// The folder that a node has made for a volume.
    fn folder(&self, status: &HostVolumeStatus) -> PathBuf {
        self.cluster.path(&format!("{}/state/host-volumes/{}", status.node_name, status.id))
    }

    /// Runs a job that appends its allocation's id to a file of a volume.
    fn append(&self, job: &str, request: &Value) {
        let mut volume = json!({ "name": "data", "type": "host" });
        for (field, value) in request.as_object().expect("an object") {
            volume[field] = value.clone();
        }
        let script = "echo $NOMAD_ALLOC_ID >> /data/log; exec sleep 10000";
        let job = json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": job },
            "spec": { "groups": [{
                "name": "db", "ephemeralDisk": { "sizeMB": 110 }, "volumes": [volume],
                "update": { "minHealthyTime": "0s" },
                "reschedule": { "delay": "5s", "delayFunction": "constant", "unlimited": true },
                "tasks": [{ "name": "append", "driver": "exec", "config": { "command": "/bin/sh", "args": ["-c", script] },
                            "user": "nobody", "killTimeout": "2s",
                            "volumeMounts": [{ "volume": "data", "destination": "/data" }],
                            "resources": { "cpu": 10, "memoryMB": 32 } }],
            }] },
        });
        self.cluster.apply(NS, &job);
    }

    async fn allocs_that_run(&self) -> Vec<Allocation> {
        let all = self.cluster.allocs(NS).await.into_iter();
        all.filter(|alloc| {
            alloc.spec.desired_status == DesiredStatus::Run
                && crate::cluster::client_status(alloc).as_str() == "running"
        })
        .collect()
    }

    fn eligibility(&self, node: &str, to: &str) {
        let patch = json!({ "spec": { "eligibility": to } }).to_string();
        self.cluster.kubectl(&["patch", "clientnode", node, "--type", "merge", "-p", &patch]).expect("patched");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_066_a_volume_is_made_where_its_rules_allow_and_goes_with_its_files_after_its_last_user() {
    let disks = Disks::start("host-volumes").await;
    let (left, right) = SSD;
    let rules = json!([{ "lTarget": left, "operand": "=", "rTarget": right }]);
    let parameters = json!({ "mode": "0750", "uid": "65534" });
    let refused =
        disks.volume("wrong", &json!({ "plugin": "mkdir", "parameters": { "mod": "1" } })).expect_err("refused");
    assert!(refused.contains("mkdir takes the parameters mode"), "{refused}");
    disks
        .volume("data", &json!({ "plugin": "mkdir", "constraints": rules, "parameters": parameters }))
        .expect("applied");
    let ready = disks.until("data", "Available").await;
    assert_eq!((ready.phase, ready.node_name.as_str()), (HostVolumePhase::Ready, "n-2"));
    let folder = disks.folder(&ready);
    assert!(folder.is_dir(), "{}", folder.display());
    let shown = disks.cluster.kubectl(&["get", "hvol", "-n", NS]).expect("a table");
    let line: Vec<&str> = shown.lines().nth(1).expect("a line").split_whitespace().collect();
    assert_eq!(line[..5], ["data", "mkdir", "n-2", "ready", "0"], "{shown}");

    disks.append("db", &json!({ "source": "data" }));
    disks.cluster.runs(NS, &[0]).await;
    let alloc = disks.allocs_that_run().await.remove(0);
    assert_eq!((alloc.spec.node_name.as_str(), &alloc.spec.host_volumes["data"]), ("n-2", &ready.id));
    let log = folder.join("log");
    let id = alloc.metadata.uid.clone().expect("a uid");
    let written = || std::fs::read_to_string(&log).unwrap_or_default();
    disks.cluster.eventually("the task has written", async || written().contains(&id)).await;

    // Deleted in use: it waits, and its files are there.
    disks.cluster.kubectl(&["delete", "hvol", "-n", NS, "data", "--wait=false"]).expect("deleted");
    let waits = disks.until("data", "InUse").await;
    assert_eq!((waits.phase, waits.columns.allocs.as_str()), (HostVolumePhase::Unavailable, "1"));
    let name = alloc.metadata.name.unwrap_or_default();
    assert!(waits.conditions[0].message.contains(&name), "{:?}", waits.conditions);
    assert!(written().contains(&id) && disks.cluster.running(NS).await == [0]);
    disks.cluster.kubectl(&["delete", "djob", "-n", NS, "db"]).expect("deleted");
    disks.cluster.eventually("the volume is gone", async || disks.status("data").await.is_none()).await;
    assert!(!folder.exists(), "its files go with it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_066_a_folder_is_registered_only_below_what_the_node_gives_away_and_stays() {
    let disks = Disks::start("host-volumes-registered").await;
    let old = disks.cluster.path("n-1/given/old");
    std::fs::write(old.join("log"), "before\n").expect("a file");
    std::os::unix::fs::chown(&old, Some(65534), None).expect("an owner");
    std::os::unix::fs::chown(old.join("log"), Some(65534), None).expect("an owner");
    for (name, path) in [("etc", PathBuf::from("/etc")), ("state", disks.cluster.path("n-1/state"))] {
        disks.volume(name, &json!({ "nodeName": "n-1", "hostPath": path })).expect("applied");
        let refused = disks.until(name, "MakeFailed").await;
        let message = &refused.conditions[0].message;
        assert!(message.contains("hostVolumePaths of the agent's configuration"), "{message}");
        assert_eq!(refused.phase, HostVolumePhase::Pending);
    }
    disks.volume("old", &json!({ "nodeName": "n-1", "hostPath": old })).expect("applied");
    disks.until("old", "Available").await;
    disks.append("db", &json!({ "source": "old" }));
    disks.cluster.runs(NS, &[0]).await;
    let written = || std::fs::read_to_string(old.join("log")).unwrap_or_default();
    disks.cluster.eventually("the task has written", async || written().lines().count() == 2).await;
    disks.cluster.kubectl(&["delete", "djob", "-n", NS, "db"]).expect("deleted");
    disks.cluster.kubectl(&["delete", "hvol", "-n", NS, "--all"]).expect("deleted");
    assert!(written().starts_with("before\n"), "what drover did not make stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_067_a_sticky_volume_keeps_its_slot_on_its_node_and_the_job_says_why_it_waits() {
    let disks = Disks::start("host-volumes-sticky").await;
    let parameters = json!({ "uid": "65534" });
    for node in ["n-1", "n-2"] {
        let of = json!({ "name": "data", "plugin": "mkdir", "nodeName": node, "parameters": parameters });
        disks.volume(&format!("data-{node}"), &of).expect("applied");
        disks.until(&format!("data-{node}"), "Available").await;
    }
    disks.append("db", &json!({ "source": "data", "sticky": true }));
    disks.cluster.runs(NS, &[0]).await;
    let before = disks.allocs_that_run().await.remove(0);
    let (home, volume) = (before.spec.node_name.clone(), before.spec.host_volumes.clone());
    disks.eligibility(&home, "ineligible");
    let name = before.metadata.name.clone().expect("a name");
    disks.cluster.kubectl(&["delete", "alloc", "-n", NS, &name]).expect("deleted");
    let why = disks.cluster.condition(NS, "db", JobConditionType::Placed, "False").await;
    assert!(why.contains("sticky") && why.contains(&format!("on node {home}, which is ineligible")), "{why}");
    assert!(disks.allocs_that_run().await.is_empty(), "the other node's volume is not its own");
    disks.eligibility(&home, "eligible");
    disks.cluster.runs(NS, &[0]).await;
    let after = disks.allocs_that_run().await.remove(0);
    assert!(after.metadata.uid != before.metadata.uid && after.spec.node_name == home);
    assert_eq!(after.spec.host_volumes, volume);
    let log = disks.cluster.path(&format!("{home}/state/host-volumes/{}/log", volume["data"]));
    let written = || std::fs::read_to_string(&log).unwrap_or_default();
    disks.cluster.eventually("both have written", async || written().lines().count() == 2).await;
}
