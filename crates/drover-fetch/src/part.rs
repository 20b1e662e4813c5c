//! What was downloaded.

use std::io;
use std::path::PathBuf;

use drover_core::artifact::ArchiveForm;

use crate::pack::Commit;

/// A file that was downloaded, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) file: PathBuf,
    pub(crate) form: Form,
    /// The name of the file, where it becomes one: a path below the result.
    pub(crate) name: String,
}

/// What a downloaded file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An archive, or the file itself.
    Archive(ArchiveForm),
    /// A pack of git's objects, in a folder of its own with its index.
    Pack(Commit),
}

impl Part {
    /// Takes it away.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match (&self.form, self.file.parent()) {
            (Form::Pack(_), Some(folder)) => std::fs::remove_dir_all(folder),
            _ => std::fs::remove_file(&self.file),
        }
    }
}
