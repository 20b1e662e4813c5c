//! `drover job stop`.

use drover_api::Job;
use serde_json::json;

use crate::cluster::connect::{ConnectArgs, block_on};
use crate::completion::names;
use crate::ui::output::{self, Output};
use crate::ui::stdio::complain;

/// Arguments of `drover job stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct StopJobArgs {
    /// The job.
    #[arg(add = names::<Job>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Delete the job with its history when its tasks have ended.
    #[arg(long)]
    purge: bool,
    /// How the stopped job is printed.
    #[arg(short, long, conflicts_with = "purge")]
    output: Option<Output>,
}

/// Stops a job; it stays, and `drover job start` starts it again.
pub(crate) fn stop(args: &StopJobArgs) -> anyhow::Result<u8> {
    block_on(async {
        let connection = args.connect.connect().await?;
        let jobs = connection.objects::<Job>();
        let (name, job) = (&args.name, jobs.get(&args.name).await?);
        if args.purge {
            jobs.delete(&job).await?;
            complain(&format!("djob/{name} is being deleted; its tasks are stopped first"));
            return Ok(0);
        }
        if job.spec.stop {
            output::changed(&job, args.output.as_ref())?;
            complain(&format!("djob/{name} is stopped already"));
            return Ok(0);
        }
        output::changed(&jobs.change("stop", &job, &json!({ "stop": true })).await?, args.output.as_ref())?;
        complain(&format!(
            "djob/{name} is being stopped; start it again with `drover job start {name} -n {}`",
            connection.namespace
        ));
        Ok(0)
    })
}
