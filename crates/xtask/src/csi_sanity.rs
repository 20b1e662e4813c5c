//! The CSI project's own tests of drivers, built once.

use std::path::PathBuf;

use anyhow::Result;

use crate::programs::{GoModule, Programs};
use crate::progress::Progress;

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
