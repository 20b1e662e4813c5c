//! Writes the references, or fails with everything that is wrong with the documents.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use super::documents::Documents;
use super::{blocks, commands, job_reference, links, runbooks, specs};
use drover_testkit::cargo;
use drover_testkit::progress::{Progress, print_note};
use drover_testkit::workspace;

/// The package whose test compares the reference of commands with the parser, and writes it.
const CLI_PACKAGE: &str = "drover";
/// That test.
const CLI_TEST: &str = "the_reference_names_every_command";
/// The reference of the job's fields.
const JOB_REFERENCE: &str = "docs/job-reference.md";
/// The reference of commands.
const CLI_REFERENCE: &str = "docs/cli-reference.md";

/// What `docs` is told.
#[derive(Debug, Clone, Default, Args)]
pub struct DocsArgs {
    /// Writes nothing; fails on a stale reference, a dead link, an undocumented command
    #[arg(long)]
    pub check: bool,
}

/// `cargo xtask docs`. `xtask` is the parser of the project's own commands.
///
/// # Errors
/// When a reference cannot be written, or with every finding of the checks.
pub fn run(args: &DocsArgs, xtask: &clap::Command, progress: &Progress) -> Result<()> {
    let root = workspace::root();
    let wanted = job_reference::render()?;
    if !args.check {
        workspace::write_with_mode(&root.join(JOB_REFERENCE), wanted.as_bytes(), 0o644)?;
        print_note(&format!("wrote {JOB_REFERENCE}"));
        write_cli_reference(progress)?;
    }
    let findings = check(&root, &wanted, xtask)?;
    if findings.is_empty() { Ok(()) } else { bail!("{}", findings.join("\n")) }
}

/// The parser of the command line lives in its own package, so its test writes what it expects.
fn write_cli_reference(progress: &Progress) -> Result<()> {
    let step = progress.step(format!("writing {CLI_REFERENCE}"));
    let mut command = cargo::command();
    command.args(["test", "--quiet", "--package", CLI_PACKAGE, "--bin", "drover", CLI_TEST]).env("UPDATE_EXPECT", "1");
    let output = command.output().context("starting cargo")?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        bail!("cargo test {CLI_TEST} ended with {}\n{text}", output.status);
    }
    step.done("");
    Ok(())
}

fn check(root: &Path, job_reference: &str, xtask: &clap::Command) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let path = root.join(JOB_REFERENCE);
    if fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))? != job_reference {
        findings.push(format!("{JOB_REFERENCE} differs from the schema: run `cargo xtask docs`"));
    }
    let documents = Documents::read(root)?;
    findings.extend(links::dead(root, &documents));
    findings.extend(links::orphans(&documents));
    findings.extend(blocks::unmarked(&documents));
    findings.extend(commands::undocumented(&documents, xtask));
    findings.extend(commands::unknown(&documents, documents.text(CLI_REFERENCE).unwrap_or_default(), xtask));
    findings.extend(runbooks::missing(root, &documents)?);
    findings.extend(specs::differing(root)?);
    Ok(findings)
}
