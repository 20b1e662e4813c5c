//! Taking a directory away with everything that tasks have made in it.
//!
//! No recursion and no path: a directory that is not empty is moved up to the top, and its parent can go. So at most
//! five descriptors are open and nothing is remembered, whatever depth and number of files a task has made. No link is
//! followed, and nothing is entered that is mounted. May take minutes: never to be called on a thread that has other
//! work.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::beneath::set_mode;

const READABLE: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Takes away a directory and all that is in it, or a file. What is not there is no error.
///
/// # Errors
/// The first thing that the kernel refused, after everything else has gone: a place where something is mounted stays.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = match rustix::fs::openat(CWD, parent, READABLE, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let name = std::ffi::CString::new(name.as_encoded_bytes())?;
    let top = match open(&parent, &name) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(gone(rustix::fs::unlinkat(&parent, &name, AtFlags::empty()))?),
        Err(error) => return Err(error.into()),
    };
    let mut removal = Removal { top, next: 0, removed: 0, refused: None };
    loop {
        let before = removal.removed;
        removal.refused = None;
        removal.pass()?;
        match gone(rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR)) {
            Ok(()) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) if removal.removed > before => {}
            Err(error) => return Err(removal.refused.unwrap_or(error).into()),
        }
    }
}

/// One directory on its way out.
#[derive(Debug)]
struct Removal {
    top: OwnedFd,
    /// The number of the next directory that is moved up.
    next: u64,
    /// What was taken away, so that it is known when nothing can be.
    removed: u64,
    /// What was refused first.
    refused: Option<Errno>,
}

impl Removal {
    /// Looks at everything that is at the top.
    fn pass(&mut self) -> rustix::io::Result<()> {
        for entry in Dir::read_from(&self.top)? {
            let entry = entry?;
            let name = entry.file_name();
            if is_dots(name) {
                continue;
            }
            let (removed, mut refused) = (self.take_away_file(None, name, entry.file_type()), None);
            match removed {
                Ok(true) => continue,
                // Its last directory comes next at once: of a chain of them each is looked for once.
                Ok(false) => {
                    let mut inner = Some(name.to_owned());
                    while let Some(name) = inner {
                        match self.empty(&name) {
                            Ok(last) => inner = last,
                            Err(error) => {
                                refused = Some(error);
                                break;
                            }
                        }
                    }
                }
                Err(error) => refused = Some(error),
            }
            self.note(refused);
        }
        Ok(())
    }

    /// Empties a directory at the top and takes it away. What is in it and not empty is moved up; returns the name that
    /// the last of that has now.
    fn empty(&mut self, name: &CStr) -> rustix::io::Result<Option<std::ffi::CString>> {
        let dir = match open(&self.top, name) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut last = None;
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let inner = entry.file_name();
            if is_dots(inner) {
                continue;
            }
            let step = match self.take_away_file(Some(&dir), inner, entry.file_type()) {
                Ok(false) => self.move_up(&dir, inner).map(|moved| last = moved.or(last.take())),
                Ok(true) => Ok(()),
                Err(error) => Err(error),
            };
            self.note(step.err());
        }
        match gone(rustix::fs::unlinkat(&self.top, name, AtFlags::REMOVEDIR)) {
            Ok(()) => self.removed += 1,
            // What was refused in it has been noted; what came meanwhile is found by the next look.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => self.note(Some(error)),
        }
        Ok(last)
    }

    /// Takes away everything but a directory; false: it is one.
    fn take_away_file(&mut self, dir: Option<&OwnedFd>, name: &CStr, kind: FileType) -> rustix::io::Result<bool> {
        if kind == FileType::Directory {
            return Ok(false);
        }
        match gone(rustix::fs::unlinkat(dir.unwrap_or(&self.top), name, AtFlags::empty())) {
            Ok(()) => {
                self.removed += 1;
                Ok(true)
            }
            Err(Errno::ISDIR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes an empty directory away, and moves another one to the top under a name that is free.
    fn move_up(&mut self, dir: &OwnedFd, name: &CStr) -> rustix::io::Result<Option<std::ffi::CString>> {
        match gone(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)) {
            Ok(()) => {
                self.removed += 1;
                return Ok(None);
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let mut is_granted = false;
        loop {
            let to = std::ffi::CString::new(format!(".going.{}", self.next)).map_err(|_| Errno::INVAL)?;
            self.next += 1;
            match rustix::fs::renameat(dir, name, &self.top, &to) {
                Ok(()) => {
                    self.removed += 1;
                    return Ok(Some(to));
                }
                // A task has chosen the same name.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(Errno::ACCESS) if !is_granted => {
                    is_granted = true;
                    grant(dir, name)?;
                }
                Err(error) => return gone(Err(error)).map(|()| None),
            }
        }
    }

    fn note(&mut self, refused: Option<Errno>) {
        self.refused = self.refused.or(refused);
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

fn gone(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Opens a directory in which nothing is mounted, for reading. An agent that is not root may have to give itself the
/// rights that its own task took away.
fn open(parent: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let open = || rustix::fs::openat2(parent, name, READABLE, Mode::empty(), resolve);
    let opened = match open() {
        Err(Errno::ACCESS) => {
            grant(parent, name)?;
            open()?
        }
        opened => opened?,
    };
    let found = rustix::fs::fstat(&opened)?;
    if !rustix::process::geteuid().is_root() && found.st_mode & 0o700 != 0o700 {
        rustix::fs::fchmod(&opened, Mode::RWXU)?;
    }
    Ok(opened)
}

fn grant(parent: &OwnedFd, name: &CStr) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    set_mode(&held, 0o700).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::ACCESS))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Directories in one another, each with a file; made by descriptors, because no path is that long.
    fn nest(root: &Path, depth: usize) {
        let mut here = rustix::fs::openat(CWD, root, READABLE, Mode::empty()).expect("opened");
        for _ in 0..depth {
            rustix::fs::mkdirat(&here, "d", Mode::RWXU).expect("made");
            here = rustix::fs::openat(&here, "d", READABLE, Mode::empty()).expect("opened");
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(rustix::fs::openat(&here, "f", flags, Mode::RUSR).expect("a file"));
        }
    }

    /// On a thread with less of a stack than one call for each depth would need.
    fn remove_on_a_small_stack(root: &Path) {
        let root = root.to_owned();
        let thread = std::thread::Builder::new().stack_size(128 * 1024).spawn(move || remove(&root));
        thread.expect("a thread").join().expect("no panic").expect("removed");
    }

    #[test]
    fn must_survive_x_010_fifty_thousand_nested_directories() {
        // A disk takes minutes to make so many.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let root = dir.path().join("alloc");
        fs::create_dir(&root).expect("a directory");
        nest(&root, 50_000);
        remove_on_a_small_stack(&root);
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
    }

    #[test]
    fn everything_goes_and_what_links_lead_to_stays() {
        let (dir, outside) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        fs::write(outside.path().join("precious"), "here").expect("a file");
        let root = dir.path().join("alloc");
        for path in ["a/b/c/d", "a/b/e/f", "a/x/y/z", ".going.0/in", ".going.1"] {
            fs::create_dir_all(root.join(path)).expect("directories");
        }
        for path in ["a/b/c/file", "a/b/e/f/file", "file", ".going.2", "a/x/.going.0"] {
            fs::write(root.join(path), "").expect("a file");
        }
        symlink(outside.path(), root.join("a/x/y/z/link")).expect("a link");
        symlink(outside.path(), root.join("link")).expect("a link");
        fs::set_permissions(root.join("a/b/e"), fs::Permissions::from_mode(0o0)).expect("a mode");
        remove(&root).expect("removed");
        assert!(!root.exists() && outside.path().join("precious").exists());
        remove(&root).expect("what is gone is gone");
        symlink(outside.path(), &root).expect("a link");
        remove(&root).expect("removed");
        assert!(root.symlink_metadata().is_err() && outside.path().join("precious").exists());
    }
}
