//! Why a daemon does not take its configuration file.

use std::path::PathBuf;

/// Why a configuration file is not used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration {path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is no configuration.
    #[error("configuration {path}: {reason}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        reason: String,
    },
    /// A value is out of its range.
    #[error("configuration {path}: {field}: {reason}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// Why, and the remedy.
        reason: String,
    },
}
