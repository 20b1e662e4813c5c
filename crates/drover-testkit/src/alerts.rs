//! `tools/alerts`, built once: Prometheus' own packages check alerting rules and evaluate them on scrapes.
//!
//! promtool would do that too, but links every service discovery of Prometheus, one of which needs a module that the Go
//! proxy refuses.

use std::path::PathBuf;

use anyhow::Result;

use crate::programs::{GoModule, Output, Programs};
use crate::progress::Progress;

const PROGRAMS: Programs = Programs {
    name: "alerts",
    modules: &[GoModule {
        folder: "tools/alerts",
        packages: &["."],
        output: Output::File("alerts"),
        ..GoModule::PLAIN
    }],
    instead: "leave the test of the chart's alerts out (a build takes about 1 minute)",
};

/// The path of the program, after building it when it is missing.
///
/// # Errors
/// When Go is not installed, or the build fails.
pub fn find_or_build(progress: &Progress) -> Result<PathBuf> {
    Ok(PROGRAMS.find_or_build(progress)?.join("alerts"))
}
