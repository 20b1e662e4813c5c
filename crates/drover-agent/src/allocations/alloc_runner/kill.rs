//! Ending an allocation's tasks: shutdown delay first, then stage after stage.

use std::time::Duration;

use drover_api::allocation::{TaskEventType as Type, TaskState};
use drover_core::lifecycle::{KillCause, Stage, kill_stages};
use tokio::time::Instant;

use super::AllocRunner;
use crate::allocations::kill::Kill;
use crate::tasks::orders::KillOrder;
use crate::tasks::task_event;

impl AllocRunner {
    pub(super) fn end_group(&mut self, cause: &KillCause, live: &[String]) {
        if self.kill.is_some() {
            return;
        }
        let now = self.now();
        let said = match cause {
            KillCause::LeaderDead { .. } => task_event::plain(Type::LeaderTaskDead, now, "leader ended"),
            KillCause::SiblingFailed { task } => {
                task_event::plain(Type::SiblingTaskFailed, now, format!("task {task} of the group failed"))
            }
            KillCause::MainTasksDead => task_event::plain(Type::MainTasksDead, now, "only helper tasks left"),
        };
        tracing::info!(allocation = self.plan.uid, cause = %said.r#type, tasks = ?live, "tasks are ended");
        self.start_kill(KillOrder {
            events: vec![said, self.killing("")],
            skip_delay: false,
            fails: false,
            is_cleanup: false,
        });
    }

    pub(super) fn start_kill(&mut self, order: KillOrder) {
        self.services.withdraw();
        let delay = self.plan.group.shutdown_delay.unwrap_or_default().to_std();
        let delay = if order.skip_delay { Duration::ZERO } else { delay };
        let starts_at = (!delay.is_zero()).then(|| Instant::now() + delay);
        self.kill = Some(Kill::new(kill_stages(&self.tasks.places()), starts_at, order));
        self.order_gates();
        if starts_at.is_none() {
            self.kill_next_stage();
        }
    }

    /// The wait of the group is over, or left out from now on.
    pub(super) fn end_shutdown_delay(&mut self) {
        let waits = self.kill.as_mut().is_some_and(Kill::end_delay);
        if waits {
            self.kill_next_stage();
        }
    }

    /// The longest permitted run is over: poststop tasks end too, all others in their order.
    pub(super) fn end_run_time(&mut self) {
        self.max_run_exceeded = true;
        let order = KillOrder {
            events: vec![self.killing("the longest permitted run is over")],
            skip_delay: false,
            fails: false,
            is_cleanup: false,
        };
        let live =
            |(name, stage, _): &(&String, Stage, &TaskState)| *stage == Stage::Poststop && !self.tasks.is_dead(name);
        let poststop: Vec<String> = self.tasks.stages().filter(live).map(|(name, ..)| name.clone()).collect();
        self.orders.send_modify(|orders| orders.kills.extend(poststop.into_iter().map(|name| (name, order.clone()))));
        if self.kill.is_none() {
            self.start_kill(order);
        }
    }

    /// Goes on with the next stage once all tasks of this one are dead.
    pub(super) fn advance_kill(&mut self) {
        if self.kill.as_ref().is_some_and(|kill| kill.is_stage_over(|name| self.tasks.is_dead(name))) {
            self.kill_next_stage();
        }
    }

    fn kill_next_stage(&mut self) {
        let is_alive = |name: &str| !self.tasks.is_dead(name);
        let Some((live, order)) = self.kill.as_mut().and_then(|kill| kill.next_stage(is_alive)) else { return };
        self.orders.send_modify(|orders| orders.kills.extend(live.into_iter().map(|name| (name, order.clone()))));
    }
}
