//! What tasks notice of upgrades, rollbacks and uninstalls: nothing.

use anyhow::{Result, ensure};

use crate::ground::{Ground, SYSTEM, chart};

pub(crate) fn upgrade_and_rollback(ground: &Ground) -> Result<String> {
    ground.web()?;
    let before = ground.tasks()?;
    let upgrade = ["upgrade", "drover", &chart(), "-n", SYSTEM, "--reuse-values", "--wait", "--timeout", "180s"];
    ground.helm(&[&upgrade[..], &["--set", "agent.logLevel=debug", "--set", "controller.logLevel=debug"]].concat())?;
    ensure!(ground.tasks()? == before, "the upgrade touched tasks");
    ground.helm(&["rollback", "drover", "1", "-n", SYSTEM, "--wait", "--timeout", "180s"])?;
    ensure!(ground.tasks()? == before, "the rollback touched tasks");
    ground.kubectl(&["wait", "--for=condition=Ready", "djob/web", "--timeout", "60s"])?;
    Ok(format!("{} tasks with the same processes after an upgrade and after a rollback", before.len()))
}

pub(crate) fn uninstall_and_install(ground: &Ground) -> Result<String> {
    ground.web()?;
    let before = ground.tasks()?;
    let uid = ground.kubectl(&["get", "djob/web", "-o", "jsonpath={.metadata.uid}"])?;
    ground.helm(&["uninstall", "drover", "-n", SYSTEM, "--wait", "--timeout", "120s"])?;
    ensure!(ground.tasks()? == before, "the uninstall touched tasks");
    let after = ground.kubectl(&["get", "djob/web", "-o", "jsonpath={.metadata.uid}"])?;
    ensure!(uid == after, "the job was {uid} and is {after}");
    ground.forget_install();
    ground.installed()?;
    ground.kubectl(&["wait", "--for=condition=Ready", "djob/web", "--timeout", "120s"])?;
    ensure!(ground.tasks()? == before, "the new install touched tasks");
    ground.eventually("all nodes are ready again", || {
        let phase = ground.kubectl(&["get", "cnode", "n1", "-o", "jsonpath={.status.phase}"])?;
        Ok((phase == "ready").then_some(()))
    })?;
    // With the controller alive, a namespace with jobs goes away with their tasks.
    ground.kubectl(&["delete", "djob/web", "--wait=true", "--timeout", "60s"])?;
    ensure!(ground.tasks()?.is_empty(), "tasks of a deleted job run");
    ground.kubectl(&["create", "namespace", "shop"])?;
    ground.kubectl(&["apply", "-n", "shop", "-f", &crate::ground::example("web.yaml")])?;
    ground.kubectl(&["wait", "-n", "shop", "--for=condition=Ready", "djob/web", "--timeout", "120s"])?;
    ground.kubectl(&["delete", "namespace", "shop", "--wait=true", "--timeout", "90s"])?;
    ensure!(ground.tasks()?.is_empty(), "tasks of a deleted namespace run");
    Ok(format!(
        "{} tasks untouched by uninstall and install; a deleted job and a deleted namespace leave none",
        before.len()
    ))
}
