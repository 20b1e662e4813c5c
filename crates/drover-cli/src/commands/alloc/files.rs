//! `drover alloc fs`.

use anyhow::bail;

use crate::ui::output::Output;
use drover_socket::protocol::{Answer, FileInfo, Request};

use super::agent::Agent;
use super::show;
use super::target::AllocTarget;

#[derive(Debug, clap::Args)]
pub(super) struct FsArgs {
    #[command(flatten)]
    pub(super) target: AllocTarget,
    /// Beneath its directory.
    #[arg(default_value = "/")]
    path: String,
    /// Describe the file or directory instead of showing what is in it.
    #[arg(long)]
    stat: bool,
    /// Only the last bytes of a file.
    #[arg(long, value_name = "BYTES", conflicts_with = "stat")]
    tail: Option<u64>,
    /// How lists and descriptions are printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

/// Does it.
pub(super) async fn run(agent: &Agent, args: &FsArgs) -> anyhow::Result<()> {
    let (allocation, path) = (args.target.id(), args.path.clone());
    let stat = agent.ask(&Request::Stat { allocation: allocation.clone(), path: path.clone() }).await?;
    let Some(Answer::File(file)) = stat.into_iter().next() else { bail!("the agent did not describe {path}") };
    if args.stat {
        return show::files(&[file], &args.output);
    }
    if !file.is_dir {
        return agent.read(&allocation, &path, args.tail).await;
    }
    let listed = agent.ask(&Request::List { allocation, path }).await?;
    let parts =
        listed.into_iter().filter_map(|answer| if let Answer::Files(part) = answer { Some(part) } else { None });
    let files: Vec<FileInfo> = parts.flatten().collect();
    show::files(&files, &args.output)
}
