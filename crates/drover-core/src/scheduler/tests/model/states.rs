//! Random states of a job: allocations in every status, of every version, on nodes in every phase, beside deployments.

use std::sync::Arc;

use drover_api::allocation::{LastReschedule, RescheduleEvent, RescheduleTracker};
use fastrand::Rng;
use serde_json::{Value, json};

use super::super::*;

/// The job's version.
pub(super) const CURRENT: i64 = 3;
/// What it runs differs in what a node takes over.
pub(super) const IN_PLACE: i64 = 2;
/// What it runs needs new allocations.
pub(super) const DESTRUCTIVE: i64 = 1;
/// It runs the same.
pub(super) const SAME: i64 = 0;

/// A job with its cluster, and the evaluation that looks at it.
pub(super) struct State {
    pub(super) world: World,
    pub(super) eval: Evaluation,
}

fn pick<T: Clone>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())].clone()
}

/// Holds once in `n`.
fn one_in(rng: &mut Rng, n: u32) -> bool {
    rng.u32(..n) == 0
}

pub(super) fn seconds(from_now: i64) -> Timestamp {
    now() + SignedDuration::from_secs(from_now)
}

/// A job of a type, with policies of all sorts.
fn job(kind: &str, rng: &mut Rng) -> Value {
    let is_counted = matches!(kind, "service" | "batch");
    let count = match kind {
        "system" => i64::from(!one_in(rng, 12)),
        "sysbatch" => rng.i64(0..3),
        _ if one_in(rng, 12) => 0,
        _ => rng.i64(1..6),
    };
    let mut one = spec(count);
    one["type"] = json!(kind);
    let group = one["groups"][0].as_object_mut().unwrap();
    group.remove("update");
    if matches!(kind, "service" | "system") {
        let canary = if kind == "system" { pick(rng, &[0, 0, 30, 50, 100]) } else { pick(rng, &[0, 0, 1, 2]) };
        group.insert("update".into(), json!({ "maxParallel": pick(rng, &[0, 1, 2, 3]), "canary": canary }));
    }
    let is_limited = !is_counted && one_in(rng, 3);
    if is_counted {
        let policies = [
            json!({ "delay": "30s", "delayFunction": "constant", "unlimited": true }),
            json!({ "delay": "30s", "delayFunction": "constant", "unlimited": true }),
            json!({ "attempts": 0, "unlimited": false }),
            json!({ "attempts": 1, "interval": "1h", "delay": "30s", "delayFunction": "constant", "unlimited": false }),
        ];
        group.insert("reschedule".into(), pick(rng, &policies));
    }
    let windows = [
        Value::Null,
        Value::Null,
        json!({ "lostAfter": "5m" }),
        json!({ "lostAfter": "5m", "replace": false }),
        json!({ "replace": false }),
    ];
    let window = pick(rng, &windows);
    if !window.is_null() {
        group.insert("disconnect".into(), window);
    }
    if is_limited {
        one["constraints"] = json!([{ "lTarget": "${meta.tier}", "operand": "!=", "rTarget": "old" }]);
    }
    one
}

fn node_in_some_phase(rng: &mut Rng, name: &str) -> Option<Node> {
    let ready = node(name);
    let phase = |phase| Some(Node { phase, ..node(name) });
    match rng.u32(..20) {
        0 => None,
        1 | 2 => phase(NodePhase::Down),
        3 | 4 => phase(NodePhase::Disconnected),
        5 => phase(NodePhase::Initializing),
        6 | 7 => Some(Node { is_draining: true, is_eligible: false, ..ready }),
        8 => Some(Node { is_eligible: false, ..ready }),
        9 => Some(Node { phase: NodePhase::Initializing, is_draining: true, is_eligible: false, ..ready }),
        _ => Some(ready),
    }
}

/// A state of a job of this type.
pub(super) fn state(kind: &str, rng: &mut Rng) -> State {
    let one = job(kind, rng);
    let mut world = World::new(&one);
    let variant = |version: i64| match version {
        IN_PLACE => before_an_in_place_change(one.clone()),
        DESTRUCTIVE => before_a_destructive_change(one.clone()),
        _ => one.clone(),
    };
    for version in [SAME, DESTRUCTIVE, IN_PLACE, CURRENT] {
        let definition = Definition::new(&serde_json::from_value(variant(version)).unwrap(), "web");
        world.view.put_version(key(), world.job.uid.clone(), version, Arc::clone(&definition));
        world.view.put_version(key(), Uid::from("older"), version, definition);
    }
    world.job.version = CURRENT;
    world.job.stopped = one_in(rng, 15);
    world.put_job();
    for n in 0..10 {
        let name = format!("n-{n}");
        world.view.remove_node(&NodeName::from(name.as_str()));
        if let Some(mut node) = node_in_some_phase(rng, &name) {
            if one_in(rng, 4) {
                node.meta.insert("tier".into(), "old".into());
            }
            world.view.put_node(node);
        }
    }
    if matches!(kind, "service" | "batch") {
        // There is a place for everything.
        for n in 10..14 {
            world.view.put_node(node(&format!("n-{n}")));
        }
    }
    let deployment = deployment(&mut world, kind, rng);
    allocations(&mut world, kind, deployment, rng);
    let awaited: Vec<FollowUp> = world.view.allocs_of_job(&key()).filter_map(|alloc| alloc.follow_up.clone()).collect();
    let mut eval = world.evaluation();
    if matches!(kind, "service" | "batch") && !awaited.is_empty() && rng.bool() {
        let one = pick(rng, &awaited);
        (eval.trigger, eval.wait_until) = (one.trigger, Some(one.at));
    }
    State { world, eval }
}

/// The version of the newest deployment, if there is one.
fn deployment(world: &mut World, kind: &str, rng: &mut Rng) -> Option<i64> {
    if !matches!(kind, "service" | "system") || one_in(rng, 3) {
        return None;
    }
    let version = if rng.bool() { CURRENT } else { pick(rng, &[DESTRUCTIVE, IN_PLACE, SAME]) };
    let phases = [
        DeploymentPhase::Running,
        DeploymentPhase::Running,
        DeploymentPhase::Running,
        DeploymentPhase::Paused,
        DeploymentPhase::Failed,
        DeploymentPhase::Successful,
        DeploymentPhase::Cancelled,
    ];
    let wanted = world.job.definition.spec.groups[0].update.as_ref().and_then(|update| update.canary).unwrap_or(0);
    // Of services canaries that share a slot are rare, of system jobs deployments that are complete.
    let is_canaried = if kind == "service" { !one_in(rng, 4) } else { rng.bool() };
    let desired_canaries = if version == CURRENT && is_canaried { wanted } else { 0 };
    let state = GroupState {
        desired_total: rng.i64(0..6),
        desired_canaries,
        promoted: desired_canaries > 0 && !one_in(rng, 3),
        ..GroupState::default()
    };
    let phase = pick(rng, &phases);
    // No version is over and current.
    let phase = if phase == DeploymentPhase::Cancelled && version == CURRENT { DeploymentPhase::Failed } else { phase };
    world.deployment(version, phase, state);
    Some(version)
}

fn allocations(world: &mut World, kind: &str, deployment: Option<i64>, rng: &mut Rng) {
    let is_counted = matches!(kind, "service" | "batch");
    let n = rng.i64(0..11);
    let canaries = world.view.latest_deployment(&key()).map_or(0, |latest| latest.groups["web"].desired_canaries);
    for n in 0..n {
        let index = match is_counted {
            true if one_in(rng, 3) => rng.i64(0..4),
            true => n,
            false => i64::from(one_in(rng, 4)),
        };
        let before: Vec<Arc<str>> = world
            .view
            .allocs_of_job(&key())
            .filter(|alloc| alloc.index == index && world.view.next_of(alloc).is_none())
            .map(|alloc| Arc::clone(&alloc.key.name))
            .collect();
        let name = format!("web-web-{index}-{}", world.view.allocs_of_job(&key()).count());
        world.allocs([index], |made| {
            made.uid = Uid::from(format!("uid-{n}"));
            made.created_at = seconds(n - 1000);
        });
        let mut one = (**world.view.alloc(&JobKey::new("shop", name)).unwrap()).clone();
        one.node = NodeName::from(format!("n-{}", rng.i64(0..10)));
        some_status(&mut one, kind, rng);
        if let Some(version) = deployment.filter(|_| !one_in(rng, 3)) {
            let health = pick(rng, &[None, Some(true), Some(true), Some(false)]);
            of_deployment(&mut one, version, health);
            one.canary = version == CURRENT && canaries > 0 && rng.bool();
        }
        if !before.is_empty() && rng.bool() {
            one.previous = Some(pick(rng, &before));
        }
        world.view.put_alloc(one);
    }
}

fn some_status(alloc: &mut Alloc, kind: &str, rng: &mut Rng) {
    alloc.job_version = pick(rng, &[CURRENT, CURRENT, CURRENT, IN_PLACE, DESTRUCTIVE, DESTRUCTIVE, SAME, SAME]);
    if one_in(rng, 15) {
        alloc.job_uid = Uid::from("older");
    }
    alloc.last_event_at = seconds(pick(rng, &[0, -10, -40, -100]));
    alloc.client = pick(
        rng,
        &[
            ClientStatus::Running,
            ClientStatus::Running,
            ClientStatus::Running,
            ClientStatus::Pending,
            ClientStatus::Failed,
            ClientStatus::Failed,
            ClientStatus::Complete,
            ClientStatus::Lost,
            ClientStatus::Unknown,
        ],
    );
    alloc.ran_successfully = alloc.client == ClientStatus::Complete && !one_in(rng, 4);
    if alloc.client == ClientStatus::Unknown || one_in(rng, 5) {
        alloc.states = vec![(ClientStatus::Unknown, seconds(pick(rng, &[-30, -400])))];
        if one_in(rng, 5) {
            alloc.states.clear();
        }
    }
    if one_in(rng, 5) {
        alloc.desired = pick(rng, &[DesiredStatus::Stop, DesiredStatus::Stop, DesiredStatus::Evict]);
        alloc.is_superseded = one_in(rng, 2);
    }
    alloc.transition.migrate = one_in(rng, 8);
    alloc.transition.reschedule = one_in(rng, 6);
    alloc.transition.force_reschedule = alloc.client == ClientStatus::Failed && one_in(rng, 15);
    alloc.transition.migrate_disable_placement = kind == "batch" && alloc.transition.migrate && one_in(rng, 3);
    if one_in(rng, 6) {
        let trigger = pick(rng, &[EvalTrigger::AllocReschedule, EvalTrigger::MaxDisconnectTimeout]);
        alloc.follow_up = Some(FollowUp { trigger, at: seconds(pick(rng, &[-5, 20, 100])) });
    }
    if one_in(rng, 6) {
        let event = RescheduleEvent {
            time: seconds(-50),
            prev_alloc_id: "before".into(),
            prev_node_name: "n-9".into(),
            delay: "30s".parse().unwrap(),
        };
        let last_reschedule = pick(rng, &[None, Some(LastReschedule::NoPlacement)]);
        let events = if rng.bool() { vec![event] } else { Vec::new() };
        alloc.tracker = Some(RescheduleTracker { events, last_reschedule });
    }
}
