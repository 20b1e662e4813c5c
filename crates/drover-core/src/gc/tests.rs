//! What goes and what stays, at the edges of each threshold.

use drover_api::allocation::DesiredStatus;
use drover_api::deployment::DeploymentPhase;
use serde_json::{Value, json};

use super::*;
use crate::model::Deployment;
use crate::scheduler::tests::{World, key, now, spec};

fn ago(hours: i64) -> Timestamp {
    now() - SignedDuration::from_hours(hours)
}

fn collected(world: &World) -> Vec<String> {
    allocations(&world.view, &key(), &Thresholds::default(), now()).iter().map(|key| key.name.to_string()).collect()
}

/// One failed allocation two hours ago in slot 0; with another one after it, or none.
fn failed(is_replaced: bool) -> World {
    let mut spec = spec(1);
    spec["groups"][0]["reschedule"] = json!({ "delay": "30s", "unlimited": true });
    let mut world = World::new(&spec);
    world.allocs(0..1, |alloc| {
        alloc.key = JobKey::new("shop", "old");
        alloc.client = ClientStatus::Failed;
        alloc.last_event_at = ago(2);
    });
    if is_replaced {
        world.allocs(0..1, |alloc| {
            alloc.key = JobKey::new("shop", "new");
            alloc.previous = Some("old".into());
        });
    }
    world
}

#[test]
fn s_180_a_failed_allocation_stays_until_it_is_replaced() {
    assert_eq!(collected(&failed(false)), Vec::<String>::new());
    assert_eq!(collected(&failed(true)), ["old"]);
}

#[test]
fn s_181_a_node_that_is_down_stays_while_something_may_run_there() {
    let mut world = World::new(&spec(1));
    let over = |world: &World, hours| {
        is_node_over(
            &world.view,
            &"n-0".into(),
            NodePhase::Down,
            SignedDuration::from_hours(hours),
            &Thresholds::default(),
        )
    };
    world.allocs(0..1, |_| {});
    assert!(!over(&world, 25));
    world.allocs(0..1, |alloc| {
        alloc.key = world_key();
        alloc.client = ClientStatus::Lost;
    });
    let running: Vec<AllocKey> =
        world.view.allocs().filter(|alloc| !alloc.is_client_terminal()).map(|alloc| alloc.key.clone()).collect();
    for key in running {
        world.view.remove_alloc(&key);
    }
    assert!(over(&world, 25) && !over(&world, 23));
}

fn world_key() -> AllocKey {
    JobKey::new("shop", "lost")
}

#[test]
fn s_182_what_a_batch_job_has_done_in_this_version_stays() {
    let mut spec = spec(1);
    spec["type"] = json!("batch");
    spec["groups"][0].as_object_mut().unwrap().remove("update");
    for (version, wanted) in [(1, 0), (0, 1)] {
        let mut world = World::new(&spec);
        world.allocs(0..1, |alloc| {
            alloc.key = JobKey::new("shop", "done");
            alloc.client = ClientStatus::Complete;
            alloc.job_version = version;
            alloc.last_event_at = ago(48);
        });
        assert_eq!(collected(&world).len(), 0, "the newest of its slot");
        world.allocs(0..1, |alloc| {
            alloc.key = JobKey::new("shop", "next");
            alloc.previous = Some("done".into());
        });
        assert_eq!(collected(&world).len(), wanted);
    }
}

#[test]
fn ended_launches_go_after_their_time_and_what_people_made_stays() {
    let over =
        |id: &str, phase, hours| is_launch_over(id, phase, SignedDuration::from_hours(hours), &Thresholds::default());
    assert!(over("a/periodic-1", JobPhase::Dead, 5) && over("a/dispatch-1-0", JobPhase::Dead, 5));
    assert!(!over("a/periodic-1", JobPhase::Dead, 3), "too young");
    assert!(!over("a/periodic-1", JobPhase::Running, 5));
    assert!(!over("monday", JobPhase::Dead, 5), "Git would make it again");
}

#[test]
fn of_a_job_that_churns_the_newest_hundred_stay() {
    let mut world = World::new(&spec(1));
    for n in 0..150_i64 {
        world.allocs(0..1, |alloc| {
            alloc.key = JobKey::new("shop", format!("a-{n:03}"));
            alloc.previous = (n > 0).then(|| format!("a-{:03}", n - 1).into());
            alloc.client = ClientStatus::Complete;
            alloc.last_event_at = now() - SignedDuration::from_secs(200 - n);
        });
    }
    let gone = collected(&world);
    assert_eq!(gone.len(), 49);
    assert!(gone.contains(&"a-000".to_owned()) && !gone.contains(&"a-149".to_owned()));
}

/// An edge, and what lies just before and just after it: only the last is past it.
fn around(edge: SignedDuration) -> [(SignedDuration, bool); 3] {
    let second = SignedDuration::from_secs(1);
    [(edge - second, false), (edge, false), (edge + second, true)]
}

const fn hours(n: i64) -> SignedDuration {
    SignedDuration::from_hours(n)
}

/// A job with an ended allocation `old` in slot 0, and one in the same slot that came later, without a link.
fn with_old(spec: &Value, change: impl Fn(&mut Alloc)) -> World {
    let mut world = World::new(spec);
    world.view.put_version(key(), world.job.uid.clone(), 0, Arc::clone(&world.job.definition));
    world.allocs(0..1, |alloc| {
        alloc.key = JobKey::new("shop", "old");
        alloc.client = ClientStatus::Complete;
        alloc.created_at = ago(100);
        change(alloc);
    });
    world.allocs(0..1, |alloc| alloc.key = JobKey::new("shop", "new"));
    world
}

fn of_type(job_type: &str) -> Value {
    let mut spec = spec(1);
    spec["type"] = json!(job_type);
    spec["groups"][0].as_object_mut().unwrap().remove("update");
    spec
}

#[test]
fn an_ended_allocation_goes_when_it_is_older_than_its_kind_of_job_allows() {
    for (job_type, version, edge) in
        [("service", 1, hours(1)), ("system", 1, hours(1)), ("batch", 0, hours(24)), ("sysbatch", 0, hours(24))]
    {
        for (age, is_gone) in around(edge) {
            let world = with_old(&of_type(job_type), |alloc| {
                alloc.last_event_at = now() - age;
                alloc.job_version = version;
                alloc.node = "n-0".into();
            });
            let wanted: &[&str] = if is_gone { &["old"] } else { &[] };
            assert_eq!(collected(&world), wanted, "{job_type} after {age}");
        }
    }
}

#[test]
fn of_a_job_that_is_stopped_or_gone_ended_allocations_go_after_an_hour_even_of_a_batch() {
    for is_stopped in [true, false] {
        for (age, is_gone) in around(hours(1)) {
            let mut world = with_old(&of_type("batch"), |alloc| alloc.last_event_at = now() - age);
            if is_stopped {
                world.job.stopped = true;
                world.put_job();
            } else {
                world.view.remove_job(&key());
            }
            let wanted: &[&str] = if is_gone { &["old"] } else { &[] };
            assert_eq!(collected(&world), wanted, "stopped: {is_stopped}, after {age}");
        }
    }
}

#[test]
fn the_newest_of_each_slot_stays_however_old_it_is() {
    let ended = |alloc: &mut Alloc| (alloc.client, alloc.last_event_at) = (ClientStatus::Complete, ago(100));
    let mut world = World::new(&spec(3));
    world.allocs(0..3, ended);
    assert_eq!(collected(&world), [""; 0], "each index is a slot");
    let mut world = World::new(&of_type("system"));
    for (name, node, previous) in [("a", "n-0", None), ("b", "n-1", None), ("c", "n-1", Some("b"))] {
        world.allocs(0..1, |alloc| {
            ended(alloc);
            (alloc.key, alloc.node) = (JobKey::new("shop", name), node.into());
            alloc.previous = previous.map(Into::into);
        });
    }
    assert_eq!(collected(&world), ["b"], "each node has a slot of its own");
}

#[test]
fn only_a_failed_allocation_that_is_to_run_and_has_no_successor_waits_for_a_replacement() {
    let mut spec = spec(1);
    spec["groups"][0]["reschedule"] = json!({ "unlimited": true });
    for (client, desired, has_next, is_gone) in [
        (ClientStatus::Failed, DesiredStatus::Run, false, false),
        (ClientStatus::Complete, DesiredStatus::Run, false, true),
        (ClientStatus::Lost, DesiredStatus::Run, false, true),
        (ClientStatus::Failed, DesiredStatus::Stop, false, true),
        (ClientStatus::Failed, DesiredStatus::Run, true, true),
    ] {
        let mut world = with_old(&spec, |alloc| {
            (alloc.client, alloc.desired, alloc.last_event_at) = (client, desired, ago(2));
        });
        if has_next {
            world.allocs(0..1, |alloc| {
                (alloc.key, alloc.previous) = (JobKey::new("shop", "new"), Some("old".into()));
            });
        }
        let wanted: &[&str] = if is_gone { &["old"] } else { &[] };
        assert_eq!(collected(&world), wanted, "{client} {desired}, replaced: {has_next}");
    }
}

#[test]
fn a_failed_allocation_waits_for_a_replacement_as_long_as_its_policy_has_attempts() {
    let second = SignedDuration::from_secs(1);
    for (attempts, since_attempt, is_gone) in [
        (2, hours(3) - second, false),
        (2, hours(3), false),
        (2, hours(3) + second, true),
        (1, hours(2), false),
        (0, hours(2), true),
    ] {
        let mut spec = spec(1);
        spec["groups"][0]["reschedule"] = json!({ "attempts": attempts, "interval": "3h", "unlimited": false });
        let mut of_event = with_old(&spec, |alloc| alloc.client = ClientStatus::Failed);
        let old = (**of_event.view.alloc(&JobKey::new("shop", "old")).unwrap()).clone();
        of_event.view.put_alloc(Alloc { last_event_at: now() - since_attempt, ..old.clone() });
        let wanted: &[&str] = if is_gone { &["old"] } else { &[] };
        assert_eq!(collected(&of_event), wanted, "{attempts} attempts, failed {since_attempt} ago");

        let event = |time| json!({ "time": time, "prevAllocID": "x", "prevNodeName": "n-0", "delay": "30s" });
        let events = json!({ "events": [event(ago(1)), event(now() - since_attempt)] });
        let tracker = Some(serde_json::from_value(events).unwrap());
        of_event.view.put_alloc(Alloc { last_event_at: ago(50), tracker, ..old });
        assert_eq!(collected(&of_event), wanted, "{attempts} attempts, the last one {since_attempt} ago");
    }
}

#[test]
fn only_a_node_that_has_been_down_for_more_than_a_day_goes() {
    let world = World::new(&spec(1));
    let over = |phase, age| is_node_over(&world.view, &"n-0".into(), phase, age, &Thresholds::default());
    for (age, is_gone) in around(hours(24)) {
        assert_eq!(over(NodePhase::Down, age), is_gone, "after {age}");
    }
    for phase in [NodePhase::Ready, NodePhase::Disconnected, NodePhase::Initializing] {
        assert!(!over(phase, hours(1000)), "{phase}");
    }
}

/// A job with a deployment `d-1`, so old and in that phase, and a newer one, if any; and the names of those that go.
fn deployments_gone(phase: DeploymentPhase, age: SignedDuration, has_newer: bool, user: ClientStatus) -> Vec<String> {
    let mut world = World::new(&spec(1));
    let mut put = |name: &str, phase, created_at| {
        world.view.put_deployment(Deployment {
            key: JobKey::new("shop", name),
            uid: name.into(),
            job: key(),
            job_uid: world.job.uid.clone(),
            job_version: 1,
            phase,
            groups: BTreeMap::new(),
            eval_priority: 0,
            judgements: BTreeMap::new(),
            created_at,
        });
    };
    put("d-1", phase, now() - age);
    if has_newer {
        put("d-2", DeploymentPhase::Successful, ago(0));
    }
    world.allocs(0..1, |alloc| (alloc.client, alloc.deployment) = (user, Some("d-1".into())));
    let gone = deployments(&world.view, &key(), &Thresholds::default(), now());
    gone.iter().map(|key| key.name.to_string()).collect()
}

#[test]
fn a_deployment_goes_when_it_is_over_for_an_hour_and_neither_the_newest_nor_in_use() {
    let ended = ClientStatus::Complete;
    for phase in [DeploymentPhase::Successful, DeploymentPhase::Failed, DeploymentPhase::Cancelled] {
        for (age, is_gone) in around(hours(1)) {
            let wanted: &[&str] = if is_gone { &["d-1"] } else { &[] };
            assert_eq!(deployments_gone(phase, age, true, ended), wanted, "{phase} after {age}");
        }
        assert_eq!(deployments_gone(phase, hours(100), false, ended), [""; 0], "the newest one, {phase}");
        for user in [ClientStatus::Running, ClientStatus::Pending, ClientStatus::Unknown] {
            assert_eq!(deployments_gone(phase, hours(100), true, user), [""; 0], "in use: {user}");
        }
    }
    for phase in [DeploymentPhase::Running, DeploymentPhase::Paused, DeploymentPhase::Pending] {
        assert_eq!(deployments_gone(phase, hours(100), true, ended), [""; 0], "{phase}");
    }
}

#[test]
fn an_ended_launch_goes_when_more_than_four_hours_have_passed() {
    for (age, is_gone) in around(hours(4)) {
        for id in ["a/periodic-1", "a/dispatch-1-0"] {
            assert_eq!(is_launch_over(id, JobPhase::Dead, age, &Thresholds::default()), is_gone, "{id} after {age}");
        }
    }
}

#[test]
fn what_ran_on_each_node_is_told_apart_although_its_version_is_gone() {
    let mut spec = spec(1);
    spec["type"] = json!("sysbatch");
    spec["groups"][0].as_object_mut().unwrap().remove("update");
    let mut world = World::new(&spec);
    let mut put = |name: &str, node: &str, version, age| {
        world.allocs(0..1, |alloc| {
            (alloc.key, alloc.node) = (JobKey::new("shop", name), node.into());
            (alloc.client, alloc.job_version) = (ClientStatus::Complete, version);
            (alloc.last_event_at, alloc.created_at) = (ago(age), ago(age));
        });
    };
    // Of version 0 there is no object any more.
    put("first-on-0", "n-0", 0, 50);
    put("first-on-1", "n-1", 0, 60);
    put("next-on-0", "n-0", 1, 1);
    assert_eq!(collected(&world), ["first-on-0"], "the other one is the newest of its node");
}
