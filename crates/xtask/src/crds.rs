//! Writes `crds/*.yaml` from the types in `drover-api`, or says where they differ. The chart holds the same files: what
//! lies outside its folder Helm cannot read.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use drover_testkit::workspace;

const HEADER: &str = "# Written by `cargo xtask crds` from crates/drover-api. Do not edit.\n";

/// The folders that hold them, from the workspace's root: the one people apply, and the one of the chart.
const FOLDERS: [&str; 2] = ["crds", "charts/drover/files/crds"];

/// Writes the files that differ and removes those of kinds that are gone; returns the names of both.
///
/// # Errors
/// When a folder cannot be written.
pub fn write() -> Result<Vec<String>> {
    let wanted = wanted()?;
    let mut all_changed = Vec::new();
    for name in FOLDERS {
        let folder = workspace::root().join(name);
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        for file in differing(&wanted, &found(&folder)?) {
            let path = folder.join(&file);
            match wanted.get(&file) {
                Some(text) => workspace::write_with_mode(&path, text.as_bytes(), 0o644)?,
                None => fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?,
            }
            all_changed.push(format!("{name}/{file}"));
        }
    }
    Ok(all_changed)
}

/// Fails when a file differs from the types.
///
/// # Errors
/// Names the files and the command that writes them.
pub fn check() -> Result<()> {
    let wanted = wanted()?;
    for name in FOLDERS {
        let changed = differing(&wanted, &found(&workspace::root().join(name))?);
        if !changed.is_empty() {
            let files = changed.join(", ");
            bail!("in {name}, {files} differ from the types in crates/drover-api: run `cargo xtask crds`");
        }
    }
    Ok(())
}

fn wanted() -> Result<BTreeMap<String, String>> {
    let render = |crd: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition| {
        let name = crd.metadata.name.clone().context("a definition without a name")?;
        let text = serde_saphyr::to_string(&crd).with_context(|| format!("rendering {name}"))?;
        let plural = name.split('.').next().unwrap_or(&name);
        Ok((format!("{plural}.yaml"), format!("{HEADER}{}\n", text.trim_end())))
    };
    drover_api::crds().into_iter().map(render).collect()
}

fn found(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(files),
        Err(error) => return Err(error).with_context(|| format!("reading {}", folder.display())),
    };
    for entry in entries {
        let path = entry.with_context(|| format!("reading {}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.insert(name, fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?);
    }
    Ok(files)
}

fn differing(wanted: &BTreeMap<String, String>, found: &BTreeMap<String, String>) -> Vec<String> {
    let mut names: Vec<&String> = wanted.keys().chain(found.keys()).collect();
    names.sort();
    names.dedup();
    names.into_iter().filter(|name| wanted.get(*name) != found.get(*name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_those_of_the_types() {
        check().unwrap();
    }

    #[test]
    fn a_changed_a_missing_and_a_left_over_file_differ() {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let wanted = map(&[("jobs.yaml", "1"), ("nodes.yaml", "1"), ("same.yaml", "1")]);
        let found = map(&[("jobs.yaml", "2"), ("old.yaml", "1"), ("same.yaml", "1")]);
        assert_eq!(differing(&wanted, &found), ["jobs.yaml", "nodes.yaml", "old.yaml"]);
    }
}
