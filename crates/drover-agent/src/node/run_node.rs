//! One life of a node's agent, over parts that are given to it: registration, heartbeats, the watch of its allocations,
//! reports.
//!
//! Input: the API server as a [`Store`], the runners, everything that the machine is asked for. Must never know what is
//! behind them: it runs over a real machine and, on virtual time, over none. Nothing here reads a clock, a file or the
//! machine's randomness, and nothing runs beside tokio's tasks.

use std::path::PathBuf;
use std::sync::Arc;

use drover_api::client_node::Fingerprint;
use drover_seal::NodeKey;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::allocations::admission::Admission;
use crate::allocations::allocs::{Allocs, AllocsPlan, AllocsShared};
use crate::allocations::directory::Directory;
use crate::allocations::plan::Runners;
use crate::config::AgentConfig;
use crate::csi::{Csi, CsiParts, Instance, StoredVolumes};
use crate::node::earlier_life::EarlierLife;
use crate::node::heartbeat::{self, Heartbeat};
use crate::node::machine_parts::MachineParts;
use crate::node::registration::Node;
use crate::node::secrets::StoredSecrets;
use crate::node::view::{NodeNews, NodeView};
use crate::random::Random;
use crate::reporting::events::{EventSink, NodeEvents};
use crate::reporting::metrics::NodeMetrics;
use crate::reporting::reports::Reports;
use crate::reporting::sync::Sync;
use crate::state::StateStore;
use crate::tasks::runner_env::RunnerEnv;
use crate::tasks::starts::Starts;
use crate::watch;
use drover_clock::SharedClock;
use drover_store::Store;

/// What an agent is made of.
pub(crate) struct NodeParts<S, R> {
    /// The API server.
    pub(crate) store: S,
    /// Makes the runners.
    pub(crate) runners: R,
    pub(crate) config: Arc<AgentConfig>,
    /// The name of its ClientNode.
    pub(crate) name: String,
    /// What is asked of the machine.
    pub(crate) machine: MachineParts,
    /// What users are told of the node.
    pub(crate) news: mpsc::Receiver<NodeNews>,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    /// What survives the agent.
    pub(crate) state: StateStore,
    /// What an earlier life left there.
    pub(crate) earlier: EarlierLife,
    /// What the agent's socket shows too.
    pub(crate) shown: SocketView,
    /// Opens when the first list of allocations was applied.
    pub(crate) contacted: watch::Sender<bool>,
    /// What operators are told.
    pub(crate) metrics: NodeMetrics,
    /// CSI plugins that are there without a task of this node.
    pub(crate) plugins: OtherPlugins,
    /// Ends the agent; tasks go on.
    pub(crate) stop: CancellationToken,
}

/// What the agent's socket shows of its allocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct SocketView {
    /// Where runners leave reports.
    pub(crate) reports: Reports,
    /// Who runs here, for requests of users.
    pub(crate) directory: Directory,
}

/// CSI plugins that no task of the node is.
#[derive(Debug, Default)]
pub(crate) struct OtherPlugins {
    /// Those that are there from the start, by id.
    pub(crate) known: Vec<(String, Instance)>,
    /// The kubelet's folder, where the drivers are found that the cluster runs; none: there are none.
    pub(crate) kubelet_dir: Option<PathBuf>,
    /// To which publish contexts for this node are sealed; none: they come as they are.
    pub(crate) key: Option<NodeKey>,
}

/// What the loops tell each other.
struct Signals {
    view: watch::Sender<NodeView>,
    /// Opens when the first list of allocations was applied.
    contacted: watch::Sender<bool>,
    heartbeat_wanted: Arc<Notify>,
    reachable: Arc<Notify>,
    last_ok: watch::Sender<Option<Instant>>,
    starts: Starts,
}

impl Signals {
    fn new(first_view: NodeView, contacted: watch::Sender<bool>) -> Self {
        Self {
            view: watch::Sender::new(first_view),
            contacted,
            heartbeat_wanted: Arc::default(),
            reachable: Arc::default(),
            last_ok: watch::Sender::new(None),
            starts: Starts::default(),
        }
    }
}

/// Runs the agent until it is stopped and all its runners have let go of their tasks.
pub(crate) async fn run_node<S: Store, R: Runners>(mut parts: NodeParts<S, R>) {
    let found = parts.machine.fingerprint.borrow().clone();
    let signals = Signals::new(Node::<S>::first_view(&parts.name, &parts.config, &found), parts.contacted.clone());
    let (mut loops, mut services) = (JoinSet::new(), JoinSet::new());
    // Runners end before what they use.
    let stop_services = CancellationToken::new();
    let (events, write_events) =
        EventSink::new(parts.store.clone(), parts.name.clone(), Arc::clone(&parts.clock), parts.random.fork());
    services.spawn(until(stop_services.clone(), write_events));
    let node_events = NodeEvents::new(events.clone(), parts.name.clone(), signals.view.subscribe());
    let csi = csi(&mut parts, node_events.clone());
    services.spawn(until(stop_services.clone(), csi.clone().run()));
    let news = std::mem::replace(&mut parts.news, mpsc::channel(1).1);
    spawn_registration(&parts, &signals, (news, node_events), &csi, &mut loops);
    loops.spawn(until(parts.stop.clone(), sync(&parts, &signals).run()));
    let shared = AllocsShared {
        env: Arc::new(RunnerEnv {
            state: parts.state,
            machine: parts.machine,
            clock: parts.clock,
            random: parts.random,
            events,
            node: signals.view.subscribe(),
            max_kill_timeout: parts.config.max_kill_timeout,
            alloc_dir: parts.config.alloc_dir.clone(),
            fifo_dir: parts.config.state_dir.join("fifos"),
            contacted: signals.contacted.subscribe(),
            garbage: Arc::default(),
            starts: signals.starts.clone(),
            metrics: parts.metrics,
            secrets: Arc::new(StoredSecrets(parts.store.clone())),
            csi,
        }),
        reports: parts.shown.reports,
        admission: Admission::new(memory_for_allocations(&found)),
        directory: parts.shown.directory,
        contacted: signals.contacted.clone(),
        shutdown: parts.stop,
    };
    let mut allocs = Allocs::new(AllocsPlan {
        store: parts.store,
        runners: parts.runners,
        node_name: parts.name,
        shared,
        limits: parts.config.gc.limits(),
        last_ok: signals.last_ok.subscribe(),
    });
    let EarlierLife { saved, is_state_lost, recovering } = parts.earlier;
    allocs.restore(saved, recovering, is_state_lost).await;
    tracing::info!("agent is up");
    allocs.run().await;
    while loops.join_next().await.is_some() {}
    stop_services.cancel();
    while services.join_next().await.is_some() {}
}

fn sync<S: Store, R>(parts: &NodeParts<S, R>, signals: &Signals) -> Sync<S> {
    Sync {
        store: parts.store.clone(),
        state: parts.state.clone(),
        clock: Arc::clone(&parts.clock),
        random: parts.random.clone(),
        reports: parts.shown.reports.clone(),
        contacted: signals.contacted.subscribe(),
        node: signals.view.subscribe(),
        heartbeat: Arc::clone(&signals.heartbeat_wanted),
        reachable: Arc::clone(&signals.reachable),
        starts: signals.starts.clone(),
    }
}

fn csi<S: Store, R>(parts: &mut NodeParts<S, R>, events: NodeEvents) -> Csi {
    let csi = Csi::new(CsiParts {
        root: parts.config.state_dir.join("csi"),
        state: parts.state.clone(),
        disk: Arc::clone(&parts.machine.disk),
        objects: Arc::new(StoredVolumes(parts.store.clone())),
        events,
        saved: std::mem::take(&mut parts.earlier.saved.mounts),
        kubelet_dir: parts.plugins.kubelet_dir.take(),
        key: parts.plugins.key.take(),
    });
    for (id, instance) in std::mem::take(&mut parts.plugins.known) {
        csi.put_plugin(&id, "", instance);
    }
    csi
}

/// The loops that keep the node's object and its Lease.
fn spawn_registration<S: Store, R>(
    parts: &NodeParts<S, R>,
    signals: &Signals,
    (news, events): (mpsc::Receiver<NodeNews>, NodeEvents),
    csi: &Csi,
    loops: &mut JoinSet<()>,
) {
    let ttl = watch::Sender::new(parts.config.heartbeat.ttl);
    let heartbeat = Heartbeat {
        store: parts.store.clone(),
        clock: Arc::clone(&parts.clock),
        random: parts.random.clone(),
        node: parts.name.clone(),
        namespace: parts.config.namespace.clone(),
        ttl: ttl.subscribe(),
        wanted: Arc::clone(&signals.heartbeat_wanted),
        reachable: Arc::clone(&signals.reachable),
        last_ok: signals.last_ok.clone(),
    };
    let follow_ttl = heartbeat::follow_ttl(parts.store.clone(), parts.config.namespace.clone(), ttl);
    loops.spawn(until(parts.stop.clone(), follow_ttl));
    loops.spawn(until(parts.stop.clone(), heartbeat.run()));
    let node = Node {
        store: parts.store.clone(),
        random: parts.random.clone(),
        name: parts.name.clone(),
        config: Arc::clone(&parts.config),
        fingerprint: parts.machine.fingerprint.clone(),
        csi: csi.clone(),
        host_volumes: parts.machine.host_volumes.clone(),
        news,
        events,
        view: signals.view.clone(),
        heartbeat: Arc::clone(&signals.heartbeat_wanted),
        reachable: Arc::clone(&signals.reachable),
        plugins_known_at: None,
    };
    loops.spawn(until(parts.stop.clone(), node.run()));
}

/// Does this until it is done or the agent ends.
pub(crate) async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = work => {}
    }
}

fn memory_for_allocations(fingerprint: &Fingerprint) -> i64 {
    fingerprint.resources.memory_mb.saturating_sub(fingerprint.reserved.memory_mb)
}
