//! `bench density` and `bench idle`: many tasks of one job on one node, and what they cost once they run.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use drover_testkit::control_plane::{AuditEvent, AuditLog, Role};
use drover_testkit::process::ProcessId;
use drover_testkit::progress::Progress;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::args::{BenchArgs, BenchName};
use super::cluster::{AllocSeen, Cluster, with_cluster};

/// All of drover that runs on the node and beside it.
const ROLES: [Role; 3] = [Role::Controller, Role::Agent, Role::Supervisor];
/// Idleness begins when nothing was written for that long.
const QUIET_FOR: Duration = Duration::from_secs(5);
/// If it has not begun by then, that is the finding.
const QUIET_TIMEOUT: Duration = Duration::from_mins(1);

pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    // The audit log costs a little of each write, so only the bench that reads it has it.
    with_cluster(args, args.name == BenchName::Idle, progress, async |cluster| measure(cluster, args, progress).await)
        .await
}

async fn measure(cluster: &Cluster<'_>, args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    let n_tasks = args.count.unwrap_or(200);
    let took = start_tasks(cluster, n_tasks, progress).await?;
    let mut log = AuditLog::at_end(&cluster.session.layout().audit_log())?;
    wait_until_quiet(&mut log, args.name == BenchName::Idle, progress).await?;

    let step = progress.step(format!("watching {n_tasks} tasks for {} s", args.idle_seconds()));
    let processes = ROLES.map(|role| (role, cluster.session.process(role)));
    let pss: u64 = processes.iter().filter_map(|(_, id)| *id).map(ProcessId::pss_bytes).sum();
    let before = processes.map(|(_, id)| id.map(ProcessId::cpu_time));
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(args.idle_seconds())).await;
    let idle_for = began.elapsed().as_secs_f64();
    let mut row = Map::new();
    let mut fractions = Vec::new();
    for ((role, id), before) in processes.into_iter().zip(before) {
        let (id, before) = id
            .zip(before)
            .filter(|(id, _)| id.is_alive())
            .with_context(|| format!("the {role} does not run any more"))?;
        let fraction = id.cpu_time().saturating_sub(before).as_secs_f64() / idle_for;
        row.insert(format!("{role}IdleCpuFraction"), json!(fraction));
        row.insert(format!("{role}PssBytes"), json!(id.pss_bytes()));
        fractions.push(fraction);
    }
    step.done("");
    let n_tasks_u32 = u32::try_from(n_tasks).context("too many tasks")?;
    row.insert("tasks".to_owned(), json!(n_tasks));
    row.insert("seconds".to_owned(), json!(took.as_secs_f64()));
    row.insert("startsPerSecond".to_owned(), json!(f64::from(n_tasks_u32) / took.as_secs_f64()));
    row.insert("pssBytesPerTask".to_owned(), json!(pss / u64::from(n_tasks_u32)));
    row.insert("idleCpuFraction".to_owned(), json!(fractions.iter().sum::<f64>()));
    row.insert("idleSeconds".to_owned(), json!(args.idle_seconds()));
    if args.name == BenchName::Idle {
        insert_writes(&mut row, &log.read_new()?);
    }
    Ok(row)
}

/// Starts all tasks at once; returns the time from the create request to the last event that shows one running.
async fn start_tasks(cluster: &Cluster<'_>, n_tasks: usize, progress: &Progress) -> Result<Duration> {
    let step = progress.step(format!("starting {n_tasks} tasks"));
    let mut allocations = cluster.watch_allocations().await?;
    let mut running = BTreeSet::new();
    let sent = Instant::now();
    cluster.create_job("density", n_tasks).await?;
    let last = loop {
        let (at, seen) = allocations.next().await?;
        match seen {
            AllocSeen::Present { name, client_status, .. } => match client_status.as_str() {
                "running" => running.insert(name),
                "" | "pending" | "-" => false,
                other => bail!("the allocation {name} is {other}"),
            },
            AllocSeen::Deleted { name } => bail!("the allocation {name} was deleted"),
        };
        step.moved("", running.len() as u64, n_tasks as u64);
        if running.len() == n_tasks {
            break at;
        }
    };
    step.done("");
    Ok(last.duration_since(sent))
}

/// Whether a write counts: one of drover's that is no renewal of a Lease.
pub(super) fn counts(event: &AuditEvent) -> bool {
    event.user.starts_with("drover-") && event.resource != "leases.coordination.k8s.io"
}

/// Waits until nothing that counts was written for a while; where nothing is logged, that while alone.
pub(super) async fn wait_until_quiet(log: &mut AuditLog, is_logged: bool, progress: &Progress) -> Result<()> {
    let step = progress.step("waiting until nothing is written any more");
    let deadline = Instant::now() + QUIET_TIMEOUT;
    let mut quiet_since = Instant::now();
    while quiet_since.elapsed() < QUIET_FOR && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if is_logged && log.read_new()?.iter().any(counts) {
            quiet_since = Instant::now();
        }
    }
    step.done("");
    Ok(())
}

fn insert_writes(row: &mut Map<String, Value>, events: &[AuditEvent]) {
    let ours: Vec<&AuditEvent> = events.iter().filter(|event| event.user.starts_with("drover-")).collect();
    let writes: Vec<String> = ours
        .iter()
        .filter(|event| counts(event))
        .map(|event| format!("{} {} {}/{}", event.user, event.verb, event.resource, event.name))
        .collect();
    row.insert("leaseRenewals".to_owned(), json!(ours.len() - writes.len()));
    row.insert("idleWrites".to_owned(), json!(writes.len()));
    row.insert("writes".to_owned(), json!(writes));
}
