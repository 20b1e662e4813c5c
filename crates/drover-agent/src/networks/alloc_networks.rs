//! Makes and takes back the networks of this node's allocations.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use drover_api::allocation::AllocatedPort;
use drover_api::network::{Dns, Network, NetworkMode};
use drover_core::task::environment::TooLong;
use drover_forwarder::Forward;
use drover_network::{
    Bridge, BridgeSettings, CniDirs, CniNetworks, CniOrder, NetworkError, NetworkRecord, NetworkTable, PortMapping,
};
use drover_supervisor::client::Client;

use super::alloc_network::{AllocNetwork, TaskNetwork};
use super::config::NetworkConfig;
use super::port_forwards::{ForwarderKeeper, PortForwards, forwards};
use super::resolver::Resolver;
use crate::state::StateStore;
use crate::turns::Turns;

/// The name of the bridge.
const BRIDGE: &str = "drover-bridge";

/// What the networks of a node begin with.
pub(crate) struct NetworkParts {
    pub(crate) config: NetworkConfig,
    pub(crate) state_dir: PathBuf,
    pub(crate) state: StateStore,
    /// What an earlier life has kept.
    pub(crate) kept: NetworkTable,
    /// The allocations that it knew; none: its state was lost, and what the kernel has may be theirs.
    pub(crate) known: Option<BTreeSet<String>>,
    /// Whom tasks ask for names.
    pub(crate) resolver: Resolver,
    /// What starts the forwarder.
    pub(crate) supervisor: Client,
}

/// What a node offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkOffer {
    /// Modes, as the fingerprint lists them.
    pub(crate) modes: Vec<String>,
    /// Why others are not offered that the configuration names, by mode.
    pub(crate) problems: BTreeMap<String, String>,
}

/// What an allocation asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkAsk<'a> {
    /// The first network of its group.
    pub(crate) network: &'a Network,
    /// The ports that it was given.
    pub(crate) ports: &'a [AllocatedPort],
}

/// The networks of this node; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct AllocNetworks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// None: the node has none.
    bridge: Option<Bridge>,
    /// CNI networks, and where their plugins are.
    cni: Option<(CniNetworks, CniDirs)>,
    /// None: there is no kernel that would have them.
    state: Option<StateStore>,
    resolver: Resolver,
    table: tokio::sync::Mutex<NetworkTable>,
    made: Mutex<BTreeMap<String, Arc<AllocNetwork>>>,
    turns: Turns,
    /// None: there is no kernel.
    forwards: Option<PortForwards>,
}

impl AllocNetworks {
    /// For machines without a kernel: every network is as if it were there.
    #[cfg(any(test, feature = "simulated"))]
    pub(crate) fn pretended() -> Self {
        Self(Arc::default())
    }

    /// Whether there is a kernel that has them.
    pub(crate) fn are_real(&self) -> bool {
        self.0.state.is_some()
    }

    /// Tries what the configuration names, and makes the kernel as an earlier life has left it in its state.
    /// What it returns beside is to be run for as long as there are networks.
    pub(crate) async fn begin(parts: NetworkParts) -> (Self, NetworkOffer, ForwarderKeeper) {
        let NetworkParts { config, state_dir, state, kept, known, resolver, supervisor } = parts;
        let namespaces = state_dir.join("netns");
        let cni = config.cni_config_dir.clone().map(|dir| (dir, config.cni_bin_dir.clone()));
        let before = kept.clone();
        let started = tokio::task::spawn_blocking(move || {
            let mut offer = NetworkOffer::default();
            let mut table = kept;
            let cni = cni
                .map(|(dir, bin)| begin_cni(&CniDirs { config: dir, bin, namespaces: namespaces.clone() }, &mut offer));
            if let (Some(known), Some((_, dirs))) = (&known, &cni) {
                take_back_strays(&mut table, known, dirs);
            }
            let bridge = config.bridge_subnet.map(|subnet| {
                let settings = BridgeSettings { name: BRIDGE.to_owned(), subnet, namespaces };
                begin_bridge(Bridge::new(settings), &mut table, known.as_ref(), &mut offer)
            });
            (bridge, cni, table, offer)
        });
        let (bridge, cni, table, offer) = match started.await {
            Ok(started) => started,
            Err(error) => {
                tracing::error!(error = %error, "the networks of allocations broke off");
                (None, None, before.clone(), NetworkOffer::default())
            }
        };
        if table != before
            && let Err(error) = state.put_networks(&table).await
        {
            tracing::warn!(error = %error, "the networks that were taken back are still in the state file");
        }
        for (mode, reason) in &offer.problems {
            tracing::warn!(mode, reason, "a network mode is not offered");
        }
        let mapped = table.records().filter_map(NetworkRecord::mapped);
        let begun = mapped.flat_map(|(address, ports)| forwards(address, ports)).collect();
        let (forwards, keeper) = PortForwards::new(supervisor, state_dir, begun);
        let shared = Shared {
            bridge,
            cni,
            state: Some(state),
            resolver,
            table: tokio::sync::Mutex::new(table),
            forwards: Some(forwards),
            ..Shared::default()
        };
        (Self(Arc::new(shared)), offer, keeper)
    }

    /// Makes the network of an allocation, or what is missing of it; nothing for modes host and none.
    ///
    /// # Errors
    /// Why it cannot be made. What was made stays until it is taken back.
    pub(crate) async fn make(&self, id: &str, ask: NetworkAsk<'_>) -> Result<(), String> {
        let made = match ask.network.mode {
            NetworkMode::Host | NetworkMode::None => return Ok(()),
            NetworkMode::Bridge => self.make_on_bridge(id, ask.ports).await?,
            NetworkMode::Cni => self.make_by_plugins(id, ask).await?,
        };
        self.made().insert(id.to_owned(), Arc::new(made));
        Ok(())
    }

    async fn make_on_bridge(&self, id: &str, ports: &[AllocatedPort]) -> Result<AllocNetwork, String> {
        let bridge = self.0.bridge.clone();
        let bridge = bridge.ok_or("mode bridge is not configured on this node any more")?;
        let (subnet, ports) = (bridge.subnet(), mappings(ports)?);
        let turn = self.0.turns.take(id).await;
        let attachment = self
            .keep(|table| table.attach(id, subnet, ports))
            .await?
            .ok_or_else(|| format!("all addresses of {subnet} are held: widen network.bridgeSubnet of the agent"))?;
        let (id, address) = (id.to_owned(), attachment.address);
        let carried = forwards(address, &attachment.ports);
        let (_turn, path) = on_a_thread(move || bridge.attach(&id, &attachment).map(|path| (turn, path))).await?;
        self.carry_on(carried).await?;
        let interface = Bridge::INSIDE.to_owned();
        Ok(AllocNetwork { path, interface, address: Some(IpAddr::V4(address)), dns: None })
    }

    async fn make_by_plugins(&self, id: &str, ask: NetworkAsk<'_>) -> Result<AllocNetwork, String> {
        let asked = ask.network.cni.clone().unwrap_or_default();
        let (networks, dirs) = self.0.cni.clone().ok_or("mode cni is not configured on this node any more")?;
        let turn = self.0.turns.take(id).await;
        let known = self.0.table.lock().await.find(id).and_then(|record| record.cni.clone());
        // As it was begun, whatever has become of the configuration since.
        let order = if let Some(known) = known {
            known
        } else {
            let ordered = networks.order(&asked.name, asked.args, mappings(ask.ports)?);
            ordered.map_err(|error| error.to_string())?
        };
        self.keep(|table| table.order(id, order.clone())).await?;
        let owned = id.to_owned();
        // The turn comes back: what the plugins have answered is kept before the network can be taken back.
        let (_turn, (order, result)) = on_a_thread(move || order.add(&dirs, &owned).map(|made| (turn, made))).await?;
        let carried = order.mapped().map(|(address, ports)| forwards(address, ports)).unwrap_or_default();
        self.keep(|table| table.order(id, order)).await?;
        self.carry_on(carried).await?;
        let [servers, searches, options] = result.dns;
        let dns = Dns { servers, searches, options };
        Ok(AllocNetwork {
            path: result.namespace,
            interface: result.interface,
            address: result.address,
            dns: Some(dns).filter(|dns| *dns != Dns::default()),
        })
    }

    /// Has connections carried into a network that the kernel does not lead there.
    async fn carry_on(&self, ports: Vec<Forward>) -> Result<(), String> {
        match &self.0.forwards {
            Some(forwards) => forwards.open(ports).await,
            None => Ok(()),
        }
    }

    /// Makes a network on the bridge for one task of an allocation that is in the network of the node, with these of
    /// its ports mapped. It is there again at the task's next start, and goes with the allocation.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(crate) async fn make_for_task(&self, id: &str, task: &str, ports: &[AllocatedPort]) -> Result<(), String> {
        if self.0.bridge.is_none() {
            let reason = "a container of a group in the node's network has one of its own on the node's bridge, and there \
                          is none: set network.bridgeSubnet in the agent's configuration, or config.networkMode host, or \
                          give the group networks: [{mode: none}]";
            return Err(reason.to_owned());
        }
        let id = id_of_task(id, task);
        let made = self.make_on_bridge(&id, ports).await?;
        self.made().insert(id, Arc::new(made));
        Ok(())
    }

    /// Takes the networks of an allocation and of its tasks back. One that has none is no error.
    ///
    /// # Errors
    /// What of them stays; the next life of the agent tries again.
    pub(crate) async fn take_back(&self, allocation: &str) -> Result<(), String> {
        let is_its = |id: &&str| owner(id) == allocation;
        let ids: Vec<String> = self.0.table.lock().await.ids().filter(is_its).map(str::to_owned).collect();
        let mut left = Ok(());
        for id in ids {
            left = left.and(self.take_one_back(&id).await);
        }
        left
    }

    async fn take_one_back(&self, id: &str) -> Result<(), String> {
        let turn = self.0.turns.take(id).await;
        let Some(record) = self.0.table.lock().await.find(id).cloned() else { return Ok(()) };
        if let (Some(forwards), Some((address, ports))) = (&self.0.forwards, record.mapped()) {
            forwards.close(self::forwards(address, ports)).await;
        }
        let (shared, owned) = (Arc::clone(&self.0), id.to_owned());
        let _turn = on_a_thread(move || {
            let cni = shared.cni.as_ref().map(|(_, dirs)| dirs);
            take_back(&owned, &record, shared.bridge.as_ref(), cni).map(|()| turn)
        })
        .await?;
        self.made().remove(id);
        self.keep(|table| table.forget(id)).await.map(drop)
    }

    /// The network of an allocation, once it is made.
    pub(crate) fn of(&self, id: &str) -> Option<Arc<AllocNetwork>> {
        self.made().get(id).cloned()
    }

    /// What a task gets of its network, which is its allocation's or its own; none: it has neither.
    ///
    /// # Errors
    /// When the group's words cannot be used.
    pub(crate) fn for_task(
        &self,
        (id, task): (&str, &str),
        asked: Option<&Network>,
        namespace: &str,
        interpolated: impl Fn(&str) -> Result<String, TooLong>,
    ) -> Result<Option<TaskNetwork>, String> {
        let Some(made) = self.of(id).or_else(|| self.of(&id_of_task(id, task))) else { return Ok(None) };
        let none = Network::default();
        made.task_network(asked.unwrap_or(&none), namespace, &self.0.resolver, interpolated).map(Some)
    }

    /// Changes what there is to be, on disk first.
    async fn keep<T>(&self, change: impl FnOnce(&mut NetworkTable) -> T) -> Result<T, String> {
        let mut table = self.0.table.lock().await;
        let mut wanted = table.clone();
        let answer = change(&mut wanted);
        if wanted != *table {
            if let Some(state) = &self.0.state {
                state.put_networks(&wanted).await.map_err(|error| error.to_string())?;
            }
            *table = wanted;
        }
        Ok(answer)
    }

    fn made(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<AllocNetwork>>> {
        self.0.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of a network that one task has for itself. An allocation's own has its uid, which has no dots.
fn id_of_task(allocation: &str, task: &str) -> String {
    format!("{allocation}.{task}")
}

/// The allocation whose network this is, or one of whose tasks has it.
fn owner(id: &str) -> &str {
    id.split_once('.').map_or(id, |(allocation, _)| allocation)
}

fn begin_cni(dirs: &CniDirs, offer: &mut NetworkOffer) -> (CniNetworks, CniDirs) {
    let (networks, problems) = CniNetworks::read(dirs);
    offer.modes.extend(networks.names().map(|name| format!("cni/{name}")));
    if !problems.is_empty() {
        offer.problems.insert("network mode cni".to_owned(), problems.join("; "));
    }
    (networks, dirs.clone())
}

fn begin_bridge(
    bridge: Bridge,
    table: &mut NetworkTable,
    known: Option<&BTreeSet<String>>,
    offer: &mut NetworkOffer,
) -> Bridge {
    if let Err(error) = bridge.trial() {
        let reason =
            format!("{error}; mend it and restart the agent, or take network.bridgeSubnet out of its configuration");
        offer.problems.insert("network mode bridge".to_owned(), reason);
    } else {
        offer.modes.push("bridge".to_owned());
    }
    match known {
        Some(known) => {
            let strays: Vec<String> = table.ids().filter(|id| !known.contains(owner(id))).map(str::to_owned).collect();
            for id in strays {
                table.forget(&id);
            }
        }
        None => {
            for (id, attachment) in bridge.found() {
                table.adopt(&id, &attachment);
            }
        }
    }
    let subnet = bridge.subnet();
    let others = table.ids().map(str::to_owned).collect();
    match bridge.repair(&table.attachments(subnet), &others) {
        Ok(todo) if todo.is_empty() => {}
        Ok(todo) => tracing::info!(differences = ?todo.counts(), "the kernel has the networks of the state file again"),
        Err(error) => tracing::warn!(error = %error, "the networks of an earlier life are not looked at"),
    }
    bridge
}

/// Networks of plugins that no allocation has any more.
fn take_back_strays(table: &mut NetworkTable, known: &BTreeSet<String>, dirs: &CniDirs) {
    let is_stray = |id: &&str| !known.contains(*id) && table.find(id).is_some_and(|record| record.cni.is_some());
    let strays: Vec<String> = table.ids().filter(is_stray).map(str::to_owned).collect();
    for id in strays {
        let order = table.find(&id).and_then(|record| record.cni.clone());
        match order.map_or(Ok(()), |order: CniOrder| order.delete(dirs, &id)) {
            Ok(()) => drop(table.forget(&id)),
            Err(error) => tracing::warn!(network = id, error = %error, "a network of CNI plugins is left"),
        }
    }
}

fn take_back(
    id: &str,
    record: &NetworkRecord,
    bridge: Option<&Bridge>,
    cni: Option<&CniDirs>,
) -> Result<(), NetworkError> {
    if let Some(order) = &record.cni {
        let dirs = cni.ok_or_else(|| NetworkError("mode cni is not configured any more".to_owned()))?;
        return order.delete(dirs, id);
    }
    let Some(attachment) = record.attachment() else { return Ok(()) };
    let bridge = bridge.ok_or_else(|| NetworkError("mode bridge is not configured any more".to_owned()))?;
    bridge.detach(id, &attachment)
}

/// The kernel may take its time.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NetworkError> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// The node's ports that lead into the network.
fn mappings(ports: &[AllocatedPort]) -> Result<Vec<PortMapping>, String> {
    let mapping = |port: &AllocatedPort| {
        let number = |value: i64| u16::try_from(value).ok().filter(|number| *number > 0);
        let inside = if port.to > 0 { port.to } else { port.value };
        let (Some(host_port), Some(inside)) = (number(port.value), number(inside)) else {
            return Err(format!("port {} is {} to {inside}, which are no ports", port.label, port.value));
        };
        let host_ip: Ipv4Addr = port.host_ip.parse().map_err(|_| {
            format!(
                "port {} is on {}, and only ports on IPv4 addresses lead into a network of its own: give it a hostNetwork \
                 with such an address, or take mode host",
                port.label, port.host_ip
            )
        })?;
        Ok(PortMapping { host_ip, host_port, port: inside })
    };
    ports.iter().map(mapping).collect()
}
