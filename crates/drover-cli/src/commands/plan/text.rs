//! A plan as people read it: what would be placed where, what would end, and for each group without a place why, and
//! what would help.

use std::collections::BTreeMap;
use std::fmt::Write;

use drover_api::metric::{AllocMetric, NodeScore};
use drover_core::advice::Advice;
use drover_core::scheduler::explain;

use crate::commands::plan::difference;
use crate::commands::plan::report::{Desired, Placed, Report};
use crate::ui::table::Table;

/// Writes the report as text.
pub(crate) fn render(report: &Report) -> String {
    let mut text = String::new();
    if let Some(diff) = &report.diff {
        difference::write(&mut text, diff);
    }
    line(&mut text, &format!("Job {}, {}: {}", report.eval.job, report.eval.trigger, summary(report)));
    if !report.eval.description.is_empty() {
        line(&mut text, &format!("The evaluation failed: {}", report.eval.description));
    }
    placements(&mut text, report);
    replacements(&mut text, report);
    stops(&mut text, report);
    others(&mut text, report);
    deployment(&mut text, report);
    for (group, metric) in &report.failed {
        let missing = metric.coalesced_failures + 1;
        failure(&mut text, group, missing, metric);
        help(&mut text, report.advice.get(group).map_or(&[], Vec::as_slice), metric);
    }
    text
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn summary(report: &Report) -> String {
    let sum = |pick: fn(&Desired) -> i64| report.desired.values().map(pick).sum::<i64>();
    let missing: i64 = report.failed.values().map(|metric| metric.coalesced_failures + 1).sum();
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let counts = [
        (count(report.placements.len()), "to place"),
        (count(report.destructive.len()), "to replace"),
        (count(report.in_place.len()), "to update in place"),
        (count(report.stops.len()), "to stop"),
        (count(report.disconnects.len()), "disconnected"),
        (count(report.reconnects.len()), "back"),
        (sum(|desired| desired.reschedule_later), "to reschedule later"),
        (missing, "without a node"),
        (sum(|desired| desired.ignore), "unchanged"),
    ];
    let parts: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if parts.is_empty() { "nothing to do".to_owned() } else { parts.join(", ") }
}

fn placements(text: &mut String, report: &Report) {
    if report.placements.is_empty() {
        return;
    }
    line(text, "\nTo place");
    let mut table = Table::new(&["NAME", "NODE", "SCORE", "PORTS", "AFTER"]);
    for placed in &report.placements {
        let mut row = place(placed);
        row.push(placed.previous_allocation.clone().unwrap_or_else(dash));
        table.row(row);
    }
    table.write(text);
    evictions(text, report.placements.iter());
}

/// Name, node, score and ports.
fn place(placed: &Placed) -> Vec<String> {
    let canary = if placed.canary { " (canary)" } else { "" };
    let ports: Vec<String> = placed.ports.iter().map(|port| format!("{}:{}", port.label, port.value)).collect();
    vec![
        format!("{}{canary}", placed.name),
        placed.node.clone(),
        format!("{:.3}", placed.score),
        if ports.is_empty() { dash() } else { ports.join(",") },
    ]
}

fn evictions<'a>(text: &mut String, placed: impl Iterator<Item = &'a Placed>) {
    for placed in placed.filter(|placed| !placed.preempts.is_empty()) {
        line(text, &format!("  {} evicts {} from {}", placed.name, placed.preempts.join(", "), placed.node));
    }
}

fn replacements(text: &mut String, report: &Report) {
    if report.destructive.is_empty() {
        return;
    }
    line(text, "\nTo replace by the new version");
    let mut table = Table::new(&["ALLOCATION", "NAME", "FROM", "TO", "SCORE"]);
    for replaced in &report.destructive {
        table.row(vec![
            replaced.allocation.clone(),
            replaced.name.clone(),
            replaced.node.clone(),
            replaced.replacement.node.clone(),
            format!("{:.3}", replaced.replacement.score),
        ]);
    }
    table.write(text);
    evictions(text, report.destructive.iter().map(|replaced| &replaced.replacement));
}

fn stops(text: &mut String, report: &Report) {
    if report.stops.is_empty() {
        return;
    }
    line(text, "\nTo stop");
    let mut table = Table::new(&["ALLOCATION", "HOW", "WHY"]);
    for stop in &report.stops {
        let how = match stop.client_status {
            Some(status) => format!("{}, {status}", stop.desired_status),
            None => stop.desired_status.to_string(),
        };
        table.row(vec![stop.allocation.clone(), how, stop.desired_description.clone()]);
    }
    table.write(text);
}

fn others(text: &mut String, report: &Report) {
    let list = |allocations: Vec<&str>| allocations.join(", ");
    if !report.in_place.is_empty() {
        let names = list(report.in_place.iter().map(|update| update.allocation.as_str()).collect());
        line(text, &format!("\nTo update in place: {names}"));
    }
    if !report.disconnects.is_empty() {
        let names = list(report.disconnects.iter().map(|cut| cut.allocation.as_str()).collect());
        line(text, &format!("\nCut off, unknown from now on: {names}"));
    }
    if !report.reconnects.is_empty() {
        let names = list(report.reconnects.iter().map(|back| back.allocation.as_str()).collect());
        line(text, &format!("\nBack, going on: {names}"));
    }
    if !report.eval.follow_ups.is_empty() {
        line(text, "\nTo look at again");
        let mut table = Table::new(&["AT", "BECAUSE OF"]);
        for later in &report.eval.follow_ups {
            table.row(vec![later.wait_until.to_string(), later.trigger.to_string()]);
        }
        table.write(text);
    }
}

fn deployment(text: &mut String, report: &Report) {
    let Some(deployment) = &report.deployment else { return };
    line(text, &format!("\nDeployment {}: {}, {}", deployment.name, deployment.phase, deployment.description));
    for (group, state) in &deployment.groups {
        let canaries = match state.desired_canaries {
            0 => String::new(),
            1 => ", 1 canary first".to_owned(),
            n => format!(", {n} canaries first"),
        };
        line(text, &format!("  {group}: {} wanted{canaries}", state.desired_total));
    }
    for ended in report.deployment_updates.iter().filter(|ended| ended.name != deployment.name) {
        line(text, &format!("Deployment {}: {}, {}", ended.name, ended.phase, ended.description));
    }
}

fn failure(text: &mut String, group: &str, missing: i64, metric: &AllocMetric) {
    let these = if missing == 1 { "1 allocation finds" } else { &format!("{missing} allocations find") };
    line(text, &format!("\nGroup {group}: {these} no node"));
    line(
        text,
        &format!(
            "  {} {} looked at in pool {} ({})",
            metric.nodes_evaluated,
            if metric.nodes_evaluated == 1 { "node" } else { "nodes" },
            metric.node_pool,
            available(metric)
        ),
    );
    let mut table = Table::new(&["NODES", "LEFT OUT BECAUSE"]);
    let rows = by_count(&metric.constraint_filtered).map(|(rule, n)| (n, explain::cause(rule)));
    let rows = rows.chain(by_count(&metric.dimension_exhausted).map(|(what, n)| (n, explain::shortage(what))));
    let rows: Vec<_> = rows.collect();
    for (n, why) in &rows {
        table.row(vec![n.to_string(), why.clone()]);
    }
    if !rows.is_empty() {
        table.write(text);
    }
    if !metric.score_meta_data.is_empty() {
        line(text, "  best nodes");
        scores(text, &metric.score_meta_data);
    }
}

/// What would help, as it was tried out, and the sentence that the job's status and its event show too.
fn help(text: &mut String, advice: &[Advice], metric: &AllocMetric) {
    if !advice.is_empty() {
        line(text, "  what would help");
    }
    for Advice { change, gain } in advice {
        let more = if *gain == 1 { "1 more finds a node" } else { &format!("{gain} more find a node") };
        line(text, &format!("    {change}: {more}"));
    }
    line(text, &format!("  {}", explain::explain(metric)));
}

fn available(metric: &AllocMetric) -> String {
    let parts: Vec<String> =
        metric.nodes_available.iter().map(|(datacenter, n)| format!("{n} ready in {datacenter}")).collect();
    if parts.is_empty() { "none is ready".to_owned() } else { parts.join(", ") }
}

/// The largest counts first.
fn by_count(counts: &BTreeMap<String, i64>) -> impl Iterator<Item = (&str, i64)> {
    let mut sorted: Vec<_> = counts.iter().map(|(key, n)| (key.as_str(), *n)).collect();
    sorted.sort_by_key(|(key, n)| (std::cmp::Reverse(*n), *key));
    sorted.into_iter()
}

/// Writes how the best nodes scored.
pub(crate) fn scores(text: &mut String, best: &[NodeScore]) {
    let mut table = Table::new(&["  NODE", "SCORE", "FROM"]);
    for node in best {
        let mut parts = String::new();
        for (name, value) in &node.scores {
            // Writing to a String cannot fail.
            write!(parts, "{name} {value:.3}  ").ok();
        }
        table.row(vec![format!("  {}", node.node), format!("{:.3}", node.norm_score), parts]);
    }
    table.write(text);
}

fn dash() -> String {
    "-".to_owned()
}
