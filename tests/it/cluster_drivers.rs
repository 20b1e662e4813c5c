//! Volumes of a driver that the cluster runs: `examples/csi-hostdir` registers as with a kubelet and makes real mounts,
//! and a small attacher of the test carries out `VolumeAttachment`s in the place of `external-attacher`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use drover_api::csi_volume::{ClaimState, PluginSource, VolumeReason};
use drover_api::{ClientNode, annotation, label};
use drover_csi::controller_client::ControllerClient;
use drover_csi::volume_capability::{AccessMode, AccessType, MountVolume, access_mode};
use drover_csi::{ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, VolumeCapability};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

use crate::cluster::{Cluster, Running, Settings, mounts_below};
use crate::volumes::{Disks, claims, driver, ledger};

/// The driver's name.
const DRIVER: &str = "hostdir.csi.drover.dev";
/// Holds an object until the volume is detached.
const FINALIZER: &str = "external-attacher/hostdir-csi-drover-dev";

/// A cluster whose node `n-1` has the driver.
struct Drivers {
    disks: Disks,
    attacher: JoinSet<()>,
    driver: Option<Running>,
}

impl std::ops::Deref for Drivers {
    type Target = Disks;

    fn deref(&self) -> &Disks {
        &self.disks
    }
}

impl Drivers {
    /// Prepares the cluster, and starts all but the attacher; volumes are attached, or not.
    async fn start(name: &str, is_attached: bool, prepare: impl AsyncFnOnce(&Cluster)) -> Self {
        let cluster = Cluster::start(name, Settings::default()).await;
        let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": DRIVER },
                             "spec": { "attachRequired": is_attached } });
        cluster.kubectl_with(&["apply", "-f", "-"], Some(&object.to_string())).expect("a CSIDriver");
        // As the node's kubelet writes it.
        let known = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": "n-1" },
                            "spec": { "drivers": [{ "name": DRIVER, "nodeID": "i-n-1", "topologyKeys": [] }] } });
        cluster.kubectl_with(&["apply", "-f", "-"], Some(&known.to_string())).expect("a CSINode");
        cluster.namespace("shop").await;
        prepare(&cluster).await;
        let controller = Some(cluster.controller());
        let agents = BTreeMap::from([("n-1".to_owned(), cluster.agent("n-1").await)]);
        let disks = Disks { controller, agents, cluster };
        let mut drivers = Self { disks, attacher: JoinSet::new(), driver: None };
        drivers.run_driver(is_attached);
        drivers.cluster.eventually("the driver is found", async || drivers.is_healthy().await == Some(true)).await;
        drivers
    }

    fn run_driver(&mut self, is_attached: bool) {
        let text = |path: &str| self.cluster.path(path).to_string_lossy().into_owned();
        for folder in ["n-1/kubelet/plugins/hostdir", "n-1/kubelet/plugins_registry"] {
            std::fs::create_dir_all(self.cluster.path(folder)).expect("a directory");
        }
        let mut command = Command::new(driver());
        command.args(["--endpoint", &format!("unix://{}", text("n-1/kubelet/plugins/hostdir/csi.sock"))]);
        command.args(["--data-dir", &text("disks"), "--node-id", "i-n-1", "--calls", &text("calls")]);
        command.args(["--faults", &text("faults"), "--kubelet-registration", &text("n-1/kubelet/plugins_registry")]);
        if !is_attached {
            command.arg("--no-attach");
        }
        self.driver = Some(Running(command.spawn().expect("the driver")));
    }

    /// Starts what carries out `VolumeAttachment`s.
    fn run_attacher(&mut self) {
        let client = self.cluster.client.clone();
        let socket = self.cluster.path("n-1/kubelet/plugins/hostdir/csi.sock");
        self.attacher.spawn(attacher(client, socket));
    }

    /// Whether the node says that the driver works; none where it says nothing of it.
    async fn is_healthy(&self) -> Option<bool> {
        let api: Api<ClientNode> = Api::all(self.cluster.client.clone());
        let print = api.get("n-1").await.expect("a node").status?.fingerprint?;
        let known = print.csi.get(DRIVER)?;
        assert_eq!((known.source, known.node, known.controller), (PluginSource::Kubelet, true, false));
        assert_eq!((&*known.node_id, &*known.alloc_id), ("i-n-1", ""));
        Some(known.healthy)
    }

    /// A volume that exists at the driver and in the cluster.
    fn volume(&self, name: &str, external_id: &str) {
        self.volume_in("shop", name, external_id);
    }

    /// The same in this namespace.
    fn volume_in(&self, namespace: &str, name: &str, external_id: &str) {
        self.make_at_driver(name);
        let mut volume = json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": name },
            "spec": { "pluginID": DRIVER, "context": { "share": "b" },
                      "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] },
        });
        if !external_id.is_empty() {
            volume["spec"]["externalID"] = json!(external_id);
        }
        self.cluster.apply(namespace, &volume);
    }

    async fn attachments(&self) -> Vec<VolumeAttachment> {
        let api: Api<VolumeAttachment> = Api::all(self.cluster.client.clone());
        api.list(&ListParams::default()).await.expect("a list").items
    }

    async fn runs(&self, version: i64) {
        let is_running = async || self.running("ledger", version).await.is_some();
        self.cluster.eventually(&format!("version {version} runs"), is_running).await;
    }

    /// The mounts below the kubelet's folder.
    fn mounts(&self) -> Vec<PathBuf> {
        mounts_below(&self.cluster.path("n-1/kubelet"))
    }
}

/// Does what `external-attacher` does: attaches and detaches by the driver's controller, holds objects by a finalizer,
/// says how it went.
async fn attacher(client: Client, socket: PathBuf) {
    let api: Api<VolumeAttachment> = Api::all(client);
    loop {
        for object in api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            let is_ours = object.spec.attacher == DRIVER && object.spec.source.inline_volume_spec.is_some();
            // What went wrong is tried again, as it does.
            if is_ours && let Err(error) = carry_out(&api, &object, &socket).await {
                let which = if object.metadata.deletion_timestamp.is_some() { "detachError" } else { "attachError" };
                patch(&api, &object, Some("status"), &json!({ "status": { which: { "message": error } } })).await.ok();
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn carry_out(api: &Api<VolumeAttachment>, object: &VolumeAttachment, socket: &Path) -> Result<(), String> {
    let source = object.spec.source.inline_volume_spec.as_ref().and_then(|spec| spec.csi.clone()).ok_or("no volume")?;
    let (volume_id, node_id) = (source.volume_handle, format!("i-{}", object.spec.node_name));
    let is_held = object.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER);
    let is_attached = object.status.as_ref().is_some_and(|status| status.attached);
    if object.metadata.deletion_timestamp.is_some() {
        if is_held {
            let secrets = BTreeMap::new().into_iter().collect();
            let request = ControllerUnpublishVolumeRequest { volume_id, node_id, secrets };
            let mut controller = ControllerClient::new(connect(socket).await?);
            controller.controller_unpublish_volume(request).await.map_err(|status| status.to_string())?;
            patch(api, object, Some("status"), &json!({ "status": { "attached": false } })).await?;
            patch(api, object, None, &json!({ "metadata": { "finalizers": null } })).await?;
        }
        return Ok(());
    }
    if is_attached {
        return Ok(());
    }
    if !is_held {
        patch(api, object, None, &json!({ "metadata": { "finalizers": [FINALIZER] } })).await?;
    }
    let mode = AccessMode { mode: access_mode::Mode::SingleNodeWriter.into() };
    let request = ControllerPublishVolumeRequest {
        volume_id,
        node_id,
        volume_capability: Some(VolumeCapability {
            access_mode: Some(mode),
            access_type: Some(AccessType::Mount(MountVolume::default())),
        }),
        ..ControllerPublishVolumeRequest::default()
    };
    let mut controller = ControllerClient::new(connect(socket).await?);
    let answer = controller.controller_publish_volume(request).await.map_err(|status| status.to_string())?;
    let metadata: BTreeMap<String, String> = answer.into_inner().publish_context.into_iter().collect();
    let status = json!({ "attached": true, "attachmentMetadata": metadata, "attachError": null });
    patch(api, object, Some("status"), &json!({ "status": status })).await
}

async fn patch(
    api: &Api<VolumeAttachment>,
    object: &VolumeAttachment,
    part: Option<&str>,
    body: &Value,
) -> Result<(), String> {
    let (name, params) = (object.metadata.name.as_deref().unwrap_or_default(), PatchParams::default());
    let done = match part {
        Some(_) => api.patch_status(name, &params, &Patch::Merge(body)).await,
        None => api.patch(name, &params, &Patch::Merge(body)).await,
    };
    done.map(drop).map_err(|error| error.to_string())
}

async fn connect(socket: &Path) -> Result<Channel, String> {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(&socket).await.map(TokioIo::new) }
    });
    let connected = Endpoint::from_static("http://csi.sock").connect_with_connector(connector).await;
    connected.map_err(|error| error.to_string())
}

/// An object as a leader of drover's makes it, and one of somebody else.
async fn leftovers(cluster: &Cluster) {
    for (name, labels) in [("drover-left", json!({ label::MANAGED_BY: label::DROVER })), ("csi-others", json!({}))] {
        let object = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": { "name": name, "labels": labels, "annotations": { annotation::VOLUME: "shop/gone" } },
            "spec": { "attacher": "other.example.com", "nodeName": "n-1",
                      "source": { "persistentVolumeName": "pv-gone" } },
        });
        cluster.kubectl_with(&["create", "-f", "-"], Some(&object.to_string())).expect("an attachment");
    }
}

#[tokio::test]
async fn a_driver_of_the_cluster_is_found_attached_to_written_by_and_left_as_it_was() {
    let mut drivers = Drivers::start("drv-hand-over", true, leftovers).await;
    drivers.volume("v1", "vol-v1");
    drivers.cluster.apply("shop", &ledger("v1", 1));
    // Without an attacher the claim waits, and one object says for what.
    let is_asked = async || drivers.attachments().await.iter().any(|one| one.spec.attacher == DRIVER);
    drivers.cluster.eventually("the cluster is asked", is_asked).await;
    let asked = drivers.attachments().await.into_iter().find(|one| one.spec.attacher == DRIVER).expect("an object");
    let inline = asked.spec.source.inline_volume_spec.expect("a volume");
    let source = inline.csi.expect("a driver's");
    assert_eq!((&*source.driver, &*source.volume_handle), (DRIVER, "vol-v1"));
    assert_eq!(source.volume_attributes.expect("a context")["share"], "b");
    assert_eq!((inline.access_modes, &*asked.spec.node_name), (Some(vec!["ReadWriteOnce".to_owned()]), "n-1"));
    assert_eq!(asked.metadata.annotations.expect("annotations")[annotation::VOLUME], "shop/v1");
    assert!(drivers.running("ledger", 0).await.is_none());

    // A new leader finds what the one before has asked for.
    drivers.disks.controller.take().expect("it runs").kill();
    drivers.disks.controller = Some(drivers.cluster.controller());
    drivers.run_attacher();
    drivers.runs(0).await;
    let claimed = drivers.stored("v1").await;
    let held = claims(&claimed);
    assert_eq!((held.len(), held[0].state, &*held[0].node_name), (1, ClaimState::Taken, "n-1"));
    // Readers see that there is one, and the driver checks that it gets what it has answered.
    assert_eq!(held[0].publish_context.keys().collect::<Vec<_>>(), ["drover.dev/sealed"]);
    let status = claimed.status.expect("a status");
    assert_eq!((status.schedulable, status.controller_required, status.nodes_healthy), (true, true, 1));
    let ours = async || drivers.attachments().await.iter().filter(|one| one.spec.attacher == DRIVER).count();
    assert_eq!(ours().await, 1);
    let root = drivers.cluster.path("n-1/kubelet/plugins/drover.dev/csi");
    let mounts = drivers.mounts();
    assert!(mounts.len() >= 2 && mounts.iter().all(|place| place.starts_with(&root)), "{mounts:?}");

    drivers.cluster.apply("shop", &ledger("v1", 2));
    drivers.runs(1).await;
    drivers.cluster.eventually("it has written", async || drivers.written("v1").contains("began 2")).await;
    assert_eq!(drivers.written("v1"), "began 1\nended 1\nbegan 2\n", "one writer after the other");

    drivers.cluster.kubectl(&["delete", "djob", "ledger", "-n", "shop"]).expect("deleted");
    drivers.is_free("v1").await;
    assert_eq!(ours().await, 0, "the last one has it detached");
    assert_eq!((drivers.n_done("ControllerPublishVolume"), drivers.n_done("ControllerUnpublishVolume")), (2, 2));
    assert_eq!(drivers.n_done("ValidateVolumeCapabilities"), 0);
    assert_eq!((drivers.n_done("NodePublishVolume"), drivers.n_done("NodeUnpublishVolume")), (2, 2));
    assert_eq!(drivers.mounts(), Vec::<PathBuf>::new());

    // What is for nobody goes, if it is drover's.
    let names = async || -> Vec<String> {
        drivers.attachments().await.into_iter().filter_map(|one| one.metadata.name).collect()
    };
    drivers.cluster.eventually("what was left is deleted", async || names().await == ["csi-others"]).await;
}

#[tokio::test]
async fn what_the_driver_says_is_told_and_a_driver_that_goes_and_comes_is_found_again() {
    let mut drivers = Drivers::start("drv-faults", true, async |_| {}).await;
    drivers.volume("v1", "vol-v1");
    // A volume that nobody has made.
    drivers.volume("v2", "");
    let reason = async || {
        let status = drivers.stored("v2").await.status?;
        Some((status.schedulable, status.conditions.iter().any(|one| one.reason == VolumeReason::CreateFailed)))
    };
    drivers.cluster.eventually("v2 is to be made elsewhere", async || reason().await == Some((false, true))).await;
    drivers.fail("ControllerPublishVolume Internal");
    drivers.run_attacher();
    drivers.cluster.apply("shop", &ledger("v1", 1));
    let is_told = async || claims(&drivers.stored("v1").await).iter().any(|one| one.error.contains("is made to fail"));
    drivers.cluster.eventually("the attacher's error is told", is_told).await;
    drivers.fail("ControllerUnpublishVolume Internal");
    drivers.runs(0).await;
    assert!(claims(&drivers.stored("v1").await)[0].error.is_empty());
    drivers.cluster.kubectl(&["delete", "djob", "ledger", "-n", "shop", "--wait=false"]).expect("deleted");
    drivers.cluster.eventually("the attacher's error is told", is_told).await;
    drivers.fail("");
    drivers.is_free("v1").await;

    // Its pod goes, and comes back.
    drivers.driver = None;
    std::fs::remove_file(drivers.cluster.path(&format!("n-1/kubelet/plugins_registry/{DRIVER}-reg.sock")))
        .expect("gone");
    drivers.cluster.eventually("it is unhealthy", async || drivers.is_healthy().await == Some(false)).await;
    let is_unschedulable = async || drivers.stored("v1").await.status.is_some_and(|status| !status.schedulable);
    drivers.cluster.eventually("its volume cannot be used", is_unschedulable).await;
    drivers.run_driver(true);
    drivers.cluster.eventually("it is healthy", async || drivers.is_healthy().await == Some(true)).await;
    let is_schedulable = async || drivers.stored("v1").await.status.is_some_and(|status| status.schedulable);
    drivers.cluster.eventually("its volume can be used", is_schedulable).await;
}

#[tokio::test]
async fn a_driver_that_attaches_nothing_needs_no_object() {
    let drivers = Drivers::start("drv-unattached", false, async |_| {}).await;
    drivers.volume("v1", "vol-v1");
    drivers.cluster.apply("shop", &ledger("v1", 1));
    drivers.runs(0).await;
    assert_eq!(drivers.attachments().await, Vec::new());
    drivers.cluster.kubectl(&["delete", "djob", "ledger", "-n", "shop"]).expect("deleted");
    drivers.is_free("v1").await;
    assert_eq!(drivers.mounts(), Vec::<PathBuf>::new());
}

/// a job that calls itself what the cluster calls a driver gets nothing of it, and the volumes go on.
#[tokio::test]
async fn must_survive_x_020_a_job_that_takes_the_name_of_a_driver_of_the_cluster() {
    let mut drivers = Drivers::start("x-020", true, async |_| {}).await;
    drivers.run_attacher();
    drivers.volume("v1", "vol-v1");
    drivers.cluster.apply("shop", &ledger("v1", 1));
    drivers.runs(0).await;
    drivers.cluster.namespace("blog").await;
    let text = |path: &str| drivers.cluster.path(path).to_string_lossy().into_owned();
    let mut thief = drivers.plugin_job(&["--calls".to_owned(), text("stolen")]);
    thief["metadata"]["name"] = json!("thief");
    thief["spec"]["groups"][0]["tasks"][0]["csiPlugin"]["id"] = json!(DRIVER);
    thief["spec"]["groups"][0]["tasks"][0]["config"]["args"] =
        json!(["--data-dir", text("thief"), "--node-id", "i-n-1", "--calls", text("stolen")]);
    drivers.cluster.apply("blog", &thief);
    let said = async || {
        let api: Api<ClientNode> = Api::all(drivers.cluster.client.clone());
        let conditions = api.get("n-1").await.expect("a node").status.map(|status| status.conditions);
        conditions.into_iter().flatten().map(|found| found.message).collect::<Vec<_>>().join("\n")
    };
    let is_told = async || said().await.contains("which a job never replaces");
    drivers.cluster.eventually("the node says that it is ignored", is_told).await;
    let is_up = || std::fs::read_to_string(drivers.cluster.path("stolen")).is_ok_and(|calls| calls.contains("Probe"));
    drivers.cluster.eventually("the job's driver is up", async || is_up()).await;
    drivers.cluster.apply("shop", &ledger("v1", 2));
    drivers.runs(1).await;
    drivers.cluster.eventually("it has written", async || drivers.written("v1").contains("began 2")).await;
    assert_eq!(drivers.written("v1"), "began 1\nended 1\nbegan 2\n", "the volume goes on by the cluster's driver");
    drivers.volume_in("blog", "v2", "vol-v2");
    drivers.cluster.apply("blog", &ledger("v2", 1));
    let goes_on = async || drivers.written("v2").contains("began 1");
    drivers.cluster.eventually("so do those of the job's own namespace", goes_on).await;
    let stolen = std::fs::read_to_string(drivers.cluster.path("stolen")).expect("calls");
    assert!(!stolen.contains("Volume "), "the job's driver was told of volumes: {stolen}");
    assert_eq!(drivers.is_healthy().await, Some(true), "the node tells of the cluster's");
}
