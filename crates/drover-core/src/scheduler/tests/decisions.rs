//! What becomes of one allocation of a job of one: each state of it, on each sort of node, for each change of the job.
//!
//! A cell names what the plan does: `S` stops it, `L` stops it as lost, `M` moves it, `R` reschedules it, `D` updates
//! it destructively, `I` updates it in place, `X` marks it unknown, `B` takes it back, `f` notes a later evaluation on
//! it, `P` places an allocation in its slot. `-` is an empty plan.

use super::*;

/// The sorts of nodes, in the order of the columns.
const NODES: [&str; 6] = ["ready", "draining", "ineligible", "down", "gone", "disconnected"];

fn on(sort: &str) -> Option<Node> {
    let one = node("n-0");
    Some(match sort {
        "ready" => one,
        "draining" => Node { is_draining: true, is_eligible: false, ..one },
        "ineligible" => Node { is_eligible: false, ..one },
        "down" => Node { phase: NodePhase::Down, ..one },
        "disconnected" => Node { phase: NodePhase::Disconnected, ..one },
        _ => return None,
    })
}

/// The states of an allocation, by name.
fn state(name: &str, alloc: &mut Alloc) {
    let unknown = (ClientStatus::Unknown, now() - SignedDuration::from_secs(30));
    alloc.last_event_at = now() - SignedDuration::from_secs(60);
    match name {
        "pending" => alloc.client = ClientStatus::Pending,
        "complete" => (alloc.client, alloc.ran_successfully) = (ClientStatus::Complete, true),
        "failed" => alloc.client = ClientStatus::Failed,
        "lost" => alloc.client = ClientStatus::Lost,
        "unknown" => (alloc.client, alloc.states) = (ClientStatus::Unknown, vec![unknown]),
        "back" => alloc.states = vec![unknown],
        "moving" => alloc.transition.migrate = true,
        "stopping" => alloc.desired = DesiredStatus::Stop,
        "running" => {}
        other => panic!("{other}"),
    }
}

/// The letters of a plan.
fn cell(plan: &Plan) -> String {
    let mut letters = String::new();
    for stop in plan.stops.iter().chain(plan.replaced()) {
        letters.push(match (&stop.reason, stop.client) {
            (StopReason::Lost, Some(ClientStatus::Lost)) => 'L',
            (StopReason::NotNeeded, None) => 'S',
            (StopReason::Migrating | StopReason::AllocStop, None) => 'M',
            (StopReason::Rescheduled, None) => 'R',
            (StopReason::Updating, None) => 'D',
            other => panic!("{other:?}"),
        });
    }
    letters.extend(plan.in_place.iter().map(|_| 'I'));
    letters.extend(plan.disconnects.iter().map(|_| 'X'));
    letters.extend(plan.reconnects.iter().map(|_| 'B'));
    letters.extend(plan.attributes.iter().map(|_| 'f'));
    assert!(plan.placements.iter().all(|placement| placement.index == 0));
    letters.extend(plan.placements.iter().map(|_| 'P'));
    if letters.is_empty() { "-".to_owned() } else { letters }
}

/// A job before and after a change.
#[derive(Clone, Copy)]
struct Scene {
    kind: &'static str,
    lost_after: &'static str,
    replace: bool,
    change: &'static str,
}

fn plan_of(scene: Scene, client: &str, place: &str) -> Plan {
    let Scene { kind, lost_after, replace, change } = scene;
    let mut one = spec(1);
    one["type"] = json!(kind);
    if kind == "batch" {
        one["groups"][0].as_object_mut().unwrap().remove("update");
    }
    one["groups"][0]["reschedule"] = json!({ "delay": "0s", "delayFunction": "constant", "unlimited": true });
    one["groups"][0]["disconnect"] = json!({ "lostAfter": lost_after, "replace": replace });
    let before = match change {
        "in place" => before_an_in_place_change(one.clone()),
        "destructive" => before_a_destructive_change(one.clone()),
        _ => one.clone(),
    };
    if change == "count 0" {
        one["groups"][0]["count"] = json!(0);
    }
    let mut world = World::new(&one);
    world.old(&before);
    world.job.stopped = change == "stopped";
    world.put_job();
    match on(place) {
        Some(node) => world.view.put_node(node),
        None => drop(world.view.remove_node(&NodeName::from("n-0"))),
    }
    world.allocs([0], |alloc| {
        alloc.job_version = 0;
        state(client, alloc);
    });
    world.plan()
}

/// Rows of a grid: a state, then a cell for each sort of node.
fn check_grid(scene: Scene, grid: &[(&str, [&str; 6])]) {
    let mut wrong = Vec::new();
    for (client, cells) in grid {
        for (place, wanted) in NODES.iter().zip(cells) {
            let got = cell(&plan_of(scene, client, place));
            if got != *wanted {
                wrong.push(format!("{client} on a node that is {place}: {got}, not {wanted}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} {}:\n{}", scene.kind, scene.change, wrong.join("\n"));
}

const SERVICE: Scene = Scene { kind: "service", lost_after: "0s", replace: true, change: "nothing" };

#[test]
fn an_unchanged_service() {
    check_grid(
        SERVICE,
        &[
            ("pending", ["-", "-", "-", "LP", "LP", "LP"]),
            ("running", ["-", "-", "-", "LP", "LP", "LP"]),
            ("complete", ["P", "P", "P", "P", "P", "P"]),
            ("failed", ["RP", "RP", "RP", "RP", "RP", "RP"]),
            ("lost", ["P", "P", "P", "P", "P", "P"]),
            ("unknown", ["LP", "LP", "LP", "LP", "LP", "LP"]),
            ("moving", ["MP", "MP", "MP", "MP", "MP", "LP"]),
            // What is to end already holds no slot; where its node will never say so, it is marked.
            ("stopping", ["P", "P", "P", "LP", "LP", "P"]),
        ],
    );
}

#[test]
fn a_service_that_may_be_away_for_a_while() {
    check_grid(
        Scene { lost_after: "5m", ..SERVICE },
        &[
            ("pending", ["-", "-", "-", "LP", "LP", "LP"]),
            ("running", ["-", "-", "-", "LP", "LP", "XP"]),
            ("failed", ["RP", "RP", "RP", "RP", "RP", "RP"]),
            ("unknown", ["f", "f", "f", "LP", "LP", "fP"]),
            ("back", ["B", "B", "B", "LP", "LP", "XP"]),
            ("moving", ["MP", "MP", "MP", "MP", "MP", "XP"]),
        ],
    );
}

#[test]
fn a_service_that_is_not_replaced_while_it_is_away() {
    check_grid(
        Scene { lost_after: "5m", replace: false, ..SERVICE },
        &[
            ("pending", ["-", "-", "-", "LP", "LP", "LP"]),
            ("running", ["-", "-", "-", "X", "LP", "X"]),
            ("unknown", ["f", "f", "f", "f", "LP", "f"]),
            ("back", ["B", "B", "B", "X", "LP", "X"]),
        ],
    );
}

#[test]
fn a_service_with_a_change_that_needs_new_allocations() {
    check_grid(
        Scene { change: "destructive", ..SERVICE },
        &[
            ("pending", ["DP", "DP", "DP", "LP", "LP", "LP"]),
            ("running", ["DP", "DP", "DP", "LP", "LP", "LP"]),
            ("complete", ["P", "P", "P", "P", "P", "P"]),
            ("failed", ["RP", "RP", "RP", "RP", "RP", "RP"]),
            ("lost", ["P", "P", "P", "P", "P", "P"]),
            ("moving", ["MP", "MP", "MP", "MP", "MP", "LP"]),
        ],
    );
}

#[test]
fn a_service_with_a_change_that_nodes_take_over() {
    check_grid(
        Scene { change: "in place", ..SERVICE },
        &[
            ("pending", ["I", "I", "I", "LP", "LP", "LP"]),
            ("running", ["I", "I", "I", "LP", "LP", "LP"]),
            ("complete", ["P", "P", "P", "P", "P", "P"]),
            ("failed", ["RP", "RP", "RP", "RP", "RP", "RP"]),
            ("moving", ["MP", "MP", "MP", "MP", "MP", "LP"]),
        ],
    );
}

#[test]
fn a_job_of_which_nothing_is_wanted() {
    for kind in ["service", "batch"] {
        for change in ["stopped", "count 0"] {
            check_grid(
                Scene { kind, change, ..SERVICE },
                &[
                    ("pending", ["S", "S", "S", "L", "L", "L"]),
                    ("running", ["S", "S", "S", "L", "L", "L"]),
                    ("complete", ["-", "-", "-", "-", "-", "-"]),
                    ("failed", ["-", "-", "-", "-", "-", "-"]),
                    ("lost", ["-", "-", "-", "-", "-", "-"]),
                    ("moving", ["S", "S", "S", "L", "L", "L"]),
                    ("stopping", ["-", "-", "-", "L", "L", "-"]),
                ],
            );
        }
    }
}

#[test]
fn an_unchanged_batch_job() {
    check_grid(
        Scene { kind: "batch", ..SERVICE },
        &[
            ("pending", ["-", "-", "-", "LP", "LP", "LP"]),
            ("running", ["-", "-", "-", "LP", "LP", "LP"]),
            ("complete", ["-", "-", "-", "-", "-", "-"]),
            ("failed", ["RP", "RP", "RP", "RP", "RP", "RP"]),
            ("moving", ["MP", "MP", "MP", "MP", "MP", "LP"]),
        ],
    );
}

#[test]
fn a_batch_job_with_a_new_version() {
    check_grid(
        Scene { kind: "batch", change: "destructive", ..SERVICE },
        &[
            ("running", ["DP", "DP", "DP", "LP", "LP", "LP"]),
            // What an earlier version did does not count for this one.
            ("complete", ["P", "P", "P", "P", "P", "P"]),
            ("failed", ["P", "P", "P", "P", "P", "P"]),
        ],
    );
}
