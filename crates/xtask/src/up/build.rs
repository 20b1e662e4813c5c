//! Builds the daemons and the example programs, and puts copies into the data folder, where a later build does not
//! change them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use drover_testkit::cargo::{self, Profile};
use drover_testkit::examples;
use drover_testkit::progress::Progress;
use drover_testkit::workspace;

use super::layout::Layout;
use crate::tidy::production;

/// Builds everything; returns the path of `droverd`.
pub(super) fn daemons(layout: &Layout, profile: Profile, progress: &Progress) -> Result<PathBuf> {
    // What the agent's tasks find on their PATH.
    copy(&examples::build_web_server(progress)?, &layout.bin())?;
    let step = progress.step("building droverd");
    let mut args = vec!["build", "--bin", "droverd"];
    match profile {
        Profile::Release => args.extend(production::SELECTION.into_iter().chain(["--release"])),
        // No package is named: cargo then builds the dependencies with the same features for whatever is built, the
        // tests and `cargo xtask` too, and each of them once. The default features hold the user's command, which
        // nothing here runs.
        Profile::Dev => args.push("--no-default-features"),
    }
    let built = cargo::build(&args, &step)?;
    let droverd = built.iter().find(|built| built.target == "droverd").context("cargo built no droverd")?;
    copy(&droverd.executable, &layout.bin())?;
    step.done("");
    Ok(layout.bin().join("droverd"))
}

/// By a new file and a rename: the old one may be running.
fn copy(from: &Path, folder: &Path) -> Result<()> {
    let name = from.file_name().with_context(|| format!("{} has no name", from.display()))?;
    let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
    workspace::write_with_mode(&folder.join(name), &content, 0o755)
}
