//! Files of a task that the agent reads and writes for it, beneath directories that the task may change at any moment:
//! by descriptors, and without following a link.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use drover_core::task::sandbox_path::SandboxPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::alloc_dir::AllocDir;
use super::beneath::{Owner, Place, give_to, held_path, set_mode};

/// A file of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskFile<'a> {
    pub(crate) dir: &'a AllocDir,
    pub(crate) task: &'a str,
    pub(crate) path: &'a SandboxPath,
}

/// What a file is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFile<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) mode: u32,
    /// Whose it becomes; none: it stays the agent's.
    pub(crate) owner: Option<Owner>,
    /// Whose directories become that are made on the way.
    pub(crate) owner_of_dirs: Option<Owner>,
}

impl TaskFile<'_> {
    /// The directory that its path begins in.
    pub(crate) fn base(&self) -> PathBuf {
        self.dir.base(self.task, self.path.base)
    }

    /// Reads it, at most `most` bytes.
    pub(super) fn read(&self, most: u64) -> io::Result<Vec<u8>> {
        let base = Place::open(&self.base())?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let held = rustix::fs::openat2(&base, self.path.parts.join("/"), flags, Mode::empty(), resolve);
        let held = held.map_err(|error| match error {
            Errno::LOOP => io::Error::other("a link is on the way to it, which is not followed"),
            other => other.into(),
        })?;
        let found = rustix::fs::fstat(&held)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || found.st_nlink != 1 {
            return Err(io::Error::other("it is no plain file with one name"));
        }
        let file = std::fs::File::open(held_path(&held))?;
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
            return Err(io::Error::other(format!("it has more than {most} bytes")));
        }
        Ok(bytes)
    }

    /// Puts a file in its place: a reader sees the old one or the new one, and no half of it. Directories on the way
    /// are made.
    pub(super) fn replace(&self, file: &NewFile<'_>) -> io::Result<()> {
        let (name, parents) = self.path.parts.split_last().ok_or_else(|| io::Error::other("the path names no file"))?;
        let mut here = Place::open(&self.base())?;
        for part in parents {
            let made = here.make(part, 0o755, file.owner_of_dirs)?;
            here = made.ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotADirectory, format!("{part} is no directory: remove it"))
            })?;
        }
        let (unfinished, mode) = (format!(".{name}.new"), Mode::from_raw_mode(0o600));
        match rustix::fs::unlinkat(&here, &*unfinished, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut fresh = std::fs::File::from(rustix::fs::openat(&here, &*unfinished, flags, mode)?);
        let finished = fresh.write_all(file.bytes).and_then(|()| {
            if let Some(owner) = file.owner {
                give_to(&fresh, owner)?;
            }
            set_mode(&fresh, file.mode)?;
            Ok(rustix::fs::renameat(&here, &*unfinished, &here, &**name)?)
        });
        if finished.is_err()
            && let Err(error) = rustix::fs::unlinkat(&here, &*unfinished, AtFlags::empty())
        {
            tracing::debug!(%error, file = unfinished, "an unfinished file is left");
        }
        finished
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use drover_core::task::sandbox_path::SandboxBase;

    use super::*;
    use crate::node::alloc_dir::TaskFolder;

    /// An allocation's directory with a task `t`; its mounts go with it.
    struct World {
        dir: tempfile::TempDir,
        alloc: AllocDir,
    }

    impl Drop for World {
        fn drop(&mut self) {
            let destroyed = self.alloc.destroy();
            assert!(destroyed.is_ok() || std::thread::panicking(), "{destroyed:?}");
        }
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let alloc = AllocDir::new(dir.path(), "uid");
            alloc.build(None).expect("built");
            alloc.build_task(&TaskFolder { task: "t", secrets_mb: 1, owner: None }).expect("built");
            Self { dir, alloc }
        }

        fn file<T>(&self, path: &str, act: impl FnOnce(&TaskFile<'_>) -> T) -> T {
            let path = SandboxPath { base: SandboxBase::Task, parts: path.split('/').map(str::to_owned).collect() };
            act(&TaskFile { dir: &self.alloc, task: "t", path: &path })
        }

        fn replace(&self, path: &str, text: &str, mode: u32) -> io::Result<()> {
            let owner = rustix::process::geteuid().is_root().then_some(Owner { uid: 2_000_001, gid: 2_000_002 });
            let new = NewFile { bytes: text.as_bytes(), mode, owner, owner_of_dirs: owner };
            self.file(path, |file| file.replace(&new))
        }

        fn read(&self, path: &str) -> io::Result<String> {
            let bytes = self.file(path, |file| file.read(8))?;
            Ok(String::from_utf8(bytes).expect("text"))
        }
    }

    #[test]
    fn a_file_has_its_mode_and_owner_and_takes_the_place_of_the_old_one() {
        let world = World::new();
        for (path, text, mode) in [("local/a/x", "one", 0o644), ("local/a/x", "two", 0o600), ("secrets/x", "s", 0o400)]
        {
            world.replace(path, text, mode).expect("written");
            assert_eq!(world.read(path).expect("read"), text);
            let found = fs::metadata(world.alloc.task("t").join(path)).expect("metadata");
            assert_eq!(found.mode() & 0o7777, mode, "{path}");
            if rustix::process::geteuid().is_root() {
                assert_eq!((found.uid(), found.gid()), (2_000_001, 2_000_002));
            }
        }
        let left: Vec<_> = fs::read_dir(world.alloc.task("t").join("local/a")).expect("a list").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn must_survive_links_of_a_task_in_the_way_of_a_file() {
        let world = World::new();
        let outside = world.dir.path().join("outside");
        fs::create_dir(&outside).expect("a directory");
        fs::write(outside.join("x"), "safe").expect("a file");
        let local = world.alloc.task("t").join("local");
        symlink(&outside, local.join("way")).expect("a link");
        symlink(outside.join("x"), local.join("x")).expect("a link");
        symlink(outside.join("x"), local.join(".x.new")).expect("a link");
        let refused = world.replace("local/way/x", "new", 0o644).expect_err("a link in the way");
        assert!(refused.to_string().contains("way is no directory"), "{refused}");
        for path in ["local/way/x", "local/x"] {
            let refused = world.read(path).expect_err(path).to_string();
            assert!(refused.contains("a link is on the way"), "{path}: {refused}");
        }
        world.replace("local/x", "new", 0o644).expect("the link itself is replaced");
        assert_eq!(
            (world.read("local/x").expect("read"), fs::read_to_string(outside.join("x")).expect("read")),
            ("new".into(), "safe".into())
        );
    }

    #[test]
    fn must_survive_what_is_no_plain_file() {
        let world = World::new();
        let local = world.alloc.task("t").join("local");
        fs::write(local.join("one"), "1").expect("a file");
        fs::hard_link(local.join("one"), local.join("two")).expect("a second name");
        let fifo = local.join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("a FIFO");
        fs::write(local.join("long"), "123456789").expect("a file");
        fs::write(local.join("deaf"), "1").expect("a file");
        fs::set_permissions(local.join("deaf"), fs::Permissions::from_mode(0o0)).expect("a mode");
        for (name, why) in
            [("two", "no plain file"), ("fifo", "no plain file"), ("long", "more than 8"), ("", "no plain file")]
        {
            let refused = world.read(&format!("local/{name}")).expect_err(name).to_string();
            assert!(refused.contains(why), "{name}: {refused}");
        }
        assert_eq!(world.read("local/none").expect_err("none").kind(), io::ErrorKind::NotFound);
        let refused = world.replace("local", "new", 0o644).expect_err("a directory");
        assert!(local.is_dir() && !local.with_file_name(".local.new").exists(), "{refused}");
    }
}
