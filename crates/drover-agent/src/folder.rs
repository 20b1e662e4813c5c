//! Making folders, with those above them.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes a folder with this mode, and with the same mode those above it that are missing. One that is there stays as it
/// is.
pub(crate) fn make(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn missing_folders_get_the_mode_and_those_that_are_there_keep_theirs() {
        let dir = tempfile::tempdir().expect("a folder");
        let mode = |path: &Path| path.metadata().expect("metadata").permissions().mode() & 0o777;
        let deep = dir.path().join("a/b");
        make(&deep, 0o700).expect("made");
        assert_eq!((mode(&dir.path().join("a")), mode(&deep)), (0o700, 0o700));
        make(&deep, 0o711).expect("it is there");
        assert_eq!(mode(&deep), 0o700);
        std::fs::write(deep.join("file"), "").expect("a file");
        assert!(make(&deep.join("file/c"), 0o700).is_err(), "a file is no folder");
    }
}
