//! Nomad's command line, unmodified, built once: what people have scripts around.

use std::path::PathBuf;

use anyhow::Result;

use crate::programs::{GoModule, Output, Programs};
use crate::progress::Progress;

const PROGRAM: &str = "nomad";

const PROGRAMS: Programs = Programs {
    name: "nomad-cli",
    modules: &[GoModule {
        folder: "tools/nomad-cli",
        packages: &["github.com/hashicorp/nomad"],
        output: Output::File(PROGRAM),
        // What starts its tasks, which is a part of the one program, is C.
        cgo: true,
        ..GoModule::PLAIN
    }],
    instead: "leave `cargo xtask test nomad-cli` out (a build takes about 10 minutes)",
};

/// The path of the program in the cache, after building it when it is missing.
///
/// # Errors
/// When Go is not installed, or the build fails.
pub fn find_or_build(progress: &Progress) -> Result<PathBuf> {
    Ok(PROGRAMS.find_or_build(progress)?.join(PROGRAM))
}
