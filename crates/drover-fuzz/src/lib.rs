//! What reads bytes of others, as functions of bytes: libFuzzer calls them with `cargo xtask fuzz`, and a test with the
//! inputs in `corpus/`, among them each that once broke something.
//!
//! A function returns whatever the bytes are. What may not happen is a panic, an abort, or work or memory without
//! bounds.

mod job_file;
mod job_spec;
mod mutator;
mod nomad_request;
mod nomad_write;
mod targets;

pub use mutator::mutate;
pub use targets::{Target, by_name, targets};

#[cfg(test)]
mod tests;
