//! An agent that was started as a pod becomes a process of the node that the pod runs on.
//!
//! It enters the namespaces of the node's process 1, so that it sees the node's files, mounts, network and control
//! groups as an agent without Kubernetes does, and starts its supervisor there: nothing of a task is inside of the pod,
//! and nothing of it ends with the pod. What the pod's own files are needed for is read before, or held open: the
//! service account's token, which changes while the agent runs. Must never know what an agent does.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use kube::Config;
use nix::sched::{CloneFlags, setns};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};

/// Where Kubernetes puts a pod's token.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What an agent keeps of its pod.
#[derive(Debug)]
pub(crate) struct Pod {
    /// How it reaches the API server.
    pub(crate) api: Config,
    /// Held, because the paths of the tokens lead through them.
    _held: Vec<File>,
}

/// Leaves the pod, and makes the path of the gateway's token one that leads there afterwards. To be called before there
/// is a second thread.
///
/// # Errors
/// When this is no pod, or the pod lacks the rights; says what it needs.
pub(crate) fn enter_node(gateway_token: Option<&mut PathBuf>) -> anyhow::Result<Pod> {
    let account =
        hold(Path::new(ACCOUNT)).with_context(|| format!("{ACCOUNT}: the pod needs its service account's token"))?;
    let mut api = Config::incluster().context("finding the API server as a pod")?;
    // By a descriptor: after the move the paths lead elsewhere. The files behind them are replaced before they expire.
    let held = |name: &str| format!("/proc/self/fd/{}/{name}", account.as_raw_fd());
    let gateway = gateway_token.map(hold_folder).transpose()?;
    api.auth_info.token_file = Some(held("token"));
    api.root_cert_file = Some(held("ca.crt").into());
    if is_alone() {
        bail!("the pod does not see the node's processes: it needs hostPID: true");
    }
    let first = rustix::process::pidfd_open(Pid::INIT, PidfdFlags::empty()).context("finding the node's process 1")?;
    let spaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    setns(&first, spaces)
        .context(
            "entering the node's namespaces: the pod needs hostPID: true and securityContext.privileged: true, or at least the \
             capabilities SYS_ADMIN, SYS_CHROOT and SYS_PTRACE",
        )?;
    std::env::set_current_dir("/").context("going to the node's root")?;
    Ok(Pod { api, _held: std::iter::once(account).chain(gateway).collect() })
}

/// Opens a folder to lead paths through it.
fn hold(folder: &Path) -> std::io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(folder, flags, Mode::empty())?))
}

/// Holds the folder of a file, and leads the file's path through it.
fn hold_folder(file: &mut PathBuf) -> anyhow::Result<File> {
    let shown = file.display().to_string();
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else { bail!("{shown} is no file") };
    let held = hold(folder).with_context(|| format!("{shown}: the pod needs the gateway's token"))?;
    *file = Path::new("/proc/self/fd").join(held.as_raw_fd().to_string()).join(name);
    Ok(held)
}

/// Whether process 1 is our own program: then it is that of the pod, not of the node.
fn is_alone() -> bool {
    let program = |path: &str| std::fs::read_link(Path::new(path)).ok();
    std::process::id() == 1 || program("/proc/1/exe").is_some_and(|first| Some(first) == program("/proc/self/exe"))
}
