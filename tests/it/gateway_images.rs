//! Images of registries that want credentials, which come from Secrets through the gateway.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_api::allocation::TaskEventType;
use drover_api::job::JobConditionType;
use drover_testkit::containerd::OwnContainerd;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Settings, job};
use crate::containers_world::{Manner, TestImage, TestRegistry};
use crate::gateway::{Finds, Stage};
use crate::gateway_values::{CANARY, holders, messages, opened};

const LOGIN: &str = "puller:canary-81f4a6";

/// A Secret as `kubectl create secret docker-registry` makes it.
fn pull_secret(stage: &Stage, name: &str, registry: &str, password: &str) {
    let config = json!({ "auths": { registry: { "username": "puller", "password": password } } });
    let object = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "shop" },
                         "type": "kubernetes.io/dockerconfigjson",
                         "data": { ".dockerconfigjson": STANDARD.encode(config.to_string()) } });
    stage.cluster.kubectl_with(&["apply", "-f", "-"], Some(&object.to_string())).expect("a Secret");
}

fn of_image(name: &str, image: &str, pull_secrets: &Value) -> Value {
    let group = json!({ "networks": [{ "mode": "none" }], "update": { "minHealthyTime": "0s" } });
    let mut whole = job(name, 1, &group, "");
    whole["spec"]["groups"][0]["tasks"][0] = json!({
        "name": "t", "driver": "containerd", "config": { "image": image }, "imagePullSecrets": pull_secrets,
        "killTimeout": "2s", "resources": { "cpu": 10, "memoryMB": 48 },
        "restart": { "attempts": 0, "interval": "1h", "delay": "1s", "mode": "fail" },
    });
    whole
}

async fn says(stage: &Stage, name: &str, part: &str) {
    let said = async || {
        let all = stage.cluster.allocs("shop").await;
        let of_job = all.iter().filter(|alloc| alloc.spec.job_name == name);
        of_job.flat_map(|alloc| messages(alloc, TaskEventType::DriverFailure)).any(|text| text.contains(part))
    };
    stage.cluster.eventually(part, said).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_065_an_image_of_a_closed_registry_is_pulled_by_its_tasks_secrets_and_given_to_no_other_task() {
    let folder = tempfile::tempdir().expect("a directory");
    let containerd = OwnContainerd::start(&folder.path().join("c")).expect("a containerd");
    let registry = TestRegistry::start(Manner::Login(LOGIN));
    let tools = TestImage::tools("example.com/x:1").with(json!({ "Cmd": ["/bin/sh", "-c", "sleep 1000"] }));
    let image = registry.push("web:1", &tools);
    let driver = format!("containerd: {{address: {}, pidsLimit: 512, imageDelay: 1h}}", containerd.socket().display());
    let cluster = Cluster::start("pull-secrets", Settings::default()).await.with_driver(&driver);
    let stage = Stage::start_in(cluster, "", Finds::ByName).await;
    stage.cluster.namespace("shop").await;
    opened(&stage, &["other", "regcred", "wrong"]);
    pull_secret(&stage, "other", "registry.invalid", CANARY);
    pull_secret(&stage, "regcred", &registry.address, CANARY);
    pull_secret(&stage, "wrong", &registry.address, "another");

    stage.cluster.apply("shop", &of_image("web", &image, &json!(["other", "regcred"])));
    stage.cluster.condition("shop", "web", JobConditionType::Ready, "True").await;

    // The image is on the node now. Whoever asks for it has to be known to the registry all the same.
    stage.cluster.apply("shop", &of_image("without", &image, &json!([])));
    says(&stage, "without", "in imagePullSecrets").await;
    stage.cluster.apply("shop", &of_image("wrong", &image, &json!(["wrong"])));
    says(&stage, "wrong", "does not take the credentials").await;
    stage.cluster.apply("shop", &of_image("again", &image, &json!(["regcred"])));
    stage.cluster.condition("shop", "again", JobConditionType::Ready, "True").await;
    assert_eq!(registry.most_downloads(), 1, "what is there is not downloaded again");

    // The password is in no file, neither of drover's nor of containerd's, and in no object but its own.
    for kind in ["jobs", "allocations", "jobversions", "deployments", "clientnodes"] {
        let all = stage.cluster.kubectl(&["get", &format!("{kind}.drover.dev"), "-A", "-o", "json"]).expect(kind);
        assert!(!all.contains(CANARY) && !all.contains(&STANDARD.encode(LOGIN)), "{kind} hold the password");
    }
    for text in [CANARY, &STANDARD.encode(LOGIN)] {
        let files = [holders(&stage.cluster.path(""), text), holders(folder.path(), text)].concat();
        let beside: Vec<&String> = files.iter().filter(|path| !path.contains("/plane/etcd/")).collect();
        assert_eq!(beside, Vec::<&String>::new(), "files hold the password");
    }
}
