//! The CSI project's external-attacher, built once: beside a driver it carries out what `VolumeAttachment`s ask for.

use std::path::PathBuf;

use anyhow::Result;

use crate::programs::{GoModule, Programs};
use crate::progress::Progress;

const PROGRAMS: Programs = Programs {
    name: "external-attacher",
    modules: &[GoModule {
        folder: "tools/external-attacher",
        packages: &["github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher"],
        ..GoModule::PLAIN
    }],
    instead: "leave the case of the cluster's drivers out (a build takes about 2 minutes)",
};

/// The path of csi-attacher in the cache, after building it when it is missing.
///
/// # Errors
/// When Go is not installed, or the build fails.
pub fn find_or_build(progress: &Progress) -> Result<PathBuf> {
    Ok(PROGRAMS.find_or_build(progress)?.join("csi-attacher"))
}
