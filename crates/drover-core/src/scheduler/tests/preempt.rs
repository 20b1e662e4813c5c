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
    close(preempt::score(&[]), 0.99995);
    // 100 for the highest, and 1948 for a sum of so many times the highest: the middle.
    close(preempt::score(&[100; 1948]), 0.5);
}

/// A world whose nodes are full of another job's allocations: cpu of each, and their priority.
fn full(spec: &Value, priority: i64, held: &[i64], capacity: i64) -> World {
    let mut world = World::without_nodes(spec);
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

/// An allocation of that priority that holds this.
fn holder(name: &str, priority: i64, held: Usage) -> Evictable {
    let mut world = World::new(&spec(1));
    world.allocs(0..1, |alloc| alloc.key = JobKey::new("shop", name));
    let alloc = Arc::clone(world.view.allocs().next().unwrap());
    Evictable { alloc, priority, held: Usage { n_allocs: 1, ..held }, max_parallel: 0, already: 0 }
}

/// Whom a job of priority 100 evicts that asks for so many MHz, on a node where only these hold something.
fn evicted(asking: &Value, cpu: i64, node: &Node, holders: &[Evictable]) -> Option<String> {
    let world = World::new(asking);
    let group = &world.job.definition.spec.groups[0];
    let mut used = Usage::default();
    for holder in holders {
        used.add(&holder.held);
    }
    let ask = preempt::PreemptionAsk { priority: 100, amounts: amounts(cpu, 0, 0), group };
    let chosen = preempt::victims(ask, node, &used, holders, |_| true)?;
    Some(chosen.iter().map(|one| &*one.alloc.key.name).collect::<Vec<_>>().join(" "))
}

fn asking_ports(ports: &[u16]) -> Value {
    let ports: Vec<Value> = ports.iter().map(|port| json!({ "label": format!("p{port}"), "static": port })).collect();
    with(spec(1), "networks", json!([{ "ports": ports }]))
}

fn with_ports(name: &str, priority: i64, ports: &[u16]) -> Evictable {
    let ports = ports.iter().map(|port| ("10.0.0.1".parse().unwrap(), *port)).collect();
    holder(name, priority, Usage { ports, ..Usage::default() })
}

#[test]
fn every_holder_of_a_static_port_gives_way_once_or_none_does() {
    let of = |name: &str, ports: &[u16]| with_ports(name, 10, ports);
    for (holders, wanted) in [
        (vec![of("a", &[80])], Some("a")),
        (vec![of("a", &[80]), of("b", &[81])], Some("a b")),
        (vec![of("a", &[80, 81])], Some("a")),
        (vec![of("a", &[80, 81]), of("b", &[80])], Some("a b")),
        (vec![of("a", &[80]), with_ports("high", 95, &[80])], None),
        (vec![of("a", &[80]), with_ports("high", 95, &[82, 83])], Some("a")),
    ] {
        assert_eq!(evicted(&asking_ports(&[80, 81]), 0, &node("n-0"), &holders).as_deref(), wanted, "{holders:?}");
    }
    let reserved = Node { reserved_ports: [80].into(), ..node("n-0") };
    assert_eq!(evicted(&asking_ports(&[80]), 0, &reserved, &[of("a", &[80])]), None, "it is the node's own");
}

#[test]
fn one_that_holds_a_port_on_several_addresses_gives_all_of_them_up() {
    let on = |name: &str, priority, addresses: &[&str]| {
        let ports = addresses.iter().map(|address| (address.parse().unwrap(), 80)).collect();
        holder(name, priority, Usage { ports, ..Usage::default() })
    };
    let both = on("a", 10, &["10.0.0.1", "10.0.0.2"]);
    let evicts = |holders: &[Evictable]| evicted(&asking_ports(&[80]), 0, &node("n-0"), holders);
    assert_eq!(evicts(std::slice::from_ref(&both)).as_deref(), Some("a"));
    assert_eq!(evicts(&[both.clone(), on("b", 10, &["10.0.0.3"])]).as_deref(), Some("a b"));
    assert_eq!(evicts(&[both, on("high", 95, &["10.0.0.3"])]), None, "one of its holders stays");
}

#[test]
fn who_gives_way_for_a_port_gives_room_too_and_others_give_the_rest() {
    let with_cpu =
        |one: Evictable, cpu: i64| Evictable { held: Usage { amounts: amounts(cpu, 0, 0), ..one.held.clone() }, ..one };
    let holders = [
        with_cpu(with_ports("a", 10, &[]), 100),
        with_cpu(with_ports("b", 10, &[80]), 100),
        with_cpu(with_ports("c", 10, &[]), 100),
    ];
    let full = Node { allocatable: amounts(300, 0, 0), ..node("n-0") };
    for (cpu, wanted) in [(100, Some("b")), (200, Some("b a")), (300, Some("b a c")), (301, None)] {
        assert_eq!(evicted(&asking_ports(&[80]), cpu, &full, &holders).as_deref(), wanted, "{cpu} MHz");
    }
}

/// A spec that asks for devices.
fn asking_devices(mut spec: Value, name: &str, count: i64) -> Value {
    spec["groups"][0]["tasks"][0]["resources"]["devices"] = json!([{ "name": name, "count": count }]);
    spec
}

/// A node with devices: `vendor/type/name` and ids.
fn with_devices(groups: &[(&str, &[&str])]) -> Node {
    let group = |(name, ids): &(&str, &[&str])| {
        let [vendor, kind, name] = name.split('/').collect::<Vec<_>>().try_into().unwrap();
        let instances: Vec<Value> = ids.iter().map(|id| json!({ "id": id, "healthy": true })).collect();
        serde_json::from_value(json!({ "vendor": vendor, "type": kind, "name": name, "instances": instances })).unwrap()
    };
    Node { devices: groups.iter().map(group).collect(), ..node("n-0") }
}

/// Makes a holder hold devices too.
fn and_devices(mut holder: Evictable, name: &str, ids: &[&str]) -> Evictable {
    let [vendor, kind, name] = name.split('/').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
    holder.held.devices = ids.iter().map(|id| (vendor.clone(), kind.clone(), name.clone(), (*id).to_owned())).collect();
    holder
}

fn with_device(name: &str, priority: i64, device: &str, ids: &[&str]) -> Evictable {
    and_devices(holder(name, priority, Usage::default()), device, ids)
}

const A100: &str = "nvidia/gpu/a100";
const H100: &str = "nvidia/gpu/h100";

#[test]
fn of_devices_that_would_do_those_are_freed_whose_holders_have_the_lowest_priorities() {
    let one_each = with_devices(&[(A100, &["0"]), (H100, &["1"])]);
    for (of_a100, of_h100, wanted) in [(30, 20, "h"), (20, 30, "a"), (20, 20, "a")] {
        let holders = [with_device("a", of_a100, A100, &["0"]), with_device("h", of_h100, H100, &["1"])];
        let got = evicted(&asking_devices(spec(1), "gpu", 1), 0, &one_each, &holders);
        assert_eq!(got.as_deref(), Some(wanted), "{of_a100} and {of_h100}");
    }
    let two_each = with_devices(&[(H100, &["0", "1"]), (A100, &["2", "3"])]);
    let holders = [
        with_device("a", 20, A100, &["2"]),
        with_device("b", 20, A100, &["3"]),
        with_device("h", 30, H100, &["0", "1"]),
    ];
    let got = evicted(&asking_devices(spec(1), "gpu", 2), 0, &two_each, &holders);
    assert_eq!(got.as_deref(), Some("a b"), "a priority counts once");
}

#[test]
fn holders_of_other_devices_stay() {
    let other = "amd/gpu/a100";
    let node = with_devices(&[(A100, &["0"]), (H100, &["1"]), (other, &["2"])]);
    let holders =
        [with_device("a", 10, H100, &["1"]), with_device("b", 10, other, &["2"]), with_device("c", 10, A100, &["0"])];
    assert_eq!(evicted(&asking_devices(spec(1), A100, 1), 0, &node, &holders).as_deref(), Some("c"));
    assert_eq!(evicted(&asking_devices(spec(1), A100, 2), 0, &node, &holders), None, "there is one only");
}

#[test]
fn devices_that_are_free_or_freed_for_a_port_need_no_other_holder() {
    let holders = [
        with_device("a", 10, A100, &["0"]),
        and_devices(with_ports("b", 10, &[80]), A100, &["1"]),
        with_device("c", 20, A100, &["2", "3"]),
    ];
    let full: &[&str] = &["0", "1", "2", "3"];
    let one_free: &[&str] = &["0", "1", "2", "3", "4"];
    for (port, ids, count, wanted) in [
        (None, one_free, 2, Some("a")),
        (None, one_free, 3, Some("a b")),
        (None, full, 1, Some("a")),
        (None, full, 5, None),
        (Some(80), full, 1, Some("b")),
        (Some(80), full, 2, Some("b a")),
        (Some(80), one_free, 2, Some("b")),
        (Some(80), full, 5, None),
    ] {
        let asking = asking_devices(asking_ports(port.as_slice()), A100, count);
        let got = evicted(&asking, 0, &with_devices(&[(A100, ids)]), &holders);
        assert_eq!(got.as_deref(), wanted, "port {port:?} and {count} of {ids:?}");
    }
}
