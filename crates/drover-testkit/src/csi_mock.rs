//! Kubernetes' own CSI mock driver, built once: it keeps its volumes in memory and checks what it is told.

use std::path::PathBuf;

use anyhow::Result;

use crate::programs::{GoModule, Output, Programs};
use crate::progress::Progress;

const PROGRAM: &str = "csi-mock";

const PROGRAMS: Programs = Programs {
    name: PROGRAM,
    modules: &[GoModule {
        folder: "tools/csi-mock",
        packages: &["."],
        output: Output::File(PROGRAM),
        ..GoModule::PLAIN
    }],
    instead: "leave the test of it out (a build takes about 1 minute)",
};

/// The path of the driver in the cache, after building it when it is missing.
///
/// # Errors
/// When Go is not installed, or the build fails.
pub fn find_or_build(progress: &Progress) -> Result<PathBuf> {
    Ok(PROGRAMS.find_or_build(progress)?.join(PROGRAM))
}
