//! Asking a helper process of the agent's own binary: one order and one answer, a line of JSON each.

use std::io;
use std::process::Stdio;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

/// A helper of this name that has not begun. It is killed when it is dropped. Whatever runs of the agent's binary, the
/// path leads to it.
pub(crate) fn command(name: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(name).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    command
}

/// Gives an order to a helper, and reads its answer of at most `most` bytes.
///
/// # Errors
/// When the helper broke off, or its answer is too long or none.
pub(crate) async fn ask<O: Serialize + Sync, A: DeserializeOwned>(
    child: &mut Child,
    order: &O,
    most: u64,
) -> io::Result<A> {
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let mut line = serde_json::to_vec(order)?;
    line.push(b'\n');
    input.write_all(&line).await?;
    let mut answer = Vec::new();
    // The input stays open: when it ends, the helper takes it that the agent has gone.
    BufReader::new(output.take(most)).read_until(b'\n', &mut answer).await?;
    drop(input);
    Ok(serde_json::from_slice(&answer)?)
}
