//! A system for one run of a bench: started as `up` starts it, with a data folder that goes away.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use drover_testkit::progress::Progress;
use drover_testkit::workspace;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::args::{BenchArgs, BenchName};
use super::waiting::until;
use crate::interruption::unless_interrupted;
use crate::up::{Session, UpArgs};

/// The namespace of the jobs.
pub(super) const NAMESPACE: &str = "default";
/// No event is waited for longer than that.
const EVENT_TIMEOUT: Duration = Duration::from_mins(1);

/// What agents with containers are told beside the usual.
const BRIDGE: &str = "network: {bridgeSubnet: 172.26.64.0/20}\n";

/// The system.
pub(super) struct Cluster<'a> {
    pub(super) session: &'a Session,
    client: kube::Client,
}

/// Starts a system, measures, and ends it, whatever came of the measuring; also when it is interrupted.
pub(super) async fn with_cluster<T>(
    args: &BenchArgs,
    audit: bool,
    progress: &Progress,
    measure: impl AsyncFnOnce(&Cluster<'_>) -> Result<T>,
) -> Result<T> {
    // On the disk of the checkout, where people's data folder lies too: etcd waits for that disk.
    let target = workspace::root().join("target");
    std::fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(&target).context("making a data folder")?;
    let up_args = up_args(args, audit, &folder.path().join("data"));
    let mut session = Session::open(up_args)?.context("another session has the new data folder")?;
    if args.name == BenchName::Containers {
        let path = session.layout().agent_additions();
        std::fs::write(&path, BRIDGE).with_context(|| format!("writing {}", path.display()))?;
    }
    let measured = unless_interrupted(async {
        session.start(progress).await?;
        let client = session.client().await?;
        measure(&Cluster { session: &session, client }).await
    })
    .await;
    session.stop(progress).await?;
    measured
}

impl Cluster<'_> {
    /// A client with all rights.
    pub(super) const fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Creates a service of `sleep` tasks that need next to nothing.
    pub(super) async fn create_job(&self, name: &str, count: usize) -> Result<()> {
        let job = job(name, count)?;
        self.api("Job").create(&PostParams::default(), &job).await.with_context(|| format!("creating djob/{name}"))?;
        Ok(())
    }

    /// Watches allocations from now on.
    pub(super) async fn watch_allocations(&self) -> Result<Allocations> {
        let api = self.api("Allocation");
        let now = api.list(&ListParams::default()).await.context("listing Allocations")?;
        let version = now.metadata.resource_version.context("a list without resourceVersion")?;
        let events = watch(&api, &version).await?;
        Ok(Allocations { api, version, events })
    }

    /// Waits until an allocation of the job runs, and returns its path in the aggregated API.
    pub(super) async fn running(&self, job: &str) -> Result<String> {
        let allocations = self.api("Allocation");
        let running = async || {
            let all = allocations.list(&ListParams::default()).await.context("listing Allocations")?;
            let text = |data: &Value, pointer: &str| data.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            let found = all.items.into_iter().find(|alloc| {
                text(&alloc.data, "/spec/jobName").as_deref() == Some(job)
                    && text(&alloc.data, "/status/clientStatus").as_deref() == Some("running")
            });
            anyhow::Ok(found.and_then(|alloc| alloc.metadata.name))
        };
        until(&format!("{job} runs"), async || Ok(running().await?.is_some())).await?;
        let alloc = running().await?.context("an allocation that ran does no longer")?;
        Ok(format!("/apis/subresources.drover.dev/v1alpha1/namespaces/{NAMESPACE}/allocations/{alloc}"))
    }

    pub(super) fn api(&self, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(drover_api::GROUP, drover_api::VERSION, kind);
        Api::namespaced_with(self.client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
    }
}

/// A watch on allocations, which goes on where it was cut.
pub(super) struct Allocations {
    api: Api<DynamicObject>,
    /// Of the last event.
    version: String,
    events: Events,
}

type Events = BoxStream<'static, Result<WatchEvent<DynamicObject>>>;

async fn watch(api: &Api<DynamicObject>, version: &str) -> Result<Events> {
    let params = WatchParams::default().timeout(290);
    let events = api.watch(&params, version).await.context("watching Allocations")?;
    Ok(events.map_err(anyhow::Error::from).boxed())
}

/// What an event says about an allocation.
pub(super) enum AllocSeen {
    Present {
        name: String,
        uid: String,
        job: String,
        client_status: String,
        is_healthy: bool,
        started_at: Option<Timestamp>,
    },
    Deleted {
        name: String,
    },
}

impl Allocations {
    /// Waits for the next event; returns when it came.
    pub(super) async fn next(&mut self) -> Result<(Instant, AllocSeen)> {
        let next = tokio::time::timeout(EVENT_TIMEOUT, self.next_of_an_object()).await;
        next.with_context(|| format!("no event of an Allocation within {} s", EVENT_TIMEOUT.as_secs()))?
    }

    async fn next_of_an_object(&mut self) -> Result<(Instant, AllocSeen)> {
        loop {
            let event = self.events.next().await;
            let at = Instant::now();
            let Some(event) = event else {
                // The API server cuts a client that reads too slowly, on a busy machine us too.
                self.events = watch(&self.api, &self.version).await?;
                continue;
            };
            match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.follow(object.metadata.resource_version.as_ref());
                    return Ok((at, seen(object)));
                }
                WatchEvent::Deleted(object) => {
                    self.follow(object.metadata.resource_version.as_ref());
                    return Ok((at, AllocSeen::Deleted { name: object.metadata.name.unwrap_or_default() }));
                }
                WatchEvent::Bookmark(bookmark) => self.version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => bail!("the watch on Allocations failed: {}", status.message),
            }
        }
    }

    fn follow(&mut self, version: Option<&String>) {
        if let Some(version) = version {
            self.version.clone_from(version);
        }
    }
}

/// What agents and tasks have written times by.
#[expect(clippy::disallowed_methods, reason = "times of this machine's clock are compared with it")]
pub(super) fn now() -> Timestamp {
    Timestamp::now()
}

fn seen(object: DynamicObject) -> AllocSeen {
    let text = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    AllocSeen::Present {
        job: text("/spec/jobName"),
        client_status: text("/status/clientStatus"),
        is_healthy: object.data.pointer("/status/health/healthy").and_then(Value::as_bool) == Some(true),
        started_at: text("/status/taskStates/sleep/startedAt").parse().ok(),
        uid: object.metadata.uid.unwrap_or_default(),
        name: object.metadata.name.unwrap_or_default(),
    }
}

fn job(name: &str, count: usize) -> Result<DynamicObject> {
    let job = json!({
        "apiVersion": drover_api::API_VERSION,
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "type": "service",
            "groups": [{
                "name": "sleep",
                "count": count,
                "ephemeralDisk": {"sizeMB": 10},
                "tasks": [{
                    "name": "sleep",
                    "driver": "raw_exec",
                    "config": {"command": "/bin/sleep", "args": ["100000"]},
                    "resources": {"cpu": 1, "memoryMB": 10},
                    "logs": {"maxFiles": 1, "maxFileSizeMB": 1},
                }],
            }],
        },
    });
    serde_json::from_value(job).context("building the job")
}

fn up_args(args: &BenchArgs, audit: bool, data: &Path) -> UpArgs {
    let usual = UpArgs::default();
    // One that holds its agent must not lose its node meanwhile.
    let heartbeat_grace = if args.name == BenchName::Agent { "300s".to_owned() } else { usual.heartbeat_grace.clone() };
    UpArgs {
        heartbeat_grace,
        examples: vec!["none".to_owned()],
        data: Some(data.to_path_buf()),
        no_restart: true,
        audit,
        containers: args.name == BenchName::Containers,
        profile: args.profile,
        ..usual
    }
}
