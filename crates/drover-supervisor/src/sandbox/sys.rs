//! The system calls of the sandbox that have no safe wrapper: fork in a process with one thread, and raising the
//! loopback device.

#![expect(unsafe_code, reason = "fork and the interface ioctls have no safe interface")]

use std::io;
use std::os::fd::AsRawFd;

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
