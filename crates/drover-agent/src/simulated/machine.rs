//! A machine without hardware: what of a node outlives its agent, and agents that run over it on tokio's paused clock.
//!
//! The agent is the real one: registration, heartbeats, watch, admission, allocation and task runners, health, reports.
//! Tasks run with driver `mock` alone; state and directories are in memory. Nothing here touches a file, a process, a
//! thread, the machine's clock or its randomness: with the same seed, clock and answers of the store an agent does the
//! same again. Must never know what a scenario is about.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drover_api::client_node::{DriverInfo, Fingerprint};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::plugin::{Cloud, PluginObserver, PluginSpec, SimulatedPlugin};
use super::ports::{PortAnswer, Ports};
use crate::allocations::alloc_runner::TaskRunners;
use crate::allocations::commands::{AllocCommand, RestartScope};
use crate::allocations::directory::Directory;
use crate::artifacts::AlwaysFetched;
use crate::config::AgentConfig;
use crate::drivers::{Drivers, ExitResult, Mock, MockChange};
use crate::node::devices::Devices;
use crate::node::earlier_life::EarlierLife;
use crate::node::machine_parts::MachineParts;
use crate::node::memory_disk::MemoryDisk;
use crate::node::run_node::{NodeParts, OtherPlugins, SocketView, run_node};
use crate::random::Random;
use crate::remote_disks::NoRemoteDisks;
use crate::reporting::metrics::NodeMetrics;
use crate::reporting::reports::Reports;
use crate::state::{MemoryState, StateFaults};
use crate::tasks::commands::CommandError;
use crate::watch;
use drover_clock::SharedClock;
use drover_store::Store;
use drover_supervisor::protocol::{Exit, OomKill};

/// What became of a run of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskChange {
    /// It has started.
    Started,
    /// The agent asked it to stop.
    StopAsked,
    /// It has ended, and the agent has taken that in.
    Ended,
}

/// A run of a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskRun {
    /// The uid of its allocation.
    pub allocation: String,
    /// The task's name.
    pub task: String,
    /// What tells runs of one task apart.
    pub run: String,
}

/// How a task ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedEnd {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It used too much memory.
    OutOfMemory,
}

/// Which tasks of an allocation are restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restart {
    /// One that runs.
    Task(String),
    /// All that run.
    Running,
    /// All but poststop ones, in the order of their lifecycle.
    All,
}

/// Why a request about an allocation was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No agent runs it.
    #[error("allocation {0} does not run on this node")]
    NotHere(String),
    /// Its runner refused.
    #[error("{0}")]
    Refused(String),
}

impl From<CommandError> for RequestError {
    fn from(error: CommandError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// What an agent's life needs from outside.
#[derive(Debug)]
pub struct Life {
    /// As from the agent's file. Its folders name things and are never made; `nodeName` must be set.
    pub config: AgentConfig,
    /// What the machine is and has; the driver table is filled in.
    pub fingerprint: Fingerprint,
    /// Virtual time.
    pub clock: SharedClock,
    /// Of everything that the agent draws.
    pub seed: u64,
    /// What becomes of its writes to its state; none: they are kept.
    pub faults: Option<StateFaults>,
    /// Ends the agent in good order; tasks go on. A crash is a dropped future.
    pub stop: CancellationToken,
}

/// A node's machine. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Machine {
    state: MemoryState,
    disk: MemoryDisk,
    mock: Mock,
    plugins: Vec<SimulatedPlugin>,
    ports: Ports,
    /// Of the agent that runs now.
    directory: Arc<Mutex<Directory>>,
}

impl Machine {
    /// A new machine. `observer` hears of every start, stop and end of a task.
    pub fn new(name: &str, observer: impl Fn(TaskRun, TaskChange) + Send + Sync + 'static) -> Self {
        let mock = Mock::on_node(name).observed(move |run, change| {
            let change = match change {
                MockChange::Started => TaskChange::Started,
                MockChange::StopAsked => TaskChange::StopAsked,
                MockChange::Forgotten => TaskChange::Ended,
            };
            observer(task_run(&run.id), change);
        });
        Self {
            state: MemoryState::default(),
            disk: MemoryDisk::default(),
            mock,
            plugins: Vec::new(),
            ports: Ports::default(),
            directory: Arc::default(),
        }
    }

    /// The same with CSI plugins. `observer` hears of every call and every mount.
    #[must_use]
    pub fn with_plugins(mut self, specs: Vec<PluginSpec>, cloud: &Cloud, observer: &PluginObserver) -> Self {
        let plugin = |spec| SimulatedPlugin {
            spec,
            cloud: cloud.clone(),
            disk: self.disk.clone(),
            // Each life of the agent has chances of its own.
            random: Random::seeded(0),
            observer: Arc::clone(observer),
        };
        self.plugins = specs.into_iter().map(plugin).collect();
        self
    }

    /// Runs an agent until it is stopped. At most one runs at a time; the next one finds what this one left.
    pub async fn run_agent<S: Store>(&self, store: S, life: Life) {
        let mut drivers = Drivers::default();
        let mock = self.mock.of_next_life();
        drivers.add("mock", Arc::new(mock.clone()));
        let mut fingerprint = life.fingerprint;
        fingerprint.drivers =
            [("mock".to_owned(), DriverInfo { detected: true, healthy: true, ..DriverInfo::default() })].into();
        let random = Random::seeded(life.seed);
        let plugins = self.plugins.iter().map(|plugin| {
            let plugin = SimulatedPlugin { random: random.clone(), ..plugin.clone() };
            (plugin.spec.id.clone(), plugin.instance())
        });
        let plugins = plugins.collect();
        let directory = Directory::default();
        *self.directory.lock().unwrap_or_else(PoisonError::into_inner) = directory.clone();
        let (recovering, mut recovered) = mpsc::channel(1);
        let parts = NodeParts {
            store,
            runners: TaskRunners,
            name: life.config.node_name.clone().unwrap_or_default(),
            config: Arc::new(life.config),
            machine: MachineParts {
                users: crate::node::task_users::TaskUsers::none(),
                host_volumes: crate::watch::Sender::new(std::collections::BTreeMap::new()),
                networks: crate::networks::AllocNetworks::pretended(),
                drivers,
                devices: Devices::default(),
                disk: Arc::new(self.disk.clone()),
                disks: Arc::new(NoRemoteDisks),
                fingerprint: watch::Sender::new(fingerprint).subscribe(),
                host_env: std::collections::BTreeMap::new(),
                prober: Arc::new(self.ports.clone()),
                fetcher: Arc::new(AlwaysFetched),
                renderer: Arc::new(crate::renderer::PromptRenderer),
                values: Arc::new(crate::values::NoValues),
                api: Arc::new(crate::task_api::NoTaskApis),
            },
            news: mpsc::channel(1).1,
            clock: life.clock,
            random,
            state: self.state.clone().with_faults(life.faults).store(),
            earlier: EarlierLife { saved: self.state.saved(), is_state_lost: false, recovering },
            shown: SocketView { reports: Reports::default(), directory },
            contacted: watch::Sender::new(false),
            metrics: NodeMetrics::default(),
            plugins: OtherPlugins { known: plugins, kubelet_dir: None, key: None },
            stop: life.stop,
        };
        let strangers = async {
            // Nothing is ever sent: the channel closes when every known task was found again or given up.
            recovered.recv().await;
            mock.end_strangers();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = Box::pin(run_node(parts)) => {}
            () = strangers => {}
        }
    }

    /// Power is gone: whatever ran has ended, and only what was written is left.
    pub fn lose_power(&self) {
        self.mock.lose_all();
        self.disk.lose_mounts();
    }

    /// Ends a task as it may end by itself; false when it does not run.
    pub fn end_task(&self, allocation: &str, task: &str, end: SimulatedEnd) -> bool {
        let exit = match end {
            SimulatedEnd::Code(code) => ExitResult { exit: Exit::code(code), oom_killed: false },
            SimulatedEnd::Signal(signal) => ExitResult { exit: Exit::signal(signal), oom_killed: false },
            SimulatedEnd::OutOfMemory => {
                let oom = Some(OomKill { limit_bytes: 0, peak_bytes: 0 });
                ExitResult { exit: Exit { oom, ..Exit::signal(libc::SIGKILL) }, oom_killed: true }
            }
        };
        self.mock.end(allocation, task, &exit)
    }

    /// From now on the probes of checks find this at a port, for so long, whatever holds it.
    pub fn set_port(&self, port: u16, answer: PortAnswer, lasts: Duration) {
        self.ports.set(port, answer, lasts);
    }

    /// What answers at a port is well again.
    pub fn mend_port(&self, port: u16) {
        self.ports.mend(port);
    }

    /// Restarts tasks of an allocation, as a person may ask; ready when they were ended.
    ///
    /// # Errors
    /// When no agent runs it, or its runner refuses.
    pub async fn restart(&self, allocation: &str, which: Restart) -> Result<(), RequestError> {
        let scope = match which {
            Restart::Task(task) => RestartScope::Task(task),
            Restart::Running => RestartScope::Running,
            Restart::All => RestartScope::All,
        };
        self.ask(allocation, |answer| AllocCommand::Restart { scope, answer }).await
    }

    /// Sends a signal to one task, or to all.
    ///
    /// # Errors
    /// When no agent runs it, its runner refuses, or a task that it is for does not run; the others got it.
    pub async fn signal(&self, allocation: &str, task: Option<&str>, signal: &str) -> Result<(), RequestError> {
        let (task, signal) = (task.map(str::to_owned), signal.to_owned());
        self.ask(allocation, |answer| AllocCommand::Signal { task, signal, answer }).await
    }

    async fn ask(
        &self,
        allocation: &str,
        command: impl FnOnce(oneshot::Sender<Result<(), CommandError>>) -> AllocCommand,
    ) -> Result<(), RequestError> {
        let not_here = || RequestError::NotHere(allocation.to_owned());
        let directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (_, listed) = directory.find(allocation).ok_or_else(not_here)?;
        let (answer, result) = oneshot::channel();
        listed.commands.send(command(answer)).await.map_err(|_| not_here())?;
        Ok(result.await.map_err(|_| not_here())??)
    }
}

/// The parts of `<allocID>/<task>/<8 random>`.
fn task_run(id: &str) -> TaskRun {
    let mut parts = id.splitn(3, '/').map(str::to_owned);
    let mut next = || parts.next().unwrap_or_default();
    TaskRun { allocation: next(), task: next(), run: next() }
}

#[cfg(test)]
mod tests;
