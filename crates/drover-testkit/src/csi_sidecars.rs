//! What stands beside a driver in its pod, built once: the CSI project's `csi-attacher` carries out what
//! `VolumeAttachment`s ask for, `csi-registrar` registers the driver with the kubelet.

use std::path::PathBuf;

use anyhow::Result;

use crate::programs::{GoModule, Output, Programs};
use crate::progress::Progress;

const PROGRAMS: Programs = Programs {
    name: "csi-sidecars",
    modules: &[
        GoModule {
            folder: "tools/csi-sidecars",
            packages: &["github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher"],
            ..GoModule::PLAIN
        },
        GoModule {
            folder: "tools/csi-sidecars",
            packages: &["."],
            output: Output::File("csi-registrar"),
            ..GoModule::PLAIN
        },
    ],
    instead: "leave the case of the cluster's drivers out (a build takes about 2 minutes)",
};

/// The folder of the programs in the cache, after building them when they are missing.
///
/// # Errors
/// When Go is not installed, or the build fails.
pub fn find_or_build(progress: &Progress) -> Result<PathBuf> {
    PROGRAMS.find_or_build(progress)
}
