//! `cargo xtask down`: ends what an `up` started, from anywhere.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use drover_testkit::process::{ProcessId, Signal};
use drover_testkit::progress::{Progress, print_line};

use super::layout::Layout;
use super::shutdown::{self, Tasks};
use super::state::State;

/// The session ends everything in order; each part has its own limit, and these are all of them together.
const SESSION_TIMEOUT: Duration = Duration::from_secs(100);

/// What `down` is told.
#[derive(Debug, Clone, Args)]
pub struct DownArgs {
    /// The data folder [default: .drover in the checkout]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Delete the data folder too
    #[arg(long)]
    pub purge: bool,
}

/// `cargo xtask down`.
///
/// # Errors
/// Names what still runs.
pub async fn down(args: &DownArgs) -> Result<()> {
    let layout = Layout::at(args.data.as_deref())?;
    let progress = Progress::for_people();
    match State::read(&layout)? {
        Some(state) => stop(&state, &layout, &progress).await?,
        None => print_line(&format!("nothing runs in {}", layout.root.display())),
    }
    if args.purge {
        let step = progress.step(format!("deleting {}", layout.root.display()));
        layout.purge()?;
        step.done("");
    }
    Ok(())
}

async fn stop(state: &State, layout: &Layout, progress: &Progress) -> Result<()> {
    let session = state.session.filter(|id| id.is_alive());
    if session.is_none() && state.running(layout).is_empty() {
        print_line(&format!("nothing runs in {}", layout.root.display()));
        return Ok(());
    }
    if let Some(session) = session {
        stop_session(session, state, layout, progress).await?;
    }
    // Whatever an earlier session left behind, or this one could not end. Read again: it may have started something
    // meanwhile.
    let state = State::read(layout)?.unwrap_or_default();
    shutdown::stop_all(&state, layout, Tasks::End, progress).await?;
    let left = state.running(layout);
    if !left.is_empty() {
        let left: Vec<String> = left.iter().map(|(role, id)| format!("{role} (process {})", id.pid)).collect();
        bail!("{} still run", left.join(", "));
    }
    Ok(())
}

/// Asks the session to end everything, and shows how it goes.
async fn stop_session(session: ProcessId, state: &State, layout: &Layout, progress: &Progress) -> Result<()> {
    let step = progress.step("stopping controller, agent, tasks and control plane");
    let names = state.running(layout);
    let n_all = names.len() as u64;
    session.signal(Signal::TERM).context("ending the session")?;
    let ended = session.wait_gone(SESSION_TIMEOUT);
    let mut ended = std::pin::pin!(ended);
    let mut look = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            biased;
            gone = &mut ended => {
                if !gone.context("waiting for the end of the session")? {
                    session.signal(Signal::KILL).context("killing the session")?;
                }
                step.done("");
                return Ok(());
            }
            _ = look.tick() => {
                let left: Vec<&str> = names.iter().filter(|(_, id)| id.is_alive()).map(|(role, _)| role.name()).collect();
                step.moved(left.join(", "), n_all - left.len() as u64, n_all);
            }
        }
    }
}
