//! Builds the daemons and the example programs, and puts copies into the data folder, where a later build does not change them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};

use super::Profile;
use super::layout::Layout;
use crate::progress::{Progress, Step};
use crate::spawner::spawn_bound_to_this_process;
use crate::workspace;

/// What the agent's tasks find on their PATH.
const EXAMPLE_PROGRAMS: &[&str] = &["drover-example-web"];

/// Builds everything; returns the path of `droverd`.
pub(super) fn daemons(layout: &Layout, profile: Profile, progress: &Progress) -> Result<PathBuf> {
    let step = progress.step("building droverd and the examples");
    for executable in executables(profile, &step)? {
        copy(&executable, &layout.bin())?;
    }
    let droverd = layout.bin().join("droverd");
    if !droverd.is_file() {
        bail!("cargo built no droverd");
    }
    step.done("");
    Ok(droverd)
}

fn executables(profile: Profile, step: &Step) -> Result<Vec<PathBuf>> {
    let mut command = workspace::cargo();
    command.args(["build", "--package", "drover", "--bin", "droverd", "--message-format", "json-render-diagnostics"]);
    for program in EXAMPLE_PROGRAMS {
        command.args(["--example", program]);
    }
    if profile == Profile::Release {
        command.arg("--release");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn_bound_to_this_process(command).context("starting cargo")?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Both pipes are read at once: a full one would stop cargo.
    let output = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut text = String::new();
            stdout.map_or(Ok(0), |mut stdout| stdout.read_to_string(&mut text)).map(|_| text)
        });
        let diagnostics = show_lines(stderr, step);
        (reader.join(), diagnostics)
    });
    let status = child.wait().context("waiting for cargo")?;
    let (Ok(stdout), diagnostics) = output else { bail!("the reader of cargo's output has ended") };
    if !status.success() {
        bail!("cargo build ended with {status}:\n{diagnostics}");
    }
    Ok(stdout.context("reading cargo's output")?.lines().filter_map(executable).collect())
}

/// Shows what cargo compiles and returns all it said.
fn show_lines(stderr: Option<impl std::io::Read>, step: &Step) -> String {
    let mut text = String::new();
    let lines = stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines().map_while(std::result::Result::ok));
    for line in lines {
        step.detail(line.trim());
        text += &line;
        text.push('\n');
    }
    text
}

fn executable(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    message.get("executable")?.as_str().map(PathBuf::from)
}

/// By a new file and a rename: the old one may be running.
fn copy(from: &Path, folder: &Path) -> Result<()> {
    let name = from.file_name().with_context(|| format!("{} has no name", from.display()))?;
    let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
    workspace::write_with_mode(&folder.join(name), &content, 0o755)
}
