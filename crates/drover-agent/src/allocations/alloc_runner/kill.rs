//! Ending an allocation's tasks: shutdown delay first, then stage after stage.

use std::collections::VecDeque;
use std::time::Duration;

use drover_api::allocation::{TaskEventType as Type, TaskRunState};
use drover_core::lifecycle::{KillCause, Stage, kill_stages};
use tokio::time::Instant;

use super::AllocRunner;
use crate::tasks::orders::KillOrder;
use crate::tasks::task_event;

/// A kill under way: stage after stage.
#[derive(Debug)]
pub(super) struct Kill {
    pub(super) starts_at: Option<Instant>,
    stages: VecDeque<Vec<String>>,
    current: Vec<String>,
    order: KillOrder,
}

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
        let delay = self.plan.group.shutdown_delay.unwrap_or_default().to_std();
        let delay = if order.skip_delay { Duration::ZERO } else { delay };
        let stages = kill_stages(&self.places).into();
        let starts_at = (!delay.is_zero()).then(|| Instant::now() + delay);
        self.kill = Some(Kill { starts_at, stages, current: Vec::new(), order });
        self.order_gates();
        if starts_at.is_none() {
            self.kill_next_stage();
        }
    }

    /// The wait of the group is over, or left out from now on.
    pub(super) fn end_shutdown_delay(&mut self) {
        let waits = self.kill.as_mut().and_then(|kill| kill.starts_at.take()).is_some();
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
        let poststop: Vec<String> = self
            .places
            .iter()
            .filter(|(name, place)| place.stage == Stage::Poststop && !self.is_dead(name))
            .map(|(name, _)| name.clone())
            .collect();
        self.orders.send_modify(|orders| orders.kills.extend(poststop.into_iter().map(|name| (name, order.clone()))));
        if self.kill.is_none() {
            self.start_kill(order);
        }
    }

    /// Goes on with the next stage once all tasks of this one are dead.
    pub(super) fn advance_kill(&mut self) {
        let Some(kill) = &self.kill else { return };
        let is_done = kill.current.iter().all(|name| self.is_dead(name));
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

    fn is_dead(&self, task: &str) -> bool {
        self.states.get(task).is_none_or(|it| it.state == TaskRunState::Dead)
    }
}
