//! drover goes in every order, with jobs running: what stays, what waits, who frees it, and what the next installation
//! makes of it.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use drover_testkit::process::ProcessId;

use crate::ground::{Ground, KINDS, SYSTEM, example, text};

/// What a namespace of a team is called.
const TEAM: &str = "shop";
/// What waits for somebody who is gone, as kubectl says it.
const NODE_CLEANUP: &str = "drover.dev/node-cleanup";
/// Applies examples/web.yaml in a namespace of its own and waits until it is healthy.
fn team_with_web(ground: &Ground) -> Result<()> {
    ground.installed()?;
    ground.kubectl(&["create", "namespace", TEAM])?;
    ground.kubectl(&["apply", "-n", TEAM, "-f", &example("web.yaml")])?;
    ground.kubectl(&["wait", "-n", TEAM, "--for=condition=Ready", "djob/web", "--timeout", "120s"]).map(drop)
}

/// Waits until nothing of drover's examples runs.
fn nothing_runs(ground: &Ground, why: &str) -> Result<()> {
    ground.eventually(why, || Ok(ground.tasks()?.is_empty().then_some(())))
}

/// Waits until the job of the default namespace runs as these processes, and is known to.
fn taken_over(ground: &Ground, before: &BTreeMap<String, ProcessId>) -> Result<()> {
    ground.kubectl(&["wait", "--for=condition=Ready", "djob/web", "--timeout", "120s"])?;
    let now = ground.tasks()?;
    ensure!(now == *before, "the tasks' processes were {before:?} and are {now:?}");
    ground.eventually("the node is ready again", || {
        let phase = ground.kubectl(&["get", "cnode", "n1", "-o", "jsonpath={.status.phase}"])?;
        Ok((phase == "ready").then_some(()))
    })
}

fn uid(ground: &Ground) -> Result<String> {
    ground.kubectl(&["get", "djob/web", "-o", "jsonpath={.metadata.uid}"])
}

pub(crate) fn uninstall_and_install(ground: &Ground) -> Result<String> {
    ground.web()?;
    let (before, job) = (ground.tasks()?, uid(ground)?);
    ground.uninstall()?;
    ensure!(ground.tasks()? == before, "the uninstall touched tasks");
    ensure!(uid(ground)? == job, "the job is another one");
    ground.installed()?;
    taken_over(ground, &before)?;
    Ok(format!("{} tasks untouched by uninstall and install", before.len()))
}

pub(crate) fn with_the_controller_alive(ground: &Ground) -> Result<String> {
    ground.web()?;
    ground.kubectl(&["delete", "djob/web", "--wait=true", "--timeout", "60s"])?;
    ensure!(ground.tasks()?.is_empty(), "tasks of a deleted job run");
    team_with_web(ground)?;
    ground.kubectl(&["delete", "namespace", TEAM, "--wait=true", "--timeout", "90s"])?;
    ensure!(ground.tasks()?.is_empty(), "tasks of a deleted namespace run");
    Ok("a deleted job and a deleted namespace leave no task".to_owned())
}

pub(crate) fn deleted_after_the_uninstall(ground: &Ground) -> Result<String> {
    ground.web()?;
    team_with_web(ground)?;
    let before = ground.tasks()?;
    ground.uninstall()?;
    ground.kubectl(&["delete", "namespace", TEAM, "--wait=false"])?;
    ground.kubectl(&["delete", "djob/web", "--wait=false"])?;
    ground.eventually("the namespace says what it waits for", || {
        let conditions = ground.read(&["namespace", TEAM])?["status"]["conditions"].to_string();
        Ok(conditions.contains(NODE_CLEANUP).then_some(()))
    })?;
    let in_team = ground.read(&["alloc", "-n", TEAM])?;
    let n_waiting = in_team["items"].as_array().map_or(0, Vec::len);
    ensure!(n_waiting == 3, "{n_waiting} allocations wait instead of 3");
    ensure!(ground.tasks()? == before, "something has touched tasks");

    ground.drover(&["system", "release-finalizers", "-n", TEAM, "--yes"])?;
    ground.kubectl(&["wait", "--for=delete", &format!("namespace/{TEAM}"), "--timeout", "60s"])?;
    ensure!(ground.tasks()? == before, "freeing objects has touched tasks");
    // What nobody has freed is the next installation's to finish, and so are tasks whose allocation is gone.
    ground.installed()?;
    ground.kubectl(&["wait", "--for=delete", "djob/web", "--timeout", "90s"])?;
    nothing_runs(ground, "the new agent ends what belongs to nobody")?;
    Ok("a namespace waits until its objects are freed, a job until the next installation; no task is left".to_owned())
}

pub(crate) fn drained_by_the_uninstall(ground: &Ground) -> Result<String> {
    ground.web()?;
    ground.upgrade(&["agent.drainOnUninstall=true"])?;
    ground.uninstall()?;
    ensure!(ground.tasks()?.is_empty(), "tasks run after an uninstall that drains");
    ground.installed()?;
    ground.eventually("the node is there again", || {
        let phase = ground.kubectl(&["get", "cnode", "n1", "-o", "jsonpath={.status.phase}"])?;
        Ok((phase == "ready").then_some(()))
    })?;
    ground.drover(&["node", "eligibility", "n1", "--enable"])?;
    ground.eventually("the job runs again", || Ok((ground.tasks()?.len() == 3).then_some(())))?;
    ground.kubectl(&["wait", "--for=condition=Ready", "djob/web", "--timeout", "60s"])?;
    Ok("no task is left, and the job runs again after the next installation".to_owned())
}

pub(crate) fn own_namespace_deleted_first(ground: &Ground) -> Result<String> {
    ground.web()?;
    let (before, job) = (ground.tasks()?, uid(ground)?);
    let deleted = ground.kubectl(&["delete", "namespace", SYSTEM, "--wait=true", "--timeout", "120s"]);
    if let Err(error) = deleted {
        let why = ground.kubectl(&["get", "namespace", SYSTEM, "-o", "jsonpath={.status.conditions}"])?;
        bail!("{error:#}: {why}");
    }
    ground.forget_install();
    ensure!(ground.tasks()? == before, "tasks went with drover's namespace");
    // The release is forgotten with its namespace, what has none stays and is taken over.
    ground.installed()?;
    ensure!(uid(ground)? == job, "the job is another one");
    taken_over(ground, &before)?;
    Ok(format!("{} tasks untouched, and taken over by the next installation", before.len()))
}

pub(crate) fn kinds_deleted_after_the_uninstall(ground: &Ground) -> Result<String> {
    ground.web()?;
    ground.uninstall()?;
    ground.kubectl(&[&["delete", "--wait=false", "crd"], KINDS].concat())?;
    ground.eventually("the kind Job says that it waits for its objects", || {
        let crd = ground.read(&["crd", "jobs.drover.dev"])?;
        let conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let waits = |one: &serde_json::Value| {
            text(one, "/type") == "Terminating" && text(one, "/reason") == "InstanceDeletionInProgress"
        };
        Ok(conditions.iter().any(waits).then_some(()))
    })?;
    ground.drover(&["system", "release-finalizers", "-A", "--yes"])?;
    ground.kubectl(&[&["wait", "--for=delete", "--timeout", "60s", "crd"], KINDS].concat())?;
    ground.installed()?;
    nothing_runs(ground, "the new agent ends what belongs to nobody")?;
    ground.web()?;
    Ok("the kinds go when their objects are freed, and the next installation begins anew".to_owned())
}
