//! The figures of a bench: medians over its runs, the machine they are of, and the targets that they are held against.

use std::fs;

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use drover_testkit::progress::print_line;
use drover_testkit::workspace;
use serde::Serialize;
use serde_json::{Map, Value};

use super::args::BenchName;

/// A figure, and what it should be.
type FigureTarget = (&'static str, Wanted);

#[derive(Debug, Clone, Copy)]
enum Wanted {
    AtMost(f64),
    AtLeast(f64),
    LessThan(f64),
}

const CONTAINERS: &[FigureTarget] = &[
    ("startToCtrRun", Wanted::AtMost(1.0)),
    ("bridgeAddsSeconds", Wanted::AtMost(0.01)),
    ("firstContainerPssBytes", Wanted::AtMost(5_000_000.0)),
    ("moreContainerPssBytes", Wanted::AtMost(2_000_000.0)),
    ("ownPssBytesPerContainer", Wanted::AtMost(300_000.0)),
    ("restoreSeconds", Wanted::AtMost(1.0)),
    ("restoreEvents", Wanted::AtMost(0.0)),
];

/// The targets of the acceptance table; memory is counted in megabytes of a million bytes.
fn targets(name: BenchName) -> &'static [FigureTarget] {
    use Wanted::{AtLeast, AtMost, LessThan};
    match name {
        BenchName::Start => &[("p50Seconds", AtMost(0.1))],
        BenchName::Density => &[("startsPerSecond", AtLeast(100.0)), ("pssBytesPerTask", AtMost(1_500_000.0))],
        BenchName::Agent => &[
            ("raw_exec.startP50Seconds", AtMost(0.01)),
            ("exec.startP50Seconds", AtMost(0.04)),
            ("raw_exec.startsPerSecond", AtLeast(200.0)),
            ("raw_exec.pssBytesPerTask", AtMost(500_000.0)),
            ("exec.pssBytesPerTask", AtMost(500_000.0)),
            ("raw_exec.idleCpuFraction", LessThan(0.01)),
            ("raw_exec.restoreSeconds", AtMost(1.0)),
            ("raw_exec.restoreEvents", AtMost(0.0)),
            ("exec.restoreSeconds", AtMost(1.0)),
            ("exec.restoreEvents", AtMost(0.0)),
        ],
        BenchName::Containers => CONTAINERS,
        BenchName::AgentLives => &[
            ("agentWritesMost", AtMost(3.0)),
            ("controllerWritesMost", AtMost(1.0)),
            ("healthDelayP99Seconds", LessThan(0.3)),
        ],
        BenchName::AgentNeighbours => &[
            // Control groups can do no more than keep programs on cores of their own.
            ("cpuHogTimesOfLeast", AtMost(1.5)),
            ("memoryHogTimesOfLeast", AtMost(1.5)),
            ("forkBombTimesOfLeast", AtMost(1.5)),
            ("diskFillerTimesOfLeast", AtMost(1.5)),
        ],
        BenchName::Cluster => &[
            ("rateOverBare", AtLeast(0.8)),
            ("writesPerAllocation", AtMost(1.0)),
            ("controllerRssBytes", AtMost(300_000_000.0)),
            ("newLeaderSeconds", AtMost(3.0)),
            ("newLeaderWrites", AtMost(0.0)),
            ("newLeaderRssBytes", AtMost(400_000_000.0)),
            ("beatCostRatio", AtMost(1.2)),
            ("strangersEvaluated", AtMost(0.0)),
            ("unblockedMaxSeconds", AtMost(0.1)),
        ],
        BenchName::Deployments => &[
            ("changeCostRatio", AtMost(1.2)),
            ("openWatchesGrowth", AtMost(0.0)),
            ("bytesPerDeployment", AtMost(16_384.0)),
            ("writesPerDeployment", AtMost(20.0)),
        ],
        BenchName::NomadApi => &[
            ("jobStatusSeconds", AtMost(1.5)),
            ("jobStatusGatewayCpuSeconds", AtMost(0.3)),
            ("gatewayRssBytes", AtMost(250_000_000.0)),
            ("readySeconds", AtMost(2.0)),
            ("blockedIdleApiCalls", AtMost(0.0)),
            ("blockedAllAnsweredSeconds", AtMost(0.25)),
            ("eventP99Seconds", AtMost(0.25)),
        ],
        BenchName::Gateway => &[
            ("logBytesPerSecond", AtLeast(150_000_000.0)),
            ("logByApiServerBytesPerSecond", AtLeast(50_000_000.0)),
            ("lineP99Seconds", AtMost(0.3)),
            ("followersGatewayCpuFraction", AtMost(0.25)),
            ("bytesPerFollower", AtMost(16_384.0)),
            ("silentAgentCpuFraction", AtMost(0.02)),
            ("tunnelsGatewayRssBytes", AtMost(250_000_000.0)),
            ("tunnelsGatewayCpuFraction", AtMost(0.02)),
        ],
        BenchName::Secrets => &[
            ("secretToFileP99Seconds", AtMost(1.0)),
            ("gatewayRssBytes", AtMost(150_000_000.0)),
            ("writes", AtMost(0.0)),
        ],
        BenchName::Services => &[
            ("idleWrites", AtMost(0.0)),
            ("agentCpuFraction", AtMost(0.02)),
            ("failedToSliceP99Seconds", AtMost(1.0)),
            ("slicesWrong", AtMost(0.0)),
            ("writesPerChange", AtMost(2.0)),
        ],
        BenchName::Volumes => &[
            ("writesPerReleasedClaim", AtMost(3.0)),
            ("callsInFlightPerPlugin", AtMost(1.0)),
            ("idleTasks", AtMost(0.0)),
            ("changeCostRatio", AtMost(1.2)),
        ],
        BenchName::Status => &[("p50Seconds", LessThan(0.3)), ("allocationListsPerCall", AtMost(1.0))],
        BenchName::Scheduler => &[
            ("noSpread5000x1200Seconds", AtMost(0.005)),
            ("spread5000x1200Seconds", AtMost(0.05)),
            ("leastTimesFasterThanNomad", AtLeast(10.0)),
            ("heapBytes", AtMost(10_000_000.0)),
            ("slopeOverAllocs", AtMost(1.2)),
            ("slopeOverNodes", AtMost(1.0)),
        ],
        BenchName::SchedulerHard => &[("slowestSeconds", AtMost(0.25)), ("fullToEmptySeconds", AtMost(2.0))],
        BenchName::Idle => &[
            ("controllerIdleCpuFraction", LessThan(0.01)),
            ("agentIdleCpuFraction", LessThan(0.01)),
            ("idleWrites", AtMost(0.0)),
        ],
    }
}

impl Wanted {
    fn holds(self, got: f64) -> bool {
        match self {
            Self::AtMost(limit) => got <= limit,
            Self::AtLeast(limit) => got >= limit,
            Self::LessThan(limit) => got < limit,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("<= {limit}"),
            Self::AtLeast(limit) => format!(">= {limit}"),
            Self::LessThan(limit) => format!("< {limit}"),
        }
    }
}

/// The machine, and how busy it was before the bench.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Machine {
    cpu: String,
    cores: usize,
    memory_bytes: u64,
    load1_before: f64,
    load1_after: f64,
}

impl Machine {
    pub(super) fn observe() -> Result<Self> {
        let read = |path: &str| fs::read_to_string(path).with_context(|| format!("reading {path}"));
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo")?, "MemTotal");
        let kilobytes = memory.and_then(|memory| memory.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
        Ok(Self {
            cpu: field(&read("/proc/cpuinfo")?, "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kilobytes * 1024,
            load1_before: load1()?,
            load1_after: 0.0,
        })
    }
}

fn load1() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg").context("reading /proc/loadavg")?;
    text.split_whitespace().next().and_then(|load| load.parse().ok()).context("/proc/loadavg holds no load")
}

#[derive(Debug, Serialize)]
struct TargetResult {
    name: &'static str,
    wanted: String,
    got: f64,
    holds: bool,
}

/// What a bench prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BenchReport {
    bench: String,
    commit: String,
    machine: Machine,
    runs: usize,
    etcd_fsync: bool,
    rows: Vec<Map<String, Value>>,
    targets: Vec<TargetResult>,
    falls_short: Vec<&'static str>,
}

impl BenchReport {
    /// Takes the median of each figure over the runs. Where rows have a `driver`, targets name a figure as
    /// `driver.figure`.
    pub(super) fn of_rows(name: BenchName, machine: Machine, runs: &[Vec<Map<String, Value>>]) -> Result<Self> {
        let n_rows = runs.first().map_or(0, Vec::len);
        let rows: Vec<Map<String, Value>> = (0..n_rows)
            .map(|row| medians(&runs.iter().filter_map(|run| run.get(row).cloned()).collect::<Vec<_>>()))
            .collect();
        let figures = rows.iter().flat_map(|row| {
            let driver = row.get("driver").and_then(Value::as_str);
            row.iter().map(move |(field, value)| {
                (driver.map_or_else(|| field.clone(), |driver| format!("{driver}.{field}")), value.clone())
            })
        });
        Self::of_figures(name, machine, runs.len(), &figures.collect(), rows.clone())
    }

    /// A report of medians that were taken already: `figures` are what the targets name.
    pub(super) fn of_figures(
        name: BenchName,
        mut machine: Machine,
        n_runs: usize,
        figures: &Map<String, Value>,
        rows: Vec<Map<String, Value>>,
    ) -> Result<Self> {
        machine.load1_after = load1()?;
        let result = |(name, wanted): &FigureTarget| {
            let got = figures.get(*name).and_then(Value::as_f64).with_context(|| format!("no figure {name}"))?;
            Ok(TargetResult { name, wanted: wanted.text(), got, holds: wanted.holds(got) })
        };
        let targets = targets(name).iter().map(result).collect::<Result<Vec<_>>>()?;
        Ok(Self {
            bench: name.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default(),
            commit: workspace::commit(),
            machine,
            runs: n_runs,
            etcd_fsync: !matches!(name, BenchName::Scheduler | BenchName::SchedulerHard),
            falls_short: targets.iter().filter(|target| !target.holds).map(|target| target.name).collect(),
            targets,
            rows,
        })
    }

    pub(super) fn print(&self, as_json: bool) -> Result<()> {
        if as_json {
            print_line(&serde_json::to_string(self).context("rendering the report")?);
            return Ok(());
        }
        print_line(&format!(
            "{} at {} on {} ({} cores), load {} before",
            self.bench, self.commit, self.machine.cpu, self.machine.cores, self.machine.load1_before
        ));
        for (field, value) in self.rows.iter().flatten() {
            print_line(&format!("  {field:<28} {value}"));
        }
        for target in &self.targets {
            let verdict = if target.holds { "holds" } else { "FALLS SHORT" };
            print_line(&format!("  target {}: wanted {}, got {}: {verdict}", target.name, target.wanted, target.got));
        }
        Ok(())
    }
}

fn medians(runs: &[Map<String, Value>]) -> Map<String, Value> {
    let Some(first) = runs.first() else { return Map::new() };
    let median_of = |field: &String, value: &Value| {
        let mut figures: Vec<f64> = runs.iter().filter_map(|run| run.get(field)?.as_f64()).collect();
        if figures.len() != runs.len() || figures.len() == 1 {
            return value.clone();
        }
        figures.sort_by(f64::total_cmp);
        Value::from(percentile(&figures, 50))
    };
    first.iter().map(|(field, value)| (field.clone(), median_of(field, value))).collect()
}

/// Returns the median of the figures without the first, which was taken before caches were warm.
pub(super) fn warm_median(mut figures: Vec<f64>) -> f64 {
    figures.remove(0);
    figures.sort_by(f64::total_cmp);
    percentile(&figures, 50)
}

/// Returns the smallest of the sorted figures that at least this share of them does not exceed.
pub(super) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn percentiles_are_figures_that_were_measured() {
        let figures: Vec<f64> = (1..=50).map(f64::from).collect();
        assert!((percentile(&figures, 50) - 25.0).abs() < 1e-9);
        assert!((percentile(&figures, 99) - 50.0).abs() < 1e-9);
        assert!((percentile(&figures[..1], 50) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_report_takes_medians_and_names_what_falls_short() {
        let runs: Vec<Vec<Map<String, Value>>> = [0.3, 0.09, 0.2]
            .into_iter()
            .map(|p50| vec![json!({"jobs": 50, "p50Seconds": p50}).as_object().cloned().unwrap()])
            .collect();
        let report = BenchReport::of_rows(BenchName::Start, Machine::observe().unwrap(), &runs).unwrap();
        assert_eq!(report.falls_short, ["p50Seconds"]);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["bench"], "start");
        assert_eq!(json["rows"][0]["p50Seconds"], 0.2);
        assert_eq!(json["targets"][0]["wanted"], "<= 0.1");
        assert_eq!(json["fallsShort"][0], "p50Seconds");
    }
}
