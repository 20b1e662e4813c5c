//! `cargo xtask`: the project's own commands.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, Subcommand};
use drover_testkit::control_plane::Binaries;
use drover_testkit::image::{self, ImageArgs};
use drover_testkit::progress::{Progress, print_line, print_note};
use xtask::bench::{self, BenchArgs};
use xtask::ci::{self, CiArgs};
use xtask::cluster::{self, ClusterCommand, NodeArgs};
use xtask::crds;
use xtask::docs::{self, DocsArgs};
use xtask::figures::{self, FiguresArgs};
use xtask::fuzz::{self, FuzzArgs};
use xtask::machine::{self, MachineArgs};
use xtask::mutants::{self, MutantsArgs};
use xtask::record;
use xtask::test_runner::{self, TestArgs};
use xtask::tidy::{self, TidyArgs};
use xtask::up::{self, DownArgs, StatusArgs, UpArgs};

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Builds etcd, kube-apiserver, kube-controller-manager and kubectl once and prints the folder that holds them
    ControlPlane,
    /// Writes crds/*.yaml from the types in crates/drover-api
    Crds {
        /// Writes nothing; fails when a file differs
        #[arg(long)]
        check: bool,
    },
    /// Writes the references in docs/ from the schema and the commands, and checks the documents
    Docs(DocsArgs),
    /// Draws docs/images/rollout.svg from a real roll-out
    Record,
    /// Builds and runs all tests and names the slowest
    Test(TestArgs),
    /// Runs integration tests in an emulated machine whose control groups are of version 2 only
    Machine(MachineArgs),
    /// Writes drover's container image as an OCI archive and prints its path
    Image(ImageArgs),
    /// Runs a whole Kubernetes cluster with real nodes on this machine
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Is a node of such a cluster
    #[command(hide = true)]
    ClusterNode(NodeArgs),
    /// Measures a whole drover on this machine
    Bench(BenchArgs),
    /// Plants defects one at a time into a copy of the tree and says which of them the simulator finds
    Mutants(MutantsArgs),
    /// Gives the readers of others' bytes to libFuzzer and says what broke
    Fuzz(FuzzArgs),
    /// Runs the whole gate: format, lints, tests, documentation, generated files
    Ci(CiArgs),
    /// Looks for what breaks a rule that no compiler checks
    Tidy(TidyArgs),
    /// Counts what is in the tree
    Figures(FiguresArgs),
    /// Starts drover on this machine: control plane, controller, agent and an example job
    Up(UpArgs),
    /// Stops what `up` started
    Down(DownArgs),
    /// Says what runs and where its logs are
    Status(StatusArgs),
}

fn main() -> ExitCode {
    let result = tokio::runtime::Runtime::new().context("starting the runtime").and_then(|runtime| {
        let result = runtime.block_on(run(Cli::parse().command));
        // A build that is under way ends with this process; it is not waited for.
        runtime.shutdown_background();
        result
    });
    result.unwrap_or_else(|error| {
        print_note(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Test(args) => test_runner::run(&args, &Progress::for_people())?,
        Command::Machine(args) => return machine::run(&args, &Progress::for_people()),
        Command::Image(args) => print_line(&image::run(&args, &Progress::for_people())?.display().to_string()),
        Command::Cluster(command) => return cluster::run(command).await,
        Command::ClusterNode(args) => cluster::node(&args)?,
        Command::Bench(args) => return bench::run(&args).await,
        Command::Mutants(args) => return mutants::run(&args),
        Command::Fuzz(args) => return fuzz::run(&args),
        Command::Docs(args) => docs::run(&args, &Cli::command(), &Progress::for_people())?,
        Command::Record => record::run(&Progress::for_people()).await?,
        Command::Ci(args) => ci::run(&args, &Progress::for_people())?,
        Command::Tidy(args) => tidy::run(&args)?,
        Command::Figures(args) => figures::run(&args)?,
        Command::Up(args) => return up::up(args).await,
        Command::Down(args) => up::down(&args).await?,
        Command::Status(args) => return up::status(&args),
        Command::ControlPlane => {
            let binaries = Binaries::find_or_build(&Progress::for_people())?;
            for folder in binaries.folders() {
                print_line(&folder.display().to_string());
            }
        }
        Command::Crds { check: true } => crds::check()?,
        Command::Crds { check: false } => {
            for name in crds::write()? {
                print_note(&format!("wrote {name}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
