//! Whether `docs/spec` holds the shared specifications byte for byte.
//!
//! They lie in `../shared/spec` beside the checkout where it is developed. Elsewhere there is nothing to compare with.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Where the specifications lie, from the root of the tree.
const SHARED: &str = "../shared/spec";
/// Where their copies lie.
const COPIES: &str = "docs/spec";

/// Copies that differ, lack, or are left over.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn differing(root: &Path) -> Result<Vec<String>> {
    let shared = root.join(SHARED);
    if !shared.is_dir() {
        return Ok(Vec::new());
    }
    let (wanted, found) = (markdown(&shared)?, markdown(&root.join(COPIES))?);
    let mut names: Vec<&String> = wanted.keys().chain(found.keys()).collect();
    names.sort();
    names.dedup();
    let fault = |name: &String| match (wanted.get(name), found.get(name)) {
        (Some(wanted), Some(found)) if wanted == found => None,
        (Some(_), Some(_)) => Some(format!("{COPIES}/{name} differs from {SHARED}/{name}: copy it again")),
        (Some(_), None) => Some(format!("{COPIES}/{name} is missing: copy it from {SHARED}")),
        (None, _) => Some(format!("{COPIES}/{name} is not in {SHARED}: remove it")),
    };
    Ok(names.into_iter().filter_map(fault).collect())
}

fn markdown(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry.with_context(|| format!("reading {}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.insert(name, fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("main/docs/spec")).unwrap();
        for (name, text) in files {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        place
    }

    #[test]
    fn a_copy_that_differs_lacks_or_is_left_over_is_named() {
        let place = tree(&[
            ("shared/spec/a.md", "new"),
            ("shared/spec/b.md", "same"),
            ("shared/spec/c.md", "only there"),
            ("main/docs/spec/a.md", "old"),
            ("main/docs/spec/b.md", "same"),
            ("main/docs/spec/d.md", "only here"),
        ]);
        let found = differing(&place.path().join("main")).unwrap();
        assert_eq!(
            found,
            [
                "docs/spec/a.md differs from ../shared/spec/a.md: copy it again",
                "docs/spec/c.md is missing: copy it from ../shared/spec",
                "docs/spec/d.md is not in ../shared/spec: remove it"
            ]
        );
    }

    #[test]
    fn without_the_shared_folder_there_is_nothing_to_compare() {
        let place = tree(&[("main/docs/spec/a.md", "old")]);
        assert_eq!(differing(&place.path().join("main")).unwrap(), [""; 0]);
    }
}
