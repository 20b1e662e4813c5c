//! Lives of jobs during which one write meets an accident, each write in turn.

use drover_api::Job;
use drover_api::allocation::ClientStatus;
use serde_json::{Value, json};

use crate::tests::{Story, World, group, in_default, job, no_accident_changes_the_end, node, service};

/// The agents of all batch allocations report that these have ended well.
fn end_all(world: &World) {
    for alloc in world.allocs() {
        let status = alloc.status.clone().unwrap_or_default();
        if !status.client_status.is_terminal() {
            world.end(&alloc, ClientStatus::Complete);
        }
    }
}

fn batch(name: &str, more: &Value) -> Job {
    let mut spec = json!({ "type": "batch", "groups": [group("g", 1)] });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    job(name, &spec)
}

#[tokio::test(start_paused = true)]
async fn a_service_is_scaled_changed_and_deleted() {
    let story = Story {
        begin: || World::with_nodes(["n1", "n2"]),
        acts: &[
            (|world| drop(world.create(&service("web", 2))), 20),
            (|world| world.change_job("web", &json!({ "groups": [group("g", 3)] })), 20),
            (|world| world.change_job("web", &json!({ "groups": [group("g", 1), group("h", 1)] })), 40),
            (|world| world.delete::<Job>(&in_default("web")), 40),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_waits_for_room_gets_it() {
    let story = Story {
        begin: || World::with_nodes(["n1"]),
        acts: &[(|world| drop(world.create(&service("web", 12))), 20), (|world| world.join(&node("n2")), 30)],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_allocation_is_replaced() {
    let story = Story {
        begin: || {
            let world = World::with_nodes(["n1", "n2"]);
            let mut of = group("g", 1);
            of["reschedule"] = json!({ "delay": "5s", "delayFunction": "constant", "unlimited": true });
            world.create(&job("web", &json!({ "groups": [of] })));
            world
        },
        acts: &[
            (|_| {}, 30),
            (|world| world.allocs().iter().for_each(|alloc| world.end(alloc, ClientStatus::Failed)), 60),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_job_runs_to_its_end() {
    let story = Story {
        begin: || World::with_nodes(["n1", "n2"]),
        acts: &[
            (|world| drop(world.create(&batch("sum", &json!({ "groups": [group("g", 3)] })))), 20),
            (|world| end_all(world), 30),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_system_job_runs_on_each_node_and_on_one_that_comes() {
    let story = Story {
        begin: || World::with_nodes(["n1", "n2"]),
        acts: &[
            (|world| drop(world.create(&job("log", &json!({ "type": "system", "groups": [group("s", 1)] })))), 30),
            (|world| world.join(&node("n3")), 30),
            (|world| world.change_job("log", &json!({ "groups": [group("t", 1)] })), 90),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_periodic_job_launches_each_of_its_launches_once() {
    let story = Story {
        begin: || World::with_nodes(["n1"]),
        acts: &[
            (|world| drop(world.create(&batch("clean", &json!({ "periodic": { "crons": ["* * * * *"] } })))), 70),
            (|world| end_all(world), 60),
            (|world| end_all(world), 20),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_dispatched_job_runs_once() {
    let story = Story {
        begin: || {
            let world = World::with_nodes(["n1"]);
            world.create(&batch("mail", &json!({ "parameterized": { "metaRequired": ["who"] } })));
            world
        },
        acts: &[
            (|_| {}, 10),
            (
                |world| {
                    let spec = json!({ "type": "batch", "meta": { "who": "ann" }, "dispatch": { "parent": "mail" } });
                    world.create(&job("mail-1", &spec));
                },
                20,
            ),
            (|world| end_all(world), 20),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_is_stopped_and_started() {
    let story = Story {
        begin: || World::with_nodes(["n1"]),
        acts: &[
            (|world| drop(world.create(&service("web", 2))), 20),
            (|world| world.change_job("web", &json!({ "stop": true })), 20),
            (|world| world.change_job("web", &json!({ "stop": false })), 40),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn one_allocation_is_stopped_by_a_user() {
    let story = Story {
        begin: || {
            let world = World::with_nodes(["n1", "n2"]);
            world.create(&service("web", 2));
            world
        },
        acts: &[
            (|_| {}, 20),
            (
                |world| {
                    let first = world.allocs().remove(0);
                    world.report(&first, &json!({ "stopRequestedAt": "2026-01-01T00:00:00Z" }));
                },
                60,
            ),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_was_wrong_is_mended() {
    let story = Story {
        begin: || World::with_nodes(["n1"]),
        acts: &[
            (|world| drop(world.create(&service("web", 2))), 20),
            (
                |world| {
                    let rule = json!({ "attribute": "${attr.cpu.arch}", "operator": "regexp", "value": "(" });
                    world.change_job("web", &json!({ "constraints": [rule] }));
                },
                20,
            ),
            (|world| world.change_job("web", &json!({ "constraints": null, "groups": [group("g", 3)] })), 40),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_allocation_that_fails_is_run_again() {
    let story = Story {
        begin: || {
            let world = World::with_nodes(["n1", "n2"]);
            let mut of = group("g", 2);
            of["reschedule"] = json!({ "delay": "5s", "delayFunction": "constant", "attempts": 1, "interval": "1h" });
            world.create(&batch("sum", &json!({ "groups": [of] })));
            world
        },
        acts: &[
            (|_| {}, 20),
            (|world| world.end(&world.allocs()[0], ClientStatus::Failed), 40),
            (|world| end_all(world), 40),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_sysbatch_job_runs_once_on_each_node() {
    let story = Story {
        begin: || World::with_nodes(["n1", "n2"]),
        acts: &[
            (
                |world| {
                    world.create(&job("scan", &json!({ "type": "sysbatch", "groups": [group("s", 1)] })));
                },
                20,
            ),
            (|world| end_all(world), 20),
            (|world| world.join(&node("n3")), 20),
            (|world| end_all(world), 20),
        ],
    };
    no_accident_changes_the_end(story).await;
}
