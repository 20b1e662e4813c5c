//! The CSI project's own tests of drivers, built once, and the example driver that they are run against.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::cargo;
use crate::programs::{GoModule, Programs};
use crate::progress::Progress;

/// The example driver's program.
const DRIVER: &str = "csi-hostdir";

const PROGRAMS: Programs = Programs {
    name: "csi-sanity",
    modules: &[GoModule {
        folder: "tools/csi-sanity",
        packages: &["github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"],
        ..GoModule::PLAIN
    }],
    instead: "leave the test of the example driver out (a build takes about 1 minute)",
};

/// The path of csi-sanity in the cache, after building it when it is missing.
///
/// # Errors
/// When Go is not installed, or the build fails.
pub fn find_or_build(progress: &Progress) -> Result<PathBuf> {
    Ok(PROGRAMS.find_or_build(progress)?.join("csi-sanity"))
}

/// Builds the example driver as the tests are built, and returns its path.
///
/// # Errors
/// With cargo's own messages when the build fails.
pub fn build_driver(progress: &Progress) -> Result<PathBuf> {
    let step = progress.step(format!("building {DRIVER}"));
    let built = cargo::build(&["build", "--workspace", "--bin", DRIVER], &step)?;
    step.done("");
    let found = built.into_iter().find(|built| built.target == DRIVER);
    Ok(found.with_context(|| format!("cargo built no {DRIVER}"))?.executable)
}
