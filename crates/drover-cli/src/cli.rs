//! The parser of the command, and which module runs what.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use k8s_openapi::api::core::v1::Namespace;

use crate::commands::{alloc, deployment, dump, job, node, nomad, plan, system, top, volume};
use crate::completion;
use crate::ui::stdio::complain;

/// The exit code of an error where lower ones say how a plan came out.
const PLAN_ERROR: u8 = 255;

/// Commands that a program offers beside those of the CLI; their errors exit with 255.
pub trait MoreCommands: Subcommand + std::fmt::Debug {
    /// Runs the command and returns the exit code.
    ///
    /// # Errors
    /// With what went wrong, for the user.
    fn run(self) -> anyhow::Result<u8>;
}

#[derive(Debug, Parser)]
#[command(
    name = "drover",
    version,
    about = "Jobs of drover: run them, roll them out, and see what would happen",
    propagate_version = true
)]
struct Cli<M: MoreCommands> {
    #[command(subcommand)]
    command: Command<M>,
}

#[derive(Debug, Subcommand)]
enum Command<M: MoreCommands> {
    /// Runs, checks and changes jobs.
    #[command(subcommand)]
    Job(JobCommand),
    /// Looks at roll-outs, promotes, pauses and fails them.
    #[command(subcommand)]
    Deployment(deployment::DeploymentCommand),
    /// Looks at nodes, drains them, and keeps new allocations away.
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Registers, makes, copies and deletes CSI volumes, and shows who holds them.
    #[command(subcommand)]
    Volume(volume::VolumeCommand),
    /// Shows an allocation, looks into those of this node, and acts on them.
    Alloc(alloc::AllocArgs),
    /// Shows what nodes, jobs or allocations use now, beside what they were given; on a terminal again and again, until
    /// q or Ctrl-C.
    Top(top::TopArgs),
    /// Runs `nomad` and other clients of Nomad against the gateway, with the rights of a kubeconfig.
    Nomad(nomad::NomadArgs),
    /// Acts on drover itself, from outside.
    #[command(subcommand)]
    System(system::SystemCommand),
    /// Prints the script by which a shell completes drover's commands and the names of objects:
    /// `source <(drover completion bash)`.
    Completion {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Plans one evaluation on a saved state; nothing is written anywhere.
    Plan(plan::StateArgs),
    /// Writes the state that a plan needs, one object per line; secrets never.
    Dump(dump::DumpArgs),
    #[command(flatten)]
    More(M),
}

#[derive(Debug, Subcommand)]
enum JobCommand {
    /// Applies a manifest, and shows the roll-out until the job runs.
    Run(job::RunArgs),
    /// Shows all jobs, or one with its deployment and allocations.
    Status(job::JobStatusArgs),
    /// Shows the output of all allocations of a job, each line with where it comes from.
    Logs(job::JobLogsArgs),
    /// Shows a job whole: as it is stored, as a job file in HCL, or as Nomad's JSON.
    Inspect(job::InspectArgs),
    /// Lists the versions of a job.
    History(job::HistoryArgs),
    /// Gives a job the spec of an older version again.
    Revert(job::RevertArgs),
    /// Sets how many allocations a group has.
    Scale(job::ScaleArgs),
    /// Starts a stopped job again, and follows it until it runs.
    Start(job::StartJobArgs),
    /// Stops a job, or deletes it.
    Stop(job::StopJobArgs),
    /// Replaces the allocations of a job, a few at a time.
    Restart(job::RestartJobArgs),
    /// Lets the healthy canaries of a job's newest deployment take over.
    Promote(deployment::PromoteArgs),
    /// Runs a parameterized job with a payload and meta.
    Dispatch(job::DispatchArgs),
    /// Acts on periodic jobs.
    #[command(subcommand)]
    Periodic(job::PeriodicCommand),
    /// Turns Nomad's job files, volume files and jobs in JSON into manifests, without a cluster.
    Import(job::ImportArgs),
    /// Says all that is wrong with job manifests and job files, without a cluster.
    Validate(job::ValidateArgs),
    /// Plans a manifest against the cluster; nothing is written.
    Plan(plan::JobArgs),
}

impl<M: MoreCommands> Command<M> {
    /// The exit code of an error of this command.
    fn error_code(&self) -> u8 {
        match self {
            Self::Plan(_) | Self::More(_) | Self::Job(JobCommand::Plan(_)) => PLAN_ERROR,
            Self::Alloc(_)
            | Self::Top(_)
            | Self::Dump(_)
            | Self::Job(_)
            | Self::Deployment(_)
            | Self::Node(_)
            | Self::Volume(_)
            | Self::Nomad(_)
            | Self::System(_)
            | Self::Completion { .. } => 1,
        }
    }

    fn run(self) -> anyhow::Result<u8> {
        match self {
            Self::Job(JobCommand::Run(args)) => job::run(&args),
            Self::Job(JobCommand::Status(args)) => job::status(&args),
            Self::Job(JobCommand::Logs(args)) => job::logs(&args),
            Self::Job(JobCommand::Inspect(args)) => job::inspect(&args),
            Self::Job(JobCommand::History(args)) => job::history(&args),
            Self::Job(JobCommand::Revert(args)) => job::revert(&args),
            Self::Job(JobCommand::Scale(args)) => job::scale(&args),
            Self::Job(JobCommand::Start(args)) => job::start(&args),
            Self::Job(JobCommand::Stop(args)) => job::stop(&args),
            Self::Job(JobCommand::Restart(args)) => job::restart(&args),
            Self::Job(JobCommand::Promote(args)) => deployment::promote(&args),
            Self::Job(JobCommand::Dispatch(args)) => job::dispatch(&args),
            Self::Job(JobCommand::Periodic(command)) => job::periodic(&command),
            Self::Deployment(command) => deployment::run(&command),
            Self::Node(command) => node::run(&command),
            Self::Volume(command) => volume::run(&command),
            Self::Nomad(args) => nomad::run(&args),
            Self::System(command) => system::run(&command),
            Self::Alloc(args) => alloc::run(&args),
            Self::Top(args) => top::run(&args),
            Self::Completion { shell } => completion::script(shell),
            Self::Job(JobCommand::Import(args)) => job::import(&args),
            Self::Job(JobCommand::Validate(args)) => job::validate(&args),
            Self::Job(JobCommand::Plan(args)) => plan::run_job(&args),
            Self::Plan(args) => plan::run_state(&args),
            Self::Dump(args) => dump::run(&args),
            Self::More(command) => command.run(),
        }
    }
}

/// Runs the command that the arguments name, one of the CLI or of `M`, and returns the exit code of the process.
pub fn run<M: MoreCommands>(args: &[OsString]) -> ExitCode {
    match completion::answer_shell(args, command::<M>) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("error: {error:#}"));
            return ExitCode::from(1);
        }
    }
    let cli = match parse::<M>(args) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error, args),
    };
    let error_code = cli.command.error_code();
    let code = cli.command.run().unwrap_or_else(|error| {
        complain(&format!("error: {error:#}"));
        error_code
    });
    ExitCode::from(code)
}

/// The parser of the CLI with these commands.
pub fn command<M: MoreCommands>() -> clap::Command {
    with_namespaces(Cli::<M>::command())
}

/// Has each `--namespace` complete the names of the cluster's namespaces. The flag itself cannot: names come from the
/// cluster that the flags name.
fn with_namespaces(command: clap::Command) -> clap::Command {
    let completing = |arg: clap::Arg| {
        if arg.get_id() == "namespace" { arg.add(completion::cluster_names::<Namespace>()) } else { arg }
    };
    command.mut_args(completing).mut_subcommands(with_namespaces)
}

fn parse<M: MoreCommands>(args: &[OsString]) -> Result<Cli<M>, clap::Error> {
    let program = args.first().map(Path::new).and_then(Path::file_stem).unwrap_or_default();
    let name = if program == "kubectl-drover" { "kubectl drover" } else { "drover" };
    let matches = command::<M>().bin_name(name).try_get_matches_from(args)?;
    Cli::from_arg_matches(&matches)
}

/// Shows help or what is wrong with the arguments; `plan` has a code of its own for errors.
fn refuse(error: &clap::Error, args: &[OsString]) -> ExitCode {
    if let Err(error) = error.print() {
        complain(&format!("error: {error}"));
    }
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    let is_plan = args.iter().take(3).any(|arg| arg == "plan" || arg == "simulate");
    ExitCode::from(if is_plan { PLAN_ERROR } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Subcommand)]
    enum NoMore {}

    impl MoreCommands for NoMore {
        fn run(self) -> anyhow::Result<u8> {
            match self {}
        }
    }

    #[test]
    fn every_command_can_be_parsed() {
        Cli::<NoMore>::command().debug_assert();
    }
}
