//! What happens to tasks when drover's own pods come and go: nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use drover_testkit::process::ProcessId;
use serde_json::Value;

use crate::ground::{Ground, SYSTEM, is_ready, text};

/// A task that writes a growing number, so that what its log lacks or repeats can be seen.
const COUNTER: &str = r#"{"apiVersion":"drover.dev/v1alpha1","kind":"Job","metadata":{"name":"counter"},"spec":{"groups":[{
  "name":"g","tasks":[{"name":"t","driver":"raw_exec","resources":{"cpu":20,"memoryMB":16},
    "config":{"command":"/bin/sh","args":["-c","i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done"]}}]}]}}"#;

/// Tasks before something is done to their agent, and what must be true of them after it.
struct Watched {
    tasks: BTreeMap<String, ProcessId>,
    agent: String,
    /// The id of the counter's allocation.
    counter: String,
}

impl Watched {
    fn begin(ground: &Ground) -> Result<Self> {
        ground.web()?;
        let tasks = ground.tasks()?;
        ensure!(tasks.len() == 3, "{} tasks run instead of 3", tasks.len());
        ground.apply(COUNTER)?;
        ground.kubectl(&["wait", "--for=condition=Ready", "djob/counter", "--timeout", "120s"])?;
        let allocations = ground.read(&["alloc", "-l", "drover.dev/job=counter"])?;
        let agent = agent(ground)?;
        let counter = text(&allocations, "/items/0/metadata/uid").to_owned();
        Ok(Self { tasks, agent: identity(&agent), counter })
    }

    /// Ends the counter, which no other case knows.
    fn done(ground: &Ground) -> Result<()> {
        ground.kubectl(&["delete", "djob/counter", "--wait=true", "--timeout", "60s"]).map(drop)
    }

    /// How many lines the counter has written, none of which is missing or there twice.
    fn lines(&self, ground: &Ground) -> Result<usize> {
        let log = format!("/var/lib/drover/alloc/{}/alloc/logs/t.stdout.0", self.counter);
        let output = ground.cluster.on_node("n1", &["cat", &log])?;
        ensure!(output.status.success(), "reading {log}: {}", String::from_utf8_lossy(&output.stderr));
        let written = String::from_utf8_lossy(&output.stdout);
        // The last line may be under way.
        let whole = &written[..written.rfind('\n').unwrap_or(0)];
        for (number, line) in (1..).zip(whole.lines()) {
            ensure!(line == number.to_string(), "line {number} of the log is {line:?}");
        }
        Ok(whole.lines().count())
    }

    /// Waits until the counter has written more than now.
    fn counts_on(&self, ground: &Ground) -> Result<()> {
        let now = self.lines(ground)?;
        ground.eventually("the log goes on", || Ok((self.lines(ground)? > now).then_some(())))
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
        self.counts_on(ground)?;
        let list = ground.read(&["alloc"])?;
        let items = list["items"].as_array().context("allocations")?;
        ensure!(items.len() == 4, "{} allocations instead of 4", items.len());
        for item in items {
            let status = text(item, "/status/clientStatus");
            ensure!(status == "running", "{} is {status}", text(item, "/metadata/name"));
            let tasks = item.pointer("/status/taskStates").and_then(Value::as_object).context("task states")?;
            let restarts = tasks.values().filter_map(|task| task["restarts"].as_i64()).sum::<i64>();
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
    Watched::done(ground)?;
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
    ensure!(ready <= Duration::from_secs(5), "the new agent was ready {ready:?} after its start");
    Watched::done(ground)?;
    Ok(format!("the next agent ready {ready:?} after its start; 3 tasks with the same processes"))
}

/// The memory of the agent's container fills up with a file in memory, which no process is to blame for; of all that
/// runs in it the kernel then takes the greediest, the agent.
pub(crate) fn an_agent_out_of_memory(ground: &Ground) -> Result<String> {
    let limits = |op: &str, value: &str| -> Result<()> {
        let limits = "/spec/template/spec/containers/0/resources/limits";
        let change = format!(r#"[{{"op":"{op}","path":"{limits}","value":{value}}}]"#);
        ground.kubectl(&["patch", "ds/drover-agent", "-n", SYSTEM, "--type=json", "-p", &change])?;
        ground.kubectl(&["rollout", "status", "ds/drover-agent", "-n", SYSTEM, "--timeout", "120s"]).map(drop)
    };
    // More than the request for memory, which is a limit's lowest value.
    limits("add", r#"{"memory":"1100Mi"}"#)?;
    let before = Watched::begin(ground)?;
    let process = agent_process(ground)?;
    // The node's agents are protected, but nothing else here can be taken.
    let score = format!("/proc/{}/oom_score_adj", process.pid);
    std::fs::write(&score, "1000").with_context(|| format!("writing {score}"))?;
    let mut filler = fill_memory_beside(process)?;
    let taken = ground.eventually("the kernel takes the agent", || Ok((!process.is_alive()).then_some(())));
    // The next life has room again: what fills the pod's group goes.
    filler.stop()?;
    taken?;
    let ready = before.next_agent(ground)?;
    before.unchanged(ground)?;
    let why = text(&agent(ground)?, "/status/containerStatuses/0/lastState/terminated/reason").to_owned();
    ensure!(why == "OOMKilled", "the kubelet says that the agent ended for {why:?}");
    limits("remove", "null")?;
    before.unchanged(ground)?;
    ensure!(ready <= Duration::from_secs(5), "the next life was ready {ready:?} after its start");
    Watched::done(ground)?;
    Ok(format!(
        "OOMKilled by the kernel; the next life ready {ready:?} after its start; 3 tasks with the same processes"
    ))
}

fn agent_process(ground: &Ground) -> Result<ProcessId> {
    ground.processes("agent")?.pop().context("the agent's process")
}

/// A program that fills a file in memory; the file goes with this value.
struct Filler {
    program: Child,
    file: tempfile::NamedTempFile,
}

impl Filler {
    fn stop(&mut self) -> Result<()> {
        // It may have been taken too.
        self.program.kill().and_then(|()| self.program.wait()).context("ending the program that fills memory")?;
        self.file.as_file().set_len(0).context("giving the memory back")
    }
}

/// Writes more than the agent's container may have, in its control group.
fn fill_memory_beside(process: ProcessId) -> Result<Filler> {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").context("a file in memory")?;
    let script = r#"echo $$ > "$1/cgroup.procs" && exec dd if=/dev/zero of="$2" bs=1M count=1200"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(memory_group(process)?).arg(file.path()).stderr(Stdio::null());
    Ok(Filler { program: command.spawn().context("starting a program that fills memory")?, file })
}

/// The control group that bounds a process's memory.
fn memory_group(process: ProcessId) -> Result<PathBuf> {
    let path = format!("/proc/{}/cgroup", process.pid);
    let groups = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let of = |kind: &str| {
        let mut rows = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        rows.find(|(controllers, _)| controllers.split(',').any(|name| name == kind)).map(|(_, group)| group)
    };
    let root = Path::new("/sys/fs/cgroup");
    let group = of("memory").map(|group| root.join("memory").join(group.trim_start_matches('/')));
    group.or_else(|| of("").map(|group| root.join(group.trim_start_matches('/')))).context("its control group")
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
    let before = uids(&ground.read(&["alloc", "-l", "drover.dev/job=web"])?);
    let patch = r#"[{"op":"add","path":"/spec/groups/0/tasks/0/env","value":{"RELEASE":"2"}}]"#;
    ground.kubectl(&["patch", "djob/web", "--type=json", "-p", patch])?;
    ground.eventually("the roll-out has begun", || {
        let list = ground.read(&["alloc", "-l", "drover.dev/job=web"])?;
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
    let list = ground.read(&["alloc", "-l", "drover.dev/job=web"])?;
    let mut slots = BTreeMap::new();
    for item in list["items"].as_array().into_iter().flatten() {
        if text(item, "/status/clientStatus") == "running" {
            *slots.entry(item.pointer("/spec/index").and_then(Value::as_i64)).or_insert(0) += 1;
        }
    }
    ensure!(slots.values().all(|count| *count == 1) && slots.len() == 3, "slots: {slots:?}");
    Ok(format!("{next} led {:.1} s after {first} was deleted; each of 3 slots runs once", took.as_secs_f64()))
}
