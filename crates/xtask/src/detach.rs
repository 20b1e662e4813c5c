//! `--detach`: runs the same command as a background process, and shows what that reports until it is healthy.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use drover_testkit::process::{ProcessId, Signal};
use drover_testkit::progress::{Event, Progress, print_line};
use drover_testkit::workspace::last_lines;

/// How the start of the session ended.
enum Outcome {
    Finished,
    Failed,
    /// It ended without a word.
    Silent,
}

/// Starts this command again with `--in-background`, with its stderr in a log.
///
/// # Errors
/// When it cannot be started, or ends without a word; with the end of its log then.
pub(crate) async fn run(log: &Path) -> Result<ExitCode> {
    let mut child = session_command(log)?.spawn().context("starting the session in the background")?;
    let session = i32::try_from(child.id()).ok().and_then(ProcessId::of);
    let stdout = child.stdout.take().context("the session has no output")?;
    let progress = Progress::for_people();
    let mut reader = tokio::task::spawn_blocking(move || show_until_end(stdout, &progress));
    let outcome = tokio::select! {
        biased;
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.context("listening for Ctrl-C")?;
            if let Some(session) = session {
                session.signal(Signal::TERM).context("ending the session")?;
            }
            reader.await.context("reading the session's output")?;
            return Ok(ExitCode::from(130));
        }
        outcome = &mut reader => outcome.context("reading the session's output")?,
    };
    match outcome {
        Outcome::Finished => Ok(ExitCode::SUCCESS),
        Outcome::Failed => {
            child.wait().context("waiting for the session")?;
            Ok(ExitCode::FAILURE)
        }
        Outcome::Silent => {
            let status = child.wait().context("waiting for the session")?;
            if status.success() {
                return Ok(ExitCode::SUCCESS);
            }
            bail!("the session ended with {status}; the end of its log {}:\n{}", log.display(), last_lines(log, 15))
        }
    }
}

/// Takes this process, which was started by [`run`], out of the terminal's reach: its Ctrl-C and its end are not meant
/// for it.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn leave_terminal() -> Result<()> {
    rustix::process::setsid().context("leaving the terminal's session").map(drop)
}

fn session_command(log: &Path) -> Result<Command> {
    let log =
        OpenOptions::new().create(true).append(true).open(log).with_context(|| format!("opening {}", log.display()))?;
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args(std::env::args_os().skip(1)).arg("--in-background");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    Ok(command)
}

fn show_until_end(stdout: ChildStdout, progress: &Progress) -> Outcome {
    for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
        let Ok(event) = serde_json::from_str::<Event>(&line) else {
            // What the session says before it has begun, for example that another one runs.
            print_line(&line);
            continue;
        };
        let outcome = match &event {
            Event::Finished { .. } => Some(Outcome::Finished),
            Event::Failed { .. } => Some(Outcome::Failed),
            Event::Started { .. } | Event::Moved { .. } | Event::Ended { .. } | Event::Note { .. } => None,
        };
        progress.show(event);
        if let Some(outcome) = outcome {
            return outcome;
        }
    }
    Outcome::Silent
}
