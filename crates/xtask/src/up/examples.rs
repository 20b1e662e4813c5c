//! Applies example manifests and follows their jobs until they are ready.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use drover_testkit::manifests::{self, Applied};
use drover_testkit::progress::{Progress, Step};
use drover_testkit::workspace;
use kube::api::{Api, DynamicObject};
use serde_json::Value;
use tokio::time::Instant;

/// How often a job's status is looked at; a person's eye is not faster.
const POLL: Duration = Duration::from_millis(100);

/// Returns the manifest of an example.
///
/// # Errors
/// Names the examples that there are.
pub(super) fn manifest(name: &str) -> Result<PathBuf> {
    let folder = workspace::root().join("examples");
    let path = folder.join(format!("{name}.yaml"));
    if name.contains('/') || !path.is_file() {
        let files = manifests::files_in(&folder)?;
        let names: Vec<_> = files.iter().filter_map(|file| file.file_stem()?.to_str()).collect();
        bail!("there is no example {name:?}: choose of {} or none", names.join(", "));
    }
    Ok(path)
}

/// Applies a manifest and waits until each of its jobs is ready.
pub(super) async fn apply_and_wait(
    client: &kube::Client,
    manifest: &Path,
    timeout: Duration,
    progress: &Progress,
) -> Result<()> {
    for object in manifests::read(manifest)? {
        let applied = manifests::apply(client, &object, "default").await?;
        if applied.resource.kind == "Job" && applied.resource.group == drover_api::GROUP {
            let step = progress.step(format!("djob/{}: waiting until it is healthy", applied.name));
            let result = wait_ready(client, &applied, timeout, &step).await?;
            step.done(result);
        }
    }
    Ok(())
}

async fn wait_ready(client: &kube::Client, job: &Applied, timeout: Duration, step: &Step) -> Result<String> {
    let namespace = job.namespace.as_deref().unwrap_or("default");
    let jobs: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &job.resource);
    let deadline = Instant::now() + timeout;
    loop {
        let object = jobs.get(&job.name).await.with_context(|| format!("reading djob/{}", job.name))?;
        let view = JobView::of(&object);
        if view.is_current && view.ready == "True" {
            return Ok(view.running);
        }
        if view.is_current && view.stalled.0 == "True" {
            bail!("djob/{} cannot become healthy: {}: {}", job.name, view.stalled.1, view.stalled.2);
        }
        if Instant::now() > deadline {
            bail!(
                "djob/{} is not healthy after {} s (--timeout): {}; see `kubectl describe djob/{}`",
                job.name,
                timeout.as_secs(),
                view.summary(),
                job.name
            );
        }
        step.moved(view.summary(), view.n_running, view.n_desired);
        tokio::time::sleep(POLL).await;
    }
}

/// What a waiter wants to know of a Job.
struct JobView {
    is_current: bool,
    ready: String,
    message: String,
    stalled: (String, String, String),
    running: String,
    n_running: u64,
    n_desired: u64,
}

impl JobView {
    fn of(object: &DynamicObject) -> Self {
        let condition = |kind: &str| {
            let all = object.data.pointer("/status/conditions").and_then(Value::as_array);
            let found = all.into_iter().flatten().find(|condition| text(condition, "/type") == kind);
            found
                .map(|found| (text(found, "/status"), text(found, "/reason"), text(found, "/message")))
                .unwrap_or_default()
        };
        let observed = object.data.pointer("/status/observedGeneration").and_then(Value::as_i64);
        let (ready, _, message) = condition("Ready");
        let running = text(&object.data, "/status/columns/running");
        let counts =
            running.split_once('/').and_then(|(running, desired)| Some((running.parse().ok()?, desired.parse().ok()?)));
        let (n_running, n_desired) = counts.unwrap_or((0, 0));
        Self {
            is_current: observed == object.metadata.generation,
            ready,
            message,
            stalled: condition("Stalled"),
            running,
            n_running,
            n_desired,
        }
    }

    fn summary(&self) -> String {
        if self.is_current {
            format!("{} running, {}", self.running, self.message)
        } else {
            "the controller has not seen it yet".to_owned()
        }
    }
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned()
}
