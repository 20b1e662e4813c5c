//! Finding a task again after the agent was away, by the table of `spec/agent.md` section 5.8.

use drover_api::allocation::{TaskEventType as Type, TaskRunState};
use drover_api::job::JobType;

use super::{Interrupt, TaskRunner, event};

/// What an earlier life left of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restored {
    /// It is to be run, or runs.
    Live,
    /// It ended for good and still has to be cleaned up.
    Dead,
    /// Nothing is left to do.
    Finished,
    /// The agent ends.
    Detached,
}

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
        let Some(handle) = self.record.handle.clone() else {
            return self.find_begun().await;
        };
        if let Some(driver) = self.driver.clone()
            && let Some(running) = driver.recover(handle).await
        {
            self.hold(running);
            if self.record.state.state != TaskRunState::Running {
                self.enter_running(self.env.clock.now());
                self.tell().await;
            }
            return Found::Is(Restored::Live);
        }
        self.record.handle = None;
        if self.record.state.state == TaskRunState::Running {
            let now = self.env.clock.now();
            self.push(event::plain(
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

    /// It was between two runs, or about to start: a run that has begun is taken over, not ended and begun again.
    async fn find_begun(&mut self) -> Found {
        let (Some(id), Some(driver)) = (self.record.starting.take(), self.driver.clone()) else {
            return Found::Nothing;
        };
        let Some(running) = driver.find(&id).await else { return Found::Nothing };
        let now = self.env.clock.now();
        self.record.handle = Some(running.handle.clone());
        self.hold(running);
        self.enter_running(now);
        self.push(event::started(now));
        self.keep().await;
        self.tell().await;
        Found::Is(Restored::Live)
    }

    /// A task that does not run any more starts only when the controller still wants it: it may have been stopped meanwhile.
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
