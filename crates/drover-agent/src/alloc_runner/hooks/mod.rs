//! What is done around an allocation's tasks: one file per hook, in one ordered table. The order is part of the contract.
//!
//! Prerun hooks run one after the other, also for restored allocations; the first error fails the allocation. A stop drops the
//! future of the hook that waits.

use futures::FutureExt;
use futures::future::BoxFuture;

pub(super) use volumes::{postrun, statuses};

use super::AllocPlan;
use crate::dirs::AllocDir;

mod admission;
mod alloc_dir;
mod await_previous;
mod migrate_disk;
mod volumes;

/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
#[error("{hook}: {reason}")]
pub(super) struct HookError {
    pub(super) hook: &'static str,
    pub(super) reason: String,
}

type Prerun = for<'a> fn(&'a AllocPlan, &'a AllocDir) -> BoxFuture<'a, Result<(), HookError>>;

/// The prerun hooks in their order.
const PRERUN: &[Prerun] = &[
    |plan, dir| std::future::ready(alloc_dir::prerun(plan, dir)).boxed(),
    |plan, _| await_previous::prerun(plan).boxed(),
    |plan, dir| std::future::ready(migrate_disk::prerun(plan, dir)).boxed(),
    |plan, _| admission::prerun(plan).boxed(),
    |plan, _| volumes::prerun(plan).boxed(),
];

/// Runs the prerun hooks.
pub(super) async fn prerun(plan: &AllocPlan, dir: &AllocDir) -> Result<(), HookError> {
    for hook in PRERUN {
        hook(plan, dir).await?;
    }
    Ok(())
}
