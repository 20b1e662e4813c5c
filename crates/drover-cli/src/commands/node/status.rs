//! `drover node status`.

use drover_api::ClientNode;
use drover_api::client_node::DrainStatus;
use kube::api::ListParams;

use crate::cluster::connect::ConnectArgs;
use crate::completion::cluster_names;
use crate::ui::output::{self, Output};
use crate::ui::table::Table;
use drover_clock::{Clock, SystemClock};

use super::target::find;

/// Arguments of `drover node status`.
#[derive(Debug, clap::Args)]
pub(crate) struct NodeStatusArgs {
    /// The node, or the start of its name; none for all.
    #[arg(add = cluster_names::<ClientNode>())]
    name: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// How they are printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

pub(super) async fn status(args: &NodeStatusArgs) -> anyhow::Result<u8> {
    let known = args.connect.connect().await?.cluster_objects::<ClientNode>();
    if let Some(name) = args.name.as_deref().filter(|_| !args.output.is_for_people()) {
        output::object(&find(&known, name).await?, &args.output)?;
        return Ok(0);
    }
    let nodes = match &args.name {
        Some(name) => vec![find(&known, name).await?],
        None => known.list(&ListParams::default()).await?,
    };
    output::list(&nodes, &args.output, || rows(&nodes, args.output == Output::Wide))?;
    Ok(0)
}

fn rows(nodes: &[ClientNode], is_wide: bool) -> Table {
    let mut head = vec!["NAME", "POOL", "DC", "PHASE", "ELIGIBLE", "DRAIN", "ALLOCS", "AGE"];
    if is_wide {
        head.extend(["CPU", "MEMORY", "DRIVERS", "VERSION"]);
    }
    let mut table = Table::new(&head);
    let now = SystemClock.now();
    for node in nodes {
        let status = node.status.clone().unwrap_or_default();
        let drain = status.drain.as_ref().filter(|drain| drain.status == DrainStatus::Draining);
        let mut cells = vec![
            node.metadata.name.clone().unwrap_or_default(),
            node.spec.node_pool.clone(),
            node.spec.datacenter.clone(),
            status.phase.to_string(),
            node.spec.eligibility.to_string(),
            drain.map_or_else(|| "-".to_owned(), |drain| format!("{} left", drain.remaining)),
            status.columns.allocs.clone(),
            output::age(node, now),
        ];
        if is_wide {
            let columns = status.columns;
            cells.extend([columns.cpu, columns.memory, columns.drivers, columns.version]);
        }
        table.row(cells);
    }
    table
}
