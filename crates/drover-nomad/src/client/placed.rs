//! Where an allocation is, and what of it an answer needs.
//!
//! Input: what is known of the cluster, an id. Output: its object's name, its node. Must never know who asks.

use drover_api::client_node::NodePhase;

use crate::fault::Fault;
use crate::query::Query;
use crate::wire::allocation::name;
use crate::world::World;

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
    let namespace = query.namespace();
    let found = world.allocation(&namespace, id).ok_or_else(|| Fault::missing("allocation", id))?;
    let node = found.spec.node_name.clone();
    Ok(Placed {
        namespace,
        name: found.metadata.name.clone().unwrap_or_default(),
        uid: id.to_owned(),
        shown_name: name(found, world),
        core_mhz: core_mhz(world, &node),
        node,
    })
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
