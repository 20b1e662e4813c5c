//! Roll-outs whose news reaches the leader in another order than it was written.

use std::time::Duration;

use drover_api::allocation::ClientStatus;
use drover_api::deployment::DeploymentPhase;
use drover_api::job::EvalTrigger;
use drover_api::{Allocation, Deployment};
use drover_core::ids::JobKey;
use drover_store::Change;
use serde_json::json;

use super::objects::service;
use super::world::World;
use crate::leader_loop::Input;

/// The one allocation of a job.
fn alloc_of(world: &World, job: &str) -> Allocation {
    let mut allocs = world.allocs();
    allocs.retain(|alloc| alloc.spec.job_name == job);
    let [alloc]: [Allocation; 1] = allocs.try_into().unwrap();
    alloc
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_the_watch_shows_after_a_newer_write_of_another_job_ends_its_roll_out() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 1));
    world.create(&service("other", 1));
    world.advance(Duration::from_secs(5)).await;
    let web = alloc_of(&world, "web");
    let health = json!({ "healthy": true, "timestamp": world.clock.now(), "deploymentName": web.spec.deployment_name });
    world.report(&web, &json!({ "clientStatus": ClientStatus::Running, "health": health }));
    world.report(&alloc_of(&world, "other"), &json!({ "clientStatus": ClientStatus::Running }));
    // As the answer to an own write, which overtakes the watch; and the job happens to be evaluated in between.
    let overtakes = alloc_of(&world, "other");
    world.leader.take(Input::Allocation(Change::Present(Box::new(overtakes))));
    world.leader.shared.enqueue(&JobKey::new("default", "web"), EvalTrigger::DeploymentWatcher);
    world.leader.decide();
    world.advance(Duration::from_secs(5)).await;
    let deployment = world.the::<Deployment>(&web.spec.deployment_name);
    assert_eq!(deployment.status.unwrap().phase, DeploymentPhase::Successful);
}
