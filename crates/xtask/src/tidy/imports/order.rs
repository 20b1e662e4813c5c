//! The order of the workspace's crates: which may use which, and what must not come with them.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use drover_testkit::cargo;
use serde::Deserialize;

/// From the bottom to the top: a crate may use those of the layers below its own. Crates of one layer never meet.
const LAYERS: &[&[&str]] = &[
    &[
        "drover-api",
        "drover-clock",
        "drover-confine",
        "drover-connect",
        "drover-containerd",
        "drover-csi",
        "drover-seal",
    ],
    &["drover-core", "drover-socket"],
    &[
        "drover-fetch",
        "drover-forwarder",
        "drover-jobspec",
        "drover-network",
        "drover-store",
        "drover-supervisor",
        "drover-template",
    ],
    &["drover-daemon", "drover-monitor", "drover-nomad"],
    &["drover-agent", "drover-cli", "drover-controller", "drover-gateway"],
    &["drover-simulator"],
    &["drover-fuzz"],
    &["drover"],
    &["drover-testkit"],
    &["xtask", "xtask-launcher"],
];

/// What a crate's build must not contain, and why.
const WITHOUT: &[(&str, &[&str], &str)] = &[
    ("drover-api", &["tokio", "kube-client"], "types know neither a runtime nor a connection"),
    ("drover-core", &["tokio", "kube-client"], "decisions know neither a runtime nor a connection"),
    ("drover-forwarder", &["kube", "kube-client"], "it carries connections and never talks to the API server"),
    ("drover-network", &["kube", "kube-client", "tokio"], "it asks the kernel, and nothing else"),
    ("drover-nomad", &["tokio", "kube-client"], "it answers from values and knows neither a runtime nor a connection"),
    ("drover-supervisor", &["kube", "kube-client"], "it owns processes and never talks to the API server"),
];

/// A package of the workspace, as cargo tells it.
#[derive(Debug, Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) targets: Vec<BuildTarget>,
    dependencies: Vec<Dependency>,
}

/// Something that is built from a package.
#[derive(Debug, Deserialize)]
pub(super) struct BuildTarget {
    pub(super) name: String,
    pub(super) kind: Vec<String>,
    pub(super) src_path: std::path::PathBuf,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// `dev` for what only tests use.
    kind: Option<String>,
}

/// Asks cargo for the packages of the workspace.
///
/// # Errors
/// With cargo's own message.
pub(super) fn packages() -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let output = cargo::command()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("reading cargo's metadata")?;
    Ok(metadata.packages)
}

/// Names every dependency between packages that goes against the order. Those of tests may go anywhere.
pub(super) fn against_order(packages: &[Package]) -> Vec<String> {
    let known: BTreeSet<&str> = LAYERS.iter().copied().flatten().copied().collect();
    let layer = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    let mut faults = Vec::new();
    for package in packages {
        let from = package.name.as_str();
        let used = package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev"));
        let used: BTreeSet<&str> = used.map(|dependency| dependency.name.as_str()).collect();
        if from.starts_with("drover") && !known.contains(from) && used.iter().any(|to| known.contains(to)) {
            faults.push(format!("{from} has no place among the crates: add it to LAYERS in {}", file!()));
        }
        for to in used {
            let is_upward = layer(from).zip(layer(to)).is_some_and(|(from, to)| from <= to);
            if is_upward {
                faults.push(format!(
                    "{from} must not use {to}: let both use a crate below them, or let one that is above both connect them"
                ));
            }
        }
    }
    faults
}

/// Names what comes with a crate and must not.
///
/// # Errors
/// With cargo's own message.
pub(super) fn unwanted_companions(packages: &[Package]) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (name, unwanted, reason) in WITHOUT {
        if packages.iter().any(|package| package.name == *name) {
            faults.extend(companions(&tree_of(name)?, unwanted).map(|found| {
                format!("{name} must not bring {found} along, for {reason}: see `cargo tree --package {name} --invert {found}`")
            }));
        }
    }
    Ok(faults)
}

fn tree_of(package: &str) -> Result<String> {
    let output = cargo::command()
        .args(["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{lib}"])
        .output()
        .context("running cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The libraries of a tree that are in a list.
fn companions<'a>(tree: &str, unwanted: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let libraries: BTreeSet<String> =
        tree.lines().map(|line| line.split(' ').next().unwrap_or_default().replace('_', "-")).collect();
    unwanted.iter().copied().filter(move |name| libraries.contains(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind)| Dependency { name: (*name).to_owned(), kind: kind.map(str::to_owned) });
        Package { name: name.to_owned(), targets: Vec::new(), dependencies: dependencies.collect() }
    }

    fn n_faults(name: &str, dependency: &str, kind: Option<&str>) -> usize {
        against_order(&[package(name, &[(dependency, kind)])]).len()
    }

    #[test]
    fn crates_use_those_below_them_only() {
        assert_eq!(n_faults("drover-core", "drover-api", None), 0);
        assert_eq!(n_faults("drover-api", "drover-core", None), 1);
        assert_eq!(n_faults("drover-agent", "drover-controller", None), 1);
        assert_eq!(n_faults("drover-controller", "drover-agent", Some("build")), 1);
        assert_eq!(n_faults("drover-simulator", "drover-controller", None), 0);
        assert_eq!(n_faults("drover-simulator", "drover-cli", None), 0);
        assert_eq!(n_faults("drover-cli", "drover-agent", None), 1);
        assert_eq!(n_faults("drover-daemon", "drover-store", None), 0);
        assert_eq!(n_faults("drover", "drover-testkit", None), 1);
    }

    #[test]
    fn tests_may_use_what_they_like() {
        assert_eq!(n_faults("drover-agent", "drover-testkit", Some("dev")), 0);
    }

    #[test]
    fn a_new_crate_needs_a_place() {
        assert_eq!(n_faults("drover-new", "drover-core", None), 1);
        assert_eq!(n_faults("csi-hostdir", "drover-csi", None), 0);
    }

    #[test]
    fn a_library_is_found_at_any_depth_of_a_tree() {
        let tree = "drover_core\nserde v1\nkube_client v5.0.0\ntokio_util\n";
        assert_eq!(companions(tree, &["tokio", "kube-client"]).collect::<Vec<_>>(), ["kube-client"]);
    }
}
