//! What the API server still says of the session before this one.
//!
//! `down` is a power-off: no process reports that node and tasks are gone, so their last status is still ready and
//! running. A command that waits for the system must not take that for the present.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use drover_testkit::progress::Step;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::Value;
use tokio::time::Instant;

/// How often the API server is asked.
const POLL: Duration = Duration::from_millis(50);
/// The Lease that the leading controller holds.
const LEADER_LEASE: &str = "drover-controller";
/// Where the leader tells the nodes how often to beat.
const HEARTBEAT_SETTINGS: &str = "drover-heartbeat";

/// The marks that an earlier session left, read before this one's controller and agent start.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// When the leader was heard of last.
    leader: Option<String>,
    /// When each node was heard of last.
    heartbeats: BTreeMap<String, String>,
    /// The last report about each allocation that should run, by namespace and name. Empty when its tasks were kept
    /// running.
    reports: BTreeMap<(String, String), String>,
}

impl Earlier {
    /// Reads the marks.
    pub(super) async fn observe(client: &kube::Client, tasks_were_kept: bool) -> Result<Self> {
        let leader = leader(client).await?;
        let heartbeats = heartbeats(client).await?;
        let reports = if tasks_were_kept { BTreeMap::new() } else { reports(client).await? };
        Ok(Self { leader, heartbeats, reports })
    }

    /// Waits until a controller of this session leads and has told the nodes how often to beat, which it does when it
    /// knows all that is stored. A node that registers before it is watched is believed only at its second heartbeat.
    pub(super) async fn wait_for_leader(&self, client: &kube::Client, timeout: Duration) -> Result<()> {
        let settings: Api<ConfigMap> = Api::namespaced(client.clone(), drover_api::SYSTEM_NAMESPACE);
        let deadline = Instant::now() + timeout;
        loop {
            let leader = leader(client).await?;
            let published = settings.get_opt(HEARTBEAT_SETTINGS).await.context("reading the heartbeat settings")?;
            if leader.is_some() && leader != self.leader && published.is_some() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("no controller leads after {} s", timeout.as_secs());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until a node is ready that was heard of in this session; returns its name.
    pub(super) async fn wait_for_node(&self, client: &kube::Client, timeout: Duration) -> Result<String> {
        let nodes: Api<DynamicObject> = Api::all_with(client.clone(), &resource("ClientNode"));
        let deadline = Instant::now() + timeout;
        loop {
            let list = nodes.list(&ListParams::default()).await.context("listing ClientNodes")?;
            let beats = heartbeats(client).await?;
            let phases: Vec<(String, &str)> = list
                .items
                .iter()
                .map(|node| (node.metadata.name.clone().unwrap_or_default(), phase_of(node)))
                .collect();
            let is_heard = |name: &str| beats.get(name).is_some_and(|beat| self.heartbeats.get(name) != Some(beat));
            if let Some((name, _)) = phases.iter().find(|(name, phase)| *phase == "ready" && is_heard(name)) {
                return Ok(name.clone());
            }
            if Instant::now() > deadline {
                let seen: Vec<String> = phases.iter().map(|(name, phase)| format!("{name} is {phase}")).collect();
                let seen = if seen.is_empty() { "none has registered".to_owned() } else { seen.join(", ") };
                bail!("no node is ready after {} s: {seen}", timeout.as_secs());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Says how many allocations should run again.
    pub(super) fn n_allocations(&self) -> usize {
        self.reports.len()
    }

    /// Waits until each allocation of the earlier session was reported on in this one, or is not to run any more.
    pub(super) async fn wait_for_reports(&self, client: &kube::Client, timeout: Duration, step: &Step) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let now = reports(client).await?;
            let silent: Vec<&str> = self
                .reports
                .iter()
                .filter(|(key, old)| now.get(key) == Some(old))
                .map(|((_, name), _)| name.as_str())
                .collect();
            if silent.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the agent has not started {} again after {} s", silent.join(", "), timeout.as_secs());
            }
            let n_all = self.reports.len() as u64;
            step.moved(silent.join(", "), n_all - silent.len() as u64, n_all);
            tokio::time::sleep(POLL).await;
        }
    }
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(drover_api::GROUP, drover_api::VERSION, kind))
}

fn phase_of(node: &DynamicObject) -> &str {
    node.data.pointer("/status/phase").and_then(Value::as_str).unwrap_or("-")
}

/// Returns when the leader renewed its Lease last; none when no controller leads.
async fn leader(client: &kube::Client) -> Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), drover_api::SYSTEM_NAMESPACE);
    let spec = leases.get_opt(LEADER_LEASE).await.context("reading the leader's Lease")?.and_then(|lease| lease.spec);
    let spec = spec.filter(|spec| spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty()));
    Ok(spec.and_then(|spec| Some(spec.renew_time?.0.to_string())))
}

async fn heartbeats(client: &kube::Client) -> Result<BTreeMap<String, String>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), drover_api::SYSTEM_NAMESPACE);
    let list = leases.list(&ListParams::default()).await.context("listing the nodes' Leases")?;
    let beat = |lease: Lease| {
        let name = lease.metadata.name?.strip_prefix("node-")?.to_owned();
        Some((name, lease.spec?.renew_time?.0.to_string()))
    };
    Ok(list.items.into_iter().filter_map(beat).collect())
}

/// The time of the last report on each allocation that should run and has not ended.
async fn reports(client: &kube::Client) -> Result<BTreeMap<(String, String), String>> {
    let allocations: Api<DynamicObject> = Api::all_with(client.clone(), &resource("Allocation"));
    let list = allocations.list(&ListParams::default()).await.context("listing Allocations")?;
    let report = |allocation: DynamicObject| {
        let field = |pointer: &str| allocation.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let should_run = field("/spec/desiredStatus") == "run" && matches!(field("/status/clientStatus"), "running");
        let modified = field("/status/modifiedAt").to_owned();
        should_run.then(|| Some(((allocation.metadata.namespace?, allocation.metadata.name?), modified))).flatten()
    };
    Ok(list.items.into_iter().filter_map(report).collect())
}
