//! The documents of the tree that people read: Markdown at its top, in `docs/` and in `examples/`.
//!
//! `docs/spec` is left out: its files are copies, and what they say is not ours to change.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
pub(super) use drover_testkit::documents::{DocumentLine, lines};

/// Documents at the top of the tree.
const AT_THE_TOP: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
/// Folders whose Markdown files are documents.
const FOLDERS: [&str; 2] = ["docs", "examples"];
/// What is left out.
const COPIES: &str = "docs/spec/";

/// Documents by their path from the root of the tree.
#[derive(Debug, Default)]
pub(super) struct Documents(BTreeMap<String, String>);

impl Documents {
    /// Reads all of them.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut found = BTreeMap::new();
        for name in AT_THE_TOP {
            let path = root.join(name);
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            found.insert(name.to_owned(), text);
        }
        for folder in FOLDERS {
            collect(root, folder, &mut found)?;
        }
        Ok(Self(found))
    }

    /// Path and text of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of one.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Documents {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(all: I) -> Self {
        Self(all.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect())
    }
}

fn collect(root: &Path, folder: &str, found: &mut BTreeMap<String, String>) -> Result<()> {
    let place = root.join(folder);
    let entries = fs::read_dir(&place).with_context(|| format!("reading {}", place.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("reading {}", place.display()))?.path();
        let name = format!("{folder}/{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            collect(root, &name, found)?;
        } else if path.extension().is_some_and(|extension| extension == "md") && !name.starts_with(COPIES) {
            found.insert(name, fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?);
        }
    }
    Ok(())
}

/// The parts of a line that stand between single backticks.
pub(super) fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        for name in [
            "README.md",
            "ARCHITECTURE.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "docs/a.md",
            "docs/spec/b.md",
            "examples/c/README.md",
        ] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
        }
        let found = Documents::read(root.path()).unwrap();
        let names: Vec<_> = found.iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "docs/a.md", "examples/c/README.md"]
        );
    }
}
