//! kubeconform, built once: what manifests are checked with against schemas.

use std::path::PathBuf;

use anyhow::Result;

use crate::programs::{GoModule, Programs};
use crate::progress::Progress;

const PROGRAMS: Programs = Programs {
    name: "kubeconform",
    modules: &[GoModule {
        folder: "tools/kubeconform",
        packages: &["github.com/yannh/kubeconform/cmd/kubeconform"],
        ..GoModule::PLAIN
    }],
    instead: "leave the test of the chart's manifests out (a build takes about 1 minute)",
};

/// The path of kubeconform in the cache, after building it when it is missing.
///
/// # Errors
/// When Go is not installed, or the build fails.
pub fn find_or_build(progress: &Progress) -> Result<PathBuf> {
    Ok(PROGRAMS.find_or_build(progress)?.join("kubeconform"))
}
