//! A node that is to be empty: `kubectl drain` moves its pods, drover's drain its tasks.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::ground::{Ground, text};

pub(crate) fn pods_and_tasks_move(ground: &Ground) -> Result<String> {
    ground.web()?;
    let on = |node: &str| ground.tasks_on(node).map(|tasks| tasks.len());
    let node = if on("n1")? > 0 { "n1" } else { "n2" };
    let other = if node == "n1" { "n2" } else { "n1" };
    let (here, there) = (on(node)?, on(other)?);
    ensure!(here + there == 3, "{here} and {there} tasks run instead of 3");

    let started = Instant::now();
    ground.kubectl(&["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout", "120s"])?;
    ensure!(on(node)? == here, "kubectl drain has ended tasks, which are no pods");
    for pod in ground.pods("controller")? {
        let at = text(&pod, "/spec/nodeName");
        ensure!(at != node, "{} is still on {node}", text(&pod, "/metadata/name"));
    }
    let pods_moved = started.elapsed();

    let drained = Instant::now();
    ground.drover(&["node", "drain", node, "--deadline", "2m"])?;
    ground.eventually("all tasks run on the other node", || Ok((on(node)? == 0 && on(other)? == 3).then_some(())))?;
    let tasks_moved = drained.elapsed();
    ground.kubectl(&["wait", "--for=condition=Ready", "djob/web", "--timeout", "60s"])?;
    ground.eventually("the drain is over", || {
        let object = ground.read(&["cnode", node])?;
        Ok(object["spec"].get("drain").is_none_or(serde_json::Value::is_null).then_some(()))
    })?;
    let agents = ground.pods("agent")?;
    let stays = agents.iter().any(|pod| text(pod, "/spec/nodeName") == node);
    ensure!(stays, "the agent of {node} is gone");
    ground.kubectl(&["uncordon", node]).context("uncordoning")?;
    ground.drover(&["node", "eligibility", node, "--enable"])?;
    Ok(format!(
        "kubectl drain moved the pods in {:.1} s and no task, drover node drain {here} tasks in {:.1} s",
        pods_moved.as_secs_f64(),
        tasks_moved.as_secs_f64()
    ))
}
