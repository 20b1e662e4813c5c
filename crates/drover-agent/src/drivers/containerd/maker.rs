//! The first process of a container is made by a process of its own, `droverd make-container`, which outlives the
//! agent: containerd breaks off what its caller has left, and the one that looks after the container then waits for a
//! reader of its output that never comes.
//!
//! The order is a file, the helper's standard input. It is locked while the helper lives, so the next agent knows
//! whether a start is still under way.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use drover_containerd::{CallError, Containerd, NewTask};
use drover_supervisor::protocol::LogSpec;
use drover_supervisor::{hold_fifos, join_shims};
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

/// So often a container is made again whose shim was ending, and the pause before.
const SHIM_TRIES: u32 = 20;
const SHIM_PAUSE: Duration = Duration::from_millis(50);
/// How often a lock is tried.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// What the helper is told.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MakeOrder {
    address: PathBuf,
    namespace: String,
    cgroup_base: String,
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
}

impl Maker {
    pub(super) fn new(address: &Path, namespace: &'static str, cgroup_base: &str, orders: PathBuf) -> Self {
        Self { address: address.to_owned(), namespace, cgroup_base: cgroup_base.to_owned(), orders }
    }

    /// Makes the first process, which waits for its start, and returns its pid. Goes on when it is dropped.
    ///
    /// # Errors
    /// What containerd or the helper says.
    pub(super) async fn make(&self, task: NewTask, logs: Option<LogSpec>) -> Result<u32, String> {
        let order = self.orders.join(&task.id);
        let output = self.begin(&order, task, logs).map_err(|error| format!("droverd make-container: {error}"))?;
        let output = output.await.map_err(|error| format!("droverd make-container: {error}"))?;
        if let Err(error) = std::fs::remove_file(&order) {
            tracing::debug!(error = %error, order = %order.display(), "the order of a container is taken away later");
        }
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| Err(format!("droverd make-container ended with {}", output.status)))
    }

    fn begin(
        &self,
        path: &Path,
        task: NewTask,
        logs: Option<LogSpec>,
    ) -> io::Result<impl Future<Output = io::Result<std::process::Output>> + use<>> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.orders)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.set_len(0)?;
        let order = MakeOrder {
            address: self.address.clone(),
            namespace: self.namespace.to_owned(),
            cgroup_base: self.cgroup_base.clone(),
            logs,
            task,
        };
        serde_json::to_writer(&file, &order)?;
        file.rewind()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg("make-container").env_clear().current_dir("/").stdin(Stdio::from(file)).stdout(Stdio::piped());
        let helper = command.spawn()?;
        Ok(helper.wait_with_output())
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

/// The helper: reads its order, leaves the agent's control group, and answers on its standard output.
///
/// # Errors
/// When the order cannot be read, or there is no agent any more to answer to.
pub fn make_container() -> anyhow::Result<()> {
    let mut order = String::new();
    io::stdin().lock().read_to_string(&mut order).context("reading the order")?;
    let order: MakeOrder = serde_json::from_str(&order).context("reading the order")?;
    if let Err(error) = join_shims(&order.cgroup_base, std::process::id()) {
        tracing::debug!(error = %error, "the helper stays in the agent's control group");
    }
    let held = order.logs.as_ref().map(hold_fifos).transpose();
    let made: Result<u32, String> = match held {
        Ok(_held) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.context("starting the runtime")?.block_on(create(order)).map_err(|error| error.to_string())
        }
        Err(error) => Err(format!("its output cannot be collected: {error}")),
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &made).context("answering")?;
    out.flush().context("answering")
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
