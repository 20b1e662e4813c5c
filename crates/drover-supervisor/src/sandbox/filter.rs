//! The system calls that a sandboxed task gets: those of the default profile of container runtimes, as of 2026. All
//! others are refused.
//!
//! Source of the table: the profile that Docker, containerd and Podman start containers with. It differs in three
//! places: sockets of packets and of the kernel's cipher service are refused beside those of virtual machines;
//! what a capability permits counts only where the node lets the task have that capability; and programs of another
//! architecture (32 bits) end at their first call, because numbers mean other calls there. The x32 numbers of
//! x86-64 are in no table.

use std::collections::BTreeMap;
use std::io;

use super::rights;
use libc::c_long;
use rustix::thread::CapabilitySet;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// A system call: `SYS_` and its name, and its number.
type SystemCall = (&'static str, c_long);

macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// What every task may call.
const ALLOWED: &[SystemCall] = calls! {
    SYS_accept SYS_accept4 SYS_adjtimex SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir SYS_clock_adjtime
    SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_close SYS_close_range SYS_connect SYS_copy_file_range
    SYS_dup SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_execve
    SYS_execveat SYS_exit SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fanotify_mark
    SYS_fchdir SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flistxattr
    SYS_flock SYS_fremovexattr SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_futex_waitv
    SYS_getcpu SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getgroups SYS_getitimer
    SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid SYS_getpriority SYS_getrandom SYS_getresgid SYS_getresuid
    SYS_getrlimit SYS_get_robust_list SYS_getrusage SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid
    SYS_gettimeofday SYS_getuid SYS_getxattr SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch
    SYS_io_cancel SYS_ioctl SYS_io_destroy SYS_io_getevents SYS_ioprio_get SYS_ioprio_set
    SYS_io_setup SYS_io_submit SYS_kill SYS_landlock_add_rule SYS_landlock_create_ruleset SYS_landlock_restrict_self
    SYS_lgetxattr SYS_linkat SYS_listen SYS_listxattr SYS_llistxattr SYS_lremovexattr SYS_lseek SYS_lsetxattr
    SYS_madvise SYS_membarrier SYS_memfd_create SYS_memfd_secret SYS_mincore SYS_mkdirat SYS_mknodat SYS_mlock
    SYS_mlock2 SYS_mlockall SYS_mmap SYS_mprotect SYS_mq_getsetattr SYS_mq_notify SYS_mq_open SYS_mq_timedreceive
    SYS_mq_timedsend SYS_mq_unlink SYS_mremap SYS_msgctl SYS_msgget SYS_msgrcv SYS_msgsnd SYS_msync SYS_munlock
    SYS_munlockall SYS_munmap SYS_name_to_handle_at SYS_nanosleep SYS_newfstatat SYS_openat SYS_openat2
    SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_ppoll SYS_prctl
    SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64 SYS_process_mrelease SYS_process_vm_readv SYS_process_vm_writev
    SYS_pselect6 SYS_ptrace SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlinkat SYS_readv
    SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_remap_file_pages SYS_removexattr SYS_renameat SYS_renameat2
    SYS_restart_syscall SYS_rseq SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo
    SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sched_getaffinity
    SYS_sched_getattr SYS_sched_getparam SYS_sched_get_priority_max SYS_sched_get_priority_min
    SYS_sched_getscheduler SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_setattr SYS_sched_setparam
    SYS_sched_setscheduler SYS_sched_yield SYS_seccomp SYS_semctl SYS_semget SYS_semop SYS_semtimedop SYS_sendfile
    SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_setfsgid SYS_setfsuid SYS_setgid SYS_setgroups SYS_setitimer SYS_setpgid
    SYS_setpriority SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid SYS_setrlimit SYS_set_robust_list
    SYS_setsid SYS_setsockopt SYS_set_tid_address SYS_setuid SYS_setxattr SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget
    SYS_shutdown SYS_sigaltstack SYS_signalfd4 SYS_socketpair SYS_splice SYS_statfs SYS_statx SYS_symlinkat SYS_sync
    SYS_sync_file_range SYS_syncfs SYS_sysinfo SYS_tee SYS_tgkill SYS_timer_create SYS_timer_delete
    SYS_timer_getoverrun SYS_timer_gettime SYS_timer_settime SYS_timerfd_create SYS_timerfd_gettime
    SYS_timerfd_settime SYS_times SYS_tkill SYS_truncate SYS_umask SYS_uname SYS_unlinkat SYS_utimensat SYS_vmsplice
    SYS_wait4 SYS_waitid SYS_write SYS_writev
};

/// The older forms of these that x86-64 has and ARM has not.
#[cfg(target_arch = "x86_64")]
const OLDER: &[SystemCall] = calls! {
    SYS_access SYS_alarm SYS_arch_prctl SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_create SYS_epoll_ctl_old
    SYS_epoll_wait SYS_epoll_wait_old SYS_eventfd SYS_fork SYS_futimesat SYS_getdents SYS_getpgrp SYS_get_thread_area
    SYS_inotify_init SYS_lchown SYS_link SYS_lstat SYS_mkdir SYS_mknod SYS_modify_ldt SYS_open SYS_pause SYS_pipe
    SYS_poll SYS_readlink SYS_rename SYS_rmdir SYS_select SYS_set_thread_area SYS_signalfd SYS_stat SYS_symlink
    SYS_time SYS_unlink SYS_utime SYS_utimes SYS_vfork
};
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[SystemCall] = &[];

/// `io_pgetevents`, which C libraries disagree on: the numbers of `arch/x86/entry/syscalls/syscall_64.tbl` and of
/// `asm-generic/unistd.h`, which ARM uses.
const IO_PGETEVENTS: SystemCall = ("SYS_io_pgetevents", if cfg!(target_arch = "x86_64") { 333 } else { 292 });

/// Newer calls, which have one number on all architectures; C libraries do not know them all. By the kernel's table
/// `scripts/syscall.tbl` they are these.
const NEWER: [SystemCall; 13] = [
    ("SYS_cachestat", 451),
    ("SYS_fchmodat2", 452),
    ("SYS_map_shadow_stack", 453),
    ("SYS_futex_wake", 454),
    ("SYS_futex_wait", 455),
    ("SYS_futex_requeue", 456),
    ("SYS_statmount", 457),
    ("SYS_listmount", 458),
    ("SYS_mseal", 462),
    ("SYS_setxattrat", 463),
    ("SYS_getxattrat", 464),
    ("SYS_listxattrat", 465),
    ("SYS_removexattrat", 466),
];

/// The newest call that the table has an opinion on (`file_setattr`). What comes later does not exist for a task, so
/// that its C library falls back to what does.
const NEWEST: c_long = 469;
/// Numbers from here on are none of the kernel's (x86-64 has old x32 forms there).
const END: c_long = 512;

/// What a capability permits beside that, by its bit.
const WITH_CAPABILITY: &[(CapabilitySet, &[SystemCall])] = &[
    (CapabilitySet::DAC_READ_SEARCH, calls! { SYS_open_by_handle_at }),
    (
        CapabilitySet::SYS_ADMIN,
        calls! {
            SYS_bpf SYS_clone SYS_clone3 SYS_fanotify_init SYS_fsconfig SYS_fsmount SYS_fsopen SYS_fspick SYS_mount
            SYS_mount_setattr SYS_move_mount SYS_open_tree SYS_perf_event_open SYS_quotactl SYS_setdomainname
            SYS_sethostname SYS_setns SYS_syslog SYS_umount2 SYS_unshare
        },
    ),
    (CapabilitySet::SYS_BOOT, calls! { SYS_reboot }),
    (CapabilitySet::SYS_CHROOT, calls! { SYS_chroot }),
    (CapabilitySet::SYS_MODULE, calls! { SYS_delete_module SYS_init_module SYS_finit_module }),
    (CapabilitySet::SYS_PACCT, calls! { SYS_acct }),
    (CapabilitySet::SYS_PTRACE, calls! { SYS_kcmp SYS_pidfd_getfd SYS_process_madvise }),
    #[cfg(target_arch = "x86_64")]
    (CapabilitySet::SYS_RAWIO, calls! { SYS_iopl SYS_ioperm }),
    (CapabilitySet::SYS_TIME, calls! { SYS_settimeofday SYS_clock_settime }),
    (CapabilitySet::SYS_TTY_CONFIG, calls! { SYS_vhangup }),
    (CapabilitySet::SYS_NICE, calls! { SYS_get_mempolicy SYS_mbind SYS_set_mempolicy }),
    (CapabilitySet::SYSLOG, calls! { SYS_syslog }),
    (CapabilitySet::BPF, calls! { SYS_bpf }),
    (CapabilitySet::PERFMON, calls! { SYS_perf_event_open }),
];

/// Flags of `clone` that make namespaces.
const NEW_NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// Sockets that reach beside the network: raw packets of the device, the kernel's ciphers, and the host of a virtual
/// machine.
const NO_SOCKETS: [libc::c_int; 3] = [libc::AF_PACKET, libc::AF_ALG, libc::AF_VSOCK];

/// What `personality` may be told: Linux, its 32-bit form, either with the old layout of addresses, and the question
/// what it is.
const PERSONALITIES: [u64; 5] = [0x0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

/// Installs the filter for this process and all that follow from it. It needs `no_new_privs`.
pub(super) fn install(bounding: CapabilitySet) -> io::Result<()> {
    apply(allowed(bounding)?, SeccompAction::Errno(code(libc::EPERM)?), SeccompAction::Allow)?;
    // Of two refusals the one of the filter that came last counts. The arguments of clone3 are in memory, where a
    // filter cannot look; programs fall back to clone.
    let clone3 = (!bounding.contains(CapabilitySet::SYS_ADMIN)).then_some(libc::SYS_clone3);
    let unknown = (NEWEST + 1..END).chain(clone3).map(|call| (call, Vec::new())).collect();
    apply(unknown, SeccompAction::Allow, SeccompAction::Errno(code(libc::ENOSYS)?))
}

fn apply(calls: BTreeMap<c_long, Vec<SeccompRule>>, others: SeccompAction, these: SeccompAction) -> io::Result<()> {
    let filter = SeccompFilter::new(calls, others, these, ARCH).map_err(io::Error::other)?;
    let program = BpfProgram::try_from(filter).map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

fn code(errno: libc::c_int) -> io::Result<u32> {
    u32::try_from(errno).map_err(io::Error::other)
}

/// What every task may call, whatever it has.
fn plain() -> impl Iterator<Item = &'static SystemCall> {
    ALLOWED.iter().chain(OLDER).chain(&NEWER).chain([&IO_PGETEVENTS])
}

/// What the first argument of a call must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstArgument {
    /// Anything.
    Any,
    /// This.
    Equal(u64),
    /// Less than this.
    Below(u64),
    /// More than this.
    Above(u64),
    /// Without any of these bits.
    Without(u64),
}

/// The calls that pass for a task whose capabilities are among these, by name, for a container's runtime: the same as
/// those of a sandbox. All others are refused; `clone3` does not exist for it where it is not among them.
///
/// # Errors
/// A capability that there is not.
pub fn permitted_calls(bounding: &[String]) -> io::Result<Vec<(&'static str, FirstArgument)>> {
    let bounding = rights::set_of(bounding)?;
    let gained = WITH_CAPABILITY.iter().filter(|(capability, _)| bounding.contains(*capability));
    let gained: Vec<SystemCall> = gained.flat_map(|(_, more)| more.iter().copied()).collect();
    let any = plain().copied().chain(gained.iter().copied()).map(|(name, _)| (name, FirstArgument::Any));
    let mut calls: Vec<(&'static str, FirstArgument)> = any.collect();
    if !gained.iter().any(|(name, _)| *name == "SYS_clone") {
        let namespaces = u64::try_from(NEW_NAMESPACES).map_err(io::Error::other)?;
        calls.push(("SYS_clone", FirstArgument::Without(namespaces)));
    }
    let families = NO_SOCKETS.map(|family| u64::try_from(family).map_err(io::Error::other));
    let mut families = families.into_iter().collect::<io::Result<Vec<u64>>>()?;
    families.sort_unstable();
    // One condition on an argument is all that runtimes take: what is not refused is listed.
    let (first, last) = (families[0], families[NO_SOCKETS.len() - 1]);
    let between = (first + 1..last).filter(|family| !families.contains(family)).map(FirstArgument::Equal);
    let sockets = [FirstArgument::Below(first), FirstArgument::Above(last)].into_iter().chain(between);
    calls.extend(sockets.map(|argument| ("SYS_socket", argument)));
    calls.extend(PERSONALITIES.map(|value| ("SYS_personality", FirstArgument::Equal(value))));
    for (name, _) in &mut calls {
        *name = name.trim_start_matches("SYS_");
    }
    Ok(calls)
}

/// The calls that pass, each with the arguments that pass; none: any.
fn allowed(bounding: CapabilitySet) -> io::Result<BTreeMap<c_long, Vec<SeccompRule>>> {
    let mut calls: BTreeMap<c_long, Vec<SeccompRule>> = plain().map(|(_, call)| (*call, Vec::new())).collect();
    let namespaces = u64::try_from(NEW_NAMESPACES).map_err(io::Error::other)?;
    calls.insert(libc::SYS_clone, vec![rule([(SeccompCmpOp::MaskedEq(namespaces), 0)])?]);
    let families = NO_SOCKETS.map(|family| u64::try_from(family).map_err(io::Error::other));
    let families = families.into_iter().collect::<io::Result<Vec<u64>>>()?;
    calls.insert(libc::SYS_socket, vec![rule(families.into_iter().map(|family| (SeccompCmpOp::Ne, family)))?]);
    let personalities = PERSONALITIES.map(|value| rule([(SeccompCmpOp::Eq, value)]));
    calls.insert(libc::SYS_personality, personalities.into_iter().collect::<io::Result<_>>()?);
    for (_, more) in WITH_CAPABILITY.iter().filter(|(capability, _)| bounding.contains(*capability)) {
        calls.extend(more.iter().map(|(_, call)| (*call, Vec::new())));
    }
    Ok(calls)
}

/// The first argument meets all of these. The kernel looks at its lower 32 bits in each of the calls that have rules.
fn rule(conditions: impl IntoIterator<Item = (SeccompCmpOp, u64)>) -> io::Result<SeccompRule> {
    let conditions = conditions
        .into_iter()
        .map(|(test, value)| SeccompCondition::new(0, SeccompCmpArgLen::Dword, test, value).map_err(io::Error::other))
        .collect::<io::Result<Vec<_>>>()?;
    SeccompRule::new(conditions).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_that_changes_the_machine_passes_without_its_capability() {
        let calls = allowed(CapabilitySet::empty()).expect("a table");
        for call in WITH_CAPABILITY.iter().flat_map(|(_, calls)| *calls).filter(|(_, call)| *call != libc::SYS_clone) {
            assert!(!calls.contains_key(&call.1), "call {}", call.0);
        }
        for call in [
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_userfaultfd,
            libc::SYS_kexec_load,
            libc::SYS_pivot_root,
            libc::SYS_swapon,
        ] {
            assert!(!calls.contains_key(&call), "call {call}");
        }
        assert!(calls.keys().all(|call| *call < NEWEST), "one filter says yes, the other that there is no such call");
    }

    #[test]
    fn a_capability_brings_its_calls_and_no_others() {
        let without = allowed(CapabilitySet::empty()).expect("a table");
        let with = allowed(CapabilitySet::SYS_CHROOT | CapabilitySet::SYS_TIME).expect("a table");
        let more: Vec<c_long> = with.keys().filter(|call| !without.contains_key(call)).copied().collect();
        let mut wanted = vec![libc::SYS_chroot, libc::SYS_settimeofday, libc::SYS_clock_settime];
        wanted.sort_unstable();
        assert_eq!(more, wanted);
    }
    #[test]
    fn a_container_may_call_what_a_sandbox_may() {
        for names in [vec![], vec!["SYS_CHROOT", "SYS_TIME"], vec!["SYS_ADMIN"]] {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            let filtered = allowed(rights::set_of(&names).expect("capabilities")).expect("a table");
            let permitted = permitted_calls(&names).expect("a table");
            let numbers: std::collections::BTreeSet<&str> = permitted.iter().map(|(name, _)| *name).collect();
            assert_eq!(numbers.len(), filtered.len(), "{names:?}");
        }
        let without = permitted_calls(&[]).expect("a table");
        let of = |call: &str| without.iter().filter(|(name, _)| *name == call).map(|(_, it)| *it).collect::<Vec<_>>();
        assert_eq!(of("read"), [FirstArgument::Any]);
        assert_eq!(of("clone"), [FirstArgument::Without(0x7e02_0000)]);
        assert_eq!(of("chroot"), []);
        let refused = [FirstArgument::Equal(17), FirstArgument::Equal(38), FirstArgument::Equal(40)];
        assert!(of("socket").len() == 23 && refused.iter().all(|argument| !of("socket").contains(argument)));
    }
}
