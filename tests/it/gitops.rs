//! `examples/gitops` on a real API server: what Git holds is applied twice, and the second time changes nothing.

use serde_json::Value;

use crate::cluster::{Cluster, Settings};

fn folder(path: &str) -> String {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/gitops").join(path).display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_and_kustomize_builds_are_the_same_twice_and_a_second_apply_writes_nothing() {
    let cluster = Cluster::start("gitops", Settings::default()).await;
    let overlay = folder("kustomize/overlays/production");
    let build = || cluster.kubectl(&["kustomize", &overlay]).expect("a build");
    let rendered = build();
    assert_eq!(rendered, build());
    for text in ["namespace: production", "count: 5", "priority: 70", "stage: production"] {
        assert!(rendered.contains(text), "{text} is not in\n{rendered}");
    }
    for (args, namespace, n_objects) in
        [(["-f", &folder("manifests")], "default", 1), (["-k", &overlay], "production", 2)]
    {
        let apply = || cluster.kubectl(&["apply", "--server-side", args[0], args[1]]).expect("an apply");
        let state = || {
            let job = cluster.kubectl(&["get", "djob/greeter", "-n", namespace, "-o", "json"]).expect("the job");
            let job: Value = serde_json::from_str(&job).expect("an object");
            (job["metadata"]["generation"].clone(), job["spec"].clone())
        };
        let first = apply();
        assert_eq!(first.lines().filter(|line| line.ends_with("serverside-applied")).count(), n_objects, "{first}");
        let before = state();
        assert_eq!(apply(), first);
        assert_eq!(state(), before);
    }
}

#[test]
fn the_examples_for_flux_and_argo_cd_point_to_the_overlay_and_ask_for_the_truth() {
    let read = |path: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(folder(path)).expect("an example");
        serde_saphyr::from_multiple(&text).expect("objects")
    };
    let path = "examples/gitops/kustomize/overlays/production";
    let flux = read("flux/greeter.yaml");
    assert_eq!((&flux[1]["spec"]["path"], &flux[1]["spec"]["wait"]), (&format!("./{path}").into(), &true.into()));
    let argo = read("argocd/application.yaml");
    assert_eq!(argo[0]["spec"]["source"]["path"], path);
    assert_eq!(argo[0]["spec"]["ignoreDifferences"][0]["jsonPointers"], serde_json::json!(["/spec/scale/count"]));
    assert!(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path).join("kustomization.yaml").is_file());
}
