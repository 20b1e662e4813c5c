//! What a view answers after objects were put in, changed and taken out.

use drover_api::allocation::{AllocatedResources, ClientStatus};
use drover_api::csi_volume::CSIVolumeSpec;
use drover_api::deployment::{DeploymentPhase, GroupState};
use serde_json::{Value, json};

use super::*;
use crate::scheduler::tests::{World, key, node, now, spec};

fn name(name: &str) -> AllocKey {
    AllocKey::new("shop", name)
}

/// MHz in use on the first two nodes.
fn cpu(view: &ClusterView) -> [i64; 2] {
    ["n-0", "n-1"].map(|node| view.node_entry(&node.into()).unwrap().usage.amounts.cpu)
}

fn names<'a>(allocs: impl Iterator<Item = &'a Arc<Alloc>>) -> Vec<&'a str> {
    allocs.map(|alloc| &*alloc.key.name).collect()
}

fn resources(cpu: &Value) -> Arc<AllocatedResources> {
    let tasks = cpu.as_object().unwrap().iter().map(|(task, cpu)| (task.clone(), json!({ "cpu": cpu, "memoryMB": 1 })));
    let tasks: serde_json::Map<String, Value> = tasks.collect();
    Arc::new(serde_json::from_value(json!({ "tasks": tasks })).unwrap())
}

/// A job of one allocation `a` on `n-0` that holds 100 MHz.
fn world() -> World {
    let mut world = World::new(&spec(1));
    world.allocs(0..1, |alloc| (alloc.key, alloc.resources) = (name("a"), resources(&json!({ "t": 100 }))));
    world
}

/// Puts an allocation in again, changed.
fn change(view: &mut ClusterView, alloc: &str, change: impl FnOnce(&mut Alloc)) {
    let mut changed = (**view.alloc(&name(alloc)).unwrap()).clone();
    change(&mut changed);
    view.put_alloc(changed);
}

/// A spec in which the tasks `init` and `t` run one after the other.
fn in_stages() -> Value {
    let mut staged = spec(1);
    let init = json!({ "name": "init", "driver": "mock", "lifecycle": { "hook": "prestart" } });
    staged["groups"][0]["tasks"].as_array_mut().unwrap().push(init);
    staged
}

fn definition(spec: Value) -> Arc<Definition> {
    Definition::new(&serde_json::from_value(spec).unwrap(), "web")
}

#[test]
fn a_node_has_a_class_name_when_its_operator_gave_one() {
    let mut view = ClusterView::default();
    for (class, wanted) in [("", false), ("large", true)] {
        view.put_node(Node { class: class.into(), ..node("n-0") });
        assert_eq!(view.node_entry(&"n-0".into()).unwrap().has_class_name, wanted, "{class:?}");
    }
}

#[test]
fn what_allocations_hold_is_counted_when_they_come_change_move_and_end() {
    type Change = fn(&mut Alloc);
    let steps: [(&str, Change, [i64; 2]); 7] = [
        ("nothing", |_| {}, [100, 0]),
        ("it holds more", |alloc| alloc.resources = resources(&json!({ "t": 250 })), [250, 0]),
        ("it moves", |alloc| alloc.node = "n-1".into(), [0, 250]),
        (
            "it moves and holds less",
            |alloc| {
                (alloc.node, alloc.resources) = ("n-0".into(), resources(&json!({ "t": 70 })));
            },
            [70, 0],
        ),
        ("it ends", |alloc| alloc.client = ClientStatus::Complete, [0, 0]),
        ("it holds more, ended", |alloc| alloc.resources = resources(&json!({ "t": 90 })), [0, 0]),
        ("it runs again", |alloc| alloc.client = ClientStatus::Running, [90, 0]),
    ];
    let mut world = world();
    for (what, by, wanted) in steps {
        change(&mut world.view, "a", by);
        assert_eq!(cpu(&world.view), wanted, "{what}");
    }
    world.view.remove_alloc(&name("a"));
    assert_eq!(cpu(&world.view), [0, 0]);
}

#[test]
fn an_allocation_that_has_ended_when_it_is_first_seen_takes_no_room() {
    let mut world = world();
    world.allocs(0..1, |alloc| {
        (alloc.key, alloc.resources) = (name("b"), resources(&json!({ "t": 500 })));
        alloc.client = ClientStatus::Failed;
    });
    assert_eq!(cpu(&world.view), [100, 0]);
    assert_eq!(world.view.node_entry(&"n-0".into()).unwrap().usage.n_allocs, 1);
}

#[test]
fn a_version_that_becomes_known_tells_what_its_allocations_hold() {
    let both = resources(&json!({ "init": 500, "t": 300 }));
    let uid = Uid::from("job-uid");
    for (of, version, wanted) in [(&uid, 0, 500), (&uid, 2, 800), (&Uid::from("another"), 0, 800)] {
        let mut world = World::new(&spec(1));
        world.allocs(0..1, |alloc| (alloc.job_version, alloc.resources) = (0, Arc::clone(&both)));
        assert_eq!(cpu(&world.view), [800, 0], "all tasks count while the version is unknown");
        world.view.put_version(key(), of.clone(), version, definition(in_stages()));
        assert_eq!(cpu(&world.view), [wanted, 0], "{of} {version}");
    }
}

#[test]
fn an_allocation_that_goes_on_with_another_version_holds_what_that_one_says() {
    let mut world = World::new(&spec(1));
    world.view.put_version(key(), "job-uid".into(), 2, definition(in_stages()));
    let both = resources(&json!({ "init": 500, "t": 300 }));
    world.allocs(0..1, |alloc| (alloc.key, alloc.resources) = (name("a"), Arc::clone(&both)));
    assert_eq!(cpu(&world.view), [300, 0], "version 1 has no task `init`");
    change(&mut world.view, "a", |alloc| alloc.job_version = 2);
    assert_eq!(cpu(&world.view), [500, 0]);
}

#[test]
fn a_version_that_was_taken_out_is_unknown_and_the_others_stay() {
    let (mut world, uid) = (world(), Uid::from("job-uid"));
    world.view.put_version(key(), uid.clone(), 2, definition(in_stages()));
    world.view.remove_version(&key(), &uid, 1);
    assert_eq!([1, 2].map(|version| world.view.version(&key(), &uid, version).is_some()), [false, true]);
    assert_eq!(world.view.definition_of(world.view.alloc(&name("a")).unwrap()), None);
}

#[test]
fn a_volume_that_was_taken_out_is_unknown_and_the_others_stay() {
    let mut view = ClusterView::default();
    let spec: CSIVolumeSpec = serde_json::from_value(json!({ "pluginID": "ebs", "capabilities": [] })).unwrap();
    for id in ["v1", "v2"] {
        view.put_volume(name(id), Arc::new(CSIVolume::new(id, spec.clone())));
    }
    view.remove_volume(&name("v1"));
    assert_eq!(view.volumes().map(|(id, _)| &*id.name).collect::<Vec<_>>(), ["v2"]);
    assert_eq!(["v1", "v2"].map(|id| view.volume(&name(id)).is_some()), [false, true]);
}

#[test]
fn an_allocation_has_the_priority_of_its_version_else_of_its_job_else_the_default() {
    let with_priority = |priority: i64| {
        let mut one = spec(1);
        one["priority"] = json!(priority);
        one
    };
    let mut world = World::new(&with_priority(70));
    world.view.put_version(key(), world.job.uid.clone(), 0, definition(with_priority(30)));
    world.allocs(0..1, |alloc| (alloc.key, alloc.job_version) = (name("a"), 0));
    let priority = |view: &ClusterView| view.priority_of(view.alloc(&name("a")).unwrap());
    assert_eq!(priority(&world.view), 30);
    world.view.remove_version(&key(), &"job-uid".into(), 0);
    assert_eq!(priority(&world.view), 70);
    world.view.remove_job(&key());
    assert_eq!(priority(&world.view), 50);
}

#[test]
fn a_deployment_is_found_by_its_job_and_its_key() {
    let mut world = world();
    world.view.put_deployment(Deployment {
        key: name("d"),
        uid: "d".into(),
        job: key(),
        job_uid: "job-uid".into(),
        job_version: 1,
        phase: DeploymentPhase::Running,
        groups: [("web".to_owned(), GroupState::default())].into(),
        eval_priority: 0,
        judgements: [].into(),
        created_at: now(),
    });
    let found = |job: JobKey, of: &str| world.view.deployment(&job, &name(of)).map(|found| &*found.key.name);
    assert_eq!(found(key(), "d"), Some("d"));
    assert_eq!(found(key(), "e"), None);
    assert_eq!(found(name("another"), "d"), None);
}

#[test]
fn an_allocation_is_listed_where_it_belongs_now() {
    let (mut world, other) = (world(), JobKey::new("shop", "other"));
    change(&mut world.view, "a", |alloc| (alloc.job, alloc.node) = (other.clone(), "n-1".into()));
    let view = &world.view;
    assert_eq!((names(view.allocs_of_job(&key())), names(view.allocs_of_job(&other))), (vec![], vec!["a"]));
    let on = |node: &str| names(view.allocs_on_node(&node.into()));
    assert_eq!((on("n-0"), on("n-1")), (vec![], vec!["a"]));
    assert_eq!(view.jobs_of_allocs().collect::<Vec<_>>(), [&other]);
}

#[test]
fn the_successor_of_an_allocation_is_the_last_one_that_names_it() {
    let mut world = world();
    let next = |view: &ClusterView| view.next_of(view.alloc(&name("a")).unwrap()).map(|next| next.key.name.to_string());
    let successor = |of: &str| {
        let of = name(of);
        move |alloc: &mut Alloc| (alloc.key, alloc.previous) = (of.clone(), Some("a".into()))
    };
    world.allocs(0..1, successor("b"));
    assert_eq!(next(&world.view).as_deref(), Some("b"));
    world.allocs(0..1, successor("c"));
    assert_eq!(next(&world.view).as_deref(), Some("c"));
    world.view.remove_alloc(&name("b"));
    assert_eq!(next(&world.view).as_deref(), Some("c"), "another one was taken out");
    change(&mut world.view, "c", |alloc| alloc.client = ClientStatus::Complete);
    assert_eq!(next(&world.view).as_deref(), Some("c"), "it still names it");
    change(&mut world.view, "c", |alloc| alloc.previous = None);
    assert_eq!(next(&world.view), None, "it names none any more");
}

#[test]
fn an_allocation_that_comes_back_under_the_name_of_a_successor_is_none() {
    let mut world = world();
    world.allocs(0..1, |alloc| (alloc.key, alloc.previous) = (name("b"), Some("a".into())));
    let gone = world.view.remove_alloc(&name("b")).unwrap();
    world.view.put_alloc(Alloc { previous: None, ..(*gone).clone() });
    assert_eq!(world.view.next_of(world.view.alloc(&name("a")).unwrap()), None);
}
