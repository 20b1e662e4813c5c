//! The system calls of the sandbox that have no safe wrapper: fork in a process with one thread, raising the loopback
//! device, and the attributes of a mount with all that lies below.

#![expect(unsafe_code, reason = "fork, the interface ioctls and mount_setattr have no safe interface")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::{AddressFamily, SocketType};

/// `SIOCGIFFLAGS` and `SIOCSIFFLAGS`: C libraries disagree on the type of a request, and so does the `libc` crate.
const GET_FLAGS: libc::Ioctl = 0x8913;
const SET_FLAGS: libc::Ioctl = 0x8914;

/// Forks; the parent gets the child's pid.
pub(super) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: the sandbox process has one thread, so the child may go on as the parent would.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// Raises `lo` in the network namespace of this process.
pub(super) fn raise_loopback() -> io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: ifreq is plain data, valid when zeroed; the kernel reads and writes it within its size.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo\0") {
            *to = libc::c_char::from_ne_bytes([*from]);
        }
        if libc::ioctl(socket.as_raw_fd(), GET_FLAGS, &raw mut request) < 0 {
            return Err(io::Error::last_os_error());
        }
        let up = libc::c_short::try_from(libc::IFF_UP).map_err(io::Error::other)?;
        request.ifr_ifru.ifru_flags |= up;
        if libc::ioctl(socket.as_raw_fd(), SET_FLAGS, &raw mut request) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// What a mount is forbidden, of `linux/mount.h`.
pub(super) mod attributes {
    pub(in super::super) const READ_ONLY: u64 = 1;
    pub(in super::super) const NO_SUID: u64 = 2;
    pub(in super::super) const NO_DEVICES: u64 = 4;
    pub(in super::super) const NO_EXEC: u64 = 8;
}

/// `struct mount_attr` of `linux/mount.h`.
#[repr(C)]
#[derive(Default)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Sets attributes of the mount that the descriptor leads to and of all mounts below it. None is ever taken away.
///
/// # Errors
/// `ENOSYS` on Linux before 5.12.
pub(super) fn restrict_mount(mount: BorrowedFd<'_>, attributes: u64) -> io::Result<()> {
    restrict(mount.as_raw_fd(), attributes)
}

/// Why mounts cannot be restricted with all that lies below; none: they can.
pub(super) fn missing() -> Option<io::Error> {
    // The kernel looks at the number of the call before it looks at the descriptor, which is none.
    restrict(-1, 0).err().filter(|error| error.raw_os_error() == Some(libc::ENOSYS))
}

fn restrict(mount: i32, set: u64) -> io::Result<()> {
    let wanted = MountAttributes { set, ..MountAttributes::default() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the path is NUL-terminated, the struct of the size that is told; the kernel only reads both.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount,
            c"".as_ptr(),
            flags,
            &raw const wanted,
            size_of::<MountAttributes>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
