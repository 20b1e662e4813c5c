//! A downloaded file.

use std::path::PathBuf;

use drover_core::artifact::ArchiveForm;

/// A file that was downloaded, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) file: PathBuf,
    pub(crate) form: ArchiveForm,
    /// The name of the file, where it becomes one: a path below the result.
    pub(crate) name: String,
}
