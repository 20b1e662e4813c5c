//! `drover system check-upgrade`: lists what an upgrade to this version takes away.
//!
//! Input: the cluster's jobs and volumes. Output: one line for each field that acts otherwise, with the remedy. Writes
//! nothing.

use drover_api::{CSIVolume, Job};
use kube::api::ListParams;

use super::findings::{Finding, findings};
use crate::cluster::connect::ConnectArgs;
use crate::ui::output::{self, ReportOutput};
use crate::ui::stdio::complain;
use crate::ui::table::Table;

/// Arguments of `drover system check-upgrade`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 nothing is touched, 2 something is, 1 an error.")]
pub(crate) struct CheckUpgradeArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Look at all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// How they are printed.
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportOutput,
}

/// Lists what is touched.
pub(crate) async fn run(args: &CheckUpgradeArgs) -> anyhow::Result<u8> {
    let connection = args.connect.connect().await?;
    let all = ListParams::default();
    let jobs = connection.objects_of::<Job>(args.all_namespaces).list(&all).await?;
    let volumes = connection.objects_of::<CSIVolume>(args.all_namespaces).list(&all).await?;
    let found = findings(&jobs, &volumes);
    output::report(&found, args.output, || table(&found))?;
    let looked_at = format!("{} jobs and {} volumes were looked at", jobs.len(), volumes.len());
    if found.is_empty() {
        complain(&format!("{looked_at}; the upgrade takes nothing from them"));
        return Ok(0);
    }
    complain(&format!("{looked_at}; do what REMEDY says before the upgrade, or accept what CHANGE says"));
    Ok(2)
}

fn table(found: &[Finding]) -> String {
    let mut table = Table::new(&["NAMESPACE", "OBJECT", "FIELD", "CHANGE", "REMEDY"]);
    for Finding { object, namespace, field, change, remedy } in found {
        table.row(vec![namespace.clone(), object.clone(), field.clone(), (*change).to_owned(), (*remedy).to_owned()]);
    }
    let mut text = String::new();
    table.write(&mut text);
    text
}
