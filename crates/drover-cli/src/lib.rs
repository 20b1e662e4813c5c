//! The user's command: one file per command, in `commands/<noun>/<verb>.rs`. Input: arguments. Output: results on
//! standard output, everything else on standard error, and an exit code. Must never hold a decision: what a plan or a
//! verdict is comes from `drover-core`.

mod cli;
mod cluster;
mod commands;
mod completion;
pub mod reference;
mod state;
mod ui;

pub use cli::{MoreCommands, command, run};
pub use ui::stdio::{answer, complain, read_input};
