//! Directories that are made and changed where tasks may write: by descriptors, never by a path, and without following
//! a link.
//!
//! Input: a directory that is held open, a name in it. Whatever a task puts in the place of that name, at whatever
//! moment, nothing outside of the directory is made, opened or changed. Must never know what a directory is for.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory, held open as a place: it can be neither read nor written through.
#[derive(Debug)]
pub(crate) struct Place(OwnedFd);

/// Whose a directory becomes: numbers of a user and of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The number of the user `nobody`, and of its group.
pub(crate) const NOBODY: u32 = 65534;

/// The user `nobody`, to whom an agent that is root gives what it makes for tasks without a user of their own.
pub(crate) fn nobody() -> Option<Owner> {
    rustix::process::geteuid().is_root().then_some(Owner { uid: NOBODY, gid: NOBODY })
}

impl Place {
    /// Opens a directory by a path that no task can change, but for its last part, which must be no link.
    ///
    /// # Errors
    /// When nothing is there, or something else than a directory.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?))
    }

    /// Opens a directory of this one; none: something else is there.
    ///
    /// # Errors
    /// When nothing is there, or the kernel refuses.
    pub(crate) fn directory(&self, name: &str) -> io::Result<Option<Self>> {
        match rustix::fs::openat(&self.0, name, DIRECTORY, Mode::empty()) {
            Ok(found) => Ok(Some(Self(found))),
            Err(Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a directory with exactly this mode and owner, and opens it. One that is there stays as it is, but for one
    /// of the agent's own, which an earlier life made and did not give away. None: something else is there, and stays.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn make(&self, name: &str, mode: u32, owner: Option<Owner>) -> io::Result<Option<Self>> {
        let is_new = match rustix::fs::mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let Some(place) = self.directory(name)? else { return Ok(None) };
        let found = place.stat()?;
        let is_ours = found.st_uid == rustix::process::geteuid().as_raw();
        let is_unfinished = owner.is_some_and(|owner| (owner.uid, owner.gid) != (found.st_uid, found.st_gid));
        // Between both calls a task may have put a directory of its own there.
        if is_ours && (is_new || is_unfinished) {
            place.set_mode(mode)?;
            if let Some(owner) = owner {
                place.give_to(owner)?;
            }
        }
        Ok(Some(place))
    }

    /// What it is.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.0)?)
    }

    /// Whether something is mounted on it, seen from the directory that holds it.
    pub(crate) fn is_mounted_in(&self, parent: &Self) -> io::Result<bool> {
        Ok(self.stat()?.st_dev != parent.stat()?.st_dev)
    }

    /// A name that leads to the directory itself and to nothing else, while it is held.
    pub(crate) fn path(&self) -> String {
        held_path(&self.0)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        set_mode(&self.0, mode)
    }

    fn give_to(&self, owner: Owner) -> io::Result<()> {
        give_to(&self.0, owner)
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Adds these bits to the mode of a regular file that has no other name and lies beneath a directory, without following
/// a link on the way. False: it is no such file.
///
/// # Errors
/// When there is nothing of the name, or the kernel refuses.
pub(crate) fn add_mode(beneath: &Path, file: &Path, bits: u32) -> io::Result<bool> {
    let root = Place::open(beneath)?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let held = rustix::fs::openat2(&root, file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    let found = rustix::fs::fstat(&held)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || found.st_nlink != 1 {
        return Ok(false);
    }
    set_mode(&held, (found.st_mode & 0o7777) | bits)?;
    Ok(true)
}

/// Changes the mode of what is held, which may be held as a place only.
pub(super) fn set_mode(held: &impl AsFd, mode: u32) -> io::Result<()> {
    // Of a place alone the kernel changes no mode; this name of it is no link that a task could make.
    Ok(rustix::fs::chmodat(CWD, held_path(held), Mode::from_raw_mode(mode), AtFlags::empty())?)
}

/// Changes the owner of what is held.
pub(crate) fn give_to(held: &impl AsFd, owner: Owner) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    Ok(rustix::fs::chownat(held, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?)
}

/// A name that leads to what is held and to nothing else, while it is held.
pub(crate) fn held_path(held: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", held.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_directory_gets_its_mode_and_one_that_is_there_keeps_its_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = Place::open(dir.path()).expect("opened");
        let mode = |name: &str| fs::metadata(dir.path().join(name)).expect(name).mode() & 0o7777;
        place.make("a", 0o1777, None).expect("made").expect("a directory");
        fs::create_dir(dir.path().join("b")).expect("a directory");
        fs::set_permissions(dir.path().join("b"), fs::Permissions::from_mode(0o750)).expect("a mode");
        place.make("b", 0o777, None).expect("it is there").expect("a directory");
        assert_eq!((mode("a"), mode("b")), (0o1777, 0o750));
    }

    #[test]
    fn what_an_earlier_life_did_not_give_away_is_given_away() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let place = Place::open(dir.path()).expect("opened");
        fs::create_dir(dir.path().join("a")).expect("a directory");
        place.make("a", 0o777, Some(Owner { uid: 7, gid: 8 })).expect("made");
        let found = fs::metadata(dir.path().join("a")).expect("metadata");
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (7, 8, 0o777));
    }

    #[test]
    fn a_link_is_neither_followed_nor_replaced() {
        let (dir, outside) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let place = Place::open(dir.path()).expect("opened");
        symlink(outside.path(), dir.path().join("a")).expect("a link");
        let before = fs::metadata(outside.path()).expect("metadata");
        assert!(place.make("a", 0o777, Some(Owner { uid: 7, gid: 7 })).expect("an answer").is_none());
        assert!(place.directory("a").expect("an answer").is_none());
        let after = fs::metadata(outside.path()).expect("metadata");
        assert_eq!((before.mode(), before.uid()), (after.mode(), after.uid()));
    }

    #[test]
    fn only_a_file_of_its_own_becomes_executable() {
        let (dir, outside) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let shadow = outside.path().join("shadow");
        fs::write(&shadow, "secret").expect("a file");
        fs::set_permissions(&shadow, fs::Permissions::from_mode(0o600)).expect("a mode");
        symlink(&shadow, dir.path().join("link")).expect("a link");
        fs::hard_link(&shadow, outside.path().join("twin")).expect("a link");
        fs::write(dir.path().join("own"), "").expect("a file");
        let mode = |path: &Path| fs::metadata(path).expect("metadata").mode() & 0o777;
        assert!(add_mode(dir.path(), Path::new("link"), 0o555).is_err());
        assert!(!add_mode(outside.path(), Path::new("twin"), 0o555).expect("an answer"));
        assert!(add_mode(dir.path(), Path::new("own"), 0o555).expect("an answer"));
        assert_eq!((mode(&shadow), mode(&dir.path().join("own")) & 0o111), (0o600, 0o111));
    }
}
