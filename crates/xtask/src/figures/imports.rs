//! `cargo xtask figures`: what is in the tree, counted.

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};

use crate::progress::print_line;
use crate::tidy::imports;

/// What `figures` is told.
#[derive(Debug, Clone, Args)]
pub struct FiguresArgs {
    #[command(subcommand)]
    figure: Figure,
}

#[derive(Debug, Clone, Subcommand)]
enum Figure {
    /// Which files use which: circles of files, and dependencies against the order of the crates
    Imports {
        /// Print it for programs
        #[arg(long)]
        json: bool,
    },
}

/// `cargo xtask figures`.
///
/// # Errors
/// When the tree cannot be read.
pub fn run(args: &FiguresArgs) -> Result<()> {
    match &args.figure {
        Figure::Imports { json } => print_imports(*json),
    }
}

fn print_imports(as_json: bool) -> Result<()> {
    let figure = imports::Figure::of_workspace()?;
    if as_json {
        print_line(&serde_json::to_string(&figure).context("rendering the figure")?);
        return Ok(());
    }
    print_line(&format!("{:<24} {:>6} {:>7} {:>8}", "CRATE", "FILES", "ARROWS", "CIRCLES"));
    for part in &figure.crates {
        let n_circles = part.circles.len();
        print_line(&format!("{:<24} {:>6} {:>7} {n_circles:>8}", part.name, part.n_files, part.n_arrows));
    }
    for fault in figure.faults() {
        print_line(&fault);
    }
    Ok(())
}
