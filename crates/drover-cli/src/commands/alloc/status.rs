//! `drover alloc status`: an allocation as the cluster knows it, from any machine: where it runs and why there, what
//! became of its tasks, and what led to it.

use std::fmt::Write;

use drover_api::Allocation;
use drover_api::allocation::{AllocatedPort, AllocationSpec, AllocationStatus};
use jiff::Timestamp;

use super::check_rows;
use super::lookup::find;
use crate::cluster::connect::ConnectArgs;
use crate::commands::plan::scores;
use crate::completion::names;
use crate::ui::output::{self, Output};
use crate::ui::stdio::answer;
use crate::ui::table::Table;
use drover_clock::{Clock, SystemClock};

/// How many of the newest task events are shown.
const EVENTS: usize = 10;

/// Arguments of `drover alloc status`.
#[derive(Debug, clap::Args)]
pub(crate) struct AllocStatusArgs {
    /// The allocation, or the start of its name.
    #[arg(add = names::<Allocation>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// How it is printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

/// Shows it.
pub(crate) async fn run(args: &AllocStatusArgs) -> anyhow::Result<u8> {
    let found = find(&args.connect.connect().await?.objects(), &args.name).await?;
    if args.output.is_for_people() {
        answer(described(&found, SystemClock.now()).as_bytes())?;
    } else {
        output::object(&found, &args.output)?;
    }
    Ok(0)
}

fn described(alloc: &Allocation, now: Timestamp) -> String {
    let status = alloc.status.clone().unwrap_or_default();
    let mut text = format!("alloc/{}\n", alloc.metadata.name.as_deref().unwrap_or_default());
    for (what, value) in facts(&alloc.spec, &status, now) {
        if !value.is_empty() {
            // Writing to a String cannot fail.
            writeln!(text, "  {what:<12} {value}").ok();
        }
    }
    if !status.task_states.is_empty() {
        text.push_str("\nTasks\n");
        tasks(&status, now).write(&mut text);
        found_by(alloc, &status, now, &mut text);
        text.push_str("\nNewest events\n");
        events(&status, now).write(&mut text);
    }
    if let Some(metrics) = alloc.spec.metrics.as_ref().filter(|metrics| !metrics.score_meta_data.is_empty()) {
        writeln!(text, "\nPlaced there among {} nodes that were looked at", metrics.nodes_evaluated).ok();
        scores(&mut text, &metrics.score_meta_data);
    }
    text
}

fn facts(spec: &AllocationSpec, status: &AllocationStatus, now: Timestamp) -> Vec<(&'static str, String)> {
    let ago = |at: Timestamp| format!("{} ago", output::span(now.duration_since(at).as_secs()));
    let with = |value: &str, why: &str| if why.is_empty() { value.to_owned() } else { format!("{value}: {why}") };
    let health = status.health.as_ref();
    let canary = if spec.canary { " (canary)" } else { "" };
    let ports = spec.resources.ports.iter().map(|port| format!("{}:{}", port.label, port.value));
    let later = spec.follow_up.as_ref();
    vec![
        (
            "Job",
            format!("djob/{}, version {}, group {}, index {}", spec.job_name, spec.job_version, spec.group, spec.index),
        ),
        ("Node", spec.node_name.clone()),
        ("Desired", with(spec.desired_status.as_str(), &spec.desired_description)),
        ("Status", with(status.client_status.as_str(), &status.client_description)),
        ("Healthy", health.map(|health| format!("{}, {}", health.healthy, ago(health.timestamp))).unwrap_or_default()),
        (
            "Deployment",
            if spec.deployment_name.is_empty() {
                String::new()
            } else {
                format!("ddep/{}{canary}", spec.deployment_name)
            },
        ),
        ("Ports", ports.collect::<Vec<_>>().join(", ")),
        ("Replaces", spec.previous_allocation.clone()),
        ("Evicts", spec.preempted_allocations.join(", ")),
        ("Evicted by", spec.preempted_by.clone()),
        ("Looked at", later.map(|later| format!("again at {} ({})", later.at, later.trigger)).unwrap_or_default()),
        ("Ended", status.ended_at.map(ago).unwrap_or_default()),
    ]
}

/// The services of an allocation with the addresses that they lead to, and what their checks found.
fn found_by(alloc: &Allocation, status: &AllocationStatus, now: Timestamp, text: &mut String) {
    if !status.services.is_empty() {
        let mut table = Table::new(&["SERVICE", "READY", "ADDRESS"]);
        for service in &status.services {
            // An id ends with the label of its port.
            let label = |port: &&AllocatedPort| service.id.ends_with(&format!("-{}", port.label));
            let port = alloc.spec.resources.ports.iter().filter(label).max_by_key(|port| port.label.len());
            let assigned = port.map(|port| (&port.host_ip, port.value));
            let own = (!service.address.is_empty()).then_some((&service.address, service.port));
            let address = own.or(assigned).map_or_else(|| "-".to_owned(), |(ip, port)| format!("{ip}:{port}"));
            table.row(vec![service.service_name.clone(), service.ready.to_string(), address]);
        }
        text.push_str("\nServices\n");
        table.write(text);
    }
    if !status.checks.is_empty() {
        text.push_str("\nChecks\n");
        check_rows::rows(&status.checks, now).write(text);
    }
}

fn tasks(status: &AllocationStatus, now: Timestamp) -> Table {
    let mut table = Table::new(&["TASK", "STATE", "FAILED", "RESTARTS", "STARTED", "FINISHED"]);
    let ago = |at: Option<Timestamp>| {
        at.map_or_else(|| "-".to_owned(), |at| format!("{} ago", output::span(now.duration_since(at).as_secs())))
    };
    for (name, task) in &status.task_states {
        table.row(vec![
            name.clone(),
            task.state.to_string(),
            task.failed.to_string(),
            task.restarts.to_string(),
            ago(task.started_at),
            ago(task.finished_at),
        ]);
    }
    table
}

fn events(status: &AllocationStatus, now: Timestamp) -> Table {
    let of_task = |(name, task): (&String, &drover_api::allocation::TaskState)| {
        let name = name.clone();
        task.events.clone().into_iter().map(move |event| (name.clone(), event)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = status.task_states.iter().flat_map(of_task).collect();
    all.sort_by_key(|(_, event)| std::cmp::Reverse(event.time));
    let mut table = Table::new(&["AGE", "TASK", "EVENT", "MESSAGE"]);
    for (task, event) in all.into_iter().take(EVENTS) {
        let age = output::span(now.duration_since(event.time).as_secs());
        table.row(vec![age, task, event.r#type.to_string(), event.message]);
    }
    table
}
