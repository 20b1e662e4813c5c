//! `cargo xtask`: the project's own commands.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::control_plane::Binaries;
use xtask::crds;
use xtask::progress::{Progress, print_line, print_note};

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
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            print_note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::ControlPlane => {
            let binaries = Binaries::find_or_build(&Progress::for_people())?;
            print_line(&binaries.folder().display().to_string());
        }
        Command::Crds { check: true } => crds::check()?,
        Command::Crds { check: false } => {
            for name in crds::write()? {
                print_note(&format!("wrote crds/{name}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
