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
use tokio::net::unix::OwnedWriteHalf;
use tokio::process::Child;
use tokio::sync::mpsc;

use super::wire::{Incoming, Outgoing};
use crate::enter::{self, EnterError};
use drover_socket::protocol::{self, Answer, Frame, FrameKind, Input, MAX_DATA_BYTES, TtySize};
use drover_supervisor::protocol::Handle;

/// Frames that wait for a slow client; then the command waits too.
const OUT_QUEUE: usize = 16;

/// What is to run.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) command: Vec<String>,
    pub(super) tty: bool,
    pub(super) size: Option<TtySize>,
}

/// Runs the command and carries its streams until it has ended; returns the last answer.
pub(super) async fn run(
    handle: &Handle,
    fallback_dir: &Path,
    order: &Order,
    from: &mut Incoming,
    to: &mut Outgoing,
) -> Result<Answer, EnterError> {
    let plan = enter::plan(handle, fallback_dir, &order.command, order.tty)?;
    let (wire, theirs) = enter::wire()?;
    let mut session = Session::start(order, theirs)?;
    let (pid, words, input) = enter::begin(wire, &plan).await?;
    let exit_code = session.carry(pid, input, from, to).await?;
    match enter::failure(words).await {
        Some(reason) => Err(EnterError::NotStarted(reason)),
        None => Ok(Answer::Exited { exit_code }),
    }
}

/// A command with its output.
struct Session {
    child: Child,
    terminal: Option<Arc<AsyncFd<OwnedFd>>>,
}

impl Session {
    fn start(order: &Order, socket: OwnedFd) -> io::Result<Self> {
        let mut command = enter::helper(socket);
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
            enter::end(pid);
            result
        };
        let child = &mut self.child;
        let ended = async {
            let status = child.wait().await?;
            io::Result::Ok(enter::exit_code(status))
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
