//! What the agent's parts need to know of their node, and what its Events tell users.

use std::sync::Arc;

use drover_api::client_node::{DriverInfo, NodePhase};

use drover_core::task::environment::NodeFacts;

/// What people are told of a node by its agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeNews {
    /// A driver's health or description has changed.
    Driver(String, DriverInfo),
    /// The records of what ran are lost, and why.
    StateLost(String),
}

/// What the agent's parts need to know of their node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeView {
    /// The node's object, as last seen.
    pub(crate) uid: Option<String>,
    /// Where the controller has it.
    pub(crate) phase: NodePhase,
    /// For environments and interpolation.
    pub(crate) facts: Arc<NodeFacts>,
}

impl NodeView {
    /// Whether the controller takes status of its allocations.
    pub(crate) fn may_report(&self) -> bool {
        match self.phase {
            NodePhase::Ready | NodePhase::Initializing => true,
            NodePhase::Down | NodePhase::Disconnected => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s_173_a_node_that_is_down_or_cut_off_reports_nothing() {
        for (phase, may) in [
            (NodePhase::Ready, true),
            (NodePhase::Initializing, true),
            (NodePhase::Down, false),
            (NodePhase::Disconnected, false),
        ] {
            assert_eq!(NodeView { phase, ..NodeView::default() }.may_report(), may, "{phase}");
        }
    }
}
