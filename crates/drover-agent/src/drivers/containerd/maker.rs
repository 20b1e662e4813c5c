//! The first process of a container is made by a process of its own, `droverd make-container`, which outlives the
//! agent: containerd breaks off what its caller has left, and the one that looks after the container then waits for a
//! reader of its output that never comes.
//!
//! The order is a file, which the helper is given over its standard input, a socket. It is locked until the helper has
//! ended, so the next agent knows whether a start is still under way.
//!
//! Moving a process into another control group takes as long as the kernel needs until no processor looks at groups any
//! more, often 10 ms, unless another move has just waited for that. So a helper begins before there is an order, moves
//! once more when it hears that one comes, and again beside its request: what containerd moves meanwhile then need not
//! wait.

use std::fs::{DirBuilder, File};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use drover_containerd::{CallError, Containerd, NewTask};
use drover_supervisor::protocol::LogSpec;
use drover_supervisor::{hold_fifos, join_shims};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{ChildStdout, Command};
use tokio::sync::Semaphore;

/// So often a container is made again whose shim was ending, and the pause before.
const SHIM_TRIES: u32 = 20;
const SHIM_PAUSE: Duration = Duration::from_millis(50);
/// So many containers are made at once for each processor. A runtime that is asked for one beside many others finds the
/// allocation's shim too slow to answer, and starts a second one.
const AT_ONCE: usize = 2;
/// One that takes longer waits for something, as a volume that does not answer, and must not keep others waiting.
const LONG: Duration = Duration::from_secs(2);
/// How often a lock is tried.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// What the helper is told.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MakeOrder {
    address: PathBuf,
    namespace: String,
    /// Whose FIFOs must have a reader until the runtime has opened them.
    logs: Option<LogSpec>,
    task: NewTask,
}

/// The first processes of containers that are being made, each with its order in this folder.
#[derive(Debug)]
pub(super) struct Maker {
    address: PathBuf,
    namespace: &'static str,
    cgroup_base: String,
    orders: PathBuf,
    /// The next start's, once there was one.
    next: Mutex<Option<Helper>>,
    at_once: Semaphore,
}

impl Maker {
    pub(super) fn new(address: &Path, namespace: &'static str, cgroup_base: &str, orders: PathBuf) -> Self {
        let (address, cgroup_base) = (address.to_owned(), cgroup_base.to_owned());
        let at_once = AT_ONCE * std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { address, namespace, cgroup_base, orders, next: Mutex::new(None), at_once: Semaphore::new(at_once) }
    }

    /// Makes the first process, which waits for its start, and returns its pid. Goes on when it is dropped.
    ///
    /// # Errors
    /// What containerd or the helper says.
    pub(super) async fn make(&self, task: NewTask, logs: Option<LogSpec>) -> Result<u32, String> {
        let of_helper = |error: io::Error| format!("droverd make-container: {error}");
        let path = self.orders.join(&task.id);
        let order = self.write(&path, task, logs).map_err(of_helper)?;
        let turn = self.at_once.acquire().await;
        let answer = self.give(&order).map_err(of_helper)?;
        // Its lock is the helper's now.
        drop(order);
        let (mut line, mut answer) = (Vec::new(), BufReader::new(answer));
        let mut answered = std::pin::pin!(answer.read_until(b'\n', &mut line));
        let in_time = tokio::time::timeout(LONG, &mut answered).await;
        drop(turn);
        match in_time {
            Ok(answered) => answered,
            Err(_) => answered.await,
        }
        .map_err(of_helper)?;
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::debug!(error = %error, order = %path.display(), "the order of a container is taken away later");
        }
        serde_json::from_slice(&line).unwrap_or_else(|_| Err("droverd make-container ended early".to_owned()))
    }

    /// Writes an order down, and locks it.
    fn write(&self, path: &Path, task: NewTask, logs: Option<LogSpec>) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.orders)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.set_len(0)?;
        let order = MakeOrder { address: self.address.clone(), namespace: self.namespace.to_owned(), logs, task };
        serde_json::to_writer(&file, &order)?;
        file.rewind()?;
        Ok(file)
    }

    /// Gives an order to the helper that waits, or to a new one; its answer comes as a line.
    fn give(&self, order: &File) -> io::Result<ChildStdout> {
        let waiting = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Ok(answer)) = waiting.map(|helper| helper.take(order)) {
            return Ok(answer);
        }
        Helper::begin(&self.cgroup_base)?.take(order)
    }

    /// Says that a start is about to come. Without a helper that waits there is nothing to prepare.
    pub(super) fn announce(&self) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = next.as_mut().map(Helper::announce) {
            tracing::debug!(error = %error, "the next container's helper hears of its order with it");
        }
    }

    /// Has a helper wait for the next start.
    pub(super) fn begin_next(&self) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.is_none() {
            match Helper::begin(&self.cgroup_base) {
                Ok(helper) => *next = Some(helper),
                Err(error) => tracing::debug!(error = %error, "the next container's helper begins with its start"),
            }
        }
    }

    /// Waits until no helper makes the container, whichever agent has started it.
    pub(super) async fn settled(&self, id: &str) {
        let path = self.orders.join(id);
        loop {
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) => {
                    if error.kind() != io::ErrorKind::NotFound {
                        tracing::warn!(error = %error, container = id, "whether it is being made is not known");
                    }
                    return;
                }
            };
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
                if let Err(error) = std::fs::remove_file(&path) {
                    tracing::warn!(error = %error, container = id, "the order of a container stays");
                }
                return;
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
    }
}

/// A helper without an order. It ends when this is dropped, or with the agent.
#[derive(Debug)]
struct Helper {
    orders: UnixStream,
    answer: ChildStdout,
    is_announced: bool,
}

impl Helper {
    fn begin(cgroup_base: &str) -> io::Result<Self> {
        let (orders, input) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.args(["make-container", cgroup_base]).env_clear().current_dir("/");
        let mut helper = command.stdin(OwnedFd::from(input)).stdout(Stdio::piped()).spawn()?;
        let answer = helper.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { orders, answer, is_announced: false })
    }

    /// Has it move. It does that once, however many starts are announced: only one of them is its own.
    fn announce(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_announced, true) {
            rustix::net::send(&self.orders, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        }
        Ok(())
    }

    fn take(self, order: &File) -> io::Result<ChildStdout> {
        let files = [order.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        with.push(SendAncillaryMessage::ScmRights(&files));
        rustix::net::sendmsg(&self.orders, &[IoSlice::new(&[0])], &mut with, SendFlags::NOSIGNAL)?;
        Ok(self.answer)
    }
}

/// The helper: leaves the agent's control group, waits for its order, and answers with a line on its standard output.
/// It ends without a word when no order comes.
///
/// # Errors
/// When the order cannot be read, or there is no agent any more to answer to.
pub fn make_container(cgroup_base: &str) -> anyhow::Result<()> {
    if let Err(error) = join_shims(cgroup_base, std::process::id()) {
        tracing::debug!(error = %error, "the helper stays in the agent's control group");
    }
    let mut file = loop {
        match receive().context("waiting for the order")? {
            Heard::Announcement => move_once_more(cgroup_base),
            Heard::Order(file) => break file,
            Heard::Nothing => return Ok(()),
        }
    };
    let mut order = String::new();
    file.read_to_string(&mut order).context("reading the order")?;
    let order: MakeOrder = serde_json::from_str(&order).context("reading the order")?;
    move_once_more(cgroup_base);
    let held = order.logs.as_ref().map(hold_fifos).transpose();
    let made: Result<u32, String> = match held {
        Ok(_held) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.context("starting the runtime")?.block_on(create(order)).map_err(|error| error.to_string())
        }
        Err(error) => Err(format!("its output cannot be collected: {error}")),
    };
    let mut answer = serde_json::to_vec(&made).context("answering")?;
    answer.push(b'\n');
    io::stdout().lock().write_all(&answer).context("answering")
}

/// Moves into the control group where this process is, beside everything else: nothing waits for it, and it ends with
/// the process.
fn move_once_more(cgroup_base: &str) {
    let base = cgroup_base.to_owned();
    let moves = std::thread::Builder::new().spawn(move || join_shims(&base, std::process::id()));
    if let Err(error) = moves {
        tracing::debug!(error = %error, "the helper does not move once more");
    }
}

/// What a helper hears.
enum Heard {
    /// An order will come.
    Announcement,
    Order(File),
    /// The agent has ended, or needs no helper.
    Nothing,
}

fn receive() -> io::Result<Heard> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut input = [IoSliceMut::new(&mut byte)];
    let heard = rustix::net::recvmsg(io::stdin(), &mut input, &mut with, RecvFlags::CMSG_CLOEXEC)?;
    let file = with.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok(match file {
        Some(file) => Heard::Order(File::from(file)),
        None if heard.bytes > 0 => Heard::Announcement,
        None => Heard::Nothing,
    })
}

/// Makes the first process. The one that looked after the allocation's last container may be ending just now.
async fn create(order: MakeOrder) -> Result<u32, CallError> {
    let api = Containerd::new(&order.address, &order.namespace)?;
    let mut tries = 0;
    loop {
        match api.create_task(order.task.clone()).await {
            Err(error) if tries < SHIM_TRIES && is_of_ending_shim(&error) => {
                tracing::debug!(error = %error, container = order.task.id, "its shim was ending");
                tries += 1;
                tokio::time::sleep(SHIM_PAUSE).await;
            }
            made => return made,
        }
    }
}

/// Whether the process that looks after the allocation's containers ended while it was asked.
fn is_of_ending_shim(error: &CallError) -> bool {
    let text = error.to_string();
    ["ttrpc: closed", "connection refused", "connection reset"].iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_start_is_settled_when_its_helper_has_ended() {
        let dir = tempfile::tempdir().expect("a directory");
        let maker = Maker::new(Path::new("/none"), "drover.dev", "drover.t", dir.path().into());
        maker.settled("a-1").await;
        let order = dir.path().join("a-1");
        let helper = File::create(&order).expect("an order");
        rustix::fs::flock(&helper, FlockOperation::LockExclusive).expect("locked");
        let later = Duration::from_secs(3);
        assert!(tokio::time::timeout(later, maker.settled("a-1")).await.is_err(), "the helper lives");
        drop(helper);
        tokio::time::timeout(later, maker.settled("a-1")).await.expect("settled");
        assert!(!order.exists());
    }
}
