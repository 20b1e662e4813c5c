//! `cargo xtask docs`: the references that are made from the code, and whether the documents are true of it.
//!
//! [`run`] writes or compares. The rest are checks on text: each gets the documents and returns its findings, one line
//! each.

mod blocks;
mod commands;
mod documents;
mod job_reference;
mod links;
mod run;
mod runbooks;
mod specs;

pub use run::{DocsArgs, run};
