//! The user's command: one file per command. Input: arguments. Output: results on standard output, everything else on standard
//! error, and an exit code. Must never hold a decision: what a plan or a verdict is comes from `drover-core`.

mod alloc;
mod cli;
mod completion;
mod connect;
mod deployment;
mod dump;
mod follow;
mod job;
mod jsonpath;
mod manifest;
mod node;
mod objects;
mod output;
mod plan;
pub mod reference;
mod state;
mod stdio;
mod system;
mod table;
mod tree;
mod trouble;
mod until;
mod validate;
mod volume;

pub use cli::{MoreCommands, command, run};
pub use stdio::{answer, complain, read_input};
