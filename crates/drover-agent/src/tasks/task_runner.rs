//! The task runner: sees one task through its runs, from the gate of its lifecycle stage to its last end.
//!
//! Input: orders of the allocation's runner (gates, kill, release), the end of the process. Output: a stream of task
//! states, the task's record in the state file. Decisions about restarts are `drover-core`'s.
//!
//! Invariants: a handle is on disk before the task is reported running; a task that ended for good is never started
//! again; when the agent ends, the process goes on.

use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::{TaskEvent, TaskEventType, TaskRunState};
use drover_core::lifecycle::{Decision, ExitFacts, RestartTracker, Stage};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::commands::{CommandError, Force, Located, TaskCommand};
use super::hooks::{TaskIdentities, Templates};
use super::orders::Orders;
use super::plan::{TaskEnd, TaskHandles, TaskPlan, TaskUpdate};
use super::record::{EndReason, TaskRecord};
use super::runner_env::RunnerEnv;
use super::{policy, task_event};
use crate::csi::{PluginHealth, PluginRun};
use crate::drivers::{Driver, ExitResult, HealthReport, Running, TaskHandle};
use crate::reporting::events::Reason;
use crate::reporting::metrics::CountedTask;
use crate::task_api::ServedApi;
use crate::watch;

mod following;
mod kill;
mod launch;
mod reconfigure;
mod restore;

use following::{Following, Script};

/// One task's runner.
pub(crate) struct TaskRunner {
    env: Arc<RunnerEnv>,
    plan: TaskPlan,
    stage: Stage,
    driver: Option<Arc<dyn Driver>>,
    tracker: RestartTracker,
    record: TaskRecord,
    /// It in the agent's metrics.
    counted: CountedTask,
    running: Option<Running>,
    /// Held while a run is a CSI plugin.
    plugin: Option<PluginRun>,
    /// What the driver says of the health of its run.
    health: HealthReport,
    /// An ended run that the driver may forget once the record knows what follows on it.
    ended: Option<String>,
    /// Its templates, once something is known of them; none: it has none, or none yet.
    templates: Option<Templates>,
    /// Its identities, likewise.
    identities: Option<TaskIdentities>,
    /// The API, as long as it has one.
    api: Option<ServedApi>,
    handles: TaskHandles,
}

/// Why the life of a task was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskExit {
    Over,
    Detached,
}

/// What an earlier life left of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restored {
    /// It is to be run, or runs.
    Live,
    /// It ended for good and still has to be cleaned up.
    Dead,
    /// Nothing is left to do.
    Finished,
    /// The agent ends.
    Detached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interrupt {
    Kill,
    Shutdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextRun {
    RunAgain,
    Stop,
    Detach,
}

impl TaskRunner {
    /// A runner for this task.
    pub(crate) fn new(env: Arc<RunnerEnv>, plan: TaskPlan, handles: TaskHandles) -> Self {
        let stage = Stage::of_task(&plan.task);
        let policy = policy::restart_policy(plan.job.r#type, &plan.group, &plan.task, stage);
        let driver = env.machine.drivers.find(&plan.task.driver);
        let record = plan.restored.clone().unwrap_or_default();
        let tracker = match record.restarts {
            Some(counted) => RestartTracker::resumed(policy, counted),
            None => RestartTracker::new(policy, env.clock.now()),
        };
        let known_driver = driver.is_some().then_some(plan.task.driver.as_str());
        let counted = env.metrics.task(known_driver, record.state.state);
        Self {
            env,
            plan,
            stage,
            driver,
            tracker,
            record,
            counted,
            running: None,
            plugin: None,
            health: HealthReport::AtOnce,
            ended: None,
            templates: None,
            identities: None,
            api: None,
            handles,
        }
    }

    /// Runs the task until nothing is left of it, or the agent ends.
    pub(crate) async fn run(mut self) -> TaskEnd {
        let mut left = match self.restore().await {
            Restored::Finished => return TaskEnd::Done,
            Restored::Dead => TaskExit::Over,
            Restored::Detached => TaskExit::Detached,
            Restored::Live => self.live().await,
        };
        loop {
            if left == TaskExit::Detached {
                return TaskEnd::Detached;
            }
            self.die().await;
            if self.stage == Stage::Poststop {
                break;
            }
            match self.wait_for_release().await {
                NextRun::Stop => break,
                NextRun::Detach => return TaskEnd::Detached,
                NextRun::RunAgain => left = self.live().await,
            }
        }
        self.record.run_complete = true;
        self.keep().await;
        TaskEnd::Done
    }

    /// One turn is one run of the process.
    async fn live(&mut self) -> TaskExit {
        loop {
            if self.running.is_none() {
                if self.is_over() {
                    return TaskExit::Over;
                }
                match self.wait_for_gate().await {
                    None => {}
                    Some(Interrupt::Kill) => {
                        self.note_kill_of_unstarted().await;
                        return TaskExit::Over;
                    }
                    Some(Interrupt::Shutdown) => return TaskExit::Detached,
                }
                if self.launch().await == NextRun::Detach {
                    return TaskExit::Detached;
                }
            }
            if let Some(running) = self.running.take()
                && self.see_through(running).await == TaskExit::Detached
            {
                return TaskExit::Detached;
            }
            match self.decide().await {
                NextRun::RunAgain => {}
                NextRun::Stop => return TaskExit::Over,
                NextRun::Detach => return TaskExit::Detached,
            }
        }
    }

    /// Waits for the end of the process, or ends it.
    async fn see_through(&mut self, mut running: Running) -> TaskExit {
        if let Some(reason) = self.record.ending {
            // An earlier life of the agent has begun to end it.
            self.end_because(running, reason).await;
            return TaskExit::Over;
        }
        self.follow_what_it_uses();
        let mut script: Option<Script> = None;
        let (mut orders, shutdown, name) =
            (self.handles.orders.clone(), self.handles.shutdown.clone(), self.plan.task.name.clone());
        loop {
            tokio::select! {
                biased;
                interrupt = interrupted(&mut orders, &shutdown, &name) => match interrupt {
                    Interrupt::Kill => {
                        self.kill(running).await;
                        return TaskExit::Over;
                    }
                    Interrupt::Shutdown => return TaskExit::Detached,
                },
                result = &mut running.ended => {
                    self.note_end(&result);
                    return TaskExit::Over;
                }
                Some(command) = self.handles.commands.recv() => match command {
                    TaskCommand::Restart { answer, .. } => {
                        self.end_for_restart(running, "restart requested").await;
                        // Who has gone does not ask for the answer.
                        drop(answer.send(Ok(())));
                        return TaskExit::Over;
                    }
                    TaskCommand::EndUnhealthy { reason } => {
                        self.say_restart(&reason);
                        self.end_because(running, EndReason::Failure).await;
                        return TaskExit::Over;
                    }
                    TaskCommand::Signal { signal, answer } => {
                        drop(answer.send(self.signal(&signal, &running.handle.id, "").await));
                    }
                    TaskCommand::Locate { answer } => drop(answer.send(self.located(&running.handle))),
                },
                news = following::news_of(&mut self.templates, &mut self.identities), if script.is_none() => {
                    match self.reconfigure(news, &running.handle).await {
                        Following::Nothing => {}
                        Following::Script(next) => script = Some(next),
                        Following::Restart(why) => {
                            self.end_for_restart(running, &why).await;
                            return TaskExit::Over;
                        }
                        Following::Failure(why) => {
                            self.end_as_failed(running, why).await;
                            return TaskExit::Over;
                        }
                    }
                }
                end = following::end_of(&mut script) => {
                    script = None;
                    if let Some(why) = self.note_script(end).await {
                        self.end_as_failed(running, why).await;
                        return TaskExit::Over;
                    }
                }
                health = news_of(&mut self.plugin) => {
                    self.note_health(&health).await;
                    if let PluginHealth::NeverUp(_) = health {
                        self.end_because(running, EndReason::Failure).await;
                        return TaskExit::Over;
                    }
                }
            }
        }
    }

    fn located(&self, handle: &TaskHandle) -> Result<Located, CommandError> {
        let driver = self.driver.clone().ok_or(CommandError::NotRunning)?;
        Ok(Located { driver, handle: handle.clone() })
    }

    /// Waits for something while there is no process: a kill and the end of the agent cut it short, requests are
    /// refused.
    async fn idle<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Interrupt> {
        let (mut orders, shutdown, name) =
            (self.handles.orders.clone(), self.handles.shutdown.clone(), self.plan.task.name.clone());
        let interrupt = interrupted(&mut orders, &shutdown, &name);
        tokio::pin!(work, interrupt);
        loop {
            tokio::select! {
                biased;
                interrupt = &mut interrupt => return Err(interrupt),
                done = &mut work => return Ok(done),
                Some(command) = self.handles.commands.recv() => command.refuse(),
            }
        }
    }

    /// Says how the plugin fares that the task is. What an earlier life of the agent has reported of this run is not
    /// reported again.
    async fn note_health(&mut self, health: &PluginHealth) {
        let id = self.plan.task.csi_plugin.as_ref().map(|plugin| &plugin.id);
        let (r#type, message) = match (health, id) {
            (PluginHealth::Healthy, Some(id)) => (TaskEventType::PluginHealthy, format!("plugin {id}")),
            (PluginHealth::Unhealthy(error) | PluginHealth::NeverUp(error), Some(_)) => {
                (TaskEventType::PluginUnhealthy, error.clone())
            }
            (PluginHealth::Starting, _) | (_, None) => return,
        };
        if task_event::of_this_run(&self.record.state.events).find(|said| task_event::is_of_plugin(*said))
            != Some(r#type)
        {
            let said = task_event::plain(r#type, self.env.clock.now(), message);
            self.push(said);
            self.keep().await;
            self.tell().await;
        }
    }

    /// Takes in the end of a run.
    fn note_end(&mut self, result: &ExitResult) {
        self.note_end_as(result, result.exit.is_success() && !result.oom_killed);
    }

    /// Takes in the end of a run, however its process ended. It is written together with what follows on it: an agent
    /// that dies in between hears of the end again, because the driver has not forgotten it.
    fn note_end_as(&mut self, result: &ExitResult, success: bool) {
        self.tracker.observe_exit(ExitFacts { success });
        self.push(task_event::terminated(self.env.clock.now(), result));
        self.plugin = None;
        self.ended = self.record.handle.take().map(|handle| handle.id);
    }

    /// Writes the record, and then lets the driver forget a run that has ended.
    async fn settle(&mut self) {
        let is_kept = self.try_keep().await;
        if let Err(error) = is_kept {
            tracing::error!(error = %error, allocation = self.plan.uid, task = self.plan.task.name, "task state is not kept");
            return;
        }
        if let (Some(driver), Some(id)) = (&self.driver, self.ended.take())
            && let Err(error) = driver.forget(&id).await
        {
            tracing::warn!(error = %error, task = id, "an ended task is not forgotten");
        }
    }

    async fn decide(&mut self) -> NextRun {
        self.adopt_version();
        let now = self.env.clock.now();
        let decision = self.tracker.decide(now, self.env.random.unit());
        self.record.ending = None;
        self.record.restarts = Some(self.tracker.counted());
        let next = match decision {
            Decision::Killed => {
                if !self.kill_order().is_cleanup {
                    self.push(task_event::killed(now));
                }
                return NextRun::Stop;
            }
            Decision::Done => return NextRun::Stop,
            Decision::Fail(reason) => {
                self.push(task_event::not_restarting(now, &reason));
                self.record.state.failed = true;
                let text = format!("task {} failed: {reason}; {}", self.plan.task.name, self.last_cause());
                self.env.events.emit(&self.plan.allocation, Reason::TaskFailed, text);
                return NextRun::Stop;
            }
            Decision::Restart { delay, reason } => {
                let text = format!(
                    "task {} starts again in {:.1}s: {}",
                    self.plan.task.name,
                    delay.as_secs_f64(),
                    self.last_cause()
                );
                self.env.events.emit(&self.plan.allocation, Reason::RestartDelayed, text);
                self.push(task_event::restarting(now, delay, &reason));
                delay
            }
        };
        self.record.state.state = TaskRunState::Pending;
        self.record.state.restarts += 1;
        self.record.state.last_restart = Some(now);
        self.settle().await;
        self.tell().await;
        self.pause(next).await
    }

    async fn pause(&mut self, delay: Duration) -> NextRun {
        match self.idle(tokio::time::sleep(delay)).await {
            Ok(()) => NextRun::RunAgain,
            Err(Interrupt::Shutdown) => NextRun::Detach,
            Err(Interrupt::Kill) => {
                self.note_kill_of_unstarted().await;
                NextRun::Stop
            }
        }
    }

    /// Policies may have changed with the version of the job.
    fn adopt_version(&mut self) {
        let (job, group) = {
            let orders = self.handles.orders.borrow();
            (Arc::clone(&orders.job), Arc::clone(&orders.group))
        };
        if Arc::ptr_eq(&group, &self.plan.group) {
            return;
        }
        if let Some(task) = group.tasks.iter().find(|task| task.name == self.plan.task.name) {
            self.plan.task = Arc::new(task.clone());
            self.tracker.adopt_policy(policy::restart_policy(job.r#type, &group, task, self.stage));
        }
        (self.plan.job, self.plan.group) = (job, group);
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
        let mut gates = self.handles.orders.clone();
        let stage = self.stage;
        let opened = async move { gates.wait_for(|orders| orders.gates.is_open(stage)).await.is_ok() };
        match self.idle(opened).await {
            Ok(true) => None,
            Ok(false) => Some(Interrupt::Shutdown),
            Err(interrupt) => Some(interrupt),
        }
    }

    /// A dead task waits until all are, for a user may want the whole allocation to run again.
    async fn wait_for_release(&mut self) -> NextRun {
        let (mut orders, shutdown, name) =
            (self.handles.orders.clone(), self.handles.shutdown.clone(), self.plan.task.name.clone());
        let released = async move {
            let released = orders.wait_for(|orders| orders.is_released || orders.kills.contains_key(&name)).await;
            if released.is_ok() { NextRun::Stop } else { NextRun::Detach }
        };
        tokio::pin!(released);
        loop {
            let command = tokio::select! {
                biased;
                () = shutdown.cancelled() => return NextRun::Detach,
                next = &mut released => return next,
                Some(command) = self.handles.commands.recv() => command,
            };
            match command {
                TaskCommand::Restart { force: Force::Yes, answer } => {
                    self.say_restart("restart requested");
                    self.tracker.observe_restart_request();
                    self.record.state.failed = false;
                    self.record.state.finished_at = None;
                    drop(answer.send(Ok(())));
                    return self.decide().await;
                }
                other => other.refuse(),
            }
        }
    }

    fn say_restart(&mut self, why: &str) {
        let said = task_event::plain(TaskEventType::RestartSignaled, self.env.clock.now(), why);
        self.push(said);
    }

    fn is_over(&self) -> bool {
        self.handles.orders.borrow().is_stopped && self.stage != Stage::Poststop
    }

    /// The task is dead now, whatever it was.
    async fn die(&mut self) {
        self.plugin = None;
        // What it has followed is followed for it no longer.
        (self.templates, self.identities, self.api) = (None, None, None);
        let now = self.env.clock.now();
        let state = &mut self.record.state;
        state.state = TaskRunState::Dead;
        state.finished_at.get_or_insert(now);
        self.settle().await;
        self.tell().await;
    }

    /// Adds an event; the oldest goes when there are too many.
    fn push(&mut self, event: TaskEvent) {
        task_event::insert(&mut self.record.state.events, event);
    }

    /// Writes the record to the state file. A failure is logged and does not end the task: its process matters more.
    async fn keep(&mut self) {
        if let Err(error) = self.try_keep().await {
            tracing::error!(error = %error, allocation = self.plan.uid, task = self.plan.task.name, "task state is not kept");
        }
    }

    async fn try_keep(&mut self) -> Result<(), crate::state::StateError> {
        self.env.state.put_task(&self.plan.uid, &self.plan.task.name, &self.record).await
    }

    /// Tells the allocation's runner.
    async fn tell(&mut self) {
        self.counted.is_now(self.record.state.state);
        let update =
            TaskUpdate { task: self.plan.task.name.clone(), state: self.record.state.clone(), health: self.health };
        if self.handles.updates.send(update).await.is_err() {
            tracing::debug!(allocation = self.plan.uid, "the allocation's runner has ended");
        }
    }

    /// The run is this runner's to see through.
    fn hold(&mut self, running: Running) {
        let task = &self.plan.task;
        let was_up =
            task_event::of_this_run(&self.record.state.events).any(|said| said == TaskEventType::PluginHealthy);
        let begin = |plugin| self.env.csi.begin_plugin(&self.plan.uid, &task.name, plugin, was_up);
        self.plugin = task.csi_plugin.as_ref().map(begin);
        self.health = running.health;
        self.running = Some(running);
    }

    fn enter_running(&mut self, now: Timestamp) {
        let state = &mut self.record.state;
        state.state = TaskRunState::Running;
        state.started_at = Some(now);
        state.finished_at = None;
    }
}

/// Ready when there is news of the plugin that the task is.
async fn news_of(plugin: &mut Option<PluginRun>) -> PluginHealth {
    if let Some(run) = plugin
        && run.health.changed().await.is_ok()
    {
        return run.health.borrow_and_update().clone();
    }
    std::future::pending().await
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
