//! Ends everything in order: who decides first, then who acts, then the tasks, then the ground they stand on.
//!
//! Nothing is reported to the API server on the way, as when a machine loses its power; the objects stay, and the next
//! `up` starts the same allocations again.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use drover_testkit::containerd;
use drover_testkit::control_plane::Role;
use drover_testkit::process::{ProcessId, Signal};
use drover_testkit::progress::Progress;

use super::layout::Layout;
use super::state::State;

/// What becomes of the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tasks {
    /// They end, as their machine would.
    End,
    /// They and their supervisor go on.
    Keep,
}

const ORDER: [Role; 7] = [
    Role::Gateway,
    Role::Controller,
    Role::Agent,
    Role::Supervisor,
    Role::KubeControllerManager,
    Role::KubeApiserver,
    Role::Etcd,
];

/// Ends what is written down in `state`. Goes on when one thing cannot be ended, and says so at the end.
pub(super) async fn stop_all(state: &State, layout: &Layout, tasks: Tasks, progress: &Progress) -> Result<()> {
    let mut failures = Vec::new();
    for role in ORDER {
        // Asked each time: the supervisor is known by a file that the agent writes.
        let running = state.running(layout).into_iter().find(|(known, _)| *known == role);
        if role == Role::Supervisor && tasks == Tasks::Keep {
            continue;
        }
        if let Some((_, id)) = running
            && let Err(error) = stop(role, id, progress).await
        {
            failures.push(format!("{error:#}"));
        }
        if role == Role::Supervisor {
            let tasks = end_leftover_tasks(layout, progress).await;
            let containers = containerd::end_containers(&layout.containerd());
            failures.extend([tasks, containers].into_iter().filter_map(|ended| Some(format!("{:#}", ended.err()?))));
        }
    }
    if tasks == Tasks::End
        && let Err(error) = drover_supervisor::unmount_below(&layout.root)
    {
        failures.push(format!("unmounting what is below {}: {error}", layout.root.display()));
    }
    if failures.is_empty() { Ok(()) } else { bail!("{}", failures.join("; ")) }
}

/// How long a role may take after SIGTERM.
fn patience(role: Role) -> Duration {
    match role {
        Role::Controller | Role::Agent => Duration::from_secs(10),
        // Tasks get up to 5 s of their own, and calls that a gateway carries 10 s.
        Role::Supervisor | Role::Gateway => Duration::from_secs(15),
        // The API server waits up to a minute for clients that keep their connections. All it has answered is in etcd.
        Role::KubeControllerManager | Role::KubeApiserver | Role::KubeScheduler | Role::ClusterDns | Role::Node => {
            Duration::from_secs(5)
        }
        Role::Etcd => Duration::from_secs(20),
    }
}

async fn stop(role: Role, id: ProcessId, progress: &Progress) -> Result<()> {
    let title = if role == Role::Supervisor {
        "stopping the tasks and their supervisor".to_owned()
    } else {
        format!("stopping {role}")
    };
    let step = progress.step(title);
    let context = || format!("ending {role} (process {})", id.pid);
    // A held process acts on SIGTERM only when it goes on.
    for signal in [Signal::TERM, Signal::CONT] {
        id.signal(signal).with_context(context)?;
    }
    if id.wait_gone(patience(role)).await.with_context(context)? {
        step.done("");
        return Ok(());
    }
    id.signal(Signal::KILL).with_context(context)?;
    if !id.wait_gone(Duration::from_secs(10)).await.with_context(context)? {
        bail!("{role} (process {}) does not end", id.pid);
    }
    step.done(format!("killed, for it did not end within {} s of SIGTERM", patience(role).as_secs()));
    Ok(())
}

/// Ends tasks whose supervisor died before it could: every process with an allocation folder of ours in its environment
/// is one.
async fn end_leftover_tasks(layout: &Layout, progress: &Progress) -> Result<()> {
    let tasks = leftover_tasks(&layout.agent_alloc());
    if tasks.is_empty() {
        return Ok(());
    }
    let step = progress.step(format!("ending {} processes of tasks without a supervisor", tasks.len()));
    for task in &tasks {
        task.signal(Signal::KILL).with_context(|| format!("ending the task process {}", task.pid))?;
    }
    for task in &tasks {
        if !task.wait_gone(Duration::from_secs(10)).await.context("waiting for the end of a task")? {
            bail!("the task process {} does not end", task.pid);
        }
    }
    step.done("");
    Ok(())
}

fn leftover_tasks(alloc_dir: &Path) -> Vec<ProcessId> {
    let mark = format!("NOMAD_ALLOC_DIR={}/", alloc_dir.display());
    ProcessId::all()
        .filter(|id| {
            let environment = fs::read(format!("/proc/{}/environ", id.pid)).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable.starts_with(mark.as_bytes())) && id.is_alive()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_with_our_folder_in_their_environment_are_tasks() {
        let folder = tempfile::tempdir().unwrap();
        let spawn = |value: String| {
            std::process::Command::new("sleep").arg("60").env("NOMAD_ALLOC_DIR", value).spawn().unwrap()
        };
        let mut ours = spawn(format!("{}/a/alloc", folder.path().display()));
        let mut stranger = spawn(format!("{}-other/a/alloc", folder.path().display()));
        let found: Vec<i32> = leftover_tasks(folder.path()).into_iter().map(|id| id.pid).collect();
        assert_eq!(found, [i32::try_from(ours.id()).unwrap()]);
        for child in [&mut ours, &mut stranger] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
