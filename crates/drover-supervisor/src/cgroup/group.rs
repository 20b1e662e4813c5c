//! The control group of one task.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use super::files::{remove_dir, write};
use super::{v1, v2};
use crate::processes;
use crate::protocol::{CgroupHandle, CgroupVersion, OomKill};

/// How often processes that multiply are killed before the group is given up.
const KILL_ROUNDS: usize = 50;

/// The group of one task.
#[derive(Clone, Debug)]
pub(crate) struct Cgroup {
    pub(super) version: CgroupVersion,
    pub(super) dirs: Vec<PathBuf>,
    /// Not its own: it stays when the task ends.
    pub(super) shared: Option<PathBuf>,
}

impl Cgroup {
    /// The group that a handle names.
    pub(crate) fn of(handle: &CgroupHandle) -> Self {
        let dirs = handle.dirs.iter().map(PathBuf::from).collect();
        Self { version: handle.version, dirs, shared: handle.shared.as_ref().map(PathBuf::from) }
    }

    /// What finds it again.
    pub(crate) fn handle(&self) -> CgroupHandle {
        let text = |dir: &PathBuf| dir.to_string_lossy().into_owned();
        CgroupHandle {
            version: self.version,
            dirs: self.dirs.iter().map(text).collect(),
            shared: self.shared.as_ref().map(text),
        }
    }

    /// The files to which a single-threaded process writes `0` to enter. (In the first version the one that moves a
    /// single thread: it needs no lock over all processes of the machine, which would cost milliseconds in each
    /// hierarchy.)
    pub(crate) fn entrances(&self) -> Vec<PathBuf> {
        let name = match self.version {
            CgroupVersion::V1 => "tasks",
            CgroupVersion::V2 => "cgroup.procs",
        };
        self.dirs.iter().chain(&self.shared).map(|dir| dir.join(name)).collect()
    }

    /// Its processes.
    pub(crate) fn pids(&self) -> io::Result<Vec<i32>> {
        let Some(dir) = self.dirs.first() else { return Ok(Vec::new()) };
        let text = match fs::read_to_string(dir.join("cgroup.procs")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            // Linux answers so when the group is going away.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
    }

    /// Kills everything in it and returns what to wait for. Frozen meanwhile, so that nothing multiplies faster than it
    /// dies.
    pub(crate) fn kill(&self) -> io::Result<Vec<OwnedFd>> {
        let mut dying = Vec::new();
        self.set_frozen(true);
        for pid in self.pids()? {
            let Ok(pid) = processes::pid(pid) else { continue };
            // One that has ended meanwhile needs no kill.
            let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else { continue };
            if rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL).is_ok() {
                dying.push(pidfd);
            }
        }
        self.set_frozen(false);
        Ok(dying)
    }

    /// How many rounds of killing make sense.
    pub(crate) fn kill_rounds() -> usize {
        KILL_ROUNDS
    }

    /// Best effort: without the freezer killing takes more rounds.
    fn set_frozen(&self, frozen: bool) {
        let (file, text) = match (self.version, frozen) {
            (CgroupVersion::V1, true) => ("freezer.state", "FROZEN"),
            (CgroupVersion::V1, false) => ("freezer.state", "THAWED"),
            (CgroupVersion::V2, true) => ("cgroup.freeze", "1"),
            (CgroupVersion::V2, false) => ("cgroup.freeze", "0"),
        };
        if let Some(path) = self.dirs.iter().map(|dir| dir.join(file)).find(|path| path.exists())
            && let Err(error) = write(&path, text)
        {
            tracing::debug!(error = %error, path = %path.display(), "the group is not frozen");
        }
    }

    /// Whether memory ran out in it, with the limit and the most that it had.
    pub(crate) fn oom(&self) -> Option<OomKill> {
        match self.version {
            CgroupVersion::V1 => v1::oom(&self.dirs),
            CgroupVersion::V2 => v2::oom(self.dirs.first()?),
        }
    }

    /// Removes it; everything in it has ended.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.dirs.iter().try_for_each(|dir| remove_dir(dir))
    }
}

/// The files by which a process enters a group, as those of its handle.
pub fn entrances(handle: &CgroupHandle) -> Vec<String> {
    Cgroup::of(handle).entrances().into_iter().map(|path| path.to_string_lossy().into_owned()).collect()
}
