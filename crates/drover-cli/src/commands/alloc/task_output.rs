//! The output of one task of a job's allocation, for commands that show several at a time.

use drover_api::Allocation;
use drover_socket::protocol::{LogStream, Origin, Request};

use super::agent::Agent;
use super::logs::carry;
use super::remote::{Refused, Remote};
use crate::cluster::connect::Connection;

/// Which output is shown.
#[derive(Clone, Debug)]
pub(crate) struct TaskOutput {
    /// The task.
    pub(crate) task: String,
    /// Which of its outputs.
    pub(crate) stream: LogStream,
    /// Only so many bytes of what there is already.
    pub(crate) tail: Option<u64>,
    /// Whether to go on until the task is dead.
    pub(crate) follows: bool,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// With all of it.
    Whole,
    /// There is none yet, or no more.
    Nothing,
}

/// Hands the output of a task of an allocation that was found over to `sink`, by the gateway.
pub(crate) async fn task_output(
    connection: &Connection,
    found: &Allocation,
    wanted: &TaskOutput,
    sink: &mut (dyn FnMut(&[u8]) -> anyhow::Result<()> + Send),
) -> anyhow::Result<Shown> {
    let (origin, offset) = wanted.tail.map_or((Origin::Start, 0), |bytes| (Origin::End, bytes));
    let request = Request::Logs {
        allocation: found.metadata.uid.clone().unwrap_or_default(),
        task: wanted.task.clone(),
        stream: wanted.stream,
        origin,
        offset,
        file: None,
        follow: wanted.follows,
    };
    let agent = Agent::Cluster(Box::new(Remote::of(connection.clone(), found)));
    match carry(&agent, request, sink).await {
        Ok(()) => Ok(Shown::Whole),
        Err(error) if error.downcast_ref::<Refused>().is_some_and(Refused::is_of_what_is_not_there) => {
            Ok(Shown::Nothing)
        }
        Err(error) => Err(error),
    }
}
