//! `drover job run`: applies a manifest and shows the roll-out.

use std::path::PathBuf;

use anyhow::ensure;
use drover_api::Job;

use super::after::AfterArgs;
use super::validate::violations;
use crate::cluster::connect::{ConnectArgs, block_on};
use crate::cluster::manifest::{Applying, Manifest};
use crate::ui::stdio::complain;

/// Where a change is only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DryRun {
    /// Check the manifest without a cluster.
    Client,
    /// Let the API server check it.
    Server,
}

/// Arguments of `drover job run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 it runs (a batch job: is done), 1 error, 2 it failed, 3 the time was over, 130 detached by Ctrl-C."
)]
pub(crate) struct RunArgs {
    /// A file with one Job; `-` is standard input.
    file: PathBuf,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    after: AfterArgs,
    /// Change nothing.
    #[arg(long, value_enum)]
    dry_run: Option<DryRun>,
    /// Take over fields that another field manager set, such as a pipeline or kubectl.
    #[arg(long)]
    force_conflicts: bool,
}

/// Applies the manifest, and follows the job.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<u8> {
    let manifest = Manifest::read(&args.file, "Job", "djob")?;
    let name = &manifest.name;
    // The same checks as the controller's, before anything is changed.
    let violations = violations(&manifest.value);
    let texts: Vec<String> = violations.iter().map(|violation| format!("\n  {violation}")).collect();
    ensure!(texts.is_empty(), "djob/{name} is invalid:{}", texts.concat());
    if args.dry_run == Some(DryRun::Client) {
        complain(&format!("djob/{name} is valid; nothing was changed"));
        return Ok(0);
    }
    block_on(async {
        let connection = manifest.connect(&args.connect).await?;
        let how = Applying { is_dry_run: args.dry_run == Some(DryRun::Server), takes_over: args.force_conflicts };
        let applied = manifest.apply(&connection.objects::<Job>(), how).await?;
        args.after.print(&applied)?;
        if args.dry_run.is_some() {
            complain(&format!("djob/{name} is valid; nothing was changed"));
            return Ok(0);
        }
        args.after.follow(&connection, &applied, "is applied").await
    })
}
