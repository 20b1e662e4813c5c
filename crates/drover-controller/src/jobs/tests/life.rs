//! A job from its first apply to its end.

use std::time::Duration;

use drover_api::allocation::ClientStatus;
use drover_api::group::Scaling;
use drover_api::job::{JobConditionType, JobPhase};
use drover_api::{Allocation, Job, JobVersion, finalizer};
use drover_core::evaluation_id::{self, Point};
use drover_store::StoreError;
use serde_json::{Value, json};

use super::{condition, message, told};
use crate::tests::{World, conflict, group, in_default, job, node, service, unavailable};

fn kinds(world: &World) -> Vec<String> {
    let short = |write: String| write.rsplit_once(' ').expect("a name").0.to_owned();
    world.writes().into_iter().map(short).collect()
}

fn images(image: &str, count: i64) -> Value {
    let mut group = group("g", count);
    group["tasks"][0]["config"]["image"] = json!(image);
    json!({ "groups": [group] })
}

#[tokio::test(start_paused = true)]
async fn a_new_job_gets_its_finalizer_then_its_version_then_its_allocations() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 2));
    world.writes();
    world.settle();
    let writes = kinds(&world);
    let first =
        |text: &str| writes.iter().position(|write| write == text).unwrap_or_else(|| panic!("{text}: {writes:?}"));
    let order = ["merge Job", "create JobVersion", "create Deployment", "create Allocation"].map(first);
    assert!(order.is_sorted(), "{writes:?}");
    assert_eq!(writes.iter().filter(|write| *write == "create Allocation").count(), 2);
    let stored: Job = world.the("web");
    assert!(finalizer::is_held(&stored.metadata, finalizer::STOP_ALLOCATIONS));
    assert_eq!(world.shown("web"), ["g[0] v0 on n1: run pending", "g[1] v0 on n1: run pending"]);
    // The API server has more urgent work while they begin.
    assert!(!writes.contains(&"apply Job".to_owned()), "{writes:?}");
    world.advance(Duration::from_millis(100)).await;
    let status = world.the::<Job>("web").status.unwrap();
    assert_eq!((status.version, status.observed_generation), (Some(0), 1));
    assert!(world.events().contains(&"Normal Registered web: drover has taken the job on".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_at_rest_is_written_nothing_to() {
    let mut world = World::with_nodes(["n1", "n2"]);
    world.create(&service("web", 3));
    world.live(Duration::from_mins(1)).await;
    assert_eq!(condition(&world, "web", JobConditionType::Ready).as_deref(), Some("True AllHealthy"));
    world.writes();
    world.advance(Duration::from_hours(2)).await;
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn s_189_the_same_spec_again_makes_no_version_and_another_one_does() {
    let mut world = World::with_nodes(["n1"]);
    let versions = |world: &World| world.all::<JobVersion>().len();
    world.create(&job("web", &images("a", 1)));
    world.live(Duration::from_secs(30)).await;
    let cases =
        [("the same", images("a", 1), 1), ("another image", images("b", 1), 2), ("the first", images("a", 1), 3)];
    for (what, spec, expected) in cases {
        world.change_job("web", &spec);
        world.live(Duration::from_secs(30)).await;
        assert_eq!(versions(&world), expected, "{what}");
    }
    let running = format!("g[0] v{} on n1: run running", 2);
    assert!(world.shown("web").contains(&running), "{:?}", world.shown("web"));
}

#[tokio::test(start_paused = true)]
async fn the_newest_six_versions_are_kept() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&job("web", &images("0", 1)));
    for image in 1..=8 {
        world.live(Duration::from_secs(40)).await;
        world.change_job("web", &images(&image.to_string(), 1));
    }
    world.live(Duration::from_secs(40)).await;
    for alloc in world.allocs().iter().filter(|alloc| alloc.spec.job_version < 8) {
        world.delete::<Allocation>(&in_default(alloc.metadata.name.as_deref().unwrap()));
    }
    world.live(Duration::from_secs(10)).await;
    world.change_job("web", &json!({ "meta": { "a": "b" } }));
    world.live(Duration::from_mins(1)).await;
    let mut kept: Vec<i64> = world.all::<JobVersion>().iter().map(|version| version.spec.version).collect();
    kept.sort_unstable();
    assert_eq!(kept, [4, 5, 6, 7, 8, 9]);
}

#[tokio::test(start_paused = true)]
async fn scaling_changes_the_count_and_no_version_and_is_told() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 1));
    world.live(Duration::from_secs(20)).await;
    world.change_job("web", &json!({ "scale": { "group": "g", "count": 3 } }));
    world.live(Duration::from_secs(20)).await;
    assert_eq!(world.shown("web").len(), 3);
    assert_eq!(world.all::<JobVersion>().len(), 1);
    assert!(world.events().contains(&"Normal Scaled web: group g is scaled to 3".to_owned()));
    let scale = world.the::<Job>("web").status.unwrap().scale.unwrap();
    assert_eq!((scale.count, scale.selector.as_str()), (3, "drover.dev/job=web"));
}

#[tokio::test(start_paused = true)]
async fn scaling_stays_within_the_limits_of_the_group() {
    let mut world = World::with_nodes(["n1"]);
    let mut job = service("web", 2);
    let scaling = Scaling { min: Some(2), max: Some(4), ..Scaling::default() };
    job.spec.groups[0].scaling = Some(scaling);
    world.create(&job);
    for (asked, given) in [(9, 4), (1, 2), (3, 3)] {
        world.change_job("web", &json!({ "scale": { "count": asked } }));
        world.live(Duration::from_secs(30)).await;
        let running = world.shown("web").iter().filter(|shown| shown.ends_with("run running")).count();
        assert_eq!(running, given, "asked for {asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_job_is_dead_once_its_allocations_have_ended_and_runs_again_when_it_is_started() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 2));
    world.live(Duration::from_secs(20)).await;
    world.change_job("web", &json!({ "stop": true }));
    world.settle();
    assert_eq!(world.shown("web"), ["g[0] v0 on n1: stop running", "g[1] v0 on n1: stop running"]);
    assert_eq!(world.the::<Job>("web").status.unwrap().phase, JobPhase::Running, "they still run");
    world.live(Duration::from_secs(20)).await;
    assert_eq!(world.the::<Job>("web").status.unwrap().phase, JobPhase::Dead);
    assert_eq!(condition(&world, "web", JobConditionType::Stopped).as_deref(), Some("True Stopped"));
    world.change_job("web", &json!({ "stop": false }));
    world.live(Duration::from_secs(20)).await;
    let running = world.shown("web").iter().filter(|shown| shown.ends_with("run running")).count();
    assert_eq!((running, world.the::<Job>("web").status.unwrap().phase), (2, JobPhase::Running));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_job_goes_when_the_agents_have_ended_its_allocations_and_not_before() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 2));
    world.live(Duration::from_secs(20)).await;
    world.delete::<Job>(&in_default("web"));
    world.advance(Duration::from_mins(5)).await;
    assert!(finalizer::is_held(&world.the::<Job>("web").metadata, finalizer::STOP_ALLOCATIONS));
    assert_eq!(world.shown("web"), ["g[0] v0 on n1: stop running", "g[1] v0 on n1: stop running"]);
    let allocs = world.allocs();
    world.end(&allocs[0], ClientStatus::Complete);
    world.advance(Duration::from_mins(5)).await;
    assert!(world.find::<Job>("web").is_some(), "one of two has not ended");
    world.end(&allocs[1], ClientStatus::Complete);
    world.settle();
    assert!(world.find::<Job>("web").is_none());
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_namespace_that_is_deleted_stop_although_nobody_deletes_them() {
    use k8s_openapi::api::core::v1::Namespace;
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 1));
    world.live(Duration::from_secs(20)).await;
    let going = json!({ "metadata": { "finalizers": ["test/keep"] } });
    world.merge::<Namespace>(&drover_store::Key::cluster("default"), drover_store::Part::Spec, going);
    world.delete::<Namespace>(&drover_store::Key::cluster("default"));
    world.settle();
    assert_eq!(world.shown("web"), ["g[0] v0 on n1: stop running"]);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_spec_is_told_and_what_ran_before_goes_on() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 1));
    world.live(Duration::from_secs(20)).await;
    let wrong = json!({ "constraints": [{ "attribute": "${attr.cpu.arch}", "operator": "regexp", "value": "(" }] });
    world.change_job("web", &wrong);
    world.live(Duration::from_secs(20)).await;
    assert_eq!(condition(&world, "web", JobConditionType::Stalled).as_deref(), Some("True InvalidSpec"));
    assert_eq!(world.shown("web"), ["g[0] v0 on n1: run running"]);
    assert_eq!(world.all::<JobVersion>().len(), 1, "what cannot run is no version");
    assert_eq!(told(&world, "Warning InvalidSpec web"), 1);
    world.change_job("web", &json!({ "constraints": null }));
    world.live(Duration::from_secs(20)).await;
    assert_eq!(condition(&world, "web", JobConditionType::Ready).as_deref(), Some("True AllHealthy"));
}

#[tokio::test(start_paused = true)]
async fn a_job_without_room_says_so_once_and_runs_when_a_node_comes() {
    let mut world = World::new();
    world.create(&service("web", 2));
    world.advance(Duration::from_mins(2)).await;
    assert_eq!(condition(&world, "web", JobConditionType::Placed).as_deref(), Some("False NotPlaced"));
    assert_eq!(told(&world, "Warning PlacementFailed web"), 1);
    assert!(world.the::<Job>("web").status.unwrap().blocked.is_some());
    world.register(&node("n1"));
    world.live(Duration::from_secs(20)).await;
    assert_eq!(world.shown("web"), ["g[0] v0 on n1: run running", "g[1] v0 on n1: run running"]);
    assert!(world.the::<Job>("web").status.unwrap().blocked.is_none());
}

#[tokio::test(start_paused = true)]
async fn that_a_job_finds_no_room_is_told_once_however_many_nodes_have_none() {
    let mut world = World::with_nodes(["n1"]);
    let mut large = group("g", 1);
    large["tasks"][0]["resources"]["memoryMB"] = json!(5000);
    world.create(&job("web", &json!({ "groups": [large] })));
    world.live(Duration::from_mins(1)).await;
    let why = |world: &World| message(world, "web", JobConditionType::Placed);
    assert!(why(&world).contains("on 1 of 1 nodes"), "{}", why(&world));
    for n in 2..=4 {
        world.register(&node(&format!("n{n}")));
        world.live(Duration::from_mins(1)).await;
    }
    assert!(why(&world).contains("on 4 of 4 nodes"), "{}", why(&world));
    assert_eq!(told(&world, "Warning PlacementFailed web"), 1, "{:#?}", world.events());
}

#[tokio::test(start_paused = true)]
async fn the_cause_of_a_crash_loop_is_told_while_it_loops() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 1));
    world.settle();
    let alloc = world.allocs().remove(0);
    let event =
        |r#type: &str| json!({ "type": r#type, "time": world.clock.now(), "exitCode": 3, "message": "exit code 3" });
    let events = [event("Started"), event("Terminated"), event("Restarting")];
    let states = json!({ "t": { "state": "pending", "restarts": 4, "events": events } });
    world.report(&alloc, &json!({ "clientStatus": "pending", "taskStates": states }));
    world.advance(Duration::from_secs(5)).await;
    let name = alloc.metadata.name.unwrap();
    let logs = format!("`drover alloc logs {name} t --stderr`");
    let told = world.events().into_iter().find(|event| event.starts_with("Warning AllocationFailed web"));
    assert!(told.as_ref().is_some_and(|told| told.contains(&logs)), "{:?}", world.events());
    let shown = world.the::<Job>("web").status.unwrap().columns.message;
    assert!(shown.contains("exit code 3"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_job_whose_allocations_have_ended_well_is_complete_and_told_so_once() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&job("sum", &json!({ "type": "batch", "groups": [group("g", 2)] })));
    world.live(Duration::from_secs(5)).await;
    for alloc in world.allocs() {
        world.end(&alloc, ClientStatus::Complete);
    }
    world.live(Duration::from_mins(10)).await;
    assert_eq!(world.shown("sum"), ["g[0] v0 on n1: run complete", "g[1] v0 on n1: run complete"]);
    assert_eq!(world.the::<Job>("sum").status.unwrap().phase, JobPhase::Dead);
    assert_eq!(condition(&world, "sum", JobConditionType::Complete).as_deref(), Some("True Completed"));
    assert_eq!(told(&world, "Normal Completed sum: all allocations are complete"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_evaluation_of_each_state_is_shown_and_later_ones_that_change_nothing_are_not() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 1));
    let shown = |world: &World| -> Vec<(i64, i64)> {
        let status = world.the::<Job>("web").status.unwrap();
        status.evaluations.iter().rev().map(|one| (one.generation, one.asked)).collect()
    };
    world.live(Duration::from_secs(40)).await;
    // The second found that its deployment is done.
    assert_eq!(shown(&world), [(1, 0), (1, 0)]);
    world.register(&node("n2"));
    world.change_job("web", &images("a", 1));
    world.live(Duration::from_secs(40)).await;
    let rolled_out = [(1, 0), (1, 0), (2, 0), (2, 0)];
    assert_eq!(shown(&world), rolled_out);
    // It changes nothing, and clients wait for it.
    world.change_job("web", &json!({ "meta": {} }));
    world.live(Duration::from_secs(40)).await;
    assert_eq!(shown(&world), [&rolled_out[..], &[(3, 0)]].concat());
    let ids: Vec<String> = world.the::<Job>("web").status.unwrap().evaluations.into_iter().map(|one| one.id).collect();
    let uid = world.the::<Job>("web").metadata.uid.unwrap();
    assert_eq!(ids[0], evaluation_id::of_point(&uid, Point { generation: 3, asked: 0 }));
}

#[tokio::test(start_paused = true)]
async fn whatever_write_fails_once_the_job_runs_in_the_end_and_nothing_runs_twice() {
    let invalid = || StoreError::Invalid("a rule of the cluster".to_owned());
    let timeout = || StoreError::Timeout(Duration::from_secs(5));
    let writes =
        ["merge Job", "create JobVersion", "create Deployment", "create Allocation", "apply Job", "apply Deployment"];
    let errors: [fn() -> StoreError; 3] = [unavailable, conflict, || StoreError::Timeout(Duration::from_secs(5))];
    for write in writes {
        for error in errors {
            for is_lost in [false, true] {
                let mut world = World::with_nodes(["n1", "n2"]);
                world.create(&service("web", 3));
                if is_lost {
                    world.store.lose_answer(write, timeout());
                } else {
                    world.store.refuse(write, error());
                }
                world.live(Duration::from_mins(1)).await;
                let context = format!("{write} fails with {} (lost: {is_lost})", error());
                let running = world.shown("web");
                assert_eq!(running.len(), 3, "{context}: {running:?}");
                assert!(running.iter().all(|shown| shown.ends_with("run running")), "{context}: {running:?}");
                assert_eq!(
                    condition(&world, "web", JobConditionType::Ready).as_deref(),
                    Some("True AllHealthy"),
                    "{context}"
                );
            }
        }
    }
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 1));
    world.store.refuse("create JobVersion", invalid());
    world.live(Duration::from_mins(2)).await;
    assert_eq!(world.shown("web"), ["g[0] v0 on n1: run running"], "what is refused is tried again, later");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_vanishes_while_it_is_prepared_is_not_tried_again() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 1));
    let actions = world.decide();
    world.delete::<Job>(&in_default("web"));
    world.carry_out(actions);
    world.advance(Duration::from_mins(5)).await;
    world.writes();
    world.advance(Duration::from_mins(5)).await;
    assert_eq!(world.writes(), Vec::<String>::new());
    assert_eq!(world.allocs().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_of_the_name_of_one_that_is_gone_begins_with_version_0_and_allocations_of_its_own() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&job("web", &images("a", 1)));
    world.live(Duration::from_secs(20)).await;
    let first: Job = world.the("web");
    world.delete::<Job>(&in_default("web"));
    world.live(Duration::from_secs(20)).await;
    assert!(world.find::<Job>("web").is_none());
    world.create(&job("web", &images("b", 1)));
    world.live(Duration::from_secs(30)).await;
    let second: Job = world.the("web");
    assert_ne!(first.metadata.uid, second.metadata.uid);
    let running: Vec<_> =
        world.allocs().into_iter().filter(|alloc| alloc.spec.desired_status.as_str() == "run").collect();
    assert_eq!(running.len(), 1);
    assert_eq!(Some(&running[0].spec.job_uid), second.metadata.uid.as_ref());
    let version: JobVersion = world.the("web-v0");
    assert_eq!(Some(&version.spec.job_uid), second.metadata.uid.as_ref());
}

#[tokio::test(start_paused = true)]
async fn an_allocation_takes_its_room_although_the_answer_to_its_creation_is_lost_and_no_watch_shows_it_yet() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 1));
    world.store.lose_answer("create Allocation", unavailable());
    let in_view = |world: &World| world.leader.shared.view.allocs_on_node(&"n1".into()).count();
    while world.allocs().is_empty() {
        let actions = world.decide();
        world.carry_out(actions);
    }
    assert_eq!(in_view(&world), 1, "nothing is read from the watches since");
}
