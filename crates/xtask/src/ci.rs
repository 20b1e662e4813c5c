//! `cargo xtask ci`: the whole gate, the same on a laptop as in CI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::cargo;
use crate::crds;
use crate::progress::{Progress, print_line};
use crate::test_runner::{self, TestArgs};
use crate::workspace;

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
    ("module headers and test files", |_| tidy(&workspace::root())),
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

/// Every Rust file begins with what it is for, and every file of a test binary is part of it.
fn tidy(root: &Path) -> Result<()> {
    let mut files = Vec::new();
    for folder in ["src", "crates", "tests", "examples"] {
        rust_files(&root.join(folder), &mut files)?;
    }
    let mut faults = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let shown = file.strip_prefix(root).unwrap_or(file).display();
        if !text.trim_start().starts_with("//!") {
            faults.push(format!("{shown} does not begin with a header (`//!`) that says what it decides or does"));
        }
        if let Some(main) = main_without(file, &files)? {
            faults.push(format!(
                "{shown} is in no module: add it to {}",
                main.strip_prefix(root).unwrap_or(&main).display()
            ));
        }
    }
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry.with_context(|| format!("reading {}", folder.display()))?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

/// Returns the `main.rs` beside a file of a test binary when it does not name that file as a module.
fn main_without(file: &Path, files: &[PathBuf]) -> Result<Option<PathBuf>> {
    let (Some(folder), Some(name)) = (file.parent(), file.file_stem().and_then(|name| name.to_str())) else {
        return Ok(None);
    };
    let main = folder.join("main.rs");
    let is_test_folder = folder.parent().is_some_and(|parent| parent.ends_with("tests"));
    if !is_test_folder || name == "main" || !files.contains(&main) {
        return Ok(None);
    }
    let text = fs::read_to_string(&main).with_context(|| format!("reading {}", main.display()))?;
    let is_named = text.lines().any(|line| line.trim() == format!("mod {name};"));
    Ok((!is_named).then_some(main))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_header_and_tests_outside_of_their_binary_are_named() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("src/lib.rs", "//! Library.\n");
        write("src/bare.rs", "fn f() {}\n");
        write("tests/it/main.rs", "//! Tests.\nmod used;\n");
        write("tests/it/used.rs", "//! Used.\n");
        write("tests/it/forgotten.rs", "//! Forgotten.\n");
        assert_eq!(
            tidy(root.path()).unwrap_err().to_string(),
            "src/bare.rs does not begin with a header (`//!`) that says what it decides or does\n\
             tests/it/forgotten.rs is in no module: add it to tests/it/main.rs"
        );
    }
}
