//! What the gateway carries on real nodes: streams that outlive its replicas and the agents, and a node that nothing
//! can dial.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::ground::{Ground, SYSTEM, is_ready, text};

/// Writes a growing number, so that what a stream lacks or repeats can be seen.
const COUNTS: &str = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done";
/// Lines after which a stream goes on.
const SOME: usize = 50;

/// A job that counts, on one node or on any, and its allocation.
struct Counter<'a> {
    ground: &'a Ground,
    name: &'static str,
    alloc: Value,
}

impl<'a> Counter<'a> {
    fn run(ground: &'a Ground, name: &'static str, node: Option<&str>) -> Result<Self> {
        let only = |node| json!([{ "lTarget": "${node.unique.name}", "operand": "=", "rTarget": node }]);
        let job = json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": name },
            "spec": { "groups": [{
                "name": "g", "constraints": node.map_or_else(|| json!([]), only),
                "tasks": [{ "name": "t", "driver": "raw_exec", "resources": { "cpu": 20, "memoryMB": 16 },
                            "config": { "command": "/bin/sh", "args": ["-c", COUNTS] } }],
            }] },
        });
        ground.apply(&job.to_string())?;
        ground.kubectl(&["wait", "--for=condition=Ready", &format!("djob/{name}"), "--timeout", "120s"])?;
        let allocations = ground.read(&["alloc", "-l", &format!("drover.dev/job={name}")])?;
        let alloc = allocations.pointer("/items/0").context("an allocation")?.clone();
        Ok(Self { ground, name, alloc })
    }

    fn alloc(&self) -> &str {
        text(&self.alloc, "/metadata/name")
    }

    /// Whether it is the same allocation, whose task has never been restarted.
    fn unchanged(&self) -> Result<()> {
        let now = self.ground.read(&["alloc", self.alloc()])?;
        let restarts = now.pointer("/status/taskStates/t/restarts").and_then(Value::as_i64).unwrap_or_default();
        let status = text(&now, "/status/clientStatus");
        ensure!(status == "running" && restarts == 0, "it is {status}, after {restarts} restarts");
        Ok(())
    }

    fn done(self) -> Result<()> {
        self.ground.kubectl(&["delete", &format!("djob/{}", self.name), "--wait=true", "--timeout", "60s"]).map(drop)
    }
}

/// `drover alloc logs -f`, until it is dropped.
struct Follower<'a> {
    ground: &'a Ground,
    child: Child,
    output: tempfile::NamedTempFile,
}

impl<'a> Follower<'a> {
    fn start(counter: &Counter<'a>) -> Result<Self> {
        let output = tempfile::NamedTempFile::new().context("a file")?;
        let child = Command::new(env!("CARGO_BIN_EXE_drover"))
            .args(["alloc", "logs", "-f", counter.alloc()])
            .env("KUBECONFIG", counter.ground.cluster.kubeconfig())
            .stdout(output.reopen().context("a file")?)
            .stderr(Stdio::null())
            .spawn()
            .context("running drover")?;
        Ok(Self { ground: counter.ground, child, output })
    }

    /// How many lines have come, none of which is missing or there twice.
    fn lines(&self) -> Result<usize> {
        let came = fs::read_to_string(self.output.path()).context("reading what has come")?;
        // The last line may be under way.
        let whole = &came[..came.rfind('\n').unwrap_or(0)];
        for (number, line) in (1..).zip(whole.lines()) {
            ensure!(line == number.to_string(), "line {number} is {line:?}");
        }
        Ok(whole.lines().count())
    }

    /// Waits until more has come than now. Returns how long the first of it took.
    fn goes_on(&mut self) -> Result<Duration> {
        let (before, since) = (self.lines()?, Instant::now());
        self.ground.eventually("a line comes", || Ok((self.lines()? > before).then_some(())))?;
        let first = since.elapsed();
        self.ground.eventually("the stream goes on", || Ok((self.lines()? > before + SOME).then_some(())))?;
        if let Some(ended) = self.child.try_wait().context("looking at drover")? {
            bail!("drover alloc logs -f has ended: {ended}");
        }
        Ok(first)
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            drover_testkit::progress::print_line(&format!("drover alloc logs is left: {error}"));
        }
    }
}

fn two_replicas(ground: &Ground, but: &[String]) -> Result<Vec<String>> {
    ground.eventually("two replicas of the gateway are ready", || {
        let pods = ground.pods("gateway")?;
        let names: Vec<String> = pods.iter().map(|pod| text(pod, "/metadata/name").to_owned()).collect();
        let are_others = names.iter().all(|name| !but.contains(name));
        Ok((pods.len() == 2 && are_others && pods.iter().all(is_ready)).then_some(names))
    })
}

/// G-013, G-017 and the agent's pod: each line once, and the task notices nothing.
pub(crate) fn streams_outlive_replicas_and_agents(ground: &Ground) -> Result<String> {
    ground.installed()?;
    let counter = Counter::run(ground, "followed", None)?;
    let mut follower = Follower::start(&counter)?;
    let usual = follower.goes_on()?;
    let mut gaps = vec![usual];

    let replicas = two_replicas(ground, &[])?;
    for replica in &replicas {
        ground.kubectl(&["delete", "pod", replica, "-n", SYSTEM, "--wait=true"])?;
        gaps.push(follower.goes_on()?);
    }
    // Both at once, without a word.
    let replicas = two_replicas(ground, &replicas)?;
    let kill = ["delete", "pod", "-n", SYSTEM, "--grace-period=0", "--force", "--wait=false"];
    ground.kubectl(&[&kill[..], &replicas.iter().map(String::as_str).collect::<Vec<_>>()].concat())?;
    let died = Instant::now();
    two_replicas(ground, &replicas)?;
    let back = died.elapsed();
    gaps.push(follower.goes_on()?);
    let agents = ground.pods("agent")?;
    let agent = agents.first().map(|pod| text(pod, "/metadata/name").to_owned()).context("an agent")?;
    ground.kubectl(&["delete", "pod", &agent, "-n", SYSTEM, "--wait=true"])?;
    gaps.push(follower.goes_on()?);
    counter.unchanged()?;
    let n_lines = follower.lines()?;
    drop(follower);
    counter.done()?;
    let gaps: Vec<u128> = gaps.iter().map(Duration::as_millis).collect();
    Ok(format!(
        "{n_lines} lines, each once; both replicas were back after {:.1} s; the next line came after {gaps:?} ms: \
         before, after each replica's end, after both died, after the agent's pod was deleted",
        back.as_secs_f64()
    ))
}

/// G-014: the second node takes no connection from anywhere; the gateway runs on the first.
pub(crate) fn a_node_that_nothing_can_dial(ground: &Ground) -> Result<String> {
    ground.installed()?;
    ground.upgrade(&["gateway.nodeSelector.kubernetes\\.io/hostname=n1"])?;
    ground.eventually("both replicas are on the first node", || {
        let pods = ground.pods("gateway")?;
        let is_there = |pod: &Value| is_ready(pod) && text(pod, "/spec/nodeName") == "n1";
        Ok((pods.len() == 2 && pods.iter().all(is_there)).then_some(()))
    })?;
    let counter = Counter::run(ground, "hidden", Some("n2"))?;
    // What answers on it has a port below those by which it dials.
    let rule = |action| ["ip", "rule", action, "pref", "100", "ipproto", "tcp", "sport", "1-32767", "blackhole"];
    let refused = ground.cluster.on_node("n2", &rule("add"))?;
    ensure!(refused.status.success(), "{}", String::from_utf8_lossy(&refused.stderr));
    let operated = operate(&counter);
    ground.cluster.on_node("n2", &rule("del"))?;
    let operated = operated?;
    counter.done()?;
    ground.upgrade(&["gateway.nodeSelector=null"])?;
    Ok(operated)
}

fn operate(counter: &Counter<'_>) -> Result<String> {
    let (ground, alloc) = (counter.ground, counter.alloc());
    let agents = ground.pods("agent")?;
    let agent = agents.iter().find(|pod| text(pod, "/spec/nodeName") == "n2").context("the agent of n2")?;
    let agent = text(agent, "/metadata/name");
    // The kubelet is dialled by the API server, and cannot be.
    let pods_log = ground.kubectl(&["logs", agent, "-n", SYSTEM, "--tail=1", "--request-timeout=5s"]);
    ensure!(pods_log.is_err(), "the node can be dialled: {pods_log:?}");

    let mut follower = Follower::start(counter)?;
    follower.goes_on()?;
    let said = ground.drover(&["alloc", "exec", alloc, "--", "/bin/sh", "-c", "echo here: $NOMAD_JOB_NAME"])?;
    ensure!(said.trim() == format!("here: {}", counter.name), "exec: {said:?}");
    let files = ground.drover(&["alloc", "fs", alloc, "alloc/logs"])?;
    ensure!(files.contains("t.stdout.0"), "fs: {files:?}");
    ground.drover(&["alloc", "stats", alloc])?;
    let path = format!("/apis/subresources.drover.dev/v1alpha1/namespaces/default/allocations/{alloc}");
    let log = ground.kubectl(&["get", "--raw", &format!("{path}/log?task=t&type=stdout")])?;
    ensure!(log.starts_with("1\n2\n3\n"), "the aggregated API: {log:.100}");
    let answers = |n: u32| -> Result<Vec<Duration>> {
        (0..n)
            .map(|_| {
                let since = Instant::now();
                ground.kubectl(&["get", "--raw", &format!("{path}/stats")])?;
                Ok(since.elapsed())
            })
            .collect()
    };
    let mut took = answers(20)?;
    took.sort_unstable();
    follower.goes_on()?;
    counter.unchanged()?;
    let n_lines = follower.lines()?;
    drop(follower);
    ground.drover(&["alloc", "restart", alloc])?;
    ground.eventually("it was restarted", || {
        let now = ground.read(&["alloc", alloc])?;
        let events = now.pointer("/status/taskStates/t/events").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(events.iter().any(|event| event["type"] == "Restart Signaled").then_some(()))
    })?;
    Ok(format!(
        "kubectl logs of its pods fails; {n_lines} lines followed, each once; exec, fs, stats, log and restart are \
         answered, statistics in {} ms (median of 20 with kubectl's start)",
        took[took.len() / 2].as_millis()
    ))
}
