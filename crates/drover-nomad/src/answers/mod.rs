//! What reads are answered: from what is known of the cluster, and no more of it than the caller may see.

mod agent;
mod allocations;
mod answer;
mod cluster;
mod deployments;
mod evaluations;
mod index;
mod jobs;
mod metrics;
mod pools;
mod reply;
mod scaling;
mod services;
mod view;
mod volumes;

pub use agent::{AgentFacts, Counted, ServerFacts};
pub use answer::answer;
pub use evaluations::is_unseen;
pub use index::index;
pub use reply::{Form, Reply};
pub use view::View;
