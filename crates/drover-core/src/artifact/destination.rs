//! Where an artifact goes: below its task's directory, or below the one that the group shares.

use crate::task::environment::TaskPaths;

/// What the path is below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestinationBase {
    /// The task's directory.
    Task,
    /// The directory that the tasks of an allocation share.
    Shared,
}

/// Where an artifact goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// What it is below.
    pub base: DestinationBase,
    /// The names on the way, none of them `.` or `..`.
    pub parts: Vec<String>,
}

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
pub fn destination(text: &str, paths: Option<&TaskPaths>) -> Result<Destination, DestinationError> {
    let escapes = || DestinationError::Escapes(text.chars().take(128).collect());
    let below = |base: &str| {
        let rest = text.strip_prefix(base).filter(|_| !base.is_empty())?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    };
    let known = paths.and_then(|paths| {
        let bases = [
            (paths.alloc.as_str(), DestinationBase::Shared, None),
            (&paths.local, DestinationBase::Task, Some("local")),
        ];
        bases.into_iter().find_map(|(base, of, first)| below(base).map(|rest| (of, first, rest)))
    });
    let (base, first, rest) = match known {
        Some(known) => known,
        None if text.starts_with('/') => return Err(escapes()),
        None if text.is_empty() => (DestinationBase::Task, Some("local"), ""),
        None => (DestinationBase::Task, None, text),
    };
    let mut parts: Vec<String> = first.map(str::to_owned).into_iter().collect();
    for part in rest.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." || part.contains('\0') || part.len() > 255 {
            return Err(escapes());
        }
        parts.push(part.to_owned());
    }
    match (base, parts.first().map(String::as_str)) {
        (DestinationBase::Task, Some("secrets" | "private")) => {
            Err(DestinationError::Secret(text.chars().take(128).collect()))
        }
        (DestinationBase::Shared, Some("logs")) => Err(DestinationError::Output(text.chars().take(128).collect())),
        (DestinationBase::Task | DestinationBase::Shared, _) => Ok(Destination { base, parts }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_stays_below_its_tasks_directories() {
        let paths = TaskPaths { alloc: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() };
        let at = |text: &str| {
            destination(text, Some(&paths)).map(|found| format!("{:?} {}", found.base, found.parts.join("/")))
        };
        for (text, leads) in [
            ("", "Task local"),
            ("local/", "Task local"),
            ("./bin//x", "Task bin/x"),
            ("/local/bin", "Task local/bin"),
            ("/alloc/data", "Shared data"),
        ] {
            assert_eq!(at(text).as_deref(), Ok(leads), "{text}");
        }
        for text in ["..", "local/../../x", "/etc", "/allocs", "/alloc/../x", "a\0b"] {
            assert!(matches!(at(text), Err(DestinationError::Escapes(_))), "{text}");
        }
        for text in ["secrets/x", "./private"] {
            assert!(matches!(at(text), Err(DestinationError::Secret(_))), "{text}");
        }
        assert!(matches!(at("/alloc/logs"), Err(DestinationError::Output(_))));
        assert!(matches!(destination("/alloc/data", None), Err(DestinationError::Escapes(_))));
    }
}
