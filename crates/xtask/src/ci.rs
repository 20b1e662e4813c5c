//! `cargo xtask ci`: the whole gate, the same on a laptop as in CI.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use drover_testkit::cargo;
use drover_testkit::progress::{Progress, print_line};
use drover_testkit::workspace;

use crate::crds;
use crate::test_runner::{self, TestArgs};
use crate::tidy;

/// What `ci` is told.
#[derive(Debug, Clone, Default, Args)]
pub struct CiArgs {
    /// Leave out a check by its name, repeatable
    #[arg(long, value_name = "NAME", value_parser = CHECKS.iter().map(|(name, _)| *name).collect::<Vec<_>>())]
    pub except: Vec<String>,
}

type Check = fn(&Progress) -> Result<()>;

const CHECKS: &[(&str, Check)] = &[
    ("format", |_| cargo_check(&["fmt", "--all", "--check"])),
    ("tidy", |_| tidy::check()),
    ("imports", |_| tidy::imports::check()),
    ("production builds", |_| tidy::production::check()),
    ("custom resource definitions", |_| crds::check()),
    ("documents", |_| documents()),
    ("pure crates build alone", |_| cargo_check(&["check", "--package", "drover-api", "--package", "drover-core"])),
    ("clippy", |_| cargo_check(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])),
    // No test run builds them, so that nothing else would see them rot.
    ("clippy of the cluster's tests", |_| {
        cargo_check(&["clippy", "--workspace", "--test", "e2e", "--", "-D", "warnings"])
    }),
    ("documentation", |_| documentation()),
    ("dependencies", deny),
    ("tests", |progress| test_runner::run(&TestArgs::default(), progress)),
];

/// `cargo xtask ci`. Goes on after a failure, so that one run tells everything.
///
/// # Errors
/// Names the checks that failed.
pub fn run(args: &CiArgs, progress: &Progress) -> Result<()> {
    let before = tree_changes()?;
    let mut failed = Vec::new();
    for (name, check) in CHECKS.iter().filter(|(name, _)| !args.except.iter().any(|left_out| left_out == name)) {
        let step = progress.step(*name);
        match check(progress) {
            Ok(()) => step.done(""),
            Err(error) => {
                drop(step);
                print_line(&format!("{name}: {error:#}"));
                failed.push(*name);
            }
        }
    }
    if tree_changes()? != before {
        print_line("the checks changed files of the tree: see `git status`");
        failed.push("clean tree");
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

fn cargo_check(args: &[&str]) -> Result<()> {
    let mut command = cargo::command();
    command.args(args);
    succeed(command)
}

fn documentation() -> Result<()> {
    let mut command = cargo::command();
    command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    succeed(command)
}

/// The parser of this program's commands is not in reach of a library, so the program itself is asked.
fn documents() -> Result<()> {
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args(["docs", "--check"]);
    succeed(command)
}

/// Licenses, bans and sources. The database of advisories is not always reachable, so it is no part of the gate.
fn deny(progress: &Progress) -> Result<()> {
    if workspace::find_on_path("cargo-deny").is_none() {
        progress.note("cargo-deny is not installed: licenses, bans and sources of dependencies are not checked (`cargo install cargo-deny`)");
        return Ok(());
    }
    cargo_check(&["deny", "check", "bans", "licenses", "sources"])
}

fn succeed(mut command: Command) -> Result<()> {
    let output = command.output().with_context(|| format!("starting {}", command.get_program().display()))?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        bail!("ended with {}\n{text}", output.status);
    }
    Ok(())
}

fn tree_changes() -> Result<String> {
    let output = Command::new("git")
        .args(["status", "--porcelain"])
        .current_dir(workspace::root())
        .output()
        .context("starting git")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
