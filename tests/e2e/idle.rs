//! What a controller costs that has nothing to do.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::ground::{Ground, chart};

const JOBS: usize = 200;
const COUNT: usize = 5;
/// How long nothing happens.
const IDLE: Duration = Duration::from_mins(10);
/// Less than so many bytes of memory.
const MOST_RSS: u64 = 100_000_000;
/// Less than so much of one core.
const MOST_CPU: f64 = 0.02;

pub(crate) fn a_controller_without_work(ground: &Ground) -> Result<String> {
    // The least that tasks can ask for is 10 MiB each.
    ground.install(&chart(), &["agent.resources.requests.memory=12Gi"])?;
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": (0..JOBS).map(job).collect::<Vec<_>>() });
    ground.apply(&list.to_string())?;
    ground.kubectl(&["wait", "--for=condition=Ready", "djob", "--all", "--timeout", "600s"])?;

    let controllers = ground.processes("controller")?;
    ensure!(controllers.len() == 2, "{} controllers run instead of 2", controllers.len());
    let before: Vec<Duration> = controllers.iter().map(|id| id.cpu_time()).collect();
    let mut most_rss = vec![0; controllers.len()];
    ground.through(IDLE, || {
        for (most, id) in most_rss.iter_mut().zip(&controllers) {
            ensure!(id.is_alive(), "a controller has ended");
            *most = (*most).max(id.rss_bytes());
        }
        Ok(())
    })?;
    let mut said = Vec::new();
    for ((id, before), rss) in controllers.iter().zip(before).zip(most_rss) {
        let cpu = id.cpu_time().saturating_sub(before).as_secs_f64() / IDLE.as_secs_f64();
        let (megabytes, percent) = (rss / 1_000_000, cpu * 100.0);
        ensure!(rss < MOST_RSS, "a controller has {megabytes} MB");
        ensure!(cpu < MOST_CPU, "a controller takes {percent:.2} % of a core");
        said.push(format!("{megabytes} MB and {percent:.2} % of a core"));
    }
    Ok(format!("{JOBS} jobs of {COUNT} tasks, idle for {} s: {}", IDLE.as_secs(), said.join("; ")))
}

fn job(number: usize) -> serde_json::Value {
    let task = json!({
        "name": "t", "driver": "raw_exec", "config": { "command": "sleep", "args": ["infinity"] },
        "resources": { "cpu": 1, "memoryMB": 10 }, "logs": { "maxFiles": 1, "maxFileSizeMB": 1 },
    });
    let group = json!({ "name": "g", "count": COUNT, "ephemeralDisk": { "sizeMB": 10 }, "tasks": [task] });
    json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": format!("idle-{number}") },
        "spec": { "groups": [group] },
    })
}
