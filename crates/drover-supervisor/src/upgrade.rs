//! Replacing the supervisor's program in its own process: what is handed over, and how it is taken up.
//!
//! The state goes through a sealed file in memory; the lock, the socket, the pidfds and the collecting ends of output
//! are simply left open. The process stays the parent of its tasks, and nothing of their output is lost. When the new
//! program cannot be executed the old one goes on.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::FdFlags;
use serde::{Deserialize, Serialize};

use super::sys;
use super::tasks::HandedTask;

/// The layout of the state. A program reads its own and the one before.
const LAYOUT: u32 = 1;

/// What the next program needs.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Handover {
    layout: u32,
    pub(super) lock: i32,
    pub(super) listener: i32,
    pub(super) open_files: u64,
    pub(super) tasks: Vec<HandedTask>,
}

impl Handover {
    /// A state with these descriptors, which stay open over the start of the next program.
    pub(super) fn new(
        lock: &OwnedFd,
        listener: impl AsFd,
        open_files: u64,
        tasks: Vec<HandedTask>,
    ) -> io::Result<Self> {
        for fd in [lock.as_fd(), listener.as_fd()] {
            rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
        }
        let (lock, listener) = (lock.as_raw_fd(), listener.as_fd().as_raw_fd());
        Ok(Self { layout: LAYOUT, lock, listener, open_files, tasks })
    }

    /// Becomes the next program. Returns only when that failed.
    pub(super) fn execute(&self, binary: &Path, state_dir: &Path, alloc_dir: &Path) -> io::Error {
        let memory = match self.write() {
            Ok(memory) => memory,
            Err(error) => return error,
        };
        Command::new(binary)
            .args(["supervisor", "--state-dir"])
            .arg(state_dir)
            .arg("--alloc-dir")
            .arg(alloc_dir)
            .args(["--resume", &memory.as_raw_fd().to_string()])
            .exec()
    }

    fn write(&self) -> io::Result<File> {
        let memory = rustix::fs::memfd_create("drover-supervisor", MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(memory);
        file.write_all(&serde_json::to_vec(self).map_err(io::Error::other)?)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    }

    /// Reads what the program before this one has left.
    pub(super) fn read(raw: i32) -> io::Result<Self> {
        let mut file = File::from(sys::inherited(raw)?);
        file.rewind()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let state: Self = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
        if state.layout > LAYOUT {
            let reason = format!("the state has layout {}, newer than {LAYOUT}: use the newer droverd", state.layout);
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(state)
    }
}
