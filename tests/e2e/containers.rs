//! Containers of drover's by the kubelet's own containerd.

use anyhow::{Context as _, Result, ensure};
use drover_testkit::cluster::Cluster;
use drover_testkit::process::ProcessId;
use serde_json::{Value, json};

use crate::ground::{Ground, SYSTEM, is_ready, text};

/// The argument by which processes of the job are told from those that hold pods open.
const MARK: &str = "a-task-of-drover";

/// Two allocations of a container each.
fn job() -> Value {
    json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "containers" },
        "spec": { "groups": [{ "name": "g", "count": 2, "networks": [{ "mode": "none" }], "tasks": [{
            "name": "t", "driver": "containerd", "resources": { "cpu": 20, "memoryMB": 16 },
            "config": { "image": Cluster::PAUSE_IMAGE, "args": [MARK] },
        }] }] },
    })
}

fn processes(ground: &Ground) -> Result<Vec<ProcessId>> {
    let mut found = ground.programs("pause", |args| args.first().is_some_and(|arg| arg == MARK))?;
    ensure!(found.len() == 2, "{} containers run instead of 2", found.len());
    found.sort_by_key(|id| id.pid);
    Ok(found)
}

fn unchanged(ground: &Ground, before: &[ProcessId], after: &str) -> Result<()> {
    let agent = || -> Result<Option<()>> {
        let pods = ground.pods("agent")?;
        Ok((pods.len() == 1 && pods.iter().all(is_ready)).then_some(()))
    };
    ground.eventually("one agent is ready", agent)?;
    let now = processes(ground)?;
    ensure!(now == before, "after {after} the containers' processes were {before:?} and are {now:?}");
    for item in ground.read(&["alloc", "-l", "drover.dev/job=containers"])?["items"].as_array().context("a list")? {
        let (status, restarts) = (text(item, "/status/clientStatus"), &item["status"]["taskStates"]["t"]["restarts"]);
        ensure!(status == "running" && restarts.as_i64().unwrap_or(0) == 0, "after {after} one is {status}: {item}");
    }
    Ok(())
}

pub(crate) fn outlive_the_agents_pod_and_upgrades(ground: &Ground) -> Result<String> {
    ground.installed()?;
    ground.cluster.give_pause_image()?;
    ground.offer_containers()?;
    ground.apply(&job().to_string())?;
    ground.kubectl(&["wait", "--for=condition=Ready", "djob/containers", "--timeout", "120s"])?;
    let before = processes(ground)?;
    for _ in 0..3 {
        let agents = ground.pods("agent")?;
        let name = text(agents.first().context("an agent")?, "/metadata/name");
        ground.kubectl(&["delete", "pod", name, "-n", SYSTEM, "--wait=true"])?;
        unchanged(ground, &before, "the agent's pod was deleted")?;
    }
    for level in ["debug", "info"] {
        ground.upgrade(&[&format!("agent.logLevel={level}")])?;
        ground.kubectl(&["rollout", "status", "ds/drover-agent", "-n", SYSTEM, "--timeout", "120s"])?;
        unchanged(ground, &before, "an upgrade of the chart")?;
    }
    ground.kubectl(&["delete", "djob/containers", "--wait=true", "--timeout", "60s"])?;
    let left = || -> Result<Option<()>> {
        Ok(ground.programs("pause", |args| args.first().is_some_and(|arg| arg == MARK))?.is_empty().then_some(()))
    };
    ground.eventually("no container is left", left)?;
    Ok("2 containers with the same processes after 3 pods and 2 upgrades, and none after the job".to_owned())
}
