//! Deployments: promoted, paused, failed, and their allocations judged.

use std::sync::Arc;

use drover_api::deployment::{DeploymentSpec, Promote};
use drover_api::{Deployment, GROUP};
use drover_core::deployment::request::{DeploymentRequest, RequestRefusal, check};
use drover_core::deployment::{Target as Rollback, VersionFacts, goes_back_to};
use drover_core::evaluation_id;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{self, check_id};
use super::order::{Change, Target, Way, WriteOrder, WriteView};
use super::written::Written;
use crate::fault::Fault;
use crate::wire::times::seconds;
use crate::world::{Kind, namespace};

/// What requests to deployments bring.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Body {
    #[serde(rename = "DeploymentID")]
    deployment_id: String,
    all: bool,
    groups: Option<Vec<String>>,
    pause: bool,
    #[serde(rename = "HealthyAllocationIDs")]
    healthy: Option<Vec<String>>,
    #[serde(rename = "UnhealthyAllocationIDs")]
    unhealthy: Option<Vec<String>>,
}

/// Lets the new version take over, in all groups or in some.
pub(super) fn promote(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let (deployment, body) = found(id, view, true)?;
    let promote = Promote { all: body.all, groups: body.groups.unwrap_or_default() };
    let patch = promote.patch();
    refuse(deployment, &DeploymentRequest::Promote(promote))?;
    Ok(ordered(deployment, "promote", &json!({ "promote": patch }), None, view))
}

/// Pauses, which no evaluation follows, or goes on.
pub(super) fn pause(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let (deployment, body) = found(id, view, true)?;
    refuse(deployment, if body.pause { &DeploymentRequest::Pause } else { &DeploymentRequest::Resume })?;
    Ok(ordered(deployment, "pause", &json!({ "paused": body.pause }), None, view))
}

/// Fails it; a body is not needed.
pub(super) fn fail(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let (deployment, _) = found(id, view, false)?;
    refuse(deployment, &DeploymentRequest::Fail)?;
    let restored = restored_where(deployment, |_| true, view);
    Ok(ordered(deployment, "fail", &json!({ "fail": true }), restored, view))
}

/// Judges allocations by hand.
pub(super) fn allocation_health(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let (deployment, body) = found(id, view, true)?;
    refuse(deployment, &DeploymentRequest::Resume)?;
    let (healthy, unhealthy) = (body.healthy.unwrap_or_default(), body.unhealthy.unwrap_or_default());
    if healthy.is_empty() && unhealthy.is_empty() {
        return Err(Fault::bad(RequestRefusal::NoAllocations.to_string()));
    }
    let (space, name) = (namespace(&deployment.metadata), deployment.metadata.name.as_deref().unwrap_or_default());
    let is_own = |id: &String| {
        view.world.allocation(space, id).is_some_and(|allocation| allocation.spec.deployment_name == name)
    };
    let foreign: Vec<String> = healthy.iter().chain(&unhealthy).filter(|id| !is_own(id)).cloned().collect();
    if !foreign.is_empty() {
        return Err(Fault::bad(RequestRefusal::ForeignAllocations(foreign).to_string()));
    }
    let judged = json!({ "allocationHealth": { "healthy": healthy, "unhealthy": unhealthy } });
    let is_judged = |group: &str| {
        let mut all = unhealthy.iter().filter_map(|id| view.world.allocation(space, id));
        all.any(|allocation| allocation.spec.group == group)
    };
    let restored = restored_where(deployment, is_judged, view);
    Ok(ordered(deployment, "fail", &judged, restored, view))
}

/// The stable version that the job goes back to when the deployment fails by one of these groups: the number that it
/// has, and not the one that it gets as the job's newest.
fn restored_where(deployment: &Deployment, fails: impl Fn(&str) -> bool, view: WriteView<'_>) -> Option<i64> {
    let groups = &deployment.status.as_ref()?.groups;
    if !groups.iter().any(|(name, group)| group.auto_revert && fails(name)) {
        return None;
    }
    let DeploymentSpec { job_name, job_uid, job_version, .. } = &deployment.spec;
    let versions = view.world.versions_of(namespace(&deployment.metadata), job_name);
    let versions = versions.filter(|version| version.spec.job_uid == *job_uid);
    let versions: Vec<VersionFacts<'_>> = versions.map(|version| VersionFacts::of(version)).collect();
    match goes_back_to(&versions, *job_version)? {
        Rollback::Restore(number) => Some(number),
        Rollback::Same(_) | Rollback::None => None,
    }
}

fn found<'a>(id: &str, view: WriteView<'a>, is_id_needed: bool) -> Result<(&'a Arc<Deployment>, Body), Fault> {
    let body: Body = body::read(view.body)?;
    check_id("DeploymentID", &body.deployment_id, id, is_id_needed)?;
    let found = view.world.deployment(&view.query.namespace(), id);
    Ok((found.ok_or_else(|| Fault::missing("deployment", id))?, body))
}

/// 500 where it is over, as Nomad's servers answer it: clients show the text.
fn refuse(deployment: &Deployment, request: &DeploymentRequest) -> Result<(), Fault> {
    let status = deployment.status.clone().unwrap_or_default();
    check(request, &status).map_err(|refusal| {
        let code = if matches!(refusal, RequestRefusal::Terminal { .. }) { 500 } else { 400 };
        Fault::new(code, refusal.to_string())
    })
}

/// The order of a change to a deployment's spec, which the right to this subresource allows; `restored` is the version
/// that the job goes back to by it.
fn ordered(
    deployment: &Deployment,
    subresource: &'static str,
    spec: &Value,
    restored: Option<i64>,
    view: WriteView<'_>,
) -> WriteOrder {
    let meta = &deployment.metadata;
    let demand = |subresource| Way {
        group: GROUP,
        resource: "deployments",
        subresource,
        verb: "update",
        namespace: namespace(meta).to_owned(),
        name: meta.name.clone().unwrap_or_default(),
    };
    // Both are asked of those who write the object themselves.
    let demands = vec![demand("").into(), demand(subresource).into()];
    let target = Target::same(Kind::Deployment, meta);
    let (job_uid, uid, now) =
        (deployment.spec.job_uid.clone(), meta.uid.clone().unwrap_or_default(), seconds(view.now));
    let is_pause = spec["paused"] == true;
    WriteOrder::new(demands, vec![Change::Patch(target, json!({ "spec": spec }))], move |written| {
        let last = written.last();
        let generation = last.and_then(|one| one.meta.generation).unwrap_or(0);
        let id = evaluation_id::of_request(&job_uid, &uid, generation);
        json!({
            "EvalID": if is_pause { String::new() } else { id },
            "EvalCreateIndex": now,
            "DeploymentModifyIndex": last.map_or(0, Written::index),
            "RevertedJobVersion": restored,
        })
    })
}
