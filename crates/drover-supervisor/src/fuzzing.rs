//! The supervisor's protocol as a function of bytes, for `drover-fuzz`.

use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::protocol::{self, Request, RequestFrame, ServerFrame};
use super::sandbox::Plan;
use super::spawn::Ground;
use super::tasks::Tasks;
use super::{cgroup, server};

/// The most that a client reads.
const MOST_READ: usize = 256 * 1024;

/// What an agent sends to the supervisor, what a supervisor sends to the agent, and what a sandbox is told. Nothing is
/// started: a request for that is read and left out.
///
/// # Panics
/// When there is no runtime to be had.
pub fn protocol(data: &[u8]) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        read_all::<ServerFrame>(data).await;
        read_all::<Plan>(data).await;
        let mut sent = Vec::new();
        for frame in read_all::<RequestFrame>(data).await {
            if let Request::Start(spec) = &frame.request {
                if let Some(wanted) = &spec.cgroup {
                    cgroup::fuzz(wanted);
                }
            } else if !matches!(frame.request, Request::Upgrade { .. } | Request::Adopt(_)) {
                protocol::write_frame(&mut sent, &frame).await.expect("a vector takes all");
            }
        }
        converse(&sent).await;
        // As it came, as long as it cannot start anything.
        if serde_json::from_slice::<serde_json::Value>(data.get(4..).unwrap_or_default()).is_err() {
            converse(data).await;
        }
    });
}

/// Reads frames until there is none.
async fn read_all<T: for<'a> serde::Deserialize<'a>>(data: &[u8]) -> Vec<T> {
    let (mut from, mut all) = (data, Vec::new());
    while let Ok(Some(frame)) = protocol::read_frame(&mut from).await {
        all.push(frame);
    }
    all
}

async fn converse(data: &[u8]) {
    let tasks = Rc::new(Tasks::new(Ground { open_files: 1024, cgroups: Err("none here".to_owned()) }));
    let (mut client, served) = UnixStream::pair().expect("a pair of sockets");
    let (closing, (upgrades, _unread)) = (CancellationToken::new(), mpsc::channel(1));
    let talk = async {
        client.write_all(data).await.ok()?;
        client.shutdown().await.ok()?;
        let (mut n, mut buffer) = (0, vec![0; 4096]);
        while n < MOST_READ {
            match client.read(&mut buffer).await.ok()? {
                0 => break,
                read => n += read,
            }
        }
        Some(n)
    };
    tokio::select! {
        served = server::converse(served, &tasks, &closing, &upgrades) => drop(served),
        () = async { talk.await; tokio::time::sleep(Duration::from_secs(1)).await; } => {}
    }
}
