//! `drover alloc list`.

use super::agent::Agent;
use super::show;
use crate::ui::output::Output;

/// Lists what runs on this node.
pub(super) async fn list(agent: &Agent, output: &Output) -> anyhow::Result<u8> {
    show::allocations(&agent.allocations().await?, output)?;
    Ok(0)
}
