//! Canaries and their promotion.

use std::time::Duration;

use drover_api::Deployment;
use drover_api::deployment::DeploymentConditionType;
use serde_json::{Value, json};

use super::{apply, ask, deployment, is_stable, rolled, running, standing, status};
use crate::tests::World;

const LONG: Duration = Duration::from_mins(2);

fn canary(n: i64, more: &Value) -> Value {
    let mut rules = json!({ "maxParallel": 1, "canary": n });
    for (name, value) in more.as_object().unwrap() {
        rules[name] = value.clone();
    }
    rules
}

/// A job of three that is rolled out to another version with one canary.
async fn with_canary(more: &Value) -> World {
    let mut world = World::with_nodes(["n1"]);
    world.create(&rolled(&[("g", 3, canary(1, more))], "a"));
    world.live(LONG).await;
    apply(&world, "b");
    world.live(Duration::from_secs(20)).await;
    world
}

fn condition(world: &World, version: i64, kind: DeploymentConditionType) -> String {
    let conditions = status(world, version).conditions;
    let found = conditions.iter().find(|one| one.r#type == kind).expect("the condition");
    format!("{} {}", found.status, found.reason)
}

fn canaries(world: &World) -> usize {
    world.allocs().iter().filter(|alloc| alloc.spec.canary && alloc.spec.desired_status.as_str() == "run").count()
}

#[tokio::test(start_paused = true)]
async fn a_canary_runs_beside_the_old_version_and_waits_for_a_promotion() {
    let mut world = with_canary(&json!({})).await;
    assert_eq!((running(&world, 0), running(&world, 1), canaries(&world)), (3, 1, 1));
    assert_eq!(standing(&world, 1), "running NeedsPromotion");
    assert_eq!(condition(&world, 1, DeploymentConditionType::Promoted), "False NotPromoted");
    let told = world.events().iter().filter(|event| event.starts_with("Normal CanariesHealthy")).count();
    assert_eq!(told, 1);
    world.live(Duration::from_mins(30)).await;
    assert_eq!((running(&world, 0), running(&world, 1)), (3, 1), "it waits for a person, past every deadline");
    assert_eq!(standing(&world, 1), "running NeedsPromotion");
}

#[tokio::test(start_paused = true)]
async fn a_promotion_makes_the_canaries_ordinary_and_the_roll_out_goes_on() {
    let mut world = with_canary(&json!({})).await;
    ask(&world, 1, &json!({ "promote": { "all": true } }));
    world.live(LONG).await;
    assert_eq!((running(&world, 0), running(&world, 1), canaries(&world)), (0, 3, 0));
    assert_eq!(standing(&world, 1), "successful Successful");
    assert_eq!(condition(&world, 1, DeploymentConditionType::Promoted), "True Promoted");
    assert!(is_stable(&world, 1));
    assert_eq!(world.events().iter().filter(|event| event.contains("promoted group g")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn canaries_that_may_promote_themselves_do_so_when_all_are_healthy() {
    let mut world = with_canary(&json!({ "autoPromote": true })).await;
    world.live(LONG).await;
    assert_eq!((standing(&world, 1).as_str(), running(&world, 1)), ("successful Successful", 3));
}

#[tokio::test(start_paused = true)]
async fn a_promotion_before_the_canaries_are_healthy_is_refused_and_changes_nothing() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&rolled(&[("g", 3, canary(2, &json!({})))], "a"));
    world.live(LONG).await;
    apply(&world, "b");
    world.advance(Duration::from_secs(5)).await;
    ask(&world, 1, &json!({ "promote": { "all": true } }));
    world.advance(Duration::from_secs(5)).await;
    assert!(!status(&world, 1).groups["g"].promoted);
    let told: Vec<String> = world.events().into_iter().filter(|event| event.starts_with("Warning Refused")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((running(&world, 0), canaries(&world)), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn of_two_groups_the_one_that_is_promoted_goes_on_alone() {
    let mut world = World::with_nodes(["n1", "n2"]);
    world.create(&rolled(&[("a", 2, canary(1, &json!({}))), ("b", 2, canary(1, &json!({})))], "x"));
    world.live(LONG).await;
    apply(&world, "y");
    world.live(Duration::from_secs(20)).await;
    ask(&world, 1, &json!({ "promote": { "groups": ["a"] } }));
    world.live(LONG).await;
    let of = |group: &str, version: i64| {
        let begin = format!("{group}[");
        let version = format!("] v{version} ");
        let runs =
            |shown: &&String| shown.starts_with(&begin) && shown.contains(&version) && shown.ends_with("run running");
        world.shown("web").iter().filter(runs).count()
    };
    assert_eq!((of("a", 0), of("a", 1), of("b", 0), of("b", 1)), (0, 2, 2, 1));
    let promoted: Vec<bool> = status(&world, 1).groups.values().map(|group| group.promoted).collect();
    assert_eq!(promoted, [true, false]);
}

#[tokio::test(start_paused = true)]
async fn s_062_canaries_of_a_version_that_is_replaced_stop_and_those_of_the_newer_come() {
    let mut world = with_canary(&json!({})).await;
    apply(&world, "c");
    world.live(Duration::from_secs(30)).await;
    assert_eq!(standing(&world, 1), "cancelled NewerJob");
    assert_eq!((running(&world, 0), running(&world, 1), running(&world, 2)), (3, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_promotion_that_one_leader_has_stored_is_carried_out_by_the_next() {
    let mut world = with_canary(&json!({})).await;
    ask(&world, 1, &json!({ "promote": { "all": true } }));
    // The status is stored, and the leader dies before anything follows from it.
    let actions = world.decide();
    assert!(!actions.is_empty());
    world.carry_out(actions);
    drop(world.decide());
    assert!(status(&world, 1).groups["g"].promoted);
    world.elect_another();
    world.live(LONG).await;
    assert_eq!((standing(&world, 1).as_str(), running(&world, 1), canaries(&world)), ("successful Successful", 3, 0));
}

#[tokio::test(start_paused = true)]
async fn d_043_a_failed_roll_out_stops_its_canaries_and_the_old_version_runs_on() {
    let mut world = with_canary(&json!({})).await;
    ask(&world, 1, &json!({ "fail": true }));
    world.live(Duration::from_secs(30)).await;
    assert_eq!(standing(&world, 1), "failed FailedByUser");
    assert_eq!((running(&world, 0), running(&world, 1)), (3, 0));
    let failed: Deployment = deployment(&world, 1);
    assert_eq!(failed.status.unwrap().rollback, None);
    world.live(Duration::from_mins(10)).await;
    assert_eq!((running(&world, 0), running(&world, 1)), (3, 0), "what failed is not tried again");
}
