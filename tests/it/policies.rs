//! Admission policies: what they ask of those who write Jobs, and whether a controller knows that they deny.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use drover_testkit::control_plane::User;
use drover_testkit::probe;
use kube::config::{AuthInfo, Kubeconfig};
use serde_json::{Value, json};

use crate::chart::{SYSTEM, ask, client_with, furnish, installed, token};
use crate::cluster::{Cluster, Settings};

fn job(name: &str, spec: &Value) -> Value {
    let mut job = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": name },
        "spec": { "groups": [{ "name": "g", "tasks": [{ "name": "t", "driver": "mock" }] }] },
    });
    let own = job["spec"].as_object_mut().expect("an object");
    own.extend(spec.as_object().expect("an object").clone());
    job
}

/// A control plane with the chart's roles and policies, and the namespace `shop`.
async fn with_policies(name: &str) -> Cluster {
    let cluster = Cluster::start(name, Settings::default()).await;
    for folder in ["rbac", "policies"] {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/drover/files").join(folder);
        cluster.kubectl(&["apply", "-f", &folder.display().to_string()]).expect("roles and policies");
    }
    cluster.namespace("shop").await;
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_031_an_editor_who_would_evict_others() {
    let cluster = with_policies("x-031").await;
    for (user, role) in [("editor", "drover-edit"), ("boss", "drover-edit"), ("boss", "drover-priority")] {
        let binding =
            [&format!("{user}-{role}"), "-n", "shop", &format!("--clusterrole={role}"), &format!("--user={user}")];
        cluster.kubectl(&[&["create", "rolebinding"][..], &binding].concat()).expect("a binding");
    }
    let apply = |who: &str, more: &[&str], job: &Value| {
        let args = [&["apply", "-n", "shop", "-f", "-", "--as", who], more].concat();
        cluster.kubectl_with(&args, Some(&job.to_string()))
    };
    let dry = ["--dry-run=server"];
    let high = job("high", &json!({ "priority": 100 }));
    cluster
        .eventually("roles and policies are in force", async || {
            apply("editor", &dry, &high).is_err_and(|error| error.contains("jobs/priority"))
                && apply("boss", &dry, &high).is_ok()
        })
        .await;
    for (name, spec, field) in [
        ("high", json!({ "priority": 100 }), "spec.priority 100"),
        ("above", json!({ "priority": 51 }), "spec.priority 51"),
        ("every", json!({ "type": "system" }), "spec.type system"),
        ("both", json!({ "type": "system", "priority": 81 }), "spec."),
    ] {
        let wanted = job(name, &spec);
        let error = apply("editor", &[], &wanted).expect_err(name);
        for part in [field, name, "jobs/priority", "namespace shop", "drover-priority"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        apply("boss", &[], &wanted).expect("who has the right may");
    }
    for (name, spec) in
        [("usual", json!({})), ("low", json!({ "priority": 1 })), ("once", json!({ "type": "sysbatch" }))]
    {
        apply("editor", &[], &job(name, &spec)).expect(name);
    }
    // Raising is as making; leaving and lowering is not.
    let raised = apply("editor", &[], &job("usual", &json!({ "priority": 60 }))).expect_err("raised");
    assert!(raised.contains("spec.priority 60"), "{raised}");
    let patched =
        ["patch", "djob/low", "-n", "shop", "--as", "editor", "--type=merge", "-p", r#"{"spec":{"priority":99}}"#];
    cluster.kubectl(&patched).expect_err("a patch is no way around it");
    apply("editor", &[], &job("high", &json!({ "priority": 100, "meta": { "a": "b" } }))).expect("as high as it was");
    apply("editor", &[], &job("every", &json!({ "type": "system", "meta": { "a": "b" } }))).expect("what it was");
    apply("editor", &[], &job("high", &json!({ "priority": 70 }))).expect("lower");
    apply("editor", &[], &job("high", &json!({ "priority": 71 }))).expect_err("and up again");
    let probe = apply("boss", &[], &job("drover-priorities-probe", &json!({}))).expect_err("the name of the probe");
    assert!(probe.contains("choose another name"), "{probe}");
}

/// A kubeconfig with the token of a service account.
fn kubeconfig_of(cluster: &Cluster, account: &str) -> std::path::PathBuf {
    let mut file = Kubeconfig::read_from(cluster.plane.kubeconfig(User::Admin)).expect("a kubeconfig");
    let token = token(cluster, account, None);
    for user in &mut file.auth_infos {
        user.auth_info = Some(AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() });
    }
    let path = cluster.path(&format!("{account}.kubeconfig"));
    let mut text = serde_json::to_value(&file).expect("JSON");
    for user in text["users"].as_array_mut().into_iter().flatten() {
        // It is not written out as it is.
        user["user"]["token"] = json!(token);
    }
    std::fs::write(&path, text.to_string()).expect("a file");
    path
}

/// Who may create jobs and may not read a Secret gets nothing of it by a dispatch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_a_dispatch_that_names_a_secret_its_author_cannot_read() {
    let cluster = with_policies("dispatch-secret").await;
    let grant = |args: &[&str]| drop(cluster.kubectl(&[args, &["-n", "shop"]].concat()).expect("a right"));
    grant(&["create", "role", "order", "--verb=get", "--resource=secrets", "--resource-name=order"]);
    for user in ["author", "stranger"] {
        let to = format!("--user={user}");
        grant(&["create", "rolebinding", &format!("{user}-edit"), "--clusterrole=drover-edit", &to]);
    }
    grant(&["create", "rolebinding", "author-order", "--role=order", "--user=author"]);
    let dispatch = |name: &str, secret: &str| {
        json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": name },
                "spec": { "type": "batch", "dispatch": { "parent": "report", "payloadSecret": secret } } })
    };
    let create = |who: &str, secret: &str| {
        let args = ["create", "-n", "shop", "-f", "-", "--dry-run=server", "--as", who];
        cluster.kubectl_with(&args, Some(&dispatch("monday", secret).to_string()))
    };
    let is_in_force = async || {
        create("stranger", "order").is_err_and(|error| error.contains("payloadSecret"))
            && create("author", "order").is_ok()
    };
    cluster.eventually("roles and policies are in force", is_in_force).await;
    for (who, secret) in [("stranger", "order"), ("author", "other")] {
        let error = create(who, secret).expect_err("refused");
        for part in ["spec.dispatch.payloadSecret", secret, "monday", "namespace shop", "name one that you may read"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    create("stranger", "").expect("one without a Secret");
}

async fn readiness(at: SocketAddr) -> (u16, String) {
    let answer = probe::get(at, "/readyz").await;
    answer.map_or((0, String::new()), |(code, text)| (code.as_u16(), text))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_028_policies_that_deny_no_more() {
    let cluster = installed("x-028", &[]).await;
    let kubeconfig = kubeconfig_of(&cluster, "drover-controller");
    let more = format!(
        "namespace: {SYSTEM}\nrequiresNodeRestriction: true\nrequiredPolicies: [drover-intents, drover-plugins, drover-priorities, drover-secrets]\n"
    );
    let (_controller, at) = cluster.probed_controller("controller", &kubeconfig, &more).await;
    let is_ready = async || readiness(at).await.0 == 200;
    cluster.eventually("the controller is ready", is_ready).await;

    let never = r#"{"spec":{"matchConditions":[{"name":"never","expression":"false"}]}}"#;
    for (kind, name, patch, reason) in [
        (
            "binding",
            "drover-node-restriction",
            r#"{"spec":{"validationActions":["Audit"]}}"#,
            "is bound with Audit and not with Deny",
        ),
        (
            "binding",
            "drover-priorities",
            r#"{"spec":{"validationActions":["Warn"]}}"#,
            "is bound with Warn and not with Deny",
        ),
        ("", "drover-node-restriction", r#"{"spec":{"failurePolicy":"Ignore"}}"#, "has failurePolicy Ignore"),
        ("", "drover-node-restriction", never, "denies nothing"),
        ("", "drover-plugins", never, "denies nothing"),
        ("", "drover-priorities", never, "denies nothing"),
        ("", "drover-secrets", never, "denies nothing"),
        ("", "drover-intents", never, "has matchConditions"),
        ("binding", "drover-intents", "", "has no binding"),
        ("", "drover-intents", "", "is missing"),
    ] {
        let object = format!("validatingadmissionpolicy{kind}/{name}");
        let stored = cluster.kubectl(&["get", &object, "-o", "json"]).expect("an object");
        if patch.is_empty() {
            cluster.kubectl(&["delete", &object]).expect("deleted");
        } else {
            cluster.kubectl(&["patch", &object, "--type=merge", "-p", patch]).expect("patched");
        }
        let says = async || {
            let (code, text) = readiness(at).await;
            code == 503 && text.contains(&format!("{name} {reason}"))
        };
        let changed = Instant::now();
        cluster.eventually(&format!("readiness says that {object} {reason}"), says).await;
        let took = changed.elapsed();
        assert!(took < Duration::from_secs(10), "readiness took {took:?} to say that {object} {reason}");
        let mut before: Value = serde_json::from_str(&stored).expect("JSON");
        let metadata = before["metadata"].as_object_mut().expect("metadata");
        metadata.retain(|field, _| ["name", "labels", "annotations"].contains(&field.as_str()));
        if !patch.is_empty() {
            cluster.kubectl(&["delete", &object]).expect("deleted");
        }
        cluster.kubectl_with(&["create", "-f", "-"], Some(&before.to_string())).expect("as before");
        cluster.eventually(&format!("the controller is ready after {object}"), is_ready).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_others_are_made_with_generated_names_and_deleted_as_a_collection() {
    let cluster = installed("leases-of-others", &[]).await;
    furnish(&cluster);
    let stolen = client_with(&cluster, &token(&cluster, "drover-agent", Some("n-1"))).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/shop/leases";
    let lease =
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "generateName": "theirs-" } });
    let in_force = async || ask(&stolen, "POST", leases, &lease).await.0 == 403;
    cluster.eventually("the policy is in force", in_force).await;
    for (method, body) in [("POST", lease.clone()), ("DELETE", Value::Null)] {
        let (code, text) = ask(&cluster.client, method, leases, &body).await;
        assert_eq!(code, 200, "{method}: {text}");
    }
    assert_eq!(cluster.kubectl(&["get", "lease", "-n", "shop", "-o", "name"]).expect("a list"), "");
}

/// B-063: who may not make tokens of a `ServiceAccount` gives none to a task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_b_063_an_author_who_names_a_service_account_that_is_not_his() {
    let cluster = with_policies("task-account").await;
    let grant = |args: &[&str]| drop(cluster.kubectl(&[args, &["-n", "shop"]].concat()).expect("a right"));
    grant(&["create", "role", "own", "--verb=create", "--resource=serviceaccounts/token", "--resource-name=own"]);
    for user in ["author", "stranger"] {
        grant(&[
            "create",
            "rolebinding",
            &format!("{user}-edit"),
            "--clusterrole=drover-edit",
            &format!("--user={user}"),
        ]);
    }
    grant(&["create", "rolebinding", "author-own", "--role=own", "--user=author"]);
    let names = |accounts: &[&str]| {
        let identity = |(n, name): (usize, &&str)| json!({ "name": format!("i{n}"), "file": true, "kubernetes": { "serviceAccount": name } });
        let identities: Vec<Value> = accounts.iter().enumerate().map(identity).collect();
        let task = json!({ "name": "t", "driver": "mock", "identities": identities });
        job("web", &json!({ "groups": [{ "name": "g", "tasks": [task] }] }))
    };
    let apply = |who: &str, accounts: &[&str]| {
        let args = ["apply", "-n", "shop", "-f", "-", "--as", who, "--dry-run=server"];
        cluster.kubectl_with(&args, Some(&names(accounts).to_string()))
    };
    let four = ["own"; 4];
    let is_in_force = async || {
        apply("stranger", &["own"]).is_err_and(|error| error.contains("serviceaccounts/token"))
            && apply("author", &four).is_ok()
    };
    cluster.eventually("roles and policies are in force", is_in_force).await;
    for (who, accounts, named) in [
        ("stranger", &["own"][..], "ServiceAccount own"),
        ("author", &["own", "own", "own", "closed"], "ServiceAccount closed"),
        ("author", &["own"; 5], "above 4"),
    ] {
        let error = apply(who, accounts).expect_err("refused");
        for part in ["spec.groups[].tasks[].identities[].kubernetes", "job web", named] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    apply("stranger", &[]).expect("one without");
}

/// B-054: who may not read an object gives no task its values.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_b_054_an_author_who_lists_a_secret_that_he_cannot_read() {
    let cluster = with_policies("task-secret").await;
    let grant = |args: &[&str]| drop(cluster.kubectl(&[args, &["-n", "shop"]].concat()).expect("a right"));
    let own: Vec<String> = (0..16).map(|n| format!("--resource-name=own-{n}")).collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    grant(&[&["create", "role", "own", "--verb=get", "--resource=secrets"][..], &own].concat());
    grant(&["create", "role", "map", "--verb=get", "--resource=configmaps", "--resource-name=own-0"]);
    for user in ["author", "stranger"] {
        let to = format!("--user={user}");
        grant(&["create", "rolebinding", &format!("{user}-edit"), "--clusterrole=drover-edit", &to]);
    }
    grant(&["create", "rolebinding", "author-own", "--role=own", "--user=author"]);
    grant(&["create", "rolebinding", "author-map", "--role=map", "--user=author"]);
    let lists = |name: &str, paths: &[(&str, &str)]| {
        let secrets: Vec<Value> = paths
            .iter()
            .enumerate()
            .map(|(n, (provider, path))| json!({ "name": format!("s{n}"), "provider": provider, "path": path }))
            .collect();
        job(
            name,
            &json!({ "groups": [{ "name": "g", "tasks": [{ "name": "t", "driver": "mock", "secrets": secrets }] }] }),
        )
    };
    let apply = |who: &str, more: &[&str], job: &Value| {
        let args = [&["apply", "-n", "shop", "-f", "-", "--as", who], more].concat();
        cluster.kubectl_with(&args, Some(&job.to_string()))
    };
    let dry = ["--dry-run=server"];
    let all: Vec<String> = (0..16).map(|n| format!("own-{n}")).collect();
    let all: Vec<(&str, &str)> = all.iter().map(|name| ("kubernetes", name.as_str())).collect();
    let one = lists("one", &[("kubernetes", "own-0")]);
    let is_in_force = async || {
        apply("stranger", &dry, &one).is_err_and(|error| error.contains("tasks[].secrets"))
            && apply("author", &dry, &lists("all", &all)).is_ok()
    };
    cluster.eventually("roles and policies are in force", is_in_force).await;
    let mut last_is_closed = all.clone();
    last_is_closed[15] = ("kubernetes", "closed");
    for (who, paths, named) in [
        ("stranger", &[("kubernetes", "own-0")][..], "secrets/own-0"),
        ("author", &last_is_closed, "secrets/closed"),
        ("author", &[("configmap", "own-1")], "configmaps/own-1"),
        ("author", &[("nomad", "nomad/jobs/web")], "secrets/nomad.jobs.web"),
    ] {
        let error = apply(who, &[], &lists("web", paths)).expect_err("refused");
        for part in ["spec.groups[].tasks[].secrets", "job web", named, "namespace shop", "name one that you may read"]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    apply("author", &[], &lists("web", &[("kubernetes", "own-0"), ("configmap", "own-0")])).expect("what one may read");
    // Who may change the job and may not read the Secret does not send its values elsewhere.
    let patch = |field: &str, value: Value| {
        let patch = json!([{ "op": "add", "path": field, "value": value }]).to_string();
        cluster.kubectl(&["patch", "djob/web", "-n", "shop", "--as", "stranger", "--type=json", "-p", &patch])
    };
    let error = patch("/spec/groups/0/tasks/0/config", json!({ "runFor": "1s" })).expect_err("another command");
    assert!(error.contains("secrets/own-0"), "{error}");
    patch("/spec/meta", json!({ "a": "b" })).expect("what leaves the groups as they are");
    apply("stranger", &[], &lists("plain", &[])).expect("one without secrets");
    // More than the policy asks for are refused before it.
    let mut many = all.clone();
    many.push(("configmap", "own-0"));
    let error = apply("author", &[], &lists("many", &many)).expect_err("17 of them");
    assert!(error.contains("16"), "{error}");
}
