//! What a process holds in its memory and leaves to no one.

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
