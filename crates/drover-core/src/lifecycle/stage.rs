//! Where a task stands in its group's lifecycle and how far it has come.

use drover_api::allocation::{TaskRunState, TaskState};
use drover_api::task::{LifecycleHook, Task};

/// The hook that a task's `lifecycle` block names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Before the main tasks.
    Prestart,
    /// After the main tasks run.
    Poststart,
    /// After everything else has ended.
    Poststop,
}

/// One of the six gates a task waits at before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Must end well before the main tasks start.
    PrestartEphemeral,
    /// Must run before the main tasks start, and lives beside them.
    PrestartSidecar,
    /// The work itself.
    Main,
    /// Starts when the main tasks run, and ends.
    PoststartEphemeral,
    /// Starts when the main tasks run, and lives beside them.
    PoststartSidecar,
    /// Starts when all others are dead.
    Poststop,
}

impl Stage {
    /// All stages in the order in which their gates open.
    pub const ALL: [Self; 6] = [
        Self::PrestartEphemeral,
        Self::PrestartSidecar,
        Self::Main,
        Self::PoststartEphemeral,
        Self::PoststartSidecar,
        Self::Poststop,
    ];

    /// The stage of a task with this hook (none: a main task).
    pub fn of(hook: Option<Hook>, sidecar: bool) -> Self {
        match (hook, sidecar) {
            (None, _) => Self::Main,
            (Some(Hook::Prestart), false) => Self::PrestartEphemeral,
            (Some(Hook::Prestart), true) => Self::PrestartSidecar,
            (Some(Hook::Poststart), false) => Self::PoststartEphemeral,
            (Some(Hook::Poststart), true) => Self::PoststartSidecar,
            (Some(Hook::Poststop), _) => Self::Poststop,
        }
    }

    /// The stage of a task.
    pub fn of_task(task: &Task) -> Self {
        let hook = task.lifecycle.as_ref().map(|lifecycle| match lifecycle.hook {
            LifecycleHook::Prestart => Hook::Prestart,
            LifecycleHook::Poststart => Hook::Poststart,
            LifecycleHook::Poststop => Hook::Poststop,
        });
        Self::of(hook, task.lifecycle.as_ref().is_some_and(|lifecycle| lifecycle.sidecar))
    }

    /// Whether a task of this stage lives beside the main tasks and ends with them.
    pub fn is_sidecar(self) -> bool {
        match self {
            Self::PrestartSidecar | Self::PoststartSidecar => true,
            Self::PrestartEphemeral | Self::Main | Self::PoststartEphemeral | Self::Poststop => false,
        }
    }

    /// Whether a task of this stage runs again after it ended well, in a job that runs `until_stopped` (service,
    /// system) or to its end.
    pub fn restarts_on_success(self, until_stopped: bool) -> bool {
        match self {
            Self::Main => until_stopped,
            Self::PrestartSidecar | Self::PoststartSidecar => true,
            Self::PrestartEphemeral | Self::PoststartEphemeral | Self::Poststop => false,
        }
    }
}

/// What a task does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunState {
    /// Not started yet, or between two runs.
    Pending,
    /// Its process lives.
    Running,
    /// It ended and the restart policy does not start it again.
    Dead,
}

/// The fixed part of a task: its stage and whether its end ends the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskPlace {
    /// Its gate.
    pub stage: Stage,
    /// Whether the group ends with it.
    pub leader: bool,
}

impl TaskPlace {
    /// A task's place in its group.
    pub fn of(task: &Task) -> Self {
        Self { stage: Stage::of_task(task), leader: task.leader }
    }
}

/// The moving part of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it does now.
    pub state: RunState,
    /// Whether it ended badly for good.
    pub failed: bool,
}

impl Progress {
    /// How far a task has come, as it is reported.
    pub fn of(task: &TaskState) -> Self {
        let state = match task.state {
            TaskRunState::Pending => RunState::Pending,
            TaskRunState::Running => RunState::Running,
            TaskRunState::Dead => RunState::Dead,
        };
        Self { state, failed: task.failed }
    }

    /// A task that has not run yet.
    pub const PENDING: Self = Self { state: RunState::Pending, failed: false };

    /// Whether it ended well.
    pub fn is_done_well(self) -> bool {
        self.state == RunState::Dead && !self.failed
    }

    /// Whether it is dead and failed.
    pub fn is_failed(self) -> bool {
        self.state == RunState::Dead && self.failed
    }
}
