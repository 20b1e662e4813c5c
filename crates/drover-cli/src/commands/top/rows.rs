//! The table of `drover top`, made of two looks at a cluster: CPU is what was used between them. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use drover_api::allocation::TaskRunState;
use drover_api::client_node::NodePhase;
use drover_api::{Allocation, ClientNode, Job};
use drover_socket::protocol::AllocStats;
use kube::Resource;

use super::look::{Look, Subject, status_of};
use crate::ui::natural;
use crate::ui::table::Table;
use crate::ui::tree::phase;

const MIB: u64 = 1024 * 1024;

/// What an allocation uses, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Use {
    /// Between both looks.
    mhz: Option<u64>,
    memory_bytes: Option<u64>,
    /// Why something is not known.
    reason: Option<String>,
}

/// A line before it is text.
#[derive(Debug, Default)]
struct TopLine {
    name: String,
    state: String,
    used: Use,
    given_mhz: i64,
    given_mib: i64,
    n_running: usize,
    n_tasks: usize,
}

/// The table, what uses the most CPU first.
pub(super) fn table(what: Subject, before: &Look, now: &Look) -> Table {
    let known = known(before, now);
    let mut lines: Vec<TopLine> = match what {
        Subject::Nodes => now.nodes.iter().flatten().map(|node| node_line(node, now, &known)).collect(),
        Subject::Jobs => now.jobs.iter().map(|job| job_line(job, now, &known)).collect(),
        Subject::Allocs => now.allocs.iter().map(|alloc| alloc_line(alloc, now, &known)).collect(),
    };
    lines.sort_by(|a, b| Reverse(a.used.mhz).cmp(&Reverse(b.used.mhz)).then_with(|| natural::order(&a.name, &b.name)));
    let mut table = Table::new(&["NAME", "STATE", "CPU(MHz)", "MEMORY(MiB)", "TASKS", "REASON"]);
    for line in lines {
        let used = |used: Option<u64>| used.map_or_else(|| "-".to_owned(), |used| used.to_string());
        table.row(vec![
            line.name,
            line.state,
            format!("{}/{}", used(line.used.mhz), line.given_mhz),
            format!("{}/{}", used(line.used.memory_bytes.map(|bytes| bytes.div_ceil(MIB))), line.given_mib),
            format!("{}/{}", line.n_running, line.n_tasks),
            line.used.reason.unwrap_or_default(),
        ]);
    }
    table
}

/// What each allocation that may run uses, by uid. O(allocations + nodes).
fn known(before: &Look, now: &Look) -> BTreeMap<String, Use> {
    let nodes = now.nodes.as_deref().unwrap_or_default();
    let cores: BTreeMap<&str, u64> =
        nodes.iter().filter_map(|node| Some((node.metadata.name.as_deref()?, core_mhz(node)?))).collect();
    let use_of = |alloc: &Allocation| {
        let uid = alloc.metadata.uid.clone().unwrap_or_default();
        let used = match now.samples.get(&uid)? {
            Err(reason) => Use { reason: Some(reason.clone()), ..Use::default() },
            Ok(sample) => {
                let earlier = before.samples.get(&uid).and_then(|earlier| earlier.as_ref().ok());
                let core = cores.get(alloc.spec.node_name.as_str());
                let unknown = || match &now.nodes {
                    Err(reason) => format!("the MHz of its node are not known: {reason}"),
                    Ok(_) => format!("the MHz of node {} are not known", alloc.spec.node_name),
                };
                Use {
                    mhz: core.zip(earlier).and_then(|(core, earlier)| mhz(earlier, sample, *core)),
                    memory_bytes: Some(sample.total.memory_bytes),
                    reason: core.is_none().then(unknown),
                }
            }
        };
        Some((uid, used))
    };
    now.allocs.iter().filter_map(use_of).collect()
}

/// The MHz of one core of a node.
fn core_mhz(node: &ClientNode) -> Option<u64> {
    let all = &node.status.as_ref()?.fingerprint.as_ref()?.resources;
    u64::try_from(all.cpu.checked_div(all.cores)?).ok()
}

/// The MHz that the tasks used between two samples on cores of so many MHz; none without time between them.
fn mhz(before: &AllocStats, now: &AllocStats, core: u64) -> Option<u64> {
    let elapsed = u128::try_from(now.time.duration_since(before.time).as_nanos()).ok()?;
    // The time of a task counts from its start: where it is less than before, it was started again meanwhile.
    let nanos = now.tasks.iter().map(|(task, used)| {
        let earlier = before.tasks.get(task).map_or(0, |earlier| earlier.cpu_nanos);
        u128::from(used.cpu_nanos.checked_sub(earlier).unwrap_or(used.cpu_nanos))
    });
    u64::try_from((nanos.sum::<u128>() * u128::from(core)).checked_div(elapsed)?).ok()
}

fn node_line(node: &ClientNode, now: &Look, known: &BTreeMap<String, Use>) -> TopLine {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let status = node.status.clone().unwrap_or_default();
    let own = now.allocs.iter().filter(|alloc| alloc.spec.node_name == name);
    let mut line = TopLine { name: name.to_owned(), state: status.phase.to_string(), ..sum(own, known) };
    let is_heard_of = match status.phase {
        NodePhase::Ready => true,
        NodePhase::Initializing | NodePhase::Down | NodePhase::Disconnected => false,
    };
    if !is_heard_of {
        let since = status.phase_changed_at.map(|at| at.strftime(" since %Y-%m-%dT%H:%M:%SZ").to_string());
        let reason = format!("its agent is not heard of{}", since.unwrap_or_default());
        line.used = Use { reason: Some(reason), ..Use::default() };
    }
    line
}

fn job_line(job: &Job, now: &Look, known: &BTreeMap<String, Use>) -> TopLine {
    let (name, namespace) = (&job.metadata.name, &job.metadata.namespace);
    let own = now
        .allocs
        .iter()
        .filter(|alloc| Some(&alloc.spec.job_name) == name.as_ref() && alloc.metadata.namespace == *namespace);
    let state = phase(&job.status.clone().unwrap_or_default());
    TopLine { name: shown_name(job, now), state, ..sum(own, known) }
}

fn alloc_line(alloc: &Allocation, now: &Look, known: &BTreeMap<String, Use>) -> TopLine {
    let state = status_of(alloc).to_string();
    TopLine { name: shown_name(alloc, now), state, ..sum(std::iter::once(alloc), known) }
}

fn shown_name<K: Resource>(object: &K, now: &Look) -> String {
    let name = object.meta().name.clone().unwrap_or_default();
    match &object.meta().namespace {
        Some(namespace) if now.is_of_all_namespaces => format!("{namespace}/{name}"),
        Some(_) | None => name,
    }
}

/// What allocations use and were given together. What is known is added up; the reason says of how many of those that
/// may run it is not.
fn sum<'a>(allocs: impl Iterator<Item = &'a Allocation>, known: &BTreeMap<String, Use>) -> TopLine {
    let mut line = TopLine::default();
    let (mut n_may_run, mut reasons) = (0, Vec::new());
    for alloc in allocs {
        for given in alloc.spec.resources.tasks.values() {
            line.given_mhz += given.cpu;
            line.given_mib += given.memory_mb;
        }
        let states = alloc.status.iter().flat_map(|status| status.task_states.values());
        line.n_running += states.filter(|task| task.state == TaskRunState::Running).count();
        line.n_tasks += alloc.spec.resources.tasks.len();
        let Some(used) = known.get(alloc.metadata.uid.as_deref().unwrap_or_default()) else { continue };
        n_may_run += 1;
        line.used.mhz = added(line.used.mhz, used.mhz);
        line.used.memory_bytes = added(line.used.memory_bytes, used.memory_bytes);
        reasons.extend(&used.reason);
    }
    if n_may_run == 0 {
        (line.used.mhz, line.used.memory_bytes) = (Some(0), Some(0));
    }
    line.used.reason = match reasons[..] {
        [] => None,
        [first, ..] if reasons.len() == n_may_run => Some(first.clone()),
        [first, ..] => Some(format!("{} of {n_may_run} allocations: {first}", reasons.len())),
    };
    line
}

/// The sum of what is known; none where nothing is.
fn added(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, None) | (None, one) => one,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, phase: &str) -> ClientNode {
        serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "ClientNode", "metadata": { "name": name }, "spec": {},
            "status": { "phase": phase, "phaseChangedAt": "2026-11-24T20:00:00Z",
                        "fingerprint": { "resources": { "cpu": 4000, "cores": 2 } } },
        }))
        .expect("a node")
    }

    /// An allocation of a job, named by its uid; each task is given 500 MHz and 64 MiB.
    fn alloc(uid: &str, job: &str, on: &str, status: &str, tasks: &[&str]) -> Allocation {
        let given: BTreeMap<&str, Value> =
            tasks.iter().map(|task| (*task, json!({ "cpu": 500, "memoryMB": 64 }))).collect();
        let state = if status == "pending" { "pending" } else { "running" };
        let tasks: BTreeMap<&str, Value> = tasks.iter().map(|task| (*task, json!({ "state": state }))).collect();
        serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Allocation",
            "metadata": { "name": uid, "namespace": "shop", "uid": uid },
            "spec": { "jobName": job, "jobUID": "j", "jobVersion": 0, "group": "g", "index": 0, "nodeName": on,
                      "resources": { "tasks": given } },
            "status": { "clientStatus": status, "taskStates": tasks },
        }))
        .expect("an allocation")
    }

    fn job(name: &str) -> Job {
        serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": name, "namespace": "shop" },
            "spec": { "groups": [] }, "status": { "phase": "running" },
        }))
        .expect("a job")
    }

    /// A sample at a second: the CPU time of each task in ms, and 5 MiB and a byte of each.
    fn sample(second: i64, tasks: &[(&str, u64)]) -> AllocStats {
        let of = |ms: u64| {
            json!({ "cpuNanos": ms * 1_000_000, "cpuFraction": 0.0, "memoryBytes": 5 * MIB + 1,
                                   "memoryPeakBytes": 0, "pids": 1 })
        };
        let n = u64::try_from(tasks.len()).expect("a number");
        let mut total = of(0);
        total["memoryBytes"] = json!(n * (5 * MIB + 1));
        let tasks: BTreeMap<&str, Value> = tasks.iter().map(|(task, ms)| (*task, of(*ms))).collect();
        let time = jiff::Timestamp::new(1_800_000_000 + second, 0).expect("a time");
        serde_json::from_value(json!({ "time": time, "total": total, "tasks": tasks })).expect("a sample")
    }

    /// Two looks, two seconds apart, at `n-1` with a busy and an idle allocation and one to come, `n-2` whose agent
    /// has no tunnel, and `n-3` that is down.
    fn looks() -> (Look, Look) {
        let refused = || Err("node n-2 has no tunnel to the gateway".to_owned());
        let before = Look {
            samples: [
                ("web-1".to_owned(), Ok(sample(0, &[("a", 1000)]))),
                ("web-2".to_owned(), refused()),
                ("db-10".to_owned(), Ok(sample(0, &[("a", 5000), ("b", 100)]))),
                ("db-2".to_owned(), Ok(sample(0, &[("a", 0)]))),
            ]
            .into(),
            nodes: Ok(Vec::new()),
            jobs: Vec::new(),
            allocs: Vec::new(),
            is_of_all_namespaces: false,
        };
        let now = Look {
            nodes: Ok(vec![node("n-1", "ready"), node("n-2", "ready"), node("n-3", "down"), node("n-4", "ready")]),
            jobs: vec![job("db"), job("idle"), job("web")],
            allocs: vec![
                alloc("web-1", "web", "n-1", "running", &["a"]),
                alloc("web-2", "web", "n-2", "running", &["a"]),
                alloc("db-10", "db", "n-1", "running", &["a", "b"]),
                alloc("db-2", "db", "n-1", "running", &["a"]),
                alloc("new-1", "db", "n-1", "pending", &["a"]),
            ],
            samples: [
                ("web-1".to_owned(), Ok(sample(2, &[("a", 2000)]))),
                ("web-2".to_owned(), refused()),
                // Its task a was started again.
                ("db-10".to_owned(), Ok(sample(2, &[("a", 300), ("b", 200)]))),
                ("db-2".to_owned(), Ok(sample(2, &[("a", 0)]))),
            ]
            .into(),
            is_of_all_namespaces: false,
        };
        (before, now)
    }

    fn check(what: Subject, (before, now): &(Look, Look), expected: &Expect) {
        let mut text = String::new();
        table(what, before, now).write(&mut text);
        // The indentation of all lines is stripped from what is expected, and with it the table's own.
        let lines: Vec<String> = text.lines().map(|line| format!("{}\n", &line[2..])).collect();
        expected.assert_eq(&lines.concat());
    }

    #[test]
    fn allocations_are_sorted_by_what_they_use_and_the_unknown_comes_last() {
        check(
            Subject::Allocs,
            &looks(),
            &expect![[r"
            NAME   STATE    CPU(MHz)  MEMORY(MiB)  TASKS  REASON
            web-1  running  1000/500  6/64         1/1
            db-10  running  400/1000  11/128       2/2
            db-2   running  0/500     6/64         1/1
            new-1  pending  0/500     0/64         0/1
            web-2  running  -/500     -/64         1/1    node n-2 has no tunnel to the gateway
        "]],
        );
    }

    #[test]
    fn a_job_adds_up_what_is_known_and_says_what_is_not() {
        check(
            Subject::Jobs,
            &looks(),
            &expect![[r"
            NAME  STATE    CPU(MHz)   MEMORY(MiB)  TASKS  REASON
            web   running  1000/1000  6/128        2/2    1 of 2 allocations: node n-2 has no tunnel to the gateway
            db    running  400/2000   16/256       3/4
            idle  running  0/0        0/0          0/0
        "]],
        );
        let (before, mut now) = looks();
        now.is_of_all_namespaces = true;
        now.nodes = Err("nodes may not be read".to_owned());
        now.jobs.truncate(1);
        check(
            Subject::Jobs,
            &(before, now),
            &expect![[r"
            NAME     STATE    CPU(MHz)  MEMORY(MiB)  TASKS  REASON
            shop/db  running  -/2000    16/256       3/4    the MHz of its node are not known: nodes may not be read
        "]],
        );
    }

    #[test]
    fn a_node_whose_agent_is_not_connected_has_a_dash_and_the_reason() {
        check(
            Subject::Nodes,
            &looks(),
            &expect![[r"
            NAME  STATE  CPU(MHz)   MEMORY(MiB)  TASKS  REASON
            n-1   ready  1400/2500  21/320       4/5
            n-4   ready  0/0        0/0          0/0
            n-2   ready  -/500      -/64         1/1    node n-2 has no tunnel to the gateway
            n-3   down   -/0        -/0          0/0    its agent is not heard of since 2026-11-24T20:00:00Z
        "]],
        );
    }
}
