//! The system calls that have no safe wrapper: preparing a child between fork and exec, asking a pidfd how its process
//! ended, and looking at a zombie without reaping it.

#![expect(unsafe_code, reason = "pre_exec, the PIDFD_GET_INFO ioctl and waitid with WNOWAIT have no safe interface")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::rc::Rc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::protocol::{Credentials, Exit};

/// What a child does between fork and exec.
#[derive(Clone, Debug)]
pub(super) struct ChildSetup {
    /// The user to become.
    pub(super) user: Option<Credentials>,
    /// Written to `/proc/self/oom_score_adj`.
    pub(super) oom_score_adj: i32,
    /// The soft limit of open files that the task gets: the supervisor has raised its own.
    pub(super) open_files: u64,
    /// Files to which the child writes `0` to enter its control group.
    pub(super) entrances: Vec<CString>,
    /// Whether it uses small pages only, until it says otherwise. Its memory counts against the task's limit, and an
    /// allocator that asks for huge pages takes 2 MiB for each first byte.
    pub(super) has_small_pages: bool,
}

/// Makes the command's child the leader of its own session and group, with its user, OOM score and limits. It ignores
/// no signal: what the supervisor inherited (`nohup`) would else be passed on, and a shell cannot trap what it was born
/// to ignore.
pub(super) fn prepare_child(command: &mut Command, setup: ChildSetup) {
    let score = CString::new(setup.oom_score_adj.to_string()).unwrap_or_default();
    let enter = move || -> io::Result<()> {
        // SAFETY: setsid takes no arguments and is async-signal-safe.
        check(unsafe { libc::setsid() })?;
        heed_all_signals();
        setup.entrances.iter().try_for_each(enter_cgroup)?;
        write_oom_score(&score);
        limit_open_files(setup.open_files)?;
        if setup.has_small_pages {
            rustix::thread::disable_transparent_huge_pages(true)?;
        }
        if let Some(user) = &setup.user {
            become_user(user)?;
        }
        Ok(())
    };
    // SAFETY: the closure only makes async-signal-safe calls and does not allocate.
    unsafe { command.pre_exec(enter) };
}

/// The two that cannot be ignored are refused, which changes nothing.
fn heed_all_signals() {
    for number in 1..=libc::SIGRTMAX() {
        set_action(number, libc::SIG_DFL);
    }
}

/// Asks the kernel itself: the C library keeps two numbers to itself and refuses them, yet they are inherited as
/// ignored too.
fn set_action(number: libc::c_int, action: libc::sighandler_t) {
    // The kernel's own layout: action, flags, restorer, mask.
    let wanted = [action, 0, 0, 0];
    let no_answer = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel reads as many bytes as `wanted` has; neither action is a pointer to code; a system call is
    // async-signal-safe.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, number, wanted.as_ptr(), no_answer, size_of::<u64>()) };
}

/// Best effort: a lower score than the supervisor's own needs a capability that it may lack.
fn write_oom_score(score: &CString) {
    // SAFETY: both strings are NUL-terminated and outlive the calls; the descriptor is closed here.
    unsafe {
        let fd = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::write(fd, score.as_ptr().cast(), score.as_bytes().len());
            libc::close(fd);
        }
    }
}

fn enter_cgroup(entrance: &CString) -> io::Result<()> {
    // SAFETY: the path is NUL-terminated, the buffer one byte long; the descriptor is closed here.
    unsafe {
        let fd = check(libc::open(entrance.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC))?;
        let written = libc::write(fd, c"0".as_ptr().cast(), 1);
        let result = if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        libc::close(fd);
        result
    }
}

fn limit_open_files(soft: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is valid for writing, and then for reading.
    unsafe {
        check(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit))?;
        limit.rlim_cur = soft.min(limit.rlim_max);
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)).map(drop)
    }
}

fn become_user(user: &Credentials) -> io::Result<()> {
    // SAFETY: the slice is valid for its length; the calls are made in the only thread of the child.
    unsafe {
        check(libc::setgroups(user.groups.len(), user.groups.as_ptr()))?;
        check(libc::setgid(user.gid))?;
        check(libc::setuid(user.uid)).map(drop)
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// `struct pidfd_info` of Linux 6.13, as far as its first version goes.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup_id: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    users: [u32; 8],
    exit_code: i32,
}

/// `_IOWR(0xFF, 11, struct pidfd_info)` with the 64 bytes of the first version. C libraries disagree on the type of a
/// request, not on its bits.
const PIDFD_GET_INFO: libc::Ioctl = libc::Ioctl::from_ne_bytes(REQUEST);
#[cfg(target_env = "musl")]
const REQUEST: [u8; 4] = 0xC040_FF0B_u32.to_ne_bytes();
#[cfg(not(target_env = "musl"))]
const REQUEST: [u8; 8] = 0xC040_FF0B_u64.to_ne_bytes();
const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// Asks the kernel how a process that another process reaped ended; `None` while it has no answer (still a zombie, or
/// Linux before 6.15).
pub(super) fn exit_of_reaped(pidfd: BorrowedFd<'_>) -> Option<Exit> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the argument is a valid struct of the size that the request number names.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
    (result == 0 && info.mask & PIDFD_INFO_EXIT != 0).then(|| exit_of_wait_status(info.exit_code))
}

/// Reads a wait status as `waitpid` returns it.
pub(super) fn exit_of_wait_status(status: i32) -> Exit {
    let signal = status & 0x7f;
    if signal == 0 { Exit::code((status >> 8) & 0xff) } else { Exit::signal(signal) }
}

/// The pid of some child that has ended and is not reaped yet; it stays a zombie.
pub(super) fn peek_zombie() -> Option<i32> {
    // SAFETY: siginfo_t is valid when zeroed, and waitid writes at most one.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let result = libc::waitid(libc::P_ALL, 0, &raw mut info, options);
        (result == 0 && info.si_pid() > 0).then(|| info.si_pid())
    }
}

/// Takes over a descriptor that the program before this one in the same process has left open for us; programs that we
/// start do not get it.
pub(super) fn inherited(raw: i32) -> io::Result<OwnedFd> {
    // SAFETY: the number is from the state that the program before us wrote, which had cleared its close-on-exec flag
    // and executed us; nothing else in this process knows it. That it is open is checked before it is owned.
    unsafe {
        check(libc::fcntl(raw, libc::F_SETFD, libc::FD_CLOEXEC))?;
        Ok(OwnedFd::from_raw_fd(raw))
    }
}

/// Watches for reading a descriptor that only the watch owns.
///
/// # Errors
/// When the kernel cannot watch it.
pub fn watch_owned(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open as long as it lives, and the AsyncFd owns it.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
}

/// Watches a terminal, for reading and writing.
pub fn watch_terminal(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open as long as it lives, and the AsyncFd owns it.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE | Interest::WRITABLE) }.map_err(io::Error::from)
}

/// Watches a descriptor that others use too.
pub(super) fn watch_shared(fd: Rc<OwnedFd>) -> io::Result<AsyncFd<Rc<OwnedFd>>> {
    // SAFETY: an OwnedFd is open as long as it lives, and the AsyncFd holds one of its owners.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_ignores_nothing_that_its_parent_ignores() {
        let setup =
            ChildSetup { user: None, oom_score_adj: 0, open_files: 64, entrances: Vec::new(), has_small_pages: false };
        let mut command = Command::new("grep");
        command.args(["-E", "SigIgn|SigBlk", "/proc/self/status"]);
        prepare_child(&mut command, setup);
        // Nothing in this process waits for SIGHUP, nor cancels threads, for which the C library keeps number 32.
        for number in [libc::SIGHUP, 32] {
            set_action(number, libc::SIG_IGN);
        }
        let output = command.output().expect("grep");
        for number in [libc::SIGHUP, 32] {
            set_action(number, libc::SIG_DFL);
        }
        let text = String::from_utf8(output.stdout).expect("text");
        assert_eq!(text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    }
}
