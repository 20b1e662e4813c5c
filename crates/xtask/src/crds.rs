//! Writes `crds/*.yaml` from the types in `drover-api`, or says where they differ.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::workspace;

const HEADER: &str = "# Written by `cargo xtask crds` from crates/drover-api. Do not edit.\n";

/// Returns the folder of the custom resource definitions.
pub fn folder() -> PathBuf {
    workspace::root().join("crds")
}

/// Writes the files that differ and removes those of kinds that are gone; returns the names of both.
///
/// # Errors
/// When the folder cannot be written.
pub fn write() -> Result<Vec<String>> {
    let folder = folder();
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let (wanted, found) = (wanted()?, found()?);
    let changed = differing(&wanted, &found);
    for name in &changed {
        let path = folder.join(name);
        match wanted.get(name) {
            Some(text) => workspace::write_with_mode(&path, text.as_bytes(), 0o644)?,
            None => fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?,
        }
    }
    Ok(changed)
}

/// Fails when a file differs from the types.
///
/// # Errors
/// Names the files and the command that writes them.
pub fn check() -> Result<()> {
    let changed = differing(&wanted()?, &found()?);
    if !changed.is_empty() {
        bail!("crds/{} differ from the types in crates/drover-api: run `cargo xtask crds`", changed.join(", crds/"));
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

fn found() -> Result<BTreeMap<String, String>> {
    let folder = folder();
    let mut files = BTreeMap::new();
    let entries = match fs::read_dir(&folder) {
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
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let wanted = map(&[("jobs.yaml", "1"), ("nodes.yaml", "1"), ("same.yaml", "1")]);
        let found = map(&[("jobs.yaml", "2"), ("old.yaml", "1"), ("same.yaml", "1")]);
        assert_eq!(differing(&wanted, &found), ["jobs.yaml", "nodes.yaml", "old.yaml"]);
    }
}
