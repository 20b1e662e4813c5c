//! The nodes of a run: machines, and the lives of the real agents on them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use drover_api::client_node::{Fingerprint, FingerprintMeta, HostNetwork, NodeResources};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::link::{Client, Reach};
use super::plugins;
use super::scenario::NodeSpec;
use super::seam::Seam;
use super::seeds::stream_seed;
use super::world::World;
use drover_agent::config::AgentConfig;
use drover_agent::simulated::{Cloud, Life, Machine, PluginObserver, PluginSpec};

/// The nodes of a run.
#[derive(Debug)]
pub(super) struct Nodes {
    world: Arc<World>,
    seed: u64,
    known: BTreeMap<String, Node>,
    lives: JoinSet<()>,
}

#[derive(Debug)]
struct Node {
    number: u32,
    spec: NodeSpec,
    machine: Machine,
    /// The agent that runs, with the token that ends it in good order.
    agent: Option<(AbortHandle, CancellationToken)>,
    has_power: bool,
    n_lives: u64,
}

impl Node {
    /// Ends its agent, if one runs; its tasks go on.
    fn end_agent(&mut self) {
        if let Some((agent, _)) = self.agent.take() {
            agent.abort();
        }
    }
}

impl Nodes {
    /// The nodes of a scenario, all but those that are off with an agent.
    pub(super) fn start(world: &Arc<World>, seed: u64, specs: &[NodeSpec]) -> anyhow::Result<Self> {
        let mut nodes = Self { world: Arc::clone(world), seed, known: BTreeMap::new(), lives: JoinSet::new() };
        let observer = Arc::clone(world);
        let drivers: PluginObserver = Arc::new(move |news| observer.observe_plugin(&news));
        let cloud = Cloud::default();
        for (number, spec) in specs.iter().enumerate() {
            let number = u32::try_from(number).context("too many nodes")?;
            let (observer, name) = (Arc::clone(world), spec.name.clone());
            let machine = Machine::new(&spec.name, move |run, change| observer.observe_task(&name, &run, change));
            let machine = machine.with_plugins(plugin_specs(spec, specs), &cloud, &drivers);
            let node = Node { number, spec: spec.clone(), machine, agent: None, has_power: false, n_lives: 0 };
            let earlier = nodes.known.insert(spec.name.clone(), node);
            anyhow::ensure!(
                earlier.is_none(),
                "spec.nodes: two nodes are named {:?}; give each a name of its own",
                spec.name
            );
        }
        for spec in specs.iter().filter(|spec| !spec.off) {
            nodes.boot(&spec.name)?;
        }
        Ok(nodes)
    }

    fn node(&self, name: &str) -> anyhow::Result<&Node> {
        self.known.get(name).with_context(|| {
            let near = drover_store::memory::closest(name, self.known.keys().map(String::as_str));
            let near = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            format!("the scenario has no node {name:?}{near}")
        })
    }

    /// The machine of a node.
    pub(super) fn machine(&self, name: &str) -> anyhow::Result<Machine> {
        Ok(self.node(name)?.machine.clone())
    }

    /// The seed of one stream of chances that a node's machine has.
    pub(super) fn seed_of(&self, name: &str, stream: &str) -> anyhow::Result<u64> {
        Ok(stream_seed(self.seed, stream, u64::from(self.node(name)?.number)))
    }

    /// Changes how a node's agent reaches the API server.
    pub(super) fn set_reach(&self, name: &str, reach: Reach) -> anyhow::Result<()> {
        self.world.links.set_reach(Client::Node(self.node(name)?.number), reach);
        Ok(())
    }

    /// Power goes: the agent and all tasks end at once.
    pub(super) fn power_off(&mut self, name: &str) -> anyhow::Result<()> {
        self.node(name)?;
        if let Some(node) = self.known.get_mut(name) {
            node.end_agent();
            node.has_power = false;
            node.machine.lose_power();
        }
        self.world.observe_power_loss(name);
        Ok(())
    }

    /// Starts a node's agent, if none runs.
    pub(super) fn boot(&mut self, name: &str) -> anyhow::Result<()> {
        self.node(name)?;
        let Some(node) = self.known.get_mut(name) else { return Ok(()) };
        if node.agent.is_some() {
            return Ok(());
        }
        node.has_power = true;
        node.n_lives += 1;
        let client = Client::Node(node.number);
        let stream = (u64::from(node.number) << 20) + node.n_lives;
        let stop = CancellationToken::new();
        let seam = Seam::new(Arc::clone(&self.world), client, stream_seed(self.seed, "agent's link", stream));
        let life = Life {
            config: config(&node.spec)?,
            fingerprint: fingerprint(&node.spec, node.number)?,
            clock: Arc::new(self.world.clock.other()),
            seed: stream_seed(self.seed, "agent", stream),
            faults: Some(seam.state_faults()),
            stop: stop.clone(),
        };
        let machine = node.machine.clone();
        let agent = self.lives.spawn(async move { machine.run_agent(seam, life).await });
        node.agent = Some((agent, stop));
        Ok(())
    }

    /// Ends a node's agent and starts it again; its tasks go on.
    pub(super) fn restart_agent(&mut self, name: &str) -> anyhow::Result<()> {
        let node = self.node(name)?;
        anyhow::ensure!(node.has_power, "no agent runs on node {name:?}; boot it first");
        if let Some(node) = self.known.get_mut(name) {
            node.end_agent();
        }
        self.boot(name)
    }

    /// Ends the agent that a fault has struck; its tasks go on. Returns its node's number, if it is an agent's.
    pub(super) fn crash_client(&mut self, client: Client) -> Option<u32> {
        let Client::Node(number) = client else { return None };
        let node = self.known.values_mut().find(|node| node.number == number)?;
        node.end_agent();
        Some(number)
    }

    /// Starts an agent that was struck, unless its machine has lost its power since.
    pub(super) fn start_again(&mut self, number: u32) -> anyhow::Result<()> {
        let node = self.known.values().find(|node| node.number == number && node.has_power);
        match node.map(|node| node.spec.name.clone()) {
            Some(name) => self.boot(&name),
            None => Ok(()),
        }
    }
}

fn config(spec: &NodeSpec) -> anyhow::Result<AgentConfig> {
    let text = serde_json::json!({
        "nodeName": spec.name,
        "stateDir": format!("/simulated/{}/state", spec.name),
        "allocDir": format!("/simulated/{}/allocs", spec.name),
        "datacenter": spec.datacenter,
        "nodePool": spec.node_pool,
        "nodeClass": spec.node_class,
        "meta": spec.meta,
        "drivers": { "mock": { "enabled": true } },
    });
    Ok(AgentConfig::parse(&text.to_string(), Path::new(&spec.name))?)
}

/// The address of the node of this number, as Kubernetes too knows it.
pub(super) fn address(number: u32) -> String {
    format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)
}

/// The CSI plugins of a node.
fn plugin_specs(spec: &NodeSpec, all: &[NodeSpec]) -> Vec<PluginSpec> {
    let has_controller =
        |id: &str| all.iter().flat_map(|node| &node.csi_plugins).any(|plugin| plugin.id == id && plugin.controller);
    spec.csi_plugins.iter().map(|plugin| plugin.spec(&spec.name, has_controller(&plugin.id))).collect()
}

fn fingerprint(spec: &NodeSpec, number: u32) -> anyhow::Result<Fingerprint> {
    anyhow::ensure!(
        spec.drivers.iter().all(|driver| driver == "mock"),
        "node {:?}: drivers are {:?}; the simulator has driver mock alone",
        spec.name,
        spec.drivers
    );
    let mut attributes = spec.attributes.clone();
    for (name, value) in [("kernel.name", "linux"), ("cpu.arch", "amd64"), ("driver.mock", "1")] {
        attributes.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    attributes
        .extend(spec.csi_plugins.iter().map(|plugin| (plugins::attribute(&plugin.id), plugin.part().to_string())));
    Ok(Fingerprint {
        attributes,
        meta: FingerprintMeta { static_meta: spec.meta.clone(), ..FingerprintMeta::default() },
        resources: NodeResources {
            cpu: spec.resources.cpu,
            memory_mb: spec.resources.memory_mb,
            disk_mb: spec.resources.disk_mb,
            cores: spec.resources.cores,
        },
        devices: spec.devices.clone(),
        host_volumes: spec.host_volumes.clone(),
        host_networks: vec![HostNetwork {
            name: "default".to_owned(),
            cidr: format!("{}/32", address(number)),
            interface: String::new(),
            reserved_ports: String::new(),
        }],
        network_modes: vec!["host".to_owned(), "none".to_owned()],
        ..Fingerprint::default()
    })
}
