//! What people ask of a running allocation: restarts of one task, of those that run, of all; signals to one or to all;
//! an end; where a task's process is.

use drover_api::allocation::TaskRunState;
use drover_core::lifecycle::Stage;
use futures::FutureExt;

use super::AllocRunner;
use crate::allocations::commands::{AllocCommand, RestartScope};
use crate::allocations::task_commands::{Asked, Errand, Reach, combine};
use crate::tasks::commands::{CommandError, Force, TaskCommand};

impl AllocRunner {
    pub(super) fn take_command(&mut self, command: AllocCommand) -> Option<Errand> {
        match command {
            AllocCommand::Restart { scope, answer } => match self.restart(&scope) {
                Ok(results) => {
                    let reach = match scope {
                        RestartScope::Task(_) => Reach::Named,
                        RestartScope::Running | RestartScope::All => Reach::Running,
                    };
                    Some(combine(results, reach, answer))
                }
                Err(error) => {
                    drop(answer.send(Err(error)));
                    None
                }
            },
            AllocCommand::Signal { task, signal, answer } => match self.signal(task.as_deref(), &signal) {
                Ok(results) => {
                    let reach = if task.is_some() { Reach::Named } else { Reach::Each };
                    Some(combine(results, reach, answer))
                }
                Err(error) => {
                    drop(answer.send(Err(error)));
                    None
                }
            },
            AllocCommand::Stop { answer } => {
                // The tasks go on until the controller wants them no more: what ended before that would count as a
                // failure, and as nobody's wish.
                if self.stop_requested_at.is_none() {
                    self.stop_requested_at = Some(self.now());
                    self.report();
                }
                drop(answer.send(Ok(())));
                None
            }
            AllocCommand::Locate { task, answer } => match self.commands.locate(&task) {
                Ok(located) => {
                    let errand = async move {
                        drop(answer.send(located.await.unwrap_or(Err(CommandError::NotRunning))));
                    };
                    Some(errand.boxed())
                }
                Err(error) => {
                    drop(answer.send(Err(error)));
                    None
                }
            },
        }
    }

    fn restart(&mut self, scope: &RestartScope) -> Result<Vec<Asked>, CommandError> {
        if !self.is_wanted() {
            return Err(CommandError::NotWanted);
        }
        match scope {
            RestartScope::Task(name) => {
                let state = self.tasks.state(name).ok_or_else(|| CommandError::UnknownTask(name.clone()))?;
                if state.state != TaskRunState::Running {
                    return Err(CommandError::NotRunning);
                }
                Ok(vec![self.commands.ask(name, |answer| TaskCommand::Restart { force: Force::No, answer })])
            }
            RestartScope::Running => Ok(self
                .tasks
                .running()
                .iter()
                .map(|name| self.commands.ask(name, |answer| TaskCommand::Restart { force: Force::No, answer }))
                .collect()),
            RestartScope::All => {
                self.coordinator.reset();
                self.order_gates();
                let stages = self.tasks.stages().filter(|(_, stage, _)| *stage != Stage::Poststop);
                let names: Vec<String> = stages.map(|(name, ..)| name.clone()).collect();
                let force = |answer| TaskCommand::Restart { force: Force::Yes, answer };
                Ok(names.iter().map(|name| self.commands.ask(name, force)).collect())
            }
        }
    }

    fn signal(&self, task: Option<&str>, signal: &str) -> Result<Vec<Asked>, CommandError> {
        let names = match task {
            Some(name) if self.tasks.state(name).is_some() => vec![name.to_owned()],
            Some(name) => return Err(CommandError::UnknownTask(name.to_owned())),
            None => self.tasks.states().map(|(name, _)| name.clone()).collect(),
        };
        let send = |answer| TaskCommand::Signal { signal: signal.to_owned(), answer };
        Ok(names.iter().map(|name| self.commands.ask(name, send)).collect())
    }
}
