//! The system calls that load a program for devices and attach it to a group.

#![expect(unsafe_code, reason = "bpf has no safe interface without a library in C")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use super::devices::Instruction;

// Of `linux/bpf.h`.
const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const TYPE_CGROUP_DEVICE: u32 = 15;
const ATTACH_CGROUP_DEVICE: u32 = 6;
/// Programs of the groups above go on being asked too.
const ALLOW_MULTI: u32 = 2;

/// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`; the kernel takes what is left out as 0.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
}

/// The same for `BPF_PROG_ATTACH`.
#[repr(C)]
#[derive(Default)]
struct Attach {
    group: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let count = u32::try_from(program.len()).map_err(io::Error::other)?;
    let attributes = Load {
        kind: TYPE_CGROUP_DEVICE,
        instruction_count: count,
        instructions: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        ..Load::default()
    };
    // SAFETY: the struct is of the size that is told; the instructions and the license outlive the call, which only
    // reads them.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const attributes, size_of::<Load>()) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for us; nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets the processes of a group use only the devices that the program allows.
///
/// # Errors
/// When the kernel refuses the program, or this process has no right to it (`CAP_SYS_ADMIN`).
pub(super) fn allow_devices(group: &Path, program: &[Instruction]) -> io::Result<()> {
    let program = load(program)?;
    let group = File::open(group)?;
    let attributes = Attach {
        group: u32::try_from(group.as_raw_fd()).map_err(io::Error::other)?,
        program: u32::try_from(program.as_raw_fd()).map_err(io::Error::other)?,
        kind: ATTACH_CGROUP_DEVICE,
        flags: ALLOW_MULTI,
    };
    // SAFETY: the struct is of the size that is told, and both descriptors are open.
    let result = unsafe { libc::syscall(libc::SYS_bpf, PROG_ATTACH, &raw const attributes, size_of::<Attach>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether this process may load such programs at all.
///
/// # Errors
/// The kernel's refusal.
pub(super) fn try_devices(program: &[Instruction]) -> io::Result<()> {
    load(program).map(drop)
}
