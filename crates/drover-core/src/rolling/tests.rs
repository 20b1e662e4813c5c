//! Who gets new values and when, and that no order of events gives them to more than may have them.

use drover_api::allocation::{ClientStatus, DesiredStatus, TaskRunState};
use drover_api::group::Group;
use drover_api::job::JobType;
use drover_api::value_object::{ValueKind, ValueObject};
use drover_api::{Allocation, JobSpec};
use fastrand::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{RolloutView, Turn, ValueRollout, rolling_policy};
use crate::health::HealthMode;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// A group of slots, the object's newest version, and a time.
struct World {
    job: JobSpec,
    object: ValueObject,
    newest: u64,
    now: i64,
    allocs: Vec<Allocation>,
    rollout: ValueRollout,
}

impl World {
    /// Slots that have run with version 1 for long. An allocation is healthy after 10 seconds, or never after 100.
    fn new(slots: i64, max_parallel: usize) -> Self {
        let update = json!({ "maxParallel": max_parallel, "minHealthyTime": "10s", "healthyDeadline": "100s" });
        let (job, object) = job(&update, &json!([{ "destPath": "local/a", "rolling": true }]));
        let mut world =
            Self { job, object, newest: 1, now: 1_000, allocs: Vec::new(), rollout: ValueRollout::default() };
        for slot in 0..slots {
            world.place(slot, 0);
            world.report(usize::try_from(slot).unwrap(), 1, 1);
        }
        world
    }

    /// One more allocation of a slot, of which nothing is known yet.
    fn place(&mut self, slot: i64, second: i64) {
        let name = format!("web-{slot}-{}", self.allocs.len());
        let mut alloc: Allocation = serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Allocation",
            "metadata": { "name": name, "uid": name, "creationTimestamp": at(second) },
            "spec": { "jobName": "web", "jobUID": "u", "jobVersion": 0, "group": "g", "index": slot, "nodeName": "n" },
        }))
        .unwrap();
        alloc.status = None;
        self.allocs.push(alloc);
    }

    /// Its agent reports that its tasks run, and that the one with templates does so with a version since then.
    fn report(&mut self, n: usize, version: u64, second: i64) {
        let since = at(second);
        let values = json!({ self.object.key(): { "version": version.to_string(), "since": since } });
        let task = json!({ "state": "running", "startedAt": since, "values": values });
        let other = json!({ "state": "running", "startedAt": at(1) });
        let status = json!({ "clientStatus": "running", "taskStates": { "t": task, "u": other } });
        self.allocs[n].status = Some(serde_json::from_value(status).unwrap());
    }

    fn becomes(&mut self, n: usize, status: ClientStatus) {
        self.allocs[n].status.get_or_insert_default().client_status = status;
    }

    fn step(&mut self) -> super::RolloutStep {
        let group = &self.job.groups[0];
        let policy = rolling_policy(&self.job, group, &self.object).unwrap();
        let newest = self.newest.to_string();
        let view = RolloutView { policy, group, object: &self.object, newest: &newest };
        self.rollout.step(view, &self.allocs, at(self.now))
    }

    fn turn(&mut self, n: usize) -> Option<Turn> {
        let uid = self.allocs[n].metadata.uid.clone().unwrap();
        self.step().turns.remove(&uid)
    }

    /// All turns as a text: h holds, t takes, w waits, s stopped, - takes no part.
    fn turns(&mut self) -> String {
        let turns = (0..self.allocs.len()).map(|n| match self.turn(n) {
            Some(Turn::Holds) => 'h',
            Some(Turn::Takes) => 't',
            Some(Turn::Waits) => 'w',
            Some(Turn::Stopped(_)) => 's',
            None => '-',
        });
        turns.collect()
    }
}

#[test]
fn b_056_the_next_gets_new_values_when_the_one_before_is_well_and_none_after_one_that_is_not() {
    let mut world = World::new(3, 1);
    assert_eq!(world.turns(), "hhh");
    world.newest = 2;
    assert_eq!(world.turns(), "tww");
    world.report(0, 2, 1_000);
    assert_eq!(world.turns(), "hww", "it is not known to be well");
    assert_eq!(world.step().wake_at, Some(at(1_010)));
    world.now = 1_010;
    assert_eq!(world.turns(), "htw");
    world.report(1, 2, 1_011);
    world.allocs[1].status.as_mut().unwrap().task_states.get_mut("t").unwrap().state = TaskRunState::Dead;
    world.now = 1_012;
    assert_eq!(world.turn(2), Some(Turn::Stopped("web-1-1".to_owned())), "third keeps the old value");
    // One that knows nothing of all this comes to the same answer.
    world.rollout = ValueRollout::default();
    assert_eq!(world.turn(2), Some(Turn::Stopped("web-1-1".to_owned())));
    // Where it is well after all, the others go on.
    world.report(1, 2, 1_020);
    world.now = 1_029;
    assert_eq!(world.turns(), "hhw");
    world.now = 1_030;
    assert_eq!(world.turns(), "hht");
    // Values that change once more begin at the first again.
    world.newest = 3;
    assert_eq!(world.turns(), "tww");
}

#[test]
fn one_that_is_never_well_stops_the_others_at_its_deadline_and_they_go_on_when_it_is() {
    let mut world = World::new(3, 2);
    world.newest = 2;
    assert_eq!(world.turns(), "ttw");
    world.report(0, 2, 1_000);
    world.allocs[0].status.as_mut().unwrap().task_states.get_mut("t").unwrap().state = TaskRunState::Pending;
    assert_eq!((world.turns().as_str(), world.step().wake_at), ("htw", Some(at(1_100))));
    world.now = 1_100;
    assert_eq!((world.turns().as_str(), world.step().wake_at), ("hss", Some(at(1_200))));
    world.allocs[0].status.as_mut().unwrap().task_states.get_mut("t").unwrap().state = TaskRunState::Running;
    world.now = 1_105;
    assert_eq!((world.turns().as_str(), world.step().wake_at), ("hss", Some(at(1_110))));
    world.now = 1_110;
    assert_eq!(world.turns(), "htt");
}

#[test]
fn one_that_starts_has_the_newest_and_others_wait_for_it_and_one_that_failed_stops_them_until_it_is_replaced() {
    let mut world = World::new(3, 1);
    world.newest = 2;
    world.place(3, 999);
    assert_eq!(world.turns(), "wwwh", "a start waits for none");
    world.report(3, 2, 1_000);
    world.now = 1_010;
    assert_eq!(world.turns(), "twwh");
    world.report(0, 2, 1_010);
    world.becomes(0, ClientStatus::Failed);
    assert_eq!(world.turns(), "hssh");
    world.place(0, 1_011);
    assert_eq!(world.turns(), "-wwhh");
    world.report(4, 2, 1_012);
    world.now = 1_022;
    assert_eq!(world.turns(), "-twhh");
    // Who leaves, fails with older values or is away holds nothing up.
    world.allocs[1].spec.desired_status = DesiredStatus::Stop;
    assert_eq!(world.turns(), "--thh");
    world.becomes(2, ClientStatus::Unknown);
    assert_eq!(world.turns(), "---hh");
    world.becomes(2, ClientStatus::Failed);
    assert_eq!(world.turns(), "---hh");
}

#[test]
fn all_tasks_that_tell_of_the_object_have_to_have_it_and_who_tells_of_none_takes_no_part() {
    let mut world = World::new(2, 1);
    let status = world.allocs[0].status.as_mut().unwrap();
    let (old, mut other) = (status.task_states["t"].clone(), status.task_states["t"].clone());
    other.values.get_mut("Secret/db").unwrap().version = "2".to_owned();
    status.task_states.insert("u".to_owned(), other.clone());
    world.newest = 2;
    assert_eq!(world.turns(), "tw");
    world.allocs[0].status.as_mut().unwrap().task_states.insert("t".to_owned(), other);
    assert_eq!(world.turns(), "hw");
    let mut silent = old;
    silent.values.clear();
    for name in ["t", "u"] {
        world.allocs[0].status.as_mut().unwrap().task_states.insert(name.to_owned(), silent.clone());
    }
    assert_eq!(world.turns(), "-t");
}

/// What is true of a slot: what it was given, and since when it runs so; kept apart from what the roll-out thinks.
#[derive(Clone, Copy, Debug)]
struct Truth {
    given: u64,
    reported: u64,
    since: i64,
    is_ill: bool,
}

#[test]
fn must_survive_any_order_of_events_and_two_gateways_that_ask_at_different_times() {
    for seed in 0..1_000 {
        let mut rng = Rng::with_seed(seed);
        let max_parallel = 1 + rng.usize(0..2);
        let mut world = World::new(4, max_parallel);
        let mut other = ValueRollout::default();
        let mut truth = [Truth { given: 1, reported: 1, since: 1, is_ill: false }; 4];
        for _ in 0..80 {
            let slot = rng.usize(0..4);
            world.now += rng.i64(0..6);
            if rng.bool() {
                std::mem::swap(&mut world.rollout, &mut other);
            }
            let (newest, now) = (world.newest, world.now);
            let own = truth[slot];
            match rng.usize(0..8) {
                0 if rng.usize(0..4) == 0 => world.newest += 1,
                1 if own.given != own.reported => {
                    truth[slot] = Truth { reported: own.given, since: now, is_ill: rng.usize(0..4) == 0, ..own };
                    world.report(slot, own.given, now);
                    if truth[slot].is_ill {
                        let status = world.allocs[slot].status.as_mut().unwrap();
                        status.task_states.get_mut("t").unwrap().state = TaskRunState::Dead;
                    }
                }
                _ if own.given != newest && world.turn(slot) == Some(Turn::Takes) => {
                    let has_newest = |one: &&Truth| one.given == newest;
                    let is_well = |one: &Truth| one.reported == newest && !one.is_ill && one.since + 10 <= now;
                    let n_open = truth.iter().filter(has_newest).filter(|one| !is_well(one)).count();
                    assert!(n_open < max_parallel, "seed {seed}: {truth:?} at {now}");
                    let is_ill = |one: &Truth| one.reported == newest && one.is_ill;
                    assert!(!truth.iter().any(is_ill), "seed {seed}: {truth:?}");
                    truth[slot].given = newest;
                }
                _ => {}
            }
        }
    }
}

fn job(update: &Value, templates: &Value) -> (JobSpec, ValueObject) {
    let mut spec: JobSpec = serde_json::from_value(json!({ "groups": [{ "name": "g", "tasks": [
        { "name": "t", "driver": "mock", "secrets": [{ "name": "d", "path": "db" }], "templates": templates },
        { "name": "u", "driver": "mock", "secrets": [{ "name": "o", "path": "other" }] },
    ] }] }))
    .unwrap();
    spec.groups[0].update = serde_json::from_value(update.clone()).unwrap();
    (spec, ValueObject { kind: ValueKind::Secret, name: "db".to_owned() })
}

fn group(job: &JobSpec) -> &Group {
    &job.groups[0]
}

#[test]
fn the_pace_is_that_of_updates_and_goes_for_what_tasks_with_rolling_templates_list() {
    let rolling = json!([{ "destPath": "local/a", "rolling": true }]);
    let (mut job_, db) = job(&json!({ "maxParallel": 2, "minHealthyTime": "7s", "healthCheck": "manual" }), &rolling);
    let found = rolling_policy(&job_, group(&job_), &db).unwrap();
    assert_eq!(found.max_parallel, 2);
    assert_eq!((found.health.mode, found.health.min_healthy_for.as_secs()), (HealthMode::TaskStates, 7));
    assert_eq!(found.health.deadline_after.as_secs(), 300);
    let other = ValueObject { name: "other".to_owned(), ..db.clone() };
    assert_eq!(rolling_policy(&job_, group(&job_), &other), None, "no task with a rolling template lists it");
    job_.r#type = JobType::Batch;
    job_.groups[0].update = None;
    assert_eq!(rolling_policy(&job_, group(&job_), &db), None, "batch jobs have no updates");
    for (update, templates) in [(json!({ "maxParallel": 0 }), rolling), (json!({}), json!([{ "destPath": "local/a" }]))]
    {
        let (job, db) = job(&update, &templates);
        assert_eq!(rolling_policy(&job, group(&job), &db), None, "{update} {templates}");
    }
}
