//! What `/proc` says about processes: start times, sessions, parents, and what a zombie ended with.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags};

use super::protocol::Exit;
use super::sys;

/// The fields of `/proc/<pid>/stat` that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) pid: i32,
    pub(super) state: u8,
    pub(super) parent: i32,
    pub(super) session: i32,
    pub(super) threads: u64,
    pub(super) start_ticks: u64,
    pub(super) exit_status: i32,
}

impl Stat {
    /// A zombie counts as ended everywhere, once its last thread has ended: a program may leave its first thread and go
    /// on.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

/// Reads `/proc/<pid>/stat`.
pub(super) fn stat(pid: i32) -> io::Result<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat"))?;
    parse_stat(&text)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat is malformed")))
}

/// The command's name is in parentheses and may hold anything, so fields are counted from the last one.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let text = String::from_utf8_lossy(text);
    let (pid, rest) = text.split_once(' ')?;
    let fields: Vec<&str> = rest.get(rest.rfind(')')? + 1..)?.split_whitespace().collect();
    // `fields[0]` is field 3 of proc_pid_stat(5).
    Some(Stat {
        pid: pid.parse().ok()?,
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        start_ticks: fields.get(19)?.parse().ok()?,
        exit_status: fields.get(49).and_then(|field| field.parse().ok()).unwrap_or(0),
    })
}

/// Opens the process that began then, alive or a zombie. While the descriptor is open the kernel keeps how it ends,
/// whichever process reaps it (Linux 6.15).
///
/// # Errors
/// When there is no such process any more: its pid may be another one's.
pub(super) fn open(pid: i32, start_ticks: u64) -> io::Result<OwnedFd> {
    let pidfd = rustix::process::pidfd_open(self::pid(pid)?, PidfdFlags::empty())?;
    // The descriptor pins whom the start time was read of.
    if stat(pid)?.start_ticks == start_ticks {
        return Ok(pidfd);
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("process {pid} is another one by now")))
}

/// Everything that runs now. O(processes), so callers share one snapshot.
pub(super) fn snapshot() -> io::Result<Vec<Stat>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that ended between listing and reading is none.
        if let Ok(stat) = stat(pid) {
            all.push(stat);
        }
    }
    Ok(all)
}

/// Whether the process carries every one of these `NAME=value` entries in its environment.
pub(super) fn has_environment(pid: i32, entries: &[String]) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    !entries.is_empty()
        && entries.iter().all(|entry| environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes()))
}

/// How a process ended that is not our child: as a zombie from `/proc`, after its reaping from the pidfd.
pub(super) fn exit_of_foreign(pidfd: BorrowedFd<'_>, pid: i32, start_ticks: u64) -> Exit {
    if let Some(exit) = sys::exit_of_reaped(pidfd) {
        return exit;
    }
    if let Ok(stat) = stat(pid)
        && stat.is_ended()
        && stat.start_ticks == start_ticks
    {
        return sys::exit_of_wait_status(stat.exit_status);
    }
    sys::exit_of_reaped(pidfd)
        .unwrap_or_else(|| Exit::unknown("its exit code was lost with the supervisor that had started it"))
}

/// The id of this boot of the machine.
pub(crate) fn boot_id() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned())
}

/// A pid as the system calls want it.
pub(super) fn pid(raw: i32) -> io::Result<Pid> {
    Pid::from_raw(raw).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{raw} is not a process id")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_blanks_and_parentheses_is_no_field() {
        let tail = "S 7 12 12 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        let stat = parse_stat(format!("12 (a) b (c)) {tail}").as_bytes()).expect("parsed");
        assert_eq!((stat.pid, stat.state, stat.parent, stat.session, stat.start_ticks), (12, b'S', 7, 12, 4711));
    }

    #[test]
    fn a_program_that_left_its_first_thread_goes_on() {
        let with_threads = |threads: u64| {
            let tail = format!("Z 7 12 12 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 4711 0 0");
            parse_stat(format!("12 (java) {tail}").as_bytes()).expect("parsed")
        };
        assert!(!with_threads(2).is_ended());
        assert!(with_threads(1).is_ended());
    }

    #[test]
    fn this_process_is_in_the_snapshot() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        let found = snapshot().expect("a snapshot").into_iter().find(|stat| stat.pid == own).expect("this process");
        assert_eq!(found.start_ticks, stat(own).expect("stat").start_ticks);
        assert!(!found.is_ended());
    }
}
