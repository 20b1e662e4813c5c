//! Who sends probes.

use std::fmt::Debug;

use drover_core::service::{CheckAnswer, Probe};
use futures::future::BoxFuture;

/// Sends probes. The caller bounds the wait.
pub(crate) trait Prober: Debug + Send + Sync {
    /// Sends one, and says what was answered.
    fn probe<'a>(&'a self, probe: &'a Probe) -> BoxFuture<'a, CheckAnswer>;
}

/// Answers every probe with a success, and asks nothing: for machines without ports.
#[cfg(any(test, feature = "simulated"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlwaysWell;

#[cfg(any(test, feature = "simulated"))]
impl Prober for AlwaysWell {
    fn probe<'a>(&'a self, _: &'a Probe) -> BoxFuture<'a, CheckAnswer> {
        Box::pin(std::future::ready(CheckAnswer::connected()))
    }
}
