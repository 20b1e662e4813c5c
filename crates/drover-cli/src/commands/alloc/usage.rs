//! What the tasks of one allocation use now, for commands that show many allocations.

use anyhow::bail;
use drover_api::Allocation;
use drover_socket::protocol::{AllocStats, Answer, Request};

use super::agent::Agent;
use super::remote::Remote;
use crate::cluster::connect::Connection;

/// Asks the agent of an allocation that was found, by the gateway, for one sample.
///
/// # Errors
/// When the gateway or the agent cannot be asked or refuses; with its reason.
pub(crate) async fn usage(connection: &Connection, found: &Allocation) -> anyhow::Result<AllocStats> {
    let agent = Agent::Cluster(Box::new(Remote::of(connection.clone(), found)));
    let allocation = found.metadata.uid.clone().unwrap_or_default();
    match agent.ask(&Request::Stats { allocation, every_ms: None }).await?.pop() {
        Some(Answer::Stats(stats)) => Ok(stats),
        Some(_) | None => bail!("the agent does not say what it uses"),
    }
}
