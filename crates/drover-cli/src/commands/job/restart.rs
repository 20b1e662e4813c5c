//! `drover job restart`: a job's allocations are replaced by new ones of the same version, a few at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::{Allocation, GoDuration, Job};
use futures::StreamExt;

use crate::cluster::connect::{ConnectArgs, block_on};
use crate::completion::names;
use crate::ui::follow::TIMED_OUT;
use crate::ui::output::{self, Output};
use crate::ui::stdio::complain;
use crate::ui::table::Table;
use drover_store::{Change, KubeStore, Selection, Store};

/// Arguments of `drover job restart`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 all were replaced, 1 error, 3 the time was over.")]
pub(crate) struct RestartJobArgs {
    /// The job.
    #[arg(add = names::<Job>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Only the allocations of this group.
    #[arg(long)]
    group: Option<String>,
    /// How many are replaced at the same time.
    #[arg(long, default_value_t = 1)]
    batch_size: usize,
    /// How long a batch may take until its successors are healthy.
    #[arg(long, default_value = "10m")]
    timeout: GoDuration,
    /// How the new allocations are printed.
    #[arg(short, long)]
    output: Option<Output>,
}

/// Deletes allocations batch by batch; the controller replaces each, and the next batch waits until those are healthy.
pub(crate) fn restart(args: &RestartJobArgs) -> anyhow::Result<u8> {
    ensure!(args.batch_size > 0, "--batch-size 0: must be at least 1");
    block_on(async {
        let connection = args.connect.connect().await?;
        let jobs = connection.objects::<Job>();
        let (name, job) = (&args.name, jobs.get(&args.name).await?);
        let names: Vec<&str> = job.spec.groups.iter().map(|group| group.name.as_str()).collect();
        if let Some(group) = args.group.as_deref().filter(|group| !names.contains(group)) {
            bail!("djob/{name} has no group {group}; it has {}", names.join(", "));
        }
        let store = KubeStore::new(connection.client.clone(), Duration::from_secs(30));
        let fields = Some(format!("spec.jobName={name}"));
        let mut watch = store.watch::<Allocation>(Selection {
            namespace: Some(connection.namespace.clone()),
            fields,
            labels: None,
        });
        let mut known = BTreeMap::new();
        while let Some(change) = watch.next().await {
            if take(&mut known, change) {
                break;
            }
        }
        let wanted =
            |alloc: &&Allocation| is_live(alloc) && args.group.as_ref().is_none_or(|group| alloc.spec.group == *group);
        let old: Vec<Allocation> = known.values().filter(wanted).cloned().collect();
        ensure!(
            !old.is_empty(),
            "djob/{name} has no running allocations to restart; `drover job status {name}` says why"
        );
        let allocs = connection.objects::<Allocation>();
        let mut n_done = 0;
        for batch in old.chunks(args.batch_size) {
            for alloc in batch {
                allocs.delete(alloc).await?;
            }
            let is_replaced =
                |known: &BTreeMap<String, Allocation>| batch.iter().all(|alloc| successor(known, alloc).is_some());
            let replaced = async {
                while !is_replaced(&known) {
                    let change = watch.next().await.context("the API server ended the watch of allocations")?;
                    take(&mut known, change);
                }
                anyhow::Ok(())
            };
            let Ok(replaced) = tokio::time::timeout(args.timeout.to_std(), replaced).await else {
                complain(&format!(
                    "timed out: the successors of {n_done} to {} of {} allocations are not healthy; nothing more is restarted; look with `drover job status {name}`",
                    n_done + batch.len(),
                    old.len()
                ));
                return Ok(TIMED_OUT);
            };
            replaced?;
            n_done += batch.len();
            complain(&format!("{n_done} of {} allocations of djob/{name} are replaced", old.len()));
        }
        if let Some(output) = &args.output {
            let fresh: Vec<Allocation> = old.iter().filter_map(|alloc| successor(&known, alloc)).cloned().collect();
            output::list(&fresh, output, || rows(&fresh))?;
        }
        Ok(0)
    })
}

/// Takes a change in; says whether all that is there has come.
fn take(known: &mut BTreeMap<String, Allocation>, change: Change<Allocation>) -> bool {
    match change {
        Change::Present(alloc) => drop(known.insert(alloc.metadata.name.clone().unwrap_or_default(), *alloc)),
        Change::Gone(alloc) => drop(known.remove(alloc.metadata.name.as_deref().unwrap_or_default())),
        Change::InSync => return true,
        Change::Restarted | Change::Malformed(..) | Change::Interrupted(_) => {}
    }
    false
}

fn is_live(alloc: &Allocation) -> bool {
    let status = alloc.status.as_ref().map(|status| status.client_status).unwrap_or_default();
    alloc.spec.desired_status == DesiredStatus::Run
        && alloc.metadata.deletion_timestamp.is_none()
        && matches!(status, ClientStatus::Pending | ClientStatus::Running)
}

fn rows(allocs: &[Allocation]) -> Table {
    let mut table = Table::new(&["NAME", "NODE", "STATUS"]);
    for alloc in allocs {
        let status = alloc.status.as_ref().map(|status| status.client_status).unwrap_or_default();
        table.row(vec![
            alloc.metadata.name.clone().unwrap_or_default(),
            alloc.spec.node_name.clone(),
            status.to_string(),
        ]);
    }
    table
}

/// The other allocation that holds the slot, when it is healthy.
fn successor<'a>(known: &'a BTreeMap<String, Allocation>, old: &Allocation) -> Option<&'a Allocation> {
    known.values().find(|alloc| {
        let is_healthy =
            alloc.status.as_ref().and_then(|status| status.health.as_ref()).is_some_and(|health| health.healthy);
        let is_same_slot = (&alloc.spec.group, alloc.spec.index) == (&old.spec.group, old.spec.index);
        is_same_slot && alloc.metadata.uid != old.metadata.uid && is_live(alloc) && is_healthy
    })
}
