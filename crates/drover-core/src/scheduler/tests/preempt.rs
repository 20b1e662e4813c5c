//! Cases of `spec/scheduler.md` 6: who is evicted for whom.

use super::*;
use crate::scheduler::preempt::{self, Evictable};
use crate::settings::{Preemption, Settings};
use crate::usage::Usage;

fn amounts(cpu: i64, memory_mb: i64, disk_mb: i64) -> Amounts {
    Amounts { cpu, memory_mb, disk_mb }
}

fn close(got: f64, wanted: f64) {
    assert!((got - wanted).abs() < 0.0005, "{got} is not {wanted}");
}

#[test]
fn s_134_the_closest_in_size_is_the_best_victim() {
    let ask = amounts(2048, 512, 4096);
    close(preempt::distance(ask, amounts(1024, 400, 1024)), 0.928);
    close(preempt::distance(ask, amounts(8192, 200, 1024)), 3.152);
    close(preempt::distance(ask, amounts(2048, 500, 4096)), 0.023);
}

#[test]
fn s_135_victims_are_ten_lower_in_priority() {
    assert_eq!([95, 91, 90].map(|victim| preempt::may_evict(100, victim)), [false, false, true]);
}

#[test]
fn s_136_evicting_more_than_may_move_at_once_costs() {
    close(preempt::penalty(2, 1), 100.0);
    close(preempt::penalty(0, 1), 0.0);
    close(preempt::penalty(5, 0), 0.0);
}

#[test]
fn s_139_few_victims_of_low_priority_are_cheap() {
    close(preempt::score(&[20]), 0.99994);
    assert!(preempt::score(&[20]) > preempt::score(&[20, 20]) && preempt::score(&[20, 20]) > preempt::score(&[80]));
}

/// A world whose nodes are full of another job's allocations: cpu of each, and their priority.
fn full(spec: &Value, priority: i64, held: &[i64], capacity: i64) -> World {
    let mut world = World::new(spec);
    for n in 0..10 {
        world.view.remove_node(&NodeName::from(format!("n-{n}")));
    }
    world.view.put_node(Node { allocatable: amounts(capacity, 100_000, 1_000_000), ..node("n-0") });
    let mut other = super::spec(i64::try_from(held.len()).unwrap());
    other["priority"] = json!(priority);
    let definition = Definition::new(&serde_json::from_value(other).unwrap(), "low");
    let (job, uid) = (JobKey::new("shop", "low"), Uid::from("low-uid"));
    world.view.put_version(job.clone(), uid.clone(), 1, definition);
    for (index, cpu) in (0..).zip(held) {
        let resources: AllocatedResources =
            serde_json::from_value(json!({ "tasks": { "t": { "cpu": cpu, "memoryMB": 10 } } })).unwrap();
        world.allocs([index], |alloc| {
            alloc.key = JobKey::new("shop", format!("low-{index}"));
            (alloc.job, alloc.job_uid, alloc.node) = (job.clone(), uid.clone(), "n-0".into());
            alloc.resources = Arc::new(resources.clone());
        });
    }
    let preemption = Preemption { service: true, ..Preemption::default() };
    world.view.set_settings(Settings { preemption, ..Settings::default() });
    world
}

fn asking(priority: i64, cpu: i64) -> Value {
    let mut one = spec(1);
    one["priority"] = json!(priority);
    one["groups"][0]["tasks"][0]["resources"] = json!({ "cpu": cpu, "memoryMB": 10 });
    one
}

fn victims(plan: &Plan) -> Vec<&str> {
    plan.preempted().map(|(victim, _)| &*victim.key.name).collect()
}

#[test]
fn s_137_nobody_is_evicted_in_vain() {
    let plan = full(&asking(100, 5000), 10, &[1000, 1000], 3000).plan();
    assert_eq!(victims(&plan), [""; 0]);
    assert_eq!(plan.failed["web"].dimension_exhausted["cpu"], 1);
}

#[test]
fn s_138_services_evict_nobody_unless_told_to() {
    let mut world = full(&asking(90, 1000), 10, &[1000, 1000, 1000], 3000);
    assert_eq!(victims(&world.plan()).len(), 1);
    world.view.set_settings(Settings::default());
    let plan = world.plan();
    assert!(plan.is_empty() && plan.failed.contains_key("web"));
}

#[test]
fn the_ask_shrinks_by_each_victim() {
    // Free 100 MHz, asked 2000: 1400 is closest, then 600 fills what is missing better than 900.
    let plan = full(&asking(100, 2000), 10, &[1400, 900, 600], 3000).plan();
    assert_eq!(victims(&plan).into_iter().collect::<std::collections::BTreeSet<_>>(), ["low-0", "low-2"].into());
    assert_eq!(plan.desired["web"].preemptions, 2);
    let chosen = plan.placements[0].metrics.best[0].1;
    assert!(chosen.preemption.is_some());
}

#[test]
fn a_victim_that_is_not_needed_after_all_stays() {
    // 300 is picked first (closest to 350), then 2000; alone the second one is enough.
    let plan = full(&asking(100, 350), 10, &[300, 2000], 2300).plan();
    assert_eq!(victims(&plan), ["low-1"]);
}

#[test]
fn the_holder_of_a_static_port_gives_way() {
    let mut one = asking(100, 100);
    one["groups"][0]["networks"] = json!([{ "ports": [{ "label": "http", "static": 80 }] }]);
    let mut world = full(&one, 10, &[100, 100], 3000);
    let holder = world.view.alloc(&JobKey::new("shop", "low-1")).unwrap();
    let mut resources = (*holder.resources).clone();
    resources.ports = serde_json::from_value(json!([{ "label": "p", "value": 80, "hostIP": "10.0.0.1" }])).unwrap();
    let holder = Alloc { resources: Arc::new(resources), ..(**holder).clone() };
    world.view.put_alloc(holder);
    assert_eq!(victims(&world.plan()), ["low-1"]);
}

#[test]
fn lower_priorities_give_way_first() {
    let candidate = |name: &str, priority: i64, cpu: i64| {
        let mut world = World::new(&spec(1));
        world.allocs(0..1, |alloc| alloc.key = JobKey::new("shop", name));
        let alloc = Arc::clone(world.view.allocs_of_job(&key()).next().unwrap());
        let held = Usage { amounts: amounts(cpu, 0, 0), n_allocs: 1, ..Usage::default() };
        Evictable { alloc, priority, held, max_parallel: 0, already: 0 }
    };
    let node = Node { allocatable: amounts(2000, 0, 0), ..node("n-0") };
    let candidates = [candidate("a", 50, 1000), candidate("b", 20, 1000)];
    let used = Usage { amounts: amounts(2000, 0, 0), n_allocs: 2, ..Usage::default() };
    let world = World::new(&spec(1));
    let ask = preempt::PreemptionAsk {
        priority: 100,
        amounts: amounts(1000, 0, 0),
        group: &world.job.definition.spec.groups[0],
    };
    let chosen = preempt::victims(ask, &node, &used, &candidates, |_| true).unwrap();
    assert_eq!(chosen.iter().map(|one| &*one.alloc.key.name).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn devices_are_freed_by_their_largest_holders() {
    let mut one = asking(100, 100);
    one["groups"][0]["tasks"][0]["resources"]["devices"] = json!([{ "name": "gpu", "count": 2 }]);
    let mut world = full(&one, 10, &[100, 100, 100], 3000);
    let gpu = json!({ "vendor": "nvidia", "type": "gpu", "name": "a100",
        "instances": [{ "id": "0", "healthy": true }, { "id": "1", "healthy": true }, { "id": "2", "healthy": true }] });
    let mut with_gpus = (**world.view.node(&"n-0".into()).unwrap()).clone();
    with_gpus.devices = vec![serde_json::from_value(gpu).unwrap()];
    world.view.put_node(with_gpus);
    for (name, ids) in [("low-0", json!(["0"])), ("low-2", json!(["1", "2"]))] {
        let holder = world.view.alloc(&JobKey::new("shop", name)).unwrap();
        let mut resources = (*holder.resources).clone();
        let device = json!({ "vendor": "nvidia", "type": "gpu", "name": "a100", "ids": ids });
        resources.tasks.get_mut("t").unwrap().devices = vec![serde_json::from_value(device).unwrap()];
        let holder = Alloc { resources: Arc::new(resources), ..(**holder).clone() };
        world.view.put_alloc(holder);
    }
    assert_eq!(victims(&world.plan()), ["low-2"]);
}
