//! The programs that jobs of `examples/` run.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::cargo;
use crate::progress::Progress;

/// The web server of `web.yaml` and `canary/`. The name of its package, too.
pub const WEB_SERVER: &str = "drover-example-web";

/// Builds the web server and returns its path.
///
/// # Errors
/// With cargo's own messages when the build fails.
pub fn build_web_server(progress: &Progress) -> Result<PathBuf> {
    let step = progress.step(format!("building {WEB_SERVER}"));
    let built = cargo::build(&["build", "--package", WEB_SERVER], &step)?;
    step.done("");
    let found = built.into_iter().find(|built| built.target == WEB_SERVER);
    Ok(found.with_context(|| format!("cargo built no {WEB_SERVER}"))?.executable)
}
