//! The table of tasks and one watcher per task, which sees it through from start to acknowledged end.
//!
//! A task has ended when its first process is a zombie. Then the rest of its group and session is killed, the result is
//! read, the output is taken to its end, and only then subscribers hear of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cgroup::Cgroup;
use super::logs::{Pipe, Stream};
use super::processes::{self, Stat};
use super::protocol::{Exit, Handle, Refusal, RefusalCode, ServerFrame, Slice, StartSpec, TaskReport};
use super::spawn::{self, Ground, Started};
use super::{logs, sys};
use drover_clock::sleep_until;

/// How long the rest of a killed group may take to vanish before its end is told all the same.
const GROUP_END: Duration = Duration::from_secs(15);
/// The longest grace of a task when the node is powered off.
const POWER_OFF_GRACE: Duration = Duration::from_secs(5);
/// Stop requests per task that wait; more are refused.
const STOP_QUEUE: usize = 16;
/// More tasks than this are refused: descriptors are finite.
const MAX_TASKS: usize = 4096;

/// All tasks of this supervisor.
#[derive(Debug)]
pub(super) struct Tasks {
    entries: RefCell<BTreeMap<String, Entry>>,
    subscribers: RefCell<Vec<mpsc::Sender<ServerFrame>>>,
    tracker: TaskTracker,
    sweeps: RefCell<Vec<oneshot::Sender<Rc<Vec<Stat>>>>>,
    sweep_wanted: Notify,
    orphans_wanted: Notify,
    settled_wanted: Notify,
    ground: Ground,
    /// Tasks on their way, and whether they were to end meanwhile: they have no owner yet and must not be
    /// reaped as orphans.
    preparing: RefCell<BTreeMap<String, bool>>,
    closing: Cell<bool>,
}

#[derive(Debug)]
struct Entry {
    handle: Handle,
    parentage: Parentage,
    pidfd: Rc<OwnedFd>,
    stops: mpsc::Sender<Stop>,
    exit: Option<Exit>,
    /// It never became the task, and its end is not reported.
    is_stillborn: bool,
    /// How it ended, from the moment at which its process is gone.
    reaped: Option<Exit>,
    /// When what is left of it is killed.
    kill_at: Option<Instant>,
    /// The collecting ends of its output.
    outputs: Vec<(Stream, Rc<OwnedFd>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Parentage {
    Child,
    Adopted,
}

/// A task on its way from one program to the next in the same process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HandedTask {
    handle: Handle,
    parentage: Parentage,
    #[serde(default)]
    exit: Option<Exit>,
    #[serde(default)]
    reaped: Option<Exit>,
    pidfd: i32,
    outputs: Vec<(Stream, i32)>,
    #[serde(default)]
    kill_after_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Stop {
    /// None: only the time limit.
    signal: Option<i32>,
    grace: Duration,
}

impl Tasks {
    /// An empty table.
    pub(super) fn new(ground: Ground) -> Rc<Self> {
        Rc::new(Self {
            entries: RefCell::default(),
            subscribers: RefCell::default(),
            tracker: TaskTracker::new(),
            sweeps: RefCell::default(),
            sweep_wanted: Notify::new(),
            orphans_wanted: Notify::new(),
            settled_wanted: Notify::new(),
            ground,
            preparing: RefCell::default(),
            closing: Cell::new(false),
        })
    }

    /// The task is on its way: it has a place in the table of ids, and a stop finds it.
    pub(super) fn begin(&self, id: &str) -> Result<(), Refusal> {
        self.check_room(id)?;
        self.preparing.borrow_mut().insert(id.to_owned(), false);
        Ok(())
    }

    /// Starts a task that is on its way, and its watcher.
    pub(super) async fn start(self: &Rc<Self>, spec: &StartSpec) -> Result<Handle, Refusal> {
        if spec.sandbox.is_some() { self.start_sandboxed(spec).await } else { self.start_plain(spec).await }
    }

    async fn start_plain(self: &Rc<Self>, spec: &StartSpec) -> Result<Handle, Refusal> {
        let started = spawn::start(spec, &self.ground).await;
        let entered = started.and_then(|started| self.enter(started, Parentage::Child));
        let is_wanted = self.is_wanted_still(&spec.id);
        let handle = entered?;
        if is_wanted {
            return Ok(handle);
        }
        self.undo(&spec.id);
        Err(stopped(&spec.id))
    }

    async fn start_sandboxed(self: &Rc<Self>, spec: &StartSpec) -> Result<Handle, Refusal> {
        let waiting = spawn::start_sandboxed(spec, &self.ground).await;
        let entered = waiting.and_then(|waiting| {
            let (started, wire) = waiting.into_parts();
            Ok((self.enter(started, Parentage::Child)?, wire))
        });
        let is_wanted = self.is_wanted_still(&spec.id);
        let (handle, wire) = entered?;
        let gone = if is_wanted { spawn::go(wire).await } else { Err(stopped(&spec.id)) };
        if let Err(refusal) = gone {
            self.undo(&spec.id);
            return Err(refusal);
        }
        Ok(handle)
    }

    /// The task is on its way no more, and whether it may go on.
    fn is_wanted_still(&self, id: &str) -> bool {
        let is_stopped = self.preparing.borrow_mut().remove(id).unwrap_or_default();
        self.orphans_wanted.notify_one();
        self.settled_wanted.notify_waiters();
        !is_stopped && !self.closing.get()
    }

    /// Ends a task that was never reported. Its watcher sees the end, which is not reported either.
    fn undo(&self, id: &str) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(id) {
            entry.is_stillborn = true;
        }
        if let Err(error) = self.stop(id, libc::SIGKILL, Duration::ZERO) {
            tracing::debug!(error = %error, task = id, "a task that did not begin has ended already");
        }
        self.forget_stillborn(id);
    }

    /// What the next program in this process needs of the tasks; their descriptors stay open over its start.
    pub(super) fn hand_over(&self) -> io::Result<Vec<HandedTask>> {
        let now = Instant::now();
        let entries = self.entries.borrow();
        let hand = |entry: &Entry| {
            let stays = |fd: &OwnedFd| {
                rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
                io::Result::Ok(fd.as_raw_fd())
            };
            Ok(HandedTask {
                handle: entry.handle.clone(),
                parentage: entry.parentage,
                exit: entry.exit.clone(),
                reaped: entry.reaped.clone(),
                pidfd: stays(&entry.pidfd)?,
                outputs: entry
                    .outputs
                    .iter()
                    .map(|(stream, fd)| Ok((*stream, stays(fd)?)))
                    .collect::<io::Result<_>>()?,
                kill_after_ms: entry
                    .kill_at
                    .map(|at| u64::try_from(at.saturating_duration_since(now).as_millis()).unwrap_or(u64::MAX)),
            })
        };
        entries.values().filter(|entry| !entry.is_stillborn).map(hand).collect()
    }

    /// After a hand-over that failed: programs that are started do not get the descriptors.
    pub(super) fn take_back(&self) {
        for entry in self.entries.borrow().values() {
            for fd in std::iter::once(&entry.pidfd).chain(entry.outputs.iter().map(|(_, fd)| fd)) {
                if let Err(error) = rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC) {
                    tracing::warn!(error = %error, task = entry.handle.id, "a descriptor may leak into tasks");
                }
            }
        }
    }

    /// Takes up a task of the program before this one in the same process.
    pub(super) fn resume(self: &Rc<Self>, task: HandedTask) -> io::Result<()> {
        let HandedTask { handle, parentage, exit, reaped, pidfd, outputs, kill_after_ms } = task;
        let pidfd = sys::inherited(pidfd)?;
        let mut pipes = Vec::new();
        for (stream, raw) in outputs {
            let reader = sys::inherited(raw)?;
            if let Some(logs) = &handle.logs {
                pipes.push(Pipe::resume(logs, stream, (reader, handle.writers()))?);
            }
        }
        let id = handle.id.clone();
        if exit.is_some() {
            let (stops, _) = mpsc::channel(1);
            let pidfd = Rc::new(pidfd);
            let entry = Entry {
                handle,
                parentage,
                pidfd,
                stops,
                exit,
                is_stillborn: false,
                reaped,
                kill_at: None,
                outputs: Vec::new(),
            };
            self.entries.borrow_mut().insert(id, entry);
            return Ok(());
        }
        let cgroup = handle.cgroup.as_ref().map(Cgroup::of);
        let started = Started { handle, pidfd, pipes, cgroup };
        self.enter(started, parentage).map_err(io::Error::other)?;
        if let Some(entry) = self.entries.borrow_mut().get_mut(&id) {
            entry.reaped = reaped;
            if let Some(left) = kill_after_ms {
                let grace = Duration::from_millis(left);
                entry.kill_at = Some(Instant::now() + grace);
                entry.stops.try_send(Stop { signal: None, grace }).map_err(io::Error::other)?;
            }
        }
        Ok(())
    }

    /// Waits until no task is on its way: then the list of tasks is whole.
    pub(super) async fn settled(&self) {
        while self.is_preparing() {
            self.settled_wanted.notified().await;
        }
    }

    /// Whether a task is on its way, which no other program could take up.
    pub(super) fn is_preparing(&self) -> bool {
        !self.preparing.borrow().is_empty()
    }

    fn forget_stillborn(&self, id: &str) {
        let mut entries = self.entries.borrow_mut();
        if entries.get(id).is_some_and(|entry| entry.is_stillborn && entry.exit.is_some()) {
            entries.remove(id);
        }
    }

    /// Watches a task that an earlier supervisor started; one that is known already is left as it is.
    pub(super) fn adopt(self: &Rc<Self>, handle: &Handle) -> Result<Handle, Refusal> {
        if let Some(entry) = self.entries.borrow().get(&handle.id) {
            return Ok(entry.handle.clone());
        }
        self.check_room(&handle.id)?;
        let started = spawn::adopt(handle)?;
        if let (true, Ok(cgroups)) = (handle.is_container, &self.ground.cgroups) {
            // Its runtime has made its group, with cores of its own perhaps.
            cgroups.share_cores();
        }
        self.enter(started, Parentage::Adopted)
    }

    fn check_room(&self, id: &str) -> Result<(), Refusal> {
        let (entries, preparing) = (self.entries.borrow(), self.preparing.borrow());
        if self.closing.get() {
            return Err(Refusal::new(RefusalCode::StartFailed, "the supervisor is shutting down"));
        }
        if entries.contains_key(id) || preparing.contains_key(id) {
            return Err(Refusal::new(RefusalCode::TaskExists, format!("task {id} exists")));
        }
        if entries.len() + preparing.len() >= MAX_TASKS {
            let message = format!("this supervisor has {MAX_TASKS} tasks, the most it takes: stop some");
            return Err(Refusal::new(RefusalCode::StartFailed, message));
        }
        Ok(())
    }

    fn enter(self: &Rc<Self>, started: Started, parentage: Parentage) -> Result<Handle, Refusal> {
        let Started { handle, pidfd, pipes, cgroup } = started;
        let pidfd = Rc::new(pidfd);
        let (stops, stop_queue) = mpsc::channel(STOP_QUEUE);
        let ready = sys::watch_shared(Rc::clone(&pidfd)).map_err(|error| {
            Refusal::new(RefusalCode::System, format!("task {} cannot be watched: {error}", handle.id))
        })?;
        let output_ended = CancellationToken::new();
        let collectors = TaskTracker::new();
        let outputs = pipes.iter().map(Pipe::end).collect();
        for pipe in pipes {
            collectors.spawn_local(logs::collect(pipe, output_ended.clone()));
        }
        collectors.close();
        let entry = Entry {
            handle: handle.clone(),
            parentage,
            pidfd,
            stops,
            exit: None,
            is_stillborn: false,
            reaped: None,
            kill_at: None,
            outputs,
        };
        self.entries.borrow_mut().insert(handle.id.clone(), entry);
        let watcher =
            Watcher { tasks: Rc::clone(self), handle: handle.clone(), parentage, ready, stops: stop_queue, cgroup };
        self.tracker.spawn_local(watcher.run(collectors, output_ended));
        Ok(handle)
    }

    /// Asks a task to end: the signal now, SIGKILL to its whole group after the grace. Ended tasks are left alone, and
    /// one that is on its way ends as soon as it is there.
    pub(super) fn stop(&self, id: &str, signal: i32, grace: Duration) -> Result<(), Refusal> {
        let mut entries = self.entries.borrow_mut();
        let Some(entry) = entries.get_mut(id) else {
            let mut preparing = self.preparing.borrow_mut();
            *preparing.get_mut(id).ok_or_else(|| unknown(id))? = true;
            return Ok(());
        };
        if entry.exit.is_some() {
            return Ok(());
        }
        let until = Instant::now() + grace;
        entry.kill_at = Some(entry.kill_at.map_or(until, |earlier| earlier.min(until)));
        entry.stops.try_send(Stop { signal: Some(signal), grace }).map_err(|_| {
            Refusal::new(RefusalCode::System, format!("task {id} is being stopped already, many times over"))
        })
    }

    /// Caps what all tasks together may use.
    pub(super) fn cap(&self, slice: &Slice) -> Result<(), Refusal> {
        let cgroups = self.ground.cgroups.as_ref();
        let cgroups = cgroups.map_err(|reason| Refusal::new(RefusalCode::System, reason.clone()))?;
        cgroups.cap(slice).map_err(|error| Refusal::new(RefusalCode::System, error.to_string()))
    }

    /// Sends a signal to the task's process.
    pub(super) fn signal(&self, id: &str, signal: i32) -> Result<(), Refusal> {
        let entries = self.entries.borrow();
        let entry = entries.get(id).filter(|entry| entry.exit.is_none()).ok_or_else(|| unknown(id))?;
        send_signal(&entry.pidfd, signal)
            .map_err(|error| Refusal::new(RefusalCode::System, format!("signal {signal} to task {id}: {error}")))
    }

    /// Forgets a task that has ended.
    pub(super) fn acknowledge(&self, id: &str) -> Result<(), Refusal> {
        let mut entries = self.entries.borrow_mut();
        match entries.get(id) {
            Some(entry) if entry.exit.is_some() => {
                entries.remove(id);
                Ok(())
            }
            Some(_) => Err(Refusal::new(RefusalCode::Unsupported, format!("task {id} still runs: stop it first"))),
            None => Err(unknown(id)),
        }
    }

    /// Lists all tasks; from now on the subscriber hears of each end.
    pub(super) fn subscribe(&self, subscriber: mpsc::Sender<ServerFrame>) -> Vec<TaskReport> {
        self.subscribers.borrow_mut().push(subscriber);
        let entries = self.entries.borrow();
        entries.values().map(|entry| TaskReport { handle: entry.handle.clone(), exit: entry.exit.clone() }).collect()
    }

    /// Ends every task with SIGTERM, then SIGKILL, and reports nothing: the node is being powered off.
    pub(super) async fn power_off(&self) {
        self.closing.set(true);
        self.settled().await;
        self.subscribers.borrow_mut().clear();
        let stops: Vec<(String, Duration)> = {
            let entries = self.entries.borrow();
            entries
                .iter()
                .map(|(id, entry)| (id.clone(), Duration::from_millis(entry.handle.kill_timeout_ms)))
                .collect()
        };
        for (id, grace) in stops {
            if let Err(error) = self.stop(&id, libc::SIGTERM, grace.min(POWER_OFF_GRACE)) {
                tracing::warn!(error = %error, task = id, "task is not stopped");
            }
        }
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Answers requests for process snapshots, one scan for all that wait. Runs until dropped.
    pub(super) async fn sweep(&self) {
        loop {
            self.sweep_wanted.notified().await;
            // Watchers that became ready in this turn of the loop join the same scan.
            tokio::task::yield_now().await;
            let waiting = std::mem::take(&mut *self.sweeps.borrow_mut());
            let found = processes::snapshot().unwrap_or_else(|error| {
                tracing::error!(error = %error, "/proc cannot be read: processes that tasks left behind are not found");
                Vec::new()
            });
            let found = Rc::new(found);
            for answer in waiting {
                // A watcher waits for its answer until it comes.
                drop(answer.send(Rc::clone(&found)));
            }
        }
    }

    async fn snapshot(&self) -> Rc<Vec<Stat>> {
        let (answer, wanted) = oneshot::channel();
        self.sweeps.borrow_mut().push(answer);
        self.sweep_wanted.notify_one();
        wanted.await.unwrap_or_default()
    }

    /// Reaps what tasks left behind, on every SIGCHLD and after each own child. Runs until dropped.
    pub(super) async fn reap_orphans(&self) -> io::Result<()> {
        let mut child_ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child())?;
        loop {
            while let Some(pid) = sys::peek_zombie() {
                if self.is_task(pid) || self.is_preparing() {
                    break;
                }
                reap(processes::pid(pid)?)?;
            }
            tokio::select! {
                biased;
                _ = child_ended.recv() => {}
                () = self.orphans_wanted.notified() => {}
            }
        }
    }

    fn is_task(&self, pid: i32) -> bool {
        let entries = self.entries.borrow();
        entries
            .values()
            .any(|entry| entry.handle.pid == pid && entry.exit.is_none() && entry.parentage == Parentage::Child)
    }

    fn finish(&self, id: &str, exit: &Exit) {
        let is_stillborn = self.entries.borrow_mut().get_mut(id).is_some_and(|entry| {
            entry.exit = Some(exit.clone());
            entry.outputs.clear();
            entry.is_stillborn
        });
        self.orphans_wanted.notify_one();
        if is_stillborn {
            self.forget_stillborn(id);
            return;
        }
        // A subscriber that is full or gone loses its connection; it lists all tasks when it comes again.
        self.subscribers.borrow_mut().retain(|subscriber| {
            subscriber.try_send(ServerFrame::Exited { id: id.to_owned(), exit: exit.clone() }).is_ok()
        });
    }
}

#[derive(Debug)]
struct Watcher {
    tasks: Rc<Tasks>,
    handle: Handle,
    parentage: Parentage,
    ready: AsyncFd<Rc<OwnedFd>>,
    stops: mpsc::Receiver<Stop>,
    cgroup: Option<Cgroup>,
}

impl Watcher {
    async fn run(mut self, collectors: TaskTracker, output_ended: CancellationToken) {
        let reaped = self.tasks.entries.borrow().get(&self.handle.id).and_then(|entry| entry.reaped.clone());
        let mut exit = if let Some(exit) = reaped {
            exit
        } else {
            self.wait_for_end().await;
            self.end_group().await;
            self.exit()
        };
        // From here on nothing but this knows how it ended.
        if let Some(entry) = self.tasks.entries.borrow_mut().get_mut(&self.handle.id) {
            entry.reaped = Some(exit.clone());
        }
        if let Some(cgroup) = &self.cgroup {
            exit.oom = cgroup.oom();
            if let Err(error) = cgroup.remove() {
                tracing::warn!(error = %error, task = self.handle.id, "its control group is left");
            }
            if let Ok(cgroups) = &self.tasks.ground.cgroups {
                cgroups.share_cores();
            }
        }
        output_ended.cancel();
        collectors.wait().await;
        if let Some(logs) = &self.handle.logs
            && let Err(error) = logs::remove_fifos(logs)
        {
            tracing::warn!(error = %error, task = self.handle.id, "fifos of an ended task are left");
        }
        tracing::debug!(task = self.handle.id, code = exit.code, signal = exit.signal, "task ended");
        self.tasks.finish(&self.handle.id, &exit);
    }

    async fn wait_for_end(&mut self) {
        let mut deadline: Option<Instant> = None;
        loop {
            tokio::select! {
                biased;
                ready = self.ready.readable() => match ready {
                    Ok(_) => return,
                    Err(error) => {
                        tracing::error!(error = %error, task = self.handle.id, "a pidfd cannot be watched");
                        return;
                    }
                },
                Some(stop) = self.stops.recv() => {
                    if let Some(signal) = stop.signal
                        && let Err(error) = send_signal(self.ready.get_ref(), signal)
                    {
                        tracing::warn!(error = %error, task = self.handle.id, signal, "signal was not sent");
                    }
                    let until = Instant::now() + stop.grace;
                    deadline = Some(deadline.map_or(until, |earlier| earlier.min(until)));
                }
                () = sleep_until(deadline) => {
                    deadline = None;
                    self.kill_group();
                    if let Some(cgroup) = &self.cgroup && let Err(error) = cgroup.kill() {
                        tracing::warn!(error = %error, task = self.handle.id, "its control group was not killed");
                    }
                }
            }
        }
    }

    fn kill_group(&self) {
        let killed = processes::pid(self.handle.pid)
            .and_then(|pid| rustix::process::kill_process_group(pid, Signal::KILL).map_err(io::Error::from));
        if let Err(error) = killed
            && error.raw_os_error() != Some(libc::ESRCH)
        {
            tracing::warn!(error = %error, task = self.handle.id, "process group was not killed");
        }
    }

    /// Kills what is left of the group and session while the zombie of its leader keeps the number from being given
    /// away.
    async fn end_group(&self) {
        if self.parentage == Parentage::Child {
            self.kill_group();
        }
        let until = Instant::now() + GROUP_END;
        if let Some(cgroup) = &self.cgroup {
            self.end_cgroup(cgroup, until).await;
            return;
        }
        loop {
            let left = self.stragglers(&self.tasks.snapshot().await);
            if left.is_empty() {
                return;
            }
            for straggler in &left {
                if tokio::time::timeout_at(until, end_process(straggler)).await.is_err() {
                    tracing::error!(task = self.handle.id, pid = straggler.pid, "process survives SIGKILL");
                    return;
                }
            }
        }
    }

    /// Kills everything in the task's control group, which nothing of it can leave.
    async fn end_cgroup(&self, cgroup: &Cgroup, until: Instant) {
        for _ in 0..Cgroup::kill_rounds() {
            let dying = match cgroup.kill() {
                Ok(dying) => dying,
                Err(error) => {
                    tracing::error!(error = %error, task = self.handle.id, "its control group cannot be emptied");
                    return;
                }
            };
            if dying.is_empty() {
                return;
            }
            for pidfd in dying {
                let Ok(ended) = sys::watch_owned(pidfd) else { continue };
                if tokio::time::timeout_at(until, ended.readable()).await.is_err() {
                    tracing::error!(task = self.handle.id, "a process of its control group survives SIGKILL");
                    return;
                }
            }
        }
        tracing::error!(task = self.handle.id, "its processes multiply faster than they are killed");
    }

    /// Processes of the task's session, and orphans that left it but still carry the task's environment.
    fn stragglers(&self, all: &[Stat]) -> Vec<Stat> {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let mut parts = self.handle.id.split('/');
        let markers: Vec<String> = [("NOMAD_ALLOC_ID", parts.next()), ("NOMAD_TASK_NAME", parts.next())]
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| format!("{name}={value}")))
            .collect();
        let belongs = |stat: &Stat| match self.parentage {
            Parentage::Child if stat.session == self.handle.pid => true,
            Parentage::Child => {
                stat.parent == own && !self.tasks.is_task(stat.pid) && processes::has_environment(stat.pid, &markers)
            }
            // Somebody else reaps the leader, so its number may be another's by now: the environment has to agree.
            Parentage::Adopted => {
                (stat.session == self.handle.pid || stat.parent == 1 || stat.parent == own)
                    && !self.tasks.is_task(stat.pid)
                    && processes::has_environment(stat.pid, &markers)
            }
        };
        all.iter().filter(|stat| stat.pid != self.handle.pid && !stat.is_ended() && belongs(stat)).cloned().collect()
    }

    fn exit(&self) -> Exit {
        match self.parentage {
            Parentage::Child => reap_task(self.ready.get_ref())
                .unwrap_or_else(|error| Exit::unknown(format!("its exit code cannot be read: {error}"))),
            Parentage::Adopted => {
                processes::exit_of_foreign(self.ready.get_ref().as_fd(), self.handle.pid, self.handle.start_ticks)
            }
        }
    }
}

fn send_signal(pidfd: &OwnedFd, signal: i32) -> io::Result<()> {
    let signal = Signal::from_named_raw(signal)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{signal} is not a signal")))?;
    match rustix::process::pidfd_send_signal(pidfd, signal) {
        // It has ended already.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn reap_task(pidfd: &OwnedFd) -> io::Result<Exit> {
    let status = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)?
        .ok_or_else(|| io::Error::other("it has not ended"))?;
    Ok(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::code(code),
        (None, Some(signal)) => Exit::signal(signal),
        (None, None) => Exit::unknown("the kernel names neither exit code nor signal"),
    })
}

fn reap(pid: rustix::process::Pid) -> io::Result<()> {
    match rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
        Ok(_) | Err(rustix::io::Errno::CHILD) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Kills a process and waits until it has ended. One that is gone already, or whose pid is another's now, has ended.
async fn end_process(stat: &Stat) {
    let Ok(pid) = processes::pid(stat.pid) else { return };
    let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
    if processes::stat(stat.pid).is_ok_and(|now| now.start_ticks != stat.start_ticks) {
        return;
    }
    if let Err(error) = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL) {
        tracing::debug!(error = %error, pid = stat.pid, "process ended before it was killed");
    }
    match sys::watch_owned(pidfd) {
        Ok(ended) => drop(ended.readable().await),
        Err(error) => tracing::warn!(error = %error, pid = stat.pid, "a pidfd cannot be watched"),
    }
}

fn stopped(id: &str) -> Refusal {
    Refusal::new(RefusalCode::StartFailed, format!("task {id} was stopped while it was being started"))
}

fn unknown(id: &str) -> Refusal {
    Refusal::new(RefusalCode::UnknownTask, format!("no task {id} runs here"))
}
