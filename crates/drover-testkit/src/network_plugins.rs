//! Plugins of the Container Network Interface, built once: what tests of CNI networks run.

use std::path::PathBuf;

use anyhow::Result;

use crate::programs::{GoModule, Programs};
use crate::progress::Progress;

const PROGRAMS: Programs = Programs {
    name: "cni",
    modules: &[GoModule {
        folder: "tools/cni",
        packages: &[
            "github.com/containernetworking/plugins/plugins/main/ptp",
            "github.com/containernetworking/plugins/plugins/ipam/host-local",
        ],
        ..GoModule::PLAIN
    }],
    instead: "leave the tests of CNI networks out (a build takes some seconds)",
};

/// The folder of the plugins in the cache, after building them when they are missing.
///
/// # Errors
/// When Go is not installed, or the build fails.
pub fn find_or_build(progress: &Progress) -> Result<PathBuf> {
    PROGRAMS.find_or_build(progress)
}
