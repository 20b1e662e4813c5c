//! Where an allocation is, and what of it an answer needs.
//!
//! Input: what is known of the cluster, an id. Output: its object's name, its node. Must never know who asks.

use drover_api::Allocation;
use drover_api::client_node::NodePhase;

use crate::fault::Fault;
use crate::query::Query;
use crate::wire::allocation::name;
use crate::world::{World, namespace, uid};

/// An allocation and its node.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Its namespace.
    pub namespace: String,
    /// The name of its object.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The name of its node.
    pub node: String,
    /// The name that clients know: `web.api[0]`.
    pub shown_name: String,
    /// The speed of one of the node's cores in MHz; 0 where that is not known.
    pub core_mhz: f64,
}

/// Finds an allocation by its whole id, in the namespace that is asked for.
///
/// # Errors
/// 404 where there is none.
pub fn placed(world: &World, query: &Query, id: &str) -> Result<Placed, Fault> {
    let found = world.allocation(&query.namespace(), id).ok_or_else(|| Fault::missing("allocation", id))?;
    Ok(of(found, world))
}

/// The allocations on a node that have ended, as far as the cluster knows.
pub fn ended_on(world: &World, node: &str) -> Vec<Placed> {
    let ended = world.allocations_on(node).filter(|it| it.has_ended());
    ended.map(|it| of(it, world)).collect()
}

fn of(allocation: &Allocation, world: &World) -> Placed {
    let (meta, node) = (&allocation.metadata, allocation.spec.node_name.clone());
    Placed {
        namespace: namespace(meta).to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: uid(Some(meta)).to_owned(),
        shown_name: name(allocation, world),
        core_mhz: core_mhz(world, &node),
        node,
    }
}

/// Whether a node is down, as far as the cluster knows.
pub fn is_down(world: &World, node: &str) -> bool {
    let found = world.nodes.named("", node).and_then(|node| node.status.as_ref());
    found.is_some_and(|status| status.phase == NodePhase::Down)
}

/// The speed of one of a node's cores in MHz; 0 where that is not known.
pub fn core_mhz(world: &World, node: &str) -> f64 {
    let found = world.nodes.named("", node).and_then(|node| node.status.as_ref()?.fingerprint.as_ref());
    let Some(resources) = found.map(|found| found.resources).filter(|resources| resources.cores > 0) else {
        return 0.0;
    };
    let number = |n: i64| u32::try_from(n).map_or(0.0, f64::from);
    number(resources.cpu) / number(resources.cores)
}
