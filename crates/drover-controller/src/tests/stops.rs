//! The stop of one allocation, which a person has asked its agent for.

use std::time::Duration;

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::job::EvalTrigger;
use drover_api::{Allocation, Job};
use serde_json::json;

use super::objects::service;
use super::world::World;

/// Has the first allocation of a job stopped by its agent's report; what is there when all is settled.
async fn stopped(world: &mut World) -> (Allocation, Vec<Allocation>) {
    world.create(&service("web", 1));
    world.live(Duration::from_secs(20)).await;
    let [first] = &world.allocs()[..] else { panic!("one allocation") };
    let name = first.metadata.name.clone().unwrap();
    world.report(first, &json!({ "stopRequestedAt": "2026-01-01T00:00:00Z" }));
    world.live(Duration::from_mins(1)).await;
    let (first, others) = world.allocs().into_iter().partition(|alloc| alloc.metadata.name.as_deref() == Some(&*name));
    let [first]: [Allocation; 1] = Vec::try_into(first).unwrap();
    (first, others)
}

#[tokio::test(start_paused = true)]
async fn s_223_what_a_user_stops_is_stopped_as_such_and_replaced_and_is_no_failure() {
    let mut world = World::with_nodes(["n1"]);
    let (first, others) = stopped(&mut world).await;
    assert_eq!((first.spec.desired_status, &*first.spec.desired_description), (DesiredStatus::Stop, "alloc-stop"));
    assert_eq!(first.status.unwrap().client_status, ClientStatus::Complete);
    let [replacement] = &others[..] else { panic!("one replacement: {others:?}") };
    assert_eq!(replacement.spec.previous_allocation, first.metadata.name.unwrap());
    let triggers = |trigger| {
        let evaluations = world.the::<Job>("web").status.unwrap().evaluations;
        evaluations.iter().filter(|one| one.trigger == trigger).count()
    };
    assert_eq!((triggers(EvalTrigger::AllocStop), triggers(EvalTrigger::AllocFailure)), (1, 0));
}
