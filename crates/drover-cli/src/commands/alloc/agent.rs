//! The agent of this machine, by its socket.

use std::io;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};

use crate::ui::stdio::answer;
use drover_socket::client::{self, Exchange, Reply};
use drover_socket::protocol::{AllocationInfo, Answer, Origin, Request};

/// This machine's agent.
pub(super) struct Agent {
    socket: PathBuf,
}

impl Agent {
    /// The agent that serves a socket.
    pub(super) const fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    pub(super) async fn begin(&self, request: &Request) -> anyhow::Result<Exchange> {
        client::ask(&self.socket, request).await.map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &io::Error) -> anyhow::Error {
        let path = self.socket.display();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => anyhow!(
                "no agent serves {path}: {error}; run this on the node, or give --socket with the path in its state folder"
            ),
            io::ErrorKind::PermissionDenied => {
                anyhow!("the agent's socket {path} may not be opened: {error}; run this as the agent's user")
            }
            _ => anyhow!("the agent at {path} does not answer: {error}"),
        }
    }

    /// The messages of an answer; bytes go to standard output as they come.
    pub(super) async fn ask(&self, request: &Request) -> anyhow::Result<Vec<Answer>> {
        let mut exchange = self.begin(request).await?;
        let mut answers = Vec::new();
        while let Some(reply) = exchange.replies.next().await.context("reading the agent's answer")? {
            match reply {
                Reply::Data(bytes) | Reply::ErrorData(bytes) => answer(&bytes)?,
                Reply::Answer(Answer::Error { message, .. }) => bail!(message),
                Reply::Answer(Answer::Done) => return Ok(answers),
                Reply::Answer(message @ (Answer::Allocations(_) | Answer::Meta(_))) => return Ok(vec![message]),
                Reply::Answer(message) => answers.push(message),
            }
        }
        bail!("the agent has gone in the middle of its answer")
    }

    pub(super) async fn allocations(&self) -> anyhow::Result<Vec<AllocationInfo>> {
        match self.ask(&Request::Allocations).await?.pop() {
            Some(Answer::Allocations(all)) => Ok(all),
            _ => bail!("the agent did not say what runs"),
        }
    }

    pub(super) async fn find(&self, id: &str) -> anyhow::Result<AllocationInfo> {
        let all = self.allocations().await?;
        let is = |it: &&AllocationInfo| {
            it.id == id
                || (id.len() >= 4 && it.id.starts_with(id))
                || it.name == id
                || format!("{}/{}", it.namespace, it.name) == id
        };
        let mut found = all.iter().filter(is);
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one.clone()),
            (Some(_), Some(_)) => {
                bail!("{id} means several allocations: give more of the uid, or the namespace with -n")
            }
            (None, _) => bail!("unknown allocation {id:?} on this node; `drover alloc list` shows all"),
        }
    }

    /// The task that is meant: the named one, or the only one.
    pub(super) async fn task(&self, allocation: &str, task: Option<&String>) -> anyhow::Result<String> {
        if let Some(task) = task {
            return Ok(task.clone());
        }
        let found = self.find(allocation).await?;
        match &found.tasks.keys().collect::<Vec<_>>()[..] {
            [only] => Ok((*only).clone()),
            [] => bail!("{}/{} has no task yet", found.namespace, found.name),
            several => {
                let names: Vec<&str> = several.iter().map(|name| name.as_str()).collect();
                bail!("{}/{} has several tasks: name one of {}", found.namespace, found.name, names.join(", "))
            }
        }
    }
}

/// Where reading begins: at the start, or so many bytes before the end.
pub(super) fn place(tail: Option<u64>) -> (Origin, u64) {
    tail.map_or((Origin::Start, 0), |bytes| (Origin::End, bytes))
}
