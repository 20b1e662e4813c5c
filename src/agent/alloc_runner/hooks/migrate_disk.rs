//! Hook `migrate_disk`: a group with a sticky disk goes on with the files of the allocation that it replaces on this node.
//!
//! What is moved is `alloc/data` and each task's `local`. A task may have put anything in their place: only directories are moved,
//! by name beneath directories that no task can change. What cannot be moved is left, and the allocation begins with an empty disk.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

use super::HookError;
use crate::agent::alloc_runner::AllocPlan;
use crate::agent::dirs::AllocDir;

pub(super) fn prerun(plan: &AllocPlan, dir: &AllocDir) -> Result<(), HookError> {
    let disk = &plan.group.ephemeral_disk;
    let Some(previous) = plan.previous_dir.as_ref().filter(|_| disk.sticky || disk.migrate) else { return Ok(()) };
    if !plan.restored.is_empty() {
        // It has moved them in an earlier life.
        return Ok(());
    }
    for task in &plan.group.tasks {
        let secrets_mb = task.resources.secrets_mb.unwrap_or(1);
        dir.build_task(&task.name, secrets_mb)
            .map_err(|error| HookError { hook: "migrate_disk", reason: error.to_string() })?;
    }
    let tasks: Vec<&str> = plan.group.tasks.iter().map(|task| task.name.as_str()).collect();
    move_disk(previous, dir, &tasks);
    Ok(())
}

/// Moves what can be moved, and says what cannot.
fn move_disk(from: &AllocDir, to: &AllocDir, tasks: &[&str]) {
    let data = [(from.shared(), to.shared(), "data")];
    let locals = tasks.iter().map(|task| (from.task(task), to.task(task), "local"));
    for (source, target, name) in data.into_iter().chain(locals) {
        match move_directory(&source, &target, name) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(error = %error, dir = %source.join(name).display(), "files stay with the earlier allocation");
            }
        }
    }
}

/// Takes the place of an empty directory of the same name.
fn move_directory(from: &Path, to: &Path, name: &str) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let source = rustix::fs::openat(CWD, from, flags, Mode::empty())?;
    let target = rustix::fs::openat(CWD, to, flags, Mode::empty())?;
    let found = rustix::fs::statat(&source, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no directory any more"));
    }
    Ok(rustix::fs::renameat(&source, name, &target, name)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn allocs(dir: &Path) -> [AllocDir; 2] {
        ["one", "two"].map(|uid| {
            let alloc = AllocDir::new(dir, uid);
            alloc.build().expect("built");
            alloc.build_task("web", 1).expect("built");
            alloc
        })
    }

    #[test]
    fn a_166_a_replacement_on_the_same_node_goes_on_with_the_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let [one, two] = allocs(dir.path());
        fs::write(one.shared().join("data/rows"), "kept").expect("a file");
        fs::write(one.task("web").join("local/cache"), "kept too").expect("a file");
        fs::write(one.task("web").join("secrets/key"), "not kept").expect("a file");
        move_disk(&one, &two, &["web", "other"]);
        assert_eq!(fs::read_to_string(two.shared().join("data/rows")).expect("text"), "kept");
        assert_eq!(fs::read_to_string(two.task("web").join("local/cache")).expect("text"), "kept too");
        assert!(!two.task("web").join("secrets/key").exists());
        one.destroy().and(two.destroy()).expect("destroyed");
    }

    #[test]
    fn must_survive_a_link_in_the_place_of_the_data() {
        let dir = tempfile::tempdir().expect("a directory");
        let [one, two] = allocs(dir.path());
        fs::remove_dir(one.shared().join("data")).expect("removed");
        std::os::unix::fs::symlink("/etc", one.shared().join("data")).expect("a link");
        move_disk(&one, &two, &["web"]);
        let data = two.shared().join("data").symlink_metadata().expect("metadata");
        assert!(data.is_dir(), "a new allocation has its own empty directory");
        one.destroy().and(two.destroy()).expect("destroyed");
        assert!(Path::new("/etc/passwd").exists());
    }
}
