//! What happens to tasks when drover's own pods come and go: nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xtask::process::{ProcessId, Signal};

use crate::ground::{Ground, SYSTEM, is_ready, text};

/// Tasks before something is done to their agent, and what must be true of them after it.
struct Watched {
    tasks: BTreeMap<String, ProcessId>,
    agent: String,
}

impl Watched {
    fn begin(ground: &Ground) -> Result<Self> {
        ground.web()?;
        let tasks = ground.tasks()?;
        ensure!(tasks.len() == 3, "{} tasks run instead of 3", tasks.len());
        let agent = agent(ground)?;
        Ok(Self { tasks, agent: identity(&agent) })
    }

    /// Waits for the next agent: ready, after the one before. Returns how long after its start it was.
    fn next_agent(&self, ground: &Ground) -> Result<Duration> {
        let next = ground.eventually("the next agent is ready", || {
            let pods = ground.pods("agent")?;
            let next = pods.into_iter().find(|pod| is_ready(pod) && identity(pod) != self.agent);
            Ok(next)
        })?;
        let started: jiff::Timestamp =
            text(&next, "/status/containerStatuses/0/state/running/startedAt").parse().context("its start")?;
        let conditions = next["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready").cloned().unwrap_or_default();
        let ready: jiff::Timestamp = text(&ready, "/lastTransitionTime").parse().context("its readiness")?;
        Ok(Duration::try_from(ready.duration_since(started)).unwrap_or_default())
    }

    fn unchanged(&self, ground: &Ground) -> Result<()> {
        let now = ground.tasks()?;
        ensure!(now == self.tasks, "the tasks' processes were {:?} and are {now:?}", self.tasks);
        let list = ground.read(&["alloc"])?;
        let items = list["items"].as_array().context("allocations")?;
        ensure!(items.len() == 3, "{} allocations instead of 3", items.len());
        for item in items {
            let status = text(item, "/status/clientStatus");
            ensure!(status == "running", "{} is {status}", text(item, "/metadata/name"));
            let restarts = item.pointer("/status/taskStates/server/restarts").and_then(Value::as_i64).unwrap_or(0);
            ensure!(restarts == 0, "{} was restarted", text(item, "/metadata/name"));
        }
        Ok(())
    }
}

/// Which life of which pod: a container that is started again is another one.
fn identity(pod: &Value) -> String {
    let container = text(pod, "/status/containerStatuses/0/containerID");
    format!("{} {container}", text(pod, "/metadata/uid"))
}

fn agent(ground: &Ground) -> Result<Value> {
    ground.eventually("one agent is ready", || {
        let mut pods = ground.pods("agent")?;
        pods.retain(is_ready);
        Ok(pods.pop())
    })
}

pub(crate) fn deleting_the_agents_pod(ground: &Ground) -> Result<String> {
    let before = Watched::begin(ground)?;
    let name = text(&agent(ground)?, "/metadata/name").to_owned();
    let started = Instant::now();
    ground.kubectl(&["delete", "pod", &name, "-n", SYSTEM, "--wait=true"])?;
    let gone = started.elapsed();
    before.unchanged(ground)?;
    let ready = before.next_agent(ground)?;
    before.unchanged(ground)?;
    ensure!(ready <= Duration::from_secs(5), "the new agent was ready {ready:?} after its start");
    Ok(format!(
        "pod gone after {:.1} s, the next ready {ready:?} after its start; 3 tasks with the same processes",
        gone.as_secs_f64()
    ))
}

pub(crate) fn rolling_the_agents_image(ground: &Ground) -> Result<String> {
    let before = Watched::begin(ground)?;
    // The same image under another name is another image to the DaemonSet.
    let tag = ["tag", "drover.dev/droverd:0.1.0", "drover.dev/droverd:next"];
    ground.cluster.images(&tag)?;
    let roll = |image: &str| {
        ground.kubectl(&["set", "image", "ds/drover-agent", &format!("agent={image}"), "-n", SYSTEM])?;
        ground.kubectl(&["rollout", "status", "ds/drover-agent", "-n", SYSTEM, "--timeout", "120s"])
    };
    roll("drover.dev/droverd:next")?;
    let ready = before.next_agent(ground)?;
    before.unchanged(ground)?;
    roll("drover.dev/droverd:0.1.0")?;
    before.unchanged(ground)?;
    Ok(format!("the next agent ready {ready:?} after its start; 3 tasks with the same processes"))
}

pub(crate) fn an_agent_out_of_memory(ground: &Ground) -> Result<String> {
    let before = Watched::begin(ground)?;
    let agent = ground
        .cluster
        .processes("n1")?
        .into_iter()
        .find(|id| {
            let command = std::fs::read(format!("/proc/{}/cmdline", id.pid)).unwrap_or_default();
            let words: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
            words.get(1) == Some(&&b"agent"[..]) && words[0].ends_with(b"droverd")
        })
        .context("the agent's process")?;
    // What the kernel does to the greediest process of a group that is out of memory.
    agent.signal(Signal::KILL)?;
    let ready = before.next_agent(ground)?;
    before.unchanged(ground)?;
    Ok(format!(
        "killed as for want of memory; the next life ready {ready:?} after its start; 3 tasks with the same processes"
    ))
}

pub(crate) fn a_dying_leader_in_a_roll_out(ground: &Ground) -> Result<String> {
    ground.web()?;
    let leader = || -> Result<String> {
        let lease = ground.read(&["lease", "drover-controller", "-n", SYSTEM])?;
        Ok(text(&lease, "/spec/holderIdentity").to_owned())
    };
    let first = leader()?;
    let uids = |list: &Value| -> Vec<String> {
        list["items"].as_array().into_iter().flatten().map(|item| text(item, "/metadata/uid").to_owned()).collect()
    };
    let before = uids(&ground.read(&["alloc"])?);
    let patch = r#"[{"op":"add","path":"/spec/groups/0/tasks/0/env","value":{"RELEASE":"2"}}]"#;
    ground.kubectl(&["patch", "djob/web", "--type=json", "-p", patch])?;
    ground.eventually("the roll-out has begun", || {
        let list = ground.read(&["alloc"])?;
        Ok(uids(&list).iter().any(|uid| !before.contains(uid)).then_some(()))
    })?;
    let started = Instant::now();
    ground.kubectl(&["delete", "pod", &first, "-n", SYSTEM, "--wait=false"])?;
    let next = ground.eventually("another replica leads", || {
        let now = leader()?;
        Ok((now != first && !now.is_empty()).then_some(now))
    })?;
    let took = started.elapsed();
    ground.eventually("the roll-out is over", || {
        let job = ground.read(&["djob/web"])?;
        let version = job.pointer("/status/version").and_then(Value::as_i64);
        Ok((is_ready(&job) && version == Some(1)).then_some(()))
    })?;
    let tasks = ground.tasks()?;
    ensure!(tasks.len() == 3, "{} tasks run instead of 3", tasks.len());
    let list = ground.read(&["alloc"])?;
    let mut slots = BTreeMap::new();
    for item in list["items"].as_array().into_iter().flatten() {
        if text(item, "/status/clientStatus") == "running" {
            *slots.entry(item.pointer("/spec/index").and_then(Value::as_i64)).or_insert(0) += 1;
        }
    }
    ensure!(slots.values().all(|count| *count == 1) && slots.len() == 3, "slots: {slots:?}");
    Ok(format!("{next} led {:.1} s after {first} was deleted; each of 3 slots runs once", took.as_secs_f64()))
}
