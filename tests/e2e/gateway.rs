//! The gateway as the chart installs it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::ground::{Ground, SYSTEM, holds, is_ready, said, text};

const API_SERVICE: &str = "v1alpha1.subresources.drover.dev";

/// G-001: available 10 s after the replicas are ready, and each has a tunnel of every node.
pub(crate) fn available_and_connected(ground: &Ground) -> Result<String> {
    ground.uninstall_if_installed()?;
    ground.installed()?;
    let since = ground.eventually("the gateway's replicas are ready", || {
        let pods = ground.pods("gateway")?;
        Ok((pods.len() == 2 && pods.iter().all(is_ready)).then(Instant::now))
    })?;
    ground.eventually("the aggregated API is available", || {
        Ok(holds(&ground.read(&["apiservice", API_SERVICE])?, "Available").then_some(()))
    })?;
    let available = since.elapsed();
    ensure!(available < Duration::from_secs(10), "available after {available:?}");
    let n_nodes = ground.read(&["cnode"])?["items"].as_array().map_or(0, Vec::len);
    ground.eventually("each replica has every node", || {
        for pod in ground.pods("gateway")? {
            let path = format!("/api/v1/namespaces/{SYSTEM}/pods/{}:9464/proxy/metrics", text(&pod, "/metadata/name"));
            let metrics = ground.kubectl(&["get", "--raw", &path])?;
            if !metrics.lines().any(|line| line == format!("drover_gateway_tunnels{{}} {n_nodes}")) {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })?;
    Ok(format!("available after {} ms, {n_nodes} nodes at each of 2 replicas", available.as_millis()))
}

/// The same bytes by the administrator's kubeconfig, by a token, by an exec plugin, and by the node's own socket. Of
/// G-002 the client certificate is left: this cluster has no authority for such.
pub(crate) fn logs_for_every_proof(ground: &Ground) -> Result<String> {
    ground.web()?;
    let allocations = ground.read(&["alloc"])?;
    let name = allocations["items"].as_array().into_iter().flatten().map(|it| text(it, "/metadata/name")).next();
    let name = name.context("an allocation of examples/web.yaml")?.to_owned();
    let first = ground.eventually("there is output", || {
        let output = ground.drover(&["alloc", "logs", &name])?;
        Ok((!output.is_empty()).then_some(output))
    })?;
    ground.kubectl(&["create", "serviceaccount", "reader"])?;
    ground.kubectl(&[
        "create",
        "rolebinding",
        "reader",
        "--clusterrole=drover-edit",
        "--serviceaccount=default:reader",
    ])?;
    let token = ground.kubectl(&["create", "token", "reader"])?.trim().to_owned();
    let folder = tempfile::tempdir().context("a folder")?;
    let plugin = folder.path().join("plugin");
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": { "token": token },
    });
    fs::write(&plugin, format!("#!/bin/sh\necho '{credential}'\n")).context("writing a plugin")?;
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o700)).context("writing a plugin")?;
    let users = [
        ("token", json!({ "token": token })),
        (
            "exec plugin",
            json!({ "exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": plugin, "interactiveMode": "Never",
            } }),
        ),
    ];
    for (proof, user) in users {
        let file = folder.path().join("kubeconfig");
        fs::write(&file, kubeconfig(ground, &user)?.to_string()).context("writing a kubeconfig")?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command.args(["alloc", "logs", &name]).env("KUBECONFIG", &file);
        let output = said(command, &["drover alloc logs by", proof])?;
        ensure!(same(&first, &output), "by {proof}: {output:?}, by the first: {first:?}");
    }
    let socket = "/var/lib/drover/state/agent.sock";
    let uid = ground.read(&["alloc", &name])?;
    let command = [env!("CARGO_BIN_EXE_drover"), "alloc", "--socket", socket, "logs", text(&uid, "/metadata/uid")];
    let output = ground.cluster.on_node("n1", &command)?;
    let output = String::from_utf8(output.stdout).context("reading what comes by the socket")?;
    ensure!(same(&first, &output), "by the socket: {output:?}, by the first: {first:?}");
    Ok(format!("{} bytes by kubeconfig, token, exec plugin and socket", first.len()))
}

/// What came earlier is the beginning of what came later: the task goes on writing.
fn same(earlier: &str, later: &str) -> bool {
    later.starts_with(earlier.trim_end())
}

/// The administrator's kubeconfig with another user.
fn kubeconfig(ground: &Ground, user: &Value) -> Result<Value> {
    let whole = ground.kubectl(&["config", "view", "--raw", "-o", "json"])?;
    let mut whole: Value = serde_json::from_str(&whole).context("reading a kubeconfig")?;
    whole["users"][0]["user"] = user.clone();
    Ok(whole)
}
