//! Ends everything in order: who decides first, then who acts, then the tasks, then the ground they stand on.
//!
//! Nothing is reported to the API server on the way, as when a machine loses its power; the objects stay, and the next
//! `up` starts the same allocations again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use drover_testkit::containerd;
use drover_testkit::control_plane::Role;
use drover_testkit::process::{ProcessId, Signal};
use drover_testkit::progress::Progress;
use rustix::mount::{UnmountFlags, unmount};

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
        && let Err(error) = unmount_all(&layout.root)
    {
        failures.push(format!("{error:#}"));
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

/// Unmounts everything below a folder, the deepest first.
fn unmount_all(folder: &Path) -> Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("reading the table of mounts")?;
    for point in mounts_below(&table, folder) {
        unmount(&point, UnmountFlags::DETACH).with_context(|| format!("unmounting {}", point.display()))?;
    }
    Ok(())
}

fn mounts_below(table: &str, folder: &Path) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(|point| PathBuf::from(unescape(point)));
    let mut below: Vec<PathBuf> = points.filter(|point| point.starts_with(folder) && point != folder).collect();
    below.reverse();
    below
}

/// The kernel writes blanks, tabs, line ends and backslashes of a path as three octal digits.
fn unescape(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_comes_first_and_neighbours_are_left() {
        let table = "22 1 0:21 / / rw - ext4 /dev/sda rw\n30 22 0:30 / /data/x rw - tmpfs t rw\n31 30 0:31 / /data/x/my\\040dir rw - tmpfs t rw\n32 22 0:32 / /data-other rw - tmpfs t rw\n";
        assert_eq!(
            mounts_below(table, Path::new("/data")),
            [PathBuf::from("/data/x/my dir"), PathBuf::from("/data/x")]
        );
    }

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
