//! `drover simulate`: whole clusters on virtual time.
//!
//! Input: scenarios. Output: what went wrong, and on request everything that happened. The controller and the agents are the
//! real ones; only the API server ([`drover_sim`]), time, chance and the driver are not. Must never hold a decision of theirs.

mod assertions;
mod clock;
mod controllers;
mod expand;
mod feed;
mod filter;
mod invariants;
mod link;
mod log;
mod nodes;
mod person;
mod report;
mod run;
mod scenario;
mod seam;
mod state;
mod world;

use std::num::NonZero;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::ValueEnum;

use self::report::Title;
use self::run::{Outcome, Settings};
use self::scenario::Scenario;
use super::{answer, complain, read_input};
use crate::telemetry::{self, LogFormat};

/// What to run.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Scenarios in YAML; `-` is standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The seed of all chances.
    #[arg(long, default_value_t = 1, conflicts_with = "seeds")]
    seed: u64,
    /// Runs every seed from A to B and prints one line for each that fails, and a summary.
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Option<RangeInclusive<u64>>,
    /// Makes each run twice and fails where the second one does not give the same bytes.
    #[arg(long, conflicts_with_all = ["seeds", "crash_at_write", "wall_clock"])]
    twice: bool,
    /// Ends with the first seed that fails.
    #[arg(long, requires = "seeds")]
    until_failure: bool,
    /// Lets the controller crash after its Nth write (Leases and Events do not count); `all` tries every N and compares the end
    /// with that of a run without a crash.
    #[arg(long, value_name = "N|all", conflicts_with = "seeds")]
    crash_at_write: Option<CrashAt>,
    /// How the outcome is printed.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Says in `wallSeconds` how long the run took; the output then differs from run to run.
    #[arg(long)]
    wall_clock: bool,
    /// Shows what the controller and the agents log, as `drover=debug`, on standard error.
    #[arg(long, value_name = "FILTER", conflicts_with = "seeds")]
    log: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// For programs: one object per run.
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CrashAt {
    Write(u64),
    All,
}

impl std::str::FromStr for CrashAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            _ => text.parse().map(Self::Write).map_err(|_| "give the number of a write, or `all`".to_owned()),
        }
    }
}

fn parse_seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let wrong = || format!("{text:?} is no range of seeds; give one as 1..200");
    let (first, last) = text.split_once("..").ok_or_else(wrong)?;
    let number = |part: &str| part.parse::<u64>().map_err(|_| wrong());
    let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
    if first > last { Err(wrong()) } else { Ok(first..=last) }
}

/// Runs all scenarios; 1 when anything went wrong in one.
pub(super) fn run(args: &Args) -> anyhow::Result<u8> {
    if let Some(filter) = &args.log {
        telemetry::init(filter, LogFormat::Text)?;
    }
    let mut has_failed = false;
    for path in &args.files {
        let file = path.display().to_string();
        let bytes = read_input(path)?;
        let text = String::from_utf8(bytes).with_context(|| format!("{file} is no text"))?;
        let scenario = Scenario::parse(&text).with_context(|| file.clone())?;
        has_failed |= match (&args.seeds, args.crash_at_write) {
            (Some(seeds), _) => run_seeds(&scenario, &file, seeds.clone(), args.until_failure)?,
            (None, Some(CrashAt::All)) => run_crashes(&scenario, &file, args.seed)?,
            (None, Some(CrashAt::Write(write))) => run_one(&scenario, &file, args, Some(write))?,
            (None, None) => run_one(&scenario, &file, args, None)?,
        };
    }
    Ok(u8::from(has_failed))
}

fn run_one(scenario: &Scenario, file: &str, args: &Args, crash_at: Option<u64>) -> anyhow::Result<bool> {
    let title = Title { scenario: &scenario.name, file, seed: args.seed, crash_at };
    let keeps_timeline = args.output == Output::Json;
    let began = Instant::now();
    let settings = Settings { seed: args.seed, crash_at, keeps_timeline: keeps_timeline || args.twice };
    let mut outcome = run::run(scenario, settings)?;
    let wall = if args.wall_clock { began.elapsed() } else { Duration::ZERO };
    if args.twice {
        let second = run::run(scenario, settings)?;
        outcome.failures.extend(report::first_difference(&title, &outcome, &second));
    }
    match args.output {
        Output::Text => answer(report::text(&title, &outcome).as_bytes())?,
        Output::Json => {
            let mut bytes = serde_json::to_vec_pretty(&report::json(&title, &outcome, wall)).context("the outcome")?;
            bytes.push(b'\n');
            answer(&bytes)?;
        }
    }
    if !outcome.failures.is_empty() && args.output == Output::Json {
        complain(&format!("{} failed with seed {}; replay: {}", scenario.name, args.seed, title.replay()));
    }
    Ok(!outcome.failures.is_empty())
}

/// Runs every seed, or those up to the first that fails, on all cores.
fn run_seeds(scenario: &Scenario, file: &str, seeds: RangeInclusive<u64>, until_failure: bool) -> anyhow::Result<bool> {
    let runs: Vec<Settings> = seeds.map(|seed| Settings { seed, ..Settings::default() }).collect();
    let Judged { made, wrong } = run_many(scenario, &runs, until_failure, |settings, outcome| {
        let first = outcome.failures.first()?;
        let title = Title { scenario: &scenario.name, file, seed: settings.seed, crash_at: None };
        Some(format!(
            "seed {} failed at {}: {}; replay: {}",
            settings.seed,
            log::at_text(first.at),
            first.what,
            title.replay()
        ))
    })?;
    answer(format!("{}: {} of {made} seeds pass\n", scenario.name, made - wrong).as_bytes())?;
    Ok(wrong > 0)
}

/// Lets the controller crash after each of its writes in turn, and compares the ends. What a scenario expects on its way is not asked:
/// a new leader takes its time.
fn run_crashes(scenario: &Scenario, file: &str, seed: u64) -> anyhow::Result<bool> {
    let plain = run::run(scenario, Settings { seed, ..Settings::default() })?;
    ensure!(plain.failures.is_empty(), "{file}: the run without a crash fails already: {}", plain.failures[0].what);
    let n_writes = plain.durable_writes;
    let runs = (1..=n_writes).map(|write| Settings { seed, crash_at: Some(write), keeps_timeline: false });
    let judged = run_many(scenario, &runs.collect::<Vec<_>>(), false, |settings, outcome| {
        let what = match outcome.failures.iter().find(|failure| failure.counts_after_a_crash(scenario.last_step())) {
            Some(failure) => format!("at {}: {}", log::at_text(failure.at), failure.what),
            None if outcome.end_state != plain.end_state => {
                format!("the end differs: {} instead of {}", outcome.end_state, plain.end_state)
            }
            None => return None,
        };
        let title = Title { scenario: &scenario.name, file, seed, crash_at: settings.crash_at };
        Some(format!("crash after write {}: {what}; replay: {}", settings.crash_at.unwrap_or(0), title.replay()))
    })?;
    answer(
        format!("{}: {} of {n_writes} crashes end as the run without one\n", scenario.name, n_writes - judged.wrong)
            .as_bytes(),
    )?;
    Ok(judged.wrong > 0)
}

/// How many runs were made, and how many of them were found wanting.
struct Judged {
    made: u64,
    wrong: u64,
}

/// Makes many runs, on all cores, and prints a line for each that `judge` finds wanting, in the order of the runs. Where one is
/// enough no run begins after it, but those before it are ended, so that it is the first one.
fn run_many(
    scenario: &Scenario,
    runs: &[Settings],
    one_is_enough: bool,
    judge: impl Fn(&Settings, &Outcome) -> Option<String> + Sync,
) -> anyhow::Result<Judged> {
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let lines: Mutex<Vec<(u64, String)>> = Mutex::default();
    let work = || -> anyhow::Result<u64> {
        let mut made = 0;
        while !is_over.load(Ordering::Relaxed) {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(settings) = usize::try_from(n).ok().and_then(|n| runs.get(n)) else { break };
            let outcome = run::run(scenario, *settings)?;
            made += 1;
            if let Some(line) = judge(settings, &outcome) {
                is_over.fetch_or(one_is_enough, Ordering::Relaxed);
                lines.lock().map_err(|_| anyhow::anyhow!("another thread broke off"))?.push((n, line));
            }
        }
        Ok(made)
    };
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let made = std::thread::scope(|scope| {
        let others: Vec<_> = (1..cores).map(|_| scope.spawn(work)).collect();
        let mut made = work()?;
        for other in others {
            made += other.join().map_err(|_| anyhow::anyhow!("a run panicked; its message is above"))??;
        }
        anyhow::Ok(made)
    })?;
    let mut lines = lines.into_inner().map_err(|_| anyhow::anyhow!("another thread broke off"))?;
    lines.sort();
    for (_, line) in &lines {
        answer(format!("{line}\n").as_bytes())?;
    }
    Ok(Judged { made, wrong: u64::try_from(lines.len()).unwrap_or(u64::MAX) })
}
