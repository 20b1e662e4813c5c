//! Nomad's library as a client, built once: it reads answers strictly and does what clients of Nomad do.

use std::path::PathBuf;

use anyhow::Result;

use crate::programs::{GoModule, Output, Programs};
use crate::progress::Progress;

const PROGRAM: &str = "nomad-sdk";

const PROGRAMS: Programs = Programs {
    name: PROGRAM,
    modules: &[GoModule {
        folder: "tools/nomad-sdk",
        packages: &["."],
        output: Output::File(PROGRAM),
        ..GoModule::PLAIN
    }],
    instead: "leave the tests with it out (a build takes about 10 seconds)",
};

/// The path of the program in the cache, after building it when it is missing.
///
/// # Errors
/// When Go is not installed, or the build fails.
pub fn find_or_build(progress: &Progress) -> Result<PathBuf> {
    Ok(PROGRAMS.find_or_build(progress)?.join(PROGRAM))
}
