//! Helm, built once: what charts are rendered and installed with.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::programs::{GoModule, Programs};
use crate::progress::Progress;

const PROGRAMS: Programs = Programs {
    name: "helm",
    modules: &[GoModule { folder: "tools/helm", packages: &["helm.sh/helm/v4/cmd/helm"], ..GoModule::PLAIN }],
    instead: "set HELM to the path of Helm 4 (a build takes about 3 minutes)",
};

/// The path of Helm: what `HELM` names, else the one in the cache, which is built when it is missing.
///
/// # Errors
/// When Go is not installed, or the build fails.
pub fn find_or_build(progress: &Progress) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HELM").filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(path));
    }
    Ok(PROGRAMS.find_or_build(progress)?.join("helm"))
}

/// Runs this Helm with its folders in `home`: nothing of the user's own takes part.
pub fn command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(folder, home);
    }
    command
}
