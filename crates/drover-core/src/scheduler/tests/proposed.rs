//! What a plan makes of the cluster, step by step, beside a cluster that is counted again after each step.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::*;
use crate::scheduler::feasible::WantedGroup;
use crate::scheduler::proposed::Proposed;
use crate::usage::Usage;

const NODES: [&str; 3] = ["n-0", "n-1", "n-2"];

/// A job whose group `web` mounts a volume and whose group `side` does not.
fn two_groups() -> Value {
    let mut two = with(spec(2), "volumes", json!([{ "name": "v", "type": "host", "source": "data" }]));
    let mut side = spec(2)["groups"][0].clone();
    side["name"] = json!("side");
    two["groups"].as_array_mut().unwrap().push(side);
    two
}

fn resources(rng: &mut Rng) -> AllocatedResources {
    let port = rng.i64(1..5);
    let held = json!({ "tasks": { "t": { "cpu": rng.i64(1..500), "memoryMB": rng.i64(1..500), "cores": [rng.i64(0..4)],
        "devices": [{ "vendor": "v", "type": "gpu", "name": "g", "ids": [rng.i64(0..3).to_string()] }] } },
        "diskMB": rng.i64(0..90), "ports": [{ "label": "p", "value": port, "hostIP": "10.0.0.1" }] });
    serde_json::from_value(held).unwrap()
}

/// Allocations of the job and of another one, in every state in which they hold room or do not.
fn cluster(rng: &mut Rng) -> World {
    let mut world = World::new(&two_groups());
    world.view.put_version(JobKey::new("shop", "other"), world.job.uid.clone(), 1, Arc::clone(&world.job.definition));
    for n in 0..rng.i64(1..9) {
        let held = Arc::new(resources(rng));
        let (job, group) = (["web", "other"][rng.usize(..2)], ["web", "side"][rng.usize(..2)]);
        let client = [ClientStatus::Running, ClientStatus::Pending, ClientStatus::Unknown, ClientStatus::Complete];
        let (client, has_ended, on) = (client[rng.usize(..4)], rng.u8(..8) == 0, NODES[rng.usize(..3)]);
        world.allocs([n], |alloc| {
            (alloc.key, alloc.job) = (JobKey::new("shop", format!("a-{n}")), JobKey::new("shop", job));
            (alloc.group, alloc.node) = (group.into(), on.into());
            (alloc.client, alloc.has_ended) = (client, has_ended);
            alloc.resources = Arc::clone(&held);
        });
    }
    world
}

/// What was done so far, as lists.
#[derive(Debug, Default)]
struct Steps {
    ended: BTreeSet<String>,
    evicted: Vec<(String, String)>,
    placed: Vec<(&'static str, &'static str, i64, AllocatedResources)>,
}

fn is_left(steps: &Steps, alloc: &Alloc) -> bool {
    !alloc.client.is_terminal() && !alloc.has_ended && !steps.ended.contains(&*alloc.key.name)
}

/// The same usage with its lists in order.
fn in_order(usage: &Usage) -> Usage {
    let mut usage = usage.clone();
    usage.ports.sort_unstable();
    usage.cores.sort_unstable();
    usage.devices.sort_unstable();
    usage
}

fn check_node(world: &World, proposed: &Proposed<'_>, steps: &Steps, on: &str) {
    let left: Vec<&Arc<Alloc>> =
        world.view.allocs().filter(|alloc| alloc.node.as_str() == on && is_left(steps, alloc)).collect();
    let placed = || steps.placed.iter().filter(|(node, ..)| *node == on);
    let mut usage = Usage::default();
    for alloc in &left {
        usage.add(&Usage::of(&alloc.resources, world.job.definition.group(&alloc.group)));
    }
    for (_, group, _, held) in placed() {
        usage.add(&Usage::of(held, world.job.definition.group(group)));
    }
    let entry = world.view.node_entry(&on.into()).unwrap();
    assert_eq!(in_order(proposed.usage(entry)), in_order(&usage), "{on} after {steps:?}");

    let own = |group: &str| {
        let stored = left.iter().filter(|alloc| alloc.job == key() && alloc.group == group).count();
        crate::arithmetic::as_count(stored + placed().filter(|(_, of, ..)| *of == group).count())
    };
    for group in ["web", "side"] {
        let wanted = (own(group), own("web") + own("side"));
        assert_eq!(proposed.own_on(entry, group), wanted, "{group} on {on} after {steps:?}");
    }
    assert_eq!(proposed.own_on(entry, "none"), (0, own("web") + own("side")));

    // Of what is new only groups with volumes are named.
    let mut wanted: Vec<(String, i64)> = left.iter().map(|alloc| (alloc.group.clone(), alloc.index)).collect();
    wanted.extend(placed().filter(|(_, group, ..)| *group == "web").map(|(_, _, index, _)| ("web".into(), *index)));
    let mut named = Vec::new();
    let group = &world.job.definition.spec.groups[0];
    let job = key();
    proposed.each_on(
        &on.into(),
        WantedGroup { job: &job, definition: &world.job.definition, group },
        |namespace, group, index| {
            assert_eq!(&*namespace, "shop");
            named.push((group.name.clone(), index));
        },
    );
    wanted.sort();
    named.sort();
    assert_eq!(named, wanted, "{on} after {steps:?}");
}

#[test]
fn after_every_step_the_cluster_is_what_is_left_and_what_is_new() {
    let mut rng = Rng::with_seed(313);
    let mut n_steps = [0; 4];
    for _ in 0..800 {
        let world = cluster(&mut rng);
        let job = key();
        let allocs: Vec<Arc<Alloc>> = world.view.allocs().cloned().collect();
        let mut proposed = Proposed::new(&world.view, &job);
        let mut steps = Steps::default();
        for _ in 0..10 {
            let alloc = &allocs[rng.usize(..allocs.len())];
            let name = alloc.key.name.to_string();
            let was_left = is_left(&steps, alloc);
            match rng.usize(..4) {
                0 => {
                    proposed.end(alloc);
                    steps.ended.extend(was_left.then_some(name));
                    n_steps[0] += usize::from(was_left);
                }
                1 if !steps.evicted.iter().any(|(of, _)| *of == name) => {
                    proposed.keep(alloc);
                    n_steps[1] += usize::from(steps.ended.remove(&name));
                }
                2 if was_left => {
                    proposed.evict(alloc);
                    steps.ended.insert(name.clone());
                    steps.evicted.push((name, format!("{}/{}", alloc.job.name, alloc.group)));
                    n_steps[2] += 1;
                }
                _ => {
                    let (on, group) = (NODES[rng.usize(..3)], ["web", "side"][rng.usize(..2)]);
                    let (index, held) = (rng.i64(0..9), resources(&mut rng));
                    let entry = world.view.node_entry(&on.into()).unwrap();
                    proposed.place(entry, world.job.definition.group(group).unwrap(), index, &held);
                    steps.placed.push((on, group, index, held));
                    n_steps[3] += 1;
                }
            }
            for on in NODES {
                check_node(&world, &proposed, &steps, on);
            }
            for alloc in &allocs {
                let of = format!("{}/{}", alloc.job.name, alloc.group);
                let n = steps.evicted.iter().filter(|(_, group)| *group == of).count();
                assert_eq!(proposed.evicted(alloc), crate::arithmetic::as_count(n), "{of} after {steps:?}");
                assert_eq!(proposed.stays(alloc), is_left(&steps, alloc), "{} after {steps:?}", alloc.key.name);
            }
        }
    }
    assert!(n_steps.iter().all(|n| *n > 200), "ends, kept ones, evictions and placements: {n_steps:?}");
}

#[test]
fn what_is_on_a_node_that_is_gone_is_counted_and_uses_nothing() {
    let mut world = World::new(&spec(2));
    world.allocs(0..2, |alloc| alloc.node = "gone".into());
    let (job, allocs): (_, Vec<Arc<Alloc>>) = (key(), world.view.allocs().cloned().collect());
    let mut proposed = Proposed::new(&world.view, &job);
    let on_gone = |proposed: &Proposed<'_>| {
        proposed.own().filter(|(node, _)| node.as_str() == "gone").map(|(_, groups)| groups["web"]).next()
    };
    assert_eq!(on_gone(&proposed), Some(2));
    proposed.end(&allocs[0]);
    assert_eq!((on_gone(&proposed), proposed.stays(&allocs[0])), (Some(1), false));
    proposed.keep(&allocs[0]);
    assert_eq!((on_gone(&proposed), proposed.stays(&allocs[0])), (Some(2), true));
    let entry = world.view.node_entry(&"n-0".into()).unwrap();
    assert_eq!((proposed.usage(entry), proposed.own_on(entry, "web")), (&Usage::default(), (0, 0)));
}
