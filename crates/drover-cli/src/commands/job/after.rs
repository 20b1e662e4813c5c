//! What a command does with the job that it has written.

use drover_api::{GoDuration, Job};

use crate::cluster::connect::Connection;
use crate::ui::follow::{Follow, Goal, follow};
use crate::ui::output::{self, Output};
use crate::ui::stdio::complain;

/// What a command does with the job that it has written.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AfterArgs {
    /// Return when the job is written, instead of following it.
    #[arg(long)]
    pub(super) detach: bool,
    /// How long to follow the job, as 10m; default until it ends.
    #[arg(long)]
    pub(super) timeout: Option<GoDuration>,
    /// How the written job is printed.
    #[arg(short, long)]
    pub(super) output: Option<Output>,
}

impl AfterArgs {
    /// Prints the job, where that is asked for.
    pub(super) fn print(&self, job: &Job) -> anyhow::Result<()> {
        output::changed(job, self.output.as_ref())
    }

    /// Follows the job to its end, unless that is not wanted: then only `state` is reported.
    pub(super) async fn follow(&self, connection: &Connection, job: &Job, state: &str) -> anyhow::Result<u8> {
        let (name, namespace) = (job.metadata.name.as_deref().unwrap_or_default(), &connection.namespace);
        let again = format!("drover job status {name} -n {namespace} -w");
        if self.detach {
            complain(&format!("djob/{name} {state}; watch it with `{again}`"));
            return Ok(0);
        }
        let (generation, timeout) = (job.metadata.generation.unwrap_or(0), self.timeout.map(GoDuration::to_std));
        let goal = Goal::Runs;
        follow(connection.client.clone(), &Follow { namespace, job: name, generation, again, timeout, goal }).await
    }
}
