//! `drover node drain`.

use anyhow::bail;
use drover_api::client_node::{Drain, DrainStatus, Eligibility};
use drover_api::{ClientNode, GoDuration};
use serde_json::json;

use crate::cluster::watching::Watching;
use crate::ui::follow::ENDED_BADLY;
use crate::ui::stdio::complain;

use super::target::{NodeTarget, change};

/// Arguments of `drover node drain`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of a command line")]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    target: NodeTarget,
    /// When allocations that are still there are stopped, as 30m; default 1h.
    #[arg(long, conflicts_with = "no_deadline")]
    deadline: Option<GoDuration>,
    /// Waits without limit until the last allocation has left.
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

pub(super) async fn drain(args: &DrainArgs) -> anyhow::Result<u8> {
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
    let spec = request.patch();
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
