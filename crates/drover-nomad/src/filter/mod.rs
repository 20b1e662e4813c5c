//! Nomad's filter language: `ClientStatus == "running" and JobID matches "^web"`.
//!
//! Input: an expression, at most 4 KiB and 32 levels deep. Output: a [`Filter`] that says of an object in wire names
//! whether it is meant. Regular expressions take linear time. Must never know what an object is.

mod evaluate;
mod lexer;
mod parser;

pub use evaluate::Filter;
