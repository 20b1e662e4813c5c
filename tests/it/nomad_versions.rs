//! Versions of jobs that clients of Nomad call stable and give names, on a real API server (`spec/api.md` 3,
//! `spec/gateway.md` 6), and who may.

use drover_api::JobVersion;
use drover_testkit::control_plane::User;
use http::Method;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::gateway::Stage;
use crate::nomad_api::{Nomad, Told};
use crate::nomad_writes::{AT_ONCE, file};

/// Number, whether stable, and the tag's name of each version, newest first.
async fn shown(nomad: &Nomad, job: &str) -> Vec<(i64, bool, String)> {
    let told = nomad.get(&format!("job/{job}/versions?namespace=shop")).await.json();
    let of = |it: &Value| {
        let tag = it["VersionTag"]["Name"].as_str().unwrap_or_default().to_owned();
        (it["Version"].as_i64().expect("a number"), it["Stable"] == true, tag)
    };
    told["Versions"].as_array().expect("a list").iter().map(of).collect()
}

async fn stable(nomad: &Nomad, version: i64, is_stable: bool) -> Told {
    let body = json!({ "JobID": "web", "JobVersion": version, "Stable": is_stable });
    nomad.send(Method::PUT, "job/web/stable?namespace=shop", &[], &body.to_string()).await
}

async fn apply(nomad: &Nomad, name: &str, body: &Value) -> Told {
    let path = format!("job/web/versions/{name}/tag?namespace=shop");
    nomad.send(Method::PUT, &path, &[], &body.to_string()).await
}

async fn unset(nomad: &Nomad, name: &str) -> Told {
    nomad.send(Method::DELETE, &format!("job/web/versions/{name}/tag?namespace=shop"), &[], "").await
}

fn shop(of_group: &str, script: &str) -> String {
    file("web", "namespace = \"shop\"", of_group, script)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_called_stable_and_named_as_nomads_clients_do() {
    let stage = Stage::start("nomad-versions", "").await;
    let cluster = &stage.cluster;
    cluster.namespace("shop").await;
    let nomad = Nomad::of(&stage, User::Admin).await;
    for script in ["exec sleep 1000", "exec sleep 2000"] {
        let answer = nomad.run(&shop(AT_ONCE, script)).await;
        let number = answer["JobModifyIndex"].as_i64().expect("an index") - 1;
        let is_deployed = async || {
            let deployment = nomad.get("job/web/deployment?namespace=shop").await.json();
            deployment["JobVersion"] == number && deployment["Status"] == "successful"
        };
        cluster.eventually("the version is deployed", is_deployed).await;
    }
    called(&stage, &nomad).await;
    named(&stage, &nomad).await;
    cluster.kubectl(&["delete", "djob", "--all", "-A", "--timeout=90s"]).expect("deleted");
}

async fn called(stage: &Stage, nomad: &Nomad) {
    let cluster = &stage.cluster;
    let told = stable(nomad, 1, false).await.json();
    assert!(told["JobModifyIndex"] == 2 && told["Index"].as_u64() > Some(0), "{told}");
    // It is read at once, and in a moment the job's own status says so too.
    assert_eq!(shown(nomad, "web").await, [(1, false, String::new()), (0, true, String::new())]);
    let of_job = async || nomad.get("job/web?namespace=shop").await.json()["Stable"].clone();
    cluster.eventually("the job shows it", async || of_job().await == false).await;
    // The controller looks at the job again, and leaves it.
    let scaled = json!({ "Count": 2, "Target": { "Group": "g" } }).to_string();
    assert_eq!(nomad.send(Method::PUT, "job/web/scale?namespace=shop", &[], &scaled).await.code, 200);
    let summary = async || nomad.get("job/web/summary?namespace=shop").await.json()["Summary"]["g"]["Running"].clone();
    cluster.eventually("two run", async || summary().await == 2).await;
    assert_eq!((shown(nomad, "web").await[0].1, of_job().await), (false, json!(false)));
    let columns = cluster.kubectl(&["get", "djv", "-n", "shop", "--no-headers"]).expect("versions");
    assert!(columns.lines().any(|line| line.contains("web-v1") && line.contains("false")), "{columns}");
    assert_eq!(stable(nomad, 1, true).await.code, 200);
    cluster.eventually("the job shows it", async || of_job().await == true).await;
    assert_eq!(stable(nomad, 9, true).await.code, 404);
    let lacks = json!({ "JobVersion": 1, "Stable": true }).to_string();
    let told = nomad.send(Method::PUT, "job/web/stable?namespace=shop", &[], &lacks).await;
    assert!(told.code == 400 && told.text.contains("JobID is missing"), "{}", told.text);
}

async fn named(stage: &Stage, nomad: &Nomad) {
    let told = apply(nomad, "golden", &json!({ "Version": 0, "Latest": false, "Description": "the good one" })).await;
    let told = told.json();
    assert_eq!((&told["Name"], &told["Description"]), (&json!("golden"), &json!("the good one")));
    assert_eq!(shown(nomad, "web").await, [(1, true, String::new()), (0, true, "golden".to_owned())]);
    let versions = nomad.get("job/web/versions?namespace=shop&diffs=true&diff_tag=golden").await.json();
    let tag = &versions["Versions"][1]["VersionTag"];
    assert_eq!((&tag["Description"], &tag["TaggedTime"]), (&json!("the good one"), &told["TaggedTime"]));
    assert_eq!(versions["Diffs"][0]["Type"], "Edited");
    let columns = stage.cluster.kubectl(&["get", "djv", "-n", "shop", "--no-headers"]).expect("versions");
    assert!(columns.lines().any(|line| line.contains("web-v0") && line.contains("golden")), "{columns}");

    let taken = apply(nomad, "golden", &json!({ "Version": 1 })).await;
    assert!(taken.code == 400 && taken.text.contains("that of version 0"), "{} {}", taken.code, taken.text);
    assert_eq!(apply(nomad, "newest", &json!({ "Description": "" })).await.code, 200);
    assert_eq!(shown(nomad, "web").await[0].2, "newest");
    assert_eq!(nomad.get("job/web?namespace=shop").await.json()["VersionTag"]["Name"], "newest");
    let long = apply(nomad, &"x".repeat(129), &json!({})).await;
    assert!(long.code == 400 && long.text.contains("128"), "{} {}", long.code, long.text);
    assert_eq!(apply(nomad, "none", &json!({ "Version": 9 })).await.code, 404);

    assert_eq!(unset(nomad, "golden").await.code, 200);
    let gone = unset(nomad, "golden").await;
    assert!(gone.code == 404 && gone.text.contains("golden"), "{} {}", gone.code, gone.text);
    assert_eq!(shown(nomad, "web").await[1], (0, true, String::new()));
    let columns = stage.cluster.kubectl(&["get", "djv", "-n", "shop", "--no-headers"]).expect("versions");
    assert!(!columns.contains("golden"), "{columns}");
}

/// Each version as it is stored.
async fn stored(stage: &Stage) -> Vec<JobVersion> {
    stage.cluster.versions("shop").list(&ListParams::default()).await.expect("versions").items
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_a_version_is_called_stable_or_named_by_one_who_may_not() {
    let stage = Stage::start("nomad-version-rights", "").await;
    let cluster = &stage.cluster;
    cluster.namespace("shop").await;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "top", "namespace": "shop" } });
    cluster.kubectl_with(&["apply", "-f", "-"], Some(&secret.to_string())).expect("applied");
    let (admin, ann) = (Nomad::of(&stage, User::Admin).await, Nomad::of(&stage, User::Developer).await);
    // Of these the first reads a Secret, and no node fits.
    let nowhere = "constraint {\n attribute = \"${attr.kernel.name}\"\n value = \"plan9\"\n }";
    let plain = admin.parsed(&shop(nowhere, "true")).await;
    let mut reads = plain.clone();
    let secret = json!({ "Name": "s", "Provider": "kubernetes", "Path": "top" });
    reads["TaskGroups"][0]["Tasks"][0]["Secrets"] = json!([secret]);
    for (number, job) in [reads, plain].into_iter().enumerate() {
        admin.put("jobs?namespace=shop", &json!({ "Job": job })).await.json();
        cluster.eventually("it has a version", async || stored(&stage).await.len() == number + 1).await;
    }
    let versions = async || admin.get("job/web/versions?namespace=shop").await.text;
    cluster.eventually("the gateway knows both", async || versions().await.contains("\"Version\":1")).await;
    assert_eq!(apply(&admin, "golden", &json!({ "Version": 0 })).await.code, 200);

    let before = stored(&stage).await;
    let denied = |told: &Told, right: &str| {
        assert_eq!(told.code, 403, "{}", told.text);
        assert!(told.text.contains(right) && told.text.contains("developer"), "{}", told.text);
    };
    stage.bind("view", "drover-view");
    let seen = async || ann.get("job/web/versions?namespace=shop").await.code == 200;
    cluster.eventually("the role is in force", seen).await;
    let right = "cannot update resource \"jobs\"";
    for is_stable in [true, false] {
        denied(&stable(&ann, 1, is_stable).await, right);
    }
    denied(&apply(&ann, "mine", &json!({ "Version": 1 })).await, right);
    denied(&unset(&ann, "golden").await, right);
    assert_eq!(stored(&stage).await, before, "something was written");

    stage.bind("edit", "drover-edit");
    let may = async || apply(&ann, "mine", &json!({ "Version": 1 })).await.code == 200;
    cluster.eventually("the role is in force", may).await;
    // An automatic revert would bring back what reads a Secret that is none of hers.
    let before = stored(&stage).await;
    denied(&stable(&ann, 0, true).await, "secrets \"top\"");
    assert_eq!(stored(&stage).await, before, "something was written");
    assert_eq!(stable(&admin, 0, true).await.code, 200);
    assert_eq!(stable(&ann, 1, true).await.code, 200);
    let before = stored(&stage).await;
    denied(&stable(&ann, 1, false).await, "secrets \"top\"");
    assert_eq!(stored(&stage).await, before, "something was written");
    let by_hand = ["patch", "djv", "web-v1", "-n", "shop", "--subresource=status", "--type=merge"];
    let patch = ["-p", r#"{"status":{"stable":false}}"#, "--as", User::Developer.name()];
    let refused = cluster.kubectl(&[&by_hand[..], &patch[..]].concat()).expect_err("refused");
    assert!(refused.contains("jobversions/status"), "{refused}");
    cluster.kubectl(&["delete", "djob", "--all", "-A", "--timeout=90s"]).expect("deleted");
}
