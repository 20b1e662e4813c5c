//! Fetches one artifact, in a process of its own: `droverd fetch`.
//!
//! Input: an [`Order`] on standard input, a folder of the caller's as working directory. Output: what was fetched in
//! its sub-folder `result`, and an [`Answer`] on standard output. The caller looks at the result before it goes where
//! tasks are.
//!
//! Whatever a server sends, this process can do no more than fill that folder: it is the user `nobody`, reads only what
//! look-ups of names need, starts no program, and its files, bytes, memory and time are limited. It ends with its
//! caller.
//!
//! Must never know: allocations, tasks, the API server, credentials of the node.

mod budget;
mod connect;
mod download;
mod exchange;
mod git;
mod oci;
mod order;
mod pack;
mod packed;
mod part;
mod parts;
mod run;
mod smart_http;
mod unpack;
mod waiting;

pub use order::{Answer, FetchLimits, Order, RESULT};
pub use run::run;

#[cfg(test)]
mod tests;
