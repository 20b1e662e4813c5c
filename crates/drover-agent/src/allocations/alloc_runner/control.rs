//! What people ask of a running allocation: restarts of one task, of those that run, of all; signals; an end; where a
//! task's process is.

use drover_api::allocation::TaskRunState;
use drover_core::lifecycle::Stage;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::AllocRunner;
use crate::allocations::commands::{AllocCommand, RestartScope};
use crate::tasks::commands::{CommandError, Force, TaskCommand};

/// Work that the runner does beside its own.
pub(super) type Errand = BoxFuture<'static, ()>;

impl AllocRunner {
    pub(super) fn take_command(&mut self, command: AllocCommand) -> Option<Errand> {
        match command {
            AllocCommand::Restart { scope, answer } => match self.restart(&scope) {
                Ok(results) => {
                    Some(combine(results, scope != RestartScope::Running && scope != RestartScope::All, answer))
                }
                Err(error) => {
                    drop(answer.send(Err(error)));
                    None
                }
            },
            AllocCommand::Signal { task, signal, answer } => match self.signal(task.as_deref(), &signal) {
                Ok(results) => Some(combine(results, task.is_some(), answer)),
                Err(error) => {
                    drop(answer.send(Err(error)));
                    None
                }
            },
            AllocCommand::Stop { answer } => {
                self.is_stopped_here = true;
                let wanted = self.plan.wanted.borrow().clone();
                self.take_wanted(&wanted);
                drop(answer.send(Ok(())));
                None
            }
            AllocCommand::Locate { task, answer } => {
                let (found, located) = oneshot::channel();
                let asked = match self.commands.get(&task) {
                    Some(to) => {
                        to.try_send(TaskCommand::Locate { answer: found }).map_err(|_| CommandError::NotRunning)
                    }
                    None => Err(CommandError::UnknownTask(task)),
                };
                if let Err(error) = asked {
                    drop(answer.send(Err(error)));
                    return None;
                }
                let errand = async move {
                    drop(answer.send(located.await.unwrap_or(Err(CommandError::NotRunning))));
                };
                Some(errand.boxed())
            }
        }
    }

    fn restart(&mut self, scope: &RestartScope) -> Result<Vec<Asked>, CommandError> {
        if !self.is_wanted() {
            return Err(CommandError::NotWanted);
        }
        match scope {
            RestartScope::Task(name) => {
                let state = self.states.get(name).ok_or_else(|| CommandError::UnknownTask(name.clone()))?;
                if state.state != TaskRunState::Running {
                    return Err(CommandError::NotRunning);
                }
                Ok(vec![self.ask(name, |answer| TaskCommand::Restart { force: Force::No, answer })])
            }
            RestartScope::Running => Ok(self
                .running()
                .iter()
                .map(|name| self.ask(name, |answer| TaskCommand::Restart { force: Force::No, answer }))
                .collect()),
            RestartScope::All => {
                self.coordinator.reset();
                self.order_gates();
                let names: Vec<String> = self
                    .places
                    .iter()
                    .filter(|(_, place)| place.stage != Stage::Poststop)
                    .map(|(name, _)| name.clone())
                    .collect();
                let force = |answer| TaskCommand::Restart { force: Force::Yes, answer };
                Ok(names.iter().map(|name| self.ask(name, force)).collect())
            }
        }
    }

    fn signal(&self, task: Option<&str>, signal: &str) -> Result<Vec<Asked>, CommandError> {
        let names = match task {
            Some(name) if self.states.contains_key(name) => vec![name.to_owned()],
            Some(name) => return Err(CommandError::UnknownTask(name.to_owned())),
            None => self.running(),
        };
        let send = |answer| TaskCommand::Signal { signal: signal.to_owned(), answer };
        Ok(names.iter().map(|name| self.ask(name, send)).collect())
    }

    fn running(&self) -> Vec<String> {
        let runs = |name: &&String| self.states.get(*name).is_some_and(|it| it.state == TaskRunState::Running);
        self.states.keys().filter(runs).cloned().collect()
    }

    /// A full queue means that the task's runner is busy with earlier requests.
    fn ask(&self, task: &str, command: impl FnOnce(oneshot::Sender<Result<(), CommandError>>) -> TaskCommand) -> Asked {
        let (answer, result) = oneshot::channel();
        let sent = match self.commands.get(task).map(|to| to.try_send(command(answer))) {
            Some(Ok(())) => Ok(result),
            Some(Err(mpsc::error::TrySendError::Full(_))) => Err(CommandError::Busy),
            Some(Err(mpsc::error::TrySendError::Closed(_))) | None => Err(CommandError::NotRunning),
        };
        Asked { task: task.to_owned(), sent }
    }
}

/// A task that was asked for something.
struct Asked {
    task: String,
    sent: Result<oneshot::Receiver<Result<(), CommandError>>, CommandError>,
}

/// Waits for all answers and combines their errors. Of many tasks those that do not run are no error.
fn combine(asked: Vec<Asked>, strict: bool, answer: oneshot::Sender<Result<(), CommandError>>) -> Errand {
    async move {
        let mut errors = Vec::new();
        for Asked { task, sent } in asked {
            let result = match sent {
                Ok(result) => result.await.unwrap_or(Err(CommandError::NotRunning)),
                Err(error) => Err(error),
            };
            match result {
                Ok(()) => {}
                Err(CommandError::NotRunning) if !strict => {}
                Err(error) => errors.push((task, error)),
            }
        }
        let result = match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0).1),
            _ => Err(CommandError::Several(
                errors.iter().map(|(task, error)| format!("{task}: {error}")).collect::<Vec<_>>().join("; "),
            )),
        };
        drop(answer.send(result));
    }
    .boxed()
}
