//! Builds the daemons and the example programs, and puts copies into the data folder, where a later build does not change them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::Profile;
use super::layout::Layout;
use drover_testkit::cargo;
use drover_testkit::progress::Progress;
use drover_testkit::workspace;

/// What the agent's tasks find on their PATH.
const EXAMPLE_PROGRAMS: &[&str] = &["drover-example-web"];

/// Builds everything; returns the path of `droverd`.
pub(super) fn daemons(layout: &Layout, profile: Profile, progress: &Progress) -> Result<PathBuf> {
    let step = progress.step("building droverd and the examples");
    let mut args = vec!["build", "--package", "drover", "--bin", "droverd"];
    args.extend(EXAMPLE_PROGRAMS.iter().flat_map(|&program| ["--example", program]));
    if profile == Profile::Release {
        args.push("--release");
    }
    for built in cargo::build(&args, &step)? {
        copy(&built.executable, &layout.bin())?;
    }
    let droverd = layout.bin().join("droverd");
    if !droverd.is_file() {
        bail!("cargo built no droverd");
    }
    step.done("");
    Ok(droverd)
}

/// By a new file and a rename: the old one may be running.
fn copy(from: &Path, folder: &Path) -> Result<()> {
    let name = from.file_name().with_context(|| format!("{} has no name", from.display()))?;
    let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
    workspace::write_with_mode(&folder.join(name), &content, 0o755)
}
