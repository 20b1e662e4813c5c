//! `cargo xtask status`: what runs, and where its logs are.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use drover_testkit::control_plane::Role;
use drover_testkit::progress::print_line;
use serde::Serialize;

use super::layout::Layout;
use super::state::State;

/// What `status` is told.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// The data folder [default: .drover in the checkout]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Output,
}

/// A form of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusReport {
    kubeconfig: PathBuf,
    data_dir: PathBuf,
    processes: Vec<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    role: Role,
    pid: i32,
    rss_bytes: u64,
    log: PathBuf,
}

/// `cargo xtask status`. The exit code is 1 when nothing runs, and when something does not run that was started.
///
/// # Errors
/// When the state file cannot be read.
pub fn status(args: &StatusArgs) -> Result<ExitCode> {
    let layout = Layout::at(args.data.as_deref())?;
    let state = State::read(&layout)?.unwrap_or_default();
    let rows = state.running(&layout).into_iter().map(|(role, id)| Row {
        role,
        pid: id.pid,
        rss_bytes: id.rss_bytes(),
        log: layout.log(role),
    });
    let report =
        StatusReport { kubeconfig: state.kubeconfig.clone(), data_dir: layout.root.clone(), processes: rows.collect() };
    match args.output {
        Output::Json => print_line(&serde_json::to_string(&report).context("rendering the report")?),
        Output::Table => print_table(&report, &state, &layout),
    }
    let is_whole = !report.processes.is_empty() && state.dead().is_empty();
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_table(report: &StatusReport, state: &State, layout: &Layout) {
    if report.processes.is_empty() {
        print_line(&format!("nothing runs in {}; start it with `cargo xtask up`", report.data_dir.display()));
        return;
    }
    print_line(&format!("kubeconfig  {}", report.kubeconfig.display()));
    print_line(&format!("data        {}", report.data_dir.display()));
    print_line(&format!("session     {}", layout.session_log().display()));
    print_line(&format!("{:<24} {:>8} {:>9}  LOG", "ROLE", "PID", "RSS"));
    for Row { role, pid, rss_bytes, log } in &report.processes {
        print_line(&format!("{:<24} {pid:>8} {:>5} MiB  {}", role.name(), rss_bytes >> 20, log.display()));
    }
    for dead in state.dead() {
        print_line(&format!("{:<24} {:>8} {:>9}  {}", dead.role.name(), "-", "not running", dead.log.display()));
    }
}
