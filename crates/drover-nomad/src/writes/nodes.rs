//! Nodes: drained, kept from new allocations, forgotten.

use std::sync::Arc;

use drover_api::client_node::{Drain, Eligibility};
use drover_api::{ClientNode, GROUP, GoDuration};
use serde::Deserialize;
use serde_json::{Value, json};

use super::body;
use super::order::{Change, Target, Way, WriteOrder, WriteView};
use super::written::Written;
use crate::fault::Fault;
use crate::world::Kind;

/// How allocations leave.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct DrainSpec {
    /// Nanoseconds; below 0 at once, 0 without a limit.
    deadline: i64,
    ignore_system_jobs: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct DrainBody {
    drain_spec: Option<DrainSpec>,
    mark_eligible: bool,
}

/// Drains a node, or takes that back.
pub(super) fn drain(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let DrainBody { drain_spec, mark_eligible } = body::read(view.body)?;
    let node = find(id, view)?;
    let spec = match drain_spec {
        Some(wanted) => {
            let force = wanted.deadline < 0;
            let deadline = (!force).then(|| GoDuration::from_nanos(wanted.deadline));
            let drain = Drain { deadline, force, ignore_system_jobs: wanted.ignore_system_jobs };
            json!({ "drain": drain.patch(), "eligibility": Eligibility::Ineligible })
        }
        None if mark_eligible => json!({ "drain": null, "eligibility": Eligibility::Eligible }),
        None => json!({ "drain": null }),
    };
    Ok(ordered(node, "update", Some(spec)))
}

/// Lets a node take new allocations, or none.
pub(super) fn eligibility(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        eligibility: String,
    }
    let Body { eligibility } = body::read(view.body)?;
    let node = find(id, view)?;
    let wanted = Eligibility::ALL.iter().find(|known| known.as_str() == eligibility);
    let wanted = wanted
        .ok_or_else(|| Fault::bad(format!("Eligibility is {eligibility:?}: take \"eligible\" or \"ineligible\"")))?;
    if *wanted == Eligibility::Eligible && node.spec.drain.is_some() {
        return Err(Fault::bad("can not set node's scheduling eligibility to eligible while it is draining"));
    }
    Ok(ordered(node, "update", Some(json!({ "eligibility": wanted }))))
}

/// Forgets a node; its allocations are lost.
pub(super) fn purge(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    Ok(ordered(find(id, view)?, "delete", None))
}

fn find<'a>(id: &str, view: WriteView<'a>) -> Result<&'a Arc<ClientNode>, Fault> {
    view.world.nodes.with_uid(id).ok_or_else(|| Fault::missing("node", id))
}

/// A change of a node's spec; none deletes it.
fn ordered(node: &ClientNode, verb: &'static str, spec: Option<Value>) -> WriteOrder {
    let name = node.metadata.name.clone().unwrap_or_default();
    let demand = Way { group: GROUP, resource: "clientnodes", verb, name, ..Way::default() };
    let target = Target::same(Kind::Node, &node.metadata);
    let change = match spec {
        Some(spec) => Change::Patch(target, json!({ "spec": spec })),
        None => Change::Delete(target),
    };
    WriteOrder::new(vec![demand.into()], vec![change], |written| {
        // Which evaluations follow is the leader's to find.
        let index = written.last().map_or(0, Written::index);
        json!({ "NodeModifyIndex": index, "EvalIDs": [], "EvalCreateIndex": 0 })
    })
}
