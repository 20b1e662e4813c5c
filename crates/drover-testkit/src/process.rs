//! Processes by identity: an id together with the time it was started, so that a number which the kernel gave to
//! another process is never signalled.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::sys::watch_readable;

pub use rustix::process::Signal;

/// The unit of times in `/proc/PID/stat`, which Linux keeps at 100 for programs whatever the kernel's own clock does.
const TICKS_PER_SECOND: u64 = 100;

/// One process, for as long as the machine runs: its number and its start time in clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessId {
    /// The process number.
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
}

impl ProcessId {
    /// Returns the identity of the process that has this number now; none when there is none or it has ended.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        (!stat.has_ended()).then_some(Self { pid, start_ticks: stat.start_ticks })
    }

    /// All processes that run now.
    pub fn all() -> impl Iterator<Item = Self> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| Self::of(entry.file_name().to_str()?.parse().ok()?))
    }

    /// The words of its command line, with its program first; none when it has ended.
    pub fn words(self) -> Vec<String> {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.split_terminator('\0').map(str::to_owned).collect()
    }

    /// Says whether this very process still runs. One that its parent has not waited for yet has ended, once its last
    /// thread has.
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Sends a signal to this very process; returns whether it still ran.
    ///
    /// # Errors
    /// When the kernel refuses, for example because the process belongs to another user.
    pub fn signal(self, signal: Signal) -> io::Result<bool> {
        let Some(pidfd) = self.pidfd()? else { return Ok(false) };
        match pidfd_send_signal(&pidfd, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the process has ended; returns whether it did within `timeout`.
    ///
    /// # Errors
    /// When the process cannot be watched.
    pub async fn wait_gone(self, timeout: Duration) -> io::Result<bool> {
        let Some(pidfd) = self.pidfd()? else { return Ok(true) };
        let watched = watch_readable(pidfd)?;
        match tokio::time::timeout(timeout, watched.readable()).await {
            Ok(readable) => readable.map(|_| true),
            Err(_) => Ok(false),
        }
    }

    /// Waits for the end of the process, however long that takes.
    ///
    /// # Errors
    /// When the process cannot be watched.
    pub async fn ended(self) -> io::Result<()> {
        let Some(pidfd) = self.pidfd()? else { return Ok(()) };
        watch_readable(pidfd)?.readable().await.map(|_| ())
    }

    /// Waits like [`Self::wait_gone`], blocking this thread; for places that cannot be async, such as `Drop`.
    ///
    /// # Errors
    /// When the process cannot be watched.
    pub fn wait_gone_blocking(self, timeout: Duration) -> io::Result<bool> {
        let Some(pidfd) = self.pidfd()? else { return Ok(true) };
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the resident memory of the process in bytes, zero when it has ended.
    pub fn rss_bytes(self) -> u64 {
        self.memory_line("status", "VmRSS:")
    }

    /// Returns the proportional memory of the process in bytes: shared pages count by their share. Zero when it has
    /// ended.
    pub fn pss_bytes(self) -> u64 {
        self.memory_line("smaps_rollup", "Pss:")
    }

    /// Returns the processor time that the process has used, in user and kernel mode together.
    pub fn cpu_time(self) -> Duration {
        let ticks =
            Stat::read(self.pid).filter(|stat| stat.start_ticks == self.start_ticks).map_or(0, |stat| stat.cpu_ticks);
        Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_SECOND))
    }

    /// The processes that it started, those that they started, and so on, whatever namespaces they are in. One that
    /// begins meanwhile may be left out.
    pub fn descendants(self) -> Vec<Self> {
        let mut found = Vec::new();
        let mut parents = vec![self.pid];
        while let Some(parent) = parents.pop() {
            let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
            for children in threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()) {
                let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
                parents.extend(pids.clone());
                found.extend(pids.filter_map(Self::of));
            }
        }
        found
    }

    /// Opens a handle on this very process; none when it has ended.
    fn pidfd(self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        match pidfd_open(pid, PidfdFlags::empty()) {
            // Looked at after the handle is open: from here on the number cannot change its meaning for us.
            Ok(pidfd) => Ok(self.is_alive().then_some(pidfd)),
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn memory_line(self, file: &str, label: &str) -> u64 {
        if !self.is_alive() {
            return 0;
        }
        let Ok(text) = fs::read_to_string(format!("/proc/{}/{file}", self.pid)) else { return 0 };
        let kilobytes =
            text.lines().find_map(|line| line.strip_prefix(label)?.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.unwrap_or(0) * 1024
    }
}

/// What drover reads of `/proc/PID/stat`.
struct Stat {
    state: char,
    threads: u64,
    start_ticks: u64,
    cpu_ticks: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The second field is the program's name in parentheses and may hold anything, so fields count from the last
    /// parenthesis.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            threads: number(20)?,
            start_ticks: number(22)?,
            cpu_ticks: number(14)?.saturating_add(number(15)?),
        })
    }

    /// The first thread is a zombie before the others have let go of the ports and locks of a killed process, so they
    /// count too.
    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }
}

/// Returns an id of this boot of the machine: start times of another one say nothing.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_spaces_and_parentheses_shifts_no_field() {
        let text = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.state, stat.threads, stat.start_ticks, stat.cpu_ticks), ('S', 17, 777, 23));
    }

    #[test]
    fn a_process_has_ended_with_its_last_thread_not_with_its_first() {
        let with_threads = |threads: u64| {
            Stat::parse(&format!("42 (etcd) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 {threads} 18 777 20")).unwrap()
        };
        assert!(!with_threads(2).has_ended());
        assert!(with_threads(1).has_ended());
    }

    #[tokio::test]
    async fn another_process_under_the_same_number_is_not_signalled() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
        let stranger = ProcessId { start_ticks: id.start_ticks + 1, ..id };
        assert!(!stranger.is_alive());
        assert!(!stranger.signal(Signal::KILL).unwrap());
        assert!(id.is_alive());
        assert!(id.rss_bytes() > 0);
        assert!(!id.wait_gone(Duration::from_millis(1)).await.unwrap());
        assert!(id.signal(Signal::KILL).unwrap());
        assert!(id.wait_gone(Duration::from_secs(10)).await.unwrap());
        assert!(!id.is_alive(), "a zombie counts as ended");
        child.wait().unwrap();
        assert!(id.wait_gone_blocking(Duration::ZERO).unwrap());
    }
}
