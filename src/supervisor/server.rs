//! The supervisor's main loop: one socket, any number of connections, signals.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::process::Resource;
use sha2::{Digest, Sha256};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cgroup::Cgroups;
use super::launch;
use super::protocol::{
    self, MAX_VERSION, MIN_VERSION, Refusal, RefusalCode, Reply, Request, RequestFrame, ServerFrame,
};
use super::spawn::Ground;
use super::tasks::Tasks;

/// Frames that wait for a slow client; when full its connection is closed, and it lists all tasks when it comes again.
const OUT_QUEUE: usize = 1024;
/// Connections at the same time; more are refused.
const MAX_CONNECTIONS: usize = 16;
/// The longest grace that a request may ask for.
const MAX_GRACE: Duration = Duration::from_hours(24);

/// Runs the supervisor of this state folder until SIGTERM, and then ends every task and unmounts what is mounted below the
/// allocations' folder.
///
/// # Errors
/// When another supervisor serves the folder, or the socket cannot be made.
pub fn run(state_dir: &Path, alloc_dir: &Path) -> anyhow::Result<()> {
    let _lock = lock(state_dir)?;
    // The files of tasks get the usual rights, whatever the agent was started with; the old mask is of no interest.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).context("becoming a subreaper")?;
    let open_files = raise_open_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, serve(state_dir, open_files))?;
    super::unmount_below(alloc_dir).with_context(|| format!("unmounting below {}", alloc_dir.display()))
}

/// Holds the lock for as long as the process lives: it is what makes a supervisor the only one.
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

/// Raises the soft limit of open files, for each task needs about seven, and returns what it was.
fn raise_open_files() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let before = limit.current.unwrap_or(u64::MAX);
    if let Err(error) =
        rustix::process::setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit })
    {
        tracing::warn!(error = %error, "the limit of open files stays as it is");
    }
    before
}

async fn serve(state_dir: &Path, open_files: u64) -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupted = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let socket = launch::socket_path(state_dir);
    let listener = listen(state_dir).with_context(|| format!("listening on {}", socket.display()))?;
    let cgroups = prepare_cgroups(state_dir);
    let tasks = Tasks::new(Ground { open_files, cgroups: cgroups.clone() });
    let connections = TaskTracker::new();
    let closing = CancellationToken::new();
    announce().context("telling the agent that the supervisor is ready")?;
    tracing::info!(pid = std::process::id(), "supervisor is ready");
    let accept = accept_all(listener, &tasks, &connections, &closing);
    tokio::select! {
        biased;
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
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

/// Makes the place of the tasks' control groups, and moves there out of the group of the agent, whose end must not be ours.
fn prepare_cgroups(state_dir: &Path) -> Result<Cgroups, String> {
    let digest = Sha256::digest(state_dir.as_os_str().as_encoded_bytes());
    let tag = digest.iter().take(4).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    let prepared = Cgroups::prepare(&format!("drover.{tag}")).and_then(|cgroups| {
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

async fn accept_all(listener: UnixListener, tasks: &Rc<Tasks>, connections: &TaskTracker, closing: &CancellationToken) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) if is_permitted(&stream) && connections.len() < MAX_CONNECTIONS => {
                let tasks = Rc::clone(tasks);
                let closing = closing.child_token();
                connections.spawn_local(async move {
                    if let Err(error) = converse(stream, &tasks, &closing).await {
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

async fn converse(stream: UnixStream, tasks: &Rc<Tasks>, closing: &CancellationToken) -> io::Result<()> {
    let (mut from, mut to) = stream.into_split();
    let (out, mut queue) = mpsc::channel::<ServerFrame>(OUT_QUEUE);
    let write = async move {
        while let Some(frame) = queue.recv().await {
            protocol::write_frame(&mut to, &frame).await?;
        }
        Ok(())
    };
    // Sandboxes take a moment to be ready; the other requests do not wait for them.
    let starts = TaskTracker::new();
    let read = async {
        let mut greeted = false;
        while let Some(bytes) = protocol::read_bytes(&mut from).await? {
            if let Some(reply) = answer(&bytes, tasks, &out, &mut greeted, &starts)? {
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
    bytes: &[u8],
    tasks: &Rc<Tasks>,
    out: &mpsc::Sender<ServerFrame>,
    greeted: &mut bool,
    starts: &TaskTracker,
) -> io::Result<Option<ServerFrame>> {
    let frame: RequestFrame = match serde_json::from_slice(bytes) {
        Ok(frame) => frame,
        Err(error) => return unsupported(bytes, &error).map(Some),
    };
    if let Request::Start(spec) = &frame.request
        && spec.sandbox.is_some()
        && *greeted
    {
        let (tasks, out, spec, seq) = (Rc::clone(tasks), out.clone(), spec.clone(), frame.seq);
        starts.spawn_local(async move {
            let result = tasks.start_sandboxed(&spec).await.map(|handle| Reply::Started(Box::new(handle)));
            // Without a listener the agent is gone; the next one finds the task in the list.
            drop(out.send(ServerFrame::Reply { seq, result }).await);
        });
        return Ok(None);
    }
    let is_hello = matches!(frame.request, Request::Hello { .. });
    let result = if is_hello || *greeted {
        carry_out(frame.request, tasks, out)
    } else {
        Err(Refusal::new(RefusalCode::Version, "the first request must be hello"))
    };
    *greeted |= is_hello && result.is_ok();
    Ok(Some(ServerFrame::Reply { seq: frame.seq, result }))
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
        Request::Subscribe => Ok(Reply::Tasks(tasks.subscribe(out.clone()))),
        Request::Start(spec) => tasks.start(&spec).map(|handle| Reply::Started(Box::new(handle))),
        Request::Adopt(handle) => tasks.adopt(&handle).map(|handle| Reply::Started(Box::new(handle))),
        Request::Stop { id, signal, timeout_ms } => {
            tasks.stop(&id, signal, Duration::from_millis(timeout_ms).min(MAX_GRACE)).map(|()| Reply::Done)
        }
        Request::Signal { id, signal } => tasks.signal(&id, signal).map(|()| Reply::Done),
        Request::Acknowledge { id } => tasks.acknowledge(&id).map(|()| Reply::Done),
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
