//! Has connections carried into networks of allocations that the kernel does not lead there: sees to the node's
//! forwarder, a process that outlives the agent as tasks do, and tells it which ports there are.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use drover_clock::sleep_until;
use drover_forwarder::{Control, Forward, ForwardAnswer, ForwardOrder};
use drover_network::PortMapping;
use drover_supervisor::client::{CallError, Client};
use drover_supervisor::protocol::{CgroupSpec, Exit, Handle, StartSpec};
use drover_supervisor::short_path;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::random::Random;

/// The build whose forwarder is kept; one of another build carries its connections to their ends and goes.
const BUILD: &str = env!("CARGO_PKG_VERSION");
/// Before the ids of forwarders at the supervisor.
const IDS: &str = "forwarder/";
/// Before the names of their sockets in the state folder.
const SOCKETS: &str = "forwarder-";
/// Asks that wait.
const ASKS: usize = 64;
/// The pause before a forwarder that has ended, or does not begin, is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// How long a forwarder may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause between two tries to reach it.
const START_PAUSE: Duration = Duration::from_millis(10);
/// Memory that it may use, its connections' buffers above all.
const MEMORY_BYTES: u64 = 512 << 20;

/// The ports of this node that lead into networks of allocations; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct PortForwards {
    asks: mpsc::Sender<Ask>,
}

#[derive(Debug)]
enum Ask {
    Open { forwards: Vec<Forward>, done: oneshot::Sender<Result<(), String>> },
    Close { forwards: Vec<Forward>, done: oneshot::Sender<()> },
}

/// What keeps the forwarder.
pub(crate) struct ForwarderKeeper {
    supervisor: Client,
    state_dir: PathBuf,
    /// What there is to be, by port.
    wanted: BTreeMap<SocketAddrV4, SocketAddrV4>,
    asks: mpsc::Receiver<Ask>,
    forwarder: Option<Forwarder>,
    /// Not before then is one started because nothing asked for it.
    retry_at: Option<Instant>,
    random: Random,
    /// Cancelled when those of earlier lives are known: from then on they are no strangers at the supervisor.
    taken_over: CancellationToken,
}

/// A forwarder that lives.
#[derive(Debug)]
struct Forwarder {
    id: String,
    control: Control,
    ended: oneshot::Receiver<Exit>,
}

/// The node's ports that lead to this address.
pub(crate) fn forwards(address: Ipv4Addr, ports: &[PortMapping]) -> Vec<Forward> {
    let of = |port: &PortMapping| Forward {
        from: SocketAddrV4::new(port.host_ip, port.host_port),
        to: SocketAddrV4::new(address, port.port),
    };
    ports.iter().map(of).collect()
}

impl PortForwards {
    /// The ports of this node, of which an earlier life has begun these, and what keeps the forwarder.
    pub(super) fn new(supervisor: Client, state_dir: PathBuf, begun: Vec<Forward>) -> (Self, ForwarderKeeper) {
        let (asks, queue) = mpsc::channel(ASKS);
        let keeper = ForwarderKeeper {
            supervisor,
            state_dir,
            wanted: begun.into_iter().map(|it| (it.from, it.to)).collect(),
            asks: queue,
            forwarder: None,
            retry_at: None,
            random: Random::new(),
            taken_over: CancellationToken::new(),
        };
        (Self { asks }, keeper)
    }

    /// Has connections to these ports carried on, from now on. Those that were begun already stay as they are.
    ///
    /// # Errors
    /// Why a port cannot be listened on. Then none of these is.
    pub(super) async fn open(&self, forwards: Vec<Forward>) -> Result<(), String> {
        if forwards.is_empty() {
            return Ok(());
        }
        let (done, answer) = oneshot::channel();
        let is_ending = || "the agent is ending".to_owned();
        self.asks.send(Ask::Open { forwards, done }).await.map_err(|_| is_ending())?;
        answer.await.map_err(|_| is_ending())?
    }

    /// Has the ports freed, and their connections ended.
    pub(super) async fn close(&self, forwards: Vec<Forward>) {
        if forwards.is_empty() {
            return;
        }
        let (done, answer) = oneshot::channel();
        if self.asks.send(Ask::Close { forwards, done }).await.is_ok() {
            // An agent that is ending leaves it to the next one.
            drop(answer.await);
        }
    }
}

impl ForwarderKeeper {
    /// Cancelled when the forwarders of earlier lives are known.
    pub(crate) fn taken_over(&self) -> CancellationToken {
        self.taken_over.clone()
    }

    /// Keeps a forwarder while there is something to forward. Runs until the ports are dropped.
    pub(crate) async fn run(mut self) {
        let older = self.take_over().await;
        self.taken_over.cancel();
        self.begin_again().await;
        // They listen on the same ports until the one of this build does.
        for mut forwarder in older {
            tracing::info!(forwarder = forwarder.id, "a forwarder of another build ends with its last connection");
            if let Err(error) = forwarder.control.order(&ForwardOrder::Exactly(Vec::new())).await {
                tracing::warn!(forwarder = forwarder.id, %error, "it is ended at once");
                self.end(&forwarder.id).await;
            }
        }
        loop {
            tokio::select! {
                biased;
                ask = self.asks.recv() => match ask {
                    Some(Ask::Open { forwards, done }) => {
                        // An allocation that is gone asks no more.
                        drop(done.send(self.open(forwards).await));
                    }
                    Some(Ask::Close { forwards, done }) => {
                        self.close(forwards).await;
                        let _ends_too = done.send(());
                    }
                    None => return,
                },
                () = end_of(self.forwarder.as_mut()) => self.forget().await,
                () = sleep_until(self.retry_at) => self.begin_again().await,
            }
        }
    }

    /// Finds the forwarder of an earlier life, and returns those of other builds.
    async fn take_over(&mut self) -> Vec<Forwarder> {
        let (mut older, ours) = (Vec::new(), format!("{IDS}{BUILD}/"));
        while let Ok(Some((Handle { id, .. }, mut ended))) = self.supervisor.find(IDS).await {
            if ended.try_recv().is_ok() {
                self.clean_up(&id).await;
                continue;
            }
            match self.reach(&id, ended).await {
                Ok(forwarder) if id.starts_with(&ours) && self.forwarder.is_none() => self.forwarder = Some(forwarder),
                Ok(forwarder) => older.push(forwarder),
                Err(reason) => tracing::warn!(forwarder = id, reason, "a forwarder of an earlier life was ended"),
            }
        }
        let sockets = older.iter().chain(&self.forwarder).map(|forwarder| socket_name(&forwarder.id)).collect();
        self.remove_sockets_but(&sockets);
        older
    }

    /// Removes the sockets of forwarders that ended with their machine.
    fn remove_sockets_but(&self, kept: &BTreeSet<String>) {
        let entries = std::fs::read_dir(&self.state_dir).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        for name in names.filter(|name| name.starts_with(SOCKETS) && !kept.contains(name)) {
            self.remove_socket(&name);
        }
    }

    /// Starts a forwarder where one is wanted and none lives, and tells it everything.
    async fn begin_again(&mut self) {
        self.retry_at = None;
        if self.wanted.is_empty() {
            return;
        }
        match self.tell_everything().await {
            Ok(answer) => {
                for refused in answer.refused {
                    let port = refused.from;
                    tracing::warn!(%port, reason = refused.reason, "a port of the node cannot be listened on");
                }
            }
            Err(reason) => tracing::warn!(reason, "Services do not lead to this node's networks of allocations"),
        }
    }

    async fn tell_everything(&mut self) -> Result<ForwardAnswer, String> {
        let everything = self.wanted.iter().map(|(from, to)| Forward { from: *from, to: *to }).collect();
        let forwarder = match self.forwarder.take() {
            Some(forwarder) => Ok(forwarder),
            None => self.start().await,
        };
        let told = match forwarder {
            Ok(forwarder) => self.order(forwarder, &ForwardOrder::Exactly(everything)).await,
            Err(reason) => Err(reason),
        };
        if told.is_err() {
            self.retry_at = Some(Instant::now() + RESTART_PAUSE);
        }
        told
    }

    /// Gives an order. A forwarder that does not obey is ended.
    async fn order(&mut self, mut forwarder: Forwarder, order: &ForwardOrder) -> Result<ForwardAnswer, String> {
        match forwarder.control.order(order).await {
            Ok(answer) => {
                self.forwarder = Some(forwarder);
                Ok(answer)
            }
            Err(error) => {
                self.end(&forwarder.id).await;
                Err(format!("the forwarder does not obey: {error}"))
            }
        }
    }

    async fn open(&mut self, forwards: Vec<Forward>) -> Result<(), String> {
        if forwards.iter().all(|it| self.wanted.get(&it.from) == Some(&it.to)) {
            // Tasks that run, or run again, keep what they were given.
            return Ok(());
        }
        self.wanted.extend(forwards.iter().map(|it| (it.from, it.to)));
        let told = match self.forwarder.take() {
            Some(forwarder) => self.order(forwarder, &ForwardOrder::Open(forwards.clone())).await.ok(),
            None => None,
        };
        let told = match told {
            Some(answer) => Ok(answer),
            // It may have been about to end, with nothing more to carry.
            None => self.tell_everything().await,
        };
        let told = told.map_err(|reason| format!("connections to its ports cannot be carried on: {reason}"));
        let told = told.and_then(|answer| {
            let of_these = answer.refused.into_iter().find(|no| forwards.iter().any(|it| it.from == no.from));
            of_these.map_or(Ok(()), |no| Err(no_port(no.from, &no.reason)))
        });
        if told.is_err() {
            self.close(forwards).await;
        }
        told
    }

    async fn close(&mut self, forwards: Vec<Forward>) {
        for Forward { from, to } in &forwards {
            if self.wanted.get(from) == Some(to) {
                self.wanted.remove(from);
            }
        }
        if let Some(forwarder) = self.forwarder.take()
            && let Err(reason) = self.order(forwarder, &ForwardOrder::Close(forwards)).await
            && !self.wanted.is_empty()
        {
            tracing::warn!(reason, "the forwarder is started again");
            self.retry_at = Some(Instant::now());
        }
    }

    /// The forwarder has ended: as it should with nothing to carry, else it is started again.
    async fn forget(&mut self) {
        if let Some(forwarder) = self.forwarder.take() {
            self.clean_up(&forwarder.id).await;
        }
        if !self.wanted.is_empty() {
            tracing::warn!("the forwarder has ended: it is started again");
            self.retry_at = Some(Instant::now() + RESTART_PAUSE);
        }
    }

    async fn start(&self) -> Result<Forwarder, String> {
        let id = format!("{IDS}{BUILD}/{:08x}", self.random.place(1 << 32));
        let spec = StartSpec {
            id: id.clone(),
            command: self.state_dir.join("bin/droverd-supervisor").to_string_lossy().into_owned(),
            args: vec!["forward".to_owned(), "--socket".to_owned(), socket_name(&id)],
            env: Vec::new(),
            // A path of a socket is short.
            work_dir: self.state_dir.to_string_lossy().into_owned(),
            user: None,
            oom_score_adj: 0,
            logs: None,
            kill_timeout_ms: 0,
            cgroup: Some(CgroupSpec {
                name: id.replace('/', "."),
                memory_hard_bytes: Some(MEMORY_BYTES),
                ..CgroupSpec::default()
            }),
            sandbox: None,
        };
        match self.supervisor.start(spec).await {
            Ok((_, ended)) => self.reach(&id, ended).await,
            Err(error) => {
                if !matches!(error, CallError::Refused(_)) {
                    // It may have started all the same.
                    self.end(&id).await;
                }
                Err(format!("the forwarder does not start: {error}"))
            }
        }
    }

    /// Connects to a forwarder that was started. One that does not listen is ended.
    async fn reach(&self, id: &str, mut ended: oneshot::Receiver<Exit>) -> Result<Forwarder, String> {
        let connected = async {
            loop {
                let connected = match short_path(&self.state_dir, &socket_name(id)) {
                    Ok((path, _dir)) => Control::connect(&path).await,
                    Err(error) => Err(error),
                };
                match connected {
                    Ok(control) => return Ok(control),
                    Err(error) if is_early(&error) => tokio::time::sleep(START_PAUSE).await,
                    Err(error) => return Err(error.to_string()),
                }
            }
        };
        let connected = tokio::select! {
            biased;
            exit = &mut ended => Err(exit.map_or_else(|error| error.to_string(), |exit| format!("it has ended: {exit:?}"))),
            connected = tokio::time::timeout(START_TIMEOUT, connected) => match connected {
                Ok(connected) => connected,
                Err(_) => Err("it does not listen".to_owned()),
            },
        };
        match connected {
            Ok(control) => Ok(Forwarder { id: id.to_owned(), control, ended }),
            Err(reason) => {
                self.end(id).await;
                Err(reason)
            }
        }
    }

    /// Ends a forwarder, whose connections break.
    async fn end(&self, id: &str) {
        if let Err(error) = self.supervisor.stop(id, libc::SIGKILL, Duration::ZERO).await {
            tracing::warn!(forwarder = id, %error, "a forwarder is not ended");
        }
        self.clean_up(id).await;
    }

    async fn clean_up(&self, id: &str) {
        if let Err(error) = self.supervisor.acknowledge(id).await {
            // It is just ending: the next life of the agent finds it.
            tracing::debug!(forwarder = id, %error, "the supervisor still knows it");
        }
        self.remove_socket(&socket_name(id));
    }

    fn remove_socket(&self, name: &str) {
        let socket = self.state_dir.join(name);
        if let Err(error) = std::fs::remove_file(&socket)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(socket = %socket.display(), %error, "the socket of a forwarder is left");
        }
    }
}

/// Ends with the forwarder; never, where there is none.
async fn end_of(forwarder: Option<&mut Forwarder>) {
    match forwarder {
        Some(forwarder) => drop((&mut forwarder.ended).await),
        None => std::future::pending().await,
    }
}

/// Whether a forwarder may still be about to listen.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn socket_name(id: &str) -> String {
    format!("{SOCKETS}{}.sock", id.rsplit('/').next().unwrap_or_default())
}

fn no_port(port: SocketAddrV4, reason: &str) -> String {
    format!(
        "port {port} of the node cannot be listened on ({reason}): end the program that holds it, or give the job another"
    )
}
