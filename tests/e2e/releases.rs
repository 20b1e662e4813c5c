//! What tasks notice of upgrades and rollbacks: nothing.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::ground::{Ground, KINDS, SYSTEM};

/// The chart of the version before, as it was packed.
const PREVIOUS: &str = "tests/it/chart/drover-0.1.0.tgz";

pub(crate) fn from_the_previous_chart_and_back(ground: &Ground) -> Result<String> {
    ground.installed()?;
    ground.uninstall()?;
    let previous = Path::new(env!("CARGO_MANIFEST_DIR")).join(PREVIOUS);
    ground.install(&previous.display().to_string(), &[])?;
    ground.web()?;
    let (before, kinds) = (ground.tasks()?, kinds(ground)?);
    let untouched = |what: &str| -> Result<()> {
        let now = ground.tasks()?;
        ensure!(now == before, "{what}: the tasks' processes were {before:?} and are {now:?}");
        // Objects of one version are the other's too.
        ground.kubectl(&["get", "djob,alloc,ddep,djv,cnode,csivol", "-o", "yaml"])?;
        ground.kubectl(&["wait", "--for=condition=Ready", "djob/web", "--timeout", "60s"]).map(drop)
    };

    // Agents and controllers are started anew in any case.
    ground.upgrade(&["agent.logLevel=debug", "controller.logLevel=debug"])?;
    untouched("after the upgrade")?;
    ensure!(self::kinds(ground)? != kinds, "the upgrade has changed no kind");

    ground.helm(&["rollback", "drover", "1", "-n", SYSTEM, "--wait", "--timeout", "180s"])?;
    untouched("after the rollback")?;
    ensure!(self::kinds(ground)? == kinds, "the rollback has left other kinds");
    ground.uninstall()?;
    ground.installed()?;
    untouched("after a new installation")?;
    Ok(format!("{} tasks with the same processes after an upgrade and after a rollback, kinds too", before.len()))
}

/// What the API server knows of drover's kinds.
fn kinds(ground: &Ground) -> Result<String> {
    ground.kubectl(&[&["get", "-o", "jsonpath={.items[*].spec}", "crd"], KINDS].concat())
}
