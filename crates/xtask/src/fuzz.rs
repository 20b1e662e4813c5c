//! `fuzz`: gives the readers of others' bytes to libFuzzer, which changes inputs as the covered code says.
//!
//! Input: `crates/drover-fuzz/corpus/<target>`. Output: a table in Markdown; with `--keep`, the inputs that reach code
//! that none of the kept ones does. The compiler's own instrumentation is used, so that no other toolchain is needed.
//! The program runs as user `nobody`: what is fuzzed may write files.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use drover_testkit::cargo;
use drover_testkit::progress::{Progress, print_line};
use drover_testkit::spawner::spawn_bound_to_this_process;
use drover_testkit::workspace;

/// How code says which of it was reached, and what was compared.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions=on -Coverflow-checks=on -Ccodegen-units=4";
/// The host, named, so that what runs at build time is not instrumented.
fn host() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Memory beyond which the program as a whole counts as broken, in MB: libFuzzer keeps inputs and tables. What a single
/// input may take the program itself checks.
const MEMORY_MB: u32 = 512;
/// How long one input may take, in seconds.
const TIMEOUT_S: u32 = 2;
/// User and group `nobody`.
const NOBODY: u32 = 65_534;

/// What to fuzz, and how long.
#[derive(clap::Args, Debug)]
pub struct FuzzArgs {
    /// The targets; all when none is named
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// How long each is fuzzed
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// Adds the inputs that reach more code to the kept ones
    #[arg(long)]
    keep: bool,
}

/// Fuzzes each target in turn and prints a table; fails when an input broke something.
///
/// # Errors
/// When a target is unknown or the program cannot be built or started.
pub fn run(args: &FuzzArgs) -> Result<ExitCode> {
    let all = targets()?;
    if let Some(unknown) = args.targets.iter().find(|name| !all.contains(*name)) {
        bail!("there is no target {unknown:?}; there are {}", all.join(", "));
    }
    let wanted = if args.targets.is_empty() { &all } else { &args.targets };
    let program = build()?;
    print_line("| target | seconds | inputs tried | code reached | most KiB for an input | most s for one | outcome |");
    print_line("|---|---|---|---|---|---|---|");
    let mut are_broken = false;
    for target in wanted {
        let work = workspace::root().join("target/fuzz").join(target);
        let run = fuzz(&program, target, &work, args.minutes)?;
        if args.keep && run.is_clean {
            keep(&program, target, &work)?;
        }
        are_broken |= !run.is_clean;
        print_line(&run.row(target));
    }
    Ok(ExitCode::from(u8::from(are_broken)))
}

/// Where a target's inputs are kept.
fn corpus(target: &str) -> PathBuf {
    workspace::root().join("crates/drover-fuzz/corpus").join(target)
}

/// The names of all targets: each has a folder, and a test of `drover-fuzz` says that no folder is missing.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(corpus("")).context("reading the folder of inputs")? {
        names.push(entry.context("reading the folder of inputs")?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn build() -> Result<PathBuf> {
    let into = workspace::root().join("target/fuzz/build");
    let mut command = cargo::command();
    command
        .args(["build", "-p", "drover-fuzz", "--features", "libfuzzer", "--target", &host(), "--target-dir"])
        .arg(&into)
        .args(["--config", "profile.dev.opt-level=2", "--config", "profile.dev.debug=1"])
        .env("RUSTFLAGS", FLAGS);
    let status = command.status().context("starting cargo")?;
    ensure!(status.success(), "the program of drover-fuzz cannot be built: {status}");
    Ok(into.join(host()).join("debug/drover-fuzz"))
}

/// What came of a run.
struct FuzzRun {
    seconds: u64,
    tried: String,
    reached: String,
    memory_kib: String,
    slowest_s: String,
    is_clean: bool,
    outcome: String,
}

impl FuzzRun {
    fn row(&self, target: &str) -> String {
        let Self { seconds, tried, reached, memory_kib, slowest_s, outcome, .. } = self;
        format!("| {target} | {seconds} | {tried} | {reached} | {memory_kib} | {slowest_s} | {outcome} |")
    }
}

/// A folder of the fuzzing user's.
fn own_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))?;
    if rustix::process::geteuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).with_context(|| format!("giving {} away", path.display()))?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).context("setting a folder's mode")
}

/// The program, as the user that may write nothing but its own folder.
fn command(program: &Path, target: &str, work: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("DROVER_FUZZ_TARGET", target).env("TMPDIR", work.join("tmp")).current_dir(work);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn fuzz(program: &Path, target: &str, work: &Path, minutes: u64) -> Result<FuzzRun> {
    for folder in [work.to_owned(), work.join("found"), work.join("tmp")] {
        own_folder(&folder)?;
    }
    let began = std::time::Instant::now();
    let log = work.join("log");
    let mut command = command(program, target, work);
    command.arg(work.join("found")).arg(corpus(target));
    command.arg(format!("-max_total_time={}", minutes * 60));
    command.args([format!("-rss_limit_mb={MEMORY_MB}"), format!("-timeout={TIMEOUT_S}")]);
    command.args(["-print_final_stats=1", "-use_value_profile=1", "-max_len=8192"]);
    let file = fs::File::create(&log).with_context(|| format!("creating {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file.try_clone().context("one file for both")?).stderr(file);
    let step = Progress::for_people().step(format!("{target}: fuzzing for {minutes} minutes"));
    let status = spawn_bound_to_this_process(command).context("starting the program")?.wait().context("waiting")?;
    step.done("");
    let text = String::from_utf8_lossy(&fs::read(&log).context("reading what libFuzzer printed")?).into_owned();
    let last = |name: &str| {
        let found = text.lines().rev().find_map(|line| line.trim().strip_prefix(name));
        found.map_or_else(|| "-".to_owned(), |value| value.trim_start_matches(':').trim().to_owned())
    };
    let reached = text.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once("cov: ")?;
        rest.split_whitespace().next()
    });
    let outcome = if status.success() { "clean".to_owned() } else { format!("{status}: see {}", log.display()) };
    Ok(FuzzRun {
        seconds: began.elapsed().as_secs(),
        tried: last("stat::number_of_executed_units"),
        reached: reached.unwrap_or("-").to_owned(),
        memory_kib: last("most bytes for an input")
            .parse()
            .map_or_else(|_| "-".into(), |bytes: u64| (bytes >> 10).to_string()),
        slowest_s: last("stat::slowest_unit_time_sec"),
        is_clean: status.success(),
        outcome,
    })
}

/// Copies what reaches code that no kept input does.
fn keep(program: &Path, target: &str, work: &Path) -> Result<()> {
    let merged = work.join("merged");
    if merged.exists() {
        fs::remove_dir_all(&merged).with_context(|| format!("removing {}", merged.display()))?;
    }
    own_folder(&merged)?;
    let mut command = command(program, target, work);
    command.arg("-merge=1").arg(&merged).arg(corpus(target)).arg(work.join("found"));
    let output = command.output().context("starting the program")?;
    if !output.status.success() {
        bail!("inputs of {} cannot be merged: {}", target, String::from_utf8_lossy(&output.stderr));
    }
    for entry in fs::read_dir(&merged).context("reading what was merged")? {
        let from = entry.context("reading what was merged")?.path();
        let to = corpus(target).join(from.file_name().unwrap_or_default());
        fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
    }
    Ok(())
}
