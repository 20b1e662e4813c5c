//! Runs a bench as often as was asked, and prints its report.

use std::process::ExitCode;

use anyhow::Result;
use drover_testkit::progress::{Progress, print_note};

use super::args::{BenchArgs, Name};
use super::report::{Machine, Report};
use super::{
    agent, agent_lives, agent_neighbours, cluster_load, density, deployments, scheduler, start, status, volumes,
};

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

async fn measure(args: &BenchArgs, progress: &Progress) -> Result<Report> {
    let machine = Machine::observe()?;
    if matches!(args.name, Name::Scheduler | Name::SchedulerHard) {
        let measured = scheduler::run(args, progress)?;
        return Report::of_figures(args.name, machine, measured.runs, &measured.figures, measured.rows);
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
    Report::of_rows(args.name, machine, &runs)
}
