//! A container: a task that a runtime has started and the supervisor adopts. Here is what the one who starts it must
//! know of the supervisor: the handle by which its first process is found.
//!
//! Must never know: images, and the runtime.

use std::io;

use super::processes;
use super::protocol::{CgroupHandle, Handle, LogSpec};

/// The first process of a container.
#[derive(Clone, Debug)]
pub struct ContainerProcess {
    /// The task's id.
    pub id: String,
    /// Its process, as the host numbers it. It has not been reaped.
    pub pid: i32,
    /// Where its output goes.
    pub logs: Option<LogSpec>,
    /// The grace when the whole node is powered off.
    pub kill_timeout_ms: u64,
    /// Its control group.
    pub cgroup: CgroupHandle,
}

impl ContainerProcess {
    /// What finds it again.
    ///
    /// # Errors
    /// When it is gone.
    pub fn handle(self) -> io::Result<Handle> {
        Ok(Handle {
            start_ticks: processes::stat(self.pid)?.start_ticks,
            boot_id: processes::boot_id()?,
            id: self.id,
            pid: self.pid,
            logs: self.logs,
            kill_timeout_ms: self.kill_timeout_ms,
            cgroup: Some(self.cgroup),
            is_sandboxed: true,
            is_container: true,
        })
    }
}
