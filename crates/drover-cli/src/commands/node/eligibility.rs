//! `drover node eligibility`.

use anyhow::bail;
use drover_api::client_node::Eligibility;
use serde_json::json;

use super::target::{NodeTarget, change};

/// Arguments of `drover node eligibility`.
#[derive(Debug, clap::Args)]
pub(crate) struct EligibilityArgs {
    #[command(flatten)]
    target: NodeTarget,
    /// New allocations may be placed on it.
    #[arg(long, required_unless_present = "disable", conflicts_with = "disable")]
    enable: bool,
    /// New allocations are kept away; the running ones stay.
    #[arg(long)]
    disable: bool,
}

pub(super) async fn eligibility(args: &EligibilityArgs) -> anyhow::Result<u8> {
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
