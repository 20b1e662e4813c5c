//! One command in a running task, and its wires: a terminal or three streams.
//!
//! The command ends with the connection. Its exit is told when it has ended, whatever the client still holds open.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use rustix::process::{Pid, Signal};
use rustix::pty::OpenptFlags;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;
use tokio::sync::mpsc;

use super::wire::{Incoming, Outgoing};
use drover_socket::protocol::{self, Answer, Frame, FrameKind, Input, MAX_DATA_BYTES, TtySize};
use drover_supervisor::protocol::{Credentials, Handle};
use drover_supervisor::{EnterPlan, Word, entrances};

/// Frames that wait for a slow client; then the command waits too.
const OUT_QUEUE: usize = 16;

/// What is to run.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) command: Vec<String>,
    pub(super) tty: bool,
    pub(super) size: Option<TtySize>,
}

/// Why a command did not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExecError {
    #[error("{0}")]
    NotStarted(String),
    #[error("the command cannot be run: {0}")]
    Io(#[from] io::Error),
}

/// Runs the command and carries its streams until it has ended; returns the last answer.
pub(super) async fn run(
    handle: &Handle,
    fallback_dir: &Path,
    order: &Order,
    from: &mut Incoming,
    to: &mut Outgoing,
) -> Result<Answer, ExecError> {
    let plan = plan(handle, fallback_dir, order)?;
    let (mut wire, theirs) = UnixStream::pair()?;
    let theirs = theirs.into_std()?;
    theirs.set_nonblocking(false)?;
    let mut session = Session::start(order, theirs.into())?;
    let body = serde_json::to_vec(&plan).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    wire.write_all(&[&length.to_be_bytes()[..], &body].concat()).await?;
    let pid = match read_word(&mut wire).await? {
        Some(Word::Pid(pid)) => pid,
        Some(Word::Failed { reason, .. }) => return Err(ExecError::NotStarted(reason)),
        Some(Word::Ready) | None => return Err(ExecError::NotStarted("it ended before it began".to_owned())),
    };
    let (words, input) = wire.into_split();
    let exit_code = session.carry(pid, input, from, to).await?;
    match failure(words).await {
        Some(reason) => Err(ExecError::NotStarted(reason)),
        None => Ok(Answer::Exited { exit_code }),
    }
}

/// The helper's words at its end, if it never became the command.
async fn failure(mut words: OwnedReadHalf) -> Option<String> {
    match read_word(&mut words).await {
        Ok(Some(Word::Failed { reason, .. })) => Some(reason),
        Ok(_) | Err(_) => None,
    }
}

async fn read_word<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<Word>> {
    let mut length = [0_u8; 4];
    match from.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(io::Error::other)?;
    if length > MAX_DATA_BYTES {
        return Ok(None);
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).await?;
    Ok(serde_json::from_slice(&body).ok())
}

/// The command as the task would have been started: its environment, directory, user, rights and limit of open files
/// are read from its process.
fn plan(handle: &Handle, fallback_dir: &Path, order: &Order) -> io::Result<EnterPlan> {
    let (command, args) = order.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let environ = std::fs::read(format!("/proc/{}/environ", handle.pid))?;
    let env: Vec<(String, String)> = environ
        .split(|byte| *byte == 0)
        .filter_map(|entry| String::from_utf8_lossy(entry).split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())))
        .collect();
    let status = std::fs::read_to_string(format!("/proc/{}/status", handle.pid))?;
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default().trim().to_owned()
    };
    let number = |text: &str| text.split_whitespace().next().and_then(|text| text.parse().ok());
    let bits = |name: &str| u64::from_str_radix(&field(name), 16).unwrap_or(0);
    let missing = || io::Error::other("the task's user cannot be read");
    Ok(EnterPlan {
        pid: handle.pid,
        start_ticks: handle.start_ticks,
        is_sandboxed: handle.is_sandboxed,
        entrances: handle.cgroup.as_ref().map(entrances).unwrap_or_default(),
        command: command.clone(),
        args: args.to_vec(),
        env: with_terminal(env, order.tty),
        work_dir: if handle.is_sandboxed { "/".to_owned() } else { fallback_dir.to_string_lossy().into_owned() },
        user: Credentials {
            uid: number(&field("Uid")).ok_or_else(missing)?,
            gid: number(&field("Gid")).ok_or_else(missing)?,
            groups: field("Groups").split_whitespace().filter_map(|text| text.parse().ok()).collect(),
        },
        bounding: bits("CapBnd"),
        ambient: bits("CapAmb"),
        open_files: open_files(&std::fs::read_to_string(format!("/proc/{}/limits", handle.pid))?),
        tty: order.tty,
    })
}

/// The soft limit in a process's `/proc/PID/limits`; none: there is none.
fn open_files(limits: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?.parse().ok()
}

fn with_terminal(mut env: Vec<(String, String)>, tty: bool) -> Vec<(String, String)> {
    if tty && !env.iter().any(|(name, _)| name == "TERM") {
        env.push(("TERM".to_owned(), "xterm".to_owned()));
    }
    env
}

/// A command with its output.
struct Session {
    child: Child,
    terminal: Option<Arc<AsyncFd<OwnedFd>>>,
}

impl Session {
    fn start(order: &Order, socket: OwnedFd) -> io::Result<Self> {
        let mut command = tokio::process::Command::new("/proc/self/exe");
        command.arg("enter").env_clear().current_dir("/").stdin(Stdio::from(socket)).kill_on_drop(true);
        let mut terminal = None;
        if order.tty {
            let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
            rustix::pty::grantpt(&master)?;
            rustix::pty::unlockpt(&master)?;
            let name = rustix::pty::ptsname(&master, Vec::new())?;
            let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
            let slave = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty())?;
            resize(&master, order.size.unwrap_or(TtySize { height: 24, width: 80 }))?;
            rustix::io::ioctl_fionbio(&master, true)?;
            command.stdout(Stdio::from(slave.try_clone()?)).stderr(Stdio::from(slave));
            terminal = Some(Arc::new(drover_supervisor::watch_terminal(master)?));
        } else {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        Ok(Self { child: command.spawn()?, terminal })
    }

    /// Carries the streams until the command has ended and its output was sent, or the client has gone.
    async fn carry(
        &mut self,
        pid: i32,
        mut input: OwnedWriteHalf,
        from: &mut Incoming,
        to: &mut Outgoing,
    ) -> io::Result<i32> {
        let (out, mut frames) = mpsc::channel::<Frame>(OUT_QUEUE);
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let terminal = self.terminal.take();
        let for_input = terminal.clone();
        let outputs = async move {
            if let Some(terminal) = terminal {
                copy_terminal(&terminal, &out).await;
            } else {
                let errors = out.clone();
                tokio::join!(copy(stdout, FrameKind::Data, out), copy(stderr, FrameKind::ErrorData, errors));
            }
        };
        let deliver = async {
            while let Some(frame) = frames.recv().await {
                protocol::write_frame(to, &frame).await?;
            }
            io::Result::Ok(())
        };
        let listen = async {
            let result = listen(pid, for_input.as_deref(), &mut input, from).await;
            end(pid);
            result
        };
        let child = &mut self.child;
        let ended = async {
            let status = child.wait().await?;
            io::Result::Ok(exit_code(status))
        };
        let work = async {
            let ((), delivered, code) = tokio::join!(outputs, deliver, ended);
            delivered.and(code)
        };
        tokio::select! {
            biased;
            code = work => code,
            result = listen => Err(result.err().unwrap_or_else(|| io::ErrorKind::ConnectionAborted.into())),
        }
    }
}

fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// Takes what the client sends until it goes away.
async fn listen(
    pid: i32,
    terminal: Option<&AsyncFd<OwnedFd>>,
    input: &mut OwnedWriteHalf,
    from: &mut Incoming,
) -> io::Result<()> {
    while let Some(Frame { kind, payload }) = protocol::read_frame(from).await? {
        match kind {
            FrameKind::Data => match terminal {
                Some(terminal) => write_terminal(terminal, &payload).await?,
                // A command that reads no more input is no error.
                None => drop(input.write_all(&payload).await),
            },
            FrameKind::Message => match serde_json::from_slice(&payload).map_err(io::Error::other)? {
                Input::Close => match terminal {
                    // End of transmission.
                    Some(terminal) => write_terminal(terminal, &[4]).await?,
                    None => drop(input.shutdown().await),
                },
                Input::Resize(size) => {
                    if let Some(terminal) = terminal {
                        resize(terminal.get_ref(), size)?;
                    }
                }
                Input::Signal { number } => {
                    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(number)) {
                        rustix::process::kill_process_group(pid, signal)?;
                    }
                }
            },
            FrameKind::ErrorData => return Err(io::Error::new(io::ErrorKind::InvalidData, "an unexpected frame")),
        }
    }
    Ok(())
}

/// Ends what the client has left.
fn end(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid)
        && let Err(error) = rustix::process::kill_process_group(pid, Signal::KILL)
    {
        tracing::debug!(error = %error, "a command had ended already");
    }
}

async fn copy<R: AsyncRead + Unpin>(from: Option<R>, kind: FrameKind, out: mpsc::Sender<Frame>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; MAX_DATA_BYTES];
    while let Ok(n) = from.read(&mut buffer).await {
        if n == 0 || out.send(Frame { kind, payload: buffer[..n].to_vec() }).await.is_err() {
            return;
        }
    }
}

async fn copy_terminal(terminal: &AsyncFd<OwnedFd>, out: &mpsc::Sender<Frame>) {
    let mut buffer = vec![0; MAX_DATA_BYTES];
    loop {
        let Ok(mut guard) = terminal.readable().await else { return };
        match rustix::io::read(guard.get_inner(), &mut buffer[..]) {
            Ok(n) if n > 0 => {
                if out.send(Frame { kind: FrameKind::Data, payload: buffer[..n].to_vec() }).await.is_err() {
                    return;
                }
            }
            Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
            // A terminal that nobody has open any more answers with an error.
            Ok(_) | Err(_) => return,
        }
    }
}

async fn write_terminal(terminal: &AsyncFd<OwnedFd>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let mut guard = terminal.writable().await?;
        match rustix::io::write(guard.get_inner(), bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn resize(terminal: &OwnedFd, size: TtySize) -> io::Result<()> {
    let size = rustix::termios::Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}
