//! Paths that a job gives for files of a task: below the task's directory, or below the one that its group shares.

use super::environment::TaskPaths;

/// What a path is below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SandboxBase {
    /// The task's directory.
    Task,
    /// The directory that the tasks of an allocation share.
    Shared,
}

/// A place below a task's directories.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SandboxPath {
    /// What it is below.
    pub base: SandboxBase,
    /// The names on the way, none of them `.` or `..`.
    pub parts: Vec<String>,
}

/// Where an absolute path leads that begins with none of the task's own directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherRoot {
    /// Out of the sandbox.
    Outside,
    /// Below the task's directory, as if that were the root.
    TaskDir,
}

/// Where an expanded path leads; none: out of the task's directories. An absolute path may begin with one that the task
/// knows its own directories by.
pub fn sandbox_path(text: &str, paths: Option<&TaskPaths>, other: OtherRoot) -> Option<SandboxPath> {
    let below = |base: &str| {
        let rest = text.strip_prefix(base).filter(|_| !base.is_empty())?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    };
    let known = paths.and_then(|paths| {
        let bases = [
            (paths.alloc.as_str(), SandboxBase::Shared, None),
            (&paths.local, SandboxBase::Task, Some("local")),
            (&paths.secrets, SandboxBase::Task, Some("secrets")),
        ];
        bases.into_iter().find_map(|(base, of, first)| below(base).map(|rest| (of, first, rest)))
    });
    let (base, first, rest) = match known {
        Some(known) => known,
        None if text.starts_with('/') && other == OtherRoot::Outside => return None,
        None => (SandboxBase::Task, None, text),
    };
    let mut parts: Vec<String> = first.map(str::to_owned).into_iter().collect();
    for part in rest.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." || part.contains('\0') || part.len() > 255 {
            return None;
        }
        parts.push(part.to_owned());
    }
    Some(SandboxPath { base, parts })
}

impl std::fmt::Display for SandboxPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let base = match self.base {
            SandboxBase::Task => "",
            SandboxBase::Shared => "alloc/",
        };
        write!(f, "{base}{}", self.parts.join("/"))
    }
}

#[cfg(test)]
mod tests {
    mod random;

    use super::*;

    #[test]
    fn a_path_leads_to_the_tasks_own_directories_or_nowhere() {
        let paths = TaskPaths { alloc: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() };
        let at = |text: &str, other| {
            sandbox_path(text, Some(&paths), other).map(|found| format!("{:?} {found}", found.base))
        };
        for (text, leads) in [
            ("", "Task "),
            ("./bin//x", "Task bin/x"),
            ("/local/bin", "Task local/bin"),
            ("/secrets/db", "Task secrets/db"),
            ("/alloc/data", "Shared alloc/data"),
        ] {
            for other in [OtherRoot::Outside, OtherRoot::TaskDir] {
                assert_eq!(at(text, other).as_deref(), Some(leads), "{text}");
            }
        }
        for text in ["..", "local/../../x", "/alloc/../x", "a\0b"] {
            assert_eq!(at(text, OtherRoot::TaskDir), None, "{text}");
        }
        for text in ["/etc/abs", "/allocs"] {
            assert_eq!(at(text, OtherRoot::Outside), None, "{text}");
            let below_the_task = format!("Task {}", text.trim_start_matches('/'));
            assert_eq!(at(text, OtherRoot::TaskDir), Some(below_the_task), "{text}");
        }
        assert_eq!(sandbox_path("/alloc/data", None, OtherRoot::Outside), None);
    }
}
