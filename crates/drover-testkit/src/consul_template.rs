//! consul-template as a library, built once: it renders what tests compare drover's rendering with.

use std::path::PathBuf;

use anyhow::Result;

use crate::programs::{GoModule, Output, Programs};
use crate::progress::Progress;

const PROGRAM: &str = "consul-template";

const PROGRAMS: Programs = Programs {
    name: PROGRAM,
    modules: &[GoModule {
        folder: "tools/consul-template",
        packages: &["."],
        output: Output::File(PROGRAM),
        ..GoModule::PLAIN
    }],
    instead: "leave the tests with it out (a build takes about 1 minute)",
};

/// The path of the program in the cache, after building it when it is missing.
///
/// # Errors
/// When Go is not installed, or the build fails.
pub fn find_or_build(progress: &Progress) -> Result<PathBuf> {
    Ok(PROGRAMS.find_or_build(progress)?.join(PROGRAM))
}
