//! A command in a running task, as the task would have been started: its environment, directory, user, rights and
//! limits are read from its process. `droverd enter`, a process of its own, becomes the command or waits for it.
//!
//! Must never know: who asked for the command, and where its output goes.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use drover_supervisor::protocol::{Credentials, Handle};
use drover_supervisor::{EnterPlan, Word, entrances};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Command;

/// The longest word of the helper, in bytes.
const MAX_WORD_BYTES: usize = 1 << 16;

/// Why a command did not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnterError {
    #[error("{0}")]
    NotStarted(String),
    #[error("the command cannot be run: {0}")]
    Io(#[from] io::Error),
}

/// The way to the helper: ours, and its standard input.
pub(crate) fn wire() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = theirs.into_std()?;
    theirs.set_nonblocking(false)?;
    Ok((ours, theirs.into()))
}

/// The helper, whose output is not decided yet. It is killed when it is dropped.
pub(crate) fn helper(input: OwnedFd) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("enter").env_clear().current_dir("/").stdin(Stdio::from(input)).kill_on_drop(true);
    command
}

/// Tells the helper what to run: the process that the command is, what the helper tells of it later, and its input.
pub(crate) async fn begin(
    mut wire: UnixStream,
    plan: &EnterPlan,
) -> Result<(i32, OwnedReadHalf, OwnedWriteHalf), EnterError> {
    let body = serde_json::to_vec(plan).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    wire.write_all(&[&length.to_be_bytes()[..], &body].concat()).await?;
    let pid = match read_word(&mut wire).await? {
        Some(Word::Pid(pid)) => pid,
        Some(Word::Failed { reason, .. }) => return Err(EnterError::NotStarted(reason)),
        Some(Word::Ready) | None => return Err(EnterError::NotStarted("it ended before it began".to_owned())),
    };
    let (words, input) = wire.into_split();
    Ok((pid, words, input))
}

/// The helper's words at its end, if it never became the command.
pub(crate) async fn failure(mut words: OwnedReadHalf) -> Option<String> {
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
    if length > MAX_WORD_BYTES {
        return Ok(None);
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).await?;
    Ok(serde_json::from_slice(&body).ok())
}

/// The command as the task would have been started: its environment, directory, user, rights and limit of open files
/// are read from its process.
pub(crate) fn plan(handle: &Handle, fallback_dir: &Path, command: &[String], tty: bool) -> io::Result<EnterPlan> {
    let (command, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
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
        env: with_terminal(env, tty),
        work_dir: if handle.is_sandboxed { "/".to_owned() } else { fallback_dir.to_string_lossy().into_owned() },
        user: Credentials {
            uid: number(&field("Uid")).ok_or_else(missing)?,
            gid: number(&field("Gid")).ok_or_else(missing)?,
            groups: field("Groups").split_whitespace().filter_map(|text| text.parse().ok()).collect(),
        },
        bounding: bits("CapBnd"),
        ambient: bits("CapAmb"),
        open_files: open_files(&std::fs::read_to_string(format!("/proc/{}/limits", handle.pid))?),
        tty,
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

/// The code of an end; that of a signal is 128 and the signal.
pub(crate) fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// Ends what is left of a command.
pub(crate) fn end(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid)
        && let Err(error) = rustix::process::kill_process_group(pid, Signal::KILL)
    {
        tracing::debug!(error = %error, "a command had ended already");
    }
}
