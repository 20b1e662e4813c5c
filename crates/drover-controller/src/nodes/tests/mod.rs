//! What becomes of nodes in a cluster, and of what runs on them.

mod accidents;
mod drains;
mod heartbeats;

use drover_api::ClientNode;
use drover_api::client_node::NodePhase;

use crate::tests::World;

fn phase(world: &World, name: &str) -> NodePhase {
    world.the::<ClientNode>(name).status.unwrap_or_default().phase
}

/// What a node's status tells of its past, oldest first.
fn past(world: &World, name: &str) -> Vec<String> {
    let status = world.the::<ClientNode>(name).status.unwrap_or_default();
    status.events.iter().map(|event| format!("{}: {}", event.subsystem, event.message)).collect()
}

/// How many allocations of a job are to run and do, on this node.
fn running(world: &World, job: &str, node: &str) -> usize {
    let end = format!("on {node}: run running");
    world.shown(job).iter().filter(|shown| shown.ends_with(&end)).count()
}
