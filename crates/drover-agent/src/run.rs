//! The agent's start and end on a real machine, in the order of `spec/agent.md` section 1.1: what [`run_node`] runs
//! over.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::allocations::alloc_runner::TaskRunners;
use crate::allocations::directory::Directory;
use crate::artifacts::HostFetcher;
use crate::checks::HostProber;
use crate::config::{AgentConfig, Enabled};
use crate::csi;
use crate::drivers::{
    ContainerDriver, ContainerRights, ContainerSettings, Discards, Drivers, Exec, ExecSettings, Mock, NodeContainers,
    RawExec, RawExecSettings, SharedNamespaces, keep_containers, missing_rights,
};
use crate::folder;
use crate::gateway;
use crate::glob::matches_glob;
use crate::networks::{AllocNetworks, DnsSource, ForwarderKeeper, NetworkOffer, NetworkParts, Resolver};
use crate::node::devices::{Devices, FileDevices};
use crate::node::disk::HostDisk;
use crate::node::earlier_life::EarlierLife;
use crate::node::facts::{Fact, Keeper, Manager, MetaHandle, watch_drivers};
use crate::node::fingerprint;
use crate::node::host_volumes::{VolumeFolders, Volumes};
use crate::node::machine_parts::MachineParts;
use crate::node::pod;
use crate::node::run_node::{NodeParts, OtherPlugins, SocketView, run_node, until};
use crate::node::task_users::TaskUsers;
use crate::node::view::NodeNews;
use crate::random::Random;
use crate::remote_disks::{GatewayDisks, NoRemoteDisks, RemoteDisks};
use crate::renderer::HelperRenderer;
use crate::reporting::metrics::NodeMetrics;
use crate::reporting::reports::Reports;
use crate::socket::{FolderNews, Server};
use crate::state::{Flaws, Saved, StateStore};
use crate::task_api::{GatewayApis, NoTaskApis, TaskApis};
use crate::values::{NoValues, ValueKeeper, ValueRequests, Values};
use crate::watch;
use drover_api::host_volume::HostVolumeRequest;
use drover_clock::{Clock, SharedClock, SystemClock};
use drover_core::task::environment;
use drover_daemon::monitor::{self, Health, Metrics, PORT, Problems};
use drover_daemon::shutdown;
use drover_store::{KubeStore, Store};
use drover_supervisor::client::Client as Supervisor;
use drover_supervisor::{Launcher, raise_open_files};

/// How long one request to the API server may take: shorter than any Lease.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the first facts of plugins are waited for.
const FIRST_FACTS: Duration = Duration::from_secs(55);
/// What people are told of the node and waits for the API server.
const NEWS: usize = 64;
/// Worker threads: the agent waits far more than it computes.
const WORKERS: usize = 2;

/// What an agent is started with.
#[derive(Clone, Debug, Default)]
pub struct AgentStart {
    /// The configuration file.
    pub config: PathBuf,
    /// How to reach the API server; default: as a pod, or as kubectl does.
    pub kubeconfig: Option<PathBuf>,
    /// Whether to leave the pod that this is for the node below it.
    pub enter_node: bool,
    /// The node's name, where the configuration has none.
    pub node_name: Option<String>,
    /// What allocations get of the node, where the configuration says nothing: thousandths of a core.
    pub offered_millicpu: Option<u32>,
    /// And mebibytes.
    pub offered_memory_mb: Option<u32>,
    /// Where probes and scrapes are answered.
    pub listen: Option<SocketAddr>,
}

impl AgentStart {
    fn config(&self) -> anyhow::Result<AgentConfig> {
        let mut config = AgentConfig::load(&self.config)?;
        config.node_name = config.node_name.take().or_else(|| self.node_name.clone());
        let resources = &mut config.resources;
        resources.memory_mb = resources.memory_mb.or(self.offered_memory_mb);
        if let (Some(offered), None) = (self.offered_millicpu, resources.cpu) {
            let (machine_mhz, cores) = fingerprint::cpu(&config);
            let mhz = u64::from(offered) * machine_mhz / (1000 * cores);
            config.resources.cpu = Some(u32::try_from(mhz).context("the offered CPU")?);
            config.resources.cores = config.resources.cores.or(Some(offered / 1000));
        }
        Ok(config)
    }
}

/// Runs the agent until SIGTERM; its tasks go on.
///
/// # Errors
/// When the configuration, the state file or a fingerprint does not let it start.
pub fn run(start: &AgentStart) -> anyhow::Result<()> {
    let mut config = start.config()?;
    // While there is one thread: only then may a process move.
    let token_file = config.gateway.token_file.as_mut();
    // Of the pod, which is left below.
    let of_pod = Resolver::of_this_place(config.network.dns, &config.namespace);
    let pod = start.enter_node.then(|| pod::enter_node(token_file)).transpose()?;
    let resolver = match config.network.dns {
        DnsSource::Cluster => of_pod,
        DnsSource::Node => Resolver::of_this_place(DnsSource::Node, &config.namespace),
    };
    make_dirs(&config)?;
    let state_path = config.state_dir.join("agent.redb");
    let opened = StateStore::open(&state_path, SystemClock.now())?;
    let (state_thread, state) = (opened.thread, (opened.store, opened.saved, opened.flaws));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let result = runtime.block_on(async {
        let metrics = Metrics::default();
        let api = match &pod {
            Some(pod) => pod.api.clone(),
            None => drover_connect::config(start.kubeconfig.as_deref()).await?,
        };
        let store = KubeStore::new(drover_daemon::monitor::counting_client(api, &metrics)?, REQUEST_TIMEOUT);
        let monitor = Monitor { listen: start.listen, metrics };
        Box::pin(serve(store, config, state, monitor, resolver)).await
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    if state_thread.join().is_err() {
        tracing::error!("the thread of the state file broke off");
    }
    result
}

/// What of the agent is seen from outside.
struct Monitor {
    listen: Option<SocketAddr>,
    metrics: Metrics,
}

impl Monitor {
    /// Answers probes and scrapes. A port that is taken keeps the agent from nothing else: tasks are looked after.
    fn watch(
        self,
        config: &AgentConfig,
        contacted: watch::Receiver<bool>,
        stop: CancellationToken,
        loops: &mut JoinSet<()>,
    ) -> Health {
        let health = Health::of(&["contact"]);
        let Some(address) = self.listen else { return health };
        let exec = &config.drivers.exec;
        if exec.enabled && config.driver.permits("exec") {
            if let Some(reason) = drover_supervisor::missing_cgroups() {
                health.ill("control groups", format!("driver exec needs them: {reason}"));
            }
            let is_root = rustix::process::geteuid().is_root();
            if let Some(reason) = missing_rights(&exec.allow_caps).filter(|_| is_root) {
                health.ill("rights", format!("driver exec needs them: {reason}"));
            }
        }
        let mut contacted = contacted;
        let seen = health.clone();
        loops.spawn(until(stop.clone(), async move {
            if contacted.wait_for(|contacted| *contacted).await.is_ok() {
                seen.well("contact");
            }
        }));
        loops.spawn(monitor::serve(address, health.clone(), self.metrics, stop));
        health
    }
}

/// Tells of what the agent was not able to do at its start, and of its own port as its health changes.
async fn tell_problems(health: Health, standing: BTreeMap<String, String>, facts: mpsc::Sender<Fact>) {
    let mut known = Problems::new();
    if !standing.is_empty() && facts.send(Fact::AgentProblems(standing.clone())).await.is_err() {
        return;
    }
    loop {
        let now = health.other_than(&known).await;
        let of_port = |problems: &Problems| problems.get(PORT).cloned();
        let reason = of_port(&now);
        if reason != of_port(&known) {
            let of_port = reason.map(|reason| (PORT.to_owned(), reason));
            let problems = standing.clone().into_iter().chain(of_port).collect();
            if facts.send(Fact::AgentProblems(problems)).await.is_err() {
                return;
            }
        }
        known = now;
    }
}

/// Whose the allocations' files and tasks are, as far as an earlier life has given them users.
fn task_users(config: &AgentConfig, saved: &Saved, state: &StateStore) -> TaskUsers {
    TaskUsers::new(config.drivers.exec.uid_range, saved.task_users.clone(), state.clone(), &config.alloc_dir)
}

/// What says when folders change; none: the kernel has no more descriptors for that.
fn follow_folders(stop: &CancellationToken, loops: &mut JoinSet<()>) -> Option<FolderNews> {
    match FolderNews::open() {
        Ok((news, signs)) => {
            loops.spawn(until(stop.clone(), signs));
            Some(news)
        }
        Err(error) => {
            tracing::warn!(%error, "logs that are followed are looked at again and again");
            None
        }
    }
}

/// What comes from the gateway, where the configuration knows one.
struct GatewayParts {
    values: Arc<dyn Values>,
    api: Arc<dyn TaskApis>,
    disks: Arc<dyn RemoteDisks>,
}

impl GatewayParts {
    fn begin<S: Store>(config: &AgentConfig, store: &S, stop: &CancellationToken, loops: &mut JoinSet<()>) -> Self {
        let requests = ValueRequests::default();
        let values: Arc<dyn Values> = match ValueKeeper::new(config, store.clone(), requests.clone()) {
            Some(keeper) => {
                loops.spawn(until(stop.clone(), keeper.run()));
                Arc::new(requests)
            }
            None => Arc::new(NoValues),
        };
        let api: Arc<dyn TaskApis> = match GatewayApis::new(config, store.clone()) {
            Some(apis) => Arc::new(apis),
            None => Arc::new(NoTaskApis),
        };
        let disks: Arc<dyn RemoteDisks> = match GatewayDisks::new(config, store.clone()) {
            Some(disks) => Arc::new(disks),
            None => Arc::new(NoRemoteDisks),
        };
        Self { values, api, disks }
    }
}

fn volume_folders(config: &AgentConfig) -> VolumeFolders {
    // Tasks mount what lies where it is said to lie: without links.
    let state_dir = std::fs::canonicalize(&config.state_dir).unwrap_or_else(|_| config.state_dir.clone());
    VolumeFolders {
        made: state_dir.join("host-volumes"),
        given_away: config.host_volume_paths.clone(),
        own: vec![config.state_dir.clone(), config.alloc_dir.clone()],
    }
}

fn make_dirs(config: &AgentConfig) -> anyhow::Result<()> {
    let make =
        |path: &Path, mode: u32| folder::make(path, mode).with_context(|| format!("creating {}", path.display()));
    make(&config.state_dir, 0o700)?;
    make(&config.alloc_dir, 0o711)?;
    make_gateway_secret(&config.state_dir)
}

/// The secret between a gateway and this node: made once, never shown.
fn make_gateway_secret(state_dir: &Path) -> anyhow::Result<()> {
    let path = state_dir.join("gateway-secret");
    let mut random = [0_u8; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut system| std::io::Read::read_exact(&mut system, &mut random))
        .context("reading the system's random numbers")?;
    let secret = random.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    match made.and_then(|mut file| std::io::Write::write_all(&mut file, secret.as_bytes())) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error).with_context(|| format!("making {}", path.display())),
    }
}

async fn serve<S: Store>(
    store: S,
    config: AgentConfig,
    (state, saved, flaws): (StateStore, Saved, watch::Receiver<Flaws>),
    monitor: Monitor,
    resolver: Resolver,
) -> anyhow::Result<()> {
    let config = Arc::new(config);
    let clock: SharedClock = Arc::new(SystemClock);
    let stop = CancellationToken::new();
    // Runners end before what they use: the supervisor's connection.
    let stop_services = CancellationToken::new();
    let (mut loops, mut services) = (JoinSet::new(), JoinSet::new());
    loops.spawn(shutdown::on_signal(stop.clone()).context("listening for signals")?);

    let contacted = watch::Sender::new(false);
    let metrics = NodeMetrics::of(monitor.metrics.agent.clone());
    let health = monitor.watch(&config, contacted.subscribe(), stop.clone(), &mut loops);
    loops.spawn(monitor::watch_progress_beside(stop.clone()));
    let supervisor = supervisor(&config, &stop_services, &mut services);
    let restored = CancellationToken::new();
    let containers = containers(&config)?;
    // The first fingerprint says the truth.
    containers.node.probe().await;
    let drivers = drivers(&config, &supervisor, &containers.node);
    let kept = keep_containers(containers.node, containers.discards, restored.clone(), Arc::clone(&clock));
    loops.spawn(until(stop.clone(), kept));
    let (news, told) = mpsc::channel(NEWS);
    if let Some(reason) = &flaws.borrow().lost {
        news.try_send(NodeNews::StateLost(reason.clone())).context("telling of the lost state")?;
    }
    let is_state_lost = flaws.borrow().lost.is_some();
    let mut print = fingerprint::detect(&config, &drivers)?;
    let (networks, offer, forwarder) =
        begin_networks(&config, &state, (&saved, is_state_lost), resolver, &supervisor).await;
    let forwarders = forwarder.taken_over();
    services.spawn(until(stop_services.clone(), forwarder.run()));
    print.network_modes.extend(offer.modes);
    let (keeper, facts) = Keeper::new(print, [Manager::Devices, Manager::Drivers], news);
    let meta = MetaHandle::new(config.meta.clone(), saved.dynamic_meta.clone(), state.clone(), facts.facts.clone());
    loops.spawn(until(stop.clone(), keeper.run()));
    let volumes = Volumes::new(volume_folders(&config), state.clone(), facts.facts.clone());
    let (host_volumes, following) = restore_volumes(&volumes, &saved).await;
    loops.spawn(until(stop.clone(), following));
    meta.announce().await;
    let devices = Devices::new(vec![Arc::new(FileDevices::new(config.devices.files.clone()))]);
    loops.spawn(until(stop.clone(), devices.clone().watch(facts.facts.clone())));
    loops.spawn(until(stop.clone(), tell_problems(health, offer.problems, facts.facts.clone())));
    loops.spawn(until(stop.clone(), watch_drivers(drivers.clone(), state.clone(), flaws, facts.facts)));
    wait_for_facts(facts.gathered).await;
    let (directory, reports) = (Directory::default(), Reports::counting(metrics.clone()));
    let GatewayParts { values, api, disks } = GatewayParts::begin(&config, &store, &stop, &mut loops);
    let server = Server {
        news: follow_folders(&stop, &mut loops),
        directory: directory.clone(),
        reports: reports.clone(),
        clock: Arc::clone(&clock),
        meta,
        volumes,
        alloc_dir: config.alloc_dir.clone(),
        stop: stop.clone(),
    };
    if let Some(tunnels) = gateway::Tunnels::new(&config, store.clone(), server.clone()) {
        loops.spawn(until(stop.clone(), tunnels.run()));
    }
    loops.spawn(server.run(config.state_dir.clone()));
    let (recovering, recovered) = mpsc::channel(1);
    let known = AllKnown { recovered, restored, forwarders, metrics: metrics.clone() };
    loops.spawn(until(stop.clone(), end_strangers(supervisor, known, state.clone(), is_state_lost)));
    let (kubelet_dir, key) = (config.csi.kubelet_dir().map(Path::to_owned), csi::sealing_key(&config.state_dir)?);
    run_node(NodeParts {
        store,
        runners: TaskRunners,
        name: node_name(&config),
        machine: MachineParts {
            drivers,
            devices,
            disk: Arc::new(HostDisk { limits: config.gc.limits() }),
            disks,
            users: task_users(&config, &saved, &state),
            fingerprint: facts.print,
            host_env: host_environment(&config.host_envvars, own_environment()),
            prober: Arc::new(HostProber::default()),
            fetcher: Arc::new(HostFetcher::new(&config.artifacts, own_environment())),
            renderer: Arc::new(HelperRenderer::default()),
            values,
            api,
            host_volumes,
            networks,
        },
        config,
        news: told,
        clock,
        random: Random::new(),
        state,
        earlier: EarlierLife { saved, is_state_lost, recovering },
        shown: SocketView { reports, directory },
        contacted,
        metrics,
        plugins: OtherPlugins { known: Vec::new(), kubelet_dir, key: Some(key) },
        stop,
    })
    .await;
    while loops.join_next().await.is_some() {}
    stop_services.cancel();
    while services.join_next().await.is_some() {}
    tracing::info!("agent has ended; its tasks go on");
    Ok(())
}

/// Makes the host volumes of an earlier life known. Returns where the controller's requests go, and what follows them.
async fn restore_volumes(
    volumes: &Volumes,
    saved: &Saved,
) -> (watch::Sender<BTreeMap<String, HostVolumeRequest>>, impl Future<Output = ()> + Send + use<>) {
    volumes.restore(&saved.volumes).await;
    let (requests, asked) = watch::channel(BTreeMap::new());
    (requests, volumes.clone().follow(asked))
}

/// Where the state is lost, what the kernel has may be of allocations that run.
async fn begin_networks(
    config: &AgentConfig,
    state: &StateStore,
    (saved, is_state_lost): (&Saved, bool),
    resolver: Resolver,
    supervisor: &Supervisor,
) -> (AllocNetworks, NetworkOffer, ForwarderKeeper) {
    AllocNetworks::begin(NetworkParts {
        config: config.network.clone(),
        state_dir: config.state_dir.clone(),
        state: state.clone(),
        kept: saved.networks.clone(),
        known: (!is_state_lost).then(|| saved.allocs.keys().cloned().collect()),
        resolver,
        supervisor: supervisor.clone(),
    })
    .await
}

/// Plugins that are slow hold the node up for a limited time.
async fn wait_for_facts(mut gathered: watch::Receiver<bool>) {
    if tokio::time::timeout(FIRST_FACTS, gathered.wait_for(|done| *done)).await.is_err() {
        tracing::warn!("the first facts were not gathered in time");
    }
}

fn supervisor(config: &AgentConfig, stop: &CancellationToken, services: &mut JoinSet<()>) -> Supervisor {
    // Whatever has become of the file since, this name leads to the binary that runs.
    let binary = PathBuf::from("/proc/self/exe");
    let launcher = Launcher::new(config.state_dir.clone(), config.alloc_dir.clone(), binary);
    // Of each task that runs the agent holds a descriptor.
    let open_files = raise_open_files();
    let launcher = launcher.with_slice(fingerprint::offered_slice(config)).with_open_files(open_files);
    let (supervisor, connection) = Supervisor::new(launcher, stop.clone());
    services.spawn(connection);
    supervisor
}

/// The node's containers, and those of them that are to be taken away.
struct Containers {
    node: Arc<NodeContainers>,
    discards: Discards,
}

fn containers(config: &AgentConfig) -> anyhow::Result<Containers> {
    let (node, discards) =
        NodeContainers::new(container_settings(config)).context("drivers.containerd of the configuration")?;
    Ok(Containers { node: Arc::new(node), discards })
}

fn container_settings(config: &AgentConfig) -> ContainerSettings {
    let containerd = &config.drivers.containerd;
    let runtimes = std::iter::once(&containerd.runtime).chain(&containerd.allow_runtimes).cloned().collect();
    let is_permitted = ["containerd", "docker"].into_iter().any(|name| config.driver.permits(name));
    ContainerSettings {
        enabled: if is_permitted { containerd.enabled } else { Enabled::No },
        address: containerd.address.clone(),
        snapshotter: containerd.snapshotter.clone(),
        runtimes,
        runc: containerd.runc.clone(),
        rights: ContainerRights {
            privileged: containerd.allow_privileged,
            host_namespaces: containerd.allow_host_namespaces,
            caps: containerd.allow_caps.clone(),
            volumes: containerd.volumes,
        },
        pids_limit: u64::from(containerd.pids_limit),
        image_delay: containerd.image_delay,
        hosts_dir: containerd.registry_hosts_dir.clone(),
        cgroup_base: drover_supervisor::cgroup_name(&config.state_dir),
        orders: config.state_dir.join("containers"),
        cpu: fingerprint::cpu(config),
        unfit: drover_supervisor::missing_cgroups(),
    }
}

fn drivers(config: &AgentConfig, supervisor: &Supervisor, containers: &Arc<NodeContainers>) -> Drivers {
    let mut drivers = Drivers::default();
    if config.driver.permits("raw_exec") {
        let raw_exec = &config.drivers.raw_exec;
        let settings = RawExecSettings { enabled: raw_exec.enabled, denied_envvars: raw_exec.denied_envvars.clone() };
        drivers.add("raw_exec", Arc::new(RawExec::driver(settings, supervisor.clone())));
    }
    if config.driver.permits("exec") {
        drivers.add("exec", Arc::new(Exec::driver(exec_settings(config), supervisor.clone())));
    }
    for name in ["containerd", "docker"] {
        if config.driver.permits(name) {
            let clock: SharedClock = Arc::new(SystemClock);
            let driver = ContainerDriver::new(name, Arc::clone(containers), supervisor.clone(), clock);
            drivers.add(name, Arc::new(driver));
        }
    }
    drivers.watch(containers.news());
    if config.drivers.mock.enabled && config.driver.permits("mock") {
        drivers.add("mock", Arc::new(Mock::on_node(node_name(config))));
    }
    drivers
}

fn exec_settings(config: &AgentConfig) -> ExecSettings {
    let exec = &config.drivers.exec;
    let (total_mhz, cores) = fingerprint::cpu(config);
    ExecSettings {
        enabled: exec.enabled,
        allow_caps: exec.allow_caps.clone(),
        shared: SharedNamespaces {
            pid: exec.allow_host_pid,
            ipc: exec.allow_host_ipc,
            network: exec.allow_host_network,
        },
        own_users: exec.uid_range.min..=exec.uid_range.max,
        host_paths: exec.host_paths.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        pids_limit: u64::from(exec.pids_limit),
        rootfs_dirs: exec.rootfs_dirs.clone(),
        total_mhz,
        cores,
        unfit: drover_supervisor::missing_cgroups()
            .or_else(drover_supervisor::missing_mounts)
            .or_else(|| missing_rights(&exec.allow_caps)),
    }
}

/// Says when every known task was found again or given up.
struct AllKnown {
    recovered: mpsc::Receiver<Infallible>,
    restored: CancellationToken,
    /// Forwarders of earlier lives are known.
    forwarders: CancellationToken,
    metrics: NodeMetrics,
}

impl AllKnown {
    async fn wait(mut self) {
        let began = Instant::now();
        // Nothing is ever sent: the channel closes when every known task was found again or given up.
        self.recovered.recv().await;
        self.forwarders.cancelled().await;
        self.metrics.restored(began.elapsed());
        tracing::info!("every task was found again or given up");
        self.restored.cancel();
    }
}

/// Ends tasks of which the state file knows nothing: the agent died between their start and their record.
async fn end_strangers(supervisor: Supervisor, known: AllKnown, state: StateStore, is_state_lost: bool) {
    known.wait().await;
    match supervisor.end_strangers().await {
        Ok(0) => {}
        Ok(n) => tracing::warn!(tasks = n, "tasks were ended of which the state file knows nothing"),
        Err(error) => {
            tracing::debug!(error = %error, "unknown tasks were not looked for");
            return;
        }
    }
    if is_state_lost && let Err(error) = state.note_rebuilt().await {
        tracing::warn!(error = %error, "the next agent will look for its tasks once more");
    }
}

fn node_name(config: &AgentConfig) -> String {
    let name =
        config.node_name.clone().unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    name.trim().to_lowercase()
}

/// What of the agent's own environment tasks get.
fn host_environment(allowed: &[String], all: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let is_allowed = |name: &str| allowed.iter().any(|pattern| matches_glob(pattern, name));
    let permitted = |(name, _): &(String, String)| environment::is_host_variable_permitted(name) && is_allowed(name);
    all.into_iter().filter(permitted).collect()
}

/// All variables that are text.
fn own_environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn config(dir: &Path, more: &str) -> AgentConfig {
        let text = format!("stateDir: {0}/state\nallocDir: {0}/allocs\n{more}", dir.display());
        AgentConfig::parse(&text, Path::new("agent.yaml")).expect("a configuration")
    }

    #[test]
    fn a_001_name_and_secret_stay_over_starts() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = config(dir.path(), "");
        let secret = dir.path().join("state/gateway-secret");
        let mut seen = Vec::new();
        for _ in 0..2 {
            make_dirs(&config).expect("made");
            seen.push((node_name(&config), std::fs::read_to_string(&secret).expect("a secret")));
        }
        assert_eq!(seen[0], seen[1]);
        assert_eq!((seen[0].0.is_empty(), seen[0].1.len()), (false, 64));
        assert_eq!(secret.metadata().expect("metadata").permissions().mode() & 0o777, 0o600);
        let mode = |path: &str| dir.path().join(path).metadata().expect("metadata").permissions().mode() & 0o777;
        assert_eq!((mode("state"), mode("allocs")), (0o700, 0o711));
    }

    #[test]
    fn must_survive_a_secret_in_the_agents_own_environment() {
        let dir = tempfile::tempdir().expect("a directory");
        let all = ["PATH", "LC_ALL", "VENDOR_PASSWORD", "KUBECONFIG", "HTTP_PROXY"];
        let seen = |more: &str| {
            let allowed = config(dir.path(), more).host_envvars;
            let all = all.map(|name| (name.to_owned(), "x".to_owned()));
            host_environment(&allowed, all).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(seen(""), ["LC_ALL", "PATH"]);
        assert_eq!(seen("hostEnvvars: [\"HTTP_*\"]\n"), ["HTTP_PROXY"]);
        assert_eq!(seen("hostEnvvars: [\"*\"]\n"), ["HTTP_PROXY", "LC_ALL", "PATH", "VENDOR_PASSWORD"]);
    }

    #[test]
    fn a_002_a_configured_name_is_in_lower_case() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(node_name(&config(dir.path(), "nodeName: Node-A\n")), "node-a");
    }

    #[tokio::test]
    async fn a_020_and_a_021_drivers_are_as_configured() {
        // only the allowed ones are there at all.
        let dir = tempfile::tempdir().expect("a directory");
        let table = |more: &str| {
            let config = config(dir.path(), more);
            let launcher = Launcher::new(config.state_dir.clone(), config.alloc_dir.clone(), PathBuf::from("/none"));
            let (supervisor, _) = Supervisor::new(launcher, CancellationToken::new());
            make_dirs(&config).expect("made");
            let containers = containers(&config).expect("containers").node;
            fingerprint::detect(&config, &drivers(&config, &supervisor, &containers)).expect("a fingerprint")
        };
        let found = table("");
        assert!(!found.drivers["raw_exec"].detected && !found.attributes.contains_key("driver.raw_exec"));
        assert_eq!(found.drivers["raw_exec"].description, "disabled");
        let only = table("drivers: {mock: {enabled: true}}\ndriver: {allowlist: [mock]}\n");
        assert_eq!(only.drivers.keys().collect::<Vec<_>>(), ["mock"]);
    }
}
