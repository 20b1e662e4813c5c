//! `cargo xtask test`: builds all tests once, runs every test binary, and says what failed and what was slow.
//!
//! libtest gives times and plain data only behind an unstable flag. `RUSTC_BOOTSTRAP` opens it for the running of the
//! binary; it is not set for any build.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use drover_testkit::alerts;
use drover_testkit::cargo::{self, Built};
use drover_testkit::consul_template;
use drover_testkit::control_plane::Binaries;
use drover_testkit::csi_mock;
use drover_testkit::csi_sanity;
use drover_testkit::examples;
use drover_testkit::helm;
use drover_testkit::kubeconform;
use drover_testkit::nomad_cli;
use drover_testkit::nomad_sdk;
use drover_testkit::progress::{Progress, Step, print_line, print_note};
use drover_testkit::spawner::spawn_bound_to_this_process;
use serde::Deserialize;

/// When no test has ended for that long, one hangs: none of ours takes as long. It is not counted from the start of the
/// binary, because the last of many tests may begin late.
const BINARY_TIMEOUT: Duration = Duration::from_mins(20);
/// As long as some take with the numbers of the acceptance tables.
const LONG_BINARY_TIMEOUT: Duration = Duration::from_hours(3);
/// What the tests that CI shortens are told, so that they do what the tables say.
const LONG: &[(&str, &str)] = &[
    ("DROVER_AGENT_KILLS", "500"),
    ("DROVER_CERTIFICATES", "60x20"),
    ("DROVER_FLOODED_LINES", "1000"),
    ("DROVER_GATEWAY_KILLS", "1000"),
    ("DROVER_HEALTH_NEUTRAL", "10000"),
    ("DROVER_HELD_RENEWALS", "90"),
    ("DROVER_LINK_RESTARTS", "2000"),
    ("DROVER_NOISE", "1000"),
    ("DROVER_PARTITION_SECONDS", "300"),
    ("DROVER_REMOVED_FILES", "1000000"),
    ("DROVER_RESTORE_TASKS", "1000"),
    ("DROVER_STOP_AFTER_SECONDS", "60"),
    ("DROVER_TEMPLATES", "10000"),
];
/// Tests of `it` that look at the clock: they run one at a time, after the others, which would make them late.
const TIMED: &[&str] = &[
    "agent_files::must_survive_x_011_",
    "agent_files::must_survive_x_034_",
    "gateway_certificates::g_022_",
    "gateway_nodes::g_016_",
    "noise::must_survive_x_029_",
];
/// How many of the slowest tests are named.
const N_SLOWEST: usize = 15;

/// What `test` is told.
#[derive(Debug, Clone, Default, Args)]
pub struct TestArgs {
    /// Run only tests whose name contains one of these; `nomad-cli` is `nomad_cli`
    pub filters: Vec<String>,
    /// Run only test binaries of this name, repeatable: a package or a file of tests/
    #[arg(long = "binary", value_name = "NAME")]
    pub binaries: Vec<String>,
    /// Leave out the examples in documentation
    #[arg(long)]
    pub no_doc: bool,
    /// As often and as long as the acceptance tables say, where CI does less: 500 kills of an agent, 1,000 tasks found
    /// again, 10,000 updates that are no news, an outage of 5 minutes. Takes more than an hour
    #[arg(long)]
    pub long: bool,
}

/// One line of libtest's JSON.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    event: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    exec_time: f64,
    #[serde(default)]
    stdout: String,
    #[serde(default)]
    test_count: u64,
}

#[derive(Debug, Default)]
struct Tally {
    n_passed: u64,
    n_ignored: u64,
    failures: Vec<String>,
    times: Vec<(f64, String)>,
}

/// `cargo xtask test`.
///
/// # Errors
/// When a test fails, with its output; or when the tests cannot be built.
pub fn run(args: &TestArgs, progress: &Progress) -> Result<()> {
    let started = Instant::now();
    Binaries::find_or_build(progress)?;
    helm::find_or_build(progress)?;
    csi_sanity::find_or_build(progress)?;
    consul_template::find_or_build(progress)?;
    nomad_sdk::find_or_build(progress)?;
    nomad_cli::find_or_build(progress)?;
    csi_mock::find_or_build(progress)?;
    alerts::find_or_build(progress)?;
    kubeconform::find_or_build(progress)?;
    let step = progress.step("building the tests");
    let mut built = cargo::build(&["test", "--no-run", "--workspace"], &step)?;
    step.done("");
    // A test that had to build it would take the machine from those beside it.
    csi_sanity::build_driver(progress)?;
    examples::build_web_server(progress)?;
    built.retain(|built| built.is_test && (args.binaries.is_empty() || args.binaries.contains(&built.target)));
    built.sort();
    let mut tally = Tally::default();
    for binary in &built {
        for pass in passes(binary, args) {
            run_binary(binary, &pass, args, progress, &mut tally)?;
        }
    }
    if !args.no_doc && args.filters.is_empty() && args.binaries.is_empty() {
        run_doc_tests(progress, &mut tally)?;
    }
    report(&mut tally, started.elapsed())
}

fn report(tally: &mut Tally, took: Duration) -> Result<()> {
    tally.times.sort_by(|left, right| right.0.total_cmp(&left.0));
    print_line("slowest tests:");
    for (seconds, name) in tally.times.iter().take(N_SLOWEST) {
        print_line(&format!("{seconds:>9.2} s  {name}"));
    }
    for failure in &tally.failures {
        print_line(&format!("\n---- {failure}"));
    }
    let Tally { n_passed, n_ignored, failures, .. } = tally;
    print_line(&format!(
        "\n{n_passed} passed, {} failed, {n_ignored} ignored in {:.0} s",
        failures.len(),
        took.as_secs_f64()
    ));
    if failures.is_empty() { Ok(()) } else { bail!("{} tests failed", failures.len()) }
}

/// A start of a test binary: the tests that it runs, and how many at a time.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pass {
    title: String,
    choice: Vec<String>,
}

/// How a binary is run: at once, or first what does not look at the clock.
fn passes(binary: &Built, args: &TestArgs) -> Vec<Pass> {
    // No test's name holds a hyphen.
    let filters = args.filters.iter().map(|filter| filter.replace('-', "_"));
    let pass = |title: &str, threads: Option<&str>, choice: Vec<String>| {
        let threads = threads.into_iter().flat_map(|threads| ["--test-threads".to_owned(), threads.to_owned()]);
        Pass { title: title.to_owned(), choice: choice.into_iter().chain(threads).collect() }
    };
    match binary.target.as_str() {
        // They mostly wait; those with a control plane of their own begin when the machine has room (tests/it/room.rs).
        "it" if args.filters.is_empty() => {
            let but_timed = TIMED.iter().flat_map(|name| ["--skip".to_owned(), (*name).to_owned()]);
            let timed = TIMED.iter().map(|name| (*name).to_owned());
            vec![pass("it", Some("6"), but_timed.collect()), pass("it, by the clock", Some("1"), timed.collect())]
        }
        "it" => vec![pass("it", Some("6"), filters.collect())],
        // These look at the clock.
        "up" => vec![pass("up", Some("1"), filters.collect())],
        other => vec![pass(other, None, filters.collect())],
    }
}

fn run_binary(binary: &Built, pass: &Pass, args: &TestArgs, progress: &Progress, tally: &mut Tally) -> Result<()> {
    let step = progress.step(format!("testing {}", pass.title));
    let mut errors = tempfile::tempfile().context("making a file for the tests' stderr")?;
    let mut command = Command::new(&binary.executable);
    command.args(["-Zunstable-options", "--report-time", "--format=json"]).args(&pass.choice);
    if args.long {
        command.envs(LONG.iter().copied());
    }
    command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_MANIFEST_DIR", &binary.package_dir).current_dir(&binary.package_dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors.try_clone().context("sharing the file")?);
    let mut child =
        spawn_bound_to_this_process(command).with_context(|| format!("starting {}", binary.executable.display()))?;
    let stdout = child.stdout.take().context("the test binary has no output")?;
    let (sender, lines) = sync_channel(64);
    let reader = std::thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(std::result::Result::ok);
        // When the receiver is gone, the binary has been ended.
        lines.map(|line| sender.send(line)).take_while(std::result::Result::is_ok).count()
    });
    let timeout = if args.long { LONG_BINARY_TIMEOUT } else { BINARY_TIMEOUT };
    let running = BTreeMap::new();
    let mut run = BinaryRun { target: &binary.target, timeout, running, n_done: 0, n_all: 0, has_ended: false };
    let result = run.follow(&lines, &step, tally);
    drop(lines);
    if let Err(error) = result {
        child.kill().context("ending the test binary")?;
        child.wait().context("waiting for the test binary")?;
        tally.failures.push(format!("{}: {error:#}\n{}", binary.target, content(&mut errors)));
        step.done(format!("{} tests", run.n_done));
        // Its reader is not waited for: what the binary has left running may hold the output open.
        return Ok(());
    }
    let status = child.wait().context("waiting for the test binary")?;
    if reader.join().is_err() {
        bail!("the reader of the tests' output has ended");
    }
    if !run.has_ended {
        tally.failures.push(format!(
            "{}: the test binary ended with {status} while {} ran\n{}",
            binary.target,
            run.names(),
            content(&mut errors)
        ));
    }
    step.done(format!("{} tests", run.n_done));
    Ok(())
}

fn content(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    read.map_or_else(
        |error| format!("(its stderr cannot be read: {error})"),
        |_| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

/// One test binary while it runs.
struct BinaryRun<'a> {
    target: &'a str,
    timeout: Duration,
    running: BTreeMap<String, Instant>,
    n_done: u64,
    n_all: u64,
    has_ended: bool,
}

impl BinaryRun<'_> {
    fn follow(&mut self, lines: &Receiver<String>, step: &Step, tally: &mut Tally) -> Result<()> {
        let (mut deadline, mut n_done) = (Instant::now() + self.timeout, self.n_done);
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.take(&line, step, tally),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    bail!("no test has ended for {} min; still running: {}", self.timeout.as_secs() / 60, self.names())
                }
            }
            if self.n_done > n_done {
                (deadline, n_done) = (Instant::now() + self.timeout, self.n_done);
            }
        }
    }

    fn names(&self) -> String {
        self.running.keys().cloned().collect::<Vec<_>>().join(", ")
    }

    fn take(&mut self, line: &str, step: &Step, tally: &mut Tally) {
        // Tests may print to stdout themselves.
        let Ok(line) = serde_json::from_str::<Line>(line) else { return };
        match (line.kind.as_str(), line.event.as_str()) {
            ("suite", "started") => self.n_all = line.test_count,
            ("suite", _) => self.has_ended = true,
            ("test", "started") => {
                self.running.insert(line.name, Instant::now());
                return;
            }
            ("test", _) => self.take_end(&line, tally),
            _ => return,
        }
        let longest = self.running.iter().min_by_key(|(_, started)| **started);
        step.moved(longest.map_or("", |(name, _)| name), self.n_done, self.n_all);
    }

    fn take_end(&mut self, line: &Line, tally: &mut Tally) {
        let Line { event, exec_time: seconds, name, stdout: output, .. } = line;
        // libtest also tells of tests that take long; these have not ended.
        if event == "timeout" {
            return;
        }
        self.running.remove(name);
        self.n_done += 1;
        let full_name = format!("{}: {name}", self.target);
        match event.as_str() {
            "ok" => tally.n_passed += 1,
            "ignored" => tally.n_ignored += 1,
            _ => {
                print_note(&format!("FAILED {full_name}"));
                tally.failures.push(format!("{full_name}\n{output}"));
            }
        }
        tally.times.push((*seconds, full_name));
    }
}

fn run_doc_tests(progress: &Progress, tally: &mut Tally) -> Result<()> {
    let step = progress.step("testing the examples in documentation");
    let output = cargo::command()
        .args(["test", "--doc", "--workspace"])
        .output()
        .context("running the examples in documentation")?;
    if output.status.success() {
        step.done("");
    } else {
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        tally.failures.push(format!("examples in documentation\n{text}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(lines: &[&str]) -> (BinaryRun<'static>, Tally) {
        let (timeout, running) = (BINARY_TIMEOUT, BTreeMap::new());
        let mut run = BinaryRun { target: "it", timeout, running, n_done: 0, n_all: 0, has_ended: false };
        let mut tally = Tally::default();
        let step = Progress::silent().step("testing");
        for line in lines {
            run.take(line, &step, &mut tally);
        }
        (run, tally)
    }

    #[test]
    fn results_are_counted_and_failures_keep_their_output() {
        let (run, tally) = run_of(&[
            r#"{ "type": "suite", "event": "started", "test_count": 3 }"#,
            r#"{ "type": "test", "event": "started", "name": "a" }"#,
            r#"{ "type": "test", "event": "started", "name": "b" }"#,
            "a line that a test printed",
            r#"{ "type": "test", "name": "a", "event": "ok", "exec_time": 0.5 }"#,
            r#"{ "type": "test", "name": "b", "event": "failed", "exec_time": 2, "stdout": "left: 1" }"#,
            r#"{ "type": "test", "name": "c", "event": "ignored" }"#,
            r#"{ "type": "suite", "event": "failed", "passed": 1, "failed": 1 }"#,
        ]);
        assert!(run.has_ended && run.running.is_empty());
        assert_eq!((run.n_done, tally.n_passed, tally.n_ignored), (3, 1, 1));
        assert_eq!(tally.failures, ["it: b\nleft: 1"]);
    }

    #[test]
    fn while_nothing_ends_those_that_run_are_named_and_the_end_of_the_output_is_no_fault() {
        let follow = |lines: &[&str], is_open: bool| {
            let (sender, receiver) = sync_channel(8);
            for line in lines {
                sender.send((*line).to_owned()).unwrap();
            }
            let _open = is_open.then_some(sender);
            let (mut run, mut tally) = run_of(&[]);
            run.timeout = Duration::ZERO;
            let result = run.follow(&receiver, &Progress::silent().step("testing"), &mut tally);
            (result.map_err(|error| error.to_string()), run.n_done)
        };
        let lines = [
            r#"{ "type": "test", "event": "started", "name": "a" }"#,
            r#"{ "type": "test", "name": "a", "event": "ok", "exec_time": 0.5 }"#,
            r#"{ "type": "test", "event": "started", "name": "b" }"#,
        ];
        let hangs = "no test has ended for 0 min; still running: b".to_owned();
        assert_eq!(follow(&lines, true), (Err(hangs), 1));
        assert_eq!(follow(&lines[..2], false), (Ok(()), 1));
    }

    #[test]
    fn what_looks_at_the_clock_runs_after_the_others_and_alone() {
        let binary = |target: &str| Built {
            package_dir: "p".into(),
            target: target.to_owned(),
            is_test: true,
            executable: "e".into(),
        };
        let choices = |target: &str, filters: &[&str]| {
            let filters = filters.iter().map(|filter| (*filter).to_owned()).collect();
            let args = TestArgs { filters, ..TestArgs::default() };
            passes(&binary(target), &args).into_iter().map(|pass| pass.choice.join(" ")).collect::<Vec<_>>()
        };
        let [others, timed] = &choices("it", &[])[..] else { unreachable!("two passes") };
        for name in TIMED {
            assert!(others.contains(&format!("--skip {name}")) && timed.contains(name), "{others}\n{timed}");
        }
        assert!(others.ends_with("--test-threads 6") && timed.ends_with("--test-threads 1"));
        assert_eq!(choices("it", &["nomad-cli"]), ["nomad_cli --test-threads 6"]);
        assert_eq!(
            (choices("up", &[]), choices("drover", &["a"])),
            (vec!["--test-threads 1".to_owned()], vec!["a".to_owned()])
        );
    }

    #[test]
    fn a_test_that_takes_long_has_not_ended() {
        let (run, tally) = run_of(&[
            r#"{ "type": "test", "event": "started", "name": "a" }"#,
            r#"{ "type": "test", "event": "timeout", "name": "a" }"#,
        ]);
        assert_eq!((run.names().as_str(), run.n_done, tally.failures.len()), ("a", 0, 0));
    }
}
