//! The agent's side of the supervisor: one connection, kept up by one task, which starts a supervisor when none lives.
//!
//! When the connection is lost every watched task is found again: at the same supervisor by its id, at a new one by pid
//! and start time. Ends that happened meanwhile are delivered then.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::launch::{BUILD, LaunchError, Launcher};
use super::logs::{self, KeptOutput};
use super::processes;
use super::protocol::{
    self, Exit, Handle, MAX_VERSION, MIN_VERSION, Refusal, RefusalCode, Reply, Request, RequestFrame, SandboxSpec,
    ServerFrame, StartSpec, TaskReport,
};

/// Calls that wait for the connection's task; callers wait when it is full.
const CALL_QUEUE: usize = 256;
/// Frames read ahead of the connection's task; the reader waits when it is full.
const FRAME_QUEUE: usize = 256;
/// How long one call may take. Starts wait for each other: of two hundred at once the last took 3 s on two idle cores,
/// and more than 30 s where other work kept those busy.
const CALL_TIMEOUT: Duration = Duration::from_mins(2);
/// How long each of the first exchanges on a connection may take: they wait for nothing else.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one frame may take to be written. As long as a call: a Unix socket that is full takes more only when three
/// quarters of it are read, and that can be a hundred starts on a busy machine.
const WRITE_TIMEOUT: Duration = CALL_TIMEOUT;
/// The version that brought sandboxes.
const SANDBOX_VERSION: u32 = 2;
/// The version that brought upgrades in place.
const UPGRADE_VERSION: u32 = 2;
/// The version that brought the cap on all tasks, and given roots.
const CAP_VERSION: u32 = 3;
/// The wait before the next try after the supervisor could not be reached.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Why a call was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The supervisor refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The supervisor went away before it answered.
    #[error("the supervisor went away during the call")]
    Disconnected,
    /// No answer in time.
    #[error("the supervisor did not answer within {}s", CALL_TIMEOUT.as_secs())]
    TimedOut,
    /// The agent is shutting down.
    #[error("the agent is shutting down")]
    Closed,
}

/// What became of a task that was started earlier.
#[derive(Debug)]
pub enum Recovery {
    /// It runs; its end will come here.
    Running(oneshot::Receiver<Exit>),
    /// Nothing is known of it.
    Gone,
}

/// A handle on the connection; cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    calls: mpsc::Sender<Call>,
}

#[derive(Debug)]
enum Call {
    Send { request: Request, answer: oneshot::Sender<Result<Reply, CallError>>, watch: Option<Starting> },
    Recover { handle: Box<Handle>, answer: oneshot::Sender<Recovery> },
    Find { id: String, answer: oneshot::Sender<Option<(Handle, oneshot::Receiver<Exit>)>> },
    EndStrangers { answer: oneshot::Sender<usize> },
}

impl Client {
    /// Makes a client and the future that keeps its connection until `shutdown`; the caller owns that future.
    pub fn new(launcher: Launcher, shutdown: CancellationToken) -> (Self, impl Future<Output = ()> + Send) {
        let (calls, queue) = mpsc::channel(CALL_QUEUE);
        let link = Link {
            launcher,
            queue,
            watched: BTreeMap::new(),
            pending: BTreeMap::new(),
            known: BTreeMap::new(),
            unanswered: Vec::new(),
            seq: 0,
            version: MAX_VERSION,
            tried_upgrade: false,
        };
        let run = async move {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = link.run() => {}
            }
        };
        (Self { calls }, run)
    }

    /// Starts a task; its end comes through the receiver.
    ///
    /// # Errors
    /// When the supervisor refuses or cannot be reached; after [`CallError::Disconnected`] it may run all the same.
    pub async fn start(&self, spec: StartSpec) -> Result<(Handle, oneshot::Receiver<Exit>), CallError> {
        let (exit, ended) = oneshot::channel();
        let watch = Some(Starting { id: spec.id.clone(), exit, ended: None });
        match self.call(Request::Start(Box::new(spec)), watch).await? {
            Reply::Started(handle) => Ok((*handle, ended)),
            Reply::Hello { .. } | Reply::Tasks(_) | Reply::Done => Err(CallError::Disconnected),
        }
    }

    /// Finds a task of an earlier agent or supervisor.
    ///
    /// # Errors
    /// When the agent is shutting down.
    pub async fn recover(&self, handle: Handle) -> Result<Recovery, CallError> {
        let (answer, result) = oneshot::channel();
        self.calls.send(Call::Recover { handle: Box::new(handle), answer }).await.map_err(|_| CallError::Closed)?;
        result.await.map_err(|_| CallError::Closed)
    }

    /// Finds a task by its id among those that the supervisor had when the connection began. A beginning of an id that
    /// ends with a slash finds one that runs, else one that has ended.
    ///
    /// # Errors
    /// When the agent is shutting down.
    pub async fn find(&self, id: &str) -> Result<Option<(Handle, oneshot::Receiver<Exit>)>, CallError> {
        let (answer, result) = oneshot::channel();
        self.calls.send(Call::Find { id: id.to_owned(), answer }).await.map_err(|_| CallError::Closed)?;
        result.await.map_err(|_| CallError::Closed)
    }

    /// Sends a signal, and SIGKILL to the group after the grace; a task that is gone is stopped.
    ///
    /// # Errors
    /// When the supervisor refuses or cannot be reached.
    pub async fn stop(&self, id: &str, signal: i32, grace: Duration) -> Result<(), CallError> {
        let timeout_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let request = Request::Stop { id: id.to_owned(), signal, timeout_ms };
        done_or_unknown(self.call(request, None).await)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When the task does not run, or the supervisor cannot be reached.
    pub async fn signal(&self, id: &str, signal: i32) -> Result<(), CallError> {
        self.call(Request::Signal { id: id.to_owned(), signal }, None).await.map(drop)
    }

    /// Lets the supervisor forget an ended task.
    ///
    /// # Errors
    /// When the task still runs, or the supervisor cannot be reached.
    pub async fn acknowledge(&self, id: &str) -> Result<(), CallError> {
        done_or_unknown(self.call(Request::Acknowledge { id: id.to_owned() }, None).await)
    }

    /// Has the supervisor replaced by this program, in its own process. Its tasks go on.
    ///
    /// # Errors
    /// When the program cannot be executed; the old one then goes on.
    pub async fn upgrade(&self, binary: &std::path::Path) -> Result<(), CallError> {
        let request = Request::Upgrade { binary: binary.to_string_lossy().into_owned() };
        match self.call(request, None).await {
            // The connection ends with the old program.
            Err(CallError::Disconnected) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Kills every task that nothing here watches, says how many, and lets the supervisor forget those that have ended:
    /// leftovers of an agent that died between start and record.
    ///
    /// # Errors
    /// When the agent is shutting down.
    pub async fn end_strangers(&self) -> Result<usize, CallError> {
        let (answer, result) = oneshot::channel();
        self.calls.send(Call::EndStrangers { answer }).await.map_err(|_| CallError::Closed)?;
        result.await.map_err(|_| CallError::Closed)
    }

    async fn call(&self, request: Request, watch: Option<Starting>) -> Result<Reply, CallError> {
        let (answer, result) = oneshot::channel();
        let exchange = async {
            self.calls.send(Call::Send { request, answer, watch }).await.map_err(|_| CallError::Closed)?;
            result.await.map_err(|_| CallError::Closed)?
        };
        tokio::time::timeout(CALL_TIMEOUT, exchange).await.map_err(|_| CallError::TimedOut)?
    }
}

fn done_or_unknown(result: Result<Reply, CallError>) -> Result<(), CallError> {
    match result {
        Ok(_) => Ok(()),
        Err(CallError::Refused(refusal)) if refusal.code == RefusalCode::UnknownTask => Ok(()),
        Err(error) => Err(error),
    }
}

#[derive(Debug)]
struct Watched {
    handle: Handle,
    exit: oneshot::Sender<Exit>,
    /// Lets the kernel keep how the process ends, should the supervisor die with it. None where it has ended already,
    /// and the supervisor knows how.
    pidfd: Option<OwnedFd>,
    /// Lets the kernel keep what it writes, should the supervisor die before it.
    _output: Option<KeptOutput>,
}

impl Watched {
    fn new(handle: Handle, exit: oneshot::Sender<Exit>) -> Self {
        let pidfd = processes::open(handle.pid, handle.start_ticks)
            .inspect_err(
                |error| tracing::debug!(error = %error, task = handle.id, "its end is known to the supervisor only"),
            )
            .ok();
        let kept = handle.logs.as_ref().map(logs::keep_output).transpose();
        let output = kept.unwrap_or_else(|error| {
            tracing::warn!(error = %error, task = handle.id, "its last output is lost if it and the supervisor end");
            None
        });
        Self { handle, exit, pidfd, _output: output }
    }

    /// How the task ended that no supervisor has any more.
    fn exit(&self, refusal: &Refusal) -> Exit {
        let Some(pidfd) = &self.pidfd else { return Exit::unknown(format!("the supervisor died and {refusal}")) };
        processes::exit_of_foreign(pidfd.as_fd(), self.handle.pid, self.handle.start_ticks)
    }
}

#[derive(Debug)]
enum Pending {
    Call {
        answer: oneshot::Sender<Result<Reply, CallError>>,
        watch: Option<Starting>,
    },
    Recover {
        handle: Handle,
        answer: oneshot::Sender<Recovery>,
    },
    /// Adoption of a watched task by a new supervisor.
    Adopt {
        id: String,
    },
    /// The answer is not needed.
    Ignored,
}

/// A task whose start is not answered yet.
#[derive(Debug)]
struct Starting {
    id: String,
    exit: oneshot::Sender<Exit>,
    /// How it ended, where its end came before the answer: a short task may have ended when its start is told.
    ended: Option<Exit>,
}

/// The connection's task.
struct Link {
    launcher: Launcher,
    queue: mpsc::Receiver<Call>,
    watched: BTreeMap<String, Watched>,
    pending: BTreeMap<u64, Pending>,
    /// What the supervisor listed and was not asked for yet.
    known: BTreeMap<String, TaskReport>,
    /// Recoveries that the loss of a connection interrupted; they are asked again.
    unanswered: Vec<(Handle, oneshot::Sender<Recovery>)>,
    seq: u64,
    /// The version of this connection.
    version: u32,
    /// Once is enough: a program that cannot be executed does not get better.
    tried_upgrade: bool,
}

#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("the connection to the supervisor broke")]
    Io(#[from] std::io::Error),
    #[error("the supervisor closed the connection")]
    Ended,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the supervisor gave an unexpected answer")]
    Unexpected,
    #[error("the agent is done with its supervisor")]
    Done,
}

impl Link {
    async fn run(mut self) {
        loop {
            let error = match self.connect().await {
                Ok((from, to)) => Box::pin(self.serve(from, to)).await,
                Err(error) => error,
            };
            self.fail_pending();
            if matches!(error, LinkError::Done) {
                return;
            }
            let unreachable = !matches!(error, LinkError::Ended | LinkError::Io(_));
            tracing::warn!(error = &error as &dyn std::error::Error, "supervisor is not connected");
            if unreachable {
                tokio::time::sleep(RECONNECT_DELAY).await;
            }
        }
    }

    /// Connects, agrees on a version and takes stock.
    async fn connect(&mut self) -> Result<(OwnedReadHalf, OwnedWriteHalf), LinkError> {
        let stream: UnixStream = self.launcher.connect().await?;
        let (mut from, mut to) = stream.into_split();
        let hello = Request::Hello { min_version: MIN_VERSION, max_version: MAX_VERSION, build: BUILD.to_owned() };
        let Reply::Hello { pid, build, version } = exchange(&mut from, &mut to, hello).await? else {
            return Err(LinkError::Unexpected);
        };
        self.version = version;
        self.launcher.write_pid(pid)?;
        if build != BUILD && version >= UPGRADE_VERSION && !std::mem::replace(&mut self.tried_upgrade, true) {
            let binary = self.launcher.copy_binary().await?;
            tracing::info!(pid, from = build, to = BUILD, "supervisor is upgraded");
            let request = Request::Upgrade { binary: binary.to_string_lossy().into_owned() };
            // Only a failure is answered; then the old program serves as before.
            match exchange(&mut from, &mut to, request).await {
                Err(LinkError::Refused(refusal)) => tracing::warn!(reason = %refusal, "the upgrade failed"),
                Err(error) => return Err(error),
                Ok(_) => return Err(LinkError::Unexpected),
            }
        }
        if version >= CAP_VERSION {
            match exchange(&mut from, &mut to, Request::Cap(self.launcher.slice())).await {
                Ok(_) => {}
                Err(LinkError::Refused(refusal)) => tracing::warn!(reason = %refusal, "tasks together are not capped"),
                Err(error) => return Err(error),
            }
        }
        let Reply::Tasks(reports) = exchange(&mut from, &mut to, Request::Subscribe).await? else {
            return Err(LinkError::Unexpected);
        };
        tracing::info!(pid, build, version, tasks = reports.len(), "supervisor is connected");
        self.known = reports.into_iter().map(|report| (report.handle.id.clone(), report)).collect();
        Ok((from, to))
    }

    async fn serve(&mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> LinkError {
        if let Err(error) = self.find_watched(&mut to).await {
            return error;
        }
        let (frames, mut arrived) = mpsc::channel(FRAME_QUEUE);
        let read = async move {
            loop {
                match protocol::read_frame::<ServerFrame, _>(&mut from).await {
                    Ok(Some(frame)) => {
                        if frames.send(frame).await.is_err() {
                            return LinkError::Ended;
                        }
                    }
                    Ok(None) => return LinkError::Ended,
                    Err(error) => return error.into(),
                }
            }
        };
        let work = async {
            loop {
                let result = tokio::select! {
                    biased;
                    Some(frame) = arrived.recv() => {
                        self.take(frame);
                        Ok(())
                    }
                    call = self.queue.recv() => match call {
                        Some(call) => self.carry(call, &mut to).await,
                        None => Err(LinkError::Done),
                    },
                };
                if let Err(error) = result {
                    return error;
                }
            }
        };
        tokio::select! {
            biased;
            error = work => error,
            error = read => error,
        }
    }

    /// After a reconnect: delivers ends that were missed, and lets a new supervisor adopt what it does not know.
    async fn find_watched(&mut self, to: &mut OwnedWriteHalf) -> Result<(), LinkError> {
        let ids: Vec<String> = self.watched.keys().cloned().collect();
        for id in ids {
            match self.known.remove(&id) {
                Some(TaskReport { exit: Some(exit), .. }) => self.deliver(&id, exit),
                Some(TaskReport { exit: None, .. }) => {}
                None => {
                    let Some(watched) = self.watched.get(&id) else { continue };
                    let request = Request::Adopt(Box::new(watched.handle.clone()));
                    self.send(request, Pending::Adopt { id }, to).await?;
                }
            }
        }
        for (handle, answer) in std::mem::take(&mut self.unanswered) {
            self.recover(handle, answer, to).await?;
        }
        Ok(())
    }

    async fn recover(
        &mut self,
        handle: Handle,
        answer: oneshot::Sender<Recovery>,
        to: &mut OwnedWriteHalf,
    ) -> Result<(), LinkError> {
        let Some(report) = self.known.remove(&handle.id) else {
            let request = Request::Adopt(Box::new(handle.clone()));
            return self.send(request, Pending::Recover { handle, answer }, to).await;
        };
        let ended = self.watch(handle);
        if let Some(exit) = report.exit {
            self.deliver(&report.handle.id, exit);
        }
        drop(answer.send(Recovery::Running(ended)));
        Ok(())
    }

    async fn carry(&mut self, call: Call, to: &mut OwnedWriteHalf) -> Result<(), LinkError> {
        match call {
            // An old supervisor would run it without its walls.
            Call::Send { request: Request::Start(spec), answer, .. }
                if spec.sandbox.as_ref().is_some_and(|sandbox| self.version < version_of(sandbox)) =>
            {
                let message = "the supervisor of this node is older than driver exec: it has to be upgraded";
                // A caller that gave up does not ask for the answer.
                drop(answer.send(Err(CallError::Refused(Refusal::new(RefusalCode::StartFailed, message)))));
                Ok(())
            }
            Call::Send { request, answer, watch } => self.send(request, Pending::Call { answer, watch }, to).await,
            Call::Recover { handle, answer } => self.recover(*handle, answer, to).await,
            Call::Find { id, answer } => {
                let found = self.take_known(&id).map(|(id, report)| {
                    let ended = self.watch(report.handle.clone());
                    if let Some(exit) = report.exit {
                        self.deliver(&id, exit);
                    }
                    (report.handle, ended)
                });
                // A caller that gave up is shutting down.
                drop(answer.send(found));
                Ok(())
            }
            Call::EndStrangers { answer } => {
                let strangers = std::mem::take(&mut self.known);
                let mut ended = 0;
                for (id, report) in &strangers {
                    if report.exit.is_none() {
                        ended += 1;
                        let kill = Request::Stop { id: id.clone(), signal: libc::SIGKILL, timeout_ms: 0 };
                        self.send(kill, Pending::Ignored, to).await?;
                    } else {
                        self.send(Request::Acknowledge { id: id.clone() }, Pending::Ignored, to).await?;
                    }
                }
                // A caller that gave up does not ask for the number.
                answer.send(ended).or(Ok(()))
            }
        }
    }

    fn take_known(&mut self, id: &str) -> Option<(String, TaskReport)> {
        if !id.ends_with('/') {
            return self.known.remove_entry(id);
        }
        let begins = |(known, _): &(&String, &TaskReport)| known.starts_with(id);
        let found =
            self.known.range(id.to_owned()..).take_while(begins).min_by_key(|(_, report)| report.exit.is_some());
        let id = found.map(|(id, _)| id.clone())?;
        self.known.remove_entry(&id)
    }

    async fn send(&mut self, request: Request, pending: Pending, to: &mut OwnedWriteHalf) -> Result<(), LinkError> {
        self.seq += 1;
        self.pending.insert(self.seq, pending);
        let frame = RequestFrame { seq: self.seq, request };
        let written = tokio::time::timeout(WRITE_TIMEOUT, protocol::write_frame(to, &frame)).await;
        written.map_err(|_| LinkError::Ended)?.map_err(LinkError::from)
    }

    fn take(&mut self, frame: ServerFrame) {
        match frame {
            ServerFrame::Exited { id, exit } => self.deliver(&id, exit),
            ServerFrame::Reply { seq, result } => {
                if let Some(pending) = self.pending.remove(&seq) {
                    self.settle(pending, result);
                } else {
                    tracing::warn!(seq, "the supervisor answered a request that was not made");
                }
            }
        }
    }

    fn settle(&mut self, pending: Pending, result: Result<Reply, Refusal>) {
        match pending {
            Pending::Call { answer, watch } => {
                if let (Ok(Reply::Started(handle)), Some(Starting { id, exit, ended })) = (&result, watch) {
                    self.watched.insert(id.clone(), Watched::new((**handle).clone(), exit));
                    if let Some(ended) = ended {
                        self.deliver(&id, ended);
                    }
                }
                // A caller that gave up has cleaned up or will.
                drop(answer.send(result.map_err(CallError::from)));
            }
            Pending::Recover { handle, answer } => {
                let recovery = match result {
                    Ok(_) => Recovery::Running(self.watch(handle)),
                    Err(refusal) => {
                        tracing::info!(task = handle.id, reason = %refusal, "task is not there any more");
                        Recovery::Gone
                    }
                };
                drop(answer.send(recovery));
            }
            Pending::Adopt { id } => {
                if let (Err(refusal), Some(watched)) = (result, self.watched.get(&id)) {
                    let exit = watched.exit(&refusal);
                    self.deliver(&id, exit);
                }
            }
            Pending::Ignored => {
                if let Err(refusal) = result {
                    tracing::debug!(reason = %refusal, "a leftover task was not ended");
                }
            }
        }
    }

    fn watch(&mut self, handle: Handle) -> oneshot::Receiver<Exit> {
        let (exit, ended) = oneshot::channel();
        self.watched.insert(handle.id.clone(), Watched::new(handle, exit));
        ended
    }

    fn deliver(&mut self, id: &str, exit: Exit) {
        if let Some(watched) = self.watched.remove(id) {
            // Without a listener the agent is shutting down; the supervisor keeps the result.
            drop(watched.exit.send(exit));
        } else if let Some(report) = self.known.get_mut(id) {
            report.exit = Some(exit);
        } else if let Some(starting) = self.starting(id) {
            starting.ended = Some(exit);
        } else {
            tracing::debug!(task = id, "an unwatched task ended");
        }
    }

    fn starting(&mut self, id: &str) -> Option<&mut Starting> {
        self.pending.values_mut().find_map(|pending| match pending {
            Pending::Call { watch, .. } => watch.as_mut().filter(|starting| starting.id == id),
            Pending::Recover { .. } | Pending::Adopt { .. } | Pending::Ignored => None,
        })
    }

    fn fail_pending(&mut self) {
        for (_, pending) in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Call { answer, .. } => drop(answer.send(Err(CallError::Disconnected))),
                Pending::Recover { handle, answer } => self.unanswered.push((handle, answer)),
                Pending::Adopt { .. } | Pending::Ignored => {}
            }
        }
    }
}

/// The version that knows all of this sandbox.
fn version_of(sandbox: &SandboxSpec) -> u32 {
    if sandbox.rootfs.is_some() { CAP_VERSION } else { SANDBOX_VERSION }
}

async fn exchange(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, request: Request) -> Result<Reply, LinkError> {
    let frame = RequestFrame { seq: 0, request };
    let talk = async {
        protocol::write_frame(to, &frame).await?;
        match protocol::read_frame(from).await? {
            Some(ServerFrame::Reply { result, .. }) => Ok(result?),
            Some(ServerFrame::Exited { .. }) => Err(LinkError::Unexpected),
            None => Err(LinkError::Ended),
        }
    };
    tokio::time::timeout(GREETING_TIMEOUT, talk).await.map_err(|_| LinkError::Ended)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Link {
        let folder = || "/nonexistent".into();
        Link {
            launcher: Launcher::new(folder(), folder(), folder()),
            queue: mpsc::channel(1).1,
            watched: BTreeMap::new(),
            pending: BTreeMap::new(),
            known: BTreeMap::new(),
            unanswered: Vec::new(),
            seq: 0,
            version: MAX_VERSION,
            tried_upgrade: false,
        }
    }

    /// A start that is on its way: what its caller is answered, and what it hears of the end.
    fn begin(
        link: &mut Link,
        seq: u64,
        id: &str,
    ) -> (oneshot::Receiver<Result<Reply, CallError>>, oneshot::Receiver<Exit>) {
        let ((answer, answered), (exit, ended)) = (oneshot::channel(), oneshot::channel());
        let watch = Some(Starting { id: id.to_owned(), exit, ended: None });
        link.pending.insert(seq, Pending::Call { answer, watch });
        (answered, ended)
    }

    fn started(seq: u64, id: &str) -> ServerFrame {
        let handle = Handle {
            id: id.to_owned(),
            pid: i32::MAX,
            start_ticks: 1,
            boot_id: String::new(),
            logs: None,
            kill_timeout_ms: 0,
            cgroup: None,
            is_sandboxed: true,
            is_container: false,
        };
        ServerFrame::Reply { seq, result: Ok(Reply::Started(Box::new(handle))) }
    }

    fn exited(id: &str, code: i32) -> ServerFrame {
        ServerFrame::Exited { id: id.to_owned(), exit: Exit::code(code) }
    }

    /// The supervisor watches a task from before it is told to go, and tells of its end as soon as it comes.
    #[test]
    fn an_end_that_comes_before_the_answer_to_the_start_is_not_lost() {
        let mut link = link();
        let (mut answered, mut ended) = begin(&mut link, 1, "a/t/1");
        let (_, mut other) = begin(&mut link, 2, "b/t/1");
        link.take(exited("a/t/1", 7));
        assert!(answered.try_recv().is_err() && ended.try_recv().is_err());
        link.take(started(1, "a/t/1"));
        assert!(answered.try_recv().unwrap().is_ok());
        assert_eq!(ended.try_recv().unwrap(), Exit::code(7));
        assert!(link.watched.is_empty());

        link.take(started(2, "b/t/1"));
        assert!(other.try_recv().is_err(), "another task's end is none of its own");
        link.take(exited("b/t/1", 3));
        assert_eq!(other.try_recv().unwrap(), Exit::code(3));
    }

    #[test]
    fn a_start_that_is_refused_has_no_end() {
        let mut link = link();
        let (mut answered, mut ended) = begin(&mut link, 1, "a/t/1");
        link.take(exited("a/t/1", 7));
        let refusal = Refusal::new(RefusalCode::StartFailed, "no");
        link.take(ServerFrame::Reply { seq: 1, result: Err(refusal) });
        assert!(answered.try_recv().unwrap().is_err());
        assert!(ended.try_recv().is_err() && link.watched.is_empty() && link.pending.is_empty());
    }
}
