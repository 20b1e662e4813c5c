//! The commands that README and `docs/` show for a cluster of real nodes.

use std::ffi::OsStr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use drover_testkit::documents::{Document, commands};
use drover_testkit::shell::Shell;
use drover_testkit::workspace;

use crate::ground::Ground;

/// Where these blocks run.
const PLACES: [&str; 1] = ["e2e"];
/// How long a command may take on a busy machine.
const LIMIT: Duration = Duration::from_mins(5);

pub(crate) fn what_is_shown_is_what_comes(ground: &Ground) -> Result<String> {
    let mut n_commands = 0;
    for document in Document::read_all()? {
        let commands = commands(&document.text, &PLACES);
        if commands.is_empty() {
            continue;
        }
        n_commands += commands.len();
        clear(ground)?;
        let difference = document.difference(&mut terminal(ground)?, &PLACES, LIMIT);
        ensure!(difference.is_none(), "{}", difference.unwrap_or_default());
    }
    clear(ground)?;
    Ok(format!("{n_commands} commands"))
}

/// Each document begins on a cluster without drover, and the case after these too.
fn clear(ground: &Ground) -> Result<()> {
    // The document before may have installed drover and left it so.
    ground.look_for_install()?;
    ground.installed()?;
    for release in ground.helm(&["list", "--short"])?.lines() {
        ground.helm(&["uninstall", release, "--wait", "--timeout", "180s"])?;
    }
    ground.kubectl(&["delete", "djob", "--all", "-A", "--wait=true", "--timeout", "120s"])?;
    ground.uninstall()
}

/// A terminal in the root of the tree, with the cluster's own programs.
fn terminal(ground: &Ground) -> Result<Shell> {
    let (helm, kubectl) = (ground.cluster.helm(&[]), ground.cluster.kubectl(&[]));
    let settings = helm.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?)));
    let programs = [("HELM_PROGRAM", helm.get_program()), ("KUBECTL_PROGRAM", kubectl.get_program())];
    let environment: Vec<(&str, &OsStr)> = settings.chain(programs).collect();
    let mut shell = Shell::start(&workspace::root(), environment)?;
    let ours = "helm() { \"$HELM_PROGRAM\" \"$@\"; }; kubectl() { \"$KUBECTL_PROGRAM\" \"$@\"; }";
    shell.run(ours, LIMIT).context("naming the programs")?;
    Ok(shell)
}
