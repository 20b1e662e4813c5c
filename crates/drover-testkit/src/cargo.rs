//! Runs cargo and shows what it does; returns the programs that it built.

use std::io::{BufRead as _, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use serde_json::Value;

use crate::progress::Step;
use crate::spawner::spawn_bound_to_this_process;
use crate::workspace;

/// How programs are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// As users run them.
    Release,
    /// Quicker to build, slower to run.
    Dev,
}

/// A program that cargo built.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Built {
    /// The folder of its package.
    pub package_dir: PathBuf,
    /// The name of its target.
    pub target: String,
    /// Whether it is a test binary.
    pub is_test: bool,
    /// Where it lies.
    pub executable: PathBuf,
}

/// Returns the `cargo` that started us, else the one on `PATH`, to be run in the checkout.
pub fn command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Test binaries run with it (see `test_runner`) and may run us; it would make cargo build everything again.
    command.current_dir(workspace::root()).env_remove("RUSTC_BOOTSTRAP");
    command
}

/// Runs a `cargo build` or `cargo test --no-run` and returns what it built.
///
/// # Errors
/// With cargo's own messages when the build fails.
pub fn build(args: &[&str], step: &Step) -> Result<Vec<Built>> {
    build_with(args, &[], step)
}

/// The same, with environment variables of its own.
///
/// # Errors
/// With cargo's own messages when the build fails.
pub fn build_with(args: &[&str], environment: &[(String, String)], step: &Step) -> Result<Vec<Built>> {
    let mut command = command();
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.args(args).args(["--message-format", "json-render-diagnostics"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn_bound_to_this_process(command).context("starting cargo")?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Both pipes are read at once: a full one would stop cargo.
    let (stdout, diagnostics) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut text = String::new();
            stdout.map_or(Ok(0), |mut stdout| stdout.read_to_string(&mut text)).map(|_| text)
        });
        let diagnostics = show_lines(stderr, step);
        (reader.join(), diagnostics)
    });
    let status = child.wait().context("waiting for cargo")?;
    if !status.success() {
        bail!("cargo {} ended with {status}:\n{diagnostics}", args.join(" "));
    }
    let Ok(stdout) = stdout else { bail!("the reader of cargo's output has ended") };
    Ok(stdout.context("reading cargo's output")?.lines().filter_map(built).collect())
}

/// Shows what cargo compiles and returns all its messages.
fn show_lines(stderr: Option<impl Read>, step: &Step) -> String {
    let mut text = String::new();
    let lines = stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines().map_while(std::result::Result::ok));
    for line in lines {
        step.detail(line.trim());
        text += &line;
        text.push('\n');
    }
    text
}

fn built(line: &str) -> Option<Built> {
    let message: Value = serde_json::from_str(line).ok()?;
    let manifest = PathBuf::from(message.get("manifest_path")?.as_str()?);
    Some(Built {
        package_dir: manifest.parent()?.to_path_buf(),
        target: message.pointer("/target/name")?.as_str()?.to_owned(),
        is_test: message.pointer("/profile/test")?.as_bool()?,
        executable: PathBuf::from(message.get("executable")?.as_str()?),
    })
}
