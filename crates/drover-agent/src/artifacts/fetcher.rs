//! Who fetches artifacts.

use std::fmt::Debug;

use drover_core::artifact::FetchPlan;
use drover_core::task::sandbox_path::SandboxPath;
use futures::future::BoxFuture;

use crate::node::alloc_dir::AllocDir;
use crate::node::beneath::Owner;

/// One artifact that is to be there.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    /// From where, and what becomes of it.
    pub(crate) plan: FetchPlan,
    /// Where it goes.
    pub(crate) destination: SandboxPath,
    /// The directory of its allocation.
    pub(crate) dir: AllocDir,
    /// The name of its task.
    pub(crate) task: String,
    /// Its place in the task's list.
    pub(crate) number: usize,
    /// Whose the directories on the way become; none: the user `nobody`'s, or the agent's own.
    pub(crate) owner: Option<Owner>,
    /// Whose the files become; none: they stay the user `nobody`'s.
    pub(crate) chown: Option<Owner>,
}

/// Fetches artifacts.
pub(crate) trait Fetcher: Debug + Send + Sync {
    /// Fetches one and puts it where it belongs, or says why not. Another try may help. Dropping it ends the download.
    fn fetch(&self, fetch: Fetch) -> BoxFuture<'static, Result<(), String>>;
}

/// Fetches nothing, and says that it did: for machines without a network.
#[cfg(any(test, feature = "simulated"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlwaysFetched;

#[cfg(any(test, feature = "simulated"))]
impl Fetcher for AlwaysFetched {
    fn fetch(&self, _: Fetch) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
