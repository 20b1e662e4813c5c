//! What must not be in `droverd` as users run it.
//!
//! Input: what cargo would build for it. A test's clock that can be moved, and the simulator that moves it, have no
//! place in a program that runs other people's work.

use anyhow::{Context as _, Result, bail};
use drover_testkit::cargo;

/// How `droverd` is built for users; `cargo xtask image` builds it so.
pub const SELECTION: [&str; 3] = ["--package", "drover", "--no-default-features"];

/// A crate that must not be there, or one of its features.
const UNWANTED: &[(&str, Option<&str>)] =
    &[("tokio", Some("test-util")), ("drover-simulator", None), ("drover-testkit", None), ("proptest", None)];

/// Fails when a production build of `droverd` holds a part of the tests.
///
/// # Errors
/// Names these parts.
pub fn check() -> Result<()> {
    let output = cargo::command()
        .arg("tree")
        .args(SELECTION)
        .args(["--edges", "normal,build", "--prefix", "none", "--format", "{p} [{f}]"])
        .output()
        .context("running cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let found = unwanted(&String::from_utf8_lossy(&output.stdout));
    if found.is_empty() {
        return Ok(());
    }
    bail!(
        "droverd holds {}: `cargo tree {} --edges features --invert NAME` says who brings it; make that optional, and leave it out of \
         the default features of what droverd needs",
        found.join(", "),
        SELECTION.join(" ")
    )
}

fn unwanted(tree: &str) -> Vec<String> {
    let wrong = UNWANTED.iter().filter(|(name, feature)| {
        tree.lines().filter(|line| line.split(' ').next() == Some(name)).any(|line| {
            let features = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
            feature.is_none_or(|feature| features.split(',').any(|found| found == feature))
        })
    });
    wrong.map(|(name, feature)| feature.map_or((*name).to_owned(), |feature| format!("{name}/{feature}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulator_and_a_clock_of_tests_are_found() {
        let tree = "drover v0.1.0 (/x) [default]\ntokio v1.54.1 [rt,test-util,time]\ndrover-simulator v0.1.0 (/x) []\n";
        assert_eq!(unwanted(tree), ["tokio/test-util", "drover-simulator"]);
    }

    #[test]
    fn other_crates_and_features_are_not() {
        assert_eq!(unwanted("tokio v1.54.1 [rt,time]\ntokio-stream v0.1.19 [test-util]\n"), [""; 0]);
    }
}
