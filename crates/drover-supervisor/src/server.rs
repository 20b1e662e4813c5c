//! The supervisor's main loop: one socket, any number of connections, signals.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::process::Resource;
use sha2::{Digest, Sha256};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cgroup::Cgroups;
use super::launch;
use super::logs;
use super::protocol::{
    self, Handle, MAX_VERSION, MIN_VERSION, Refusal, RefusalCode, Reply, Request, RequestFrame, ServerFrame,
};
use super::spawn::Ground;
use super::sys;
use super::tasks::Tasks;
use super::upgrade::Handover;

/// Frames that wait for a slow client; when full its connection is closed, and it lists all tasks when it comes again.
const OUT_QUEUE: usize = 1024;
/// Connections at the same time; more are refused.
const MAX_CONNECTIONS: usize = 16;
/// Threads that fork.
const FORKING: usize = 4;
/// The longest grace that a request may ask for.
const MAX_GRACE: Duration = Duration::from_hours(24);

/// What a supervisor is bound to.
struct Place {
    state_dir: PathBuf,
    alloc_dir: PathBuf,
    /// Held for as long as the process lives: it is what makes a supervisor the only one.
    lock: OwnedFd,
    open_files: u64,
}

/// Another program that this process is to become.
pub(super) struct Upgrade {
    binary: PathBuf,
    /// Only a failure is answered.
    failed: oneshot::Sender<Refusal>,
}

/// Runs the supervisor of this state folder until SIGTERM, and then ends every task and unmounts what is mounted below
/// the allocations' folder. `open_files` is the soft limit of open files that tasks get; none: the one that this
/// process got.
///
/// # Errors
/// When another supervisor serves the folder, the socket cannot be made, or what an earlier program has left (`resume`
/// is the number of its descriptor) cannot be taken up.
pub fn run(state_dir: &Path, alloc_dir: &Path, open_files: Option<u64>, resume: Option<i32>) -> anyhow::Result<()> {
    let handed = resume.map(Handover::read).transpose().context("reading what the program before this one has left")?;
    let lock = match &handed {
        Some(handed) => sys::inherited(handed.lock).context("taking over the lock")?,
        None => lock(state_dir)?,
    };
    // The files of tasks get the usual rights, whatever the agent was started with; the old mask is of no interest.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).context("becoming a subreaper")?;
    let raised = raise_open_files();
    let open_files = handed.as_ref().map_or(open_files.unwrap_or(raised), |handed| handed.open_files);
    let place = Place { state_dir: state_dir.to_owned(), alloc_dir: alloc_dir.to_owned(), lock, open_files };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(FORKING)
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, serve(place, handed))?;
    super::unmount_below(alloc_dir).with_context(|| format!("unmounting below {}", alloc_dir.display()))
}

/// Takes the lock of the folder.
fn lock(state_dir: &Path) -> anyhow::Result<OwnedFd> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state_dir)
        .with_context(|| format!("creating {}", state_dir.display()))?;
    let path = state_dir.join("supervisor.lock");
    let file = rustix::fs::open(&path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
        .with_context(|| format!("opening {}", path.display()))?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("another supervisor serves {}", state_dir.display()))?;
    Ok(file)
}

/// Raises the soft limit of open files to the hard one, and returns what it was. For each task the supervisor needs
/// about seven, the agent one.
pub fn raise_open_files() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let before = limit.current.unwrap_or(u64::MAX);
    if let Err(error) =
        rustix::process::setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit })
    {
        tracing::warn!(error = %error, "the limit of open files stays as it is");
    }
    before
}

async fn serve(place: Place, handed: Option<Handover>) -> anyhow::Result<()> {
    let Place { state_dir, open_files, .. } = &place;
    let mut terminated = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupted = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let socket = launch::socket_path(state_dir);
    let is_resumed = handed.is_some();
    let cgroups = prepare_cgroups(state_dir);
    let tasks = Tasks::new(Ground { open_files: *open_files, cgroups: cgroups.clone() });
    let listener = match handed {
        Some(handed) => take_up(handed, &tasks).context("taking up what the program before this one has left")?,
        None => listen(state_dir).with_context(|| format!("listening on {}", socket.display()))?,
    };
    let connections = TaskTracker::new();
    let closing = CancellationToken::new();
    if !is_resumed {
        announce().context("telling the agent that the supervisor is ready")?;
    }
    tracing::info!(pid = std::process::id(), is_resumed, "supervisor is ready");
    let (upgrades, mut wanted) = mpsc::channel::<Upgrade>(1);
    let accept = accept_all(&listener, &tasks, &connections, &closing, &upgrades);
    let upgrade = async {
        while let Some(Upgrade { binary, failed }) = wanted.recv().await {
            let refusal = become_program(&binary, &place, &listener, &tasks);
            // Who has gone does not ask why.
            drop(failed.send(refusal));
        }
    };
    tokio::select! {
        biased;
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
        () = upgrade => {}
        result = tasks.reap_orphans() => result.context("reaping what tasks left behind")?,
        () = tasks.sweep() => {}
        () = accept => {}
    }
    closing.cancel();
    connections.close();
    connections.wait().await;
    tracing::info!("supervisor ends its tasks");
    tokio::select! {
        biased;
        () = tasks.power_off() => {}
        () = tasks.sweep() => {}
    }
    if let Ok(cgroups) = cgroups
        && let Err(error) = cgroups.leave(std::process::id())
    {
        tracing::warn!(error = %error, "control groups are left");
    }
    std::fs::remove_file(&socket).with_context(|| format!("removing {}", socket.display()))
}

/// The group of a state folder's tasks: two agents on one machine have one each.
pub fn cgroup_name(state_dir: &Path) -> String {
    let digest = Sha256::digest(state_dir.as_os_str().as_encoded_bytes());
    digest.iter().take(4).fold("drover.".to_owned(), |name, byte| name + &format!("{byte:02x}"))
}

/// Makes the place of the tasks' control groups, and moves there out of the group of the agent, whose end must not be
/// ours.
fn prepare_cgroups(state_dir: &Path) -> Result<Cgroups, String> {
    let prepared = Cgroups::prepare(&cgroup_name(state_dir)).and_then(|cgroups| {
        cgroups.take_in(std::process::id())?;
        Ok(cgroups)
    });
    prepared.map_err(|error| {
        tracing::warn!(error = %error, "there are no control groups: tasks have no limits, driver exec does not run");
        error.to_string()
    })
}

fn listen(state_dir: &Path) -> io::Result<UnixListener> {
    let path = launch::socket_path(state_dir);
    match std::fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let (short, _dir) = launch::short_socket_path(state_dir)?;
    let listener = UnixListener::bind(short)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// The launching agent reads one line from our standard output.
fn announce() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "ready {}", std::process::id())?;
    out.flush()
}

/// Takes up tasks and socket of the program before this one.
fn take_up(handed: Handover, tasks: &Rc<Tasks>) -> io::Result<UnixListener> {
    let listener = std::os::unix::net::UnixListener::from(sys::inherited(handed.listener)?);
    for task in handed.tasks {
        tasks.resume(task)?;
    }
    UnixListener::from_std(listener)
}

/// Hands everything over to another program. Returns only when that failed.
fn become_program(binary: &Path, place: &Place, listener: &UnixListener, tasks: &Rc<Tasks>) -> Refusal {
    if tasks.is_preparing() {
        return Refusal::new(RefusalCode::StartFailed, "a task is being started: try again");
    }
    tracing::info!(binary = %binary.display(), "supervisor becomes another program");
    let error =
        match tasks.hand_over().and_then(|handed| Handover::new(&place.lock, listener, place.open_files, handed)) {
            Ok(handover) => handover.execute(binary, &place.state_dir, &place.alloc_dir),
            Err(error) => error,
        };
    tasks.take_back();
    for fd in [place.lock.as_fd(), listener.as_fd()] {
        if let Err(error) = rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC) {
            tracing::warn!(error = %error, "a descriptor may leak into tasks");
        }
    }
    tracing::error!(error = %error, binary = %binary.display(), "the upgrade failed: the old program goes on");
    Refusal::new(RefusalCode::System, format!("{} cannot be executed: {error}", binary.display()))
}

async fn accept_all(
    listener: &UnixListener,
    tasks: &Rc<Tasks>,
    connections: &TaskTracker,
    closing: &CancellationToken,
    upgrades: &mpsc::Sender<Upgrade>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) if is_permitted(&stream) && connections.len() < MAX_CONNECTIONS => {
                let tasks = Rc::clone(tasks);
                let (closing, upgrades) = (closing.child_token(), upgrades.clone());
                connections.spawn_local(async move {
                    if let Err(error) = converse(stream, &tasks, &closing, &upgrades).await {
                        tracing::debug!(error = %error, "connection ended");
                    }
                });
            }
            Ok(_) => tracing::warn!("a connection was refused: another user's, or one too many"),
            Err(error) => {
                tracing::error!(error = %error, "a connection cannot be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The socket's mode keeps others out; this holds even if its folder was opened to them.
fn is_permitted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

/// Answers one client until it goes.
pub(super) async fn converse(
    stream: UnixStream,
    tasks: &Rc<Tasks>,
    closing: &CancellationToken,
    upgrades: &mpsc::Sender<Upgrade>,
) -> io::Result<()> {
    let (mut from, mut to) = stream.into_split();
    let (out, mut queue) = mpsc::channel::<ServerFrame>(OUT_QUEUE);
    let write = async move {
        while let Some(frame) = queue.recv().await {
            protocol::write_frame(&mut to, &frame).await?;
        }
        Ok(())
    };
    // A start takes a moment; the other requests do not wait for it.
    let starts = TaskTracker::new();
    let read = async {
        let mut greeted = false;
        while let Some(bytes) = protocol::read_bytes(&mut from).await? {
            let frame: RequestFrame = match serde_json::from_slice(&bytes) {
                Ok(frame) => frame,
                Err(error) => {
                    out.send(unsupported(&bytes, &error)?).await.map_err(io::Error::other)?;
                    continue;
                }
            };
            match frame.request {
                // An agent that comes after another one's death has to see what that one has begun.
                Request::Subscribe => tasks.settled().await,
                Request::Upgrade { binary } if greeted => {
                    let (failed, refusal) = oneshot::channel();
                    let binary = PathBuf::from(binary);
                    upgrades.send(Upgrade { binary, failed }).await.map_err(io::Error::other)?;
                    let result = Err(refusal.await.map_err(io::Error::other)?);
                    out.send(ServerFrame::Reply { seq: frame.seq, result }).await.map_err(io::Error::other)?;
                    continue;
                }
                _ => {}
            }
            if let Some(reply) = answer(frame, tasks, &out, &mut greeted, &starts) {
                out.send(reply).await.map_err(io::Error::other)?;
            }
        }
        Ok(())
    };
    tokio::select! {
        biased;
        () = closing.cancelled() => Ok(()),
        () = out.closed() => Ok(()),
        result = write => result,
        result = read => result,
    }
}

fn answer(
    frame: RequestFrame,
    tasks: &Rc<Tasks>,
    out: &mpsc::Sender<ServerFrame>,
    greeted: &mut bool,
    starts: &TaskTracker,
) -> Option<ServerFrame> {
    let (seq, request) = (frame.seq, frame.request);
    let request = match request {
        Request::Start(spec) if *greeted => {
            // A stop that comes right behind has to find it.
            if let Err(refusal) = tasks.begin(&spec.id) {
                return Some(ServerFrame::Reply { seq, result: Err(refusal) });
            }
            let (tasks, out) = (Rc::clone(tasks), out.clone());
            starts.spawn_local(async move {
                let result = tasks.start(&spec).await.map(|handle| Reply::Started(Box::new(handle)));
                // Without a listener the agent is gone; the next one finds the task in the list.
                drop(out.send(ServerFrame::Reply { seq, result }).await);
            });
            return None;
        }
        Request::Adopt(handle) if *greeted => match tasks.adopt(&handle) {
            // Its exit code is gone with it, and what it has written is not.
            Err(refusal) if refusal.code == RefusalCode::Gone => {
                let out = out.clone();
                starts.spawn_local(async move {
                    collect_left(&handle).await;
                    // Without a listener the agent is gone; the next one asks again.
                    drop(out.send(ServerFrame::Reply { seq, result: Err(refusal) }).await);
                });
                return None;
            }
            result => {
                let result = result.map(|handle| Reply::Started(Box::new(handle)));
                return Some(ServerFrame::Reply { seq, result });
            }
        },
        request => request,
    };
    let is_hello = matches!(request, Request::Hello { .. });
    let result = if is_hello || *greeted {
        carry_out(request, tasks, out)
    } else {
        Err(Refusal::new(RefusalCode::Version, "the first request must be hello"))
    };
    *greeted |= is_hello && result.is_ok();
    Some(ServerFrame::Reply { seq, result })
}

/// Takes what a task has written that ended while no supervisor lived.
async fn collect_left(handle: &Handle) {
    let Some(logs) = &handle.logs else { return };
    if let Err(error) = logs::collect_left(logs, handle.writers()).await {
        tracing::warn!(error = %error, task = handle.id, "output of a task that has ended is lost");
    }
}

/// A request of a newer agent is answered, so that it can go another way.
fn unsupported(bytes: &[u8], error: &serde_json::Error) -> io::Result<ServerFrame> {
    #[derive(serde::Deserialize)]
    struct Numbered {
        seq: u64,
    }
    let Numbered { seq } = serde_json::from_slice(bytes).map_err(io::Error::other)?;
    let refusal = Refusal::new(RefusalCode::Unsupported, format!("this supervisor does not know the request: {error}"));
    Ok(ServerFrame::Reply { seq, result: Err(refusal) })
}

fn carry_out(request: Request, tasks: &Rc<Tasks>, out: &mpsc::Sender<ServerFrame>) -> Result<Reply, Refusal> {
    match request {
        Request::Hello { min_version, max_version, build: _ } => hello(min_version, max_version),
        Request::Cap(slice) => tasks.cap(&slice).map(|()| Reply::Done),
        Request::Subscribe => Ok(Reply::Tasks(tasks.subscribe(out.clone()))),
        Request::Stop { id, signal, timeout_ms } => {
            tasks.stop(&id, signal, Duration::from_millis(timeout_ms).min(MAX_GRACE)).map(|()| Reply::Done)
        }
        Request::Signal { id, signal } => tasks.signal(&id, signal).map(|()| Reply::Done),
        Request::Acknowledge { id } => tasks.acknowledge(&id).map(|()| Reply::Done),
        Request::Start(_) | Request::Adopt(_) | Request::Upgrade { .. } => {
            Err(Refusal::new(RefusalCode::Unsupported, "the first request must be hello"))
        }
    }
}

fn hello(min: u32, max: u32) -> Result<Reply, Refusal> {
    let version = max.min(MAX_VERSION);
    if version < min.max(MIN_VERSION) {
        let message =
            format!("the agent speaks versions {min} to {max}, the supervisor {MIN_VERSION} to {MAX_VERSION}");
        return Err(Refusal::new(RefusalCode::Version, message));
    }
    let pid = i32::try_from(std::process::id()).unwrap_or_default();
    Ok(Reply::Hello { version, build: launch::BUILD.to_owned(), pid })
}
