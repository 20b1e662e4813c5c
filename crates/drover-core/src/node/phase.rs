//! Which phase a node is in after a heartbeat, and after its silence (`spec/scheduler.md` 9 and 11).
//!
//! Input: the view, with the node's allocations. Output: the phase. Must never know how silence is told; that is
//! `heartbeat`'s.

use drover_api::GoDuration;
use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::client_node::NodePhase;
use jiff::Timestamp;

use crate::ids::NodeName;
use crate::model::Alloc;
use crate::scheduler::reconcile::{expires_at, lost_after};
use crate::snapshot::ClusterView;

/// What a node becomes whose silence is proven: disconnected while an allocation of it may be away, else down.
pub fn after_silence(view: &ClusterView, node: &NodeName, phase: NodePhase, now: Timestamp) -> NodePhase {
    match phase {
        NodePhase::Down | NodePhase::Initializing => NodePhase::Down,
        NodePhase::Ready | NodePhase::Disconnected => {
            if window_ends_at(view, node, now).is_some() {
                NodePhase::Disconnected
            } else {
                NodePhase::Down
            }
        }
    }
}

/// When the last allocation of a silent node that may be away now is lost; none where no one may. O(allocations on the
/// node).
pub fn window_ends_at(view: &ClusterView, node: &NodeName, now: Timestamp) -> Option<Timestamp> {
    let may_be_away = |alloc: &&std::sync::Arc<Alloc>| {
        alloc.desired == DesiredStatus::Run
            && !alloc.is_terminal()
            && lost_after(view, alloc) > GoDuration::ZERO
            && (alloc.client == ClientStatus::Running || alloc.client == ClientStatus::Unknown)
    };
    let end = |alloc: &std::sync::Arc<Alloc>| {
        if alloc.client == ClientStatus::Unknown {
            expires_at(view, alloc)
        } else {
            Some(crate::scheduler::reschedule::after(now, lost_after(view, alloc)))
        }
    };
    view.allocs_on_node(node).filter(may_be_away).filter_map(end).filter(|end| *end > now).max()
}

/// What a node becomes that is heard of. One that was disconnected is ready only when its agent has reported how its
/// allocations fare.
pub fn after_beat(view: &ClusterView, node: &NodeName, phase: NodePhase) -> NodePhase {
    match phase {
        NodePhase::Ready | NodePhase::Down => NodePhase::Ready,
        NodePhase::Disconnected | NodePhase::Initializing => {
            if owes_report(view, node) {
                NodePhase::Initializing
            } else {
                NodePhase::Ready
            }
        }
    }
}

/// Whether a node has allocations that were disconnected, and none of them has been reported since.
fn owes_report(view: &ClusterView, node: &NodeName) -> bool {
    let live = || view.allocs_on_node(node).filter(|alloc| !alloc.is_client_terminal());
    let is_silent = |alloc: &std::sync::Arc<Alloc>| alloc.client == ClientStatus::Unknown;
    live().any(is_silent) && live().all(is_silent)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheduler::tests::{World, now, spec};

    fn on_n0(lost_after: Option<&str>, n_allocs: i64, client: ClientStatus) -> World {
        let mut spec = spec(1);
        if let Some(lost_after) = lost_after {
            spec["groups"][0]["disconnect"] = json!({ "lostAfter": lost_after });
        }
        let mut world = World::new(&spec);
        world.allocs(0..n_allocs, |alloc| {
            alloc.client = client;
            if client == ClientStatus::Unknown {
                alloc.states = vec![(ClientStatus::Unknown, now())];
            }
        });
        world
    }

    fn silent(world: &World, phase: NodePhase, at: Timestamp) -> NodePhase {
        after_silence(&world.view, &"n-0".into(), phase, at)
    }

    #[test]
    fn s_172_a_silent_node_is_cut_off_only_while_something_on_it_may_be_away() {
        for (lost_after, n_allocs, client, wanted) in [
            (None, 0, ClientStatus::Running, NodePhase::Down),
            (None, 1, ClientStatus::Running, NodePhase::Down),
            (Some("0s"), 1, ClientStatus::Running, NodePhase::Down),
            (Some("1h"), 1, ClientStatus::Running, NodePhase::Disconnected),
            (Some("1h"), 1, ClientStatus::Complete, NodePhase::Down),
        ] {
            let world = on_n0(lost_after, n_allocs, client);
            assert_eq!(silent(&world, NodePhase::Ready, now()), wanted, "{lost_after:?} {client}");
            assert_eq!(silent(&world, NodePhase::Initializing, now()), NodePhase::Down, "never heard of");
        }
    }

    #[test]
    fn a_cut_off_node_is_down_when_every_window_is_over() {
        let world = on_n0(Some("1h"), 1, ClientStatus::Unknown);
        let after = |minutes| now() + jiff::SignedDuration::from_mins(minutes);
        assert_eq!(silent(&world, NodePhase::Disconnected, after(59)), NodePhase::Disconnected);
        assert_eq!(window_ends_at(&world.view, &"n-0".into(), now()), Some(after(60)));
        assert_eq!(silent(&world, NodePhase::Disconnected, after(60)), NodePhase::Down);
    }

    #[test]
    fn s_174_a_cut_off_node_that_is_heard_of_is_ready_when_its_agent_has_reported() {
        let beat = |world: &World, phase| after_beat(&world.view, &"n-0".into(), phase);
        let mut world = on_n0(Some("1h"), 1, ClientStatus::Unknown);
        assert_eq!(beat(&world, NodePhase::Disconnected), NodePhase::Initializing);
        assert_eq!(beat(&world, NodePhase::Initializing), NodePhase::Initializing);
        assert_eq!(beat(&world, NodePhase::Down), NodePhase::Ready, "at once");
        let mut reported = (**world.view.allocs().next().unwrap()).clone();
        reported.client = ClientStatus::Running;
        world.view.put_alloc(reported);
        assert_eq!(beat(&world, NodePhase::Initializing), NodePhase::Ready);
        assert_eq!(beat(&on_n0(Some("1h"), 0, ClientStatus::Running), NodePhase::Disconnected), NodePhase::Ready);
    }
}
