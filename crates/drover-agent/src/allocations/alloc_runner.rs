//! The allocation runner: all tasks of one allocation on this node, from its preparation to the end of what is left of
//! it.
//!
//! Input: the allocation as the controller wants it, the states of its tasks. Output: orders to the task runners,
//! reports. Decisions are `drover-core`'s: which gate opens, who is killed when a task dies, in which order, what the
//! status is.
//!
//! Invariants: no runner waits for the API server; `endedAt` is reported only when no process of the allocation is
//! left.

use std::sync::Arc;
use std::time::Duration;

use drover_api::Allocation;
use drover_api::allocation::{TaskEvent, TaskEventType as Type};
use drover_core::lifecycle::{Coordinator, Reaction};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::health::HealthTracking;
use super::hooks;
use super::kill::Kill;
use super::plan::{AllocPlan, Runners, Wanted};
use super::service_watch::{Places, ServiceWatch};
use super::task_commands::{Errand, TaskCommands};
use super::task_states::TaskStates;
use crate::node::alloc_dir::AllocDir;
use crate::node::beneath::Owner;
use crate::tasks::orders::{KillOrder, Orders};
use crate::tasks::plan::{TaskEnd, TaskHandles, TaskPlan, TaskUpdate};
use crate::tasks::record::TaskRecord;
use crate::tasks::task_event;
use crate::tasks::task_runner::TaskRunner;
use crate::watch;
use drover_clock::sleep_until;

mod control;
mod kill;
mod report;
#[cfg(test)]
mod tests;
mod unhealthy;

/// Task states that wait for the runner; task runners wait when it is full.
const UPDATE_QUEUE: usize = 64;
/// Requests per task that wait; more are refused.
const COMMAND_QUEUE: usize = 8;

/// The runners that run tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskRunners;

impl Runners for TaskRunners {
    fn run(&self, plan: AllocPlan) -> BoxFuture<'static, ()> {
        AllocRunner::new(plan).run().boxed()
    }
}

/// One allocation's runner.
pub(crate) struct AllocRunner {
    plan: AllocPlan,
    dir: AllocDir,
    tasks: TaskStates,
    coordinator: Coordinator,
    orders: watch::Sender<Orders>,
    /// The runners of its tasks, for requests.
    commands: TaskCommands,
    kill: Option<Kill>,
    health: HealthTracking,
    /// Its services and their checks.
    services: ServiceWatch,
    max_run_exceeded: bool,
    /// When a person on this node asked for its stop, which the controller carries out.
    stop_requested_at: Option<Timestamp>,
    /// It was to end already when an earlier life of the agent ended.
    is_leftover: bool,
    reconnects: u32,
}

/// How the life of an allocation was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AllocExit {
    /// No process is left.
    Ended,
    /// The agent ends and the tasks go on.
    Detached,
}

enum Prepared {
    Go,
    Failed(String),
    Stopped,
    Detached,
}

impl AllocRunner {
    /// A runner for this allocation.
    pub(crate) fn new(plan: AllocPlan) -> Self {
        let dir = AllocDir::new(&plan.env.alloc_dir, &plan.uid);
        let tasks = TaskStates::new(&plan.group, &plan.restored);
        let places = tasks.places();
        let by_name = places.iter().map(|(name, place)| (name.as_str(), *place));
        let coordinator =
            if plan.restored.is_empty() { Coordinator::new(by_name) } else { Coordinator::restored(by_name) };
        let told = plan.reports.latest(&plan.uid);
        // A request that was told stays told until the controller has carried it out.
        let stop_requested_at = told.as_ref().and_then(|report| report.stop_requested_at);
        let commands = TaskCommands::default();
        let places = Places { commands: commands.clone(), dir: dir.clone() };
        let services = ServiceWatch::new(&plan, told.as_ref(), &tasks, places);
        let health = HealthTracking::new(told.and_then(|report| report.health));
        let orders = watch::Sender::new(Orders::new(Arc::clone(&plan.job), Arc::clone(&plan.group)));
        Self {
            plan,
            dir,
            tasks,
            coordinator,
            orders,
            commands,
            kill: None,
            health,
            services,
            max_run_exceeded: false,
            stop_requested_at,
            is_leftover: false,
            reconnects: 0,
        }
    }

    /// Runs the allocation until it was destroyed or the agent ends.
    pub(crate) async fn run(mut self) {
        if self.live().await == AllocExit::Detached {
            return;
        }
        self.finish().await;
        let shutdown = self.plan.shutdown.clone();
        let mut wanted = self.plan.wanted.clone();
        let (csi, uid) = (self.plan.env.csi.clone(), self.plan.uid.clone());
        let mut is_clear = csi.is_clear(&uid);
        loop {
            if wanted.borrow_and_update().is_destroyed {
                self.destroy().await;
                return;
            }
            // Ended allocations keep their reports current: the object may have been marked meanwhile.
            self.report();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                changed = wanted.changed() => if changed.is_err() { return },
                () = csi.cleared(&uid), if !is_clear => is_clear = true,
                Some(command) = self.plan.commands.recv() => command.refuse(),
            }
        }
    }

    async fn live(&mut self) -> AllocExit {
        let is_new = self.plan.restored.is_empty();
        if is_new && !self.is_wanted() {
            self.note_never_started();
            return AllocExit::Ended;
        }
        self.is_leftover = !is_new && !self.is_wanted();
        self.track_health();
        let prepared = if self.is_wanted() { self.prepare().await } else { Prepared::Go };
        match prepared {
            Prepared::Detached => AllocExit::Detached,
            Prepared::Stopped if is_new => {
                self.note_never_started();
                AllocExit::Ended
            }
            Prepared::Go | Prepared::Stopped => self.run_tasks().await,
            Prepared::Failed(reason) => self.fail_setup(&reason).await,
        }
    }

    /// The prerun hooks; a stop or the end of the agent cuts them short.
    async fn prepare(&mut self) -> Prepared {
        let (mut wanted, shutdown) = (self.plan.wanted.clone(), self.plan.shutdown.clone());
        // The hooks borrow the rest of the plan meanwhile.
        let mut refused = std::mem::replace(&mut self.plan.commands, mpsc::channel(1).1);
        let refuse = async {
            while let Some(command) = refused.recv().await {
                command.refuse();
            }
            std::future::pending::<()>().await;
        };
        let prepared = tokio::select! {
            biased;
            () = shutdown.cancelled() => Prepared::Detached,
            _ = wanted.wait_for(|wanted| !wanted.is_to_run()) => Prepared::Stopped,
            result = hooks::prerun(&self.plan, &self.dir) => match result {
                Ok(()) => Prepared::Go,
                Err(error) => Prepared::Failed(error.to_string()),
            },
            () = refuse => Prepared::Detached,
        };
        self.plan.commands = refused;
        prepared
    }

    /// Nothing of it is started, and what runs of an earlier life is ended.
    async fn fail_setup(&mut self, reason: &str) -> AllocExit {
        let now = self.now();
        let because =
            task_event::plain(Type::SetupFailure, now, format!("the allocation could not be set up: {reason}"));
        tracing::warn!(allocation = self.plan.uid, reason, "allocation could not be set up");
        if self.plan.restored.is_empty() {
            self.tasks.fail_unstarted(now, &because);
            return AllocExit::Ended;
        }
        self.start_kill(KillOrder { events: vec![because], skip_delay: true, fails: true, is_cleanup: true });
        self.run_tasks().await
    }

    fn note_never_started(&mut self) {
        let now = self.now();
        self.tasks.end_unstarted(now);
    }

    async fn run_tasks(&mut self) -> AllocExit {
        let (updates, mut changes) = mpsc::channel(UPDATE_QUEUE);
        if !self.is_wanted() {
            self.orders.send_modify(|orders| orders.is_stopped = true);
        }
        self.order_gates();
        let owner = self.plan.env.machine.users.of(&self.plan.uid).await;
        let mut runners = self.start_task_runners(&updates, owner);
        // Only the runners keep the channel open.
        drop(updates);
        let mut errands: FuturesUnordered<Errand> = FuturesUnordered::new();
        let max_run = self.max_run_deadline();
        let mut wanted = self.plan.wanted.clone();
        wanted.mark_changed();
        let mut left = AllocExit::Ended;
        loop {
            let restart_at = self.services.wake_at(self.now());
            tokio::select! {
                biased;
                Some(update) = changes.recv() => self.observe(update),
                ended = runners.join_next() => match ended {
                    Some(Ok(TaskEnd::Done)) => {}
                    Some(Ok(TaskEnd::Detached)) => left = AllocExit::Detached,
                    Some(Err(error)) => {
                        tracing::error!(error = %error, allocation = self.plan.uid, "a task runner broke off");
                        left = AllocExit::Detached;
                    }
                    None => break,
                },
                Ok(()) = wanted.changed() => {
                    let now = wanted.borrow_and_update().clone();
                    self.take_wanted(&now);
                }
                Some(command) = self.plan.commands.recv() => errands.extend(self.take_command(command)),
                Some(()) = errands.next() => {}
                Some(probed) = self.services.probed() => {
                    let now = self.now();
                    self.services.note(&probed, now);
                    self.report();
                }
                () = sleep_until(restart_at) => self.restart_unhealthy(),
                () = sleep_until(self.kill.as_ref().and_then(Kill::starts_at)) => self.end_shutdown_delay(),
                () = sleep_until(self.health.wake_at()) => self.report(),
                () = sleep_until(max_run), if !self.max_run_exceeded => {
                    self.end_run_time();
                    self.report();
                }
            }
        }
        self.commands.clear();
        // Whoever asked the tasks gets an answer: their runners are gone.
        while errands.next().await.is_some() {}
        left
    }

    fn start_task_runners(&mut self, updates: &mpsc::Sender<TaskUpdate>, owner: Option<Owner>) -> JoinSet<TaskEnd> {
        let recovering = self.plan.recovering.take();
        let mut runners = JoinSet::new();
        for (name, task) in self.tasks.tasks() {
            let (to_task, commands) = mpsc::channel(COMMAND_QUEUE);
            self.commands.insert(name, to_task);
            let plan = TaskPlan {
                uid: self.plan.uid.clone(),
                allocation: self.allocation(),
                job: Arc::clone(&self.plan.job),
                group: Arc::clone(&self.plan.group),
                task: Arc::clone(task),
                dir: self.dir.clone(),
                owner,
                restored: self.plan.restored.get(name).cloned(),
                recovering: recovering.clone(),
                volumes: self.plan.volumes.clone(),
            };
            let wires = TaskHandles {
                orders: self.orders.subscribe(),
                commands,
                updates: updates.clone(),
                shutdown: self.plan.shutdown.clone(),
            };
            runners.spawn(TaskRunner::new(Arc::clone(&self.plan.env), plan, wires).run());
        }
        runners
    }

    /// When the longest permitted run is over, counted from the creation of the object.
    fn max_run_deadline(&self) -> Option<Instant> {
        let longest = self.plan.group.max_run_duration?.to_std();
        let created = self.allocation().metadata.creation_timestamp.as_ref().map(|time| time.0)?;
        let spent = Duration::try_from(self.now().duration_since(created)).unwrap_or_default();
        Some(Instant::now() + longest.saturating_sub(spent))
    }

    fn take_wanted(&mut self, wanted: &Wanted) {
        if wanted.reconnects > self.reconnects {
            self.reconnects = wanted.reconnects;
            let reconnected = task_event::plain(Type::Reconnected, self.now(), "agent is connected again");
            self.tasks.add_event_to_all(&reconnected);
        }
        if !Arc::ptr_eq(&wanted.group, &self.plan.group) {
            self.adopt_version(wanted);
        }
        self.follow_deployment();
        self.report();
        let is_stopped = !wanted.is_to_run();
        if is_stopped && !self.orders.borrow().is_stopped {
            self.plan.admission.mark_stopping(&self.plan.uid);
            self.orders.send_modify(|orders| orders.is_stopped = true);
        }
        let skip_delay = wanted.allocation.spec.desired_transition.no_shutdown_delay || wanted.is_destroyed;
        if skip_delay && is_stopped {
            self.orders.send_if_modified(|orders| !std::mem::replace(&mut orders.skip_delay, true));
            self.end_shutdown_delay();
        }
        if is_stopped && self.kill.is_none() && !self.tasks.is_over() {
            let reason = match (wanted.is_disconnected, self.stop_requested_at.is_some()) {
                (true, _) => "no controller for longer than the group allows",
                (false, true) => "stopped by a person on this node",
                (false, false) => "",
            };
            let events = if self.is_leftover { Vec::new() } else { vec![self.killing(reason)] };
            self.start_kill(KillOrder { events, skip_delay, fails: false, is_cleanup: self.is_leftover });
            self.report();
        }
    }

    /// Takes over the policies of another version of the job. A task that it lacks fails.
    fn adopt_version(&mut self, wanted: &Wanted) {
        (self.plan.job, self.plan.group) = (Arc::clone(&wanted.job), Arc::clone(&wanted.group));
        self.services.adopt(wanted, self.plan.env.clock.now());
        let is_gone = |name: &&String| !wanted.group.tasks.iter().any(|task| task.name == **name);
        let gone: Vec<String> = self.tasks.tasks().map(|(name, _)| name).filter(is_gone).cloned().collect();
        let version = wanted.allocation.spec.job_version;
        let event = self.killing(&format!("version {version} of the job has no such task"));
        let order = KillOrder { events: vec![event], skip_delay: true, fails: true, is_cleanup: false };
        self.orders.send_modify(|orders| {
            (orders.job, orders.group) = (Arc::clone(&wanted.job), Arc::clone(&wanted.group));
            orders.kills.extend(gone.into_iter().map(|name| (name, order.clone())));
        });
    }

    /// Takes in a task's new state and draws the consequences.
    fn observe(&mut self, update: TaskUpdate) {
        match self.tasks.observe(update) {
            Reaction::Continue => {}
            Reaction::Kill { cause, live } => self.end_group(&cause, &live),
            Reaction::AllDead => self.orders.send_modify(|orders| orders.is_released = true),
        }
        self.order_gates();
        self.advance_kill();
        // The last state of all is reported with the end of the allocation, which follows at once.
        if !self.tasks.is_over() {
            self.report();
        }
    }

    fn order_gates(&mut self) {
        let gates = self.coordinator.observe(&self.tasks.progress());
        let gates = if self.kill.is_some() { gates.while_killing() } else { gates };
        self.orders.send_if_modified(|orders| std::mem::replace(&mut orders.gates, gates) != gates);
    }

    /// Nothing of the allocation runs here any more.
    async fn finish(&mut self) {
        self.services.withdraw();
        let fifos = self.plan.env.fifo_dir.join(&self.plan.uid);
        self.plan.env.machine.disk.remove_fifos(&fifos);
        self.keep_unstarted().await;
        self.plan.admission.release(&self.plan.uid);
        let shutdown = self.plan.shutdown.clone();
        tokio::select! {
            biased;
            // The next agent goes on with it.
            () = shutdown.cancelled() => {}
            () = hooks::postrun(&self.plan) => {}
        }
        self.report();
        self.plan.ended.send_replace(true);
        self.plan.env.garbage.notify_one();
    }

    /// Tasks that never had a runner have no record yet; without one a restarted agent would run them.
    async fn keep_unstarted(&self) {
        for (name, state) in self.tasks.states() {
            let record = TaskRecord { state: state.clone(), run_complete: true, ..TaskRecord::default() };
            if let Err(error) = self.plan.env.state.put_task(&self.plan.uid, name, &record).await {
                tracing::error!(error = %error, allocation = self.plan.uid, task = name, "task state is not kept");
            }
        }
    }

    async fn destroy(&self) {
        let uid = &self.plan.uid;
        if let Err(error) = self.plan.env.machine.disk.destroy(&self.dir).await {
            // Its user is not given to others while files of it are left.
            tracing::error!(error = %error, allocation = uid, "allocation directory is left");
        } else {
            self.plan.env.machine.users.release(uid).await;
        }
        if let Err(error) = self.plan.env.state.forget(uid).await {
            tracing::error!(error = %error, allocation = uid, "a destroyed allocation is still in the state file");
        }
        self.plan.reports.forget(uid);
        tracing::info!(allocation = uid, "allocation is destroyed");
    }

    /// Without a reason its text is completed by each task, which alone knows its timeout.
    fn killing(&self, reason: &str) -> TaskEvent {
        task_event::plain(Type::Killing, self.now(), reason)
    }

    fn allocation(&self) -> Arc<Allocation> {
        Arc::clone(&self.plan.wanted.borrow().allocation)
    }

    fn now(&self) -> Timestamp {
        self.plan.env.clock.now()
    }
}
