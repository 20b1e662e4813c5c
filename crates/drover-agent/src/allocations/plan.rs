//! What the runner of an allocation is made from, and what is wanted of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::group::Group;
use drover_api::{Allocation, JobSpec};
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::admission::Admission;
use super::commands::AllocCommand;
use super::volume_sources::VolumeSources;
use crate::node::alloc_dir::AllocDir;
use crate::reporting::report;
use crate::reporting::reports::Reports;
use crate::tasks::plan::Recovering;
use crate::tasks::record::TaskRecord;
use crate::tasks::runner_env::RunnerEnv;
use crate::watch;

/// What the agent wants of an allocation's runner now.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The object as last seen.
    pub(crate) allocation: Arc<Allocation>,
    /// Its job, in the version that it runs.
    pub(crate) job: Arc<JobSpec>,
    /// Its group in that version.
    pub(crate) group: Arc<Group>,
    /// Nothing of it may stay, neither process nor file: the object is gone, or the node needs the room.
    pub(crate) is_destroyed: bool,
    /// The node has been without a controller for longer than the group allows.
    pub(crate) is_disconnected: bool,
    /// The controller holds it for unknown and has taken our node back.
    pub(crate) reconnects: u32,
}

impl Wanted {
    /// Whether its tasks are to run.
    pub(crate) fn is_to_run(&self) -> bool {
        !self.is_destroyed && !self.is_disconnected && report::is_wanted(&self.allocation)
    }
}

/// Waits until an allocation that this one replaces has ended.
pub(crate) type PreviousEnd = Arc<dyn Fn(&Allocation, &str) -> BoxFuture<'static, ()> + Send + Sync>;

/// What an allocation's runner is made from.
pub(crate) struct AllocPlan {
    pub(crate) uid: String,
    pub(crate) env: Arc<RunnerEnv>,
    pub(crate) reports: Reports,
    pub(crate) admission: Admission,
    pub(crate) previous_end: PreviousEnd,
    /// The directory of the allocation that this one replaces, when that one ran here.
    pub(crate) previous_dir: Option<AllocDir>,
    pub(crate) job: Arc<JobSpec>,
    pub(crate) group: Arc<Group>,
    pub(crate) wanted: watch::Receiver<Wanted>,
    /// What people ask of it.
    pub(crate) commands: mpsc::Receiver<AllocCommand>,
    /// Tells whether the allocation has ended here.
    pub(crate) ended: watch::Sender<bool>,
    pub(crate) shutdown: CancellationToken,
    /// The tasks' records of an earlier life of the agent; empty for a new allocation.
    pub(crate) restored: BTreeMap<String, TaskRecord>,
    /// Held until every task has been found again or given up.
    pub(crate) recovering: Option<Recovering>,
    /// Where the group's volumes are, once that is known.
    pub(crate) volumes: VolumeSources,
}

/// Makes the runners of a node's allocations. The agent knows of a runner only this: it is told what is wanted, leaves
/// reports, says when the allocation has ended, and its future is ready when it was destroyed or the agent ends.
pub(crate) trait Runners: Send + Sync + 'static {
    /// The whole life of one allocation on this node.
    fn run(&self, plan: AllocPlan) -> BoxFuture<'static, ()>;
}
