//! An allocation from anywhere: through the API server, which hands the request to the gateway, which has a tunnel to
//! the allocation's agent. What comes back are the frames of the agent's own socket.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Context as _, bail};
use drover_api::Allocation;
use drover_api::allocation::CheckStatus;
use drover_socket::client::Exchange;
use drover_socket::protocol::{AllocationInfo, LogStream, Origin, Request};
use http::header;
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use tokio::sync::OnceCell;
use tokio_util::io::StreamReader;

use super::lookup::find;
use super::remote_exec;
use super::target::AllocTarget;
use crate::cluster::connect::Connection;

/// The media type of frames, which name positions.
const FRAMES: &str = "application/vnd.drover.frames";
/// The most of a refusal that is read.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// One allocation of a cluster.
pub(super) struct Remote {
    connection: Connection,
    name: String,
    found: OnceCell<AllocationInfo>,
}

/// What the API server, the gateway or the agent refuses.
#[derive(Debug)]
pub(super) struct Refused {
    /// As in HTTP.
    pub(super) code: u16,
    message: String,
    /// There is no gateway that could be asked.
    pub(super) is_without_gateway: bool,
}

impl Refused {
    /// Whether there is no such thing, where a gateway was asked.
    pub(super) const fn is_of_what_is_not_there(&self) -> bool {
        self.code == 404 && !self.is_without_gateway
    }

    /// A refusal with its reason.
    pub(super) const fn new(code: u16, message: String) -> Self {
        Self { code, message, is_without_gateway: false }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refused {}

/// How a request is put: its method, and the path and query beneath the allocation's.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    method: http::Method,
    path: String,
}

impl Remote {
    /// The allocation that is meant.
    pub(super) async fn new(target: &AllocTarget) -> anyhow::Result<Self> {
        let mut connection = target.connect.connect_for_streams().await?;
        let (namespace, name) = target.parts();
        if let Some(namespace) = namespace {
            namespace.clone_into(&mut connection.namespace);
        }
        Ok(Self { connection, name: name.to_owned(), found: OnceCell::new() })
    }

    /// One that was found already.
    pub(super) fn of(connection: Connection, found: &Allocation) -> Self {
        let name = found.metadata.name.clone().unwrap_or_default();
        Self { connection, name, found: OnceCell::new_with(Some(info(found))) }
    }

    /// It, as the API server knew it first.
    pub(super) async fn known(&self) -> anyhow::Result<&AllocationInfo> {
        self.found.get_or_try_init(|| self.look()).await
    }

    /// It, as the API server knows it now.
    pub(super) async fn look(&self) -> anyhow::Result<AllocationInfo> {
        let name = self.found.get().map_or(&self.name, |known| &known.name);
        let found: Allocation = find(&self.connection.objects(), name).await?;
        Ok(info(&found))
    }

    /// What its checks found, as the agent reported it last.
    pub(super) async fn checks(&self) -> anyhow::Result<BTreeMap<String, CheckStatus>> {
        let found: Allocation = find(&self.connection.objects(), &self.name).await?;
        Ok(found.status.unwrap_or_default().checks)
    }

    /// Begins a request. Of it the allocation does not count: it is the one that was found.
    pub(super) async fn begin(&self, request: &Request) -> anyhow::Result<Exchange> {
        let known = self.known().await?;
        let base =
            format!("/apis/subresources.drover.dev/v1alpha1/namespaces/{}/allocations/{}", known.namespace, known.name);
        let Call { method, path } = call(request)?;
        let head = http::Request::builder().method(method).uri(format!("{base}/{path}")).header(header::ACCEPT, FRAMES);
        if let Request::Exec { .. } = request {
            let head = head.body(Vec::new()).context("building the request")?;
            let socket = self.connection.client.connect(head).await.map_err(explain)?;
            return Ok(remote_exec::exchange(socket.into_stream()));
        }
        let head = head.body(Body::empty()).context("building the request")?;
        let answer = self.connection.client.send(head).await.map_err(explain)?;
        let status = answer.status();
        if !status.is_success() {
            let body = Limited::new(answer.into_body(), MAX_REFUSAL_BYTES).collect().await;
            let text = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let said: Option<kube::core::Status> = serde_json::from_slice(&text).ok();
            let message = said.map_or_else(|| String::from_utf8_lossy(&text).into_owned(), |said| said.message);
            return Err(refusal(status.as_u16(), message.trim()).into());
        }
        let frames = futures::TryStreamExt::map_err(answer.into_body().into_data_stream(), io::Error::other);
        Ok(Exchange::over(StreamReader::new(frames), tokio::io::sink()))
    }
}

/// An allocation, as the API server knows it.
fn info(found: &Allocation) -> AllocationInfo {
    let status = found.status.clone().unwrap_or_default();
    AllocationInfo {
        id: found.metadata.uid.clone().unwrap_or_default(),
        namespace: found.metadata.namespace.clone().unwrap_or_default(),
        name: found.metadata.name.clone().unwrap_or_default(),
        client_status: status.client_status.to_string(),
        tasks: status.task_states.iter().map(|(name, it)| (name.clone(), it.state.to_string())).collect(),
    }
}

fn explain(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => refusal(status.code, &status.message).into(),
        error => anyhow::Error::new(error)
            .context("the API server did not answer; `kubectl cluster-info` says whether it can be reached"),
    }
}

fn refusal(code: u16, message: &str) -> Refused {
    let is_unknown = code == 404
        && ["could not find the requested resource", "404 page not found"].iter().any(|text| message.contains(text));
    let message = match code {
        _ if is_unknown => "the cluster has no gateway: install drover with gateway.enabled, or run this on the \
                            allocation's node with --socket"
            .to_owned(),
        403 => format!("{message}; ask for the role drover-edit, for exec, fs and gc drover-admin"),
        503 => format!(
            "the gateway is not available: {message}; `kubectl get apiservice v1alpha1.subresources.drover.dev` says \
             why. On the allocation's node --socket needs none"
        ),
        _ => message.to_owned(),
    };
    Refused { code, message, is_without_gateway: is_unknown || code == 503 }
}

/// How a request is put to the API.
fn call(request: &Request) -> anyhow::Result<Call> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let origin = |origin: Origin| match origin {
        Origin::Start => "start",
        Origin::End => "end",
    };
    let (method, name) = match request {
        Request::Logs { task, stream, origin: from, offset, file, follow, .. } => {
            query.append_pair("task", task);
            query.append_pair(
                "type",
                match stream {
                    LogStream::Stdout => "stdout",
                    LogStream::Stderr => "stderr",
                },
            );
            query.append_pair("origin", origin(*from)).append_pair("offset", &offset.to_string());
            query.append_pair("follow", &follow.to_string());
            if let Some(file) = file {
                query.append_pair("file", &file.to_string());
            }
            (http::Method::GET, "log")
        }
        Request::List { path, .. } => {
            query.append_pair("op", "ls").append_pair("path", path);
            (http::Method::GET, "fs")
        }
        Request::Stat { path, .. } => {
            query.append_pair("op", "stat").append_pair("path", path);
            (http::Method::GET, "fs")
        }
        Request::Read { path, origin: from, offset, limit, .. } => {
            query.append_pair("op", "read").append_pair("path", path);
            query.append_pair("origin", origin(*from)).append_pair("offset", &offset.to_string());
            if let Some(limit) = limit {
                query.append_pair("limit", &limit.to_string());
            }
            (http::Method::GET, "fs")
        }
        Request::Stats { every_ms, .. } => {
            if let Some(every) = every_ms {
                query.append_pair("intervalMs", &every.to_string());
            }
            (http::Method::GET, "stats")
        }
        Request::Restart { task, all_tasks, .. } => {
            if let Some(task) = task {
                query.append_pair("task", task);
            }
            query.append_pair("allTasks", &all_tasks.to_string());
            (http::Method::POST, "restart")
        }
        Request::Signal { task, signal, .. } => {
            if let Some(task) = task {
                query.append_pair("task", task);
            }
            query.append_pair("signal", signal);
            (http::Method::POST, "signal")
        }
        Request::Checks { .. } => (http::Method::GET, "checks"),
        Request::Stop { .. } => (http::Method::POST, "stop"),
        Request::Gc { .. } => (http::Method::POST, "gc"),
        Request::Exec { task, command, tty, size, .. } => {
            query.append_pair("task", task).append_pair("tty", &tty.to_string());
            if let Some(size) = size {
                query.append_pair("height", &size.height.to_string()).append_pair("width", &size.width.to_string());
            }
            for word in command {
                query.append_pair("command", word);
            }
            (http::Method::GET, "exec")
        }
        Request::Allocations
        | Request::HostStats
        | Request::Meta
        | Request::SetMeta { .. }
        | Request::Volume(_)
        | Request::Follow { .. }
        | Request::Snapshot { .. } => {
            bail!("only the agent of a node answers this: give --socket")
        }
    };
    Ok(Call { method, path: format!("{name}?{}", query.finish()) })
}

#[cfg(test)]
mod tests {
    use drover_socket::protocol::TtySize;

    use super::*;

    #[test]
    fn a_request_is_put_as_a_path_with_parameters() {
        let allocation = String::new();
        let put =
            |request: Request| call(&request).map(|call| format!("{} {}", call.method, call.path)).expect("a call");
        let logs = Request::Logs {
            allocation: allocation.clone(),
            task: "web".to_owned(),
            stream: LogStream::Stderr,
            origin: Origin::End,
            offset: 5,
            file: Some(2),
            follow: true,
        };
        assert_eq!(put(logs), "GET log?task=web&type=stderr&origin=end&offset=5&follow=true&file=2");
        let exec = Request::Exec {
            allocation: allocation.clone(),
            task: "web".to_owned(),
            command: vec!["sh".to_owned(), "-c".to_owned(), "a && b".to_owned()],
            tty: true,
            size: Some(TtySize { height: 40, width: 120 }),
        };
        assert_eq!(
            put(exec),
            "GET exec?task=web&tty=true&height=40&width=120&command=sh&command=-c&command=a+%26%26+b"
        );
        let restart = Request::Restart { allocation: allocation.clone(), task: None, all_tasks: true };
        assert_eq!(put(restart), "POST restart?allTasks=true");
        assert_eq!(put(Request::Stop { allocation }), "POST stop?");
        assert!(call(&Request::Meta).is_err());
    }
}
