//! The way of a download to where its task is: made in a directory of the agent's own, looked at, moved.
//!
//! The process that made it had no rights and is not believed: only files and directories of its own user are taken,
//! without second names and set-id bits. Whatever a task puts in the way, nothing is written outside of its directory:
//! each name is opened in the directory that is held, and no link is followed.

use std::ffi::{CStr, CString};
use std::io;

use drover_fetch::{FetchLimits, RESULT};
use rustix::fs::{Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::fetcher::Fetch;
use crate::node::beneath::{Owner, Place, give_to, nobody};
use crate::node::removal;

/// Most directories one in another.
const MAX_DEPTH: usize = 96;
const READABLE: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory in which an artifact is made.
#[derive(Debug)]
pub(super) struct Stage {
    place: Place,
    path: std::path::PathBuf,
}

impl Stage {
    /// Makes it, without what an earlier life has left in it. It lies beside the tasks' directories, where none writes.
    pub(super) fn make(fetch: &Fetch) -> Result<Self, String> {
        // A task's name is a DNS label, so that none is called so.
        let name = format!(".artifact-{}-{}", fetch.number, fetch.task);
        let path = fetch.dir.root().join(&name);
        let cannot = |error: io::Error| format!("directory {} cannot be made: {error}", path.display());
        removal::remove(&path).map_err(cannot)?;
        let root = Place::open(fetch.dir.root()).map_err(cannot)?;
        let made = root.make(&name, 0o700, nobody()).map_err(cannot)?;
        let place = made.ok_or_else(|| cannot(io::ErrorKind::NotADirectory.into()))?;
        Ok(Self { place, path })
    }

    /// A name that leads to it, while it is held.
    pub(super) fn path(&self) -> String {
        self.place.path()
    }

    /// Takes it away with what is in it.
    pub(super) fn remove(self) -> Result<(), String> {
        removal::remove(&self.path).map_err(|error| format!("directory {} is left: {error}", self.path.display()))
    }
}

/// Looks at the result and moves it where it belongs.
pub(super) fn place(stage: &Stage, fetch: &Fetch, limits: FetchLimits) -> Result<(), String> {
    let result = open(&stage.place, c"result").map_err(|error| format!("its {RESULT} cannot be read: {error}"))?;
    let inspection = Inspection {
        uid: nobody().map_or_else(|| rustix::process::geteuid().as_raw(), |owner| owner.uid),
        chown: fetch.chown,
        left: limits.files.saturating_add(limits.files),
    };
    inspection.look(&result)?;
    let to = destination(fetch)?;
    merge(&result, &to, 0)
}

/// The directory that the result goes into; made as far as it is missing.
fn destination(fetch: &Fetch) -> Result<Place, String> {
    let base = fetch.dir.base(&fetch.task, fetch.destination.base);
    let mut parts = &fetch.destination.parts[..];
    if fetch.plan.is_whole {
        parts = &parts[..parts.len().saturating_sub(1)];
    }
    let mut here =
        Place::open(&base).map_err(|error| format!("directory {} cannot be opened: {error}", base.display()))?;
    for part in parts {
        let owner = fetch.owner.or_else(nobody);
        let made =
            here.make(part, 0o755, owner).map_err(|error| format!("{part} in relativeDest cannot be made: {error}"))?;
        here = made.ok_or_else(|| format!("{part} in relativeDest is no directory: remove it, or take another one"))?;
    }
    Ok(here)
}

/// What may be moved.
struct Inspection {
    uid: u32,
    chown: Option<Owner>,
    /// Entries that may still come.
    left: u64,
}

impl Inspection {
    /// Looks at everything below a directory; no recursion.
    fn look(mut self, top: &impl std::os::fd::AsFd) -> Result<(), String> {
        let io = |error: Errno| format!("its result cannot be looked at: {error}");
        let mut levels = vec![Dir::read_from(top).map_err(io)?];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.next() else {
                levels.pop();
                continue;
            };
            let entry = entry.map_err(io)?;
            let name = entry.file_name().to_owned();
            if is_dots(&name) {
                continue;
            }
            let held = level.fd().map_err(io)?;
            let held =
                rustix::fs::openat(held, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
            let held = held.map_err(io)?;
            let found = rustix::fs::fstat(&held).map_err(io)?;
            let kind = FileType::from_raw_mode(found.st_mode);
            let is_plain = found.st_uid == self.uid && found.st_mode & 0o6000 == 0;
            match kind {
                FileType::RegularFile if is_plain && found.st_nlink == 1 => {}
                FileType::Directory if is_plain && levels.len() < MAX_DEPTH => {
                    let inner = open(&levels[levels.len() - 1].fd().map_err(io)?, &name).map_err(io)?;
                    levels.push(Dir::new(inner).map_err(io)?);
                }
                _ => {
                    return Err(format!(
                        "it has {}, which is no plain file and no directory",
                        name.to_string_lossy().escape_debug()
                    ));
                }
            }
            self.left =
                self.left.checked_sub(1).ok_or("it has more files than the node's limit (artifacts.maxFiles)")?;
            if let Some(owner) = self.chown {
                give_to(&held, owner).map_err(|error| format!("it cannot be given to its task's user: {error}"))?;
            }
        }
        Ok(())
    }
}

/// Moves what is in one directory into another. A file takes the place of one of its name; directories are merged.
fn merge(from: &impl std::os::fd::AsFd, to: &Place, depth: usize) -> Result<(), String> {
    let cannot = |name: &CStr, error: io::Error| {
        format!("{} cannot be put in its place: {error}", name.to_string_lossy().escape_debug())
    };
    let listed = |error: Errno| format!("its result cannot be read: {error}");
    for entry in Dir::read_from(from).map_err(listed)?.collect::<Result<Vec<_>, _>>().map_err(listed)? {
        let name: CString = entry.file_name().to_owned();
        if is_dots(&name) {
            continue;
        }
        match rustix::fs::renameat_with(from, &name, to, &name, RenameFlags::NOREPLACE) {
            Ok(()) => continue,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(cannot(&name, error.into())),
        }
        let Ok(text) = name.to_str() else { return Err(cannot(&name, io::ErrorKind::InvalidFilename.into())) };
        match open(from, &name) {
            Ok(inner) if depth < MAX_DEPTH => {
                let there = to.directory(text).map_err(|error| cannot(&name, error))?;
                let there = there.ok_or_else(|| cannot(&name, io::Error::other("something else is there")))?;
                merge(&inner, &there, depth + 1)?;
            }
            Err(Errno::NOTDIR) => {
                rustix::fs::renameat(from, &name, to, &name).map_err(|error| cannot(&name, error.into()))?;
            }
            Ok(_) => return Err(cannot(&name, io::Error::other("it is too deep"))),
            Err(error) => return Err(cannot(&name, error.into())),
        }
    }
    Ok(())
}

fn open(holder: &impl std::os::fd::AsFd, name: &CStr) -> Result<std::os::fd::OwnedFd, Errno> {
    rustix::fs::openat(holder, name, READABLE, Mode::empty())
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    use drover_core::artifact::{ArchiveForm, Compression, FetchPlan, FetchWay};
    use drover_core::task::sandbox_path::{SandboxBase, SandboxPath};

    use super::*;
    use crate::node::alloc_dir::{AllocDir, TaskFolder};
    use crate::node::beneath::NOBODY;

    const LIMITS: FetchLimits = FetchLimits { bytes: 1 << 20, files: 8, seconds: 5 };

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
            let alloc = AllocDir::new(&dir.path().join("uid"), "a");
            fs::create_dir(dir.path().join("uid")).expect("a directory");
            alloc.build(None).expect("built");
            alloc.build_task(&TaskFolder { task: "t", secrets_mb: 1, owner: None }).expect("built");
            Self { dir, alloc }
        }

        fn fetch(&self, to: &str) -> Fetch {
            let plan = FetchPlan {
                url: "https://a/x".to_owned(),
                way: FetchWay::Web,
                headers: std::collections::BTreeMap::new(),
                checksum: None,
                form: ArchiveForm::File(Compression::None),
                file_name: "x".to_owned(),
                is_whole: false,
            };
            let destination =
                SandboxPath { base: SandboxBase::Task, parts: to.split('/').map(str::to_owned).collect() };
            let dir = self.alloc.clone();
            Fetch { plan, destination, dir, task: "t".to_owned(), number: 0, owner: None, chown: None }
        }

        /// Puts a result together as a download does, and places it.
        fn place(&self, to: &str, make: impl FnOnce(&Path)) -> Result<(), String> {
            let fetch = self.fetch(to);
            let stage = Stage::make(&fetch)?;
            let result = stage.path.join(RESULT);
            fs::create_dir(&result).expect("a directory");
            make(&result);
            give_all(&stage.path);
            let placed = place(&stage, &fetch, LIMITS);
            stage.remove().expect("removed");
            placed
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.alloc.task("t").join(path)).unwrap_or_default()
        }
    }

    fn give_all(path: &Path) {
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).expect("given");
        }
        if path.symlink_metadata().expect("metadata").is_dir() {
            for entry in fs::read_dir(path).expect("a list") {
                give_all(&entry.expect("an entry").path());
            }
        }
    }

    #[test]
    fn a_result_is_merged_with_what_is_there_and_its_files_replace_those_of_their_names() {
        let world = World::new();
        fs::create_dir_all(world.alloc.task("t").join("local/app/etc")).expect("directories");
        fs::write(world.alloc.task("t").join("local/app/etc/a"), "old").expect("a file");
        fs::write(world.alloc.task("t").join("local/app/etc/b"), "own").expect("a file");
        let placed = world.place("local/app", |result| {
            fs::create_dir_all(result.join("etc/deep")).expect("directories");
            fs::write(result.join("etc/a"), "new").expect("a file");
            fs::write(result.join("etc/deep/c"), "c").expect("a file");
        });
        placed.expect("placed");
        let found = ["local/app/etc/a", "local/app/etc/b", "local/app/etc/deep/c"].map(|path| world.read(path));
        assert_eq!(found, ["new", "own", "c"]);
        let names: Vec<_> = fs::read_dir(world.alloc.root())
            .expect("a list")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().starts_with('.')), "{names:?}");
    }

    #[test]
    fn must_survive_what_a_download_should_not_have_made() {
        let world = World::new();
        let outside = world.dir.path().join("outside");
        fs::write(&outside, "untouched").expect("a file");
        let link = |result: &Path| symlink(&outside, result.join("x")).expect("a link");
        let twin = |result: &Path| {
            fs::write(result.join("x"), "").expect("a file");
            fs::hard_link(result.join("x"), result.parent().expect("a parent").join("y")).expect("a link");
        };
        let set_id = |result: &Path| {
            fs::write(result.join("x"), "").expect("a file");
            fs::set_permissions(result.join("x"), fs::Permissions::from_mode(0o4755)).expect("a mode");
        };
        let many = |result: &Path| (0..17).for_each(|n| fs::write(result.join(n.to_string()), "").expect("a file"));
        for (what, make) in [("link", &link as &dyn Fn(&Path)), ("twin", &twin), ("many", &many)] {
            let refused = world.place("local", make).expect_err(what);
            assert!(refused.contains("no plain file") || refused.contains("maxFiles"), "{what}: {refused}");
        }
        // Giving a file away takes the bits from it: then there is nothing to refuse.
        if world.place("local", set_id).is_ok() {
            let found = fs::metadata(world.alloc.task("t").join("local/x")).expect("placed");
            assert_eq!(found.mode() & 0o6000, 0);
        }
        assert_eq!(fs::read_to_string(&outside).expect("a file"), "untouched");
    }

    #[test]
    fn must_survive_links_of_a_task_in_the_way() {
        let world = World::new();
        let outside = world.dir.path().join("outside");
        fs::create_dir(&outside).expect("a directory");
        fs::write(outside.join("x"), "untouched").expect("a file");
        symlink(&outside, world.alloc.task("t").join("local/bin")).expect("a link");
        let file = |result: &Path| fs::write(result.join("x"), "new").expect("a file");
        let refused = world.place("local/bin", file).expect_err("a link in the way");
        assert!(refused.contains("bin in relativeDest is no directory"), "{refused}");
        let inner = |result: &Path| {
            fs::create_dir(result.join("bin")).expect("a directory");
            fs::write(result.join("bin/x"), "new").expect("a file");
        };
        world.place("local", inner).expect_err("a link in the way");
        symlink(outside.join("x"), world.alloc.task("t").join("local/x")).expect("a link");
        world.place("local", file).expect("the link itself is replaced");
        assert_eq!(
            (world.read("local/x").as_str(), fs::read_to_string(outside.join("x")).expect("a file").as_str()),
            ("new", "untouched")
        );
    }

    #[test]
    fn what_an_earlier_life_has_left_is_not_part_of_the_next_one() {
        let world = World::new();
        let fetch = world.fetch("local");
        let stage = Stage::make(&fetch).expect("made");
        fs::create_dir(stage.path.join(RESULT)).expect("a directory");
        fs::write(stage.path.join(RESULT).join("half"), "").expect("a file");
        drop(stage);
        let again = Stage::make(&fetch).expect("made again");
        assert_eq!(fs::read_dir(&again.path).expect("a list").count(), 0);
        again.remove().expect("removed");
    }
}
