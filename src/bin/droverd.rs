//! The daemon: one binary, one role per process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use drover_agent::AgentStart;
use drover_api::GoDuration;
use drover_daemon::memory;
use drover_daemon::telemetry::{self, LogFormat};

/// A controller takes thousands of objects in at once and drops as many: what it gave back must be given back to the
/// machine too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "droverd", version, about = "Runs a part of drover")]
struct Cli {
    /// What is logged: a level, or a list like `drover=debug,kube=warn`.
    #[arg(long, global = true, env = "DROVER_LOG", default_value = "info")]
    log: String,
    /// How log lines look.
    #[arg(long, global = true, env = "DROVER_LOG_FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Decides: schedules jobs, watches nodes, keeps statuses. Several replicas elect a leader.
    Controller {
        /// The controller's configuration file.
        #[arg(long)]
        config: PathBuf,
        /// How to reach the API server; default: as a pod, or as kubectl does.
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        /// This replica's name in the leader election; default the host's name and the process id.
        #[arg(long, env = "POD_NAME")]
        identity: Option<String>,
        /// Where /healthz, /readyz and /metrics are answered; nowhere unless given.
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
    },
    /// Runs the allocations of this machine.
    Agent {
        /// The agent's configuration file.
        #[arg(long)]
        config: PathBuf,
        /// How to reach the API server; default: as a pod, or as kubectl does.
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        #[command(flatten)]
        pod: PodArgs,
    },
    /// Carries operations on allocations from users to agents, which dial it. Several replicas are all active.
    Gateway {
        /// The gateway's configuration file.
        #[arg(long)]
        config: PathBuf,
        /// How to reach the API server; default: as a pod, or as kubectl does.
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        /// Where /healthz, /readyz and /metrics are answered; nowhere unless given.
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
    },
    /// Drains every node by force, and ends when nothing runs any more. The chart does so before it is uninstalled,
    /// where its values ask for it.
    StopAll {
        /// How to reach the API server; default: as a pod, or as kubectl does.
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        /// How long that may take, as 4m.
        #[arg(long, default_value = "4m")]
        deadline: GoDuration,
    },
    /// Owns the tasks of one agent and outlives it. Started by the agent.
    #[command(hide = true)]
    Supervisor {
        /// The agent's state folder.
        #[arg(long)]
        state_dir: PathBuf,
        /// The folder of the allocations' directories.
        #[arg(long)]
        alloc_dir: PathBuf,
        /// The soft limit of open files that tasks get; default: the one that this process gets.
        #[arg(long)]
        open_files: Option<u64>,
        /// Start it as a child of no process, and return.
        #[arg(long)]
        detach: bool,
        /// The descriptor of the state that the program before this one has left.
        #[arg(long)]
        resume: Option<i32>,
    },
    /// Becomes a task of driver `exec`. Started by the supervisor.
    #[command(hide = true)]
    Sandbox,
    /// Becomes a command in a running task. Started by the agent.
    #[command(hide = true)]
    Enter,
    /// Fetches an artifact of a task. Started by the agent.
    #[command(hide = true)]
    Fetch,
    /// Renders a template of a task. Started by the agent.
    #[command(hide = true)]
    RenderTemplate,
    /// Carries connections to ports of the node into networks of allocations. Started by the supervisor.
    #[command(hide = true)]
    Forward {
        /// The socket over which the agent says which ports.
        #[arg(long)]
        socket: PathBuf,
    },
    /// Makes the first process of a container, and outlives the agent meanwhile. Started by the agent.
    #[command(hide = true)]
    MakeContainer {
        /// Below which control group those are that look after containers.
        cgroup_base: String,
    },
}

/// What the agent is told by its pod.
#[derive(clap::Args)]
struct PodArgs {
    /// Leave this pod: become a process of the node that it runs on. Needs hostPID and a privileged container.
    #[arg(long)]
    enter_node: bool,
    /// The name of the ClientNode, where the configuration has none.
    #[arg(long, env = "NODE_NAME")]
    node_name: Option<String>,
    /// Offer this much CPU to allocations, in thousandths of a core, where the configuration says nothing.
    #[arg(long, env = "OFFERED_MILLICPU", value_name = "N")]
    offer_millicpu: Option<u32>,
    /// Offer this much memory to allocations, in MiB, where the configuration says nothing.
    #[arg(long, env = "OFFERED_MEMORY_MB", value_name = "N")]
    offer_memory_mb: Option<u32>,
    /// Where /healthz, /readyz and /metrics are answered; nowhere unless given.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match telemetry::init(&cli.log, cli.log_format).and_then(|()| run(cli.role)) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(role: Role) -> anyhow::Result<ExitCode> {
    if matches!(role, Role::Agent { .. } | Role::Gateway { .. } | Role::Supervisor { .. } | Role::Forward { .. }) {
        memory::leave_no_cores()?;
    }
    if matches!(role, Role::Gateway { .. }) {
        memory::use_small_pages()?;
    }
    match role {
        Role::Controller { config, kubeconfig, identity, listen } => {
            drover_controller::main(&config, kubeconfig.as_deref(), identity, listen)?;
        }
        Role::Agent { config, kubeconfig, pod } => drover_agent::run(&AgentStart {
            config,
            kubeconfig,
            enter_node: pod.enter_node,
            node_name: pod.node_name,
            offered_millicpu: pod.offer_millicpu,
            offered_memory_mb: pod.offer_memory_mb,
            listen: pod.listen,
        })?,
        Role::Gateway { config, kubeconfig, listen } => {
            drover_gateway::main(&config, kubeconfig.as_deref(), listen)?;
        }
        Role::StopAll { kubeconfig, deadline } => drover::stop_all::main(kubeconfig.as_deref(), deadline.to_std())?,
        Role::Supervisor { state_dir, alloc_dir, open_files, detach: true, .. } => {
            drover_supervisor::detach(&state_dir, &alloc_dir, open_files)?;
        }
        Role::Sandbox => drover_supervisor::sandbox()?,
        Role::Fetch => drover_fetch::run()?,
        Role::RenderTemplate => drover_template::run()?,
        Role::Forward { socket } => {
            drover_supervisor::raise_open_files();
            drover_forwarder::run(&socket)?;
        }
        Role::MakeContainer { cgroup_base } => drover_agent::make_container(&cgroup_base)?,
        Role::Enter => return drover_supervisor::enter(),
        Role::Supervisor { state_dir, alloc_dir, open_files, detach: false, resume } => {
            drover_supervisor::run(&state_dir, &alloc_dir, open_files, resume)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
