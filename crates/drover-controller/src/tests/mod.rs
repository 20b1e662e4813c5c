//! A cluster for tests: a leader on simulated time over the in-memory store, with agents and people who do what a test
//! says. Beside it the tests of what the components share.

mod accidents;
mod objects;
mod rollouts;
mod stops;
mod store;
mod world;

pub(crate) use accidents::{Scene, Story, no_accident_changes_the_end};
pub(crate) use objects::{group, job, node, service};
pub(crate) use world::{World, conflict, in_default, unavailable};
