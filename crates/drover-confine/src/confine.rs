//! Giving everything away that a helper does not need, while the process has one thread: user, groups, files, network,
//! programs, memory.

use std::collections::BTreeMap;
use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope, path_beneath_rules,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// What a process keeps.
#[derive(Clone, Copy, Debug)]
pub struct Confinement<'a> {
    /// The number of the user and group that it becomes; none: it stays who it is.
    pub user: Option<u32>,
    /// Files and folders that it may read.
    pub readable: &'a [&'a str],
    /// Whether it may change its working directory.
    pub writes_here: bool,
    /// Whether it may make connections.
    pub has_network: bool,
    /// The largest file that it may write.
    pub file_bytes: u64,
    /// Files that it holds open at a time.
    pub open_files: u64,
    /// Seconds of CPU.
    pub cpu_seconds: u64,
    /// What may be added to the memory that it has mapped at its start.
    pub more_memory_bytes: u64,
}

/// Confines this process.
///
/// # Errors
/// What could not be given away. A kernel without Landlock is none: user and system calls are limited all the same.
pub fn confine(keeps: &Confinement<'_>) -> Result<(), String> {
    let cannot = |what: &str| {
        let what = what.to_owned();
        move |error: &dyn std::fmt::Display| format!("{what} cannot be given away: {error}")
    };
    let mapped = mapped().map_err(|error| cannot("memory")(&error))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // The rules need the directory before it is another user's process that asks for it.
    let ruleset = files(keeps).map_err(|error| cannot("files")(&error))?;
    if let Some(number) = keeps.user {
        let (uid, gid) = (nix::unistd::Uid::from_raw(number), nix::unistd::Gid::from_raw(number));
        nix::unistd::setgroups(&[gid]).map_err(|error| cannot("groups")(&error))?;
        nix::unistd::setresgid(gid, gid, gid).map_err(|error| cannot("the group")(&error))?;
        nix::unistd::setresuid(uid, uid, uid).map_err(|error| cannot("the user")(&error))?;
    }
    rustix::thread::set_no_new_privs(true).map_err(|error| cannot("privileges")(&error))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| cannot("memory")(&error))?;
    if let Some(ruleset) = ruleset {
        ruleset.restrict_self().map_err(|error| cannot("files")(&error))?;
    }
    for (resource, most) in [
        (Resource::Fsize, keeps.file_bytes),
        (Resource::Core, 0),
        (Resource::Nofile, keeps.open_files),
        (Resource::Cpu, keeps.cpu_seconds),
        (Resource::As, mapped.saturating_add(keeps.more_memory_bytes)),
    ] {
        let now = rustix::process::getrlimit(resource).maximum;
        let most = now.map_or(most, |now| now.min(most));
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        rustix::process::setrlimit(resource, limit).map_err(|error| cannot("resources")(&error))?;
    }
    calls(keeps.has_network).map_err(|error| cannot("programs")(&error))
}

/// Bytes of memory that the process has mapped.
fn mapped() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().next().and_then(|pages| pages.parse::<u64>().ok());
    pages
        .map(|pages| pages.saturating_mul(rustix::param::page_size() as u64))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What is left to read and to write; none where the kernel has no Landlock.
fn files(keeps: &Confinement<'_>) -> Result<Option<landlock::RulesetCreated>, landlock::RulesetError> {
    let abi = ABI::V6;
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let ruleset = ruleset.handle_access(AccessFs::from_all(abi))?.handle_access(AccessNet::BindTcp)?;
    let ruleset = if keeps.has_network { ruleset } else { ruleset.handle_access(AccessNet::ConnectTcp)? };
    let created = ruleset
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .create()?
        .add_rules(path_beneath_rules(keeps.readable, AccessFs::from_read(abi) & !AccessFs::Execute))?;
    if !keeps.writes_here {
        return Ok(Some(created));
    }
    // Without the directory there is nothing to write into: the first file says so.
    let Ok(here) = PathFd::new(".") else { return Ok(Some(created)) };
    Ok(Some(created.add_rule(PathBeneath::new(here, AccessFs::from_all(abi) & !AccessFs::Execute))?))
}

/// No programs, no links, no devices, and none of the calls that lead into the kernel's depths.
fn calls(has_network: bool) -> Result<(), String> {
    let refused = [
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_bpf,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_io_uring_setup,
        libc::SYS_userfaultfd,
        libc::SYS_perf_event_open,
        libc::SYS_open_by_handle_at,
        libc::SYS_symlinkat,
        libc::SYS_linkat,
        libc::SYS_mknodat,
        libc::SYS_memfd_create,
        libc::SYS_kcmp,
        libc::SYS_pidfd_getfd,
    ];
    let mut rules: Rules = refused.into_iter().map(|call| (call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    rules.extend(
        [libc::SYS_fork, libc::SYS_vfork, libc::SYS_symlink, libc::SYS_link, libc::SYS_mknod]
            .map(|call| (call, Vec::new())),
    );
    if !has_network {
        rules.extend([libc::SYS_socket, libc::SYS_socketpair, libc::SYS_connect].map(|call| (call, Vec::new())));
    }
    // Threads, but no processes: none outlives this one and changes what the caller has looked at.
    let is_process = SeccompCmpOp::MaskedEq(u64::try_from(libc::CLONE_THREAD).map_err(|error| error.to_string())?);
    let is_process =
        SeccompCondition::new(0, SeccompCmpArgLen::Qword, is_process, 0).and_then(|is| SeccompRule::new(vec![is]));
    rules.insert(libc::SYS_clone, vec![is_process.map_err(|error| error.to_string())?]);
    refuse(rules, libc::EPERM)?;
    // Its arguments lie in memory, where no filter sees them. Libraries take the other call then.
    refuse([(libc::SYS_clone3, Vec::new())].into(), libc::ENOSYS)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn refuse(rules: Rules, errno: i32) -> Result<(), String> {
    let wrong = |error: BackendError| error.to_string();
    let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(wrong)?;
    let errno = u32::try_from(errno).map_err(|error| error.to_string())?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(wrong)?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}
