//! `drover alloc stop`.

use std::time::Duration;

use crate::ui::stdio::complain;
use drover_socket::protocol::Request;

use super::agent::Agent;
use super::target::AllocTarget;

/// The exit code when the time was over.
const TIMED_OUT: u8 = 3;

#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 it has ended, 1 error, 3 the time was over.")]
pub(super) struct StopAllocArgs {
    #[command(flatten)]
    pub(super) target: AllocTarget,
    /// Do not wait for the end.
    #[arg(long)]
    detach: bool,
    /// Wait no longer than so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

/// Does it.
pub(super) async fn run(agent: &Agent, args: &StopAllocArgs) -> anyhow::Result<u8> {
    let asked = args.target.id();
    let id = agent.find(&asked).await?.id;
    agent.ask(&Request::Stop { allocation: id.clone() }).await?;
    if args.detach {
        complain(&format!("{asked}: the controller is asked to stop it"));
        return Ok(0);
    }
    let ended = tokio::time::timeout(Duration::from_secs(args.timeout), until_ended(agent, &id)).await;
    let Ok(ended) = ended else {
        complain(&format!("{asked} has not ended within {} s; it goes on ending", args.timeout));
        return Ok(TIMED_OUT);
    };
    complain(&format!("{asked}: {}", ended?));
    Ok(0)
}

/// Waits until all its tasks are dead; returns its status.
async fn until_ended(agent: &Agent, id: &str) -> anyhow::Result<String> {
    loop {
        let Some(found) = agent.allocations().await?.into_iter().find(|it| it.id == id) else {
            return Ok("gone".to_owned());
        };
        if found.tasks.values().all(|state| state == "dead") {
            return Ok(found.client_status);
        }
        tokio::time::sleep(agent.look_every()).await;
    }
}
