//! Jobs that another one makes: dispatches of parameterized jobs, and launches of periodic ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_api::job::Dispatch;
use drover_api::{Job, JobSpec, owner};
use drover_core::dispatch::{self, Parent};
use drover_core::periodic;
use serde::Deserialize;
use serde_json::json;

use super::authors;
use super::body::{self, check_id};
use super::following::{id_of, registered};
use super::jobs::find;
use super::order::{Change, WriteOrder, WriteView};
use crate::fault::Fault;
use crate::full_job::spec as whole_spec;
use crate::wire::times::{created, seconds};
use crate::world::{job_id, namespace};

/// What a dispatch brings.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct DispatchBody {
    #[serde(rename = "JobID")]
    job_id: String,
    payload: Option<String>,
    meta: Option<BTreeMap<String, String>>,
    id_prefix_template: String,
    priority: i64,
}

/// Dispatches a parameterized job.
pub(super) fn dispatch(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let body: DispatchBody = body::read(view.body)?;
    check_id("JobID", &body.job_id, id, false)?;
    let payload = STANDARD.decode(body.payload.as_deref().unwrap_or_default());
    let payload = payload.map_err(|error| Fault::bad(format!("Payload is no base64: {error}")))?;
    made(id, &payload, body, view)
}

/// Dispatches one; the whole body is the payload.
pub(super) fn dispatch_payload(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    made(id, view.body, DispatchBody::default(), view)
}

fn made(id: &str, payload: &[u8], body: DispatchBody, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let parent = find(id, view)?;
    let name = parent.metadata.name.as_deref().unwrap_or_default();
    let token = view.query.text("idempotency_token").unwrap_or_default();
    let priority = (body.priority != 0).then_some(body.priority);
    let brought = Dispatch {
        parent: name.to_owned(),
        payload: dispatch::encoded(payload),
        payload_secret: String::new(),
        idempotency_token: token.to_owned(),
        priority,
    };
    let own = dispatch::open(&parent.spec, body.meta.unwrap_or_default(), brought);
    let is_stopped = parent.spec.stop || parent.metadata.deletion_timestamp.is_some();
    let found = Parent { name, spec: Some(&parent.spec), is_stopped };
    let violations = dispatch::violations(found, &own);
    if !violations.is_empty() {
        return Err(Fault::all(&violations));
    }
    let space = namespace(&parent.metadata);
    if let Some(earlier) = with_token(parent, token, view) {
        let demands = authors::of_job(space, "", None, &own);
        let answer = json!({
            "DispatchedJobID": job_id(earlier),
            "EvalID": "",
            "EvalCreateIndex": 0,
            "JobCreateIndex": created(&earlier.metadata),
        });
        return Ok(WriteOrder::nothing(demands, answer));
    }
    let tag = format!("{:08x}", view.random);
    let prefix = &body.id_prefix_template;
    let (child_id, object) = dispatch::child_names(name, &parent.spec, prefix, view.now.as_second(), &tag);
    let spec = JobSpec { id: child_id.clone(), priority: priority.unwrap_or(parent.spec.priority), ..own };
    let demands = authors::of_job(space, &object, None, &spec);
    let child = owner::child(parent, &object, spec);
    let now = seconds(view.now);
    Ok(WriteOrder::new(demands, vec![Change::Create(child.into())], move |written| {
        json!({
            "DispatchedJobID": child_id,
            "EvalID": id_of(written),
            "EvalCreateIndex": now,
            "JobCreateIndex": now,
        })
    }))
}

/// The dispatch that has a token, if one does.
fn with_token<'a>(parent: &Job, token: &str, view: WriteView<'a>) -> Option<&'a Arc<Job>> {
    let name = parent.metadata.name.as_deref().unwrap_or_default();
    let has_token = |it: &&Arc<Job>| it.spec.dispatch.as_ref().is_some_and(|of| of.idempotency_token == token);
    let mut children = view.world.children_of(namespace(&parent.metadata), name).filter(|_| !token.is_empty());
    children.find(has_token)
}

/// Launches a periodic job now.
pub(super) fn force(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let parent = find(id, view)?;
    if parent.spec.periodic.is_none() || parent.spec.parameterized.is_some() {
        return Err(Fault::bad(format!("job {id:?} is not periodic: only such a job is launched")));
    }
    if parent.spec.stop {
        return Err(Fault::bad(format!("job {id:?} is stopped: register it, then launch it")));
    }
    let name = parent.metadata.name.as_deref().unwrap_or_default();
    let child = periodic::child(name, &whole_spec(parent, view.world), view.now);
    let demands = authors::of_job(namespace(&parent.metadata), &child.name, None, &child.spec);
    let job = owner::child(parent, &child.name, child.spec);
    let change = vec![Change::Create(job.into())];
    Ok(WriteOrder::new(demands, change, registered(view.now, false, Vec::new())))
}
