//! The way from an allocation's runner to those of its tasks: requests, and the answers of many as one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::tasks::commands::{CommandError, Located, TaskCommand};

/// Work that the runner does beside its own.
pub(super) type Errand = BoxFuture<'static, ()>;

/// The runners of an allocation's tasks, by the names of the tasks. Clones know the same runners.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskCommands(Arc<Mutex<BTreeMap<String, mpsc::Sender<TaskCommand>>>>);

impl TaskCommands {
    /// A task's runner takes requests from now on.
    pub(super) fn insert(&self, task: &str, to: mpsc::Sender<TaskCommand>) {
        self.runners().insert(task.to_owned(), to);
    }

    fn runners(&self) -> MutexGuard<'_, BTreeMap<String, mpsc::Sender<TaskCommand>>> {
        // A map is whole between two calls, whatever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runner(&self, task: &str) -> Option<mpsc::Sender<TaskCommand>> {
        self.runners().get(task).cloned()
    }

    /// No runner is left.
    pub(super) fn clear(&self) {
        self.runners().clear();
    }

    /// Asks where the process of a task is.
    pub(super) fn locate(&self, task: &str) -> Result<oneshot::Receiver<Result<Located, CommandError>>, CommandError> {
        let to = self.runner(task).ok_or_else(|| CommandError::UnknownTask(task.to_owned()))?;
        let (answer, located) = oneshot::channel();
        to.try_send(TaskCommand::Locate { answer }).map_err(|_| CommandError::NotRunning)?;
        Ok(located)
    }

    /// Ends a task's run because a check finds it unwell.
    ///
    /// # Errors
    /// When its runner is busy or gone.
    pub(super) fn end_unhealthy(&self, task: &str, reason: String) -> Result<(), CommandError> {
        let to = self.runner(task).ok_or(CommandError::NotRunning)?;
        to.try_send(TaskCommand::EndUnhealthy { reason }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => CommandError::Busy,
            mpsc::error::TrySendError::Closed(_) => CommandError::NotRunning,
        })
    }

    /// Asks a task for something. A full queue means that the task's runner is busy with earlier requests.
    pub(super) fn ask(
        &self,
        task: &str,
        command: impl FnOnce(oneshot::Sender<Result<(), CommandError>>) -> TaskCommand,
    ) -> Asked {
        let (answer, result) = oneshot::channel();
        let sent = match self.runner(task).map(|to| to.try_send(command(answer))) {
            Some(Ok(())) => Ok(result),
            Some(Err(mpsc::error::TrySendError::Full(_))) => Err(CommandError::Busy),
            Some(Err(mpsc::error::TrySendError::Closed(_))) | None => Err(CommandError::NotRunning),
        };
        Asked { task: task.to_owned(), sent }
    }
}

/// A task that was asked for something.
pub(super) struct Asked {
    task: String,
    sent: Result<oneshot::Receiver<Result<(), CommandError>>, CommandError>,
}

/// Which tasks a request means, and with that what those are to it that do not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// One, by its name: its answer is the answer.
    Named,
    /// Those that run: others are no error.
    Running,
    /// All: each that does not run is an error, which names it; the others are asked all the same.
    Each,
}

/// Waits for all answers and combines their errors.
pub(super) fn combine(asked: Vec<Asked>, reach: Reach, answer: oneshot::Sender<Result<(), CommandError>>) -> Errand {
    async move {
        let mut errors = Vec::new();
        for Asked { task, sent } in asked {
            let result = match sent {
                Ok(result) => result.await.unwrap_or(Err(CommandError::NotRunning)),
                Err(error) => Err(error),
            };
            match result {
                Ok(()) => {}
                Err(CommandError::NotRunning) if reach == Reach::Running => {}
                Err(error) => errors.push((task, error)),
            }
        }
        let result = match errors.len() {
            0 => Ok(()),
            // Which of all tasks it was is not known to who asked; which of one is.
            1 if reach != Reach::Each => Err(errors.remove(0).1),
            _ => Err(CommandError::Several(
                errors.iter().map(|(task, error)| format!("{task}: {error}")).collect::<Vec<_>>().join("; "),
            )),
        };
        drop(answer.send(result));
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::commands::Force;

    fn restart(answer: oneshot::Sender<Result<(), CommandError>>) -> TaskCommand {
        TaskCommand::Restart { force: Force::No, answer }
    }

    /// The combined answer of these tasks, each of which is given its answer; none: its runner is gone.
    async fn combined(answers: &[(&str, Option<Result<(), CommandError>>)], reach: Reach) -> Result<(), CommandError> {
        let commands = TaskCommands::default();
        let mut asked = Vec::new();
        for (task, given) in answers {
            let (to, mut queue) = mpsc::channel(1);
            if given.is_some() {
                commands.insert(task, to);
            }
            asked.push(commands.ask(task, restart));
            if let Some(given) = given {
                let Some(TaskCommand::Restart { answer, .. }) = queue.recv().await else { panic!("no request") };
                answer.send(given.clone()).expect("it is awaited");
            }
        }
        let (answer, result) = oneshot::channel();
        combine(asked, reach, answer).await;
        result.await.expect("an answer")
    }

    #[tokio::test]
    async fn of_those_that_run_what_has_ended_is_no_error_and_a_named_one_or_one_of_all_is() {
        let refused = CommandError::Driver("no".to_owned());
        let gone = Err(CommandError::NotRunning);
        assert_eq!(combined(&[("a", Some(Ok(()))), ("b", None)], Reach::Running).await, Ok(()));
        assert_eq!(combined(&[("b", None)], Reach::Named).await, gone);
        assert_eq!(combined(&[("a", Some(gone.clone())), ("b", Some(Ok(())))], Reach::Running).await, Ok(()));
        let one = combined(&[("a", Some(Err(refused.clone()))), ("b", None)], Reach::Running).await;
        assert_eq!(one, Err(refused.clone()));
        let both = combined(&[("a", Some(Err(refused.clone()))), ("b", Some(Err(refused)))], Reach::Running).await;
        assert_eq!(both, Err(CommandError::Several("a: no; b: no".to_owned())));
        assert_eq!(combined(&[], Reach::Running).await, Ok(()));
        let named = |text: &str| Err(CommandError::Several(text.to_owned()));
        let each = [("a", Some(Ok(()))), ("b", None), ("c", Some(gone))];
        assert_eq!(combined(&each, Reach::Each).await, named("b: Task not running; c: Task not running"));
        assert_eq!(combined(&each[..2], Reach::Each).await, named("b: Task not running"), "also where it is one only");
        assert_eq!(combined(&each[..1], Reach::Each).await, Ok(()));
    }

    #[tokio::test]
    async fn a_full_queue_is_busy_and_an_unknown_task_is_named() {
        let commands = TaskCommands::default();
        let (to, _queue) = mpsc::channel(1);
        commands.insert("web", to);
        assert!(commands.ask("web", restart).sent.is_ok());
        assert_eq!(commands.ask("web", restart).sent.err(), Some(CommandError::Busy));
        assert_eq!(commands.locate("web").err(), Some(CommandError::NotRunning));
        assert_eq!(commands.locate("db").err(), Some(CommandError::UnknownTask("db".to_owned())));
        commands.clear();
        assert_eq!(commands.ask("web", restart).sent.err(), Some(CommandError::NotRunning));
    }
}
