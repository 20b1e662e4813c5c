//! The prerun hooks in their order, which is part of the contract.
//!
//! They run one after the other, also for restored allocations; the first error fails the allocation. A stop drops the
//! future of the hook that waits.

use futures::FutureExt;
use futures::future::BoxFuture;

use super::hook_error::AllocHookError;
use super::{admission, alloc_dir, await_previous, migrate_disk, network, services, volumes};
use crate::allocations::plan::AllocPlan;
use crate::node::alloc_dir::AllocDir;

type Prerun = for<'a> fn(&'a AllocPlan, &'a AllocDir) -> BoxFuture<'a, Result<(), AllocHookError>>;

/// The prerun hooks in their order.
const PRERUN: &[Prerun] = &[
    |plan, dir| alloc_dir::prerun(plan, dir).boxed(),
    |plan, _| await_previous::prerun(plan).boxed(),
    |plan, dir| migrate_disk::prerun(plan, dir).boxed(),
    |plan, _| admission::prerun(plan).boxed(),
    |plan, _| network::prerun(plan).boxed(),
    |plan, _| std::future::ready(services::prerun(plan)).boxed(),
    |plan, _| volumes::prerun(plan).boxed(),
];

/// Runs the prerun hooks.
pub(crate) async fn prerun(plan: &AllocPlan, dir: &AllocDir) -> Result<(), AllocHookError> {
    for hook in PRERUN {
        hook(plan, dir).await?;
    }
    Ok(())
}
