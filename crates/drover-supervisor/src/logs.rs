//! Collects the output of tasks from FIFOs into rotated files `<task>.<stream>.<n>`.
//!
//! What a task has written is moved at once, so a reader of the file is never behind, and within the kernel, so that a
//! supervisor that is killed has moved it or left it where the next one finds it. The directory belongs to tasks too:
//! it is opened beneath the allocation's directory without following links, and only regular files of our own are
//! written.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, SeekFrom};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

use super::protocol::{Credentials, Handle, LogSpec};
use super::sys;

/// The most that is moved at a time: what a pipe holds.
const READ_BYTES: usize = 64 * 1024;
/// How long the runtime of a container that has ended may take for carrying over what is left of its output.
const RUNTIME_END: Duration = Duration::from_secs(15);

thread_local! {
    /// One for all streams: nothing awaits between filling and emptying it.
    static VIEW: RefCell<View> = RefCell::new(View { buffer: vec![0; READ_BYTES], copies: None });
}

/// A look at what is in a pipe.
struct View {
    buffer: Vec<u8>,
    /// A pipe for copies of it, once one was needed: its ends for reading and for writing.
    copies: Option<(OwnedFd, OwnedFd)>,
}

impl View {
    /// What is in a pipe, as far as it can be seen at once; it stays there. Nothing, where no process will write it
    /// again.
    fn of(&mut self, pipe: &OwnedFd) -> rustix::io::Result<&[u8]> {
        let (read, write) = match &self.copies {
            Some(copies) => copies,
            None => self.copies.insert(rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?),
        };
        let n_copied = rustix::pipe::tee(pipe, write, READ_BYTES, SpliceFlags::NONBLOCK)?;
        let seen = read_whole(read, &mut self.buffer[..n_copied]);
        if seen.is_err() {
            // What is left in it is none of the next look's.
            self.copies = None;
        }
        seen.map(|()| &self.buffer[..n_copied])
    }
}

fn read_whole(from: &OwnedFd, mut into: &mut [u8]) -> rustix::io::Result<()> {
    while !into.is_empty() {
        let n_read = rustix::io::read(from, &mut *into)?;
        into = &mut into[n_read..];
    }
    Ok(())
}

/// The two streams of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Who holds the other ends of the FIFOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writers {
    /// The task itself: what it wrote is there when it has ended.
    Task,
    /// A container's runtime, which carries over what the task has written, and closes its ends after that.
    Runtime,
}

impl Handle {
    /// Who writes the task's output.
    pub(super) fn writers(&self) -> Writers {
        if self.is_container { Writers::Runtime } else { Writers::Task }
    }
}

/// The ends of one stream: the supervisor's for reading, and the task's.
#[derive(Debug)]
pub(super) struct Pipe {
    reader: AsyncFd<Rc<OwnedFd>>,
    writers: Writers,
    stream: Stream,
    rotator: Rotator,
}

impl Pipe {
    /// Takes up a stream whose collecting end was handed over by the program before this one.
    pub(super) fn resume(spec: &LogSpec, stream: Stream, held: (OwnedFd, Writers)) -> io::Result<Self> {
        let (reader, writers) = held;
        Ok(Self { reader: sys::watch_shared(Rc::new(reader))?, writers, stream, rotator: Rotator::open(spec, stream)? })
    }

    /// Which stream it is of, and its collecting end.
    pub(super) fn end(&self) -> (Stream, Rc<OwnedFd>) {
        (self.stream, Rc::clone(self.reader.get_ref()))
    }
}

/// Opens the collecting end of a stream, making the FIFO when it is not there yet.
pub(super) fn open_pipe(spec: &LogSpec, stream: Stream, owner: Option<&Credentials>) -> io::Result<Pipe> {
    let (dir, name) = make_fifo(spec, stream)?;
    let reader = open_fifo(&dir, &name, OFlags::RDWR | OFlags::NONBLOCK)?;
    if let Some(owner) = owner {
        let uid = rustix::fs::Uid::from_raw(owner.uid);
        // The task may open /dev/stdout again, which asks for the rights of the FIFO itself.
        rustix::fs::fchown(&reader, Some(uid), None)?;
    }
    let rotator = Rotator::open(spec, stream)?;
    Ok(Pipe { reader: sys::watch_shared(Rc::new(reader))?, writers: Writers::Task, stream, rotator })
}

/// Opens the collecting end of a stream that a runtime writes: only for reading, so that its end is seen.
pub(super) fn open_runtime_pipe(spec: &LogSpec, stream: Stream) -> io::Result<Pipe> {
    let (dir, name) = make_fifo(spec, stream)?;
    let reader = open_fifo(&dir, &name, OFlags::RDONLY | OFlags::NONBLOCK)?;
    let rotator = Rotator::open(spec, stream)?;
    Ok(Pipe { reader: sys::watch_shared(Rc::new(reader))?, writers: Writers::Runtime, stream, rotator })
}

/// The FIFOs of a task that a runtime will write, and ends of them that keep the runtime's from closing before they are
/// collected.
#[derive(Debug)]
pub struct HeldFifos {
    /// The path of the one for standard output.
    pub stdout: String,
    /// The path of the one for standard error.
    pub stderr: String,
    _ends: [OwnedFd; 2],
}

/// Makes the FIFOs of a task that a runtime starts, and holds them open.
///
/// # Errors
/// When one cannot be made or opened, or something else stands in its place.
pub fn hold_fifos(spec: &LogSpec) -> io::Result<HeldFifos> {
    let hold = |stream| {
        let (dir, name) = make_fifo(spec, stream)?;
        let end = open_fifo(&dir, &name, OFlags::RDWR | OFlags::NONBLOCK)?;
        io::Result::Ok((format!("{}/{name}", spec.fifo_dir), end))
    };
    let ((stdout, out), (stderr, err)) = (hold(Stream::Stdout)?, hold(Stream::Stderr)?);
    Ok(HeldFifos { stdout, stderr, _ends: [out, err] })
}

/// Ends of a task's FIFOs that keep what is in them while no supervisor lives: the kernel drops it with the last end.
#[derive(Debug)]
pub(super) struct KeptOutput {
    _ends: Vec<OwnedFd>,
}

/// Holds the output of a task that runs. Only for reading: a runtime's end of it is still seen.
pub(super) fn keep_output(spec: &LogSpec) -> io::Result<KeptOutput> {
    let dir = fifo_dir(spec)?;
    let streams = [Stream::Stdout, Stream::Stderr];
    let ends = streams.map(|stream| open_if_there(&dir, &fifo_name(spec, stream)));
    Ok(KeptOutput { _ends: ends.into_iter().filter_map(Result::transpose).collect::<io::Result<_>>()? })
}

/// Takes what a task has written that ended while no supervisor lived, and removes its FIFOs.
pub(super) async fn collect_left(spec: &LogSpec, writers: Writers) -> io::Result<()> {
    let dir = fifo_dir(spec)?;
    for stream in [Stream::Stdout, Stream::Stderr] {
        let Some(reader) = open_if_there(&dir, &fifo_name(spec, stream))? else { continue };
        let pipe = Pipe::resume(spec, stream, (reader, writers))?;
        let ended = CancellationToken::new();
        ended.cancel();
        collect(pipe, ended).await;
    }
    remove_fifos(spec)
}

/// The collecting end of a FIFO; none where it is gone with its task.
fn open_if_there(dir: &OwnedFd, name: &str) -> io::Result<Option<OwnedFd>> {
    match open_fifo(dir, name, OFlags::RDONLY | OFlags::NONBLOCK) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

fn make_fifo(spec: &LogSpec, stream: Stream) -> io::Result<(OwnedFd, String)> {
    let (dir, name) = (fifo_dir(spec)?, fifo_name(spec, stream));
    match rustix::fs::mkfifoat(&dir, &name, Mode::RUSR | Mode::WUSR) {
        Ok(()) | Err(Errno::EXIST) => Ok((dir, name)),
        Err(error) => Err(context(error, &format!("fifo {}/{name} cannot be made", spec.fifo_dir))),
    }
}

/// Opens the task's end: for reading too, so that it gets no SIGPIPE when the supervisor dies.
pub(super) fn open_task_end(spec: &LogSpec, stream: Stream) -> io::Result<OwnedFd> {
    open_fifo(&fifo_dir(spec)?, &fifo_name(spec, stream), OFlags::RDWR)
}

/// Removes the FIFOs of a task that has ended, or that did not start.
///
/// # Errors
/// When one cannot be removed; one that is gone is removed.
pub fn remove_fifos(spec: &LogSpec) -> io::Result<()> {
    let dir = fifo_dir(spec)?;
    for stream in [Stream::Stdout, Stream::Stderr] {
        match rustix::fs::unlinkat(&dir, fifo_name(spec, stream), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Carries output into files until `ended`, then takes what is left in the pipe.
pub(super) async fn collect(mut pipe: Pipe, ended: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = ended.cancelled() => break,
            ready = pipe.reader.readable() => {
                let Ok(mut guard) = ready else { break };
                match transfer(guard.get_inner(), &mut pipe.rotator) {
                    Ok(n) if n > 0 => {}
                    Ok(_) | Err(Errno::AGAIN) => guard.clear_ready(),
                    Err(error) => {
                        tracing::error!(error = %error, stream = pipe.rotator.prefix, "task output cannot be read any more");
                        break;
                    }
                }
            }
        }
        // One chatty task must not starve the others.
        tokio::task::yield_now().await;
    }
    if pipe.writers == Writers::Runtime
        && tokio::time::timeout(RUNTIME_END, collect_until_closed(&mut pipe)).await.is_err()
    {
        tracing::warn!(
            stream = pipe.rotator.prefix,
            "the runtime of a container has not closed its output: the rest is lost"
        );
    }
    while matches!(transfer(pipe.reader.get_ref(), &mut pipe.rotator), Ok(n) if n > 0) {}
}

/// Takes everything until the runtime has closed its end.
async fn collect_until_closed(pipe: &mut Pipe) {
    loop {
        let Ok(mut guard) = pipe.reader.readable().await else { return };
        match transfer(guard.get_inner(), &mut pipe.rotator) {
            // A FIFO that no process has open for writing ends.
            Ok(0) => return,
            Ok(_) => {}
            Err(Errno::AGAIN) => guard.clear_ready(),
            Err(error) => {
                tracing::error!(error = %error, stream = pipe.rotator.prefix, "task output cannot be read any more");
                return;
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Moves what is in a pipe into the files, and says how many bytes these were: none, where no process will write to it
/// again.
fn transfer(reader: &OwnedFd, rotator: &mut Rotator) -> rustix::io::Result<usize> {
    match move_within_kernel(reader, rotator) {
        // A full disk, or one whose file system cannot do that.
        Err(error) if !matches!(error, Errno::AGAIN | Errno::INTR) => VIEW.with_borrow_mut(|view| {
            let n = rustix::io::read(reader, &mut view.buffer)?;
            rotator.write(&view.buffer[..n]);
            Ok(n)
        }),
        moved => moved,
    }
}

fn move_within_kernel(reader: &OwnedFd, rotator: &mut Rotator) -> rustix::io::Result<usize> {
    if rotator.room() >= READ_BYTES {
        return rotator.take(reader, READ_BYTES);
    }
    // Where a file ends depends on where its last line does.
    let part = VIEW.with_borrow_mut(|view| {
        let bytes = view.of(reader)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let part = rotator.next_part(bytes);
        part.map(Some).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    })?;
    let Some(part) = part else { return Ok(0) };
    let n_moved = rotator.take(reader, part.n_bytes)?;
    if part.is_last && n_moved == part.n_bytes {
        rotator.close_file();
    }
    Ok(n_moved)
}

fn fifo_dir(spec: &LogSpec) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(spec.fifo_dir.as_str(), flags, Mode::empty())
        .map_err(|error| context(error, &format!("fifo directory {} cannot be opened", spec.fifo_dir)))
}

fn fifo_name(spec: &LogSpec, stream: Stream) -> String {
    format!(".{}.{}.fifo", spec.task, stream.name())
}

fn open_fifo(dir: &OwnedFd, name: &str, how: OFlags) -> io::Result<OwnedFd> {
    let fd = rustix::fs::openat(dir, name, how | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| context(error, &format!("fifo {name} cannot be opened")))?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    if kind != FileType::Fifo {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} is not a fifo")));
    }
    Ok(fd)
}

fn context(error: Errno, what: &str) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// The beginning of some output that belongs into one file.
#[derive(Clone, Copy, Debug)]
struct Part {
    n_bytes: usize,
    /// The file has no room for what comes after it.
    is_last: bool,
}

/// Writes a stream into numbered files of bounded size and number.
#[derive(Debug)]
pub(super) struct Rotator {
    dir: OwnedFd,
    prefix: String,
    max_files: usize,
    max_bytes: u64,
    indexes: BTreeSet<u64>,
    file: Option<OwnedFd>,
    size: u64,
    lost: u64,
}

impl Rotator {
    /// Continues in the highest file that exists, else begins with number 0.
    pub(super) fn open(spec: &LogSpec, stream: Stream) -> io::Result<Self> {
        let dir = open_log_dir(Path::new(&spec.alloc_dir)).map_err(|error| {
            io::Error::new(error.kind(), format!("log directory of {} cannot be opened: {error}", spec.alloc_dir))
        })?;
        let prefix = format!("{}.{}.", spec.task, stream.name());
        let indexes = existing_indexes(&dir, &prefix)?;
        let mut rotator = Self {
            dir,
            prefix,
            max_files: usize::try_from(spec.max_files.max(1)).unwrap_or(usize::MAX),
            max_bytes: spec.max_file_bytes.max(1),
            indexes,
            file: None,
            size: 0,
            lost: 0,
        };
        let index = rotator.indexes.last().copied().unwrap_or(0);
        rotator.open_file(index)?;
        Ok(rotator)
    }

    /// Writes all bytes. What a full disk refuses is counted and told in the log once there is room again: a task never
    /// waits for it.
    pub(super) fn write(&mut self, mut bytes: &[u8]) {
        if self.lost > 0 {
            let note = format!("[drover: {} bytes of output were lost: the disk was full]\n", self.lost);
            let lost = std::mem::take(&mut self.lost);
            if self.append(note.as_bytes()).is_err() {
                self.lost += lost;
            }
        }
        while !bytes.is_empty() {
            match self.write_part(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(error) => {
                    if self.lost == 0 {
                        tracing::warn!(error = %error, stream = self.prefix, "task output is lost");
                    }
                    self.lost += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                    return;
                }
            }
        }
    }

    fn write_part(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = self.next_part(bytes)?;
        self.append(&bytes[..part.n_bytes])?;
        if part.is_last {
            self.close_file();
        }
        Ok(part.n_bytes)
    }

    /// What of these bytes belongs into the current file, or into the next one where that is full: everything when it
    /// fits, else up to the last newline that fits (the rest is another file's), else as much as there is room for.
    fn next_part(&mut self, bytes: &[u8]) -> io::Result<Part> {
        if self.file.is_none() || self.size >= self.max_bytes {
            self.rotate()?;
        }
        let room = self.room();
        if bytes.len() <= room {
            return Ok(Part { n_bytes: bytes.len(), is_last: false });
        }
        let newline = bytes[..room].iter().rposition(|byte| *byte == b'\n');
        Ok(newline.map_or(Part { n_bytes: room, is_last: false }, |at| Part { n_bytes: at + 1, is_last: true }))
    }

    /// Nothing more goes into the current file.
    fn close_file(&mut self) {
        self.size = self.max_bytes;
    }

    fn room(&self) -> usize {
        usize::try_from(self.max_bytes.saturating_sub(self.size)).unwrap_or(usize::MAX)
    }

    /// Moves at most so many bytes from a pipe to the end of the current file, unless the loss of some before them is
    /// to be told first.
    fn take(&mut self, pipe: &OwnedFd, n_bytes: usize) -> rustix::io::Result<usize> {
        let file = self.file.as_ref().filter(|_| self.lost == 0).ok_or(Errno::NOSPC)?;
        // This is the only process that writes, and others may make the file shorter.
        rustix::fs::seek(file, SeekFrom::End(0))?;
        let n_moved = rustix::pipe::splice(pipe, None, file, None, n_bytes, SpliceFlags::NONBLOCK)?;
        self.size = self.size.saturating_add(u64::try_from(n_moved).unwrap_or(u64::MAX));
        Ok(n_moved)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &self.file else { return Err(io::ErrorKind::NotFound.into()) };
        rustix::fs::seek(file, SeekFrom::End(0))?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = match rustix::io::write(file, rest) {
                Ok(n) => n,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            self.size = self.size.saturating_add(u64::try_from(n).unwrap_or(u64::MAX));
            rest = &rest[n..];
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let next = self.indexes.last().map_or(0, |last| last + 1);
        self.open_file(next)?;
        while self.indexes.len() > self.max_files {
            let Some(oldest) = self.indexes.pop_first() else { break };
            match rustix::fs::unlinkat(&self.dir, format!("{}{oldest}", self.prefix), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn open_file(&mut self, index: u64) -> io::Result<()> {
        let name = format!("{}{index}", self.prefix);
        let file = if let Some(file) = open_own_file(&self.dir, &name)? {
            file
        } else {
            // Not a file of ours: a task put something there.
            rustix::fs::unlinkat(&self.dir, &name, AtFlags::empty())?;
            open_own_file(&self.dir, &name)?
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("log file {name} is not ours")))?
        };
        self.size = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        self.file = Some(file);
        self.indexes.insert(index);
        Ok(())
    }
}

/// Opens a regular file of our own, or makes it; `None` when something else stands there.
fn open_own_file(dir: &OwnedFd, name: &str) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o644)) {
        Ok(file) => file,
        Err(Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(error) => return Err(context(error, &format!("log file {name} cannot be opened"))),
    };
    let stat = rustix::fs::fstat(&file)?;
    let is_ours = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && stat.st_nlink == 1;
    Ok(is_ours.then_some(file))
}

/// Opens `alloc/logs` beneath the allocation's directory; a link on the way is refused.
fn open_log_dir(alloc_dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, alloc_dir, flags | OFlags::NOFOLLOW, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(rustix::fs::openat2(root.as_fd(), "alloc/logs", flags, Mode::empty(), resolve)?)
}

fn existing_indexes(dir: &OwnedFd, prefix: &str) -> io::Result<BTreeSet<u64>> {
    let mut indexes = BTreeSet::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if let Some(index) = name.strip_prefix(prefix).and_then(|index| index.parse().ok()) {
            indexes.insert(index);
        }
    }
    Ok(indexes)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Logs {
        dir: tempfile::TempDir,
    }

    impl Logs {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            std::fs::create_dir_all(dir.path().join("alloc/logs")).expect("log directory");
            Self { dir }
        }

        fn spec(&self, max_files: u32, max_file_bytes: u64) -> LogSpec {
            let path = self.dir.path().to_string_lossy().into_owned();
            LogSpec { alloc_dir: path.clone(), fifo_dir: path, task: "t".into(), max_files, max_file_bytes }
        }

        fn rotator(&self, max_files: u32, max_file_bytes: u64) -> Rotator {
            Rotator::open(&self.spec(max_files, max_file_bytes), Stream::Stdout).expect("a rotator")
        }

        /// A stream and the task's end of it.
        fn pipe(&self, max_files: u32, max_file_bytes: u64) -> (Pipe, OwnedFd) {
            let spec = self.spec(max_files, max_file_bytes);
            let pipe = open_pipe(&spec, Stream::Stdout, None).expect("a pipe");
            (pipe, open_task_end(&spec, Stream::Stdout).expect("the task's end"))
        }

        fn write(&self, max_files: u32, max_file_bytes: u64, writes: &[&str]) {
            let mut rotator = self.rotator(max_files, max_file_bytes);
            for text in writes {
                rotator.write(text.as_bytes());
            }
        }

        fn files(&self) -> Vec<(String, String)> {
            let mut files: Vec<(String, String)> = std::fs::read_dir(self.dir.path().join("alloc/logs"))
                .expect("log directory")
                .map(|entry| entry.expect("an entry").path())
                .map(|path| {
                    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                    (name, std::fs::read_to_string(path).expect("text"))
                })
                .collect();
            files.sort();
            files
        }

        fn sizes(&self) -> Vec<usize> {
            self.files().into_iter().map(|(_, text)| text.len()).collect()
        }
    }

    #[test]
    fn a_121_a_long_line_is_split_at_the_size() {
        let logs = Logs::new();
        logs.write(10, 5, &["abcdefgh"]);
        let wanted = [("t.stdout.0".to_owned(), "abcde".to_owned()), ("t.stdout.1".to_owned(), "fgh".to_owned())];
        assert_eq!(logs.files(), wanted);
    }

    #[test]
    fn a_122_lines_stay_whole_when_they_fit() {
        let logs = Logs::new();
        logs.write(10, 5, &["ab\ncdef\n", "1234567890", "\n"]);
        assert_eq!(logs.sizes(), [3, 5, 5, 5, 1]);
    }

    #[test]
    fn a_123_only_the_newest_files_are_kept() {
        let logs = Logs::new();
        logs.write(2, 2, &["abcdefghijklm"]);
        let names: Vec<String> = logs.files().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["t.stdout.5", "t.stdout.6"]);
    }

    #[test]
    fn a_124_a_restart_continues_in_the_highest_file() {
        let logs = Logs::new();
        logs.write(10, 5, &["abcd"]);
        logs.write(10, 5, &["efghijkl"]);
        assert_eq!(logs.sizes(), [5, 5, 2]);
    }

    #[tokio::test]
    async fn what_a_runtime_carries_over_after_the_end_of_its_container_is_kept() {
        use std::io::Write as _;
        let logs = Logs::new();
        let spec = logs.spec(1, 100);
        let held = hold_fifos(&spec).expect("fifos");
        let pipe = open_runtime_pipe(&spec, Stream::Stdout).expect("a pipe");
        let mut runtime = std::fs::OpenOptions::new().write(true).open(&held.stdout).expect("the runtime's end");
        drop(held);
        runtime.write_all(b"early\n").expect("written");
        let ended = CancellationToken::new();
        ended.cancel();
        let carry = async {
            // By now everything that was there when the container ended is taken.
            tokio::task::yield_now().await;
            runtime.write_all(b"late\n").expect("written");
            drop(runtime);
        };
        tokio::join!(collect(pipe, ended), carry);
        assert_eq!(logs.files(), [("t.stdout.0".to_owned(), "early\nlate\n".to_owned())]);
    }

    /// The oracle: what was written, cut by hand.
    #[tokio::test]
    async fn what_is_moved_from_a_pipe_is_whole_and_files_end_at_lines() {
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..60 {
            let logs = Logs::new();
            let max_bytes = [10, 1000, 70_000, 200_000][round % 4];
            let (mut pipe, task) = logs.pipe(u32::MAX, max_bytes);
            let (mut all, n_writes) = (Vec::new(), random.usize(1..40));
            for _ in 0..n_writes {
                let longest = [8, 300, 30_000][random.usize(0..if max_bytes < 1000 { 2 } else { 3 })];
                let mut text = vec![random.u8(b'a'..=b'z'); random.usize(0..longest)];
                text.push(if random.u8(0..4) == 0 { b'x' } else { b'\n' });
                assert_eq!(rustix::io::write(&task, &text), Ok(text.len()), "a pipe holds it");
                all.extend_from_slice(&text);
                if random.bool() {
                    while transfer(pipe.reader.get_ref(), &mut pipe.rotator).is_ok() {}
                }
                while rustix::io::ioctl_fionread(pipe.reader.get_ref()).expect("a number") > 30_000 {
                    transfer(pipe.reader.get_ref(), &mut pipe.rotator).expect("moved");
                }
            }
            while transfer(pipe.reader.get_ref(), &mut pipe.rotator).is_ok() {}
            let name = |n: usize| logs.dir.path().join(format!("alloc/logs/t.stdout.{n}"));
            let files: Vec<Vec<u8>> = (0..).map_while(|n| std::fs::read(name(n)).ok()).collect();
            assert!(files.concat() == all, "round {round}: {} of {} bytes", files.concat().len(), all.len());
            let max_bytes = usize::try_from(max_bytes).expect("a size");
            for (n, file) in files.iter().enumerate() {
                assert!(file.len() <= max_bytes, "round {round}: file {n} has {} bytes", file.len());
                let is_full = file.len() == max_bytes || n + 1 == files.len();
                assert!(is_full || file.ends_with(b"\n"), "round {round}: file {n} ends within a line");
            }
        }
    }

    #[tokio::test]
    async fn a_file_that_is_made_shorter_goes_on_from_there() {
        let logs = Logs::new();
        let (mut pipe, task) = logs.pipe(1, 1 << 20);
        for (text, wanted) in [("long ago\n", "long ago\n"), ("now\n", "now\n")] {
            rustix::io::write(&task, text.as_bytes()).expect("written");
            while transfer(pipe.reader.get_ref(), &mut pipe.rotator).is_ok() {}
            let file = logs.dir.path().join("alloc/logs/t.stdout.0");
            assert_eq!(std::fs::read_to_string(&file).expect("text"), wanted);
            // As who rotates by copying does.
            std::fs::File::options().write(true).open(&file).and_then(|file| file.set_len(0)).expect("shorter");
        }
    }

    #[test]
    fn must_survive_a_link_in_the_place_of_a_log_file() {
        let logs = Logs::new();
        let victim = logs.dir.path().join("victim");
        std::fs::write(&victim, "precious").expect("a file");
        let link = logs.dir.path().join("alloc/logs/t.stdout.0");
        std::os::unix::fs::symlink(&victim, &link).expect("a link");
        logs.write(10, 100, &["output"]);
        assert_eq!(std::fs::read_to_string(&victim).expect("text"), "precious");
        assert_eq!(std::fs::read_to_string(&link).expect("text"), "output");
        assert!(!link.symlink_metadata().expect("metadata").is_symlink());
    }

    #[test]
    fn must_survive_a_link_in_the_place_of_the_log_directory() {
        let logs = Logs::new();
        std::fs::remove_dir(logs.dir.path().join("alloc/logs")).expect("removed");
        std::os::unix::fs::symlink("/tmp", logs.dir.path().join("alloc/logs")).expect("a link");
        let alloc_dir = logs.dir.path().to_string_lossy().into_owned();
        let spec = LogSpec { alloc_dir, fifo_dir: String::new(), task: "t".into(), max_files: 1, max_file_bytes: 1 };
        assert!(Rotator::open(&spec, Stream::Stdout).is_err());
    }
}
