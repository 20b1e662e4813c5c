//! What is taken back when no task of an allocation runs any more.

use futures::future;

use super::{network, volumes};
use crate::allocations::plan::AllocPlan;

/// Runs the postrun hooks, all of them, whatever becomes of one.
pub(crate) async fn postrun(plan: &AllocPlan) {
    future::join(network::postrun(plan), volumes::postrun(plan)).await;
}
