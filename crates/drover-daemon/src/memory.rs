//! What a process holds in its memory and leaves to no one, and in which pages.

use std::io;

use anyhow::Context as _;
use rustix::process::DumpableBehavior;

/// Has the kernel write no core of this process: its memory holds values of Secrets, tokens and keys, and a program
/// that collects cores is given none. Programs that it starts are not concerned.
///
/// # Errors
/// When the kernel refuses.
pub fn leave_no_cores() -> anyhow::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).context("keeping memory out of cores")
}

/// Has the kernel give this process, and those that it starts, no pages of 2 MiB, which the allocator asks for: one who
/// holds thousands of buffers of which little is used would have them whole in memory.
///
/// # Errors
/// When the kernel refuses.
pub fn use_small_pages() -> anyhow::Result<()> {
    #[expect(unsafe_code, reason = "the option has no safe interface")]
    // SAFETY: it takes numbers alone, and changes nothing that a program sees.
    let answer = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("keeping memory in small pages") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_small_once_asked_for() {
        let is_said = || std::fs::read_to_string("/proc/self/status").expect("a status").contains("THP_enabled:\t0");
        assert!(!is_said(), "there is nothing to ask for");
        use_small_pages().expect("the kernel agrees");
        assert!(is_said());
    }
}
