//! Jobs that ask for more than the operator allows.

use std::time::Duration;

use drover_api::Job;
use drover_api::allocation::ClientStatus;
use drover_api::job::JobConditionType;
use serde_json::json;

use super::{condition, message, told};
use crate::tests::{World, group, in_default, job, node, service};

const LIMITED: &str = "limits: {allocationsPerJob: 4, allocationsPerNamespace: 6}";

fn limited() -> World {
    let mut world = World::with_config(LIMITED);
    world.register(&node("n1"));
    world
}

fn stalled(world: &World, name: &str) -> String {
    message(world, name, JobConditionType::Stalled)
}

fn n_shown(world: &World, names: &[&str]) -> Vec<usize> {
    names.iter().map(|name| world.shown(name).len()).collect()
}

#[tokio::test(start_paused = true)]
async fn must_survive_x_030_jobs_over_the_limits() {
    let mut world = limited();
    world.create(&service("web", 4));
    world.live(Duration::from_secs(20)).await;
    for (name, count) in [("big", 5), ("api", 3), ("small", 2)] {
        world.create(&service(name, count));
        world.live(Duration::from_secs(20)).await;
    }
    assert_eq!(n_shown(&world, &["web", "big", "api", "small"]), [4, 0, 0, 2]);
    for (name, number, setting) in [
        ("big", "one job would have 5 allocations, and the limit is 4", "limits.allocationsPerJob"),
        ("api", "together would have 7 allocations, and the limit is 6", "limits.allocationsPerNamespace"),
    ] {
        assert_eq!(condition(&world, name, JobConditionType::Stalled).as_deref(), Some("True InvalidSpec"), "{name}");
        let message = stalled(&world, name);
        assert!(message.contains(number) && message.contains(setting), "{message}");
    }
    assert_eq!(told(&world, "Warning InvalidSpec api"), 1);

    // Another leader admits the same ones, whatever it looks at first.
    world.elect_another();
    world.live(Duration::from_mins(1)).await;
    assert_eq!(n_shown(&world, &["web", "big", "api", "small"]), [4, 0, 0, 2]);

    world.delete::<Job>(&in_default("web"));
    world.live(Duration::from_mins(1)).await;
    assert_eq!(n_shown(&world, &["big", "api", "small"]), [0, 3, 2], "what waited has room, nobody asked again");
    assert_eq!(condition(&world, "api", JobConditionType::Ready).as_deref(), Some("True AllHealthy"));
    assert_eq!(condition(&world, "api", JobConditionType::Stalled), None);
}

#[tokio::test(start_paused = true)]
async fn more_of_a_job_that_runs_is_refused_and_what_runs_goes_on() {
    let mut world = limited();
    world.create(&service("web", 3));
    world.create(&service("api", 3));
    world.live(Duration::from_secs(20)).await;
    world.change_job("web", &json!({ "groups": [group("g", 4)] }));
    world.live(Duration::from_secs(20)).await;
    assert_eq!(n_shown(&world, &["web", "api"]), [3, 3]);
    assert!(stalled(&world, "web").contains("7 allocations"), "{}", stalled(&world, "web"));
    world.change_job("web", &json!({ "scale": { "group": "g", "count": 4 }, "groups": [group("g", 3)] }));
    world.live(Duration::from_secs(20)).await;
    assert_eq!(n_shown(&world, &["web"]), [3], "a scale is no way around it");
    world.change_job("api", &json!({ "groups": [group("g", 2)] }));
    world.live(Duration::from_secs(20)).await;
    let runs = world.shown("web").iter().filter(|line| line.contains("run running")).count();
    assert_eq!(runs, 4);
}

#[tokio::test(start_paused = true)]
async fn what_is_stopped_or_done_gives_its_share_back() {
    let mut world = limited();
    world.create(&job("first", &json!({ "type": "batch", "groups": [group("g", 4)] })));
    world.create(&service("web", 2));
    world.create(&service("next", 2));
    world.live(Duration::from_secs(20)).await;
    assert_eq!(n_shown(&world, &["first", "web", "next"]), [4, 2, 0]);
    world.change_job("web", &json!({ "stop": true }));
    world.live(Duration::from_secs(20)).await;
    assert_eq!(n_shown(&world, &["next"]), [2]);
    for alloc in world.allocs().into_iter().filter(|alloc| alloc.spec.job_name == "first") {
        world.end(&alloc, ClientStatus::Complete);
    }
    world.live(Duration::from_secs(20)).await;
    world.create(&service("last", 4));
    world.live(Duration::from_secs(20)).await;
    assert_eq!(n_shown(&world, &["last"]), [4], "a batch job that is done asks for nothing");
}

#[tokio::test(start_paused = true)]
async fn a_job_on_every_node_counts_with_each_node_of_its_pool() {
    let mut world = World::with_config("limits: {allocationsPerJob: 1, allocationsPerNamespace: 2}");
    for name in ["n1", "n2"] {
        world.register(&node(name));
    }
    world.create(&job("every", &json!({ "type": "system", "groups": [group("g", 1)] })));
    world.live(Duration::from_secs(20)).await;
    assert_eq!(n_shown(&world, &["every"]), [2], "the limit of one job is not for those whose number nodes decide");
    world.create(&job("more", &json!({ "type": "sysbatch", "groups": [group("g", 1)] })));
    world.live(Duration::from_secs(20)).await;
    assert_eq!(n_shown(&world, &["more"]), [0]);
    assert!(stalled(&world, "more").contains("4 allocations"), "{}", stalled(&world, "more"));
}

#[tokio::test(start_paused = true)]
async fn where_no_gateway_is_installed_a_job_that_needs_one_waits_and_what_runs_goes_on() {
    let mut world = World::with_config("hasGateway: false");
    world.register(&node("n1"));
    world.create(&service("web", 1));
    let with_secret = || {
        let mut group = group("g", 1);
        group["tasks"][0]["secrets"] = json!([{ "name": "db", "path": "db-creds" }]);
        json!({ "groups": [group] })
    };
    world.create(&job("shop", &with_secret()));
    world.live(Duration::from_secs(20)).await;
    for _ in 0..2 {
        assert_eq!(condition(&world, "shop", JobConditionType::Placed).as_deref(), Some("False NoGateway"));
        assert_eq!(condition(&world, "shop", JobConditionType::Stalled).as_deref(), Some("True NoGateway"));
        let told_twice = "spec.groups[0].tasks[0].secrets[0]: Secret db-creds comes to its node from the gateway, and \
                          none is installed; set gateway.enabled in the chart's values, or remove it (NoGateway)";
        assert_eq!(stalled(&world, "shop"), told_twice);
        assert_eq!((n_shown(&world, &["shop"]), told(&world, "Warning PlacementFailed shop")), (vec![0], 1));
        // The next leader says the same.
        world.elect_another();
        world.live(Duration::from_mins(1)).await;
    }
    world.change_job("web", &with_secret());
    world.live(Duration::from_secs(20)).await;
    assert_eq!(condition(&world, "web", JobConditionType::Placed).as_deref(), Some("False NoGateway"));
    assert_eq!(world.shown("web"), ["g[0] v0 on n1: run running"]);

    // Once it is installed, the controller begins again with another configuration.
    world.configure("{}");
    world.elect_another();
    world.live(Duration::from_mins(1)).await;
    assert_eq!(n_shown(&world, &["shop"]), [1]);
    for name in ["shop", "web"] {
        assert_eq!(condition(&world, name, JobConditionType::Placed).as_deref(), Some("True AllPlaced"), "{name}");
    }
    world.change_job("shop", &json!({ "stop": true }));
    world.live(Duration::from_secs(20)).await;
    assert_eq!(condition(&world, "shop", JobConditionType::Stopped).as_deref(), Some("True Stopped"));
}
