//! The socket: made by descriptors in a directory that the task may change at any moment, so that nothing outside of it
//! is made or given away.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::UnixListener;

use crate::node::beneath::{Owner, Place};

/// The socket's name in the directory for secrets.
pub(super) const NAME: &str = "api.sock";
/// Connections that wait for their turn.
const BACKLOG: i32 = 16;
/// The longest path of a socket, as the kernel has it (`sun_path`, with its end).
const LONGEST_PATH: usize = 107;

/// Whether a task can connect by this path.
pub(super) fn is_too_long(path: &str) -> bool {
    path.len() > LONGEST_PATH
}

/// Listens in a directory, in place of an older socket. Only the owner connects.
///
/// # Errors
/// When the directory is none, something else has the name, or the kernel refuses.
pub(super) fn listen(dir: &Path, owner: Option<Owner>) -> io::Result<UnixListener> {
    let place = Place::open(dir)?;
    match rustix::fs::unlinkat(&place, NAME, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The kernel makes the file with the mode of the socket: there is no moment in which others connect.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o600))?;
    // A name that the kernel makes anew does not follow a link.
    rustix::net::bind(&socket, &SocketAddrUnix::new(format!("{}/{NAME}", place.path()))?)?;
    if let Some(owner) = owner {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        // What the task may have put there meanwhile is in this directory, and is not followed.
        rustix::fs::chownat(&place, NAME, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    rustix::net::listen(&socket, BACKLOG)?;
    UnixListener::from_std(StdListener::from(socket))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};

    use super::*;

    #[tokio::test]
    async fn a_socket_is_the_owners_alone_and_takes_the_place_of_what_had_its_name() {
        let (dir, outside) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let path = dir.path().join(NAME);
        let precious = outside.path().join("precious");
        fs::write(&precious, "safe").expect("a file");
        symlink(&precious, &path).expect("a link");
        let owner = rustix::process::geteuid().is_root().then_some(Owner { uid: 2_000_001, gid: 2_000_002 });
        for _ in 0..2 {
            let listener = listen(dir.path(), owner).expect("a socket");
            let found = fs::symlink_metadata(&path).expect("metadata");
            assert!(found.file_type().is_socket());
            assert_eq!(found.mode() & 0o7777, 0o600);
            if let Some(owner) = owner {
                assert_eq!((found.uid(), found.gid()), (owner.uid, owner.gid));
            }
            let (connected, accepted) =
                tokio::join!(tokio::net::UnixStream::connect(&path), async { listener.accept().await });
            assert!(connected.is_ok() && accepted.is_ok());
        }
        assert_eq!(fs::read_to_string(&precious).expect("a file"), "safe");
    }

    #[tokio::test]
    async fn must_survive_a_link_in_place_of_its_directory() {
        let (dir, outside) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        symlink(outside.path(), dir.path().join("secrets")).expect("a link");
        assert!(listen(&dir.path().join("secrets"), None).is_err());
        // A directory of that name is the task's, and stays.
        fs::create_dir(dir.path().join(NAME)).expect("a directory");
        assert!(listen(dir.path(), None).is_err());
        assert_eq!(fs::read_dir(outside.path()).expect("a list").count(), 0);
    }

    #[test]
    fn a_149_a_path_that_the_kernel_does_not_take_is_known_before() {
        let at = |n: usize| format!("/{}", "x".repeat(n - 1));
        assert_eq!([106, 107, 108].map(|n| is_too_long(&at(n))), [false, false, true]);
        // So it is for those who connect: the kernel itself would take one byte more, without an end.
        let is_taken = |n: usize| std::os::unix::net::SocketAddr::from_pathname(at(n)).is_ok();
        assert_eq!([107, 108].map(is_taken), [true, false]);
    }
}
