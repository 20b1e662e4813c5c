//! `drover alloc list`.

use super::agent::Agent;
use super::show;
use crate::ui::natural;
use crate::ui::output::Output;

/// Lists what runs on this node.
pub(super) async fn list(agent: &Agent, output: &Output) -> anyhow::Result<u8> {
    let mut all = agent.allocations().await?;
    all.sort_by(|a, b| a.namespace.cmp(&b.namespace).then_with(|| natural::order(&a.name, &b.name)));
    show::allocations(&all, output)?;
    Ok(0)
}
