//! Acceptance cases of `spec/scheduler.md` that a service, batch or system job without a deployment shows, and properties.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::allocation::{AllocatedResources, ClientStatus, DesiredStatus, DesiredTransition, FollowUp};
use drover_api::client_node::NodePhase;
use drover_api::job::EvalTrigger;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::plan::{DesiredUpdates, Evaluation, Plan, StopReason};
use crate::definition::Definition;
use crate::ids::{JobKey, NodeName, Uid};
use crate::model::{Alloc, Amounts, DriverState, Job, Node};
use crate::snapshot::ClusterView;

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn key() -> JobKey {
    JobKey::new("shop", "web")
}

fn node(name: &str) -> Node {
    Node {
        name: NodeName::from(name),
        datacenter: "dc1".into(),
        pool: "default".into(),
        class: String::new(),
        phase: NodePhase::Ready,
        is_eligible: true,
        is_draining: false,
        attributes: BTreeMap::from([("kernel.name".into(), "linux".into())]),
        meta: BTreeMap::new(),
        allocatable: Amounts { cpu: 100_000, memory_mb: 100_000, disk_mb: 1_000_000 },
        cores: (0..8).collect(),
        core_mhz: 1000,
        drivers: BTreeMap::from([("mock".into(), DriverState::Healthy)]),
        host_networks: vec![("default".into(), "10.0.0.1".parse().unwrap())],
        network_modes: [].into(),
        reserved_ports: [].into(),
        dynamic_ports: (20_000, 29_999),
        host_volumes: BTreeMap::new(),
        max_allocs: None,
        computed_class: String::new(),
    }
}

fn spec(count: i64) -> Value {
    json!({ "groups": [{ "name": "web", "count": count, "update": { "maxParallel": 0 }, "tasks": [
        { "name": "t", "driver": "mock", "resources": { "cpu": 100, "memoryMB": 100 } }] }] })
}

/// A cluster with one job, in which tests change what they need.
struct World {
    view: ClusterView,
    job: Job,
}

impl World {
    /// A service job of `count` and ten nodes.
    fn new(spec: &Value) -> Self {
        let mut view = ClusterView::default();
        for n in 0..10 {
            view.put_node(node(&format!("n-{n}")));
        }
        let definition = Definition::new(&serde_json::from_value(spec.clone()).unwrap(), "web");
        let job = Job {
            key: key(),
            uid: Uid::from("job-uid"),
            generation: 1,
            version: 1,
            stopped: false,
            counts: definition.spec.groups.iter().map(|group| (group.name.clone(), group.count)).collect(),
            definition: Arc::clone(&definition),
        };
        view.put_version(key(), job.uid.clone(), 1, definition);
        let mut world = Self { view, job };
        world.put_job();
        world
    }

    fn put_job(&mut self) {
        self.view.put_job(self.job.clone());
    }

    /// An old version of the job, with that spec.
    fn old(&mut self, spec: &Value) {
        let definition = Definition::new(&serde_json::from_value(spec.clone()).unwrap(), "web");
        self.view.put_version(key(), self.job.uid.clone(), 0, definition);
    }

    /// Allocations in these slots, one on each node in turn, running and healthy unless changed.
    fn allocs(&mut self, slots: impl IntoIterator<Item = i64>, change: impl Fn(&mut Alloc)) {
        for index in slots {
            let mut alloc = Alloc {
                key: JobKey::new("shop", format!("web-web-{index}-{}", self.view.allocs_of_job(&key()).count())),
                uid: Uid::from(format!("uid-{index}")),
                job: key(),
                job_uid: self.job.uid.clone(),
                job_version: 1,
                group: "web".into(),
                index,
                node: NodeName::from(format!("n-{}", index % 10)),
                desired: DesiredStatus::Run,
                client: ClientStatus::Running,
                transition: DesiredTransition::default(),
                previous: None,
                follow_up: None,
                resources: Arc::new(AllocatedResources::default()),
                health: Some(true),
                ran_successfully: false,
                last_event_at: now(),
                tracker: None,
                is_deleting: false,
                has_ended: false,
                created_at: now() - SignedDuration::from_secs(1000 - index),
            };
            change(&mut alloc);
            self.view.put_alloc(alloc);
        }
    }

    fn set_phase(&mut self, names: &[&str], phase: NodePhase) {
        for name in names {
            self.view.put_node(Node { phase, ..node(name) });
        }
    }

    fn plan(&self) -> Plan {
        self.plan_with_seed(7)
    }

    fn plan_with_seed(&self, seed: u64) -> Plan {
        let evaluation = Evaluation {
            id: "e".into(),
            job: key(),
            trigger: EvalTrigger::JobRegister,
            priority: 50,
            now: now(),
            wait_until: None,
        };
        super::plan(&self.view, &evaluation, &mut fastrand::Rng::with_seed(seed))
    }
}

/// Slots that are placed without ending another allocation for it, slots that end for good, and slots that are replaced.
fn slots(plan: &Plan) -> (Vec<i64>, Vec<i64>, Vec<i64>) {
    let sorted = |mut slots: Vec<i64>| {
        slots.sort_unstable();
        slots
    };
    let placed =
        plan.placements.iter().filter(|placement| placement.replaces.is_none()).map(|placement| placement.index);
    let replaced =
        plan.placements.iter().filter(|placement| placement.replaces.is_some()).map(|placement| placement.index);
    let stopped = plan.stops.iter().map(|stop| stop.alloc.index);
    (sorted(placed.collect()), sorted(stopped.collect()), sorted(replaced.collect()))
}

fn check(world: &World, placed: &[i64], stopped: &[i64], replaced: &[i64]) -> Plan {
    let plan = world.plan();
    let got = slots(&plan);
    assert_eq!((got.0.as_slice(), got.1.as_slice(), got.2.as_slice()), (placed, stopped, replaced));
    plan
}

fn desired(plan: &Plan) -> DesiredUpdates {
    plan.desired["web"]
}

fn range(slots: std::ops::Range<i64>) -> Vec<i64> {
    slots.collect()
}

#[test]
fn s_001_everything_is_placed() {
    let plan = check(&World::new(&spec(10)), &range(0..10), &[], &[]);
    assert_eq!(desired(&plan), DesiredUpdates { place: 10, ..DesiredUpdates::default() });
}

#[test]
fn s_002_what_is_missing_is_placed() {
    let mut world = World::new(&spec(10));
    world.allocs(0..5, |_| {});
    let plan = check(&world, &range(5..10), &[], &[]);
    assert_eq!(desired(&plan), DesiredUpdates { place: 5, ignore: 5, ..DesiredUpdates::default() });
}

#[test]
fn s_003_the_highest_slots_go_first() {
    let mut world = World::new(&spec(10));
    world.allocs(0..20, |_| {});
    let plan = check(&world, &[], &range(10..20), &[]);
    assert_eq!(desired(&plan), DesiredUpdates { ignore: 10, stop: 10, ..DesiredUpdates::default() });
}

#[test]
fn s_004_count_zero_stops_all() {
    let mut world = World::new(&spec(0));
    world.allocs(0..20, |_| {});
    drop(check(&world, &[], &range(0..20), &[]));
}

#[test]
fn s_005_count_zero_stops_all_that_share_names() {
    let mut world = World::new(&spec(0));
    world.allocs((0..20).map(|n| n % 2), |_| {});
    assert_eq!(world.plan().stops.len(), 20);
}

/// A spec of the job before a change that a node takes over in place.
fn before_an_in_place_change() -> Value {
    let mut old = spec(10);
    old["groups"][0]["tasks"][0]["killTimeout"] = json!("9s");
    old
}

/// A spec of the job before a change that needs new allocations.
fn before_a_destructive_change() -> Value {
    let mut old = spec(10);
    old["groups"][0]["tasks"][0]["env"] = json!({ "RELEASE": "1" });
    old
}

fn in_place(plan: &Plan) -> Vec<i64> {
    let mut slots: Vec<i64> = plan.in_place.iter().map(|update| update.alloc.index).collect();
    slots.sort_unstable();
    slots
}

/// In-place changes with these counts: slots updated, placed and stopped.
fn check_in_place(count: i64, updated: &[i64], placed: &[i64], stopped: &[i64]) {
    let mut world = World::new(&spec(count));
    world.old(&before_an_in_place_change());
    world.allocs(0..10, |alloc| alloc.job_version = 0);
    let plan = check(&world, placed, stopped, &[]);
    assert_eq!(in_place(&plan), updated);
}

#[test]
fn s_006_an_in_place_change_keeps_every_allocation() {
    check_in_place(10, &range(0..10), &[], &[]);
}

#[test]
fn s_007_an_in_place_change_with_a_larger_count() {
    check_in_place(15, &range(0..10), &range(10..15), &[]);
}

#[test]
fn s_008_an_in_place_change_with_a_smaller_count() {
    check_in_place(5, &range(0..5), &[], &range(5..10));
}

#[test]
fn s_011_a_destructive_change_with_a_larger_count() {
    let mut world = World::new(&spec(15));
    world.old(&before_a_destructive_change());
    world.allocs(0..10, |alloc| alloc.job_version = 0);
    drop(check(&world, &range(10..15), &[], &range(0..10)));
}

#[test]
fn s_022_each_group_is_filled_for_itself() {
    let mut two = spec(10);
    let mut other = two["groups"][0].clone();
    other["name"] = json!("b");
    two["groups"].as_array_mut().unwrap().push(other);
    let mut world = World::new(&two);
    world.allocs(0..2, |_| {});
    let plan = world.plan();
    let of = |group: &str| {
        let placed = plan.placements.iter().filter(|placement| placement.group == group);
        placed.map(|placement| placement.index).collect::<Vec<_>>()
    };
    assert_eq!((of("web"), of("b")), (range(2..10), range(0..10)));
}

#[test]
fn s_025_failed_allocations_that_were_stopped_are_placed_again() {
    let mut world = World::new(&spec(5));
    world.allocs(0..4, |alloc| {
        alloc.client = ClientStatus::Failed;
        alloc.desired = DesiredStatus::Stop;
    });
    world.allocs(4..5, |_| {});
    drop(check(&world, &range(0..4), &[], &[]));
}

#[test]
fn s_009_a_destructive_change_without_update_replaces_all_at_once() {
    let mut world = World::new(&spec(10));
    world.old(&before_a_destructive_change());
    world.allocs(0..10, |alloc| alloc.job_version = 0);
    let plan = check(&world, &[], &[], &range(0..10));
    assert_eq!(desired(&plan).destructive_update, 10);
}

#[test]
fn s_012_a_destructive_change_with_a_smaller_count_stops_the_rest() {
    let mut world = World::new(&spec(5));
    world.old(&before_a_destructive_change());
    world.allocs(0..10, |alloc| alloc.job_version = 0);
    drop(check(&world, &[], &range(5..10), &range(0..5)));
}

#[test]
fn a_change_of_the_restart_policy_is_made_in_place() {
    let mut world = World::new(&spec(10));
    let mut old = spec(10);
    old["groups"][0]["restart"] = json!({ "attempts": 9, "interval": "1h", "delay": "1s" });
    world.old(&old);
    world.allocs(0..10, |alloc| alloc.job_version = 0);
    let plan = check(&world, &[], &[], &[]);
    assert_eq!(plan.in_place.len(), 10);
}

#[test]
fn a_change_of_the_priority_writes_no_allocation() {
    let mut world = World::new(&spec(10));
    let mut old = spec(10);
    old["priority"] = json!(70);
    world.old(&old);
    world.allocs(0..10, |alloc| alloc.job_version = 0);
    assert!(world.plan().is_empty());
}

#[test]
fn max_parallel_holds_the_rest_back_until_the_first_are_healthy() {
    let mut rolling = spec(10);
    rolling["groups"][0]["update"] = json!({ "maxParallel": 3 });
    let mut old = rolling.clone();
    old["groups"][0]["tasks"][0]["env"] = json!({ "RELEASE": "1" });
    let mut world = World::new(&rolling);
    world.old(&old);
    world.allocs(0..2, |alloc| alloc.health = None);
    world.allocs(2..10, |alloc| alloc.job_version = 0);
    let plan = check(&world, &[], &[], &[2]);
    assert_eq!(plan.held_back, 7);
}

#[test]
fn s_013_allocations_of_lost_nodes_are_lost_and_replaced() {
    let mut world = World::new(&spec(10));
    world.allocs(0..10, |_| {});
    world.set_phase(&["n-0", "n-1"], NodePhase::Down);
    let plan = check(&world, &[0, 1], &[0, 1], &[]);
    assert!(plan.stops.iter().all(|stop| stop.client == Some(ClientStatus::Lost) && stop.reason == StopReason::Lost));
    assert_eq!(desired(&plan), DesiredUpdates { place: 2, stop: 2, ignore: 8, ..DesiredUpdates::default() });
}

#[test]
fn s_014_lost_ones_are_replaced_and_new_ones_added() {
    let mut world = World::new(&spec(15));
    world.allocs(0..10, |_| {});
    world.set_phase(&["n-0", "n-1"], NodePhase::Down);
    let plan = check(&world, &[0, 1, 10, 11, 12, 13, 14], &[0, 1], &[]);
    assert_eq!(desired(&plan), DesiredUpdates { place: 7, stop: 2, ignore: 8, ..DesiredUpdates::default() });
}

#[test]
fn s_015_lost_ones_are_not_replaced_where_enough_remain() {
    let mut world = World::new(&spec(5));
    world.allocs(0..10, |_| {});
    world.set_phase(&["n-0", "n-1"], NodePhase::Down);
    let plan = check(&world, &[], &[0, 1, 7, 8, 9], &[]);
    assert_eq!(desired(&plan), DesiredUpdates { stop: 5, ignore: 5, ..DesiredUpdates::default() });
}

#[test]
fn s_017_marked_allocations_move_and_new_ones_are_added() {
    let mut world = World::new(&spec(15));
    world.allocs(0..2, |alloc| alloc.transition.migrate = true);
    world.allocs(2..10, |_| {});
    let plan = check(&world, &range(10..15), &[], &[0, 1]);
    assert_eq!(desired(&plan), DesiredUpdates { place: 5, migrate: 2, ignore: 8, ..DesiredUpdates::default() });
}

#[test]
fn s_018_the_highest_marked_ones_stop_instead_of_moving() {
    let mut world = World::new(&spec(8));
    world.allocs(0..3, |alloc| alloc.transition.migrate = true);
    world.allocs(3..10, |_| {});
    let plan = check(&world, &[], &[1, 2], &[0]);
    assert_eq!(desired(&plan), DesiredUpdates { migrate: 1, stop: 2, ignore: 7, ..DesiredUpdates::default() });
}

#[test]
fn s_016_marked_allocations_move() {
    let mut world = World::new(&spec(10));
    world.allocs(0..2, |alloc| alloc.transition.migrate = true);
    world.allocs(2..10, |_| {});
    let plan = check(&world, &[], &[], &[0, 1]);
    assert!(
        plan.placements.iter().all(|placement| placement.replaces.as_ref().unwrap().reason == StopReason::Migrating)
    );
    assert_eq!(desired(&plan).migrate, 2);
}

#[test]
fn s_019_a_renamed_group_is_another_group() {
    let mut world = World::new(&spec(10));
    world.allocs(0..10, |alloc| alloc.group = "old".into());
    let plan = world.plan();
    assert_eq!((plan.stops.len(), plan.placements.len()), (10, 10));
}

#[test]
fn s_020_a_stopped_or_absent_job_runs_nothing() {
    let mut world = World::new(&spec(10));
    world.allocs(0..10, |_| {});
    world.job.stopped = true;
    world.put_job();
    drop(check(&world, &[], &range(0..10), &[]));
    world.view.remove_job(&key());
    drop(check(&world, &[], &range(0..10), &[]));
}

#[test]
fn s_021_what_is_stopped_already_is_not_stopped_again() {
    let mut world = World::new(&spec(10));
    world.allocs(0..10, |alloc| {
        alloc.desired = DesiredStatus::Stop;
        alloc.client = ClientStatus::Failed;
    });
    world.job.stopped = true;
    world.put_job();
    assert!(world.plan().is_empty());
}

#[test]
fn s_023_a_draining_node_alone_moves_nothing() {
    let mut world = World::new(&spec(10));
    world.allocs(0..10, |_| {});
    world.view.put_node(Node { is_draining: true, ..node("n-0") });
    assert!(world.plan().is_empty());
}

#[test]
fn s_024_a_service_that_ended_well_is_placed_again() {
    let mut world = World::new(&spec(5));
    world.allocs(0..4, |alloc| alloc.client = ClientStatus::Complete);
    world.allocs(4..5, |_| {});
    drop(check(&world, &range(0..4), &[], &[]));
}

fn failed_a_while_ago(seconds: i64) -> impl Fn(&mut Alloc) {
    move |alloc| {
        alloc.client = ClientStatus::Failed;
        alloc.last_event_at = now() - SignedDuration::from_secs(seconds);
    }
}

fn with_reschedule(mut spec: Value, policy: Value) -> Value {
    spec["groups"][0]["reschedule"] = policy;
    spec
}

#[test]
fn s_026_a_failed_one_is_rescheduled_after_its_delay() {
    let policy = json!({ "delay": "15s", "delayFunction": "constant", "unlimited": true });
    let mut world = World::new(&with_reschedule(spec(5), policy));
    world.allocs(0..1, failed_a_while_ago(0));
    world.allocs(1..5, |_| {});
    let plan = check(&world, &[], &[], &[]);
    let at = now() + SignedDuration::from_secs(15);
    let follow_up = FollowUp { trigger: EvalTrigger::AllocReschedule, at };
    assert_eq!(plan.follow_ups, std::slice::from_ref(&follow_up));
    assert_eq!(desired(&plan).reschedule_later, 1);
    assert_eq!(plan.attributes[0].follow_up.as_ref(), Some(&follow_up));
}

#[test]
fn s_027_one_that_is_due_within_a_second_is_rescheduled_now() {
    let policy = json!({ "delay": "15s", "delayFunction": "constant", "unlimited": true });
    let mut world = World::new(&with_reschedule(spec(5), policy));
    world.allocs(0..1, |alloc| {
        alloc.client = ClientStatus::Failed;
        alloc.last_event_at = now() - SignedDuration::from_millis(14_200);
    });
    world.allocs(1..5, |_| {});
    let plan = check(&world, &[], &[], &[0]);
    let placement = &plan.placements[0];
    assert_eq!(placement.replaces.as_ref().unwrap().reason, StopReason::Rescheduled);
    assert_eq!(placement.tracker.as_ref().unwrap().events[0].prev_alloc_id, "uid-0");
    assert_ne!(placement.node, NodeName::from("n-0"), "the node on which it failed is the last choice");
}

#[test]
fn s_028_the_awaited_evaluation_reschedules_now() {
    let policy = json!({ "delay": "1h", "maxDelay": "2h", "unlimited": true });
    let mut world = World::new(&with_reschedule(spec(5), policy));
    world.allocs(0..1, |alloc| {
        alloc.client = ClientStatus::Failed;
        alloc.follow_up = Some(FollowUp { trigger: EvalTrigger::AllocReschedule, at: now() });
    });
    world.allocs(1..5, |_| {});
    drop(check(&world, &[], &[], &[0]));
}

#[test]
fn s_029_force_reschedules_whatever_the_policy_says() {
    let policy = json!({ "attempts": 0, "unlimited": false });
    let mut world = World::new(&with_reschedule(spec(5), policy));
    world.allocs(0..1, |alloc| {
        alloc.client = ClientStatus::Failed;
        alloc.transition.force_reschedule = true;
    });
    world.allocs(1..5, |_| {});
    drop(check(&world, &[], &[], &[0]));
}

#[test]
fn s_030_a_failed_one_without_attempts_keeps_its_slot() {
    let policy = json!({ "attempts": 0, "unlimited": false });
    let mut world = World::new(&with_reschedule(spec(5), policy));
    world.allocs(0..1, failed_a_while_ago(100));
    world.allocs(1..5, |_| {});
    let plan = world.plan();
    assert!(plan.is_empty() && plan.follow_ups.is_empty());
}

#[test]
fn s_031_a_failed_one_that_was_replaced_is_left_alone() {
    let mut world = World::new(&spec(1));
    world.allocs(0..1, failed_a_while_ago(100));
    world.allocs(0..1, |alloc| alloc.previous = Some("web-web-0-0".into()));
    assert!(world.plan().is_empty());
}

#[test]
fn s_036_finished_batch_slots_are_not_run_again() {
    let mut batch = spec(10);
    batch["type"] = json!("batch");
    batch["groups"][0].as_object_mut().unwrap().remove("update");
    let mut world = World::new(&batch);
    world.allocs(0..10, |alloc| {
        alloc.client = ClientStatus::Complete;
        alloc.ran_successfully = true;
    });
    let plan = world.plan();
    assert!(plan.is_empty());
    assert_eq!(desired(&plan), DesiredUpdates { ignore: 10, ..DesiredUpdates::default() });
}

#[test]
fn a_deleted_allocation_is_replaced_in_its_slot() {
    let mut world = World::new(&spec(2));
    world.allocs(0..1, |alloc| alloc.is_deleting = true);
    world.allocs(1..2, |_| {});
    let plan = check(&world, &[0], &[], &[]);
    assert_eq!(plan.placements[0].previous.as_ref().unwrap().uid, Uid::from("uid-0"));
}

#[test]
fn a_system_job_runs_on_each_node_that_fits() {
    let mut system = spec(1);
    system["type"] = json!("system");
    system["constraints"] = json!([{ "lTarget": "${node.unique.name}", "operand": "!=", "rTarget": "n-3" }]);
    let mut world = World::new(&system);
    world.view.put_node(Node { is_eligible: false, ..node("n-4") });
    let plan = world.plan();
    let nodes: Vec<String> = plan.placements.iter().map(|placement| placement.node.to_string()).collect();
    assert_eq!(nodes, ["n-0", "n-1", "n-2", "n-5", "n-6", "n-7", "n-8", "n-9"]);
    assert!(plan.failed.is_empty(), "a filtered node is no failure");
}

#[test]
fn an_explanation_counts_rules_and_dimensions() {
    let mut wanting = spec(1);
    wanting["constraints"] = json!([{ "lTarget": "${meta.rack}", "rTarget": "r1" }]);
    wanting["groups"][0]["tasks"][0]["resources"]["memoryMB"] = json!(200_000);
    let mut world = World::new(&wanting);
    for name in ["n-0", "n-1", "n-2"] {
        world.view.put_node(Node { meta: BTreeMap::from([("rack".into(), "r1".into())]), ..node(name) });
    }
    let plan = world.plan();
    assert_eq!(
        crate::job_status::explain(&plan.failed["web"]),
        "filtered by ${meta.rack} = r1 on 7 of 10 nodes, memory exhausted on 3 of 10 nodes, add nodes, stop other jobs, or ask for less"
    );
    assert_eq!(plan.queued["web"], 1);
}

#[test]
fn static_ports_are_exclusive_and_dynamic_ones_differ() {
    let mut ports = spec(3);
    ports["groups"][0]["networks"] = json!([{ "ports": [{ "label": "fixed", "static": 8080 }, { "label": "free" }] }]);
    let mut world = World::new(&ports);
    for n in 2..10 {
        world.view.remove_node(&NodeName::from(format!("n-{n}")));
    }
    let plan = world.plan();
    assert_eq!(plan.placements.len(), 2, "one of each node has port 8080");
    assert_eq!(plan.failed["web"].dimension_exhausted["network: reserved port collision fixed=8080"], 2);
    for placement in &plan.placements {
        let free = placement.resources.ports.iter().find(|port| port.label == "free").unwrap();
        assert!((20_000..=29_999).contains(&free.value));
        assert_eq!(free.host_ip, "10.0.0.1");
    }
}

/// The view after a plan was carried out.
fn applied(world: &World, plan: &Plan) -> ClusterView {
    let mut view = world.view.clone();
    let replaced = plan.placements.iter().filter_map(|placement| placement.replaces.as_ref());
    for stop in plan.stops.iter().chain(replaced) {
        let client = stop.client.unwrap_or(ClientStatus::Complete);
        view.put_alloc(Alloc { desired: stop.desired, client, ..(*stop.alloc).clone() });
    }
    for update in &plan.attributes {
        let alloc = view.alloc(&update.alloc).unwrap();
        let noted = Alloc { follow_up: update.follow_up.clone(), ..(**alloc).clone() };
        view.put_alloc(noted);
    }
    for update in &plan.in_place {
        view.put_alloc(Alloc { job_version: update.job_version, ..(*update.alloc).clone() });
    }
    for (n, placement) in plan.placements.iter().enumerate() {
        view.put_alloc(Alloc {
            key: JobKey::new("shop", format!("new-{n}")),
            uid: Uid::from(format!("new-{n}")),
            job: key(),
            job_uid: world.job.uid.clone(),
            job_version: placement.job_version,
            group: placement.group.clone(),
            index: placement.index,
            node: placement.node.clone(),
            desired: DesiredStatus::Run,
            client: ClientStatus::Running,
            transition: DesiredTransition::default(),
            previous: placement.previous.as_ref().map(|alloc| alloc.key.name.clone()),
            follow_up: None,
            resources: Arc::new(placement.resources.clone()),
            health: Some(true),
            ran_successfully: false,
            last_event_at: now(),
            tracker: placement.tracker.clone(),
            is_deleting: false,
            has_ended: false,
            created_at: now(),
        });
    }
    view
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is there: nodes are never overcommitted, no slot is held twice, the same input gives the same plan, and
    /// planning again after the plan was carried out gives an empty one.
    #[test]
    fn plans_are_safe_deterministic_and_settle(
        count in 0_i64..12,
        there in proptest::collection::vec((0_i64..14, 0_u8..6), 0..14),
        cpu in 100_i64..2_000,
        down in 0_usize..3,
    ) {
        let mut world = World::new(&spec(count));
        for n in 0..10 {
            let allocatable = Amounts { cpu, memory_mb: 10_000, disk_mb: 100_000 };
            world.view.put_node(Node { allocatable, ..node(&format!("n-{n}")) });
        }
        for (slot, kind) in there {
            world.allocs([slot], |alloc| match kind {
                0 => alloc.client = ClientStatus::Failed,
                1 => alloc.client = ClientStatus::Complete,
                2 => alloc.transition.migrate = true,
                3 => alloc.is_deleting = true,
                _ => {}
            });
        }
        for n in 0..down {
            world.set_phase(&[format!("n-{n}").as_str()], NodePhase::Down);
        }
        let plan = world.plan();
        prop_assert_eq!(&plan, &world.plan());
        let view = applied(&world, &plan);
        let mut held = std::collections::BTreeSet::new();
        for alloc in view.allocs_of_job(&key()).filter(|alloc| !alloc.is_terminal()) {
            prop_assert!(held.insert(alloc.index), "slot {} is held twice", alloc.index);
        }
        for node in view.nodes() {
            let placed = plan.placements.iter().filter(|placement| placement.node == node.name);
            let asked: i64 = placed.map(|placement| placement.resources.tasks["t"].cpu).sum();
            prop_assert!(asked <= node.allocatable.cpu);
        }
        let again = World { view, job: world.job.clone() }.plan();
        prop_assert!(again.is_empty() || !plan.failed.is_empty(), "{:?}", again);
    }
}
