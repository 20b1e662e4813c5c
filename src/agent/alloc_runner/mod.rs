//! The allocation runner: all tasks of one allocation on this node, from its preparation to the end of what is left of it.
//!
//! Input: the allocation as the controller wants it, the states of its tasks. Output: orders to the task runners, reports.
//! Decisions are `drover-core`'s: which gate opens, who is killed when a task dies, in which order, what the status is.
//!
//! Invariants: no runner waits for the API server; `endedAt` is reported only when no process of the allocation is left.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::{ClientStatus, Health, TaskEvent, TaskEventType as Type, TaskRunState, TaskState};
use drover_api::group::Group;
use drover_api::job::JobType;
use drover_api::task::Task;
use drover_api::{Allocation, JobSpec};
use drover_core::lifecycle::{
    Coordinator, DerivedStatus, KillCause, Progress, Reaction, RunState, Stage, StatusInput, TaskPlace, derive_status,
    kill_stages, react,
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admission::Admission;
use super::dirs::AllocDir;
use super::report::{self, Report};
use super::sync::Reports;
use super::task_runner::event;
use super::task_runner::{
    KillOrder, Orders, RunnerEnv, TaskEnd, TaskPlan, TaskRecord, TaskRunner, TaskUpdate, place_of_task,
};

mod hooks;

/// Task states that wait for the runner; task runners wait when it is full.
const UPDATE_QUEUE: usize = 64;

/// What the agent wants of an allocation's runner now.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The object as last seen.
    pub(crate) allocation: Arc<Allocation>,
    /// The object is gone: nothing of it may stay, neither process nor file.
    pub(crate) is_destroyed: bool,
    /// The controller holds it for unknown and has taken our node back.
    pub(crate) reconnects: u32,
}

/// Held by whatever still has to find its process again; when the last one is dropped, all have been found or given up.
pub(crate) type Recovering = mpsc::Sender<Infallible>;

/// Waits until an allocation that this one replaces has ended.
pub(crate) type PreviousEnd = Arc<dyn Fn(&Allocation, &str) -> BoxFuture<'static, ()> + Send + Sync>;

/// What an allocation's runner is made from.
pub(crate) struct AllocPlan {
    pub(crate) uid: String,
    pub(crate) env: Arc<RunnerEnv>,
    pub(crate) reports: Reports,
    pub(crate) admission: Admission,
    pub(crate) previous_end: PreviousEnd,
    pub(crate) job: Arc<JobSpec>,
    pub(crate) group: Arc<Group>,
    pub(crate) wanted: watch::Receiver<Wanted>,
    /// Tells whether the allocation has ended here.
    pub(crate) ended: watch::Sender<bool>,
    pub(crate) shutdown: CancellationToken,
    /// The tasks' records of an earlier life of the agent; empty for a new allocation.
    pub(crate) restored: BTreeMap<String, TaskRecord>,
    /// Held until every task has been found again or given up.
    pub(crate) recovering: Option<Recovering>,
}

/// One allocation's runner.
pub(crate) struct AllocRunner {
    plan: AllocPlan,
    dir: AllocDir,
    tasks: BTreeMap<String, Arc<Task>>,
    places: BTreeMap<String, TaskPlace>,
    states: BTreeMap<String, TaskState>,
    coordinator: Coordinator,
    orders: watch::Sender<Orders>,
    kill: Option<Kill>,
    health: Option<Health>,
    reconnects: u32,
    /// Said on every task beside what the task's runner says.
    reconnected: Option<TaskEvent>,
}

/// A kill under way: stage after stage.
#[derive(Debug)]
struct Kill {
    starts_at: Option<Instant>,
    stages: VecDeque<Vec<String>>,
    current: Vec<String>,
    order: KillOrder,
}

/// How the life of an allocation was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
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
        let tasks: BTreeMap<String, Arc<Task>> =
            plan.group.tasks.iter().map(|task| (task.name.clone(), Arc::new(task.clone()))).collect();
        let places: BTreeMap<String, TaskPlace> =
            tasks.iter().map(|(name, task)| (name.clone(), place_of_task(task))).collect();
        let by_name = places.iter().map(|(name, place)| (name.as_str(), *place));
        let coordinator =
            if plan.restored.is_empty() { Coordinator::new(by_name) } else { Coordinator::restored(by_name) };
        let states = tasks
            .keys()
            .map(|name| (name.clone(), plan.restored.get(name).map(|record| record.state.clone()).unwrap_or_default()))
            .collect();
        let acknowledged = plan.reports.record(&plan.uid).and_then(|record| record.acknowledged);
        let health = acknowledged.and_then(|report| report.health);
        let orders = watch::Sender::new(Orders::default());
        Self {
            plan,
            dir,
            tasks,
            places,
            states,
            coordinator,
            orders,
            kill: None,
            health,
            reconnects: 0,
            reconnected: None,
        }
    }

    /// Runs the allocation until it was destroyed or the agent ends.
    pub(crate) async fn run(mut self) {
        if self.live().await == Left::Detached {
            return;
        }
        self.finish().await;
        let shutdown = self.plan.shutdown.clone();
        let mut wanted = self.plan.wanted.clone();
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
            }
        }
    }

    async fn live(&mut self) -> Left {
        let is_new = self.plan.restored.is_empty();
        if is_new && !self.is_wanted() {
            self.note_never_started();
            return Left::Ended;
        }
        let prepared = if self.is_wanted() { self.prepare().await } else { Prepared::Go };
        match prepared {
            Prepared::Detached => Left::Detached,
            Prepared::Stopped if is_new => {
                self.note_never_started();
                Left::Ended
            }
            Prepared::Go | Prepared::Stopped => self.run_tasks().await,
            Prepared::Failed(reason) => self.fail_setup(&reason).await,
        }
    }

    /// The prerun hooks; a stop or the end of the agent cuts them short.
    async fn prepare(&self) -> Prepared {
        let mut wanted = self.plan.wanted.clone();
        tokio::select! {
            biased;
            () = self.plan.shutdown.cancelled() => Prepared::Detached,
            _ = wanted.wait_for(|wanted| wanted.is_destroyed || !report::is_wanted(&wanted.allocation)) => Prepared::Stopped,
            result = hooks::prerun(&self.plan, &self.dir) => match result {
                Ok(()) => Prepared::Go,
                Err(error) => Prepared::Failed(error.to_string()),
            },
        }
    }

    /// Nothing of it is started, and what runs of an earlier life is ended.
    async fn fail_setup(&mut self, reason: &str) -> Left {
        let now = self.now();
        let said = event::plain(Type::SetupFailure, now, format!("the allocation could not be set up: {reason}"));
        tracing::warn!(allocation = self.plan.uid, reason, "allocation could not be set up");
        if self.plan.restored.is_empty() {
            for state in self.states.values_mut() {
                state.state = TaskRunState::Dead;
                state.failed = true;
                state.finished_at = Some(now);
                state.events.push(said.clone());
            }
            return Left::Ended;
        }
        self.start_kill(KillOrder { events: vec![said], skip_delay: true, fails: true });
        self.run_tasks().await
    }

    fn note_never_started(&mut self) {
        let now = self.now();
        for state in self.states.values_mut() {
            state.state = TaskRunState::Dead;
            state.finished_at.get_or_insert(now);
        }
    }

    async fn run_tasks(&mut self) -> Left {
        let recovering = self.plan.recovering.take();
        let (updates, mut changes) = mpsc::channel(UPDATE_QUEUE);
        let mut runners: JoinSet<TaskEnd> = JoinSet::new();
        if !self.is_wanted() {
            self.orders.send_modify(|orders| orders.is_stopped = true);
        }
        self.order_gates();
        for (name, task) in &self.tasks {
            let plan = TaskPlan {
                uid: self.plan.uid.clone(),
                allocation: self.allocation(),
                job: Arc::clone(&self.plan.job),
                group: Arc::clone(&self.plan.group),
                task: Arc::clone(task),
                dir: self.dir.clone(),
                restored: self.plan.restored.get(name).cloned(),
                recovering: recovering.clone(),
            };
            let (env, orders) = (Arc::clone(&self.plan.env), self.orders.subscribe());
            runners.spawn(TaskRunner::new(env, plan, orders, updates.clone(), self.plan.shutdown.clone()).run());
        }
        drop((updates, recovering));
        let mut wanted = self.plan.wanted.clone();
        wanted.mark_changed();
        let mut left = Left::Ended;
        loop {
            tokio::select! {
                biased;
                Some(update) = changes.recv() => self.observe(update),
                ended = runners.join_next() => match ended {
                    Some(Ok(TaskEnd::Done)) => {}
                    Some(Ok(TaskEnd::Detached)) => left = Left::Detached,
                    Some(Err(error)) => {
                        tracing::error!(error = %error, allocation = self.plan.uid, "a task runner broke off");
                        left = Left::Detached;
                    }
                    None => return left,
                },
                Ok(()) = wanted.changed() => {
                    let now = wanted.borrow_and_update().clone();
                    self.take_wanted(&now);
                }
                () = sleep_until(self.kill.as_ref().and_then(|kill| kill.starts_at)) => {
                    if let Some(kill) = &mut self.kill {
                        kill.starts_at = None;
                    }
                    self.kill_next_stage();
                }
            }
        }
    }

    fn take_wanted(&mut self, wanted: &Wanted) {
        if wanted.reconnects > self.reconnects {
            self.reconnects = wanted.reconnects;
            self.reconnected = Some(event::plain(Type::Reconnected, self.now(), "agent is connected again"));
        }
        self.report();
        let is_stopped = wanted.is_destroyed || !report::is_wanted(&wanted.allocation);
        if is_stopped && !self.orders.borrow().is_stopped {
            self.plan.admission.mark_stopping(&self.plan.uid);
            self.orders.send_modify(|orders| orders.is_stopped = true);
        }
        if is_stopped && self.kill.is_none() && !self.is_over() {
            let skip_delay = wanted.allocation.spec.desired_transition.no_shutdown_delay || wanted.is_destroyed;
            self.start_kill(KillOrder { events: vec![self.killing()], skip_delay, fails: false });
            self.report();
        }
    }

    /// Takes in a task's new state and draws the consequences.
    fn observe(&mut self, update: TaskUpdate) {
        self.states.insert(update.task, update.state);
        let progress = self.progress();
        let judged: BTreeMap<String, (TaskPlace, Progress)> =
            self.places.iter().map(|(name, place)| (name.clone(), (*place, progress[name]))).collect();
        match react(&judged) {
            Reaction::Continue => {}
            Reaction::Kill { cause, live } => self.end_group(&cause, &live),
            Reaction::AllDead => self.orders.send_modify(|orders| orders.is_released = true),
        }
        self.order_gates();
        self.advance_kill();
        // The last state of all is reported with the end of the allocation, which follows at once.
        if !self.is_over() {
            self.report();
        }
    }

    fn end_group(&mut self, cause: &KillCause, live: &[String]) {
        if self.kill.is_some() {
            return;
        }
        let now = self.now();
        let said = match cause {
            KillCause::LeaderDead { .. } => event::plain(Type::LeaderTaskDead, now, "leader ended"),
            KillCause::SiblingFailed { task } => {
                event::plain(Type::SiblingTaskFailed, now, format!("task {task} of the group failed"))
            }
            KillCause::MainTasksDead => event::plain(Type::MainTasksDead, now, "only helper tasks left"),
        };
        tracing::info!(allocation = self.plan.uid, cause = %said.r#type, tasks = ?live, "tasks are ended");
        self.start_kill(KillOrder { events: vec![said, self.killing()], skip_delay: false, fails: false });
    }

    fn start_kill(&mut self, order: KillOrder) {
        let delay = self.plan.group.shutdown_delay.unwrap_or_default().to_std();
        let delay = if order.skip_delay { Duration::ZERO } else { delay };
        let stages = kill_stages(&self.places).into();
        let starts_at = (!delay.is_zero()).then(|| Instant::now() + delay);
        self.kill = Some(Kill { starts_at, stages, current: Vec::new(), order });
        if starts_at.is_none() {
            self.kill_next_stage();
        }
    }

    /// Goes on with the next stage once all tasks of this one are dead.
    fn advance_kill(&mut self) {
        let Some(kill) = &self.kill else { return };
        let is_done =
            kill.current.iter().all(|name| self.states.get(name).is_none_or(|it| it.state == TaskRunState::Dead));
        if kill.starts_at.is_none() && is_done {
            self.kill_next_stage();
        }
    }

    fn kill_next_stage(&mut self) {
        let Some(kill) = &mut self.kill else { return };
        while let Some(stage) = kill.stages.pop_front() {
            let live: Vec<String> = stage
                .into_iter()
                .filter(|name| self.states.get(name).is_some_and(|it| it.state != TaskRunState::Dead))
                .collect();
            if live.is_empty() {
                continue;
            }
            let order = kill.order.clone();
            self.orders
                .send_modify(|orders| orders.kills.extend(live.iter().map(|name| (name.clone(), order.clone()))));
            kill.current = live;
            return;
        }
        kill.current.clear();
    }

    fn order_gates(&mut self) {
        let gates = self.coordinator.observe(&self.progress());
        self.orders.send_if_modified(|orders| std::mem::replace(&mut orders.gates, gates) != gates);
    }

    /// Nothing of the allocation runs here any more.
    async fn finish(&mut self) {
        let fifos = self.plan.env.fifo_dir.join(&self.plan.uid);
        match std::fs::remove_dir_all(&fifos) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(error = %error, path = %fifos.display(), "fifos are left"),
        }
        self.keep_unstarted().await;
        self.plan.admission.release(&self.plan.uid);
        self.report();
        self.plan.ended.send_replace(true);
    }

    /// Tasks that never had a runner have no record yet; without one a restarted agent would run them.
    async fn keep_unstarted(&self) {
        for (name, state) in &self.states {
            let record = TaskRecord { state: state.clone(), handle: None, run_complete: true };
            if let Err(error) = self.plan.env.state.put_task(&self.plan.uid, name, &record).await {
                tracing::error!(error = %error, allocation = self.plan.uid, task = name, "task state is not kept");
            }
        }
    }

    async fn destroy(&self) {
        let uid = &self.plan.uid;
        if let Err(error) = self.dir.destroy() {
            tracing::error!(error = %error, allocation = uid, "allocation directory is left");
        }
        if let Err(error) = self.plan.env.state.forget(uid).await {
            tracing::error!(error = %error, allocation = uid, "a destroyed allocation is still in the state file");
        }
        self.plan.reports.forget(uid);
        tracing::info!(allocation = uid, "allocation is destroyed");
    }

    /// Leaves a report of how the allocation fares now.
    fn report(&mut self) {
        let report = self.make_report();
        self.plan.reports.put(&self.plan.uid, report);
    }

    fn make_report(&mut self) -> Report {
        let progress: Vec<Progress> = self.progress().into_values().collect();
        let derived = derive_status(&StatusInput { tasks: &progress, ..StatusInput::default() });
        let (status, description) = derived.unwrap_or((DerivedStatus::Pending, "no task started"));
        let health_matters = matches!(self.plan.job.r#type, JobType::Service | JobType::System);
        let allocation = self.allocation();
        // A deployment's verdict stays as it was given; without one a failed allocation is not healthy any more.
        let is_open = self.health.as_ref().is_none_or(|health| {
            health.healthy && allocation.spec.deployment_name.is_empty() && status == DerivedStatus::Failed
        });
        if health_matters && is_open {
            self.health = self.verdict(status);
        }
        Report {
            generation: allocation.metadata.generation.unwrap_or_default(),
            client_status: match status {
                DerivedStatus::Pending => ClientStatus::Pending,
                DerivedStatus::Running => ClientStatus::Running,
                DerivedStatus::Complete => ClientStatus::Complete,
                DerivedStatus::Failed => ClientStatus::Failed,
            },
            description: description.to_owned(),
            task_states: self.states.iter().map(|(name, state)| (name.clone(), self.with_reconnect(state))).collect(),
            health: self.health.clone(),
            ended_at: self.ended_at(),
            health_matters,
            stopping: !self.is_wanted() && !status.is_terminal(),
        }
    }

    fn with_reconnect(&self, state: &TaskState) -> TaskState {
        let mut state = state.clone();
        if let Some(reconnected) = &self.reconnected {
            event::insert(&mut state.events, reconnected.clone());
        }
        state
    }

    /// Without a deployment an allocation is healthy as soon as its tasks run; a failed one is not.
    fn verdict(&self, status: DerivedStatus) -> Option<Health> {
        let is_up = |name: &str, state: &TaskState| match self.places.get(name).map(|place| place.stage) {
            Some(Stage::Poststop | Stage::PoststartEphemeral) | None => true,
            Some(Stage::PrestartEphemeral) => state.state == TaskRunState::Dead && !state.failed,
            Some(Stage::Main | Stage::PrestartSidecar | Stage::PoststartSidecar) => {
                state.state == TaskRunState::Running
            }
        };
        let healthy = match status {
            DerivedStatus::Failed => false,
            DerivedStatus::Running if self.states.iter().all(|(name, state)| is_up(name, state)) => true,
            DerivedStatus::Running | DerivedStatus::Pending | DerivedStatus::Complete => return None,
        };
        let deployment_name = self.allocation().spec.deployment_name.clone();
        Some(Health { healthy, timestamp: self.now(), deployment_name })
    }

    /// The last end of its tasks, once all have ended.
    fn ended_at(&self) -> Option<Timestamp> {
        let all_dead = self.states.values().all(|state| state.state == TaskRunState::Dead);
        all_dead.then(|| self.states.values().filter_map(|state| state.finished_at).max().unwrap_or_else(|| self.now()))
    }

    fn is_over(&self) -> bool {
        self.states.values().all(|state| state.state == TaskRunState::Dead)
    }

    fn progress(&self) -> BTreeMap<String, Progress> {
        self.states
            .iter()
            .map(|(name, task)| {
                let state = match task.state {
                    TaskRunState::Pending => RunState::Pending,
                    TaskRunState::Running => RunState::Running,
                    TaskRunState::Dead => RunState::Dead,
                };
                (name.clone(), Progress { state, failed: task.failed })
            })
            .collect()
    }

    /// Its text is completed by each task, which alone knows its timeout.
    fn killing(&self) -> TaskEvent {
        event::plain(Type::Killing, self.now(), "")
    }

    fn is_wanted(&self) -> bool {
        let wanted = self.plan.wanted.borrow();
        !wanted.is_destroyed && report::is_wanted(&wanted.allocation)
    }

    fn allocation(&self) -> Arc<Allocation> {
        Arc::clone(&self.plan.wanted.borrow().allocation)
    }

    fn now(&self) -> Timestamp {
        self.plan.env.clock.now()
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
