//! The newest library of Nomad as a client: what is answered has the fields that it knows, and no others
//! (`spec/gateway.md` 6, G-034).

use std::io::Write as _;
use std::process::{Command, Stdio};

use drover_testkit::control_plane::User;
use drover_testkit::nomad_sdk;
use drover_testkit::progress::Progress;
use serde_json::json;

use crate::gateway::Stage;
use crate::gateway_limits::{Door, token_of};
use crate::nomad_api::Nomad;
use crate::nomad_volumes::stage_with_driver;

/// A job that uses about everything, and that no node fits.
const RICH: &str = r#"
job "rich" {
  meta { owner = "shop" }
  constraint {
    attribute = "${node.class}"
    value     = "none"
  }
  affinity {
    attribute = "${node.datacenter}"
    value     = "dc1"
    weight    = 50
  }
  spread {
    attribute = "${node.unique.id}"
    weight    = 50
    target "a" { percent = 50 }
  }
  update {
    canary       = 1
    auto_promote = true
  }
  group "g" {
    count = 2
    scaling {
      min = 1
      max = 5
    }
    restart { attempts = 1 }
    reschedule {
      attempts  = 1
      interval  = "10m"
      unlimited = false
    }
    migrate { max_parallel = 2 }
    disconnect { lost_after = "1h" }
    ephemeral_disk { size = 110 }
    network {
      mode = "bridge"
      port "http" { to = 80 }
      port "admin" { static = 9999 }
    }
    volume "data" {
      type            = "csi"
      source          = "data"
      access_mode     = "multi-node-multi-writer"
      attachment_mode = "file-system"
    }
    service {
      name     = "web"
      port     = "http"
      provider = "nomad"
      tags     = ["a"]
      check {
        type     = "http"
        path     = "/"
        interval = "5s"
        timeout  = "1s"
        check_restart { limit = 3 }
      }
    }
    task "init" {
      driver = "exec"
      lifecycle { hook = "prestart" }
      config { command = "/bin/true" }
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/sleep" }
      env { A = "b" }
      meta { C = "d" }
      logs { max_files = 2 }
      artifact { source = "https://example.com/a.tgz" }
      template {
        data        = "x"
        destination = "local/x"
        wait { min = "1s" }
      }
      volume_mount {
        volume      = "data"
        destination = "/data"
      }
      identity { file = true }
      resources {
        cpu        = 10
        memory     = 10
        memory_max = 20
      }
    }
  }
}"#;

/// One that runs.
const PLAIN: &str = r#"
job "web" {
  group "g" {
    update { min_healthy_time = "0s" }
    ephemeral_disk { size = 110 }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
      resources {
        cpu    = 10
        memory = 10
      }
    }
  }
}"#;

/// One that other jobs are made of.
fn batch(id: &str, block: &str) -> String {
    format!(
        r#"
job "{id}" {{
  type = "batch"
  {block}
  group "g" {{
    task "t" {{
      driver = "raw_exec"
      config {{ command = "/bin/true" }}
    }}
  }}
}}"#
    )
}

/// Runs the program with the rights of an administrator; what it prints.
async fn sdk(stage: &Stage, args: &[&str], input: &str) -> String {
    let program = nomad_sdk::find_or_build(&Progress::silent()).expect("the program");
    // It has the authority written where the program looks for it.
    drop(Door::of(stage).await);
    let mut child = Command::new(program)
        .args(args)
        .env("NOMAD_ADDR", format!("https://localhost:{}", stage.users.port()))
        .env("NOMAD_CACERT", stage.cluster.path("gateway-ca"))
        .env("NOMAD_TOKEN", token_of(stage, User::Admin))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    child.stdin.take().expect("an input").write_all(input.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("ended");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_034_each_list_and_object_has_the_fields_that_the_newest_library_knows_and_no_others() {
    let stage = Stage::start("nomad-sdk", "").await;
    let cluster = &stage.cluster;
    let nomad = Nomad::of(&stage, User::Admin).await;
    let volume = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": "data" },
        "spec": { "pluginID": "ebs", "externalID": "vol-1",
                  "capabilities": [{ "accessMode": "multi-node-multi-writer", "attachmentMode": "file-system" }] },
    });
    cluster.kubectl_with(&["apply", "-f", "-"], Some(&volume.to_string())).expect("applied");
    let capability = json!({ "accessMode": "single-node-writer", "attachmentMode": "file-system" });
    let folder = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "HostVolume", "metadata": { "name": "ledger" },
        "spec": { "plugin": "mkdir", "parameters": { "mode": "0700" }, "capabilities": [capability] },
    });
    cluster.kubectl_with(&["apply", "-f", "-"], Some(&folder.to_string())).expect("applied");
    let made = async || nomad.get("volumes?type=host&filter=State+%3D%3D+ready").await.each("Name") == ["ledger"];
    cluster.eventually("the folder is made", async || made().await).await;
    let changed = RICH.replace("owner = \"shop\"", "owner = \"farm\"").replace("cpu        = 10", "cpu = 20");
    let parameterized = batch("batch", "parameterized { meta_optional = [\"a\"] }");
    let periodic = batch("nightly", "periodic { crons = [\"@daily\"] }");
    for text in [RICH, PLAIN, &parameterized, &periodic, &changed] {
        nomad.run(text).await;
    }
    let n_diffs = async || nomad.get("job/rich/versions?diffs=true").await.json()["Diffs"].as_array().map(Vec::len);
    cluster.eventually("the changed job has a second version", async || n_diffs().await == Some(1)).await;
    let deployed = async || nomad.get("job/web/deployment").await.json()["Status"] == "successful";
    cluster.eventually("the job is deployed", async || deployed().await).await;
    let blocked = async || nomad.get("evaluations?status=blocked").await.each("JobID") == ["rich"];
    cluster.eventually("the other waits", async || blocked().await).await;
    let id = async |path: &str, field: &str| nomad.get(path).await.each(field)[0].clone();
    let (evaluation, waiting) = (id("job/web/evaluations", "ID").await, id("evaluations?status=blocked", "ID").await);
    let (deployment, alloc) = (id("job/web/deployments", "ID").await, id("allocations", "ID").await);
    let folder = id("volumes?type=host", "ID").await;
    let (node, policy) = (id("nodes", "ID").await, id("scaling/policies", "ID").await);
    let mut asked = Vec::new();
    for job in ["rich", "web", "batch", "nightly"] {
        for (kind, of) in [("job", ""), ("summary", "/summary"), ("versions", "/versions"), ("scale", "/scale")] {
            asked.push(format!("{kind} /v1/job/{job}{of}"));
        }
    }
    for (kind, path) in [
        ("jobs", "jobs?meta=true".to_owned()),
        ("versions", "job/rich/versions?diffs=true".to_owned()),
        ("evaluations", "job/web/evaluations".to_owned()),
        ("deployments", "job/web/deployments".to_owned()),
        ("deployment", "job/web/deployment".to_owned()),
        ("allocations", "job/web/allocations".to_owned()),
        ("evaluations", "evaluations".to_owned()),
        ("evaluation", format!("evaluation/{evaluation}?related=true")),
        ("evaluation", format!("evaluation/{waiting}?related=true")),
        ("allocations", format!("evaluation/{evaluation}/allocations")),
        ("deployments", "deployments".to_owned()),
        ("deployment", format!("deployment/{deployment}")),
        ("allocations", format!("deployment/allocations/{deployment}")),
        ("allocations", "allocations?resources=true&task_states=true".to_owned()),
        ("~allocation", format!("allocation/{alloc}")),
        ("stats", format!("client/allocation/{alloc}/stats")),
        ("files", format!("client/fs/ls/{alloc}?path=/")),
        ("file", format!("client/fs/stat/{alloc}?path=/alloc")),
        ("nodes", "nodes?resources=true&os=true".to_owned()),
        ("node", format!("node/{node}")),
        ("~allocations", format!("node/{node}/allocations")),
        ("volumes", "volumes?type=csi".to_owned()),
        ("volume", "volume/csi/data".to_owned()),
        ("hostvolumes", "volumes?type=host".to_owned()),
        ("hostvolume", format!("volume/host/{folder}")),
        ("namespaces", "namespaces".to_owned()),
        ("regions", "regions".to_owned()),
        ("self", "agent/self".to_owned()),
        ("pools", "node/pools".to_owned()),
        ("pool", "node/pool/default".to_owned()),
        ("nodes", "node/pool/default/nodes?resources=true&os=true".to_owned()),
        ("jobs", "node/pool/default/jobs?meta=true".to_owned()),
        ("policies", "scaling/policies".to_owned()),
        ("policy", format!("scaling/policy/{policy}")),
        ("members", "agent/members".to_owned()),
        ("scheduler", "operator/scheduler/configuration".to_owned()),
        ("token", "acl/token/self".to_owned()),
        ("methods", "acl/auth-methods".to_owned()),
    ] {
        asked.push(format!("{kind} /v1/{path}"));
    }
    let faults = sdk(&stage, &["read"], &(asked.join("\n") + "\n")).await;
    assert!(faults.is_empty(), "\n{faults}");
}

/// G-045: what the provider of Terraform and the autoscaler do, by the library that both use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_045_terraforms_and_the_autoscalers_flows_are_complete() {
    let stage = Stage::start("nomad-flows", "").await;
    let scaled = PLAIN.replace("\"web\"", "\"scaled\"").replace(
        "update {",
        "count = 1\n    scaling {\n      max = 3\n      policy { cooldown = \"1m\" }\n    }\n    update {",
    );
    let found = PLAIN.replace("\"web\"", "\"found\"").replace(
        "update {",
        "network {\n      port \"http\" {}\n    }\n    service {\n      name = \"found\"\n      provider = \"nomad\"\n      port = \"http\"\n    }\n    update {",
    );
    for (flow, text) in [("terraform", PLAIN), ("versions", &found), ("autoscaler", &scaled)] {
        assert_eq!(sdk(&stage, &[flow], text).await, "complete\n", "{flow}");
    }
    stage.cluster.kubectl(&["delete", "djob", "--all", "-A", "--timeout=90s"]).expect("deleted");
}

/// G-045: what Terraform's provider does with volumes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_045_terraforms_flow_with_volumes_is_complete() {
    let stage = stage_with_driver("nomad-volume-flow").await;
    assert_eq!(sdk(&stage, &["volumes"], "hostdir").await, "complete\n");
}
