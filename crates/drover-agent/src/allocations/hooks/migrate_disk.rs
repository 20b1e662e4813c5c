//! Hook `migrate_disk`: a group with a sticky disk goes on with the files of the allocation that it replaces on this
//! node; where it migrates its disk, with those of another node too.
//!
//! Files that do not come are no reason not to run: the allocation begins with an empty disk, and an event says why.

use std::sync::Arc;
use std::time::Duration;

use drover_api::Allocation;
use drover_socket::disks::DiskAsk;
use tokio::sync::mpsc;

use super::hook_error::AllocHookError;
use crate::allocations::plan::AllocPlan;
use crate::node::alloc_dir::{AllocDir, TaskFolder};
use crate::node::disk::{KeptDisk, ReceiveError};
use crate::node::disk_writer::Written;
use crate::remote_disks::DiskFault;
use crate::reporting::events::Reason;

/// How often files of another node are asked for: its agent or the gateway may be starting again.
const TRIES: u32 = 5;
/// The pause after the first try; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Pieces that wait for the disk; then the network waits.
const UNWRITTEN: usize = 4;

pub(super) async fn prerun(plan: &AllocPlan, dir: &AllocDir) -> Result<(), AllocHookError> {
    let disk = &plan.group.ephemeral_disk;
    let allocation = plan.wanted.borrow().allocation.clone();
    let is_kept = disk.sticky || disk.migrate;
    if !is_kept || allocation.spec.previous_allocation.is_empty() || !plan.restored.is_empty() {
        // It has moved them in an earlier life.
        return Ok(());
    }
    match &plan.previous_dir {
        Some(previous) => {
            build_tasks(plan, dir).await?;
            let tasks = plan.group.tasks.iter().map(|task| task.name.clone()).collect();
            plan.env.machine.disk.take_over(previous, dir, tasks).await;
        }
        None if disk.migrate => {
            build_tasks(plan, dir).await?;
            from_elsewhere(plan, &allocation, dir).await;
        }
        None => {}
    }
    Ok(())
}

async fn build_tasks(plan: &AllocPlan, dir: &AllocDir) -> Result<(), AllocHookError> {
    let owner = plan.env.machine.users.of(&plan.uid).await;
    for task in &plan.group.tasks {
        let folder = TaskFolder { task: &task.name, secrets_mb: task.resources.secrets_mb.unwrap_or(1), owner };
        plan.env
            .machine
            .disk
            .build_task(dir, &folder)
            .map_err(|error| AllocHookError { hook: "migrate_disk", reason: error.to_string() })?;
    }
    Ok(())
}

/// Asks for the files a few times, and tells people how it went.
async fn from_elsewhere(plan: &AllocPlan, allocation: &Arc<Allocation>, dir: &AllocDir) {
    let previous = &allocation.spec.previous_allocation;
    let tell = |reason, text| plan.env.events.emit(allocation, reason, text);
    tell(Reason::DiskMigrating, format!("the files of allocation {previous} come from its node"));
    let mut pause = FIRST_PAUSE;
    for nth in 1..=TRIES {
        match fetch(plan, allocation, dir).await {
            Ok(Written { n_files, n_bytes }) => {
                let text =
                    format!("{n_files} files and directories of allocation {previous} have come, {n_bytes} bytes");
                return tell(Reason::DiskMigrated, text);
            }
            Err(DiskFault { reason, is_final }) if is_final || nth == TRIES => {
                tracing::warn!(allocation = plan.uid, reason, "the files of a disk have not come");
                return tell(Reason::DiskNotMigrated, format!("the disk is empty: {reason}"));
            }
            Err(DiskFault { reason, .. }) => {
                tracing::info!(allocation = plan.uid, reason, "the files of a disk have not come yet");
                tokio::time::sleep(plan.env.random.jitter(pause)).await;
                pause *= 2;
            }
        }
    }
}

async fn fetch(plan: &AllocPlan, allocation: &Allocation, dir: &AllocDir) -> Result<Written, DiskFault> {
    let machine = &plan.env.machine;
    let ask = DiskAsk {
        namespace: allocation.metadata.namespace.clone().unwrap_or_default(),
        allocation: allocation.metadata.name.clone().unwrap_or_default(),
        uid: plan.uid.clone(),
    };
    let kept = KeptDisk {
        tasks: plan.group.tasks.iter().map(|task| task.name.clone()).collect(),
        reserved: u64::try_from(plan.group.ephemeral_disk.size_mb).unwrap_or(0).saturating_mul(1024 * 1024),
    };
    let (send, pieces) = mpsc::channel(UNWRITTEN);
    let (fetched, received) = tokio::join!(machine.disks.fetch(ask, send), machine.disk.receive(dir, kept, pieces));
    match (fetched, received) {
        (Ok(()), Ok(written)) => Ok(written),
        // Who fetches ends early when nothing is taken any more, and who writes when nothing comes: the one that is
        // to blame is whom the other has not stopped.
        (Err(fault), Ok(_) | Err(ReceiveError::NotAll)) => Err(fault),
        (_, Err(error)) => Err(DiskFault { reason: error.to_string(), is_final: true }),
    }
}
