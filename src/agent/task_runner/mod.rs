//! The task runner: sees one task through its runs, from the gate of its lifecycle stage to its last end.
//!
//! Input: orders of the allocation's runner (gates, kill, release), the end of the process. Output: a stream of task states, the
//! task's record in the state file. Decisions about restarts are `drover-core`'s.
//!
//! Invariants: a handle is on disk before the task is reported running; a task that ended for good is never started again; when
//! the agent ends, the process goes on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::{TaskEvent, TaskRunState, TaskState};
use drover_api::group::Group;
use drover_api::task::Task;
use drover_api::{Allocation, JobSpec};
use drover_core::lifecycle::{Decision, ExitFacts, Gates, RestartTracker, Stage};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::dirs::AllocDir;
use super::drivers::{Driver, Drivers, ExitResult, Running, TaskHandle};
use super::environment::NodeFacts;
use super::events::{EventSink, Reason};
use super::random::Random;
use super::state::StateStore;
use crate::clock::SharedClock;

pub(crate) use policy::place as place_of_task;

pub(crate) mod event;
mod hooks;
mod kill;
mod launch;
mod policy;
mod restore;

/// What all runners of an agent share.
#[derive(Debug)]
pub(crate) struct RunnerEnv {
    pub(crate) state: StateStore,
    pub(crate) drivers: Drivers,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) events: EventSink,
    pub(crate) node: watch::Receiver<super::node::NodeView>,
    /// The host's variables that tasks may get.
    pub(crate) host_env: BTreeMap<String, String>,
    pub(crate) max_kill_timeout: Duration,
    pub(crate) alloc_dir: PathBuf,
    /// Where FIFOs of output lie, one folder per allocation.
    pub(crate) fifo_dir: PathBuf,
    /// Opens when the first list of allocations was applied.
    pub(crate) contacted: watch::Receiver<bool>,
}

impl RunnerEnv {
    /// The node's facts now.
    pub(crate) fn node_facts(&self) -> Arc<NodeFacts> {
        Arc::clone(&self.node.borrow().facts)
    }
}

/// What is kept of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskRecord {
    /// The part that is reported.
    pub(crate) state: TaskState,
    /// What finds the running process again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handle: Option<TaskHandle>,
    /// Everything was done for it, cleaning up included.
    #[serde(default)]
    pub(crate) run_complete: bool,
}

/// A kill that the allocation's runner has ordered.
#[derive(Clone, Debug)]
pub(crate) struct KillOrder {
    /// Said on the task before it is killed, unless it has ended.
    pub(crate) events: Vec<TaskEvent>,
    /// Leave out the shutdown delay.
    pub(crate) skip_delay: bool,
    /// The task counts as failed.
    pub(crate) fails: bool,
}

/// What the allocation's runner wants of its tasks now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    /// The gates that are open.
    pub(crate) gates: Gates,
    /// Kills by task name.
    pub(crate) kills: BTreeMap<String, KillOrder>,
    /// The controller no longer wants the allocation to run.
    pub(crate) is_stopped: bool,
    /// No task waits for another run any more.
    pub(crate) is_released: bool,
}

/// A task's state after a change.
#[derive(Clone, Debug)]
pub(crate) struct TaskUpdate {
    pub(crate) task: String,
    pub(crate) state: TaskState,
}

/// How a task runner ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskEnd {
    /// Nothing is left of the task.
    Done,
    /// The agent ends and the task goes on.
    Detached,
}

/// What a task runner is told at its start.
#[derive(Clone, Debug)]
pub(crate) struct TaskPlan {
    pub(crate) uid: String,
    pub(crate) allocation: Arc<Allocation>,
    pub(crate) job: Arc<JobSpec>,
    pub(crate) group: Arc<Group>,
    pub(crate) task: Arc<Task>,
    pub(crate) dir: AllocDir,
    /// Its record of an earlier life of the agent.
    pub(crate) restored: Option<TaskRecord>,
    /// Held until its process has been found again or given up.
    pub(crate) recovering: Option<super::alloc_runner::Recovering>,
}

/// One task's runner.
pub(crate) struct TaskRunner {
    env: Arc<RunnerEnv>,
    plan: TaskPlan,
    stage: Stage,
    driver: Option<Arc<dyn Driver>>,
    tracker: RestartTracker,
    record: TaskRecord,
    running: Option<Running>,
    orders: watch::Receiver<Orders>,
    updates: mpsc::Sender<TaskUpdate>,
    shutdown: CancellationToken,
}

/// Why the life of a task was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Over,
    Detached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interrupt {
    Kill,
    Shutdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    RunAgain,
    Stop,
    Detach,
}

impl TaskRunner {
    /// A runner for this task.
    pub(crate) fn new(
        env: Arc<RunnerEnv>,
        plan: TaskPlan,
        orders: watch::Receiver<Orders>,
        updates: mpsc::Sender<TaskUpdate>,
        shutdown: CancellationToken,
    ) -> Self {
        let stage = policy::stage(&plan.task);
        let policy = policy::restart_policy(plan.job.r#type, &plan.group, &plan.task, stage);
        let tracker = RestartTracker::new(policy, env.clock.now());
        let driver = env.drivers.find(&plan.task.driver);
        let record = plan.restored.clone().unwrap_or_default();
        Self { env, plan, stage, driver, tracker, record, running: None, orders, updates, shutdown }
    }

    /// Runs the task until nothing is left of it, or the agent ends.
    pub(crate) async fn run(mut self) -> TaskEnd {
        let left = match self.restore().await {
            restore::Restored::Finished => return TaskEnd::Done,
            restore::Restored::Dead => Left::Over,
            restore::Restored::Detached => Left::Detached,
            restore::Restored::Live => self.live().await,
        };
        if left == Left::Detached {
            return TaskEnd::Detached;
        }
        self.die().await;
        if self.stage != Stage::Poststop && self.wait_for_release().await == Interrupt::Shutdown {
            return TaskEnd::Detached;
        }
        self.record.run_complete = true;
        self.keep().await;
        TaskEnd::Done
    }

    /// One turn is one run of the process.
    async fn live(&mut self) -> Left {
        loop {
            if self.running.is_none() {
                if self.is_over() {
                    return Left::Over;
                }
                match self.wait_for_gate().await {
                    None => {}
                    Some(Interrupt::Kill) => {
                        self.note_kill_of_unstarted().await;
                        return Left::Over;
                    }
                    Some(Interrupt::Shutdown) => return Left::Detached,
                }
                if self.launch().await == Next::Detach {
                    return Left::Detached;
                }
            }
            if let Some(running) = self.running.take()
                && self.see_through(running).await == Left::Detached
            {
                return Left::Detached;
            }
            match self.decide().await {
                Next::RunAgain => {}
                Next::Stop => return Left::Over,
                Next::Detach => return Left::Detached,
            }
        }
    }

    /// Waits for the end of the process, or kills it.
    async fn see_through(&mut self, mut running: Running) -> Left {
        let interrupt = {
            let (mut orders, shutdown, name) =
                (self.orders.clone(), self.shutdown.clone(), self.plan.task.name.clone());
            tokio::select! {
                biased;
                interrupt = interrupted(&mut orders, &shutdown, &name) => Err(interrupt),
                result = &mut running.ended => Ok(result),
            }
        };
        match interrupt {
            Ok(result) => self.note_end(&result).await,
            Err(Interrupt::Kill) => self.kill(running).await,
            Err(Interrupt::Shutdown) => return Left::Detached,
        }
        Left::Over
    }

    /// Records the end of a run; only then the driver may forget it.
    async fn note_end(&mut self, result: &ExitResult) {
        self.tracker.observe_exit(ExitFacts { success: result.exit.is_success() && !result.oom_killed });
        self.push(event::terminated(self.env.clock.now(), result));
        let handle = self.record.handle.take();
        self.keep().await;
        if let (Some(driver), Some(handle)) = (&self.driver, handle)
            && let Err(error) = driver.forget(&handle.id).await
        {
            tracing::warn!(error = %error, task = handle.id, "an ended task is not forgotten");
        }
    }

    async fn decide(&mut self) -> Next {
        let now = self.env.clock.now();
        let next = match self.tracker.decide(now, self.env.random.unit()) {
            Decision::Killed => {
                self.push(event::killed(now));
                return Next::Stop;
            }
            Decision::Done => return Next::Stop,
            Decision::Fail(reason) => {
                self.push(event::not_restarting(now, &reason));
                self.record.state.failed = true;
                let text = format!("task {} failed: {reason}; {}", self.plan.task.name, self.last_cause());
                self.env.events.emit(&self.plan.allocation, Reason::TaskFailed, text);
                return Next::Stop;
            }
            Decision::Restart { delay, reason } => {
                let text = format!(
                    "task {} starts again in {:.1}s: {}",
                    self.plan.task.name,
                    delay.as_secs_f64(),
                    self.last_cause()
                );
                self.env.events.emit(&self.plan.allocation, Reason::RestartDelayed, text);
                self.push(event::restarting(now, delay, &reason));
                delay
            }
        };
        self.record.state.state = TaskRunState::Pending;
        self.record.state.restarts += 1;
        self.record.state.last_restart = Some(now);
        self.keep().await;
        self.tell().await;
        self.pause(next).await
    }

    async fn pause(&mut self, delay: Duration) -> Next {
        let (mut orders, shutdown, name) = (self.orders.clone(), self.shutdown.clone(), self.plan.task.name.clone());
        let interrupt = tokio::select! {
            biased;
            interrupt = interrupted(&mut orders, &shutdown, &name) => Some(interrupt),
            () = tokio::time::sleep(delay) => None,
        };
        match interrupt {
            None => Next::RunAgain,
            Some(Interrupt::Shutdown) => Next::Detach,
            Some(Interrupt::Kill) => {
                self.note_kill_of_unstarted().await;
                Next::Stop
            }
        }
    }

    /// The last event that says why the task is not running.
    fn last_cause(&self) -> String {
        use drover_api::allocation::TaskEventType as Type;
        let says = |event: &&TaskEvent| !matches!(event.r#type, Type::NotRestarting | Type::Restarting);
        self.record
            .state
            .events
            .iter()
            .rev()
            .find(says)
            .map_or_else(String::new, |event| format!("{}: {}", event.r#type, event.message))
    }

    async fn wait_for_gate(&mut self) -> Option<Interrupt> {
        let (mut orders, shutdown, name) = (self.orders.clone(), self.shutdown.clone(), self.plan.task.name.clone());
        let mut gates = self.orders.clone();
        let stage = self.stage;
        tokio::select! {
            biased;
            interrupt = interrupted(&mut orders, &shutdown, &name) => Some(interrupt),
            opened = gates.wait_for(|orders| orders.gates.is_open(stage)) => opened.is_err().then_some(Interrupt::Shutdown),
        }
    }

    async fn wait_for_release(&mut self) -> Interrupt {
        let shutdown = self.shutdown.clone();
        let name = self.plan.task.name.clone();
        let mut orders = self.orders.clone();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Interrupt::Shutdown,
            released = orders.wait_for(|orders| orders.is_released || orders.kills.contains_key(&name)) => {
                if released.is_ok() { Interrupt::Kill } else { Interrupt::Shutdown }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.orders.borrow().is_stopped && self.stage != Stage::Poststop
    }

    /// The task is dead now, whatever it was.
    async fn die(&mut self) {
        let now = self.env.clock.now();
        let state = &mut self.record.state;
        state.state = TaskRunState::Dead;
        state.finished_at.get_or_insert(now);
        self.keep().await;
        self.tell().await;
    }

    /// Adds an event; the oldest goes when there are too many.
    fn push(&mut self, event: TaskEvent) {
        event::insert(&mut self.record.state.events, event);
    }

    /// Writes the record to the state file. A failure is logged and does not end the task: its process matters more.
    async fn keep(&mut self) {
        if let Err(error) = self.try_keep().await {
            tracing::error!(error = %error, allocation = self.plan.uid, task = self.plan.task.name, "task state is not kept");
        }
    }

    async fn try_keep(&mut self) -> Result<(), super::state::StateError> {
        self.env.state.put_task(&self.plan.uid, &self.plan.task.name, &self.record).await
    }

    /// Tells the allocation's runner.
    async fn tell(&mut self) {
        let update = TaskUpdate { task: self.plan.task.name.clone(), state: self.record.state.clone() };
        if self.updates.send(update).await.is_err() {
            tracing::debug!(allocation = self.plan.uid, "the allocation's runner has ended");
        }
    }

    fn enter_running(&mut self, now: Timestamp) {
        let state = &mut self.record.state;
        state.state = TaskRunState::Running;
        state.started_at = Some(now);
        state.finished_at = None;
    }
}

/// Ready when the task is to be killed or the agent ends.
async fn interrupted(orders: &mut watch::Receiver<Orders>, shutdown: &CancellationToken, task: &str) -> Interrupt {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => Interrupt::Shutdown,
        ordered = orders.wait_for(|orders| orders.kills.contains_key(task)) => {
            // Without the allocation's runner there is nobody to run for.
            if ordered.is_ok() { Interrupt::Kill } else { Interrupt::Shutdown }
        }
    }
}
