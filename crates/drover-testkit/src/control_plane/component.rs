//! One program of the control plane as a process: started with the same command each time, ended and held by its id.

use std::fmt;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::process::{ProcessId, Signal};
use crate::spawner;
use crate::workspace::last_lines;

/// What a process that we start is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The store below the API server.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// Garbage collection, namespaces, service accounts, slices of Services with a selector.
    KubeControllerManager,
    /// Places pods on nodes.
    KubeScheduler,
    /// The DNS of a whole cluster.
    ClusterDns,
    /// A node of a whole cluster: its first process, with kubelet and containerd below.
    Node,
    /// `droverd controller`.
    Controller,
    /// `droverd gateway`.
    Gateway,
    /// `droverd agent`.
    Agent,
    /// `droverd supervisor`, which the agent starts and which outlives it.
    Supervisor,
}

impl Role {
    /// The name in messages, log files and `status -o json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::ClusterDns => "cluster-dns",
            Self::Node => "node",
            Self::Controller => "controller",
            Self::Agent => "agent",
            Self::Gateway => "gateway",
            Self::Supervisor => "supervisor",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What happens to the processes when the one that started them ends without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// The kernel ends them too: right for tests.
    BoundToThisProcess,
    /// They go on, and who started them keeps their ids: right for `up`.
    Independent,
}

/// How to start a process.
#[derive(Debug, Clone)]
pub struct Launch {
    /// What it is there for.
    pub role: Role,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables beside the inherited ones.
    pub env: Vec<(String, String)>,
    /// The folder it runs in.
    pub folder: PathBuf,
    /// The file that its output is appended to.
    pub log: PathBuf,
    /// What happens when this process ends without a word.
    pub lifetime: Lifetime,
}

/// A process that was started from a [`Launch`], and may be started again.
#[derive(Debug)]
pub struct Component {
    launch: Launch,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    id: ProcessId,
}

impl Component {
    /// Starts the process in a process group of its own, so that Ctrl-C in the terminal does not reach it before we
    /// decide.
    ///
    /// # Errors
    /// When its program or log cannot be opened.
    pub fn start(launch: Launch) -> Result<Self> {
        let mut component = Self { launch, running: None };
        component.start_again()?;
        Ok(component)
    }

    /// Starts the process again with the same command, after it has ended.
    ///
    /// # Errors
    /// When it still runs, or cannot be started.
    pub fn start_again(&mut self) -> Result<ProcessId> {
        let role = self.launch.role;
        if let Some(id) = self.id() {
            bail!("{role} runs already as process {}", id.pid);
        }
        self.reap()?;
        let command = self.command()?;
        let spawned = match self.launch.lifetime {
            Lifetime::BoundToThisProcess => spawner::spawn_bound_to_this_process(command),
            Lifetime::Independent => { command }.spawn(),
        };
        let mut child = spawned.with_context(|| format!("starting {role} from {}", self.launch.program.display()))?;
        let pid = i32::try_from(child.id()).context("process number out of range")?;
        let Some(id) = ProcessId::of(pid) else {
            let status = child.wait().with_context(|| format!("waiting for {role}"))?;
            bail!(
                "{role} ended with {status} at once; its log {}:\n{}",
                self.launch.log.display(),
                last_lines(&self.launch.log, 15)
            );
        };
        self.running = Some(Running { child, id });
        Ok(id)
    }

    fn command(&self) -> Result<Command> {
        let Launch { program, args, env, folder, log, .. } = &self.launch;
        let output = OpenOptions::new().create(true).append(true).open(log);
        let output = output.with_context(|| format!("opening the log {}", log.display()))?;
        let errors = output.try_clone().context("sharing the log")?;
        let mut command = Command::new(program);
        command.args(args).envs(env.iter().cloned()).current_dir(folder);
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        Ok(command)
    }

    /// How it is started.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// The process while it runs.
    pub fn id(&self) -> Option<ProcessId> {
        self.running.as_ref().map(|running| running.id).filter(|id| id.is_alive())
    }

    /// Says whether there is a process whose end has not been collected yet.
    pub fn was_started(&self) -> bool {
        self.running.is_some()
    }

    /// Sends a signal if the process runs.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        if let Some(id) = self.id() {
            id.signal(signal).with_context(|| format!("signalling {}", self.launch.role))?;
        }
        Ok(())
    }

    /// Collects the exit status of a process that has ended, so that no zombie stays. None while it runs or before it
    /// was started.
    ///
    /// # Errors
    /// When the kernel does not know the child.
    pub fn reap(&mut self) -> Result<Option<ExitStatus>> {
        let Some(running) = &mut self.running else { return Ok(None) };
        let status = running.child.try_wait().with_context(|| format!("waiting for {}", self.launch.role))?;
        if status.is_some() {
            self.running = None;
        }
        Ok(status)
    }

    /// Fails with the end of the log when the process has ended.
    ///
    /// # Errors
    /// When it has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        let Launch { role, log, .. } = self.launch.clone();
        if self.id().is_some() {
            return Ok(());
        }
        let status = self.reap()?.map_or_else(|| "is not running".to_owned(), |status| format!("ended with {status}"));
        bail!("{role} {status}; the end of its log {}:\n{}", log.display(), last_lines(&log, 15))
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        let Some(running) = &mut self.running else { return };
        // Held processes take SIGKILL too. Nothing can be reported from here, and nothing is left to do when it fails.
        running.id.signal(Signal::KILL).ok();
        if running.id.wait_gone_blocking(Duration::from_secs(10)).unwrap_or(false) {
            running.child.wait().ok();
        }
    }
}
