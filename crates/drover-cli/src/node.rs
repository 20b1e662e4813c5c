//! `drover node …`: look at nodes, drain them, and say whether new allocations may be placed on them.
//!
//! Input: a node's name and a request. Output: one write of the node's spec; the controller does what it says. Must never touch
//! allocations.

use anyhow::{Context, anyhow, bail};
use drover_api::client_node::{Drain, DrainStatus, Eligibility};
use drover_api::{ClientNode, GoDuration};
use kube::api::ListParams;
use serde_json::{Value, json};

use super::completion::cluster_names;
use super::connect::{ConnectArgs, block_on};
use super::follow::ENDED_BADLY;
use super::objects::{Objects, named, starting};
use super::output::{self, Output};
use super::table::Table;
use super::until::Watching;
use crate::stdio::complain;
use drover_clock::{Clock, SystemClock};

/// What to do with nodes.
#[derive(Debug, clap::Subcommand)]
pub(super) enum NodeCommand {
    /// Lists nodes, or shows one.
    Status(StatusArgs),
    /// Moves all allocations away from a node, or takes that back.
    Drain(DrainArgs),
    /// Says whether new allocations may be placed on a node.
    Eligibility(EligibilityArgs),
}

/// Arguments of `drover node status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// The node, or the start of its name; none for all.
    #[arg(add = cluster_names::<ClientNode>())]
    name: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// How they are printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

/// A node to act on.
#[derive(Debug, clap::Args)]
pub(super) struct TargetArgs {
    /// The node, or the start of its name.
    #[arg(add = cluster_names::<ClientNode>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// How the changed node is printed.
    #[arg(short, long)]
    output: Option<Output>,
}

/// Arguments of `drover node drain`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of a command line")]
pub(super) struct DrainArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// When allocations that are still there are stopped, as 30m; default 1h.
    #[arg(long, conflicts_with = "no_deadline")]
    deadline: Option<GoDuration>,
    /// Waits for ever until the last allocation has left.
    #[arg(long)]
    no_deadline: bool,
    /// Stops all allocations at once.
    #[arg(long)]
    force: bool,
    /// Leaves allocations of system jobs running.
    #[arg(long)]
    ignore_system_jobs: bool,
    /// Takes the drain back; the node stays ineligible.
    #[arg(long, conflicts_with_all = ["deadline", "no_deadline", "force", "ignore_system_jobs", "watch"])]
    cancel: bool,
    /// Looks on until all have left: exit code 0; or the drain is taken back: 2.
    #[arg(short, long)]
    watch: bool,
    /// With -w: how long to look, as 10m; then exit code 3.
    #[arg(long, requires = "watch")]
    timeout: Option<GoDuration>,
    /// With --cancel: new allocations may be placed on it again.
    #[arg(long, requires = "cancel")]
    mark_eligible: bool,
}

/// Arguments of `drover node eligibility`.
#[derive(Debug, clap::Args)]
pub(super) struct EligibilityArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// New allocations may be placed on it.
    #[arg(long, required_unless_present = "disable", conflicts_with = "disable")]
    enable: bool,
    /// New allocations are kept away; the running ones stay.
    #[arg(long)]
    disable: bool,
}

/// Does it.
pub(super) fn run(command: &NodeCommand) -> anyhow::Result<u8> {
    block_on(async {
        match command {
            NodeCommand::Status(args) => status(args).await,
            NodeCommand::Drain(args) => drain(args).await,
            NodeCommand::Eligibility(args) => eligibility(args).await,
        }
    })
}

async fn status(args: &StatusArgs) -> anyhow::Result<u8> {
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

async fn drain(args: &DrainArgs) -> anyhow::Result<u8> {
    if args.cancel {
        let mut spec = json!({ "drain": null });
        if args.mark_eligible {
            spec["eligibility"] = json!(Eligibility::Eligible);
        }
        return change(&args.target, "cancel the drain of", |node| {
            if node.spec.drain.is_none() {
                bail!("it is not being drained; `drover node status` shows where it stands");
            }
            Ok(spec)
        })
        .await
        .map(|_| 0);
    }
    let deadline = if args.no_deadline { Some(GoDuration::ZERO) } else { args.deadline };
    let request = Drain { deadline, force: args.force, ignore_system_jobs: args.ignore_system_jobs };
    // A merge patch leaves what is not named: the earlier request goes as a whole.
    let mut spec = json!({ "deadline": null, "force": null, "ignoreSystemJobs": null });
    if let (Value::Object(all), Value::Object(given)) = (&mut spec, json!(request)) {
        all.extend(given);
    }
    let request = |_: &ClientNode| Ok(json!({ "drain": spec, "eligibility": Eligibility::Ineligible }));
    let (nodes, node) = change(&args.target, "drain", request).await?;
    if !args.watch {
        return Ok(0);
    }
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let watching = Watching::new("the drain", format!("drover node drain {name} -w"), args.timeout);
    let mut told = None;
    watching.until(&nodes, &node, |now| Ok(drained(name, node.metadata.generation, now, &mut told))).await
}

/// Tells how many are left, until the drain that was asked for is over.
fn drained(name: &str, generation: Option<i64>, now: Option<ClientNode>, told: &mut Option<i64>) -> Option<u8> {
    let Some(node) = now else {
        complain(&format!("cnode/{name} was deleted"));
        return Some(ENDED_BADLY);
    };
    let status = node.status.filter(|status| Some(status.observed_generation) >= generation)?;
    let drain = status.drain?;
    match drain.status {
        DrainStatus::Complete => {
            complain(&format!("cnode/{name} is drained: all allocations that were to leave have left"));
            Some(0)
        }
        DrainStatus::Canceled => {
            complain(&format!("cnode/{name}: the drain was taken back with {} left", drain.remaining));
            Some(ENDED_BADLY)
        }
        DrainStatus::Draining => {
            if told.replace(drain.remaining) != Some(drain.remaining) {
                complain(&format!("cnode/{name}: {} left", drain.remaining));
            }
            None
        }
    }
}

async fn eligibility(args: &EligibilityArgs) -> anyhow::Result<u8> {
    let wanted = if args.enable { Eligibility::Eligible } else { Eligibility::Ineligible };
    change(&args.target, "change the eligibility of", |node| {
        if args.enable && node.spec.drain.is_some() {
            bail!("it is being drained; cancel that first with `drover node drain NAME --cancel --mark-eligible`");
        }
        Ok(json!({ "eligibility": wanted }))
    })
    .await
    .map(|_| 0)
}

/// Writes a change of a node's spec, unless somebody else wrote since it was looked at.
async fn change(
    args: &TargetArgs,
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
async fn find(nodes: &Objects<ClientNode>, name: &str) -> anyhow::Result<ClientNode> {
    let all = nodes.list(&ListParams::default()).await?;
    if let Some(exact) = named(&all, name) {
        return Ok(exact.clone());
    }
    starting(&all, name)?.cloned().with_context(|| format!("no node {name}; `drover node status` lists all"))
}
