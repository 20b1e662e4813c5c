//! What all runners of an agent share: explicit, and the same for every allocation and task.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover_clock::SharedClock;
use tokio::sync::Notify;

use super::starts::Starts;
use crate::csi::Csi;
use crate::node::machine_parts::MachineParts;
use crate::node::secrets::SecretReader;
use crate::node::view::NodeView;
use crate::random::Random;
use crate::reporting::events::EventSink;
use crate::reporting::metrics::NodeMetrics;
use crate::state::StateStore;
use crate::watch;
use drover_core::task::environment::NodeFacts;

/// What all runners of an agent share.
#[derive(Debug)]
pub(crate) struct RunnerEnv {
    pub(crate) state: StateStore,
    /// What is asked of the machine.
    pub(crate) machine: MachineParts,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) events: EventSink,
    pub(crate) node: watch::Receiver<NodeView>,
    pub(crate) max_kill_timeout: Duration,
    pub(crate) alloc_dir: PathBuf,
    /// Where FIFOs of output lie, one folder per allocation.
    pub(crate) fifo_dir: PathBuf,
    /// Opens when the first list of allocations was applied.
    pub(crate) contacted: watch::Receiver<bool>,
    /// Told when an allocation has ended: the node may have to give up an old one.
    pub(crate) garbage: Arc<Notify>,
    /// The tasks that are being started.
    pub(crate) starts: Starts,
    /// What operators are told.
    pub(crate) metrics: NodeMetrics,
    /// CSI plugins, and what is mounted.
    pub(crate) csi: Csi,
    /// Secrets that jobs name.
    pub(crate) secrets: Arc<dyn SecretReader>,
}

impl RunnerEnv {
    /// The node's facts now.
    pub(crate) fn node_facts(&self) -> Arc<NodeFacts> {
        Arc::clone(&self.node.borrow().facts)
    }
}
