//! What a sandboxed task may: its user, its capabilities, its limits, and no way to more.

use std::collections::BTreeSet;
use std::io;

use nix::unistd::{Gid, Uid};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::protocol::{Credentials, SandboxSpec};

/// The capabilities by name, without `CAP_`, in the order of their numbers.
pub const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// The capabilities that this thread has.
pub fn held() -> io::Result<BTreeSet<&'static str>> {
    let held = rustix::thread::capabilities(None)?.permitted;
    let numbered = CAPABILITIES.iter().enumerate();
    let is_held = |number: usize| held.contains(CapabilitySet::from_bits_retain(1 << number));
    Ok(numbered.filter(|(number, _)| is_held(*number)).map(|(_, name)| *name).collect())
}

pub(super) fn set_of(names: &[String]) -> io::Result<CapabilitySet> {
    names.iter().try_fold(CapabilitySet::empty(), |set, name| {
        let number = CAPABILITIES
            .iter()
            .position(|known| known == name)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("no capability {name}")))?;
        Ok(set | CapabilitySet::from_bits_retain(1 << number))
    })
}

/// Becomes the user with exactly these capabilities, for good. Returns those that it can ever have.
pub(super) fn give_up(user: &Credentials, sandbox: &SandboxSpec) -> io::Result<CapabilitySet> {
    let bounding = set_of(&sandbox.bounding)?;
    apply(user, bounding, set_of(&sandbox.ambient)?).map(|()| bounding)
}

/// The same, with capabilities as the kernel shows them.
pub(super) fn give_up_bits(user: &Credentials, bounding: u64, ambient: u64) -> io::Result<CapabilitySet> {
    let bounding = CapabilitySet::from_bits_retain(bounding);
    apply(user, bounding, CapabilitySet::from_bits_retain(ambient)).map(|()| bounding)
}

/// Becomes the user, without looking at capabilities.
pub(super) fn become_user(user: &Credentials) -> io::Result<()> {
    let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    nix::unistd::setgroups(&groups)?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    nix::unistd::setresgid(gid, gid, gid)?;
    Ok(nix::unistd::setresuid(uid, uid, uid)?)
}

fn apply(user: &Credentials, bounding: CapabilitySet, ambient: CapabilitySet) -> io::Result<()> {
    for number in 0..CAPABILITIES.len() {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if !bounding.contains(one) {
            match rustix::thread::remove_capability_from_bounding_set(one) {
                // A kernel that does not know it does not give it either.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    rustix::thread::set_keep_capabilities(true)?;
    become_user(user)?;
    // Root has what it can ever have, others what they were given by name.
    let effective = if user.uid == 0 { bounding } else { ambient };
    let held = rustix::thread::capabilities(None)?.permitted;
    let effective = effective & held;
    rustix::thread::set_capabilities(None, CapabilitySets { effective, permitted: effective, inheritable: effective })?;
    rustix::thread::clear_ambient_capability_set()?;
    if user.uid != 0 {
        for one in effective.iter() {
            rustix::thread::configure_capability_in_ambient_set(one, true)?;
        }
    }
    rustix::thread::set_keep_capabilities(false)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Sets limits by name.
pub(super) fn limit(limits: &[(String, u64, u64)]) -> io::Result<()> {
    for (name, soft, hard) in limits {
        let resource = resource(name)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("there is no limit {name:?}")))?;
        let held = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        // Without the right to raise limits the host's own are the most there is.
        let maximum = (*hard).min(held);
        let new = Rlimit { current: Some((*soft).min(maximum)), maximum: Some(maximum) };
        rustix::process::setrlimit(resource, new)?;
    }
    Ok(())
}

/// Whether there is a limit of processes of this name.
pub fn is_limit(name: &str) -> bool {
    resource(name).is_some()
}

/// The limit of this name.
pub(super) fn resource(name: &str) -> Option<Resource> {
    Some(match name {
        "core" => Resource::Core,
        "cpu" => Resource::Cpu,
        "data" => Resource::Data,
        "fsize" => Resource::Fsize,
        "memlock" => Resource::Memlock,
        "msgqueue" => Resource::Msgqueue,
        "nice" => Resource::Nice,
        "nofile" => Resource::Nofile,
        "nproc" => Resource::Nproc,
        "rtprio" => Resource::Rtprio,
        "sigpending" => Resource::Sigpending,
        "stack" => Resource::Stack,
        _ => return None,
    })
}
