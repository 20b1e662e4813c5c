//! What runs, written down: `state.json` in the data folder.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use drover_testkit::control_plane::{Launch, Role};
use drover_testkit::process::{ProcessId, boot_id};
use drover_testkit::workspace::write_private;
use serde::{Deserialize, Serialize};

use super::layout::Layout;

/// The content of the file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct State {
    /// The boot of the machine that the ids are of.
    boot_id: String,
    /// The kubeconfig that people use.
    pub(super) kubeconfig: PathBuf,
    /// The session, parent of the others.
    pub(super) session: Option<ProcessId>,
    /// What it started.
    pub(super) processes: Vec<Started>,
}

/// A process that was started.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Started {
    pub(super) role: Role,
    #[serde(flatten)]
    pub(super) id: ProcessId,
    pub(super) log: PathBuf,
    /// For people who want to start it by hand, in the data folder.
    command: Vec<String>,
}

impl Started {
    pub(super) fn new(launch: &Launch, id: ProcessId) -> Self {
        let program = launch.program.display().to_string();
        let command = std::iter::once(program).chain(launch.args.iter().cloned()).collect();
        Self { role: launch.role, id, log: launch.log.clone(), command }
    }
}

impl State {
    pub(super) fn new(kubeconfig: PathBuf) -> Self {
        let session = i32::try_from(std::process::id()).ok().and_then(ProcessId::of);
        Self { boot_id: boot_id(), kubeconfig, session, processes: Vec::new() }
    }

    /// Reads the file; none when there is none. Ids of another boot are left out.
    pub(super) fn read(layout: &Layout) -> Result<Option<Self>> {
        let path = layout.state_file();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let mut state: Self = serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        if state.boot_id != boot_id() {
            state.session = None;
            state.processes.clear();
        }
        Ok(Some(state))
    }

    pub(super) fn write(&self, layout: &Layout) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("writing down what runs")?;
        write_private(&layout.state_file(), &text)
    }

    /// Notes the process of a role, in place of an earlier one.
    pub(super) fn note(&mut self, started: Started) {
        self.processes.retain(|known| known.role != started.role);
        self.processes.push(started);
        self.processes.sort_by_key(|known| known.role);
    }

    /// What was started and runs no more.
    pub(super) fn dead(&self) -> Vec<&Started> {
        self.processes.iter().filter(|started| !started.id.is_alive()).collect()
    }

    /// The processes that still run, with the agent's supervisor, which the agent starts by itself.
    pub(super) fn running(&self, layout: &Layout) -> Vec<(Role, ProcessId)> {
        let started = self.processes.iter().map(|started| (started.role, started.id));
        let mut running: Vec<_> = started.filter(|(_, id)| id.is_alive()).collect();
        running.extend(supervisor(layout).map(|id| (Role::Supervisor, id)));
        running
    }
}

/// Finds the supervisor by the file that the agent writes. Its command line tells it from a stranger under the same
/// number.
pub(super) fn supervisor(layout: &Layout) -> Option<ProcessId> {
    let folder = layout.agent_state();
    let pid = fs::read_to_string(folder.join("supervisor.pid")).ok()?;
    let id = ProcessId::of(pid.split_whitespace().next()?.parse().ok()?)?;
    let command = fs::read(format!("/proc/{}/cmdline", id.pid)).ok()?;
    let command = String::from_utf8_lossy(&command).into_owned();
    let is_ours = command.split('\0').any(|arg| arg == "supervisor") && command.contains(&*folder.to_string_lossy());
    is_ours.then_some(id)
}
