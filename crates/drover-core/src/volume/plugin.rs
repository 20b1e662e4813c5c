//! What is known of CSI plugins as a whole (`spec/volumes.md` 2): their instances, from the fingerprints of nodes, and
//! how many are expected, from the jobs that run them. A plugin that only kubelets have registered is a driver of the
//! cluster: it has no controller that drover could ask, and volumes are attached by the cluster's own means
//! (`cluster`).
//!
//! Input: nodes, ends of allocations and jobs as they change; each costs what it changes. Output: counts, whether
//! volumes can be used, and which controller is asked. A plugin is here while it has an instance or a job that runs
//! one, so that nothing is left to collect. Must never know volumes' claims.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use drover_api::client_node::{CsiInfo, NodePhase};
use drover_api::csi_volume::{CSIVolumeStatus, PluginSource, PluginType};
use drover_api::job::{GroupSummary, JobType};

use crate::arithmetic::total;
use crate::ids::{JobKey, NodeName};
use crate::model::{Job, Node};
use crate::snapshot::ClusterView;

/// What a controller can do, by CSI's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Make and delete volumes.
    CreateDelete,
    /// Attach volumes to nodes and detach them.
    AttachDetach,
    /// Make volumes larger.
    Expand,
    /// Take and delete snapshots.
    Snapshots,
    /// Say which snapshots there are.
    ListSnapshots,
}

impl Capability {
    /// As CSI names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CreateDelete => "CREATE_DELETE_VOLUME",
            Self::AttachDetach => "PUBLISH_UNPUBLISH_VOLUME",
            Self::Expand => "EXPAND_VOLUME",
            Self::Snapshots => "CREATE_DELETE_SNAPSHOT",
            Self::ListSnapshots => "LIST_SNAPSHOTS",
        }
    }
}

/// A half of a plugin on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Instance {
    /// The allocation that runs it; empty for a driver of the cluster.
    alloc_id: String,
    source: PluginSource,
    is_healthy: bool,
    /// What it can do, as CSI names it.
    capabilities: BTreeSet<String>,
}

/// A CSI plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugin {
    /// The provider's name.
    pub provider: String,
    /// The provider's version.
    pub provider_version: String,
    controllers: Half,
    nodes: Half,
    /// What the last controller half reported of whether volumes need one.
    said_by_controller: Option<bool>,
    /// Nodes whose node half says that volumes need a controller.
    said_by_nodes: BTreeSet<NodeName>,
    controller_jobs: BTreeMap<JobKey, i64>,
    node_jobs: BTreeMap<JobKey, i64>,
    /// The cluster has a `CSIDriver` of its name.
    has_driver: bool,
    /// That says that its volumes need not be attached.
    is_unattached: bool,
}

/// The instances of one half of a plugin, by node, and how many of them work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Half {
    instances: BTreeMap<NodeName, Instance>,
    n_healthy: i64,
    /// Those that a job runs.
    n_of_jobs: usize,
}

impl Half {
    fn put(&mut self, node: &NodeName, instance: Instance) {
        self.remove(node);
        self.n_healthy += i64::from(instance.is_healthy);
        self.n_of_jobs += usize::from(instance.source == PluginSource::Job);
        self.instances.insert(node.clone(), instance);
    }

    fn remove(&mut self, node: &NodeName) {
        if let Some(gone) = self.instances.remove(node) {
            self.n_healthy -= i64::from(gone.is_healthy);
            self.n_of_jobs -= usize::from(gone.source == PluginSource::Job);
        }
    }

    fn has(&self, node: &NodeName) -> bool {
        self.instances.contains_key(node)
    }

    fn has_any_of_cluster(&self) -> bool {
        self.n_of_jobs < self.instances.len()
    }
}

/// Why a node's controller is not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The node.
    pub node: NodeName,
    /// Why not.
    pub reason: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.reason)
    }
}

impl Plugin {
    /// Whether it is a driver of the cluster. A job of the same name never takes its place: what that runs does not
    /// count ([`instances`](super::instances)).
    pub fn is_of_cluster(&self) -> bool {
        self.has_driver || self.nodes.has_any_of_cluster()
    }

    /// Whether its volumes need a controller: as its last controller reported, or, before there is one, as any of its
    /// nodes says. Of a driver of the cluster, whether they are attached.
    pub fn is_controller_required(&self) -> bool {
        if self.is_of_cluster() {
            return !self.is_unattached;
        }
        self.said_by_controller.unwrap_or(!self.said_by_nodes.is_empty())
    }

    /// Healthy controllers.
    pub const fn controllers_healthy(&self) -> i64 {
        self.controllers.n_healthy
    }

    /// Healthy node halves.
    pub const fn nodes_healthy(&self) -> i64 {
        self.nodes.n_healthy
    }

    /// Controllers that jobs are to run; none of a driver of the cluster.
    pub fn controllers_expected(&self) -> i64 {
        if self.is_of_cluster() {
            return 0;
        }
        total(self.controller_jobs.values().copied())
    }

    /// Node halves that jobs are to run; of a driver of the cluster, those that are registered.
    pub fn nodes_expected(&self) -> i64 {
        if self.is_of_cluster() {
            return i64::try_from(self.nodes.instances.len()).unwrap_or(i64::MAX);
        }
        total(self.node_jobs.values().copied())
    }

    /// Whether volumes of it can be used now. How the controller of a driver of the cluster fares is not known.
    pub fn is_schedulable(&self) -> bool {
        self.nodes_healthy() > 0 && (!self.needs_controller() || self.controllers_healthy() > 0)
    }

    /// Whether volumes of it need a controller that drover asks: that of a driver of the cluster the cluster asks.
    pub fn needs_controller(&self) -> bool {
        self.is_controller_required() && !self.is_of_cluster()
    }

    /// Whether its controllers, which are alike, can do something; none while no controller is known. That of a driver
    /// of the cluster attaches, and does nothing else for drover.
    pub fn can(&self, capability: Capability) -> Option<bool> {
        if self.is_of_cluster() {
            return Some(capability == Capability::AttachDetach && !self.is_unattached);
        }
        self.controllers.instances.values().next().map(|instance| instance.capabilities.contains(capability.as_str()))
    }

    /// The controller to ask: the first healthy one on a ready node, in the order of node names, that was not tried.
    ///
    /// # Errors
    /// Why each one is skipped.
    pub fn controller(&self, view: &ClusterView, tried: &[Skipped]) -> Result<NodeName, Vec<Skipped>> {
        let mut skipped = Vec::new();
        for (node, instance) in &self.controllers.instances {
            let phase = view.node(node).map(|known| known.phase);
            let reason = if let Some(tried) = tried.iter().find(|tried| tried.node == *node) {
                tried.reason.clone()
            } else if !instance.is_healthy {
                "its controller is unhealthy".to_owned()
            } else if phase != Some(NodePhase::Ready) {
                phase.map_or("the node is gone".to_owned(), |phase| format!("the node is {phase}"))
            } else {
                return Ok(node.clone());
            };
            skipped.push(Skipped { node: node.clone(), reason });
        }
        Err(skipped)
    }

    fn is_empty(&self) -> bool {
        let has_jobs = !self.controller_jobs.is_empty() || !self.node_jobs.is_empty();
        self.controllers.instances.is_empty() && self.nodes.instances.is_empty() && !has_jobs
    }
}

/// All plugins, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugins {
    known: BTreeMap<String, Plugin>,
    /// The plugins that a job runs, so that what it no longer runs is found.
    by_job: BTreeMap<JobKey, BTreeSet<String>>,
    by_node: BTreeMap<NodeName, BTreeSet<String>>,
    /// The drivers for which the cluster has a `CSIDriver`, and whether their volumes need not be attached.
    drivers: BTreeMap<String, bool>,
}

impl Plugins {
    /// A plugin.
    pub fn get(&self, id: &str) -> Option<&Plugin> {
        self.known.get(id)
    }

    /// The cluster has a driver whose volumes need not be attached to a node.
    pub fn forgo_attaching(&mut self, driver: &str) {
        self.put_driver(driver, Some(true));
    }

    /// The cluster has a driver whose volumes are attached to a node first.
    pub fn need_attaching(&mut self, driver: &str) {
        self.put_driver(driver, Some(false));
    }

    /// The cluster says nothing of a driver any more.
    pub fn forget_driver(&mut self, driver: &str) {
        self.put_driver(driver, None);
    }

    fn put_driver(&mut self, driver: &str, is_unattached: Option<bool>) {
        match is_unattached {
            Some(is_unattached) => drop(self.drivers.insert(driver.to_owned(), is_unattached)),
            None => drop(self.drivers.remove(driver)),
        }
        if let Some(plugin) = self.known.get_mut(driver) {
            plugin.has_driver = is_unattached.is_some();
            plugin.is_unattached = is_unattached.unwrap_or(false);
        }
    }

    /// A plugin, made known if it is not.
    fn known_mut(&mut self, id: &str) -> &mut Plugin {
        let driver = self.drivers.get(id).copied();
        let (has_driver, is_unattached) = (driver.is_some(), driver.unwrap_or(false));
        self.known.entry(id.to_owned()).or_insert_with(|| Plugin { has_driver, is_unattached, ..Plugin::default() })
    }

    /// Takes in what a node says of its plugins. An unhealthy half that was not known is ignored until it works once.
    pub fn put_node(&mut self, node: &Node) {
        let before = self.by_node.get(&node.name).cloned().unwrap_or_default();
        for id in before.iter().map(String::as_str).chain(node.csi.keys().map(String::as_str)) {
            let info = node.csi.get(id);
            self.put_half(id, &node.name, info.filter(|info| info.controller), PluginType::Controller);
            self.put_half(id, &node.name, info.filter(|info| info.node), PluginType::Node);
        }
        let runs = |plugin: &Plugin| plugin.controllers.has(&node.name) || plugin.nodes.has(&node.name);
        let is_here = |id: &&String| self.known.get(*id).is_some_and(runs);
        let now: BTreeSet<String> = node.csi.keys().filter(is_here).cloned().collect();
        if now.is_empty() {
            self.by_node.remove(&node.name);
        } else {
            self.by_node.insert(node.name.clone(), now);
        }
    }

    /// Takes out what ran on a node that is gone.
    pub fn remove_node(&mut self, node: &NodeName) {
        for id in self.by_node.remove(node).unwrap_or_default() {
            self.put_half(&id, node, None, PluginType::Monolith);
        }
    }

    /// Takes out what an allocation ran on its node that has ended.
    pub fn end_alloc(&mut self, node: &NodeName, alloc_id: &str) {
        for id in self.by_node.get(node).cloned().unwrap_or_default() {
            let Some(plugin) = self.known.get_mut(&id) else { continue };
            for half in [&mut plugin.controllers, &mut plugin.nodes] {
                if half.instances.get(node).is_some_and(|instance| instance.alloc_id == alloc_id) {
                    half.remove(node);
                }
            }
            if !plugin.nodes.has(node) {
                plugin.said_by_nodes.remove(node);
            }
            self.drop_if_empty(&id);
        }
    }

    /// Takes in how many instances a job is to run: what its groups want, of a system job what it has (`summary`, by
    /// group).
    pub fn put_job(&mut self, job: &Job, summary: &BTreeMap<String, GroupSummary>) {
        // Controllers and node halves, by plugin.
        let mut expected: BTreeMap<&str, (Option<i64>, Option<i64>)> = BTreeMap::new();
        for group in job.definition.spec.groups.iter().filter(|_| !job.stopped) {
            let live =
                || summary.get(&group.name).map_or(0, |one| total([one.running, one.queued, one.starting].into_iter()));
            let n = match job.definition.job_type() {
                JobType::System | JobType::Sysbatch => live(),
                JobType::Service | JobType::Batch => job.counts.get(&group.name).copied().unwrap_or(0),
            };
            for plugin in group.tasks.iter().filter_map(|task| task.csi_plugin.as_ref()) {
                let (as_controller, as_node) = halves(plugin.r#type);
                let (controllers, nodes) = expected.entry(&plugin.id).or_default();
                *controllers = as_controller.then(|| controllers.unwrap_or(0).saturating_add(n)).or(*controllers);
                *nodes = as_node.then(|| nodes.unwrap_or(0).saturating_add(n)).or(*nodes);
            }
        }
        let ids: BTreeSet<String> = expected.keys().map(|id| (*id).to_owned()).collect();
        self.forget_jobs_part(&job.key, &ids);
        for (id, (controllers, nodes)) in expected {
            let plugin = self.known_mut(id);
            plugin.controller_jobs.remove(&job.key);
            plugin.node_jobs.remove(&job.key);
            plugin.controller_jobs.extend(controllers.map(|n| (job.key.clone(), n)));
            plugin.node_jobs.extend(nodes.map(|n| (job.key.clone(), n)));
        }
        if !ids.is_empty() {
            self.by_job.insert(job.key.clone(), ids);
        }
    }

    /// Takes out what a job was to run.
    pub fn remove_job(&mut self, job: &JobKey) {
        self.forget_jobs_part(job, &BTreeSet::new());
    }

    /// Takes a job's part out of all plugins but these.
    fn forget_jobs_part(&mut self, job: &JobKey, but: &BTreeSet<String>) {
        for id in self.by_job.remove(job).unwrap_or_default().difference(but) {
            if let Some(plugin) = self.known.get_mut(id) {
                plugin.controller_jobs.remove(job);
                plugin.node_jobs.remove(job);
            }
            self.drop_if_empty(id);
        }
    }

    /// Takes in one half of a plugin on a node, or both for a monolith; none where it is not there.
    fn put_half(&mut self, id: &str, node: &NodeName, info: Option<&CsiInfo>, half: PluginType) {
        let Some(info) = info else {
            let Some(plugin) = self.known.get_mut(id) else { return };
            let (as_controller, as_node) = halves(half);
            if as_controller {
                plugin.controllers.remove(node);
            }
            if as_node {
                plugin.nodes.remove(node);
                plugin.said_by_nodes.remove(node);
            }
            return self.drop_if_empty(id);
        };
        let (as_controller, as_node) = halves(half);
        let is_known = self.known.get(id).is_some_and(|plugin| {
            (as_controller && plugin.controllers.has(node)) || (as_node && plugin.nodes.has(node))
        });
        if !info.healthy && !is_known {
            return;
        }
        let plugin = self.known_mut(id);
        plugin.provider.clone_from(&info.provider);
        plugin.provider_version.clone_from(&info.provider_version);
        let instance = Instance {
            alloc_id: info.alloc_id.clone(),
            source: info.source,
            is_healthy: info.healthy,
            capabilities: info.capabilities.iter().cloned().collect(),
        };
        if as_controller {
            plugin.said_by_controller = Some(info.requires_controller_plugin);
            plugin.controllers.put(node, instance.clone());
        }
        if as_node {
            if info.requires_controller_plugin {
                plugin.said_by_nodes.insert(node.clone());
            } else {
                plugin.said_by_nodes.remove(node);
            }
            plugin.nodes.put(node, instance);
        }
    }

    fn drop_if_empty(&mut self, id: &str) {
        if self.known.get(id).is_some_and(Plugin::is_empty) {
            self.known.remove(id);
        }
    }
}

/// Whether a part of a plugin is a controller, and whether it is a node half.
const fn halves(part: PluginType) -> (bool, bool) {
    match part {
        PluginType::Controller => (true, false),
        PluginType::Node => (false, true),
        PluginType::Monolith => (true, true),
    }
}

/// The status with what follows from the plugin. Of a plugin that is unknown the counts are 0; whether it needs a
/// controller, and whose it is, stays as it was last known: a claim is not freed without its controller because the
/// plugin is away.
#[must_use]
pub fn refreshed(status: &CSIVolumeStatus, plugin: Option<&Plugin>) -> CSIVolumeStatus {
    let mut status = status.clone();
    status.schedulable = plugin.is_some_and(Plugin::is_schedulable);
    status.controllers_healthy = plugin.map_or(0, Plugin::controllers_healthy);
    status.controllers_expected = plugin.map_or(0, Plugin::controllers_expected);
    status.nodes_healthy = plugin.map_or(0, Plugin::nodes_healthy);
    status.nodes_expected = plugin.map_or(0, Plugin::nodes_expected);
    if let Some(plugin) = plugin {
        status.controller_required = plugin.is_controller_required();
        status.provider.clone_from(&plugin.provider);
        status.provider_version.clone_from(&plugin.provider_version);
    }
    status
}
