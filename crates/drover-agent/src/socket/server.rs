//! Accepts connections and answers one request on each.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use serde_json::json;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::caller::{Caller, CallerError};
use super::exec;
use super::files::{FileError, Files, Reader};
use super::folder_news::{FolderNews, FollowedFolder};
use super::logs::{self, LogPosition};
use super::wire::{Incoming, Outgoing};
use crate::allocations::commands::{AllocCommand, RestartScope};
use crate::allocations::directory::{Directory, Listed};
use crate::drivers::{SIGNALS, StatsError, UsageStream};
use crate::enter::EnterError;
use crate::node::disk_reader::{self, DiskPiece};
use crate::node::facts::{Meta, MetaError, MetaHandle, effective_meta};
use crate::node::host_stats;
use crate::node::host_volumes::{VolumeError, Volumes};
use crate::node::stats::{self, AsyncOpen};
use crate::reporting::reports::Reports;
use crate::tasks::commands::{CommandError, Located};
use drover_clock::SharedClock;
use drover_socket::protocol::{
    self, AllocStats, AllocationInfo, Answer, Frame, FrameKind, LogStream, MAX_DATA_BYTES, MetaInfo, Origin, Request,
    TaskStats, VolumeChange,
};
use drover_supervisor::Usage;
use drover_supervisor::protocol::Handle;

/// Connections at the same time; more are refused.
const MAX_CONNECTIONS: usize = 64;
/// How often a followed log is looked at.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);
/// How often it is looked as soon as something has come: what ends a log follows on its last line.
const LOOKS_AFTER_NEWS: u32 = 10;
/// How often it is asked whether a silent log is over.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// After how many of these times it is looked whatever is told.
const LOOK_ANYWAY_AFTER: u32 = 5;
/// The shortest time between samples of statistics.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// How long the first picture waits for tasks that have not told what they use.
const FIRST_SAMPLES: Duration = Duration::from_secs(1);
/// Files in one answer.
const FILES_PER_ANSWER: usize = 1000;
/// How long the files of an allocation may take to be deleted.
const GIVE_UP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may take for its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves the socket, and what comes through a tunnel.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) directory: Directory,
    pub(crate) reports: Reports,
    pub(crate) clock: SharedClock,
    pub(crate) meta: MetaHandle,
    pub(crate) volumes: Volumes,
    /// Says when folders change; none: they are looked at again and again.
    pub(crate) news: Option<FolderNews>,
    /// The folder of the allocations.
    pub(crate) alloc_dir: PathBuf,
    pub(crate) stop: CancellationToken,
}

/// Why a request was not carried out.
#[derive(Debug)]
struct RequestRefused {
    code: u16,
    message: String,
}

impl RequestRefused {
    fn new(code: u16, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<CallerError> for RequestRefused {
    fn from(error: CallerError) -> Self {
        let code = match error {
            CallerError::OnlyLocal => 403,
            CallerError::NotHere => 404,
        };
        Self::new(code, error.to_string())
    }
}

impl From<FileError> for RequestRefused {
    fn from(error: FileError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<CommandError> for RequestRefused {
    fn from(error: CommandError) -> Self {
        let code = match error {
            CommandError::UnknownTask(_) | CommandError::NotWanted => 400,
            CommandError::NotRunning => 404,
            CommandError::Busy | CommandError::Driver(_) | CommandError::Several(_) => 500,
        };
        Self::new(code, error.to_string())
    }
}

impl From<MetaError> for RequestRefused {
    fn from(error: MetaError) -> Self {
        let code = match error {
            MetaError::Invalid(_) => 400,
            MetaError::NotKept(_) => 500,
        };
        Self::new(code, error.to_string())
    }
}

impl From<VolumeError> for RequestRefused {
    fn from(error: VolumeError) -> Self {
        let code = match error {
            VolumeError::NameExists { .. }
            | VolumeError::Parameter { .. }
            | VolumeError::NotAllowed(_)
            | VolumeError::Overlaps { .. }
            | VolumeError::Invalid(_) => 400,
            VolumeError::Unknown(_) => 404,
            VolumeError::NotMade { .. } | VolumeError::NotKept(_) => 500,
        };
        Self::new(code, error.to_string())
    }
}

impl From<Meta> for MetaInfo {
    fn from(meta: Meta) -> Self {
        Self {
            meta: effective_meta(meta.fixed(), &meta.on_the_wire()),
            dynamic: meta.dynamic().clone(),
            fixed: meta.fixed().clone(),
        }
    }
}

/// A refusal, or a client that has gone.
enum Broken {
    Refused(RequestRefused),
    Gone(io::Error),
}

impl<E: Into<RequestRefused>> From<E> for Broken {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

impl Server {
    /// Serves until it is dropped; connections end with the future.
    pub(crate) async fn run(self, state_dir: PathBuf) {
        let listener = match listen(&state_dir) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(error = %error, dir = %state_dir.display(), "the agent's socket is not served");
                return;
            }
        };
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(error = %error, "a connection broke off");
                    }
                }
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) if is_permitted(&stream) && connections.len() < MAX_CONNECTIONS => {
                        let (from, to) = stream.into_split();
                        connections.spawn(self.clone().converse(Caller::Node, Box::new(from), Box::new(to)));
                    }
                    Ok(_) => tracing::warn!("a connection was refused: another user's, or one too many"),
                    Err(error) => {
                        tracing::error!(error = %error, "a connection cannot be accepted");
                        tokio::time::sleep(FOLLOW_EVERY).await;
                    }
                },
            }
        }
        connections.shutdown().await;
    }

    /// Answers one request.
    pub(crate) async fn converse(self, caller: Caller, mut from: Incoming, mut to: Outgoing) {
        let answer = match Box::pin(self.answer(&caller, &mut from, &mut to)).await {
            Ok(answer) => answer,
            Err(Broken::Refused(RequestRefused { code, message })) => Answer::Error { code, message },
            Err(Broken::Gone(error)) => {
                tracing::debug!(error = %error, "a client has gone");
                return;
            }
        };
        if let Err(error) = send(&mut to, &answer).await {
            tracing::debug!(error = %error, "a client has gone");
        }
    }

    async fn answer(&self, caller: &Caller, from: &mut Incoming, to: &mut Outgoing) -> Result<Answer, Broken> {
        let frame = tokio::time::timeout(REQUEST_TIMEOUT, protocol::read_frame(from)).await;
        let frame = frame.map_err(|_| RequestRefused::new(400, "no request came"))?.map_err(Broken::Gone)?;
        let Some(Frame { kind: FrameKind::Message, payload }) = frame else {
            return Err(RequestRefused::new(400, "the first frame must be a request").into());
        };
        let request: Request = serde_json::from_slice(&payload)
            .map_err(|error| RequestRefused::new(400, format!("this is no request that the agent knows: {error}")))?;
        caller.check(&request, &self.directory)?;
        match request {
            Request::Allocations => Ok(Answer::Allocations(self.allocations())),
            Request::Restart { allocation, task, all_tasks } => {
                let scope = scope(task, all_tasks)?;
                let (_, listed) = self.find(&allocation)?;
                ask(&listed, |answer| AllocCommand::Restart { scope, answer }).await??;
                Ok(Answer::Done)
            }
            Request::Signal { allocation, task, signal } => {
                check_signal(&signal)?;
                let (_, listed) = self.find(&allocation)?;
                ask(&listed, |answer| AllocCommand::Signal { task, signal, answer }).await??;
                Ok(Answer::Done)
            }
            Request::Stop { allocation } => {
                let (_, listed) = self.find(&allocation)?;
                ask(&listed, |answer| AllocCommand::Stop { answer }).await??;
                Ok(Answer::Done)
            }
            Request::Logs { allocation, task, stream, origin, offset, file, follow } => {
                let (uid, listed) = self.find(&allocation)?;
                known_task(&listed, &task)?;
                let log = Log { uid, task, stream, follow };
                self.logs(&listed, &log, Beginning { origin, offset, file }, to).await
            }
            Request::List { allocation, path } => {
                let (_, listed) = self.find(&allocation)?;
                let found = in_background(move || Files::open(listed.dir.root())?.list(&path)).await??;
                for part in found.chunks(FILES_PER_ANSWER) {
                    send(to, &Answer::Files(part.to_vec())).await.map_err(Broken::Gone)?;
                }
                Ok(Answer::Done)
            }
            Request::Stat { allocation, path } => {
                let (_, listed) = self.find(&allocation)?;
                let found = in_background(move || Files::open(listed.dir.root())?.stat(&path)).await??;
                send(to, &Answer::File(found)).await.map_err(Broken::Gone)?;
                Ok(Answer::Done)
            }
            Request::Read { allocation, path, origin, offset, limit } => {
                let (_, listed) = self.find(&allocation)?;
                let reader = Files::open(listed.dir.root())?.read(&path, origin, offset)?;
                send_file(reader, &path, limit, to).await
            }
            Request::Follow { allocation, path, origin, offset } => {
                let (_, listed) = self.find(&allocation)?;
                follow_file(&Files::open(listed.dir.root())?, &path, (origin, offset), to).await
            }
            Request::Snapshot { allocation } => self.snapshot(&allocation, to).await,
            Request::Stats { allocation, every_ms } => {
                let (_, listed) = self.find(&allocation)?;
                self.stats(&listed, every_ms.map(Duration::from_millis), to).await
            }
            Request::Checks { allocation } => {
                let (uid, _) = self.find(&allocation)?;
                send(to, &self.checks(&uid)).await.map_err(Broken::Gone)?;
                Ok(Answer::Done)
            }
            Request::Gc { allocation } => {
                self.give_up(&allocation).await?;
                Ok(Answer::Done)
            }
            Request::HostStats => {
                let found = host_stats::measured(&self.alloc_dir).await;
                let wrong = |error| RequestRefused::new(500, format!("what the node uses cannot be read: {error}"));
                Ok(Answer::HostStats(found.map_err(wrong)?))
            }
            Request::Meta => Ok(Answer::Meta(self.meta.read().into())),
            Request::SetMeta { changes } => Ok(Answer::Meta(self.meta.apply(changes).await?.into())),
            Request::Volume(change) => {
                self.change_volumes(change).await?;
                Ok(Answer::Done)
            }
            Request::Exec { allocation, task, command, tty, size } => {
                if command.is_empty() {
                    return Err(RequestRefused::new(400, "command is empty: name a program").into());
                }
                let (_, listed) = self.find(&allocation)?;
                known_task(&listed, &task)?;
                let handle = locate(&listed, &task).await?;
                let order = exec::Order { command, tty, size };
                match exec::run(&handle, &listed.dir.task(&task), &order, from, to).await {
                    Ok(answer) => Ok(answer),
                    Err(EnterError::Io(error)) if error.kind() == io::ErrorKind::ConnectionAborted => {
                        Err(Broken::Gone(error))
                    }
                    Err(error) => Err(RequestRefused::new(500, error.to_string()).into()),
                }
            }
        }
    }

    async fn change_volumes(&self, change: VolumeChange) -> Result<(), VolumeError> {
        match change {
            VolumeChange::Create { name, id, plugin, parameters } => {
                self.volumes.create(name, id, plugin, parameters).await
            }
            VolumeChange::Register { name, id, path } => self.volumes.register(name, id, path).await,
            VolumeChange::Delete { name } => self.volumes.delete(&name).await,
        }
    }

    fn checks(&self, uid: &str) -> Answer {
        let checks = self.reports.latest(uid).unwrap_or_default().checks;
        Answer::Checks(checks.into_iter().map(|(id, check)| (id, json!(check))).collect())
    }

    /// Whether it has ended, as the API server knows.
    fn has_ended(&self, uid: &str) -> bool {
        self.reports.ended().iter().any(|(_, ended)| ended == uid)
    }

    /// Sends what a sticky disk keeps of an ended allocation.
    async fn snapshot(&self, id: &str, to: &mut Outgoing) -> Result<Answer, Broken> {
        let (uid, listed) = self.find(id)?;
        if !self.has_ended(&uid) {
            return Err(RequestRefused::new(409, "the allocation has not ended: its files are not at rest").into());
        }
        let mut pieces = disk_reader::pieces(&listed.dir, listed.tasks);
        while let Some(piece) = pieces.recv().await {
            match piece.map_err(|error| RequestRefused::new(500, format!("its files cannot be read: {error}")))? {
                DiskPiece::Entry(entry) => send(to, &Answer::Entry(entry)).await,
                DiskPiece::Data(payload) => protocol::write_frame(to, &Frame { kind: FrameKind::Data, payload }).await,
                DiskPiece::End => return Ok(Answer::Done),
            }
            .map_err(Broken::Gone)?;
        }
        Err(RequestRefused::new(500, "reading its files broke off").into())
    }

    /// Has an ended allocation's files and records go, and waits until they are gone.
    async fn give_up(&self, id: &str) -> Result<(), RequestRefused> {
        let (uid, listed) = self.find(id)?;
        if !self.has_ended(&uid) {
            let message = "the allocation has not ended, or the API server does not know yet that it has: nothing is \
                           destroyed. Stop it first, or try again";
            return Err(RequestRefused::new(400, message));
        }
        self.directory.give_up(&uid);
        let late = |_| RequestRefused::new(500, "its files are not gone yet: they go on being deleted");
        tokio::time::timeout(GIVE_UP_TIMEOUT, listed.commands.closed()).await.map_err(late)
    }

    fn find(&self, id: &str) -> Result<(String, Listed), RequestRefused> {
        let unknown = || {
            RequestRefused::new(404, format!("unknown allocation {id:?} on this node: `drover alloc list` shows all"))
        };
        self.directory.find(id).ok_or_else(unknown)
    }

    fn allocations(&self) -> Vec<AllocationInfo> {
        let all = self.directory.all().into_iter();
        let info = |(uid, listed): (String, Listed)| {
            let report = self.reports.latest(&uid).unwrap_or_default();
            AllocationInfo {
                namespace: listed.key.namespace.unwrap_or_default(),
                name: listed.key.name,
                client_status: report.client_status.to_string(),
                tasks: report.task_states.iter().map(|(name, it)| (name.clone(), it.state.to_string())).collect(),
                id: uid,
            }
        };
        all.map(info).collect()
    }

    async fn logs(&self, listed: &Listed, log: &Log, at: Beginning, to: &mut Outgoing) -> Result<Answer, Broken> {
        let files = Files::open(listed.dir.root())?;
        let missing = || RequestRefused::new(404, format!("task {} has no such output yet", log.task));
        let sizes = logs::sizes(&files, &log.task, log.stream)?;
        let place = match at.file {
            Some(index) => logs::resume(&sizes, LogPosition { index, offset: at.offset }),
            None => logs::walk(&sizes, at.origin, at.offset),
        };
        let mut place = place.ok_or_else(missing)?;
        let mut looks = Looks::of(self.news.as_ref().and_then(|news| logs::followed(&files, news)));
        loop {
            looks.begin();
            // Asked before the last look at the files: what was written until then is still sent.
            let is_over = !log.follow || self.is_dead(log);
            place = send_from(&files, log, place, to).await?;
            let next =
                logs::sizes(&files, &log.task, log.stream)?.range(place.index + 1..).next().map(|(index, _)| *index);
            match next {
                Some(index) => place = LogPosition { index, offset: 0 },
                None if is_over => return Ok(Answer::Done),
                None => looks.next(|| self.is_dead(log)).await,
            }
        }
    }

    /// Whether nothing more can come from the task.
    fn is_dead(&self, log: &Log) -> bool {
        self.reports.is_dead(&log.uid, &log.task)
    }

    /// Sends what the tasks use: once, as soon as each has told or has had its time, or again and again.
    async fn stats(&self, listed: &Listed, every: Option<Duration>, to: &mut Outgoing) -> Result<Answer, Broken> {
        let interval = every.unwrap_or(FIRST_SAMPLES).max(SAMPLE_EVERY);
        let mut samples = SelectAll::new();
        for task in &listed.tasks {
            let (name, run) = (task.clone(), Run { listed: listed.clone(), task: task.clone(), every: interval });
            samples.push(stats::follow(run, interval).map(move |used| (name.clone(), used)).boxed());
        }
        let mut told = UsageReports { missing: listed.tasks.iter().cloned().collect(), used: BTreeMap::new() };
        let mut before: Option<(Instant, BTreeMap<String, TaskStats>)> = None;
        let mut next = Instant::now() + FIRST_SAMPLES;
        loop {
            told.listen(&mut samples, next, before.is_none()).await;
            let now = Instant::now();
            let mut tasks = told.used.clone();
            if let Some((then, earlier)) = &before {
                add_fractions(&mut tasks, earlier, now.duration_since(*then));
            }
            let answer =
                Answer::Stats(AllocStats { time: self.clock.now(), total: total(&tasks), tasks: tasks.clone() });
            send(to, &answer).await.map_err(Broken::Gone)?;
            if every.is_none() {
                return Ok(Answer::Done);
            }
            (before, next) = (Some((now, tasks)), now + interval);
        }
    }
}

fn scope(task: Option<String>, all_tasks: bool) -> Result<RestartScope, RequestRefused> {
    match (task, all_tasks) {
        (Some(_), true) => Err(RequestRefused::new(400, "task and allTasks exclude each other: give one")),
        (Some(task), false) => Ok(RestartScope::Task(task)),
        (None, true) => Ok(RestartScope::All),
        (None, false) => Ok(RestartScope::Running),
    }
}

/// When a log is looked at again: at a pace while something comes, and else when its folder has changed.
struct Looks {
    folder: Option<FollowedFolder>,
    quick: u32,
}

impl Looks {
    fn of(folder: Option<FollowedFolder>) -> Self {
        Self { folder, quick: LOOKS_AFTER_NEWS }
    }

    /// Now it is looked.
    fn begin(&mut self) {
        if let Some(folder) = &mut self.folder {
            folder.is_known();
        }
    }

    /// Waits until the next look.
    async fn next(&mut self, is_over: impl Fn() -> bool) {
        let Some(folder) = self.folder.as_mut().filter(|_| self.quick == 0) else {
            self.quick = self.quick.saturating_sub(1);
            return tokio::time::sleep(FOLLOW_EVERY).await;
        };
        for _ in 0..LOOK_ANYWAY_AFTER {
            tokio::select! {
                biased;
                is_there = folder.changed() => {
                    if !is_there {
                        self.folder = None;
                    }
                    self.quick = LOOKS_AFTER_NEWS;
                    return;
                }
                () = tokio::time::sleep(ASK_EVERY) => {}
            }
            if is_over() {
                return;
            }
        }
    }
}

/// Where a log is to be read from.
struct Beginning {
    origin: Origin,
    offset: u64,
    file: Option<u64>,
}

/// Which output of which task.
struct Log {
    uid: String,
    task: String,
    stream: LogStream,
    follow: bool,
}

/// Sends a file from a place to its end; returns where that was.
async fn send_from(files: &Files, log: &Log, place: LogPosition, to: &mut Outgoing) -> Result<LogPosition, Broken> {
    let file = logs::file(&log.task, log.stream, place.index);
    let mut reader = match files.read(&file, Origin::Start, place.offset) {
        Ok(reader) => reader,
        // Rotated away while it was not looked at.
        Err(FileError::Missing(_)) => return Ok(place),
        Err(error) => return Err(error.into()),
    };
    let mut is_announced = false;
    loop {
        let at = reader.at();
        let bytes = reader
            .next(u64::try_from(MAX_DATA_BYTES).unwrap_or(u64::MAX))
            .map_err(|error| FileError::Io(file.clone(), error))?;
        if bytes.is_empty() {
            return Ok(LogPosition { index: place.index, offset: reader.at() });
        }
        if !is_announced {
            is_announced = true;
            send(to, &Answer::At { file: file.clone(), offset: at }).await.map_err(Broken::Gone)?;
        }
        send_data(to, bytes).await.map_err(Broken::Gone)?;
    }
}

/// Sends a file, at most so many bytes of it.
async fn send_file(mut reader: Reader, path: &str, limit: Option<u64>, to: &mut Outgoing) -> Result<Answer, Broken> {
    send(to, &Answer::At { file: path.to_owned(), offset: reader.at() }).await.map_err(Broken::Gone)?;
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 {
        let bytes = reader.next(left).map_err(|error| FileError::Io(path.to_owned(), error))?;
        if bytes.is_empty() {
            break;
        }
        left -= u64::try_from(bytes.len()).unwrap_or(left);
        send_data(to, bytes).await.map_err(Broken::Gone)?;
    }
    Ok(Answer::Done)
}

/// Sends a file and what is added to it, until its name is another one's, or none's.
async fn follow_file(
    files: &Files,
    path: &str,
    (origin, offset): (Origin, u64),
    to: &mut Outgoing,
) -> Result<Answer, Broken> {
    let mut reader = files.read(path, origin, offset)?;
    let mut announced = None;
    loop {
        // Asked before the last look at the file: what was written until then is still sent.
        let is_over = !files.is_still(path, &reader);
        loop {
            let bytes = reader
                .next(u64::try_from(MAX_DATA_BYTES).unwrap_or(u64::MAX))
                .map_err(|error| FileError::Io(path.to_owned(), error))?;
            let at = reader.at().saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            if announced != Some(at) {
                send(to, &Answer::At { file: path.to_owned(), offset: at }).await.map_err(Broken::Gone)?;
            }
            announced = Some(reader.at());
            if bytes.is_empty() {
                break;
            }
            send_data(to, bytes).await.map_err(Broken::Gone)?;
        }
        if is_over {
            return Ok(Answer::Done);
        }
        tokio::time::sleep(FOLLOW_EVERY).await;
    }
}

/// The runs of a task, whose statistics are followed.
struct Run {
    listed: Listed,
    task: String,
    every: Duration,
}

impl AsyncOpen for Run {
    async fn open(&mut self) -> Result<UsageStream, StatsError> {
        let task = self.task.clone();
        match ask(&self.listed, |answer| AllocCommand::Locate { task, answer }).await {
            Ok(Ok(Located { driver, handle })) => driver.stats(&handle, self.every),
            Ok(Err(error)) => Err(StatsError::Recoverable(error.to_string())),
            Err(refused) => Err(StatsError::Recoverable(refused.message)),
        }
    }
}

/// What the tasks have told of what they use.
struct UsageReports {
    /// Those that have told nothing yet.
    missing: BTreeSet<String>,
    used: BTreeMap<String, TaskStats>,
}

impl UsageReports {
    /// Takes in what comes until then, or until all have told for the first time.
    async fn listen(&mut self, samples: &mut Samples, until: Instant, is_first: bool) {
        while !(is_first && self.missing.is_empty()) {
            match tokio::time::timeout_at(until, samples.next()).await {
                Ok(Some((task, used))) => {
                    self.missing.remove(&task);
                    match used {
                        Some(used) => drop(self.used.insert(task, sample(used))),
                        // Only running tasks use something.
                        None => drop(self.used.remove(&task)),
                    }
                }
                Ok(None) if is_first => return,
                Ok(None) => return tokio::time::sleep_until(until).await,
                Err(_) => return,
            }
        }
    }
}

/// Samples of several tasks, by their names.
type Samples = SelectAll<BoxStream<'static, (String, Option<Usage>)>>;

fn sample(used: Usage) -> TaskStats {
    TaskStats {
        cpu_nanos: used.cpu_nanos,
        cpu_fraction: 0.0,
        memory_bytes: used.memory_bytes,
        memory_peak_bytes: used.memory_peak_bytes,
        pids: used.pids,
    }
}

fn add_fractions(tasks: &mut BTreeMap<String, TaskStats>, before: &BTreeMap<String, TaskStats>, elapsed: Duration) {
    for (name, stats) in tasks {
        let Some(earlier) = before.get(name) else { continue };
        let used = Duration::from_nanos(stats.cpu_nanos.saturating_sub(earlier.cpu_nanos));
        stats.cpu_fraction = used.as_secs_f64() / elapsed.as_secs_f64().max(f64::EPSILON);
    }
}

fn total(tasks: &BTreeMap<String, TaskStats>) -> TaskStats {
    tasks.values().fold(TaskStats::default(), |sum, it| TaskStats {
        cpu_nanos: sum.cpu_nanos + it.cpu_nanos,
        cpu_fraction: sum.cpu_fraction + it.cpu_fraction,
        memory_bytes: sum.memory_bytes + it.memory_bytes,
        memory_peak_bytes: sum.memory_peak_bytes + it.memory_peak_bytes,
        pids: sum.pids + it.pids,
    })
}

fn known_task(listed: &Listed, task: &str) -> Result<(), RequestRefused> {
    if listed.tasks.iter().any(|name| name == task) {
        return Ok(());
    }
    Err(RequestRefused::new(400, format!("unknown task {task:?}: the allocation has {}", listed.tasks.join(", "))))
}

fn check_signal(name: &str) -> Result<(), RequestRefused> {
    let short = name.trim_start_matches("SIG");
    if SIGNALS.iter().any(|(known, _)| *known == short) {
        return Ok(());
    }
    Err(RequestRefused::new(400, format!("{name} is no signal: give a name as SIGHUP")))
}

async fn locate(listed: &Listed, task: &str) -> Result<Handle, RequestRefused> {
    let task_name = task.to_owned();
    let found = ask(listed, |answer| AllocCommand::Locate { task: task_name, answer }).await??;
    serde_json::from_value(found.handle.driver)
        .map_err(|_| RequestRefused::new(400, format!("task {task} has no process of its own")))
}

async fn ask<T>(
    listed: &Listed,
    command: impl FnOnce(oneshot::Sender<T>) -> AllocCommand,
) -> Result<T, RequestRefused> {
    let (answer, result) = oneshot::channel();
    let gone = || RequestRefused::new(404, "the allocation has just been given up");
    match listed.commands.try_send(command(answer)) {
        Ok(()) => {}
        Err(mpsc::error::TrySendError::Full(_)) => return Err(CommandError::Busy.into()),
        Err(mpsc::error::TrySendError::Closed(_)) => return Err(gone()),
    }
    result.await.map_err(|_| gone())
}

/// A directory may be large and slow.
async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, RequestRefused> {
    tokio::task::spawn_blocking(work).await.map_err(|error| RequestRefused::new(500, error.to_string()))
}

async fn send(to: &mut Outgoing, answer: &Answer) -> io::Result<()> {
    protocol::write_frame(to, &protocol::message(answer)?).await
}

async fn send_data(to: &mut Outgoing, payload: Vec<u8>) -> io::Result<()> {
    protocol::write_frame(to, &Frame { kind: FrameKind::Data, payload }).await
}

fn listen(state_dir: &Path) -> io::Result<UnixListener> {
    let path = state_dir.join("agent.sock");
    match std::fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let (short, _dir) = drover_supervisor::short_path(state_dir, "agent.sock")?;
    let listener = UnixListener::bind(short)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// The socket's mode keeps others out; this holds even if its folder was opened to them.
fn is_permitted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}
