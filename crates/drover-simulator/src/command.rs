//! The command: what is run, how often, and how it is reported.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::{Subcommand, ValueEnum};

use super::many::{Tally, Verdict, Work};
use super::report::Title;
use super::run::{Outcome, Settings};
use super::scenario::Scenario;
use super::world::CrashPoint;
use super::{many, report, run, state, times};
use drover_cli::{MoreCommands, answer, complain, read_input};
use drover_daemon::telemetry::{self, LogFormat};

/// The commands of this crate.
#[derive(Debug, Subcommand)]
pub enum Commands {
    /// Runs scenarios on whole clusters in virtual time: the real controller and agents, with every fault that a seed
    /// draws.
    Simulate(Args),
}

impl MoreCommands for Commands {
    fn run(self) -> anyhow::Result<u8> {
        match self {
            Self::Simulate(args) => run(&args),
        }
    }
}

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Args {
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
    #[arg(long, conflicts_with_all = ["seeds", "crash_at_write", "crash_at_call", "wall_clock"])]
    twice: bool,
    /// Ends with the first seed that fails.
    #[arg(long, requires = "seeds")]
    until_failure: bool,
    /// Lets the controller crash after its Nth write (Leases and Events do not count); `all` tries every N and compares
    /// the end with that of a run without a crash.
    #[arg(long, value_name = "N|all", conflicts_with = "seeds")]
    crash_at_write: Option<CrashAt>,
    /// Lets the controller crash at the Nth moment in the lives of calls to storage plugins: a plugin is called, it has
    /// answered, or its node's agent has told so. `all` tries every N as above; both options may ask for all.
    #[arg(long, value_name = "N|all", conflicts_with = "seeds")]
    crash_at_call: Option<CrashAt>,
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
    Number(u64),
    All,
}

impl std::str::FromStr for CrashAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            _ => text.parse().map(Self::Number).map_err(|_| "give a number, or `all`".to_owned()),
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
fn run(args: &Args) -> anyhow::Result<u8> {
    if let Some(filter) = &args.log {
        telemetry::init(filter, LogFormat::Text)?;
    }
    // What is mistyped in the last one is said before the first one runs.
    let files: Vec<ScenarioFile> =
        args.files.iter().map(|path| ScenarioFile::read(path)).collect::<anyhow::Result<_>>()?;
    let mut has_failed = false;
    match (&args.seeds, args.crashes()?) {
        (Some(seeds), _) => {
            for file in &files {
                has_failed |= run_seeds(file, seeds.clone(), args.until_failure)?;
            }
        }
        (None, Crashes::Every { writes, calls }) => {
            for file in &files {
                has_failed |= run_crashes(file, args.seed, writes, calls)?;
            }
        }
        (None, Crashes::One(crash_at)) => has_failed = run_each(&files, args, Some(crash_at))?,
        (None, Crashes::None) => has_failed = run_each(&files, args, None)?,
    }
    Ok(u8::from(has_failed))
}

/// The crashes of the controller that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crashes {
    None,
    One(CrashPoint),
    /// A run for each write, each moment of a call, or each of both.
    Every {
        writes: bool,
        calls: bool,
    },
}

impl Args {
    fn crashes(&self) -> anyhow::Result<Crashes> {
        use CrashAt::{All, Number};
        Ok(match (self.crash_at_write, self.crash_at_call) {
            (None, None) => Crashes::None,
            (Some(Number(write)), None) => Crashes::One(CrashPoint::Write(write)),
            (None, Some(Number(call))) => Crashes::One(CrashPoint::Call(call)),
            (Some(Number(_)), Some(_)) | (Some(_), Some(Number(_))) => {
                bail!("--crash-at-write and --crash-at-call: one run has one crash; give one number, or `all` to both")
            }
            (writes, calls) => Crashes::Every { writes: writes == Some(All), calls: calls == Some(All) },
        })
    }
}

/// A scenario and where it stands.
struct ScenarioFile {
    name: String,
    scenario: Scenario,
}

impl ScenarioFile {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let text = String::from_utf8(read_input(path)?).with_context(|| format!("{name} is no text"))?;
        let scenario = Scenario::parse(&text).with_context(|| name.clone())?;
        Ok(Self { name, scenario })
    }

    fn title(&self, settings: &Settings) -> Title<'_> {
        let (seed, crash_at) = (settings.seed, settings.crash_at);
        Title { scenario: &self.scenario.name, file: &self.name, seed, crash_at }
    }
}

/// Runs each scenario once, and says all about it.
fn run_each(files: &[ScenarioFile], args: &Args, crash_at: Option<CrashPoint>) -> anyhow::Result<bool> {
    // What several log at once cannot be told apart, and what runs beside another takes longer.
    let n_threads = if args.log.is_some() || args.wall_clock { 1 } else { many::cores() };
    let work = Work { name: "simulation", unit: "scenarios", n: files.len(), n_threads };
    let keeps_timeline = args.output == Output::Json || args.twice;
    let settings = Settings { seed: args.seed, crash_at, keeps_timeline };
    let tally = many::each(
        work,
        |n| run_one(&files[n], args, settings),
        |n, (is_right, bytes)| {
            answer(&bytes)?;
            if is_right {
                return Ok(Verdict::Right);
            }
            if args.output == Output::Json {
                let title = files[n].title(&settings);
                complain(&format!("{} failed with seed {}; replay: {}", title.scenario, title.seed, title.replay()));
            }
            Ok(Verdict::Wrong)
        },
    )?;
    Ok(tally.n_wrong > 0)
}

/// Runs a scenario; whether all was right, and what is printed of it.
fn run_one(file: &ScenarioFile, args: &Args, settings: Settings) -> anyhow::Result<(bool, Vec<u8>)> {
    let title = file.title(&settings);
    let began = Instant::now();
    let mut outcome = run::run(&file.scenario, settings)?;
    let wall = if args.wall_clock { began.elapsed() } else { Duration::ZERO };
    if args.twice {
        let second = run::run(&file.scenario, settings)?;
        outcome.failures.extend(report::first_difference(&title, &outcome, &second));
    }
    let bytes = match args.output {
        Output::Text => report::text(&title, &outcome).into_bytes(),
        Output::Json => {
            let mut bytes = serde_json::to_vec_pretty(&report::json(&title, &outcome, wall)).context("the outcome")?;
            bytes.push(b'\n');
            bytes
        }
    };
    Ok((outcome.failures.is_empty(), bytes))
}

/// Runs every seed, or those up to the first that fails.
fn run_seeds(file: &ScenarioFile, seeds: RangeInclusive<u64>, until_failure: bool) -> anyhow::Result<bool> {
    let runs: Vec<Settings> = seeds.map(|seed| Settings { seed, ..Settings::default() }).collect();
    let wrong = if until_failure { Verdict::Enough } else { Verdict::Wrong };
    let tally = run_many(file, "seeds", &runs, wrong, |settings, outcome| {
        let first = outcome.failures.first()?;
        let (seed, at, replay) = (settings.seed, times::at_text(first.at), file.title(settings).replay());
        Some(format!("seed {seed} failed at {at}: {}; replay: {replay}", first.what))
    })?;
    let Tally { n_done, n_wrong } = tally;
    answer(format!("{}: {} of {n_done} seeds pass\n", file.scenario.name, n_done - n_wrong).as_bytes())?;
    Ok(n_wrong > 0)
}

/// Lets the controller crash after each of its writes, and at each moment of a plugin call, in turn, and compares the
/// ends. What a scenario expects on its way is not asked: a new leader takes its time.
fn run_crashes(file: &ScenarioFile, seed: u64, writes: bool, calls: bool) -> anyhow::Result<bool> {
    let ScenarioFile { name, scenario } = file;
    let plain = run::run(scenario, Settings { seed, ..Settings::default() })?;
    ensure!(plain.failures.is_empty(), "{name}: the run without a crash fails already: {}", plain.failures[0].what);
    let at_writes = (1..=plain.durable_writes).filter(|_| writes).map(CrashPoint::Write);
    let at_calls = (1..=plain.call_moments).filter(|_| calls).map(CrashPoint::Call);
    let crashing = |crash_at| Settings { seed, crash_at: Some(crash_at), keeps_timeline: false };
    let runs: Vec<Settings> = at_writes.chain(at_calls).map(crashing).collect();
    let tally = run_many(file, "crashes", &runs, Verdict::Wrong, |settings, outcome| {
        let what = match outcome.failures.iter().find(|failure| failure.counts_after_a_crash(scenario.last_step())) {
            Some(failure) => format!("at {}: {}", times::at_text(failure.at), failure.what),
            None => format!("the end differs: {}", state::first_difference(&plain.end_state, &outcome.end_state)?),
        };
        Some(format!("{what}; replay: {}", file.title(settings).replay()))
    })?;
    let Tally { n_done, n_wrong } = tally;
    let n_same = n_done - n_wrong;
    answer(format!("{}: {n_same} of {n_done} crashes end as the run without one\n", scenario.name).as_bytes())?;
    Ok(n_wrong > 0)
}

/// Makes many runs and prints a line for each that `judge` finds wanting.
fn run_many(
    file: &ScenarioFile,
    unit: &str,
    runs: &[Settings],
    wrong: Verdict,
    judge: impl Fn(&Settings, &Outcome) -> Option<String> + Sync,
) -> anyhow::Result<Tally> {
    let work = Work { name: &file.scenario.name, unit, n: runs.len(), n_threads: many::cores() };
    many::each(
        work,
        |n| Ok(judge(&runs[n], &run::run(&file.scenario, runs[n])?)),
        |_, line| {
            let Some(line) = line else { return Ok(Verdict::Right) };
            answer(format!("{line}\n").as_bytes())?;
            Ok(wrong)
        },
    )
}
