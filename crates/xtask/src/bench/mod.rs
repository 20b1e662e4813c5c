//! `cargo xtask bench`: figures of a whole drover on this machine, taken on a system of its own that `up` starts and that ends
//! afterwards. What is printed for programs is described in the project's bench format: one JSON object on stdout.

mod agent;
mod agent_lives;
mod agent_neighbours;
mod cluster;
mod cluster_load;
mod cluster_stage;
mod density;
mod deployments;
mod report;
mod scheduler;
mod start;
mod status;
mod volumes;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use drover_testkit::cargo::Profile;
use drover_testkit::progress::{Progress, print_note};

/// A bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// From the create request of a one-task job to the watch event that shows it running
    Start,
    /// Rate of starts, memory per task and idle CPU of 200 tasks on one node
    Density,
    /// What controller and agent do while 200 tasks run and nothing changes: CPU and API writes
    Idle,
    /// What the agent adds to a start, its rate of starts, its memory and CPU, for each driver of processes
    Agent,
    /// API writes and health delay of 1,000 healthy lives that begin over ten seconds
    AgentLives,
    /// What hogs of CPU, memory, processes and disk cost a neighbour that measures its delays
    AgentNeighbours,
    /// One controller in front of 5,000 and 10,000 nodes: placing, a new leader, heartbeats, jobs that wait for room
    Cluster,
    /// 1,000, 10,000 and 30,000 roll-outs under way: CPU per change, memory of each, watches, and the writes of one to its end
    Deployments,
    /// How long `drover job status` takes on a job of 10,000 allocations, and how often it lists them
    Status,
    /// 1,000 and 10,000 volumes of five claims each, a tenth of the nodes lost: time and writes until their claims are free
    Volumes,
    /// Single evaluations in memory, over nodes, allocations, racks and spread; median of at least five runs
    Scheduler,
    /// Single evaluations in memory of the shapes that cost most; median of at least five runs
    SchedulerHard,
}

/// What `bench` is told.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// Which one
    #[arg(value_enum)]
    pub name: Name,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// How often it is repeated, each time on a new system; figures are medians
    #[arg(long, default_value_t = 1)]
    pub runs: usize,
    /// How many jobs (start) or tasks (density, idle)
    #[arg(long)]
    pub count: Option<usize>,
    /// How long nothing happens while idleness is measured
    /// [default: 60, for `agent` 20 for each driver]
    #[arg(long, value_name = "SECONDS")]
    pub idle_seconds: Option<u64>,
    /// How controller and agent are built
    #[arg(long, value_enum, default_value = "release")]
    pub profile: Profile,
}

impl BenchArgs {
    fn idle_seconds(&self) -> u64 {
        self.idle_seconds.unwrap_or(if self.name == Name::Agent { 20 } else { 60 })
    }
}

/// `cargo xtask bench`. Exits with 2 when it cannot run; a target that falls short is no failure.
///
/// # Errors
/// Never: what goes wrong is on stderr and in the exit code.
pub async fn run(args: &BenchArgs) -> Result<ExitCode> {
    match measure(args, &Progress::for_people()).await {
        Ok(report) => {
            report.print(args.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            print_note(&format!("error: the bench could not run: {error:#}"));
            Ok(ExitCode::from(2))
        }
    }
}

async fn measure(args: &BenchArgs, progress: &Progress) -> Result<report::Report> {
    let machine = report::Machine::observe()?;
    if matches!(args.name, Name::Scheduler | Name::SchedulerHard) {
        let measured = scheduler::run(args, progress)?;
        return report::Report::of_figures(args.name, machine, measured.runs, &measured.figures, measured.rows);
    }
    let mut runs = Vec::new();
    for _ in 0..args.runs.max(1) {
        runs.push(match args.name {
            Name::Start => vec![start::run(args, progress).await?],
            Name::Density | Name::Idle => vec![density::run(args, progress).await?],
            Name::AgentLives => vec![agent_lives::run(args, progress).await?],
            Name::AgentNeighbours => vec![agent_neighbours::run(args, progress).await?],
            Name::Status => vec![status::run(args, progress).await?],
            Name::Cluster => vec![cluster_load::run(args, progress).await?],
            Name::Deployments => deployments::run(args, progress).await?,
            Name::Volumes => volumes::run(args, progress).await?,
            Name::Agent | Name::Scheduler | Name::SchedulerHard => agent::run(args, progress).await?,
        });
    }
    report::Report::of_rows(args.name, machine, &runs)
}
