//! Files and folders of a hierarchy.

use std::fs;
use std::io;
use std::path::Path;

/// The group of the processes that look after containers: within the cap of all tasks, since each belongs to one.
pub(super) const SHIMS: &str = "tasks.slice/share.slice/shims";

pub(super) fn remove_dir(dir: &Path) -> io::Result<()> {
    match fs::remove_dir(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", dir.display()))),
    }
}

/// Removes a group and those below it; nothing runs in them.
pub(super) fn remove_tree(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_tree(&path)?;
        }
    }
    remove_dir(dir)
}

pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", dir.display()))),
    }
}

pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    // Not created when it is missing: then the host lacks the controller.
    let written = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| io::Error::new(error.kind(), format!("{} = {text}: {error}", path.display())))
}

pub(super) fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind a name in a file of `name number` lines.
pub(super) fn read_field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}
