//! What the supervisor and the sandbox tell each other.

use std::fs::File;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use crate::protocol::{Credentials, MAX_FRAME_BYTES, SandboxSpec};

/// What the sandbox is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Plan {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) work_dir: String,
    pub(crate) user: Credentials,
    pub(crate) sandbox: SandboxSpec,
}

/// What the sandbox tells.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Word {
    /// The task's process, as the supervisor sees it.
    Pid(i32),
    /// It is ready to begin.
    Ready,
    /// It cannot begin.
    Failed {
        /// Why.
        reason: String,
        /// The definition is wrong; another try does not help.
        is_invalid: bool,
    },
}

/// The answer to [`Word::Ready`].
pub(crate) const GO: u8 = b'g';

/// Why a task cannot begin.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: String,
    pub(super) is_invalid: bool,
}

impl Failure {
    pub(super) fn because(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { reason: format!("{what}: {error}"), is_invalid: false }
    }
}

/// Reads one frame: its length in four bytes, then so many.
pub(super) fn read_frame(from: &mut File) -> io::Result<Vec<u8>> {
    let mut length = [0_u8; 4];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(io::Error::other)?;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too large"));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Tells the supervisor.
pub(super) fn say(to: &mut File, word: &Word) -> io::Result<()> {
    let body = serde_json::to_vec(word).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    to.write_all(&[&length.to_be_bytes()[..], &body].concat())
}
