//! Allocations: stopped, and replaced elsewhere.

use drover_core::evaluation_id;
use serde_json::json;

use super::order::{Change, Target, Way, WriteOrder, WriteView};
use crate::fault::Fault;
use crate::wire::times::seconds;
use crate::world::{Kind, namespace};

/// Stops an allocation; the scheduler places another one.
pub(super) fn stop(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let found = view.world.allocation(&view.query.namespace(), id);
    let allocation = found.ok_or_else(|| Fault::missing("allocation", id))?;
    // The right by which the same is asked of the aggregated API.
    let demand = Way {
        group: "subresources.drover.dev",
        resource: "allocations",
        subresource: "stop",
        verb: "create",
        namespace: namespace(&allocation.metadata).to_owned(),
        name: allocation.metadata.name.clone().unwrap_or_default(),
    };
    let target = Target::same(Kind::Allocation, &allocation.metadata);
    let body = json!({ "spec": { "desiredTransition": {
        "migrate": true,
        "noShutdownDelay": view.query.is("no_shutdown_delay", false),
        "reschedule": view.query.is("reschedule", false),
    } } });
    let (job_uid, uid, now) = (allocation.spec.job_uid.clone(), id.to_owned(), seconds(view.now));
    Ok(WriteOrder::new(vec![demand.into()], vec![Change::Patch(target, body)], move |written| {
        let generation = written.last().and_then(|one| one.meta.generation).unwrap_or(0);
        json!({ "EvalID": evaluation_id::of_stop(&job_uid, &uid, generation), "EvalCreateIndex": now })
    }))
}
