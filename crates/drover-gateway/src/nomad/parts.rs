//! What Nomad's API answers from, and writes with.

use drover_clock::SharedClock;
use drover_daemon::monitor::Metrics;
use drover_nomad::AgentFacts;
use drover_store::KubeStore;
use tokio_util::sync::CancellationToken;

use super::caches::Caches;
use super::controllers::Controllers;
use crate::reviews::Reviews;
use crate::tunnels::Nodes;

/// What the API answers from.
pub(crate) struct NomadParts {
    pub(crate) caches: Caches,
    pub(crate) reviews: Reviews,
    pub(crate) facts: AgentFacts,
    pub(crate) controllers: Controllers,
    /// What is counted, and shown.
    pub(crate) metrics: Metrics,
    /// What leads to the agents of nodes.
    pub(crate) nodes: Nodes,
    /// What writes objects; none: clients only read.
    pub(crate) store: Option<KubeStore>,
    /// Tells the time.
    pub(crate) clock: SharedClock,
    /// The replica ends: readers that wait are answered.
    pub(crate) ends: CancellationToken,
}
