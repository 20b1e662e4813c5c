//! `drover job start`.

use anyhow::ensure;
use drover_api::Job;
use serde_json::json;

use super::after::AfterArgs;
use crate::cluster::connect::{ConnectArgs, block_on};
use crate::completion::names;
use crate::ui::stdio::complain;

/// Arguments of `drover job start`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 it runs (a batch job: is done), 1 error, 2 it failed, 3 the time was over, 130 detached by Ctrl-C."
)]
pub(crate) struct StartJobArgs {
    /// The job.
    #[arg(add = names::<Job>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    after: AfterArgs,
}

/// Starts a stopped job with the spec that it has, also where another writer stopped it, and follows it.
pub(crate) fn start(args: &StartJobArgs) -> anyhow::Result<u8> {
    block_on(async {
        let connection = args.connect.connect().await?;
        let jobs = connection.objects::<Job>();
        let (name, job) = (&args.name, jobs.get(&args.name).await?);
        ensure!(
            job.metadata.deletion_timestamp.is_none(),
            "djob/{name} is being deleted; apply its manifest again when it is gone"
        );
        if job.spec.stop {
            let started = jobs.change("start", &job, &json!({ "stop": false })).await?;
            args.after.print(&started)?;
            return args.after.follow(&connection, &started, "is being started").await;
        }
        args.after.print(&job)?;
        complain(&format!("djob/{name} is not stopped"));
        args.after.follow(&connection, &job, "is not stopped").await
    })
}
