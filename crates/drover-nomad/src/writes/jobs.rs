//! Jobs that are there: stopped, scaled, evaluated.

use std::sync::Arc;

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::job::{JobType, Scale};
use drover_api::{Allocation, GROUP, Job};
use serde::Deserialize;
use serde_json::json;

use super::body::{self, check_id};
use super::following::{ask_again, check_priority, registered};
use super::order::{Change, Demand, Target, Way, WriteOrder, WriteView};
use crate::fault::Fault;
use crate::world::{Kind, World, namespace};

/// A job of the namespace that is asked for.
pub(super) fn find<'a>(id: &str, view: WriteView<'a>) -> Result<&'a Arc<Job>, Fault> {
    view.world.job(&view.query.namespace(), id).ok_or_else(|| Fault::missing("job", id))
}

/// The right to change a job without changing what it runs.
pub(super) fn update(job: &Job, subresource: &'static str) -> Demand {
    of(job, subresource, "update")
}

fn of(job: &Job, subresource: &'static str, verb: &'static str) -> Demand {
    let (namespace, name) = (namespace(&job.metadata).to_owned(), job.metadata.name.clone().unwrap_or_default());
    Way { group: GROUP, resource: "jobs", subresource, verb, namespace, name }.into()
}

pub(super) fn is_template(job: &Job) -> bool {
    job.spec.periodic.is_some() || (job.spec.parameterized.is_some() && job.spec.dispatch.is_none())
}

/// Stops a job; purged, it goes with its history. There need be none: `hearing` is what its caller must be allowed
/// then.
pub(super) fn deregister(id: &str, view: WriteView<'_>, hearing: Option<Demand>) -> Result<WriteOrder, Fault> {
    let priority = view.query.text("eval_priority").map_or(Ok(0), str::parse);
    check_priority(priority.map_err(|_| Fault::bad("eval_priority is no number: take one from 1 to 100"))?)?;
    let Some(job) = view.world.job(&view.query.namespace(), id) else {
        let nothing = json!({ "EvalID": "", "EvalCreateIndex": 0, "JobModifyIndex": 0 });
        return Ok(WriteOrder::nothing(hearing.into_iter().collect(), nothing));
    };
    let is_purged = view.query.is("purge", false);
    let demand = if is_purged { of(job, "", "delete") } else { update(job, "") };
    let mut changes = Vec::new();
    if view.query.is("no_shutdown_delay", false) {
        changes.extend(hurry(job, view.world));
    }
    let target = Target::same(Kind::Job, &job.metadata);
    changes.push(if job.spec.stop {
        ask_again(job)
    } else {
        Change::Patch(target.clone(), json!({ "spec": { "stop": true } }))
    });
    if is_purged {
        changes.push(Change::Delete(target));
    }
    Ok(WriteOrder::new(vec![demand], changes, registered(view.now, is_template(job), Vec::new())))
}

/// Lets a job's allocations end without their delays.
fn hurry(job: &Job, world: &World) -> Vec<Change> {
    let own = world.own_allocations(job).filter(|it| !it.has_ended());
    let hurried = json!({ "spec": { "desiredTransition": { "noShutdownDelay": true } } });
    own.map(|it| {
        let target = Target::same(Kind::Allocation, &it.metadata);
        Change::Patch(target, hurried.clone())
    })
    .collect()
}

/// Sets the count of a group.
pub(super) fn scale(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        count: Option<i64>,
        target: std::collections::BTreeMap<String, String>,
        error: bool,
    }
    let Body { count, target, error } = body::read(view.body)?;
    let job = find(id, view)?;
    let group = target.get("Group").cloned().unwrap_or_default();
    let Some(known) = job.spec.group(&group) else {
        let names: Vec<&str> = job.spec.groups.iter().map(|group| group.name.as_str()).collect();
        return Err(Fault::bad(format!("Target.Group is {group:?}: job {id:?} has {}", names.join(", "))));
    };
    let demand = vec![update(job, "scale")];
    let Some(count) = count else {
        // What an autoscaler notes without a count changes nothing.
        let noted = json!({ "EvalID": "", "EvalCreateIndex": 0, "JobModifyIndex": job.metadata.generation });
        return Ok(WriteOrder::nothing(demand, noted));
    };
    if error {
        return Err(Fault::bad("Error is true, and Count is given: leave one of them out"));
    }
    let (least, most) = known.count_limits().into_inner();
    let is_per_node = matches!(job.spec.r#type, JobType::System | JobType::Sysbatch);
    let most = if is_per_node { 1 } else { most };
    if !(least..=most).contains(&count) {
        return Err(Fault::bad(format!("Count is {count}: group {group} is scaled between {least} and {most}")));
    }
    if let Some(deployment) = view.world.newest_deployment(job)
        && deployment.status.as_ref().is_none_or(|status| status.phase.is_active())
    {
        return Err(Fault::bad("job scaling blocked due to active deployment"));
    }
    let wanted = Scale { group, count: Some(count) };
    let change = if job.spec.scale.as_ref() == Some(&wanted) {
        ask_again(job)
    } else {
        let target = Target::same(Kind::Job, &job.metadata);
        Change::Patch(target, json!({ "spec": { "scale": wanted } }))
    };
    Ok(WriteOrder::new(demand, vec![change], registered(view.now, is_template(job), Vec::new())))
}

/// Has a job looked at; failed allocations are replaced where that is asked for, whatever their policy.
pub(super) fn evaluate(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Options {
        force_reschedule: bool,
    }
    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        #[serde(rename = "JobID")]
        job_id: String,
        eval_options: Options,
    }
    let Body { job_id, eval_options } = body::read(view.body)?;
    check_id("JobID", &job_id, id, false)?;
    let job = find(id, view)?;
    if is_template(job) {
        return Err(Fault::bad(format!("job {id:?} is periodic or parameterized: evaluate a job that it has made")));
    }
    let mut changes = Vec::new();
    // What replaced a forced one meanwhile may have failed as well: it was not meant.
    if eval_options.force_reschedule && !view.goes_on {
        let forced = json!({ "spec": { "desiredTransition": { "forceReschedule": true } } });
        let is_left = |it: &Allocation| view.world.successor(namespace(&it.metadata), name_of(it)).is_none();
        let failed = view.world.own_allocations(job).filter(|it| awaits_a_decision(it) && is_left(it));
        changes.extend(failed.map(|it| {
            let target = Target::same(Kind::Allocation, &it.metadata);
            Change::Patch(target, forced.clone())
        }));
    }
    changes.push(ask_again(job));
    Ok(WriteOrder::new(vec![update(job, "")], changes, registered(view.now, false, Vec::new())))
}

fn name_of(allocation: &Allocation) -> &str {
    allocation.metadata.name.as_deref().unwrap_or_default()
}

/// Whether an allocation has failed, and nothing is to follow it.
fn awaits_a_decision(allocation: &Allocation) -> bool {
    let client = allocation.status.as_ref().map(|status| status.client_status).unwrap_or_default();
    client == ClientStatus::Failed
        && allocation.spec.desired_status == DesiredStatus::Run
        && allocation.spec.follow_up.is_none()
}
