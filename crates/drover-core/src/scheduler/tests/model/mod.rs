//! Plans beside a slow reading of the specification's tables, on random states: counts, what ends and why, which slots
//! are filled, and on which nodes where a job runs on each.
//!
//! The reading shares no code with the scheduler, and asks for no room: nodes have plenty. A debug build tries
//! thousands of states per type of job, a release build (`cargo test --release -p drover-core model`) 100,000, and says
//! how often each rule was met.

mod compare;
mod counted;
mod decided;
mod per_node;
mod states;
