//! Which changes are one write of Nomad's: those that carry one plan out, and those of one promotion.
//!
//! Kubernetes has no write of several objects. The writes of a plan name it and how many they are; a promotion shows in
//! its deployment, whose canaries then become ordinary allocations.

use drover_api::allocation::DesiredStatus;
use drover_api::{Allocation, Deployment, PlanWrite, annotation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::cause::Cause;
use super::happened::Happened;
use crate::world::{Turn, World, namespace};

/// What a change is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Names the whole.
    pub(super) whole: String,
    /// How many changes the whole has; none where another of its parts says it.
    pub(super) of: Option<u32>,
}

/// What a change is a part of, if it is one, and why it is told of then.
pub(super) fn part(change: &Happened, world: &World) -> Option<(Part, Cause)> {
    match change {
        Happened::Allocation(turn) => of_allocation(turn),
        Happened::Deployment(turn) => of_deployment(turn, world),
        Happened::Job(_) | Happened::Node(_) | Happened::Volume(_) => None,
    }
}

fn of_allocation(turn: &Turn<Allocation>) -> Option<(Part, Cause)> {
    let (before, after) = (turn.before.as_deref(), turn.after.as_deref()?);
    let space = namespace(&after.metadata);
    if let Some(plan) = new_plan(before.and_then(|it| noted(&it.metadata)), noted(&after.metadata)) {
        return Some((plan_of(space, &plan), Cause::PlanResult));
    }
    let takes_over = before.is_some_and(|before| before.spec.canary) && !after.spec.canary;
    takes_over.then(|| {
        let whole = promotion(space, &after.spec.deployment_name);
        (Part { whole, of: None }, Cause::DeploymentPromotion)
    })
}

fn of_deployment(turn: &Turn<Deployment>, world: &World) -> Option<(Part, Cause)> {
    let (before, after) = (turn.before.as_deref(), turn.after.as_deref()?);
    let (space, name) = (namespace(&after.metadata), after.metadata.name.as_deref().unwrap_or_default());
    let told = |it: &Deployment| it.status.as_ref().and_then(|status| status.plan.clone());
    let by_status = new_plan(before.and_then(told).as_deref(), told(after).as_deref());
    let is_made = before.is_none();
    if let Some(plan) = by_status.or_else(|| new_plan(None, noted(&after.metadata)).filter(|_| is_made)) {
        return Some((plan_of(space, &plan), Cause::PlanResult));
    }
    let promoted = promoted_now(before?, after);
    if promoted.is_empty() {
        return None;
    }
    let is_left = |allocation: &Allocation| {
        let client = allocation.status.as_ref().map(|status| status.client_status).unwrap_or_default();
        let is_wanted = allocation.spec.desired_status == DesiredStatus::Run && !client.is_terminal();
        is_wanted && allocation.spec.deployment_name == name
    };
    let canaries = promoted.iter().filter(|name| world.allocations.named(space, name).is_some_and(|it| is_left(it)));
    let of = u32::try_from(canaries.count()).unwrap_or(u32::MAX).saturating_add(1);
    Some((Part { whole: promotion(space, name), of: Some(of) }, Cause::DeploymentPromotion))
}

/// The canaries of the groups that a deployment promotes with this change.
fn promoted_now<'a>(before: &Deployment, after: &'a Deployment) -> Vec<&'a str> {
    let was = |group: &str| {
        let groups = before.status.as_ref().map(|status| &status.groups);
        groups.and_then(|groups| groups.get(group)).is_some_and(|group| group.promoted)
    };
    let groups = after.status.iter().flat_map(|status| &status.groups);
    let now = groups.filter(|(name, group)| group.promoted && !was(name));
    now.flat_map(|(_, group)| &group.placed_canaries).map(String::as_str).collect()
}

fn promotion(space: &str, deployment: &str) -> String {
    format!("promotion {space}/{deployment}")
}

fn plan_of(space: &str, plan: &PlanWrite) -> Part {
    Part { whole: format!("plan {space}/{}", plan.eval_id), of: Some(plan.writes) }
}

fn noted(meta: &ObjectMeta) -> Option<&str> {
    meta.annotations.as_ref()?.get(annotation::PLAN).map(String::as_str)
}

/// A plan of several writes that is named now and was not before. A text that names none counts as none.
fn new_plan(before: Option<&str>, now: Option<&str>) -> Option<PlanWrite> {
    let plan: PlanWrite = now.filter(|now| before != Some(now))?.parse().ok()?;
    (plan.writes > 1).then_some(plan)
}
