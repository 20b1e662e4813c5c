//! Reading what a sticky disk keeps, for a replacement on another node: `alloc/data` and `local` of each task, each
//! directory before what is in it.
//!
//! A task may have left anything there: directories and files are opened in the directory that is held, no link is
//! followed, and what is mounted is not read. What is neither a file, a directory nor a link (sockets, FIFOs, devices)
//! is left out. No recursion; one descriptor is open for each level.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};

use drover_socket::disks::{DiskEntry, DiskEntryKind, shown_path};
use drover_socket::protocol::MAX_DATA_BYTES;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::alloc_dir::AllocDir;
use super::beneath::Place;
use super::disk_writer::MAX_DEPTH;

/// Pieces that wait for who reads them; then the disk is not read.
const UNREAD: usize = 8;

const READABLE: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A part of what a disk keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskPiece {
    /// A file, directory or link.
    Entry(DiskEntry),
    /// What the last file holds, or a part of it.
    Data(Vec<u8>),
    /// That was all.
    End,
}

/// What the disk of an allocation keeps, while it is read; an error is the last.
pub(crate) fn pieces(dir: &AllocDir, tasks: Vec<String>) -> mpsc::Receiver<io::Result<DiskPiece>> {
    let (send, pieces) = mpsc::channel(UNREAD);
    let dir = dir.clone();
    drop(tokio::task::spawn_blocking(move || {
        let mut reader = DiskReader { send };
        let last = reader.read(&dir, &tasks).map(|()| DiskPiece::End);
        // Who has gone needs no last word.
        drop(reader.send.blocking_send(last));
    }));
    pieces
}

struct DiskReader {
    send: mpsc::Sender<io::Result<DiskPiece>>,
}

/// A directory on the way.
struct Level {
    dir: Dir,
    path: Vec<u8>,
}

impl DiskReader {
    fn read(&mut self, dir: &AllocDir, tasks: &[String]) -> io::Result<()> {
        self.tree(&Place::open(&dir.shared())?, b"alloc", c"data")?;
        for task in tasks {
            match Place::open(&dir.task(task)) {
                Ok(place) => self.tree(&place, task.as_bytes(), c"local")?,
                // It never began.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads a directory with all that is in it. Something else of its name is left out.
    fn tree(&mut self, parent: &Place, above: &[u8], name: &CStr) -> io::Result<()> {
        let top = match rustix::fs::openat(parent, name, READABLE, Mode::empty()) {
            Ok(top) => top,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let (found, path) = (rustix::fs::fstat(&top)?, joined(above, name));
        self.entry(&path, DiskEntryKind::Directory, &found)?;
        let device = found.st_dev;
        let mut levels = vec![Level { dir: Dir::new(top)?, path }];
        loop {
            let depth = levels.len();
            let Some(level) = levels.last_mut() else { return Ok(()) };
            let Some(entry) = level.dir.next() else {
                levels.pop();
                continue;
            };
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let path = joined(&level.path, name);
            let holder = level.dir.fd()?;
            let found = rustix::fs::statat(holder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory if found.st_dev == device => {
                    if depth >= MAX_DEPTH {
                        let reason = format!("{} lies more than {MAX_DEPTH} directories deep", shown_path(&path));
                        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
                    }
                    let inner = rustix::fs::openat(holder, name, READABLE, Mode::empty())?;
                    self.entry(&path, DiskEntryKind::Directory, &found)?;
                    levels.push(Level { dir: Dir::new(inner)?, path });
                }
                FileType::RegularFile => {
                    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                    let file = rustix::fs::openat(holder, name, flags, Mode::empty())?;
                    self.file(&path, &found, File::from(file))?;
                }
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(holder, name, Vec::new())?;
                    self.entry(&path, DiskEntryKind::Link(shown_path(target.as_bytes())), &found)?;
                }
                _ => tracing::debug!(path = shown_path(&path), "it is no file and does not move with the others"),
            }
        }
    }

    fn file(&mut self, path: &[u8], found: &Stat, mut file: File) -> io::Result<()> {
        self.entry(path, DiskEntryKind::File, found)?;
        loop {
            let mut part = vec![0; MAX_DATA_BYTES];
            let n = file.read(&mut part)?;
            if n == 0 {
                return Ok(());
            }
            part.truncate(n);
            self.tell(DiskPiece::Data(part))?;
        }
    }

    fn entry(&mut self, path: &[u8], kind: DiskEntryKind, found: &Stat) -> io::Result<()> {
        self.tell(DiskPiece::Entry(DiskEntry {
            path: shown_path(path),
            kind,
            mode: found.st_mode & 0o7777,
            uid: found.st_uid,
            gid: found.st_gid,
            modified_seconds: found.st_mtime,
        }))
    }

    fn tell(&mut self, piece: DiskPiece) -> io::Result<()> {
        self.send.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn joined(above: &[u8], name: &CStr) -> Vec<u8> {
    [above, b"/", name.to_bytes()].concat()
}
