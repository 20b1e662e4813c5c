//! Where an artifact goes: below its task's directory, or below the one that the group shares.

use crate::task::environment::TaskPaths;
use crate::task::sandbox_path::{OtherRoot, SandboxBase, SandboxPath, sandbox_path};

/// Why nothing can be put there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// It leads out of the task's directory.
    #[error("relativeDest {0:?} leads out of the task's directory; take a relative path without .., as local/bin")]
    Escapes(String),
    /// The directories for secrets are small, and in memory.
    #[error("relativeDest {0:?} is for secrets, which are kept in memory; fetch into local/")]
    Secret(String),
    /// The directory of output is the agent's.
    #[error("relativeDest {0:?} is for the output of tasks; fetch into local/")]
    Output(String),
}

/// Where an artifact with this expanded `relativeDest` goes; empty: `local`. Absolute paths are taken that begin with
/// one that the task knows its own directories by.
///
/// # Errors
/// When it would leave the task's directory and that of its allocation.
pub fn destination(text: &str, paths: Option<&TaskPaths>) -> Result<SandboxPath, DestinationError> {
    let shown = || text.chars().take(128).collect();
    let given = if text.is_empty() { "local" } else { text };
    let found = sandbox_path(given, paths, OtherRoot::Outside).ok_or_else(|| DestinationError::Escapes(shown()))?;
    match (found.base, found.parts.first().map(String::as_str)) {
        (SandboxBase::Task, Some("secrets" | "private")) => Err(DestinationError::Secret(shown())),
        (SandboxBase::Shared, Some("logs")) => Err(DestinationError::Output(shown())),
        (SandboxBase::Task | SandboxBase::Shared, _) => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_stays_below_its_tasks_directories_and_out_of_memory() {
        let paths = TaskPaths { alloc: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() };
        let at = |text: &str| destination(text, Some(&paths)).map(|found| found.to_string());
        for (text, leads) in [("", "local"), ("local/", "local"), ("bin/x", "bin/x"), ("/alloc/data", "alloc/data")] {
            assert_eq!(at(text).as_deref(), Ok(leads), "{text}");
        }
        for text in ["..", "/etc", "/alloc/../x"] {
            assert!(matches!(at(text), Err(DestinationError::Escapes(_))), "{text}");
        }
        for text in ["secrets/x", "./private", "/secrets"] {
            assert!(matches!(at(text), Err(DestinationError::Secret(_))), "{text}");
        }
        assert!(matches!(at("/alloc/logs"), Err(DestinationError::Output(_))));
    }
}
