//! The daemon: one binary, one role per process.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use drover::telemetry::{self, LogFormat};

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
    },
    /// Runs the allocations of this machine.
    Agent {
        /// The agent's configuration file.
        #[arg(long)]
        config: PathBuf,
        /// How to reach the API server; default: as a pod, or as kubectl does.
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
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
        /// Start it as nobody's child, and return.
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
    match role {
        Role::Controller { config, kubeconfig, identity } => {
            drover::controller::main(&config, kubeconfig.as_deref(), identity)?;
        }
        Role::Agent { config, kubeconfig } => drover::agent::run(&config, kubeconfig.as_deref())?,
        Role::Supervisor { state_dir, alloc_dir, detach: true, .. } => {
            drover::supervisor::detach(&state_dir, &alloc_dir)?;
        }
        Role::Sandbox => drover::supervisor::sandbox()?,
        Role::Enter => return drover::supervisor::enter(),
        Role::Supervisor { state_dir, alloc_dir, detach: false, resume } => {
            drover::supervisor::run(&state_dir, &alloc_dir, resume)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
