//! Finding a task again after the agent was away, by the table of `spec/agent.md` section 5.8.

use drover_api::allocation::{TaskEventType as Type, TaskRunState};
use drover_api::job::JobType;

use super::{Interrupt, Restored, TaskRunner};
use crate::drivers::Running;
use crate::tasks::task_event;
use crate::tasks::task_words::TaskWords;

/// What was found of the task's process.
enum Found {
    Is(Restored),
    /// There is none, and one may have to be started.
    Nothing,
}

impl TaskRunner {
    pub(super) async fn restore(&mut self) -> Restored {
        let found = self.find_again().await;
        self.plan.recovering = None;
        match found {
            Found::Is(restored) => restored,
            Found::Nothing => self.wait_for_contact().await,
        }
    }

    async fn find_again(&mut self) -> Found {
        if self.plan.restored.is_none() {
            return Found::Is(Restored::Live);
        }
        self.tell().await;
        if self.record.run_complete {
            return Found::Is(Restored::Finished);
        }
        if self.record.state.state == TaskRunState::Dead {
            self.record.handle = None;
            return Found::Is(Restored::Dead);
        }
        if let Some(running) = self.find_process().await {
            self.take_over(running).await;
            return Found::Is(Restored::Live);
        }
        (self.record.handle, self.record.ending) = (None, None);
        if self.record.state.state == TaskRunState::Running {
            let now = self.env.clock.now();
            self.push(task_event::plain(
                Type::FailedRestoringTask,
                now,
                "lost the running task; waiting for the controller",
            ));
            self.record.state.state = TaskRunState::Pending;
        }
        self.keep().await;
        self.tell().await;
        Found::Nothing
    }

    /// By its handle, or by the id of a run that may have begun although its handle was not written.
    async fn find_process(&mut self) -> Option<Running> {
        let driver = self.driver.clone()?;
        match (self.record.handle.clone(), self.record.starting.take()) {
            (Some(handle), _) => driver.recover(handle).await,
            (None, Some(id)) => driver.find(&id).await,
            (None, None) => None,
        }
    }

    /// A run that has begun is taken over, not ended and begun again.
    async fn take_over(&mut self, running: Running) {
        let is_known = self.record.handle.is_some();
        if !is_known {
            self.record.handle = Some(running.handle.clone());
        }
        let is_told = self.record.state.state == TaskRunState::Running;
        if !is_told {
            let now = self.env.clock.now();
            self.enter_running(now);
            if !is_known {
                self.push(task_event::started(now));
            }
        }
        self.hold(running);
        if let Some(driver) = &self.driver {
            let words = TaskWords::new(&self.env, &self.plan, driver.fs_isolation());
            self.serve_api(&words).await;
        }
        if !is_known {
            self.keep().await;
        }
        if !is_told {
            self.tell().await;
        }
    }

    /// A task that does not run any more starts only when the controller still wants it: it may have been stopped
    /// meanwhile.
    async fn wait_for_contact(&mut self) -> Restored {
        if self.plan.job.r#type == JobType::System {
            return Restored::Live;
        }
        let mut contacted = self.env.contacted.clone();
        let opened = async move { contacted.wait_for(|open| *open).await.is_ok() };
        match self.idle(opened).await {
            // A kill's orders are read when its life begins.
            Ok(true) | Err(Interrupt::Kill) => Restored::Live,
            Ok(false) | Err(Interrupt::Shutdown) => Restored::Detached,
        }
    }
}
