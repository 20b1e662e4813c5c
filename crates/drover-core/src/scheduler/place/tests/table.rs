//! The table of ready nodes: which are in it, where, and by which rank equals win.

use std::collections::BTreeSet;

use drover_api::client_node::NodePhase;
use fastrand::Rng;

use crate::ids::NodeName;
use crate::model::Node;
use crate::scheduler::place::node_table::NodeTable;
use crate::scheduler::tests::node;
use crate::snapshot::ClusterView;

fn view(nodes: impl IntoIterator<Item = Node>) -> ClusterView {
    let mut view = ClusterView::default();
    nodes.into_iter().for_each(|node| view.put_node(node));
    view
}

#[test]
fn only_ready_nodes_are_in_it_in_the_order_of_their_names() {
    let view = view([
        node("n-3"),
        node("n-10"),
        Node { phase: NodePhase::Down, ..node("n-1") },
        Node { phase: NodePhase::Disconnected, ..node("n-11") },
        Node { phase: NodePhase::Initializing, ..node("n-2") },
        Node { is_draining: true, ..node("n-4") },
        Node { is_eligible: false, ..node("n-5") },
        node("a"),
    ]);
    let table = NodeTable::new(&view, &mut Rng::with_seed(1));
    let names: Vec<&str> = table.rows().map(|row| table.entry(row).node.name.as_str()).collect();
    assert_eq!((table.len(), names.as_slice()), (3, &["a", "n-10", "n-3"][..]));
    for row in table.rows() {
        assert_eq!(table.row_of(&table.entry(row).node.name), Some(row));
    }
    for absent in ["n-1", "n-4", "n-5", "n", "z", ""] {
        assert_eq!(table.row_of(&NodeName::from(absent)), None, "{absent:?}");
    }
}

#[test]
fn every_rank_is_given_once_and_every_node_is_first_for_some_seed() {
    let view = view((0..6).map(|n| node(&format!("n-{n}"))));
    let ranks = |seed: u64| {
        let table = NodeTable::new(&view, &mut Rng::with_seed(seed));
        table.rows().map(|row| table.rank(row)).collect::<Vec<_>>()
    };
    let mut first = BTreeSet::new();
    for seed in 0..100 {
        let of_seed = ranks(seed);
        assert_eq!(of_seed.iter().copied().collect::<BTreeSet<_>>(), (0..6).collect(), "seed {seed}");
        assert_eq!(ranks(seed), of_seed, "the same seed, the same order");
        first.extend(of_seed.iter().position(|rank| *rank == 0));
    }
    assert_eq!(first, (0..6).collect(), "nodes that were first");
}
