//! Who answers for an allocation: the agent of this machine, by its socket, or the agent of the allocation's node, by
//! the cluster.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};

use super::remote::Remote;
use super::target::AllocTarget;
use crate::ui::stdio::answer;
use drover_socket::client::{self, Exchange, Reply};
use drover_socket::protocol::{AllocationInfo, Answer, Origin, Request};

/// The socket of this machine's agent, where none is named.
const SOCKET: &str = "/var/lib/drover/state/agent.sock";
/// The most of a file in one answer of the cluster.
const MAX_READ_BYTES: u64 = 8 * 1024 * 1024;

/// Who answers.
pub(super) enum Agent {
    /// This machine's agent.
    Node(PathBuf),
    /// The cluster, for one allocation.
    Cluster(Box<Remote>),
}

impl Agent {
    /// This machine's agent.
    pub(super) fn of_node(socket: Option<&Path>) -> Self {
        Self::Node(socket.unwrap_or(Path::new(SOCKET)).to_owned())
    }

    /// Who answers for an allocation: this machine's agent, where its socket is named.
    pub(super) async fn of(socket: Option<&Path>, target: &AllocTarget) -> anyhow::Result<Self> {
        match socket {
            Some(socket) => Ok(Self::Node(socket.to_owned())),
            None => Ok(Self::Cluster(Box::new(Remote::new(target).await?))),
        }
    }

    /// How often something that is to happen may be looked at.
    pub(super) const fn look_every(&self) -> Duration {
        match self {
            Self::Node(_) => Duration::from_millis(100),
            Self::Cluster(_) => Duration::from_secs(1),
        }
    }

    /// Whether an exchange that breaks off may go on in another one: a gateway's may, an agent's own ends with it.
    pub(super) const fn may_resume(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(super) async fn begin(&self, request: &Request) -> anyhow::Result<Exchange> {
        match self {
            Self::Node(socket) => client::ask(socket, request).await.map_err(|error| unreachable(socket, &error)),
            Self::Cluster(remote) => remote.begin(request).await,
        }
    }

    /// Reads a file to its end; its bytes go to standard output as they come.
    pub(super) async fn read(&self, allocation: &str, path: &str, tail: Option<u64>) -> anyhow::Result<()> {
        let (mut origin, mut offset) = place(tail);
        let limit = match self {
            Self::Node(_) => None,
            Self::Cluster(_) => Some(MAX_READ_BYTES),
        };
        loop {
            let request =
                Request::Read { allocation: allocation.to_owned(), path: path.to_owned(), origin, offset, limit };
            let (at, n) = self.read_part(&request).await?;
            if limit.is_none_or(|limit| n < limit) {
                return Ok(());
            }
            (origin, offset) = (Origin::Start, at + n);
        }
    }

    /// Where a part of a file began, and its length.
    async fn read_part(&self, request: &Request) -> anyhow::Result<(u64, u64)> {
        let mut exchange = self.begin(request).await?;
        let (mut at, mut n) = (0, 0);
        while let Some(reply) = exchange.replies.next().await.context("reading the agent's answer")? {
            match reply {
                Reply::Data(bytes) | Reply::ErrorData(bytes) => {
                    n += u64::try_from(bytes.len()).unwrap_or_default();
                    answer(&bytes)?;
                }
                Reply::Answer(Answer::At { offset, .. }) => at = offset,
                Reply::Answer(Answer::Error { message, .. }) => bail!(message),
                Reply::Answer(Answer::Done) => return Ok((at, n)),
                Reply::Answer(_) => {}
            }
        }
        bail!("the agent has gone in the middle of its answer")
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

    /// What runs on the node; of a cluster the one allocation.
    pub(super) async fn allocations(&self) -> anyhow::Result<Vec<AllocationInfo>> {
        if let Self::Cluster(remote) = self {
            return Ok(vec![remote.look().await?]);
        }
        match self.ask(&Request::Allocations).await?.pop() {
            Some(Answer::Allocations(all)) => Ok(all),
            _ => bail!("the agent did not say what runs"),
        }
    }

    pub(super) async fn find(&self, id: &str) -> anyhow::Result<AllocationInfo> {
        if let Self::Cluster(remote) = self {
            return remote.known().await.cloned();
        }
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

fn unreachable(socket: &Path, error: &io::Error) -> anyhow::Error {
    let path = socket.display();
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

/// Where reading begins: at the start, or so many bytes before the end.
pub(super) fn place(tail: Option<u64>) -> (Origin, u64) {
    tail.map_or((Origin::Start, 0), |bytes| (Origin::End, bytes))
}
