//! The command's arguments, and which figure they ask for.

use anyhow::Result;
use clap::{Args, Subcommand};

use super::{imports, tests_to_code};

/// What `figures` is told.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct FiguresArgs {
    #[command(subcommand)]
    figure: Option<FigureName>,
    /// Print the lines of tests and of code for programs
    #[arg(long)]
    json: bool,
    /// Fail where there are too few lines of tests
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Clone, Subcommand)]
enum FigureName {
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
/// When the tree cannot be read, or holds too few lines of tests and that was asked.
pub fn run(args: &FiguresArgs) -> Result<()> {
    match &args.figure {
        Some(FigureName::Imports { json }) => imports::print(*json),
        None => {
            let figure = tests_to_code::Figure::of_workspace()?;
            figure.print(args.json)?;
            if args.check { figure.check() } else { Ok(()) }
        }
    }
}
