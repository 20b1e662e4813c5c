//! The control plane as tests use it: built, started, taken away and brought back.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, ListParams, PostParams};

use super::*;
use crate::manifests;
use crate::progress::Progress;

fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object
}

/// Asks until the answer is yes: what is waited for comes from another process.
async fn wait_for<F: Future<Output = bool>>(what: &str, ask: impl Fn() -> F) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !ask().await {
        assert!(Instant::now() < deadline, "no {what} within 60 s");
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test]
async fn a_control_plane_serves_survives_outages_keeps_its_objects_and_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let binaries = Binaries::find_or_build(&Progress::for_people()).unwrap();
    let options = Options::for_tests(folder.path(), binaries);
    let plane = ControlPlane::start(options.clone()).await.unwrap();
    let mut audit = plane.audit_log().unwrap();
    let client = plane.client(User::Admin).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &config_map("first")).await.unwrap();
    let events = audit.read_new().unwrap();
    assert!(
        events.iter().any(|event| event.user == "admin" && event.verb == "create" && event.name == "first"),
        "{events:?}"
    );

    // A user without rights gets none.
    let agent = plane.client(User::Agent).await.unwrap();
    assert!(Api::<ConfigMap>::namespaced(agent, "default").list(&ListParams::default()).await.is_err());

    // Our kinds are accepted.
    assert_eq!(manifests::apply_crds(&client, &manifests::crds_folder()).await.unwrap(), 7);

    // Namespaces end: kube-controller-manager works.
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("short-lived".to_owned());
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    namespaces.delete("short-lived", &DeleteParams::default()).await.unwrap();
    wait_for("end of the namespace", || async { namespaces.get_opt("short-lived").await.unwrap().is_none() }).await;

    // Each program may go away and come back on the same address.
    let url = plane.url();
    for role in [Role::KubeApiserver, Role::Etcd] {
        plane.terminate(role).await.unwrap();
        assert_eq!(plane.process(role), None);
        assert!(plane.terminate(role).await.unwrap_err().to_string().contains("is not running"));
        plane.restart(role).await.unwrap();
        plane.pause(role).unwrap();
        plane.resume(role).await.unwrap();
        plane.kill(role).await.unwrap();
        plane.restart(role).await.unwrap();
    }
    assert_eq!(plane.url(), url);
    wait_for("object after the outages", || async { maps.get_opt("first").await.is_ok_and(|map| map.is_some()) }).await;

    // Ended in order and started again on the same folder, it serves the same objects.
    let processes: Vec<ProcessId> = plane.processes().into_iter().filter_map(|(_, id)| id).collect();
    assert_eq!(processes.len(), 3);
    plane.stop().await.unwrap();
    assert!(processes.iter().all(|id| !id.is_alive()));
    drop(plane);
    let plane = ControlPlane::start(options).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(plane.client(User::Admin).await.unwrap(), "default");
    assert!(maps.get_opt("first").await.unwrap().is_some());

    // Dropped without a word, it leaves nothing running, not even what is held.
    let processes: Vec<ProcessId> = plane.processes().into_iter().filter_map(|(_, id)| id).collect();
    plane.pause(Role::Etcd).unwrap();
    drop(plane);
    assert!(processes.iter().all(|id| !id.is_alive()));
}

#[tokio::test]
async fn a_program_that_cannot_start_is_named_with_the_end_of_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let built = Binaries::find_or_build(&Progress::for_people()).unwrap();
    let fake = tempfile::tempdir().unwrap();
    for program in [built.kube_apiserver().as_path(), built.kubectl()] {
        std::os::unix::fs::symlink(program, fake.path().join(program.file_name().unwrap())).unwrap();
    }
    crate::workspace::write_with_mode(
        &fake.path().join("etcd"),
        b"#!/bin/sh\necho no room on the disk\nexit 3\n",
        0o755,
    )
    .unwrap();
    let options = Options::for_tests(folder.path(), Binaries::in_folder(fake.path().to_path_buf()).unwrap());
    let error = ControlPlane::start(options).await.unwrap_err().to_string();
    assert!(error.starts_with("etcd ended with exit status: 3") && error.contains("no room on the disk"), "{error}");
}
