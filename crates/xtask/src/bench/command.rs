//! Runs a bench as often as was asked, and prints its report.

use std::process::ExitCode;

use anyhow::Result;
use drover_testkit::progress::{Progress, print_note};

use super::args::{BenchArgs, BenchName};
use super::report::{BenchReport, Machine};
use super::{
    agent, agent_lives, agent_neighbours, cluster_load, containers, density, deployments, gateway, nomad_api,
    scheduler, secrets, services, start, status, volumes,
};

/// `cargo xtask bench`. Exits with 2 when it cannot run; a target that falls short is no failure.
///
/// # Errors
/// Never: what goes wrong is on stderr and in the exit code.
pub async fn run(args: &BenchArgs) -> Result<ExitCode> {
    let progress = Progress::for_people();
    if args.name == BenchName::Containers && !containers::is_placed() {
        return match containers::in_own_network(&progress) {
            Ok(code) => Ok(code),
            Err(error) => Ok(cannot(&error)),
        };
    }
    match measure(args, &progress).await {
        Ok(report) => {
            report.print(args.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Ok(cannot(&error)),
    }
}

fn cannot(error: &anyhow::Error) -> ExitCode {
    print_note(&format!("error: the bench could not run: {error:#}"));
    ExitCode::from(2)
}

async fn measure(args: &BenchArgs, progress: &Progress) -> Result<BenchReport> {
    let machine = Machine::observe()?;
    if matches!(args.name, BenchName::Scheduler | BenchName::SchedulerHard) {
        let measured = scheduler::run(args, progress)?;
        return BenchReport::of_figures(args.name, machine, measured.runs, &measured.figures, measured.rows);
    }
    let mut runs = Vec::new();
    for _ in 0..args.runs.max(1) {
        runs.push(match args.name {
            BenchName::Start => vec![start::run(args, progress).await?],
            BenchName::Density | BenchName::Idle => vec![density::run(args, progress).await?],
            BenchName::AgentLives => vec![agent_lives::run(args, progress).await?],
            BenchName::AgentNeighbours => vec![agent_neighbours::run(args, progress).await?],
            BenchName::NomadApi => vec![nomad_api::run(args, progress).await?],
            BenchName::Gateway => vec![gateway::run(args, progress).await?],
            BenchName::Secrets => vec![secrets::run(args, progress).await?],
            BenchName::Services => vec![services::run(args, progress).await?],
            BenchName::Status => vec![status::run(args, progress).await?],
            BenchName::Containers => vec![containers::run(args, progress).await?],
            BenchName::Cluster => vec![cluster_load::run(args, progress).await?],
            BenchName::Deployments => deployments::run(args, progress).await?,
            BenchName::Volumes => volumes::run(args, progress).await?,
            BenchName::Agent | BenchName::Scheduler | BenchName::SchedulerHard => agent::run(args, progress).await?,
        });
    }
    BenchReport::of_rows(args.name, machine, &runs)
}
