//! Ending a task: shutdown delay, signal, force, and what is told of it.

use std::time::Duration;

use drover_api::allocation::{TaskEvent, TaskEventType as Type};

use super::TaskRunner;
use crate::drivers::{Driver, ExitResult, Running, signal_number};
use crate::tasks::commands::CommandError;
use crate::tasks::orders::KillOrder;
use crate::tasks::record::EndReason;
use crate::tasks::task_event;
use drover_supervisor::protocol::Exit;

/// The signal of a task that names none.
const DEFAULT_SIGNAL: &str = "SIGINT";
/// How long a task may take to vanish after SIGKILL.
const VANISH: Duration = Duration::from_secs(30);
/// The pauses between tries to stop a task.
const RETRIES: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(20), Duration::from_secs(80), Duration::from_mins(2)];

impl TaskRunner {
    /// The task's kill timeout, within the node's limit.
    pub(super) fn kill_timeout(&self) -> Duration {
        self.plan.task.kill_timeout.to_std().min(self.env.max_kill_timeout)
    }

    /// Ends a running task and records how it ended.
    pub(super) async fn kill(&mut self, mut running: Running) {
        self.adopt_version();
        let order = self.kill_order();
        self.note_order(&order).await;
        let ended_meanwhile = self.delay(&order, &mut running).await;
        self.tracker.observe_kill();
        let result = match ended_meanwhile {
            Some(result) => result,
            None => self.end(running).await,
        };
        self.note_end(&result);
    }

    /// Ends a run that another one is to follow.
    pub(super) async fn end_for_restart(&mut self, running: Running, why: &str) {
        self.say_restart(why);
        self.end_because(running, EndReason::Restart).await;
    }

    /// Ends a run for this reason, which is on disk before its process hears of it.
    pub(super) async fn end_because(&mut self, running: Running, reason: EndReason) {
        if self.record.ending.replace(reason) != Some(reason) {
            self.keep().await;
            self.tell().await;
        }
        match reason {
            EndReason::Restart => self.tracker.observe_restart_request(),
            EndReason::Final => self.tracker.observe_kill(),
            EndReason::Failure => {}
        }
        let result = self.end(running).await;
        match reason {
            EndReason::Restart | EndReason::Final => self.note_end(&result),
            EndReason::Failure => self.note_end_as(&result, false),
        }
    }

    /// Ends a run that none follows, because its templates cannot be acted on as the job says.
    pub(super) async fn end_as_failed(&mut self, running: Running, why: String) {
        let now = self.env.clock.now();
        self.push(task_event::plain(Type::TaskHookFailed, now, format!("templates: {why}")));
        self.push(task_event::killing(now, self.kill_timeout()));
        self.record.state.failed = true;
        self.end_because(running, EndReason::Final).await;
    }

    async fn end(&mut self, mut running: Running) -> ExitResult {
        match self.driver.clone() {
            Some(driver) => self.stop(&*driver, &mut running).await,
            None => running.ended.await,
        }
    }

    /// Sends a signal to the running task; `why` is told with it where there is a reason.
    pub(super) async fn signal(&mut self, name: &str, id: &str, why: &str) -> Result<(), CommandError> {
        let text = if why.is_empty() { format!("sending {name}") } else { format!("{why}: sending {name}") };
        let said = task_event::plain(Type::Signaling, self.env.clock.now(), text);
        self.push(said);
        self.tell().await;
        match &self.driver {
            Some(driver) => {
                driver.signal(id, signal_number(name)).await.map_err(|error| CommandError::Driver(error.to_string()))
            }
            None => Err(CommandError::NotRunning),
        }
    }

    /// A kill of a task that does not run: it ends without an end of a process.
    pub(super) async fn note_kill_of_unstarted(&mut self) {
        let order = self.kill_order();
        self.note_order(&order).await;
    }

    async fn note_order(&mut self, order: &KillOrder) {
        for said in &order.events {
            let said = match said.r#type {
                // Only here the task's own timeout is known.
                Type::Killing if said.message.is_empty() => task_event::killing(said.time, self.kill_timeout()),
                _ => said.clone(),
            };
            self.push(said);
        }
        self.record.state.failed |= order.fails;
        self.tell().await;
    }

    /// Leaves the task running for its shutdown delay; some when it ended by itself.
    async fn delay(&mut self, order: &KillOrder, running: &mut Running) -> Option<ExitResult> {
        let delay = self.plan.task.shutdown_delay.unwrap_or_default().to_std();
        if delay.is_zero() {
            return None;
        }
        let now = self.env.clock.now();
        let skip = order.skip_delay || self.handles.orders.borrow().skip_delay;
        let (r#type, verb) =
            if skip { (Type::SkippingShutdownDelay, "left out") } else { (Type::WaitingForShutdownDelay, "waiting") };
        let said = task_event::plain(r#type, now, format!("shutdown delay of {}s: {verb}", delay.as_secs_f64()));
        self.push(TaskEvent { delay: Some(delay.into()), ..said });
        self.tell().await;
        if skip {
            return None;
        }
        let mut orders = self.handles.orders.clone();
        tokio::select! {
            biased;
            result = &mut running.ended => Some(result),
            // Without the allocation's runner nobody can leave the rest of the delay out.
            Ok(_) = orders.wait_for(|orders| orders.skip_delay) => None,
            () = tokio::time::sleep(delay) => None,
        }
    }

    async fn stop(&mut self, driver: &dyn Driver, running: &mut Running) -> ExitResult {
        let name = if self.plan.task.kill_signal.is_empty() { DEFAULT_SIGNAL } else { &self.plan.task.kill_signal };
        let (signal, grace, id) = (signal_number(name), self.kill_timeout(), running.handle.id.clone());
        let mut pauses = RETRIES.into_iter();
        while let Err(error) = driver.stop(&id, signal, grace).await {
            tracing::warn!(error = %error, task = id, "task could not be stopped");
            let Some(pause) = pauses.next() else { break };
            tokio::select! {
                biased;
                result = &mut running.ended => return result,
                () = tokio::time::sleep(pause) => {}
            }
        }
        match tokio::time::timeout(grace + VANISH, &mut running.ended).await {
            Ok(result) => result,
            Err(_) => ExitResult { exit: Exit::unknown("it did not end after SIGKILL"), oom_killed: false },
        }
    }

    pub(super) fn kill_order(&self) -> KillOrder {
        let orders = self.handles.orders.borrow();
        orders.kills.get(&self.plan.task.name).cloned().unwrap_or_else(|| KillOrder {
            events: Vec::new(),
            skip_delay: false,
            fails: false,
            is_cleanup: false,
        })
    }
}
