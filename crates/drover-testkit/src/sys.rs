//! The one place with `unsafe`: what a child does between `fork` and `exec`, and watching a descriptor that we own.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Makes the child of `command` get SIGKILL when the thread that spawns it ends, however that happens.
#[expect(unsafe_code, reason = "`pre_exec` is the only way to ask the kernel for a parent death signal")]
pub(crate) fn die_with_spawning_thread(command: &mut Command) {
    let parent: Pid = getpid();
    // SAFETY: the closure runs in the child after `fork`. It makes two system calls through rustix, which neither
    // allocates nor locks, and builds errors from numbers only.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the call above; then the signal would never be sent.
            if getppid() == Some(parent) { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
        });
    }
}

/// Watches a descriptor for being readable.
#[expect(
    unsafe_code,
    reason = "tokio's safe constructors take any `AsRawFd` and are deprecated for that; there is no safe one for `OwnedFd`"
)]
pub(crate) fn watch_readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open descriptor until it is dropped, and `AsyncFd` owns it until then.
    unsafe { Ok(AsyncFd::register_with_interest(descriptor, Interest::READABLE)?) }
}
