//! Containers of every kind of life by the kubelet's own containerd, while all that holds them is killed in turn.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use drover_testkit::process::{ProcessId, Signal};
use drover_testkit::progress::Progress;
use serde_json::{Value, json};

use crate::ground::{Ground, is_ready, text};

const IMAGE: &str = "drover.dev/test-tools:1";
/// How many parts are killed, one after the other.
const KILLS: usize = 200;
/// What is killed, in turn.
const KILLED: [Part; 4] = [Part::Agent, Part::Supervisor, Part::Containerd, Part::Shim];
/// Containers of each kind.
const COPIES: usize = 10;
/// After so many kills the group that comes and goes does so.
const BETWEEN_WAVES: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Agent,
    Supervisor,
    Containerd,
    /// The process that looks after the containers of one allocation. They end with it.
    Shim,
}

/// What a container does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Counts for ever.
    Steady,
    /// Fails every few seconds, and is restarted.
    Failing,
    /// Is started and stopped by the job's count.
    Coming,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Steady, Self::Failing, Self::Coming];

    /// The job's name, and the argument by which its processes are known.
    fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Failing => "failing",
            Self::Coming => "coming",
        }
    }

    fn script(self) -> &'static str {
        match self {
            Self::Steady => "echo begun; n=0; while :; do n=$((n+1)); echo $n; sleep 0.1; done",
            Self::Failing => "echo begun; sleep 5; echo ended; exit 3",
            Self::Coming => "trap 'echo ended; exit 4' TERM; echo begun; while :; do sleep 0.2; done",
        }
    }

    fn job(self, count: usize) -> Value {
        json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": self.name() },
            "spec": { "groups": [{
                "name": "g", "count": count, "networks": [{ "mode": "none" }], "update": { "maxParallel": 0 },
                "ephemeralDisk": { "sizeMB": 10 },
                "restart": { "attempts": 1000, "interval": "24h", "delay": "1s", "mode": "fail" },
                "tasks": [{
                    "name": "t", "driver": "containerd", "resources": { "cpu": 5, "memoryMB": 16 },
                    "killSignal": "SIGTERM", "killTimeout": "10s", "logs": { "maxFiles": 1, "maxFileSizeMB": 5 },
                    "config": { "image": IMAGE, "command": "/bin/sh", "args": ["-c", self.script(), self.name()] },
                }],
            }] },
        })
    }
}

/// Row 2 of the table for containers.
pub(crate) fn two_hundred_kills(ground: &Ground) -> Result<String> {
    ground.installed()?;
    ground.offer_containers()?;
    ground.give_tools(IMAGE, &["sh", "sleep"])?;
    for kind in Kind::ALL {
        ground.apply(&kind.job(COPIES).to_string())?;
    }
    ground.eventually("all containers have begun", || {
        let begun: usize = Kind::ALL.iter().map(|kind| processes(ground, *kind).map_or(0, |all| all.len())).sum();
        Ok((begun == Kind::ALL.len() * COPIES).then_some(()))
    })?;

    let progress = Progress::for_people();
    let step = progress.step(format!("killing {KILLS} times what holds {} containers", Kind::ALL.len() * COPIES));
    let mut shims: BTreeMap<String, usize> = BTreeMap::new();
    let mut is_up = true;
    for n in 0..KILLS {
        let part = KILLED[n % KILLED.len()];
        let before = processes(ground, Kind::Steady)?;
        let of_alloc = kill(ground, part, n).with_context(|| format!("kill {n}"))?;
        let now = steady_again(ground).with_context(|| format!("after kill {n}, of the {part:?}"))?;
        let n_changed = before.iter().filter(|process| !now.contains(process)).count();
        let may_change = usize::from(of_alloc.is_some());
        ensure!(n_changed <= may_change, "kill {n}, of the {part:?}, changed {n_changed} processes");
        if let Some(alloc) = of_alloc {
            *shims.entry(alloc).or_default() += 1;
        }
        if n % BETWEEN_WAVES == BETWEEN_WAVES - 1 {
            is_up = !is_up;
            ground.apply(&Kind::Coming.job(if is_up { COPIES } else { 0 }).to_string())?;
        }
        step.moved("", n as u64 + 1, KILLS as u64);
    }
    step.done("");
    let judged = judge(ground, &shims)?;
    clear(ground)?;
    Ok(format!("{KILLS} kills: {judged}; nothing was left"))
}

/// The first processes of the containers of a kind, by their number.
fn processes(ground: &Ground, kind: Kind) -> Result<Vec<ProcessId>> {
    let mut found = ground.programs("sh", |args| args.iter().any(|arg| arg == kind.name()))?;
    // What it starts is for a moment a copy of it.
    found.retain(|id| is_first_of_its_namespace(*id));
    found.sort_by_key(|id| id.pid);
    Ok(found)
}

fn is_first_of_its_namespace(process: ProcessId) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.and_then(|numbers| numbers.split_whitespace().last()) == Some("1")
}

/// Kills a part and waits until there is another one. For one that looks after containers, the id of its allocation.
fn kill(ground: &Ground, part: Part, n: usize) -> Result<Option<String>> {
    match part {
        Part::Agent | Part::Supervisor => {
            // A supervisor runs a copy of the program, which an upgrade leaves alone.
            let (program, role) =
                if part == Part::Agent { ("droverd", "agent") } else { ("droverd-supervisor", "supervisor") };
            let all = || ground.programs(program, |args| args.first().is_some_and(|arg| arg == role));
            let one = || Ok(all()?.first().copied());
            let old = ground.eventually(&format!("one {role} runs"), one)?;
            old.signal(Signal::KILL).with_context(|| format!("killing the {role}"))?;
            ground.eventually(&format!("another {role} runs"), || {
                let now = all()?;
                Ok(now.iter().any(|id| *id != old && id.is_alive()).then_some(()))
            })?;
            if part == Part::Agent {
                ground.eventually("the agent is ready", || {
                    let pods = ground.pods("agent")?;
                    Ok((pods.len() == 1 && pods.iter().all(is_ready)).then_some(()))
                })?;
            }
            Ok(None)
        }
        Part::Containerd => {
            let old = ground.programs("containerd", |_| true)?.pop().context("no containerd runs")?;
            old.signal(Signal::KILL).context("killing containerd")?;
            ground.eventually("containerd serves again", || {
                let is_new = ground.programs("containerd", |_| true)?.iter().any(|id| *id != old);
                Ok((is_new && ground.cluster.ctr("n1", &["version"]).is_ok()).then_some(()))
            })?;
            Ok(None)
        }
        Part::Shim => {
            let is_ours = |args: &[String]| args.iter().any(|arg| arg == "drover.dev");
            let shims = ground.programs("containerd-shim-runc-v2", is_ours)?;
            ensure!(!shims.is_empty(), "nothing looks after containers");
            // Any of them: the list's order is that of their starts, which the kills mix.
            let shim = shims[n * 7 % shims.len()];
            let id = shim.words().into_iter().skip_while(|word| word != "-id").nth(1).unwrap_or_default();
            let alloc = id.rsplit_once('-').map(|(alloc, _)| alloc.to_owned());
            let containers = shim.descendants();
            shim.signal(Signal::KILL).context("killing what looks after a container")?;
            ground.eventually("its containers have ended", || {
                Ok((!containers.iter().any(|process| process.is_alive())).then_some(()))
            })?;
            Ok(alloc)
        }
    }
}

/// Waits until every steady container runs, and only once.
fn steady_again(ground: &Ground) -> Result<Vec<ProcessId>> {
    ground.eventually("all steady containers run", || {
        let now = processes(ground, Kind::Steady)?;
        ensure!(now.len() <= COPIES, "{} processes of {COPIES} containers", now.len());
        Ok((now.len() == COPIES).then_some(now))
    })
}

/// Reads what every container has written and what the API says of it; what it comes to.
fn judge(ground: &Ground, shims: &BTreeMap<String, usize>) -> Result<String> {
    let (mut n_runs, mut n_ends) = (0, 0);
    for kind in Kind::ALL {
        let allocations = ground.read(&["alloc", "-l", &format!("drover.dev/job={}", kind.name())])?;
        for alloc in allocations["items"].as_array().context("allocations")? {
            let id = text(alloc, "/metadata/uid");
            let context = || format!("{} ({id})", text(alloc, "/metadata/name"));
            let Some(log) = log(ground, alloc)? else { continue };
            let runs = runs(&log, kind).with_context(context)?;
            let n_killed = shims.get(id).copied().unwrap_or(0);
            let restarts = alloc.pointer("/status/taskStates/t/restarts").and_then(Value::as_u64).unwrap_or(0);
            let n_begun = u64::try_from(runs.len())?;
            ensure!(n_begun <= restarts + 1, "{}: {n_begun} runs and {restarts} restarts", context());
            // Only with what looks after it does a run end unfinished, and the one that is under way.
            let n_cut = runs.iter().filter(|run| !run.is_ended).count();
            let is_last_cut = runs.last().is_some_and(|run| !run.is_ended);
            let may_be_cut = n_killed + usize::from(is_last_cut);
            ensure!(n_cut <= may_be_cut, "{}: {n_cut} runs were cut off, {n_killed} by kills", context());
            n_runs += runs.len();
            n_ends += ends(alloc, kind, n_killed > 0).with_context(context)?;
        }
    }
    let n_killed: usize = shims.values().sum();
    Ok(format!(
        "{n_runs} runs, of which {n_killed} lost what looks after them; no other process changed, none was started \
         twice, no line is lost or there twice, and {n_ends} exit codes are right"
    ))
}

/// A run, by what it wrote.
struct Run {
    is_ended: bool,
}

/// The runs of a log, none of which may overlap another or lack a line.
fn runs(log: &str, kind: Kind) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut counted = 0;
    let whole = &log[..log.rfind('\n').unwrap_or(0)];
    for line in whole.lines() {
        match (line, runs.last_mut()) {
            ("begun", _) => {
                runs.push(Run { is_ended: false });
                counted = 0;
            }
            ("ended", Some(run)) if !run.is_ended => run.is_ended = true,
            (number, Some(_)) if kind == Kind::Steady && number == (counted + 1).to_string() => counted += 1,
            (other, _) => bail!("after {counted} its log has {other:?}"),
        }
    }
    Ok(runs)
}

/// What an allocation has written; none where the node has cleared away one that ended, and of one that has not begun.
fn log(ground: &Ground, alloc: &Value) -> Result<Option<String>> {
    let log = format!("/var/lib/drover/alloc/{}/alloc/logs/t.stdout.0", text(alloc, "/metadata/uid"));
    let output = ground.cluster.on_node("n1", &["cat", &log])?;
    let is_without = matches!(text(alloc, "/status/clientStatus"), "" | "pending" | "complete");
    if !output.status.success() && is_without {
        return Ok(None);
    }
    let (name, status) = (text(alloc, "/metadata/name"), &alloc["status"]);
    ensure!(output.status.success(), "{name}: {}, and it is {status}", String::from_utf8_lossy(&output.stderr));
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Compares the exit codes that the API server knows with what the kind ends with; how many there are.
fn ends(alloc: &Value, kind: Kind, is_shim_killed: bool) -> Result<usize> {
    let events = alloc.pointer("/status/taskStates/t/events").and_then(Value::as_array).cloned().unwrap_or_default();
    let ends: Vec<&Value> = events.iter().filter(|event| event["type"] == "Terminated").collect();
    for end in &ends {
        let code = end["exitCode"].as_i64().unwrap_or(0);
        let by_itself = match kind {
            Kind::Steady => None,
            Kind::Failing => Some(3),
            Kind::Coming => Some(4),
        };
        let is_by_shim = is_shim_killed && code == 137 && end["signal"] == 9;
        let is_named_unknown = code == -1 && !text(end, "/message").is_empty();
        ensure!(Some(code) == by_itself || is_by_shim || is_named_unknown, "it ended with {end}");
    }
    Ok(ends.len())
}

/// Deletes the jobs; nothing of them may be left.
fn clear(ground: &Ground) -> Result<()> {
    for kind in Kind::ALL {
        ground.kubectl(&["delete", &format!("djob/{}", kind.name()), "--wait=true", "--timeout", "120s"])?;
    }
    ground.eventually("nothing of the containers is left", || {
        let containers = ground.cluster.ctr("n1", &["containers", "ls", "-q"])?;
        let snapshots = ground.cluster.ctr("n1", &["snapshots", "--snapshotter", "native", "ls"])?;
        let n_left: usize = Kind::ALL.iter().map(|kind| processes(ground, *kind).map_or(1, |all| all.len())).sum();
        Ok((containers.trim().is_empty() && !snapshots.contains("Active") && n_left == 0).then_some(()))
    })
}
