//! What clients of Nomad change: each request becomes an [`WriteOrder`], which says what its caller must be allowed to
//! do, which objects are written, and what is answered when they are.
//!
//! Input: a path ([`WriteEndpoint`]), a body, and what is known of the cluster. Output: an order, or a refusal. The
//! same input gives the same order: where another writer was first, the request is ordered again from what is then
//! known. What others do of it is no part of an order: an [`Outcome`] finds it in what is known later. Must never know
//! who asks, nor how an object is written.

mod allocations;
mod authors;
mod body;
mod deployments;
mod endpoint;
mod following;
mod hearing;
mod jobs;
mod launches;
mod nodes;
mod order;
mod ordering;
mod outcome;
mod planning;
mod register;
mod snapshots;
#[cfg(test)]
mod tests;
mod versions;
mod volume_register;
mod volumes;
mod written;

pub use authors::of_job as rights_of_job;
pub use endpoint::{VersionTag, WriteEndpoint};
pub(crate) use endpoint::{is_written, of as endpoint};
pub use hearing::hearing;
pub use order::{Change, Demand, Target, Way, WholeObject, WriteOrder, WriteView};
pub use ordering::order;
pub use outcome::Outcome;
pub use planning::{PlanOrder, plan_order};
pub use written::Written;
