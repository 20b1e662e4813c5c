//! Scripts of checks: a command in a running task, of which the exit code and the begin of the output count.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use drover_core::service::{CheckAnswer, MAX_BODY_BYTES, script_answer};
use drover_supervisor::protocol::Handle;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::enter::{self, EnterError};

/// How long is still read after the end of the command: what it has left behind may hold its output open.
const REST: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const CHUNK: usize = 4096;
/// How the helper ends when it never became the command; a command may end so too.
const NOT_STARTED: i32 = 1;

/// Runs the command until it ends. Dropped before, it ends the command.
///
/// # Errors
/// Why it did not run.
pub(super) async fn run(handle: &Handle, fallback_dir: &Path, command: &[String]) -> Result<CheckAnswer, EnterError> {
    let plan = enter::plan(handle, fallback_dir, command, false)?;
    let (wire, theirs) = enter::wire()?;
    let mut helper = enter::helper(theirs);
    let mut child = helper.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // It holds the command's end of the wire.
    drop(helper);
    let (pid, words, input) = enter::begin(wire, &plan).await?;
    let mut group = Group { pid, has_ended: false };
    // There is nothing to read for it.
    drop(input);
    let kept = Mutex::new(Vec::new());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let reading = async { tokio::join!(keep(stdout, &kept), keep(stderr, &kept)) };
    tokio::pin!(reading);
    let status = tokio::select! {
        biased;
        _ = &mut reading => child.wait().await,
        status = child.wait() => {
            drop(tokio::time::timeout(REST, reading.as_mut()).await);
            status
        }
    };
    group.has_ended = true;
    let code = enter::exit_code(status?);
    if code == NOT_STARTED
        && let Ok(Some(reason)) = tokio::time::timeout(REST, enter::failure(words)).await
    {
        return Err(EnterError::NotStarted(reason));
    }
    let output = kept.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(script_answer(code, &output))
}

/// The processes of a command. Those of one that has not ended end with this.
struct Group {
    pid: i32,
    has_ended: bool,
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.has_ended {
            enter::end(self.pid);
        }
    }
}

/// Reads all of a stream, so that the command can write on, and keeps as much as a check does.
async fn keep<R: AsyncRead + Unpin>(from: Option<R>, kept: &Mutex<Vec<u8>>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; CHUNK];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_BODY_BYTES - kept.len();
        kept.extend_from_slice(&buffer[..n.min(room)]);
    }
}
