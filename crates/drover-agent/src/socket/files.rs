//! Files of an allocation, opened beneath its directory and nowhere else.
//!
//! A path is resolved by the kernel beneath a descriptor of the directory, so that no link that a task makes, at
//! whatever moment, leads out. What was opened is then asked where it really is: the folders for secrets stay closed
//! also through a link.

use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::node::beneath::held_path;
use drover_socket::protocol::{FileInfo, MAX_DATA_BYTES, Origin};

/// Folders of each task that are not read from outside.
const CLOSED: [&str; 2] = ["secrets", "private"];

/// Why a request about files is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// Out of the allocation's directory.
    #[error("path escapes: {0} is not in the allocation's directory")]
    Escapes(String),
    /// In a closed folder.
    #[error("{0} is in a folder for secrets, which is not shown")]
    Closed(String),
    /// Nothing there.
    #[error("{0} does not exist")]
    Missing(String),
    /// Not what was asked for.
    #[error("{0}")]
    Wrong(String),
    /// Everything else.
    #[error("{0}: {1}")]
    Io(String, io::Error),
}

impl FileError {
    /// The code of the answer.
    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::Escapes(_) | Self::Wrong(_) => 400,
            Self::Closed(_) => 403,
            Self::Missing(_) => 404,
            Self::Io(..) => 500,
        }
    }
}

/// An allocation's directory, held open.
#[derive(Debug)]
pub(crate) struct Files {
    root: OwnedFd,
    path: PathBuf,
}

/// How often a path is looked up while others rename files. A task that renames without pause fails half of all tries.
const MOST_TRIES: usize = 200;

impl Files {
    /// Opens the directory.
    pub(crate) fn open(root: &Path) -> Result<Self, FileError> {
        let shown = || root.display().to_string();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(CWD, root, flags, Mode::empty()).map_err(|error| match error {
            Errno::NOENT => FileError::Missing(shown()),
            error => FileError::Io(shown(), error.into()),
        })?;
        let path = real_path(&fd).map_err(|error| FileError::Io(shown(), error))?;
        Ok(Self { root: fd, path })
    }

    /// Opens something beneath it; a leading `/` means the directory itself.
    fn open_beneath(&self, path: &str, flags: OFlags, shown: Exposure) -> Result<OwnedFd, FileError> {
        let relative = clean(path)?;
        if shown == Exposure::Contents && is_closed(&relative) {
            return Err(FileError::Closed(path.to_owned()));
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let name = if relative.as_os_str().is_empty() { Path::new(".") } else { relative.as_path() };
        let open = || rustix::fs::openat2(&self.root, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
        // The kernel gives up on a `..` (of a link) when anything on the machine was renamed or mounted meanwhile.
        let mut tries = std::iter::repeat_with(open).take(MOST_TRIES);
        let opened = tries.find(|opened| !matches!(opened, Err(Errno::AGAIN))).unwrap_or(Err(Errno::AGAIN));
        let fd = opened.map_err(|error| match error {
            Errno::XDEV => FileError::Escapes(path.to_owned()),
            Errno::NOENT | Errno::NOTDIR => FileError::Missing(path.to_owned()),
            error => FileError::Io(path.to_owned(), error.into()),
        })?;
        let real = real_path(&fd).map_err(|error| FileError::Io(path.to_owned(), error))?;
        let Ok(inside) = real.strip_prefix(&self.path) else { return Err(FileError::Escapes(path.to_owned())) };
        if shown == Exposure::Contents && is_closed(inside) {
            return Err(FileError::Closed(path.to_owned()));
        }
        Ok(fd)
    }

    /// Describes a file.
    pub(crate) fn stat(&self, path: &str) -> Result<FileInfo, FileError> {
        let fd = self.open_beneath(path, OFlags::PATH, Exposure::Name)?;
        let name =
            Path::new(path).file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned());
        let metadata = std::fs::File::from(fd).metadata().map_err(|error| FileError::Io(path.to_owned(), error))?;
        let content_type = content_type(&name, metadata.is_dir());
        Ok(FileInfo { content_type, ..info(name, &metadata) })
    }

    /// Opens a directory, to be followed.
    pub(crate) fn folder(&self, path: &str) -> Result<OwnedFd, FileError> {
        self.open_beneath(path, OFlags::PATH | OFlags::DIRECTORY, Exposure::Name)
    }

    /// Lists a directory, sorted by name. What vanishes meanwhile is left out.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<FileInfo>, FileError> {
        let fd = self.open_beneath(path, OFlags::RDONLY | OFlags::DIRECTORY, Exposure::Name)?;
        let failed = |error: Errno| FileError::Io(path.to_owned(), error.into());
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(file) = rustix::fs::openat(&fd, name, flags, Mode::empty()) else { continue };
            let Ok(metadata) = std::fs::File::from(file).metadata() else { continue };
            found.push(info(name.to_string_lossy().into_owned(), &metadata));
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Opens a regular file for reading at a position.
    pub(crate) fn read(&self, path: &str, origin: Origin, offset: u64) -> Result<Reader, FileError> {
        let failed = |error: io::Error| FileError::Io(path.to_owned(), error);
        // As a place only: opening a device or a FIFO does something already.
        let place = self.open_beneath(path, OFlags::PATH, Exposure::Contents)?;
        let stat = rustix::fs::fstat(&place).map_err(|error| failed(error.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(FileError::Wrong(format!("{path} is a directory: name a file in it"))),
            _ => return Err(FileError::Wrong(format!("{path} is no regular file"))),
        }
        // What was looked at and nothing else, whatever has become of its name.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd =
            rustix::fs::openat(CWD, held_path(&place), flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let mut file = std::fs::File::from(fd);
        let size = file.metadata().map_err(failed)?.len();
        let at = match origin {
            // Beyond the end is the end: only a file that gets shorter later was cut short.
            Origin::Start => offset.min(size),
            Origin::End => size.saturating_sub(offset),
        };
        file.seek(SeekFrom::Start(at)).map_err(failed)?;
        Ok(Reader { file, at })
    }

    /// Whether a path still leads to the file that is being read. Where that cannot be seen, it does.
    pub(crate) fn is_still(&self, path: &str, reader: &Reader) -> bool {
        let there = match self.open_beneath(path, OFlags::PATH, Exposure::Contents) {
            Ok(place) => std::fs::File::from(place).metadata(),
            Err(FileError::Io(_, error)) => Err(error),
            Err(FileError::Escapes(_) | FileError::Closed(_) | FileError::Missing(_) | FileError::Wrong(_)) => {
                return false;
            }
        };
        match (there, reader.file.metadata()) {
            (Ok(there), Ok(read)) => (there.dev(), there.ino()) == (read.dev(), read.ino()),
            (Err(_), _) | (_, Err(_)) => true,
        }
    }
}

/// A file that is being read.
#[derive(Debug)]
pub(crate) struct Reader {
    file: std::fs::File,
    at: u64,
}

impl Reader {
    /// The position of the next byte.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The next bytes, at most `limit`; none at the end. A file that was cut short begins again.
    pub(crate) fn next(&mut self, limit: u64) -> io::Result<Vec<u8>> {
        let size = self.file.metadata()?.len();
        if size == self.at && size > 0 {
            return Ok(Vec::new());
        }
        if size < self.at {
            self.at = self.file.seek(SeekFrom::Start(0))?;
        }
        let most = usize::try_from(limit).unwrap_or(usize::MAX).min(MAX_DATA_BYTES);
        let mut bytes = vec![0; most];
        let n = self.file.read(&mut bytes)?;
        bytes.truncate(n);
        self.at += u64::try_from(n).map_err(io::Error::other)?;
        Ok(bytes)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Exposure {
    Name,
    Contents,
}

/// The path without `.` and with `..` taken literally; one that climbs above its beginning escapes.
fn clean(path: &str) -> Result<PathBuf, FileError> {
    let mut clean = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                if !clean.pop() {
                    return Err(FileError::Escapes(path.to_owned()));
                }
            }
        }
    }
    Ok(clean)
}

/// Whether a path beneath the allocation's directory is in a closed folder of a task.
fn is_closed(inside: &Path) -> bool {
    let second = inside.components().nth(1);
    second.is_some_and(|part| {
        CLOSED.iter().any(|closed| part.as_os_str().to_string_lossy().to_lowercase().starts_with(closed))
    })
}

fn real_path(fd: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(held_path(fd))
}

fn info(name: String, metadata: &std::fs::Metadata) -> FileInfo {
    FileInfo {
        name,
        is_dir: metadata.is_dir(),
        size: metadata.len(),
        mode: mode_text(metadata.mode()),
        modified_at: Timestamp::from_second(metadata.mtime()).ok(),
        content_type: String::new(),
    }
}

fn mode_text(mode: u32) -> String {
    let kind = match FileType::from_raw_mode(mode) {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        _ => '-',
    };
    let bits = (0..9).rev().zip("rwxrwxrwx".chars()).map(|(bit, c)| if mode & (1 << bit) == 0 { '-' } else { c });
    std::iter::once(kind).chain(bits).collect()
}

fn content_type(name: &str, is_dir: bool) -> String {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let known = match extension {
        _ if is_dir => "application/octet-stream",
        "json" => "application/json",
        "html" | "htm" => "text/html",
        "txt" | "log" | "conf" | "md" => "text/plain",
        "yaml" | "yml" => "application/yaml",
        _ => "application/octet-stream",
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alloc() -> (tempfile::TempDir, Files) {
        let dir = tempfile::tempdir().expect("a directory");
        for path in ["alloc/logs", "web/local", "web/secrets", "web/secretsx"] {
            std::fs::create_dir_all(dir.path().join(path)).expect("a directory");
        }
        for path in ["alloc/logs/web.stdout.0", "web/secrets/x", "web/local/data.json"] {
            std::fs::write(dir.path().join(path), "0123456789").expect("a file");
        }
        let files = Files::open(dir.path()).expect("opened");
        (dir, files)
    }

    #[test]
    fn a_115_paths_stay_in_the_directory() {
        let (dir, files) = alloc();
        std::os::unix::fs::symlink("/etc", dir.path().join("web/etc")).expect("a link");
        std::os::unix::fs::symlink("../../..", dir.path().join("web/local/up")).expect("a link");
        for path in ["../x", "web/../../x", "web/etc", "web/etc/passwd", "web/local/up"] {
            for error in [
                files.list(path).map(drop).expect_err(path),
                files.stat(path).map(drop).expect_err(path),
                files.read(path, Origin::Start, 0).map(drop).expect_err(path),
            ] {
                assert!(error.to_string().starts_with("path escapes"), "{path}: {error}");
                assert_eq!(error.code(), 400);
            }
        }
        let names: Vec<String> = files.list("/alloc/logs").expect("listed").into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["web.stdout.0"]);
        assert_eq!(files.stat("/").expect("a directory").mode.chars().next(), Some('d'));
    }

    #[test]
    fn a_task_that_renames_without_pause_does_not_keep_others_from_its_files() {
        let (dir, files) = alloc();
        std::os::unix::fs::symlink("../local/data.json", dir.path().join("web/local/link")).expect("a link");
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let (one, other) = (dir.path().join("web/one"), dir.path().join("web/other"));
        std::fs::write(&one, "").expect("a file");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    std::fs::rename(&one, &other).expect("renamed");
                    std::fs::rename(&other, &one).expect("renamed");
                }
            });
            let failed = (0..5000).find_map(|_| files.stat("web/local/link").err());
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(failed.is_none(), "{failed:?}");
        });
    }

    #[test]
    fn a_116_secrets_are_not_read_by_any_name() {
        let (dir, files) = alloc();
        std::os::unix::fs::symlink("../secrets/x", dir.path().join("web/local/link")).expect("a link");
        for path in ["web/secrets/x", "web/SECRETS/x", "/web/./secrets/x", "web/local/link", "web/private/token"] {
            let error = files.read(path, Origin::Start, 0).map(drop).expect_err(path);
            assert_eq!(error.code(), 403, "{path}: {error}");
        }
    }

    #[test]
    fn reading_begins_where_it_is_asked_to() {
        let (_dir, files) = alloc();
        let read = |origin, offset, limit| {
            let mut reader = files.read("web/local/data.json", origin, offset).expect("opened");
            String::from_utf8(reader.next(limit).expect("read")).expect("text")
        };
        assert_eq!(read(Origin::Start, 2, 3), "234");
        assert_eq!(read(Origin::End, 3, 100), "789");
        assert_eq!(read(Origin::End, 300, 2), "01");
        assert_eq!(files.stat("web/local/data.json").expect("a file").content_type, "application/json");
        assert_eq!(files.read("web/local", Origin::Start, 0).map(drop).expect_err("refused").code(), 400);
        assert_eq!(files.read("web/local/none", Origin::Start, 0).map(drop).expect_err("refused").code(), 404);
    }

    #[test]
    fn must_survive_a_fifo_and_a_socket_in_the_place_of_a_file() {
        let (dir, files) = alloc();
        let fifo = dir.path().join("web/local/fifo");
        rustix::fs::mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o666)).expect("a fifo");
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("web/local/socket")).expect("a socket");
        for path in ["web/local/fifo", "web/local/socket"] {
            assert!(files.read(path, Origin::Start, 0).is_err(), "{path}");
        }
    }

    #[test]
    fn must_survive_x_033_a_path_that_is_no_file_and_is_not_even_opened() {
        use rustix::fs::inotify;
        let (dir, files) = alloc();
        let local = dir.path().join("web/local");
        let make =
            |name: &str, kind| rustix::fs::mknodat(CWD, local.join(name), kind, Mode::from_raw_mode(0o666), 0x105);
        make("fifo", FileType::Fifo).expect("a fifo");
        let _socket = std::os::unix::net::UnixListener::bind(local.join("socket")).expect("a socket");
        std::os::unix::fs::symlink("/proc/self/root/etc/passwd", local.join("root")).expect("a link");
        let mut names = vec!["fifo", "socket", "root"];
        // Number 1:5, /dev/zero: without the right to make one there is none.
        names.extend(make("device", FileType::CharacterDevice).ok().map(|()| "device"));
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).expect("a watch");
        inotify::add_watch(&watch, &local, inotify::WatchFlags::OPEN).expect("watched");
        for name in names {
            let error = files.read(&format!("web/local/{name}"), Origin::Start, 0).map(drop).expect_err(name);
            assert_eq!(error.code(), 400, "{name}: {error}");
        }
        assert_eq!(rustix::io::read(&watch, &mut [0_u8; 512]), Err(Errno::AGAIN), "something was opened");
        files.read("web/local/data.json", Origin::Start, 0).map(drop).expect("a file");
        assert!(rustix::io::read(&watch, &mut [0_u8; 512]).is_ok_and(|n| n > 0), "a file is opened");
    }

    #[test]
    fn must_survive_a_hundred_thousand_files() {
        let (dir, files) = alloc();
        for n in 0..100_000 {
            std::fs::File::create(dir.path().join(format!("web/local/{n}"))).expect("a file");
        }
        assert_eq!(files.list("web/local").expect("listed").len(), 100_001);
    }
}
