//! Every combination of an allocation and its node, beside the table of 3.2 read from top to bottom.

use std::collections::BTreeSet;

use drover_api::GoDuration;
use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::client_node::NodePhase;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::ids::NodeName;
use crate::model::{Alloc, Node};
use crate::scheduler::reconcile::sort::{Class, classify};
use crate::scheduler::tests::{World, key, node, now, spec};

const DESIRED: [DesiredStatus; 3] = [DesiredStatus::Run, DesiredStatus::Stop, DesiredStatus::Evict];
const CLIENT: [ClientStatus; 6] = [
    ClientStatus::Pending,
    ClientStatus::Running,
    ClientStatus::Complete,
    ClientStatus::Failed,
    ClientStatus::Lost,
    ClientStatus::Unknown,
];

/// Where an allocation may be, by the name of its node.
fn nodes() -> Vec<Node> {
    let named = |name: &str, phase, is_draining, is_eligible| Node { phase, is_eligible, is_draining, ..node(name) };
    vec![
        named("ready", NodePhase::Ready, false, true),
        named("ineligible", NodePhase::Ready, false, false),
        named("draining", NodePhase::Ready, true, false),
        named("initializing", NodePhase::Initializing, false, true),
        named("initializing-draining", NodePhase::Initializing, true, false),
        named("down", NodePhase::Down, false, true),
        named("down-draining", NodePhase::Down, true, false),
        named("disconnected", NodePhase::Disconnected, false, true),
    ]
}

fn seconds_ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// What the controller noted: nothing; cut off; cut off long ago, and again; cut off and back.
fn notes() -> [Vec<(ClientStatus, Timestamp)>; 5] {
    let unknown = |seconds| (ClientStatus::Unknown, seconds_ago(seconds));
    [
        Vec::new(),
        vec![unknown(30)],
        vec![unknown(600), unknown(30)],
        vec![unknown(600), (ClientStatus::Running, seconds_ago(60)), unknown(30)],
        vec![unknown(30), (ClientStatus::Running, seconds_ago(20))],
    ]
}

/// The `disconnect` block of the group.
#[derive(Clone, Copy, Debug)]
struct Block {
    lost_after: i64,
    replace: bool,
}

impl Block {
    fn written(self) -> Value {
        json!({ "lostAfter": format!("{}s", self.lost_after), "replace": self.replace })
    }
}

/// The first row of the table that matches, and its class.
fn row(alloc: &Alloc, on: Option<&Node>, block: Block) -> (u8, Class) {
    let is_unknown = alloc.client == ClientStatus::Unknown;
    let newest_is_unknown = alloc.states.last().is_some_and(|(status, _)| *status == ClientStatus::Unknown);
    let reconnecting = matches!(alloc.client, ClientStatus::Unknown | ClientStatus::Running | ClientStatus::Failed)
        && newest_is_unknown;
    let has_failed = alloc.client == ClientStatus::Failed;
    let server_terminal = alloc.desired != DesiredStatus::Run;
    let client_terminal = matches!(alloc.client, ClientStatus::Complete | ClientStatus::Failed | ClientStatus::Lost);
    let over = (server_terminal || client_terminal) && !reconnecting;
    let window = GoDuration::from_secs(block.lost_after);
    let mut last_unknown = None;
    for (status, at) in &alloc.states {
        last_unknown = (*status == ClientStatus::Unknown).then(|| last_unknown.unwrap_or(*at));
    }
    let has_expired =
        last_unknown.is_some_and(|at| now().duration_since(at).as_nanos() >= i128::from(window.as_nanos()));
    let phase = on.map(|node| node.phase);
    let is_disconnected = phase == Some(NodePhase::Disconnected);
    let is_tainted =
        on.is_none_or(|node| node.is_draining || matches!(node.phase, NodePhase::Down | NodePhase::Disconnected));
    let is_untainted_or_ready = !is_tainted || phase == Some(NodePhase::Ready);
    let is_down = phase == Some(NodePhase::Down);
    let rows = [
        (reconnecting && !server_terminal && has_failed, Class::Reconnecting),
        (over && server_terminal && alloc.transition.migrate_disable_placement, Class::Untainted),
        (over && server_terminal, Class::Ignored),
        (over && alloc.canary && alloc.transition.migrate, Class::Migrating),
        (over, Class::Untainted),
        (is_unknown && has_expired, Class::Expiring),
        (reconnecting && has_failed && server_terminal, Class::Ignored),
        (is_disconnected && is_unknown, Class::Untainted),
        (is_disconnected && alloc.client == ClientStatus::Pending, Class::Lost),
        (is_disconnected && block.lost_after == 0, Class::Lost),
        (is_disconnected, Class::Disconnecting),
        (alloc.transition.migrate, Class::Migrating),
        // One that is unknown still was not reported yet: who stays is decided on what its agent says.
        (is_untainted_or_ready && reconnecting && !is_unknown, Class::Reconnecting),
        (is_untainted_or_ready, Class::Untainted),
        (on.is_none(), Class::Lost),
        (is_down && !block.replace && is_unknown, Class::Untainted),
        (is_down && !block.replace && alloc.client == ClientStatus::Running, Class::Disconnecting),
        (is_down, Class::Lost),
        (true, Class::Untainted),
    ];
    let at = rows.iter().position(|(matches, _)| *matches).unwrap();
    (u8::try_from(at).unwrap() + 1, rows[at].1)
}

#[test]
fn every_allocation_is_of_the_class_of_the_first_row_that_matches() {
    let blocks = [(0, true), (0, false), (300, true), (300, false), (20, true)];
    let mut seen: BTreeSet<u8> = BTreeSet::new();
    let mut n_cases = 0;
    for block in blocks.map(|(lost_after, replace)| Block { lost_after, replace }) {
        let mut one = spec(1);
        one["groups"][0]["disconnect"] = block.written();
        let mut world = World::new(&one);
        for node in nodes() {
            world.view.put_node(node);
        }
        world.allocs([0], |_| {});
        let plain = (**world.view.allocs_of_job(&key()).next().unwrap()).clone();
        let places: Vec<NodeName> = nodes().into_iter().map(|node| node.name).chain([NodeName::from("gone")]).collect();
        for desired in DESIRED {
            for client in CLIENT {
                for states in notes() {
                    let is_noted = states.last().is_some_and(|(status, _)| *status == ClientStatus::Unknown);
                    if client == ClientStatus::Unknown && !is_noted {
                        continue;
                    }
                    for flags in 0..8_u8 {
                        for place in &places {
                            let mut alloc = Alloc { desired, client, states: states.clone(), ..plain.clone() };
                            alloc.transition.migrate = flags & 1 != 0;
                            alloc.transition.migrate_disable_placement = flags & 2 != 0;
                            alloc.canary = flags & 4 != 0;
                            alloc.node = place.clone();
                            let on = world.view.node(place).map(|node| &**node);
                            let (number, wanted) = row(&alloc, on, block);
                            let got = classify(&world.view, &alloc, now());
                            assert_eq!(got, wanted, "row {number} on {place} with {block:?}: {alloc:?}");
                            seen.insert(number);
                            n_cases += 1;
                        }
                    }
                }
            }
        }
    }
    assert_eq!(seen, (1..=19).collect(), "rows that no case reached are missing");
    assert!(n_cases > 20_000, "{n_cases} cases");
}

#[test]
fn one_that_is_being_deleted_is_to_end_like_a_stopped_one() {
    let mut world = World::new(&spec(1));
    world.allocs([0], |alloc| alloc.is_deleting = true);
    let alloc = world.view.allocs_of_job(&key()).next().unwrap();
    assert_eq!(classify(&world.view, alloc, now()), Class::Ignored);
}
