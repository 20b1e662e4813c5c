//! Paths that lead to a descriptor's file.

use std::os::fd::OwnedFd;

/// Keeps a descriptor of a directory for as long as its path in `/proc` is used.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) fd: OwnedFd,
}

impl Held {
    /// A path that leads to exactly this descriptor's file.
    pub(super) fn path(&self) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }
}
