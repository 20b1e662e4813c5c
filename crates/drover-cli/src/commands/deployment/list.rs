//! `drover deployment list`.

use drover_api::{Deployment, Job};
use kube::api::ListParams;

use crate::cluster::connect::ConnectArgs;
use crate::completion::names;
use crate::ui::output::{self, Output};
use crate::ui::table::Table;
use drover_clock::{Clock, SystemClock};

/// Arguments of `drover deployment list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// List those of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only those of this job.
    #[arg(long, add = names::<Job>())]
    job: Option<String>,
    /// How they are printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

pub(super) async fn list(args: &ListArgs) -> anyhow::Result<u8> {
    let connection = args.connect.connect().await?;
    let field_selector = args.job.as_ref().map(|job| format!("spec.jobName={job}"));
    let params = ListParams { field_selector, ..ListParams::default() };
    let mut found = connection.objects_of::<Deployment>(args.all_namespaces).list(&params).await?;
    found.sort_by_key(|one| std::cmp::Reverse((one.metadata.creation_timestamp.clone(), one.metadata.name.clone())));
    let now = SystemClock.now();
    output::list(&found, &args.output, || {
        let head = [
            "NAMESPACE",
            "NAME",
            "JOB",
            "VERSION",
            "PHASE",
            "DESIRED",
            "PLACED",
            "HEALTHY",
            "UNHEALTHY",
            "PROMOTED",
            "REASON",
            "AGE",
        ];
        let mut table = Table::new(&head);
        for one in &found {
            let status = one.status.clone().unwrap_or_default();
            let columns = status.columns;
            table.row(vec![
                one.metadata.namespace.clone().unwrap_or_default(),
                one.metadata.name.clone().unwrap_or_default(),
                one.spec.job_name.clone(),
                one.spec.job_version.to_string(),
                status.phase.to_string(),
                columns.desired,
                columns.placed,
                columns.healthy,
                columns.unhealthy,
                columns.promoted,
                columns.reason,
                output::age(one, now),
            ]);
        }
        table
    })?;
    Ok(0)
}
