//! A containerd of a test's, a bench's or `up`'s own: everything in one folder, no Kubernetes in it, ended with all
//! that it has started.

use std::fs::{self, OpenOptions};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::mount::UnmountFlags;

use crate::cluster;
use crate::process::{ProcessId, Signal};
use crate::progress::Progress;
use crate::spawner;
use crate::workspace::last_lines;

/// How long it may take until it serves, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// How long one of its processes may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// The path of its socket must fit into 107 bytes.
const LONGEST_FOLDER: usize = 70;

/// A running containerd. Ends with this value, and so do its containers unless they are [left](Self::leave).
#[derive(Debug)]
pub struct OwnContainerd {
    folder: PathBuf,
    programs: PathBuf,
    child: Option<Child>,
}

impl OwnContainerd {
    /// Builds what is missing and starts it in this folder.
    ///
    /// # Errors
    /// When it does not start; the error ends with its log.
    pub fn start(folder: &Path) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "containers need root: run this as root");
        let folder = std::path::absolute(folder).context("containerd's folder")?;
        ensure!(
            folder.as_os_str().len() <= LONGEST_FOLDER,
            "{} is too long for a socket in it: name a shorter folder",
            folder.display()
        );
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let programs = cluster::node_programs(&Progress::silent())?;
        let mut containerd = Self { folder, programs, child: None };
        containerd.start_again()?;
        Ok(containerd)
    }

    /// Starts it again after it was killed.
    ///
    /// # Errors
    /// When it does not start; the error ends with its log.
    pub fn start_again(&mut self) -> Result<()> {
        let config = self.folder.join("config.toml");
        fs::write(&config, self.config()).with_context(|| format!("writing {}", config.display()))?;
        let log = self.folder.join("log");
        let output = OpenOptions::new().create(true).append(true).open(&log).context("containerd's log")?;
        let mut command = Command::new(self.programs.join("containerd"));
        command.arg("--config").arg(&config).env("PATH", self.path()).current_dir(&self.folder).stdin(Stdio::null());
        command.stdout(output.try_clone().context("sharing the log")?).stderr(output);
        self.child = Some(spawner::spawn_bound_to_this_process(command).context("starting containerd")?);
        let deadline = Instant::now() + START_TIMEOUT;
        // Its socket is there before its services are.
        while UnixStream::connect(self.socket()).is_err() || self.ctr(&["version"]).is_err() {
            if Instant::now() > deadline {
                bail!("containerd does not serve; its log {}:\n{}", log.display(), last_lines(&log, 15));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn config(&self) -> String {
        let folder = self.folder.display();
        format!(
            r#"version = 3
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
  "io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri",
]

[grpc]
address = "{}"
"#,
            socket(&self.folder).display()
        )
    }

    fn path(&self) -> String {
        let others = std::env::var_os("PATH").unwrap_or_default();
        format!("{}:{}", self.programs.display(), others.to_string_lossy())
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        socket(&self.folder)
    }

    /// The folder of its programs: `runc`, and the one that looks after containers.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Kills it, as a crash would. Its containers go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("containerd does not run")?;
        child.kill().context("killing containerd")?;
        child.wait().context("waiting for containerd")?;
        Ok(())
    }

    /// Runs `ctr` in the namespace `drover.dev`.
    ///
    /// # Errors
    /// With what it says.
    pub fn ctr(&self, args: &[&str]) -> Result<String> {
        self.ctr_in("drover.dev", args)
    }

    /// Runs `ctr` in a namespace.
    ///
    /// # Errors
    /// With what it says.
    pub fn ctr_in(&self, namespace: &str, args: &[&str]) -> Result<String> {
        ctr(&self.programs, &self.socket(), namespace, args)
    }

    /// The processes that look after containers; not those that only start or take away one for a moment.
    pub fn shims(&self) -> Vec<ProcessId> {
        let is_lasting = |id: &ProcessId| !id.words().last().is_some_and(|word| word == "start" || word == "delete");
        let lasting: Vec<ProcessId> = shims(&self.folder).into_iter().filter(is_lasting).collect();
        // What one of them has forked has its words until it has a program of its own.
        let forked: Vec<ProcessId> = lasting.iter().flat_map(|id| id.descendants()).collect();
        lasting.into_iter().filter(|id| !forked.contains(id)).collect()
    }

    /// Ends it, and leaves its containers to one that is started in the same folder later.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn leave(self) -> Result<()> {
        // Its end would end them.
        let mut left = std::mem::ManuallyDrop::new(self);
        left.kill()
    }

    fn end(&mut self) -> Result<()> {
        end_containers(&self.folder)?;
        if self.child.is_some() {
            self.kill()?;
        }
        for point in self.mounts()? {
            let unmounted = rustix::mount::unmount(&point, UnmountFlags::DETACH);
            // What its runtime still does at its end may be faster.
            if unmounted.is_err() && self.mounts()?.contains(&point) {
                unmounted.with_context(|| format!("unmounting {}", point.display()))?;
            }
        }
        Ok(())
    }

    fn mounts(&self) -> Result<Vec<PathBuf>> {
        let mounts = fs::read_to_string("/proc/self/mounts").context("the mounts")?;
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
        Ok(points.filter(|point| point.starts_with(&self.folder)).collect())
    }
}

impl Drop for OwnContainerd {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            // A test that has failed already says why.
            assert!(std::thread::panicking(), "containerd was not ended: {error:#}");
        }
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("c.sock")
}

fn shims(folder: &Path) -> Vec<ProcessId> {
    let socket = socket(folder).to_string_lossy().into_owned();
    let is_shim = |id: &ProcessId| {
        let words = id.words();
        words.iter().any(|word| word.contains("containerd-shim")) && words.contains(&socket)
    };
    ProcessId::all().filter(is_shim).collect()
}

/// Runs the `ctr` of this folder for a containerd in a namespace.
///
/// # Errors
/// With what it says.
pub fn ctr(programs: &Path, socket: &Path, namespace: &str, args: &[&str]) -> Result<String> {
    let mut command = Command::new(programs.join("ctr"));
    command.arg("--address").arg(socket).args(["--namespace", namespace]).args(args).stdin(Stdio::null());
    let output = command.output().context("running ctr")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ctr {}: {}", args.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Kills the containers of one in this absolute folder, whether it runs or not.
///
/// # Errors
/// When one cannot be killed.
pub fn end_containers(folder: &Path) -> Result<()> {
    let with_below = |shim: ProcessId| shim.descendants().into_iter().chain([shim]);
    let processes: Vec<ProcessId> = shims(folder).into_iter().flat_map(with_below).collect();
    // All before the first one is waited for: the kernel takes its time to end a container.
    for process in &processes {
        process.signal(Signal::KILL).context("killing a container")?;
    }
    for process in processes {
        process.wait_gone_blocking(END_TIMEOUT).context("waiting for a container")?;
    }
    Ok(())
}
