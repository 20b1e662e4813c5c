//! One run of a CNI plugin.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;

/// How long a plugin may take: one may ask a server for an address.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest answer.
const MAX_ANSWER: u64 = 1024 * 1024;
/// The search path of plugins, which may run other programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a plugin is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Make the network.
    Add,
    /// Take it back.
    Del,
}

impl Verb {
    /// Its word in the protocol.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
        }
    }
}

/// Runs a plugin. Its answer is empty where it has none.
///
/// # Errors
/// Its own words, or why it was not run.
pub(crate) fn run(program: &Path, env: &[(&str, String)], config: &Value) -> Result<Value, String> {
    let input = given(config).map_err(|error| format!("its configuration cannot be written: {error}"))?;
    let mut child = Command::new(program)
        .env_clear()
        .env("PATH", PATH)
        .envs(env.iter().map(|(name, value)| (*name, value.as_str())))
        .current_dir("/")
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
    let output = child.stdout.take();
    let answer = std::thread::scope(|scope| {
        let answer = scope.spawn(move || {
            let mut bytes = Vec::new();
            let read = output.map_or(Ok(0), |output| output.take(MAX_ANSWER).read_to_end(&mut bytes));
            read.map(|_| bytes)
        });
        (end_of(&mut child), answer.join())
    });
    let (ended, bytes) = answer;
    let status = ended.map_err(|error| error.to_string())?;
    let bytes = bytes.map_err(|_| "its answer cannot be read".to_owned())?.map_err(|error| error.to_string())?;
    let answer: Value = if bytes.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&bytes).map_err(|error| format!("it has answered no JSON: {error}"))?
    };
    if status.success() {
        return Ok(answer);
    }
    let word = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default();
    let (message, details) = (word("msg"), word("details"));
    Err(match (message.is_empty(), details.is_empty()) {
        (true, _) => format!("it has ended with {status} and no word"),
        (false, true) => message.to_owned(),
        (false, false) => format!("{message}: {details}"),
    })
}

/// The configuration as a file in memory: a plugin that does not read it breaks no pipe, and holds no writer back.
fn given(config: &Value) -> io::Result<File> {
    let mut file = File::from(memfd_create("configuration", MemfdFlags::CLOEXEC)?);
    file.write_all(config.to_string().as_bytes())?;
    file.rewind()?;
    Ok(file)
}

/// Waits for the end of the plugin, and ends it when it takes too long.
fn end_of(child: &mut Child) -> io::Result<std::process::ExitStatus> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let patience = Timespec { tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
    let mut ready = [PollFd::new(&pidfd, PollFlags::IN)];
    if poll(&mut ready, Some(&patience))? == 0 {
        child.kill()?;
        child.wait()?;
        return Err(io::Error::other(format!("it took longer than {} s and was ended", PATIENCE.as_secs())));
    }
    child.wait()
}
