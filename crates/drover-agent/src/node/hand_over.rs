//! Giving the files of one user in a directory to another one, when an allocation goes on with the files of the one
//! that it replaces.
//!
//! By descriptors and without following a link. Files of third users stay theirs. No recursion; one descriptor is open
//! for each level, and what is deeper than [`MAX_DEPTH`] is refused: no data is that deep by itself.

use std::ffi::CStr;
use std::io;

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::beneath::{Owner, Place, give_to};

/// The most levels of directories.
const MAX_DEPTH: usize = 256;

const READABLE: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Gives all that belongs to user `from` in a directory of that name, the directory itself too. May take minutes: never
/// to be called on a thread that has other work.
///
/// # Errors
/// When the kernel refuses, or the directory is too deep; some of the files have the new owner then.
pub(super) fn hand_over(parent: &Place, name: &str, from: u32, to: Owner) -> io::Result<()> {
    let name = std::ffi::CString::new(name)?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let mut levels: Vec<Dir> = Vec::new();
    let mut next = Some(rustix::fs::openat2(parent, &*name, READABLE, Mode::empty(), resolve)?);
    loop {
        if let Some(dir) = next.take() {
            if levels.len() == MAX_DEPTH {
                let reason = format!("directories are nested more than {MAX_DEPTH} deep");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            }
            if rustix::fs::fstat(&dir)?.st_uid == from {
                give_to(&dir, to)?;
            }
            levels.push(Dir::new(dir)?);
        }
        let Some(level) = levels.last_mut() else { return Ok(()) };
        let Some(entry) = level.next() else {
            levels.pop();
            continue;
        };
        let entry = entry?;
        let inner = entry.file_name();
        if matches!(inner.to_bytes(), b"." | b"..") {
            continue;
        }
        let holder = level.fd()?;
        next = match rustix::fs::openat2(holder, inner, READABLE, Mode::empty(), resolve) {
            Ok(dir) => Some(dir),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                hand_over_file(holder, inner, from, to)?;
                None
            }
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
    }
}

/// A file that has other names may belong to another directory too.
fn hand_over_file(holder: impl std::os::fd::AsFd, name: &CStr, from: u32, to: Owner) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = match rustix::fs::openat(holder, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let found = rustix::fs::fstat(&held)?;
    let is_alone = found.st_nlink == 1 || FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    if found.st_uid == from && is_alone {
        // The kernel takes set-user-id bits away with that.
        give_to(&held, to)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};

    use super::*;

    #[test]
    fn files_of_the_earlier_user_are_given_and_those_of_others_and_behind_links_are_not() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (dir, outside) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let data = dir.path().join("data");
        fs::create_dir_all(data.join("a/b")).expect("directories");
        for path in [&data.join("a/b/file"), &data.join("other"), &outside.path().join("precious")] {
            fs::write(path, "").expect("a file");
        }
        symlink(outside.path(), data.join("a/link")).expect("a link");
        for path in ["", "a", "a/b", "a/b/file", "a/link"] {
            lchown(data.join(path), Some(41), Some(41)).expect("given");
        }
        fs::set_permissions(data.join("a/b/file"), fs::Permissions::from_mode(0o4755)).expect("a mode");
        lchown(outside.path().join("precious"), Some(41), Some(41)).expect("given");
        lchown(data.join("other"), Some(43), Some(43)).expect("given");

        let parent = Place::open(dir.path()).expect("opened");
        hand_over(&parent, "data", 41, Owner { uid: 42, gid: 42 }).expect("handed over");
        let uid = |path: &str| fs::symlink_metadata(data.join(path)).expect(path).uid();
        assert_eq!(["", "a", "a/b", "a/b/file", "a/link"].map(uid), [42; 5]);
        let mode = fs::metadata(data.join("a/b/file")).expect("metadata").mode();
        assert_eq!((uid("other"), mode & 0o7777), (43, 0o755));
        assert_eq!(fs::metadata(outside.path().join("precious")).expect("metadata").uid(), 41);
        assert_eq!(fs::metadata(outside.path()).expect("metadata").uid(), 0);
    }

    #[test]
    fn what_is_nested_too_deep_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(dir.path().join("data").join("d/".repeat(MAX_DEPTH))).expect("directories");
        let parent = Place::open(dir.path()).expect("opened");
        let error = hand_over(&parent, "data", 41, Owner { uid: 42, gid: 42 }).expect_err("refused");
        assert!(error.to_string().contains("256 deep"), "{error}");
    }
}
