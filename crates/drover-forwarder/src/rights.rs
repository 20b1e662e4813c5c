//! Giving up what the forwarder does not need: it keeps the right to listen on any port, and no other.

use anyhow::Context as _;
use nix::unistd::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// The user `nobody`, whose files are no process's.
const NOBODY: u32 = 65534;

/// Becomes a user without rights. One who is not root has none to give up.
pub(crate) fn give_up() -> anyhow::Result<()> {
    rustix::thread::set_no_new_privs(true).context("giving up new privileges")?;
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    rustix::thread::set_keep_capabilities(true).context("keeping the right to listen")?;
    nix::unistd::setgroups(&[gid]).context("leaving all groups")?;
    nix::unistd::setresgid(gid, gid, gid).context("changing the group")?;
    nix::unistd::setresuid(uid, uid, uid).context("changing the user")?;
    let kept = CapabilitySet::NET_BIND_SERVICE;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).context("giving up capabilities")
}
