//! Signals by their names.

/// The number of a signal by its name, with or without `SIG`; SIGINT, with a warning, for one that does not exist.
pub(crate) fn signal_number(name: &str) -> i32 {
    let short = name.trim().trim_start_matches("SIG");
    SIGNALS.iter().find(|(known, _)| *known == short).map_or_else(
        || {
            tracing::warn!(signal = name, "no such signal: SIGINT is used");
            libc::SIGINT
        },
        |(_, number)| *number,
    )
}

/// The signals that tasks can be sent, by name.
pub(crate) const SIGNALS: &[(&str, i32)] = &[
    ("ABRT", libc::SIGABRT),
    ("ALRM", libc::SIGALRM),
    ("BUS", libc::SIGBUS),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("FPE", libc::SIGFPE),
    ("HUP", libc::SIGHUP),
    ("ILL", libc::SIGILL),
    ("INT", libc::SIGINT),
    ("IO", libc::SIGIO),
    ("KILL", libc::SIGKILL),
    ("PIPE", libc::SIGPIPE),
    ("PROF", libc::SIGPROF),
    ("QUIT", libc::SIGQUIT),
    ("SEGV", libc::SIGSEGV),
    ("STOP", libc::SIGSTOP),
    ("SYS", libc::SIGSYS),
    ("TERM", libc::SIGTERM),
    ("TRAP", libc::SIGTRAP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("WINCH", libc::SIGWINCH),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
];
