//! Taking away what is mounted below the allocations' directories.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::UnmountFlags;

/// Unmounts everything below a directory, the deepest first.
pub fn unmount_below(root: &Path) -> io::Result<()> {
    let root = match root.canonicalize() {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for point in mounts_below(&root)? {
        match rustix::mount::unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Where something is mounted below a directory, which is given as the kernel knows it; the deepest first.
pub fn mounts_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut points = mount_points(&fs::read_to_string("/proc/self/mountinfo")?);
    points.retain(|point| point.starts_with(root) && *point != root);
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    Ok(points)
}

/// Whether something is mounted at this place.
pub fn is_mount_point(path: &Path) -> io::Result<bool> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    // Of the place itself links are not followed: it may be a mount whose server is gone.
    let place = match parent.canonicalize() {
        Ok(parent) => parent.join(name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    Ok(mount_points(&fs::read_to_string("/proc/self/mountinfo")?).contains(&place))
}

/// The mount points of `/proc/self/mountinfo`, whose fifth field writes blanks as octal escapes.
fn mount_points(mountinfo: &str) -> Vec<PathBuf> {
    let unescape =
        |text: &str| text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\");
    mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(|point| PathBuf::from(unescape(point))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_mount_points_are_read_back() {
        let info = "36 35 98:0 / /a/x\\040y rw - tmpfs tmpfs rw\n37 35 98:0 / /b rw - tmpfs tmpfs rw\n";
        assert_eq!(mount_points(info), [PathBuf::from("/a/x y"), PathBuf::from("/b")]);
    }
}
