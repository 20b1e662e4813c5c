//! The events of a change.

use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, Job};
use drover_core::evaluation_id::{self, Point};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::cause::{self, Cause};
use super::event::{Event, Keys};
use super::happened::Happened;
use super::together::{self, Part};
use super::topic::Topic;
use crate::wire::{allocation, awaited, deployment, evaluation, job, node, volume};
use crate::world::{Turn, World, namespace};

/// What is told of a change.
#[derive(Clone, Debug, Default)]
pub struct Changed {
    /// Its events, of one type.
    pub(super) events: Vec<Event>,
    /// What it is a part of; none: it is told alone.
    pub(super) part: Option<Part>,
}

/// The events of a change. `world` is that of after the change, in which what an object refers to is looked up.
pub fn events(change: &Happened, world: &World) -> Changed {
    let (part, cause) = together::part(change, world).unzip();
    let events = match change {
        Happened::Job(turn) => each(turn, |before, after| of_job(before, after, world)),
        Happened::Allocation(turn) => each(turn, |before, after| of_allocation(before, after, cause, world)),
        Happened::Deployment(turn) => each(turn, |before, after| of_deployment(before, after, cause, world)),
        Happened::Node(turn) => each(turn, of_node),
        Happened::Volume(turn) => each(turn, |before, after| of_volume(before, after, world)),
    };
    Changed { events, part }
}

/// Another object of the same name is the end of one and the beginning of another.
fn each<K: kube::Resource>(turn: &Turn<K>, of: impl Fn(Option<&K>, Option<&K>) -> Vec<Event>) -> Vec<Event> {
    let (before, after) = (turn.before.as_deref(), turn.after.as_deref());
    match (before, after) {
        (Some(old), Some(new)) if old.meta().uid != new.meta().uid => {
            of(before, None).into_iter().chain(of(None, after)).collect()
        }
        _ => of(before, after),
    }
}

fn of_job(before: Option<&Job>, after: Option<&Job>, world: &World) -> Vec<Event> {
    let (cause, is_of_job) = match (before, after) {
        (_, None) => (Cause::JobDeregistered, true),
        (None, Some(_)) => (Cause::JobRegistered, true),
        (Some(before), Some(after)) => match cause::of_job(before, after) {
            Some(found) => found,
            None => return Vec::new(),
        },
    };
    let mut events = Vec::new();
    if let Some(shown) = after.or(before).filter(|_| is_of_job) {
        let mut payload = json!({ "Job": job::full(shown, world) });
        if after.is_none() {
            payload["Deleted"] = json!(true);
        }
        let keys = Keys { own: text(&payload["Job"], "ID"), more: Vec::new() };
        events.push(Event::new((Topic::Job, cause), namespace(&shown.metadata), keys, &payload));
    }
    if let Some(after) = after {
        let mut evaluations = of_evaluations(before, after, world);
        // The one that follows a new spec is told of with it, as the write of a client told it.
        let is_template = after.spec.periodic.is_some() || after.spec.parameterized.is_some();
        let is_asked = !is_template && before.is_none_or(|before| before.spec != after.spec);
        if let (Some(uid), true) = (after.metadata.uid.as_deref(), is_asked) {
            let id = evaluation_id::of_point(uid, Point::of(after));
            evaluations.extend(self::awaited(&after.metadata, &id, world));
        }
        events.extend(evaluations.iter().map(|one| of_evaluation(cause, &after.metadata, one)));
    }
    events
}

/// An evaluation that clients wait for, if it is known.
fn awaited(of: &ObjectMeta, id: &str, world: &World) -> Option<Value> {
    awaited::find(world, namespace(of), id).map(|found| evaluation::full(&found, world))
}

fn of_evaluation(cause: Cause, of: &ObjectMeta, one: &Value) -> Event {
    let keys = Keys { own: text(one, "ID"), more: vec![text(one, "JobID"), text(one, "DeploymentID")] };
    Event::new((Topic::Evaluation, cause), namespace(of), keys, &json!({ "Evaluation": one }))
}

/// The evaluations that are new, or that stand elsewhere than before.
fn of_evaluations(before: Option<&Job>, after: &Job, world: &World) -> Vec<Value> {
    let status = |job: &Job| job.status.as_ref().map(|status| (status.evaluations.clone(), status.blocked.clone()));
    if before.and_then(status) == status(after) {
        return Vec::new();
    }
    // What it has of its job changes with that, and is no change of its own.
    let own = |mut one: Value| {
        if let Some(one) = one.as_object_mut() {
            one.retain(|key, _| !matches!(key.as_str(), "SnapshotIndex" | "ModifyIndex" | "QueuedAllocations"));
        }
        one
    };
    let all =
        |job: &Job| -> Vec<Value> { evaluation::of_job(job).iter().map(|one| evaluation::full(one, world)).collect() };
    let known: Map<String, Value> =
        before.map(all).unwrap_or_default().into_iter().map(|one| (text(&one, "ID"), own(one))).collect();
    let is_new = |one: &Value| known.get(&text(one, "ID")) != Some(&own(one.clone()));
    all(after).into_iter().filter(is_new).collect()
}

/// One that is collected is no event.
fn of_allocation(
    before: Option<&Allocation>,
    after: Option<&Allocation>,
    part_of: Option<Cause>,
    world: &World,
) -> Vec<Event> {
    let Some((own, after)) = turned(before, after, (Cause::PlanResult, None), cause::of_allocation) else {
        return Vec::new();
    };
    let cause = part_of.unwrap_or(own);
    let shown = allocation::without_job(after, world);
    let keys = Keys { own: text(&shown, "ID"), more: vec![text(&shown, "JobID"), text(&shown, "DeploymentID")] };
    let payload = json!({ "Allocation": shown });
    vec![Event::new((Topic::Allocation, cause), namespace(&after.metadata), keys, &payload)]
}

/// One that is collected is no event. The evaluation that a person's promotion asks for is told of with it.
fn of_deployment(
    before: Option<&Deployment>,
    after: Option<&Deployment>,
    part_of: Option<Cause>,
    world: &World,
) -> Vec<Event> {
    let Some((own, after)) = turned(before, after, (Cause::PlanResult, None), cause::of_deployment) else {
        return Vec::new();
    };
    let cause = part_of.unwrap_or(own);
    let shown = deployment::full(after, world);
    let keys = Keys { own: text(&shown, "ID"), more: vec![text(&shown, "JobID")] };
    let payload = json!({ "Deployment": shown });
    let mut events = vec![Event::new((Topic::Deployment, cause), namespace(&after.metadata), keys, &payload)];
    let asked =
        |it: &Deployment| it.status.as_ref().and_then(|status| status.acted.clone()).and_then(|acted| acted.promote);
    let is_asked = cause == Cause::DeploymentPromotion && before.and_then(asked) != asked(after);
    if let (Some(uid), true) = (after.metadata.uid.as_deref(), is_asked) {
        let generation = after.status.as_ref().map_or(0, |status| status.observed_generation);
        let id = evaluation_id::of_request(&after.spec.job_uid, uid, generation);
        let found = self::awaited(&after.metadata, &id, world);
        events.extend(found.iter().map(|one| of_evaluation(cause, &after.metadata, one)));
    }
    events
}

fn of_node(before: Option<&ClientNode>, after: Option<&ClientNode>) -> Vec<Event> {
    let Some((cause, shown)) =
        turned(before, after, (Cause::NodeRegistration, Some(Cause::NodeDeregistration)), cause::of_node)
    else {
        return Vec::new();
    };
    let shown = node::full(shown);
    let keys = Keys { own: text(&shown, "ID"), more: Vec::new() };
    vec![Event::new((Topic::Node, cause), "", keys, &json!({ "Node": shown }))]
}

fn of_volume(before: Option<&CSIVolume>, after: Option<&CSIVolume>, world: &World) -> Vec<Event> {
    let Some((cause, of)) =
        turned(before, after, (Cause::VolumeRegistered, Some(Cause::VolumeDeregistered)), cause::of_volume)
    else {
        return Vec::new();
    };
    let mut shown = volume::full(of, world);
    // Who may list volumes may not therefore list allocations.
    shown["Allocations"] = json!([]);
    let id = text(&shown, "ID");
    let keys = Keys { own: id.clone(), more: vec![id, text(&shown, "Name"), text(&shown, "PluginID")] };
    let payload = json!({ "Volume": shown });
    vec![Event::new((Topic::Volume, cause), namespace(&of.metadata), keys, &payload)]
}

/// Why an object is told of, and how it is or was: one that is new, one that is gone, or one that has changed.
fn turned<'a, K>(
    before: Option<&'a K>,
    after: Option<&'a K>,
    (new, gone): (Cause, Option<Cause>),
    changed: fn(&K, &K) -> Option<Cause>,
) -> Option<(Cause, &'a K)> {
    let cause = match (before, after) {
        (_, None) => gone,
        (None, Some(_)) => Some(new),
        (Some(before), Some(after)) => changed(before, after),
    };
    Some((cause?, after.or(before)?))
}

fn text(object: &Value, field: &str) -> String {
    object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
