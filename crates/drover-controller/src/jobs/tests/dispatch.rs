//! Dispatches of parameterized jobs.

use std::time::Duration;

use drover_api::job::{JobConditionType, JobPhase};
use drover_api::{Job, JobVersion};
use serde_json::{Value, json};

use super::{condition, told};
use crate::tests::{World, group, in_default, job};

fn parent() -> Job {
    let rules = json!({ "payload": "optional", "metaRequired": ["who"], "metaOptional": ["why"] });
    job(
        "mail",
        &json!({ "type": "batch", "meta": { "from": "shop" }, "parameterized": rules, "groups": [group("g", 1)] }),
    )
}

fn dispatch(name: &str, more: &Value) -> Job {
    let mut spec = json!({ "type": "batch", "meta": { "who": "ann" }, "dispatch": { "parent": "mail" } });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    job(name, &spec)
}

fn with_token(name: &str, token: &str) -> Job {
    dispatch(name, &json!({ "dispatch": { "parent": "mail", "idempotencyToken": token } }))
}

/// What is wrong with a job, as its status says.
fn message(world: &World, name: &str) -> String {
    let status = world.the::<Job>(name).status.unwrap_or_default();
    let stalled = status.conditions.iter().find(|one| one.r#type == JobConditionType::Stalled);
    stalled.filter(|one| one.status.to_string() == "True").map(|one| one.message.clone()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_runs_the_groups_of_its_parent_with_its_own_meta_over_the_parents() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&parent());
    world.live(Duration::from_secs(5)).await;
    assert_eq!(world.allocs().len(), 0, "a parameterized job places nothing itself");
    world.create(&dispatch("mail-1", &json!({})));
    world.live(Duration::from_secs(5)).await;
    assert_eq!(world.shown("mail-1"), ["g[0] v0 on n1: run running"]);
    let recorded = world.the::<JobVersion>("mail-1-v0").spec.job;
    let meta: Vec<(&str, &str)> = recorded.meta.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(meta, [("from", "shop"), ("who", "ann"), ("why", "")]);
    assert!(world.the::<Job>("mail-1").spec.groups.is_empty(), "the person's object stays as it is");
    assert_eq!(told(&world, "Normal Dispatched mail: dispatched as djob/mail-1"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_dispatch_is_told_and_nothing_runs() {
    let cases = [
        (json!({ "dispatch": { "parent": "nobody" } }), "nobody is no job of this namespace"),
        (json!({ "dispatch": { "parent": "plain" } }), "plain is not parameterized"),
        (json!({ "dispatch": { "parent": "still" } }), "still is stopped"),
        (json!({ "meta": {} }), "lacks who, which the job requires"),
        (json!({ "meta": { "who": "ann", "age": "7" } }), "has age, which the job does not take; it takes who, why"),
        (json!({ "dispatch": { "parent": "mail", "payload": "***" } }), "is no base64"),
        (json!({ "type": "sysbatch" }), "and mail is of type batch"),
    ];
    for (more, expected) in cases {
        let mut world = World::with_nodes(["n1"]);
        world.create(&parent());
        world.create(&job("plain", &json!({ "type": "batch", "groups": [group("g", 0)] })));
        let mut still = parent();
        still.metadata.name = Some("still".to_owned());
        still.spec.stop = true;
        world.create(&still);
        world.create(&dispatch("mail-1", &more));
        world.live(Duration::from_secs(5)).await;
        assert!(message(&world, "mail-1").contains(expected), "{more}: {}", message(&world, "mail-1"));
        assert_eq!(world.allocs().len(), 0, "{more}");
        assert!(world.find::<JobVersion>("mail-1-v0").is_none(), "{more}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_that_came_before_its_parent_runs_when_the_parent_comes() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&dispatch("mail-1", &json!({})));
    world.live(Duration::from_secs(5)).await;
    assert_eq!(condition(&world, "mail-1", JobConditionType::Stalled).as_deref(), Some("True InvalidSpec"));
    world.create(&parent());
    world.live(Duration::from_secs(5)).await;
    assert_eq!(world.shown("mail-1"), ["g[0] v0 on n1: run running"]);
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_keeps_what_its_parent_was_when_it_began() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&parent());
    world.create(&dispatch("mail-1", &json!({})));
    world.live(Duration::from_secs(5)).await;
    world.change_job("mail", &json!({ "meta": { "from": "bank" }, "groups": [group("other", 3)] }));
    world.live(Duration::from_secs(10)).await;
    assert_eq!(world.shown("mail-1"), ["g[0] v0 on n1: run running"]);
    world.change_job("mail-1", &json!({ "stop": true }));
    world.live(Duration::from_secs(10)).await;
    assert_eq!(world.the::<Job>("mail-1").status.unwrap().phase, JobPhase::Dead, "its own stop counts");
}

#[tokio::test(start_paused = true)]
async fn p_050_of_two_dispatches_with_one_token_the_first_one_runs_and_the_other_names_it() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&parent());
    world.settle();
    world.create(&with_token("mail-b", "t-1"));
    world.settle();
    // It comes in the same second, and its name is the first.
    world.create(&with_token("mail-a", "t-1"));
    world.create(&with_token("mail-c", "t-2"));
    world.live(Duration::from_secs(5)).await;
    assert_eq!(world.shown("mail-b").len(), 1);
    assert_eq!(world.shown("mail-c").len(), 1, "another token is another dispatch");
    assert_eq!(world.shown("mail-a").len(), 0);
    let said = message(&world, "mail-a");
    assert!(said.contains("is that of djob/mail-b, which runs for it; delete this job"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn of_dispatches_that_come_at_once_with_one_token_exactly_one_runs() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&parent());
    world.settle();
    for name in ["mail-c", "mail-a", "mail-b"] {
        world.create(&with_token(name, "t-1"));
    }
    world.live(Duration::from_secs(20)).await;
    let running: Vec<&str> =
        ["mail-a", "mail-b", "mail-c"].into_iter().filter(|name| !world.shown(name).is_empty()).collect();
    assert_eq!(running.len(), 1, "{running:?}");
    let winner = running[0];
    world.elect_another();
    world.live(Duration::from_secs(20)).await;
    for name in ["mail-a", "mail-b", "mail-c"] {
        assert_eq!(world.shown(name).len(), usize::from(name == winner), "{name} after another leader began");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_counts_for_its_parent_and_not_for_one_of_another_incarnation() {
    let mut world = World::with_nodes(["n1"]);
    let mut second = parent();
    second.metadata.name = Some("post".to_owned());
    world.create(&parent());
    world.create(&second);
    world.settle();
    world.create(&with_token("mail-1", "t-1"));
    world.create(&dispatch("post-1", &json!({ "dispatch": { "parent": "post", "idempotencyToken": "t-1" } })));
    world.live(Duration::from_secs(5)).await;
    assert_eq!((world.shown("mail-1").len(), world.shown("post-1").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_parent_counts_its_dispatches_by_phase() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&parent());
    for name in ["mail-1", "mail-2"] {
        world.create(&dispatch(name, &json!({})));
    }
    world.live(Duration::from_secs(10)).await;
    world.change_job("mail-1", &json!({ "stop": true }));
    world.live(Duration::from_secs(10)).await;
    let children = |world: &World| {
        let children = world.the::<Job>("mail").status.unwrap().children.unwrap();
        (children.pending, children.running, children.dead)
    };
    assert_eq!(children(&world), (0, 1, 1));
    world.delete::<Job>(&in_default("mail-1"));
    world.live(Duration::from_secs(10)).await;
    assert_eq!(children(&world), (0, 1, 0));
}
