//! `drover simulate`: whole clusters on virtual time.
//!
//! Input: scenarios. Output: what went wrong, and on request everything that happened. The controller and the agents
//! are the real ones; only the API server ([`drover_store::memory`]), time, chance and the driver are not. Must never
//! hold a decision of theirs.

mod assertions;
mod clock;
mod command;
mod controllers;
mod expand;
mod feed;
mod filter;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod invariants;
mod link;
mod log;
mod many;
mod nodes;
mod operator;
mod plugins;
mod readiness;
mod report;
mod run;
mod scenario;
mod seam;
mod seam_store;
mod seeds;
mod state;
mod times;
mod verb;
mod world;

pub use command::{Args, Commands};
