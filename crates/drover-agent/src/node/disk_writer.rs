//! Writing what another node's agent says a sticky disk keeps. It is not believed: whatever it names, nothing is made
//! outside of the directory, nothing is written through a link, and no file gets rights beyond those of its user.
//!
//! What cannot be taken fails the whole: an allocation begins with all of its files or with none.

use std::ffi::OsStr;
use std::fs::{File, FileTimes};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use drover_socket::disks::{DiskEntry, DiskEntryKind, path_bytes};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::beneath::{Owner, Place, give_to};

/// The most directories one in another.
pub(crate) const MAX_DEPTH: usize = 128;
/// The longest name or target of a link, in bytes.
const MAX_PATH: usize = 4096;
/// What an entry takes of the disk beside what it holds, in bytes.
const ENTRY_BYTES: u64 = 4096;
/// How often it is looked whether the disk has room for what goes beyond the reserved.
const LOOK_EVERY: u64 = 16 * 1024 * 1024;

/// What has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) n_files: u64,
    pub(crate) n_bytes: u64,
}

/// How much may come: what the group has reserved, and more while the disk has room.
pub(crate) struct Room<'a> {
    /// In bytes.
    pub(crate) reserved: u64,
    /// Whether the disk has room for more than that.
    pub(crate) has_more: &'a dyn Fn() -> bool,
}

/// Writes entries into a directory.
pub(crate) struct DiskWriter<'a> {
    top: &'a Place,
    tasks: &'a [String],
    room: Room<'a>,
    taken: u64,
    /// Of what was taken, when it is looked for room again.
    next_look: u64,
    file: Option<(File, DiskEntry)>,
    written: Written,
}

impl<'a> DiskWriter<'a> {
    /// Into this directory, which has a directory `alloc` and one for each of these tasks. What is of other tasks is
    /// left out: the replacement has none of them.
    pub(crate) fn new(top: &'a Place, tasks: &'a [String], room: Room<'a>) -> Self {
        let next_look = room.reserved;
        Self { top, tasks, room, taken: 0, next_look, file: None, written: Written::default() }
    }

    /// Makes what an entry names.
    ///
    /// # Errors
    /// When it names what may not be made, or the disk refuses.
    pub(crate) fn entry(&mut self, entry: DiskEntry) -> Result<(), String> {
        self.close()?;
        self.take(ENTRY_BYTES)?;
        let path = path_bytes(&entry.path).into_owned();
        let depth = depth(&path).map_err(|reason| named(&entry, reason))?;
        let Some((parent, name)) = self.place(&path).map_err(|error| named(&entry, error))? else { return Ok(()) };
        let cannot = |error: io::Error| named(&entry, error);
        match &entry.kind {
            DiskEntryKind::Directory => Self::directory(&parent, &name, &entry).map_err(cannot)?,
            DiskEntryKind::Link(target) => {
                let target = path_bytes(target);
                if leads_out(&target, depth) {
                    return Err(named(
                        &entry,
                        "the link leads out of the allocation's directory; make it a relative one",
                    ));
                }
                make_way(&parent, &name).map_err(cannot)?;
                rustix::fs::symlinkat(OsStr::from_bytes(&target), &parent, &*name).map_err(|it| cannot(it.into()))?;
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = rustix::fs::openat(&parent, &*name, flags, Mode::empty()).map_err(|it| cannot(it.into()))?;
                give(&made, &entry).map_err(cannot)?;
            }
            DiskEntryKind::File => {
                make_way(&parent, &name).map_err(cannot)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = rustix::fs::openat(&parent, &*name, flags, Mode::RUSR | Mode::WUSR);
                self.file = Some((File::from(made.map_err(|error| cannot(error.into()))?), entry));
            }
        }
        self.written.n_files += 1;
        Ok(())
    }

    /// Adds to the last file. What is of a file that is left out is left out too.
    ///
    /// # Errors
    /// When there is no room, or the disk refuses.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.take(bytes.len() as u64)?;
        let Some((file, entry)) = &mut self.file else { return Ok(()) };
        file.write_all(bytes).map_err(|error| named(entry, error))?;
        self.written.n_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Nothing more comes. Returns what has come.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn end(mut self) -> Result<Written, String> {
        self.close()?;
        Ok(self.written)
    }

    /// The directory that an entry goes into, and its name there; none: it is left out.
    fn place(&self, path: &[u8]) -> io::Result<Option<(OwnedFd, std::ffi::CString)>> {
        let mut parts = path.splitn(3, |byte| *byte == b'/');
        let (top, tree) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let is_kept = match (top, tree) {
            (b"alloc", b"data") => true,
            (task, b"local") => self.tasks.iter().any(|it| it.as_bytes() == task),
            _ => false,
        };
        if !is_kept {
            return Ok(None);
        }
        let Some(cut) = path.iter().rposition(|byte| *byte == b'/') else { return Ok(None) };
        let (parent, name) = (&path[..cut], &path[cut + 1..]);
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let parent = rustix::fs::openat2(self.top, OsStr::from_bytes(parent), flags, Mode::empty(), resolve)?;
        Ok(Some((parent, std::ffi::CString::new(name)?)))
    }

    fn directory(parent: &OwnedFd, name: &std::ffi::CStr, entry: &DiskEntry) -> io::Result<()> {
        match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(parent, name, flags, Mode::empty())?;
        give(&made, entry)?;
        // Whoever reads it next must get in, an agent that is not root too.
        Ok(rustix::fs::fchmod(&made, Mode::from_raw_mode(entry.mode & 0o1777 | 0o700))?)
    }

    fn close(&mut self) -> Result<(), String> {
        let Some((file, entry)) = self.file.take() else { return Ok(()) };
        let modified = u64::try_from(entry.modified_seconds).ok().and_then(|seconds| {
            let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
            Some(FileTimes::new().set_modified(at))
        });
        let set = || -> io::Result<()> {
            give(&file, &entry)?;
            // Without the bits that give a program its owner's rights: another node does not hand out any here.
            rustix::fs::fchmod(&file, Mode::from_raw_mode(entry.mode & 0o777))?;
            modified.map_or(Ok(()), |times| file.set_times(times))
        };
        set().map_err(|error| named(&entry, error))
    }

    fn take(&mut self, n_bytes: u64) -> Result<(), String> {
        self.taken = self.taken.saturating_add(n_bytes);
        if self.taken <= self.next_look {
            return Ok(());
        }
        self.next_look = self.taken.saturating_add(LOOK_EVERY);
        if (self.room.has_more)() {
            return Ok(());
        }
        let reserved = self.room.reserved / (1024 * 1024);
        Err(format!(
            "it is larger than the {reserved} MB that the group reserves, and the node's disk has no room for more; \
             raise ephemeralDisk.sizeMB"
        ))
    }
}

/// Gives it to whom it belonged; the caller sees to what the earlier allocation's user had.
fn give(made: &impl AsFd, entry: &DiskEntry) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        give_to(made, Owner { uid: entry.uid, gid: entry.gid })?;
    }
    Ok(())
}

fn named(entry: &DiskEntry, reason: impl std::fmt::Display) -> String {
    let name: String = entry.path.chars().take(200).collect();
    format!("{name:?} cannot be made: {reason}")
}

/// Takes a file of the name away: what comes later holds.
fn make_way(parent: &OwnedFd, name: &std::ffi::CStr) -> io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// How many directories lie above it.
fn depth(path: &[u8]) -> Result<usize, &'static str> {
    if path.len() > MAX_PATH || path.contains(&0) {
        return Err("its name is too long, or holds a zero");
    }
    let mut depth = 0;
    for part in path.split(|byte| *byte == b'/') {
        if matches!(part, b"" | b"." | b"..") {
            return Err("the name leads out of the allocation's directory");
        }
        depth += 1;
    }
    if depth > MAX_DEPTH + 2 { Err("it lies too many directories deep") } else { Ok(depth - 1) }
}

/// Whether a link so deep in the allocation's directory, with this target, leads out of it.
fn leads_out(target: &[u8], mut depth: usize) -> bool {
    if target.is_empty() || target.len() > MAX_PATH || target.contains(&0) || target.starts_with(b"/") {
        return true;
    }
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => match depth.checked_sub(1) {
                Some(up) => depth = up,
                None => return true,
            },
            _ => depth += 1,
        }
    }
    false
}

#[cfg(test)]
mod tests;
