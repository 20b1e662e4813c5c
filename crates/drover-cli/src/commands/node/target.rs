//! The node that a command acts on.

use anyhow::{Context, anyhow};
use drover_api::ClientNode;
use kube::api::ListParams;
use serde_json::Value;

use crate::cluster::connect::ConnectArgs;
use crate::cluster::objects::{Objects, named, starting};
use crate::completion::cluster_names;
use crate::ui::output::{self, Output};
use crate::ui::stdio::complain;

/// A node to act on.
#[derive(Debug, clap::Args)]
pub(crate) struct NodeTarget {
    /// The node, or the start of its name.
    #[arg(add = cluster_names::<ClientNode>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// How the changed node is printed.
    #[arg(short, long)]
    output: Option<Output>,
}

/// Writes a change of a node's spec, unless another writer changed it since it was read.
pub(super) async fn change(
    args: &NodeTarget,
    verb: &'static str,
    request: impl FnOnce(&ClientNode) -> anyhow::Result<Value>,
) -> anyhow::Result<(Objects<ClientNode>, ClientNode)> {
    let nodes = args.connect.connect().await?.cluster_objects::<ClientNode>();
    let found = find(&nodes, &args.name).await?;
    let name = found.metadata.name.clone().unwrap_or_default();
    let spec = request(&found).map_err(|reason| anyhow!("cannot {verb} cnode/{name}: {reason:#}"))?;
    let changed = nodes.change(verb, &found, &spec).await?;
    output::changed(&changed, args.output.as_ref())?;
    let drains = if changed.spec.drain.is_some() { "is being drained" } else { "is not being drained" };
    complain(&format!(
        "cnode/{name} is {} and {drains}; watch it with `kubectl get cnode {name} -w`",
        changed.spec.eligibility
    ));
    Ok((nodes, changed))
}

/// The node of that name, or the only one whose name starts so.
pub(super) async fn find(nodes: &Objects<ClientNode>, name: &str) -> anyhow::Result<ClientNode> {
    let all = nodes.list(&ListParams::default()).await?;
    if let Some(exact) = named(&all, name) {
        return Ok(exact.clone());
    }
    starting(&all, name)?.cloned().with_context(|| format!("no node {name}; `drover node status` lists all"))
}
