//! `drover alloc checks`: what the checks of an allocation found last, as its agent knows it; in a cluster without a
//! gateway, as the agent reported it.

use std::collections::BTreeMap;

use anyhow::Context as _;
use drover_api::allocation::CheckStatus;
use serde::Serialize;

use super::agent::Agent;
use super::check_rows::rows;
use super::remote::Refused;
use super::target::AllocTarget;
use crate::ui::output::{self, Output};
use drover_clock::{Clock, SystemClock};
use drover_socket::protocol::{Answer, Request};

/// Arguments of `drover alloc checks`.
#[derive(Debug, clap::Args)]
pub(super) struct AllocChecksArgs {
    #[command(flatten)]
    pub(super) target: AllocTarget,
    /// How it is printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

/// What is printed for programs.
#[derive(Serialize)]
struct Found {
    checks: BTreeMap<String, CheckStatus>,
}

/// Shows them.
pub(super) async fn run(agent: &Agent, args: &AllocChecksArgs) -> anyhow::Result<()> {
    let found = Found { checks: checks(agent, &args.target.id()).await? };
    let names = || found.checks.keys().cloned().collect();
    output::value(&found, &args.output, names, || rows(&found.checks, SystemClock.now()))
}

async fn checks(agent: &Agent, allocation: &str) -> anyhow::Result<BTreeMap<String, CheckStatus>> {
    let answers = match agent.ask(&Request::Checks { allocation: allocation.to_owned() }).await {
        Ok(answers) => answers,
        // Who may see the allocation may see what was reported of it.
        Err(error) => match (error.downcast_ref::<Refused>(), agent) {
            (Some(refused), Agent::Cluster(remote)) if refused.is_without_gateway => return remote.checks().await,
            _ => return Err(error),
        },
    };
    let mut all = BTreeMap::new();
    for answer in answers {
        let Answer::Checks(checks) = answer else { continue };
        for (id, check) in checks {
            all.insert(id, serde_json::from_value(check).context("reading what the agent says of a check")?);
        }
    }
    Ok(all)
}
