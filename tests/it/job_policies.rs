//! What the API server says of Jobs beyond their schema: old fields are told at every apply, and settings that a driver
//! does not know are refused.

use drover_core::task::driver_config;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Settings};

fn file() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/drover/files/policies/jobs.yaml")
}

/// A control plane with the policies in force. The API server takes a new policy into account a moment after it stored
/// it.
async fn with_policies() -> Cluster {
    let cluster = Cluster::start("policies", Settings::default()).await;
    cluster.kubectl(&["apply", "-f", &file().display().to_string()]).expect("the policies");
    let (old, wrong) = (old_job(), job("probe", &json!({ "runfor": "1s" })));
    cluster
        .eventually("both policies are in force", async || {
            let dry = ["create", "--dry-run=server", "-f", "-"];
            let warned = cluster.kubectl_output(&dry, Some(&old.to_string()));
            let refused = cluster.kubectl_output(&dry, Some(&wrong.to_string()));
            String::from_utf8_lossy(&warned.stderr).contains("Warning:") && !refused.status.success()
        })
        .await;
    cluster
}

fn job(name: &str, config: &Value) -> Value {
    json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": name, "namespace": "default" },
        "spec": { "groups": [{ "name": "g", "tasks": [{ "name": "t", "driver": "mock", "config": config }] }] } })
}

/// A job that has every old field.
fn old_job() -> Value {
    let mut job = job("old", &json!({}));
    job["spec"]["type"] = json!("batch");
    job["spec"]["periodic"] = json!({ "cron": "@daily" });
    let group = &mut job["spec"]["groups"][0];
    group["maxClientDisconnect"] = json!("1h");
    group["stopAfterClientDisconnect"] = json!("1h");
    group["preventRescheduleOnLost"] = json!(true);
    group["networks"] = json!([{ "mbits": 10 }]);
    job
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_apply_of_a_job_with_old_fields_says_what_to_write_instead() {
    let cluster = with_policies().await;
    let told = |job: &Value| -> Vec<String> {
        let output = cluster.kubectl_output(&["apply", "--server-side", "-f", "-"], Some(&job.to_string()));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        let warnings = text.lines().filter(|line| line.starts_with("Warning:"));
        let binding = "with binding 'drover-old-fields': ";
        warnings.map(|line| line.split_once(binding).map_or(line, |(_, said)| said).to_owned()).collect()
    };
    let wanted = [
        "spec.groups[].maxClientDisconnect is an old form and ignored; write disconnect.lostAfter",
        "spec.groups[].stopAfterClientDisconnect is an old form that only the node acts on; write disconnect.stopOnClientAfter",
        "spec.groups[].preventRescheduleOnLost is an old form and ignored; write disconnect.replace",
        "spec.groups[].networks[].mbits is not enforced; remove it",
        "spec.periodic.cron is the old form for one expression; write crons: [...]",
    ];
    for time in ["first", "second"] {
        assert_eq!(told(&old_job()), wanted, "at the {time} apply");
    }
    assert_eq!(told(&job("new", &json!({}))), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_a_driver_does_not_know_are_refused_and_a_stored_job_can_still_be_stopped() {
    let cluster = with_policies().await;
    let apply = |job: &Value| cluster.kubectl_with(&["apply", "-f", "-"], Some(&job.to_string()));
    for driver in driver_config::DRIVERS {
        let mut known = serde_json::Map::new();
        for key in driver_config::keys(driver) {
            known.insert((*key).to_owned(), json!("x"));
        }
        let mut accepted = job(&format!("good-{}", driver.replace('_', "-")), &Value::Object(known));
        accepted["spec"]["groups"][0]["tasks"][0]["driver"] = json!(driver);
        apply(&accepted).expect("every key of the driver");
        let mut refused = accepted.clone();
        refused["metadata"]["name"] = json!("bad");
        refused["spec"]["groups"][0]["tasks"][0]["config"] = json!({ "comand": "x" });
        let error = apply(&refused).expect_err("refused");
        let wanted = format!(
            "spec.groups[].tasks[].config has a key that driver {driver} does not know; take one of {}",
            driver_config::keys(driver).join(", ")
        );
        assert!(error.contains(&wanted), "{error}");
    }
    // One that was stored before the policy was there.
    let policy = |action: &str| {
        let patch = format!(r#"{{"spec":{{"validationActions":["{action}"]}}}}"#);
        cluster
            .kubectl(&[
                "patch",
                "validatingadmissionpolicybinding",
                "drover-driver-config",
                "--type=merge",
                "-p",
                &patch,
            ])
            .expect("the binding");
    };
    let mut stored = job("stored", &json!({ "comand": "x" }));
    policy("Warn");
    cluster.eventually("it is stored", async || apply(&stored).is_ok()).await;
    policy("Deny");
    let probe = job("probe", &json!({ "comand": "x" }));
    cluster
        .eventually("the policy is in force again", async || {
            let dry = cluster.kubectl_output(&["create", "--dry-run=server", "-f", "-"], Some(&probe.to_string()));
            !dry.status.success()
        })
        .await;
    cluster
        .kubectl(&["patch", "djob", "stored", "--type=merge", "-p", r#"{"spec":{"stop":true}}"#])
        .expect("a stored job is stopped");
    stored["spec"]["groups"][0]["count"] = json!(2);
    apply(&stored).expect_err("a change of its groups is refused");
}
