//! The ports that are listened on, and the connections that arrive there.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::carry::carry;
use crate::orders::{Forward, ForwardAnswer, ForwardOrder, RefusedForward};

/// Connections of one port at a time; more wait until one ends, so that a busy port leaves room for the others.
const CONNECTIONS_PER_PORT: usize = 1024;
/// Connections of all ports at a time. Each has two sockets and 16 KiB.
const CONNECTIONS: usize = 8192;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// The pause after a connection could not be accepted, for want of descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The ports, and what they carry.
#[derive(Debug)]
pub(crate) struct Ports {
    listening: BTreeMap<SocketAddrV4, Port>,
    tasks: TaskTracker,
    room: Arc<Semaphore>,
}

/// A port that is listened on.
#[derive(Debug)]
struct Port {
    to: SocketAddrV4,
    /// Ends the listening.
    stop: CancellationToken,
    /// Ends its connections.
    broken_off: CancellationToken,
}

impl Ports {
    pub(crate) fn new() -> Self {
        let tasks = TaskTracker::new();
        // Waiting for the last of its tasks needs no further word.
        tasks.close();
        Self { listening: BTreeMap::new(), tasks, room: Arc::new(Semaphore::new(CONNECTIONS)) }
    }

    /// Carries an order out.
    pub(crate) fn carry_out(&mut self, order: ForwardOrder) -> ForwardAnswer {
        match order {
            ForwardOrder::Exactly(forwards) => {
                let wanted: BTreeMap<_, _> = forwards.iter().map(|it| (it.from, it.to)).collect();
                let leaves = |from: &SocketAddrV4, port: &mut Port| wanted.get(from) != Some(&port.to);
                self.listening.extract_if(.., leaves).for_each(|(_, port)| port.stop.cancel());
                self.open(forwards)
            }
            ForwardOrder::Open(forwards) => self.open(forwards),
            ForwardOrder::Close(forwards) => {
                for Forward { from, to } in forwards {
                    if self.listening.get(&from).is_some_and(|port| port.to == to)
                        && let Some(port) = self.listening.remove(&from)
                    {
                        port.stop.cancel();
                        port.broken_off.cancel();
                    }
                }
                ForwardAnswer::default()
            }
        }
    }

    /// Ends when nothing is listened on and the last connection has ended; not before a port was opened and closed.
    pub(crate) async fn all_done(&self) {
        if !self.listening.is_empty() {
            return std::future::pending().await;
        }
        self.tasks.wait().await;
    }

    fn open(&mut self, forwards: Vec<Forward>) -> ForwardAnswer {
        let mut refused = Vec::new();
        for Forward { from, to } in forwards {
            if self.listening.get(&from).is_some_and(|port| port.to == to) {
                continue;
            }
            match listen(from) {
                Ok(listener) => {
                    let port = Port { to, stop: CancellationToken::new(), broken_off: CancellationToken::new() };
                    let accepting = accept_all(Accepting {
                        listener,
                        to,
                        broken_off: port.broken_off.clone(),
                        tasks: self.tasks.clone(),
                        room: Arc::clone(&self.room),
                    });
                    let stop = port.stop.clone();
                    self.tasks.spawn(async move {
                        tokio::select! {
                            biased;
                            () = stop.cancelled() => {}
                            () = accepting => {}
                        }
                    });
                    if let Some(before) = self.listening.insert(from, port) {
                        before.stop.cancel();
                    }
                }
                Err(error) => refused.push(RefusedForward { from, reason: error.to_string() }),
            }
        }
        ForwardAnswer { refused }
    }
}

/// Two forwarders may listen on a port at a time: the next one begins before the one of an older build ends.
fn listen(at: SocketAddrV4) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(SocketAddr::V4(at))?;
    socket.listen(BACKLOG)
}

/// A port's listener and what its connections need.
struct Accepting {
    listener: TcpListener,
    to: SocketAddrV4,
    broken_off: CancellationToken,
    tasks: TaskTracker,
    room: Arc<Semaphore>,
}

async fn accept_all(port: Accepting) {
    let Accepting { listener, to, broken_off, tasks, room } = port;
    let own_room = Arc::new(Semaphore::new(CONNECTIONS_PER_PORT));
    // Neither semaphore is ever closed.
    while let Ok(own) = Arc::clone(&own_room).acquire_owned().await {
        match listener.accept().await {
            Ok((client, _)) => {
                let Ok(shared) = Arc::clone(&room).acquire_owned().await else { return };
                let broken_off = broken_off.clone();
                tasks.spawn(async move {
                    carry(client, to, broken_off).await;
                    drop((own, shared));
                });
            }
            Err(error) => {
                tracing::warn!(%to, %error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
