//! Fetching artifacts: a download in a process of its own, its result looked at and then moved to where the task is.
//! What a source asks for, and which addresses may be reached, is `drover-core`'s decision; the download itself is
//! `drover-fetch`'s.
//!
//! Invariants: nothing that is only half there lies where a task is; nothing is written through a link; what was
//! downloaded has neither links nor rights beyond those of a file's user.

mod fetcher;
mod host_fetcher;
mod placement;

#[cfg(any(test, feature = "simulated"))]
pub(crate) use fetcher::AlwaysFetched;
pub(crate) use fetcher::{Fetch, Fetcher};
pub(crate) use host_fetcher::HostFetcher;
