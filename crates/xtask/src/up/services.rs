//! Controller and agent as processes that are started again when they die, as a daemon set would.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use drover_testkit::control_plane::{Component, Launch, Lifetime, Role};
use drover_testkit::progress::Progress;
use drover_testkit::workspace::last_lines;
use futures::FutureExt as _;
use futures::future::{pending, select_all};

use super::layout::Layout;
use super::state::{Started, State};

/// How long a process that died stays dead.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// A process that dies more often than this before the system is healthy will not get better by itself.
const MAX_EARLY_DEATHS: u32 = 3;

/// What to do when a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restart {
    After1s,
    Never,
}

/// Whether the system has been healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A process that keeps dying is an error.
    Starting,
    /// A process that keeps dying is started again, as often as it takes.
    Healthy,
}

/// The processes that are kept running.
#[derive(Debug)]
pub(super) struct Services {
    components: Vec<(Component, u32)>,
    restart: Restart,
}

impl Services {
    pub(super) fn new(restart: Restart) -> Self {
        Self { components: Vec::new(), restart }
    }

    /// Starts a role of droverd.
    pub(super) fn start(&mut self, launch: Launch, layout: &Layout, state: &mut State) -> Result<()> {
        let component = Component::start(launch)?;
        note(&component, layout, state)?;
        self.components.push((component, 0));
        Ok(())
    }

    /// Starts again what dies; returns only with an error.
    pub(super) async fn keep(
        &mut self,
        phase: Phase,
        layout: &Layout,
        state: &mut State,
        progress: &Progress,
    ) -> Result<()> {
        loop {
            let index = self.next_death().await;
            let (component, n_deaths) = &mut self.components[index];
            *n_deaths += 1;
            let Launch { role, log, .. } = component.launch().clone();
            let status = component.reap()?.map_or_else(String::new, |status| format!(" with {status}"));
            let is_hopeless = self.restart == Restart::Never || *n_deaths >= MAX_EARLY_DEATHS;
            if phase == Phase::Starting && is_hopeless {
                bail!("{role} ended{status}; the end of its log {}:\n{}", log.display(), last_lines(&log, 15));
            }
            if self.restart == Restart::Never {
                progress.note(format!("{role} ended{status}; its log is {}", log.display()));
                continue;
            }
            progress.note(format!("{role} ended{status}; starting it again in 1 s (its log is {})", log.display()));
            tokio::time::sleep(RESTART_DELAY).await;
            component.start_again()?;
            note(component, layout, state)?;
        }
    }

    /// Waits until one of those that run has ended. Does not return when none runs: then there is nothing to start
    /// again.
    async fn next_death(&self) -> usize {
        let ends = self.components.iter().enumerate().filter(|(_, (component, _))| component.was_started()).map(
            |(index, (component, _))| {
                async move {
                    if let Some(id) = component.id()
                        && id.ended().await.is_err()
                    {
                        // Without a handle on the process nothing can be said about it; it is looked at by `status` and
                        // `down`.
                        pending::<()>().await;
                    }
                    index
                }
                .boxed_local()
            },
        );
        let ends: Vec<_> = ends.collect();
        if ends.is_empty() {
            return pending().await;
        }
        select_all(ends).await.0
    }
}

fn note(component: &Component, layout: &Layout, state: &mut State) -> Result<()> {
    if let Some(id) = component.id() {
        state.note(Started::new(component.launch(), id));
        state.write(layout)?;
    }
    Ok(())
}

/// Says how to start a role of droverd.
pub(super) fn launch(role: Role, droverd: &Path, config: &Path, kubeconfig: &Path, layout: &Layout) -> Launch {
    let path = |path: &Path| path.display().to_string();
    // Tasks find the example programs on the agent's PATH.
    let search = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
    Launch {
        role,
        program: droverd.to_path_buf(),
        args: vec![role.to_string(), "--config".to_owned(), path(config), "--kubeconfig".to_owned(), path(kubeconfig)],
        env: vec![("PATH".to_owned(), format!("{}:{search}", layout.bin().display()))],
        folder: layout.root.clone(),
        log: layout.log(role),
        lifetime: Lifetime::Independent,
    }
}
