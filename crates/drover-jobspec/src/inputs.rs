//! What a job file is read with.

use std::collections::BTreeMap;

/// The files that functions such as `file` may read. Without it they are refused: who parses a job file for others
/// reads no files for them.
pub trait Files: std::fmt::Debug {
    /// The content of a file.
    ///
    /// # Errors
    /// Why it cannot be read, in words for people.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;

    /// The paths below a folder that match a pattern, relative to the folder and in order.
    ///
    /// # Errors
    /// Why the folder cannot be read, in words for people.
    fn matching(&self, folder: &str, pattern: &str) -> Result<Vec<String>, String>;
}

/// Values for a job file's variables, and what else it may use.
#[derive(Debug, Default)]
pub struct Inputs<'a> {
    /// Files of values, as `-var-file` names them: name and text. A later one wins.
    pub files: Vec<(String, String)>,
    /// Values by variable, as the environment's `NOMAD_VAR_name` gives them. Those of files win.
    pub environment: BTreeMap<String, String>,
    /// Values by variable, as `-var` gives them. They win over all.
    pub values: BTreeMap<String, String>,
    /// The files that functions may read.
    pub readable: Option<&'a dyn Files>,
}
