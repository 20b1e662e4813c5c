//! `bench scheduler` and `bench scheduler-hard`: single evaluations on large clusters, in memory. The rows are made by
//! the bench of `drover-core`; here they are held against the peers' figures and the issue's.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use drover_testkit::cargo;
use drover_testkit::progress::Progress;
use drover_testkit::spawner::spawn_bound_to_this_process;
use serde_json::{Map, Value, json};

use super::args::{BenchArgs, BenchName};

/// Runs of which the median counts, unless more are asked for.
const RUNS: usize = 5;

/// The faster of the times that Nomad's scheduler took on such a machine: nodes, allocations, seconds without and with
/// a spread, at 50 racks.
const NOMAD: [(u64, u64, f64, f64); 9] = [
    (500, 300, 0.025, 1.13),
    (500, 1_200, 0.154, 1.86),
    (1_000, 300, 0.028, 1.0),
    (1_000, 1_200, 0.40, 8.8),
    (5_000, 300, 0.038, 1.5),
    (5_000, 1_200, 0.19, 24.0),
    (10_000, 50, 0.022, 0.078),
    (10_000, 300, 0.053, 1.15),
    (10_000, 1_200, 0.21, 28.0),
];

/// The rows, and the figures that have targets.
pub(super) struct Measured {
    pub(super) rows: Vec<Map<String, Value>>,
    pub(super) figures: Map<String, Value>,
    pub(super) runs: usize,
}

pub(super) fn run(args: &BenchArgs, progress: &Progress) -> Result<Measured> {
    let is_hard = args.name == BenchName::SchedulerHard;
    let (name, n_rows) = if is_hard { ("scheduler-hard", 12) } else { ("scheduler", 120) };
    let step = progress.step("building the bench".to_owned());
    cargo::build(&["bench", "-p", "drover-core", "--bench", "scheduler", "--no-run"], &step)?;
    step.done("");
    let runs = args.runs.max(RUNS);
    let step = progress.step(format!("{name}: planning on {n_rows} clusters"));
    let mut command = cargo::command();
    command.args(["bench", "-q", "-p", "drover-core", "--bench", "scheduler", "--", name, &runs.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = spawn_bound_to_this_process(command).context("starting the bench")?;
    let mut rows: Vec<Map<String, Value>> = Vec::new();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufReader::lines) {
        let line = line.context("reading the bench's rows")?;
        rows.push(serde_json::from_str(&line).with_context(|| format!("the bench printed no row: {line}"))?);
        step.moved("", rows.len() as u64, n_rows);
    }
    let status = child.wait().context("waiting for the bench")?;
    if !status.success() {
        bail!("the bench ended with {status}");
    }
    step.done("");
    let figures = if is_hard { hard_figures(&rows) } else { figures(&rows) }.context("the bench left rows out")?;
    Ok(Measured { rows, figures, runs })
}

fn number(row: &Map<String, Value>, field: &str) -> Option<f64> {
    row.get(field)?.as_f64()
}

fn largest(rows: &[Map<String, Value>], field: &str) -> Option<f64> {
    rows.iter().map(|row| number(row, field)).collect::<Option<Vec<_>>>()?.into_iter().reduce(f64::max)
}

fn figures(rows: &[Map<String, Value>]) -> Option<Map<String, Value>> {
    let seconds = |nodes: u64, allocs: u64, spread: bool| {
        let is_it = |row: &&Map<String, Value>| {
            row.get("nodes").and_then(Value::as_u64) == Some(nodes)
                && row.get("allocs").and_then(Value::as_u64) == Some(allocs)
                && row.get("racks").and_then(Value::as_u64) == Some(50)
                && row.get("spread").and_then(Value::as_bool) == Some(spread)
        };
        number(rows.iter().find(is_it)?, "seconds")
    };
    let mut ratios = Vec::new();
    for (nodes, allocs, plain, spread) in NOMAD {
        ratios.push(plain / seconds(nodes, allocs, false)?);
        ratios.push(spread / seconds(nodes, allocs, true)?);
    }
    let figures = json!({
        "noSpread5000x1200Seconds": seconds(5_000, 1_200, false)?,
        "spread5000x1200Seconds": seconds(5_000, 1_200, true)?,
        "leastTimesFasterThanNomad": ratios.into_iter().reduce(f64::min)?,
        "heapBytes": largest(rows, "heapBytes")?,
        "slopeOverAllocs": slope(rows, "allocs")?,
        "slopeOverNodes": slope(rows, "nodes")?,
    });
    figures.as_object().cloned()
}

/// The exponent by which time grows with a field, all others being equal: the mean, over all series of rows that differ
/// in that field alone, of the slopes of the regression of log time on its log.
fn slope(rows: &[Map<String, Value>], over: &str) -> Option<f64> {
    let mut series: std::collections::BTreeMap<String, Vec<(f64, f64)>> = std::collections::BTreeMap::new();
    for row in rows {
        let rest: Vec<String> = ["nodes", "allocs", "racks", "spread"]
            .iter()
            .filter(|field| **field != over)
            .map(|field| row.get(*field).map(ToString::to_string).unwrap_or_default())
            .collect();
        let point = (number(row, over)?.ln(), number(row, "seconds")?.ln());
        series.entry(rest.join(" ")).or_default().push(point);
    }
    let slopes: Vec<f64> = series.values().map(|points| regression(points)).collect();
    let n = u32::try_from(slopes.len()).ok().filter(|n| *n > 0)?;
    Some(slopes.iter().sum::<f64>() / f64::from(n))
}

fn regression(points: &[(f64, f64)]) -> f64 {
    let n = points.iter().map(|_| 1.0).sum::<f64>();
    let (x, y) = points.iter().fold((0.0, 0.0), |sums, point| (sums.0 + point.0 / n, sums.1 + point.1 / n));
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread
}

fn hard_figures(rows: &[Map<String, Value>]) -> Option<Map<String, Value>> {
    let of = |shape: &str| {
        let row = rows.iter().find(|row| row.get("shape").and_then(Value::as_str) == Some(shape))?;
        number(row, "seconds")
    };
    let figures = json!({
        "slowestSeconds": largest(rows, "seconds")?,
        "fullToEmptySeconds": of("95_percent_full_of_100000")? / of("0_percent_full")?,
    });
    figures.as_object().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_the_exponent_of_growth() {
        let row = |nodes: f64, allocs: f64| {
            let seconds = nodes * allocs.powf(0.5);
            json!({ "nodes": nodes, "allocs": allocs, "seconds": seconds }).as_object().cloned().unwrap()
        };
        let rows: Vec<_> = [(500.0, 50.0), (500.0, 300.0), (1_000.0, 50.0), (1_000.0, 300.0)]
            .into_iter()
            .map(|(nodes, allocs)| row(nodes, allocs))
            .collect();
        assert!((slope(&rows, "allocs").unwrap() - 0.5).abs() < 1e-9);
        assert!((slope(&rows, "nodes").unwrap() - 1.0).abs() < 1e-9);
    }
}
