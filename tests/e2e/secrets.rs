//! A Secret that changes a hundred times under tasks of every change mode, while what carries its values is killed.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use drover_testkit::process::Signal;
use serde_json::{Value, json};

use crate::ground::{Ground, text};

/// How often the Secret changes.
const CHANGES: u32 = 100;
/// After so many changes the next one is killed of those who carry the values.
const BETWEEN_KILLS: u32 = 8;
/// Who is killed, in turn.
const KILLED: [&str; 3] = ["gateway", "agent", "the API server"];
/// Of each driver and change mode: 30 allocations in all.
const GROUPS: [(&str, &str, u32); 8] = [
    ("exec", "restart", 4),
    ("exec", "signal", 4),
    ("exec", "script", 4),
    ("exec", "noop", 3),
    ("raw_exec", "restart", 4),
    ("raw_exec", "signal", 4),
    ("raw_exec", "script", 4),
    ("raw_exec", "noop", 3),
];
/// Notes each start with the value that it begins with, and each signal with the value that it finds.
const TASK: &str = "note() { echo $1 $(cat $NOMAD_TASK_DIR/value) >> $NOMAD_ALLOC_DIR/data/log; }
note start
trap 'note signal' HUP
while :; do sleep 0.3; done";
const SCRIPT: &str = "echo script $(cat $NOMAD_TASK_DIR/value) >> $NOMAD_ALLOC_DIR/data/log";
/// Prints, for each allocation, its id, the value in its file, and what its task noted, without what ends a line.
const READ: &str = "cd /var/lib/drover/alloc
for id in *; do
  [ -e $id/t/local/value ] && echo \"$id,$(cat $id/t/local/value),$(tr '\\n' ';' < $id/alloc/data/log)\"
done";

/// B-055 and B-058 on a real node: each task ends with the newest value, and none restarts twice for one.
pub(crate) fn a_hundred_changes_under_kills(ground: &Ground) -> Result<String> {
    ground.installed()?;
    ground.upgrade(&["gateway.secretNamespaces[0].namespace=default"])?;
    ground.kubectl(&["create", "secret", "generic", "conf", "--from-literal=value=0"])?;
    ground.apply(&job().to_string())?;
    ground.kubectl(&["wait", "--for=condition=Ready", "djob/secrets", "--timeout", "180s"])?;
    let modes = modes(ground)?;
    ensure!(modes.len() == 30, "{} allocations instead of 30", modes.len());

    let mut kills = KILLED.iter().cycle();
    let mut n_kills = 0;
    for n in 1..=CHANGES {
        change(ground, n)?;
        if n % BETWEEN_KILLS == 0 {
            kill(ground, kills.next().expect("it goes on for ever"))?;
            n_kills += 1;
        }
    }
    let last = Instant::now();
    let mut unsettled = Vec::new();
    let reached = ground.eventually("every task has the newest value", || {
        let all = read(ground)?;
        let lacks = |id: &str, mode: &str| !all.get(id).is_some_and(|seen| seen.is_settled(mode));
        let left = modes.iter().filter(|(id, mode)| lacks(id, mode));
        unsettled = left.map(|(id, mode)| format!("{id} ({mode}): {:?}", all.get(id))).collect();
        Ok(unsettled.is_empty().then_some(()))
    });
    reached.with_context(|| format!("without it are {unsettled:#?}"))?;
    let settled = last.elapsed();
    let n_restarts = judge(ground, &modes)?;
    ground.kubectl(&["delete", "djob/secrets", "--wait=true", "--timeout", "60s"])?;
    ground.kubectl(&["delete", "secret", "conf"])?;
    ground.upgrade(&["gateway.secretNamespaces=null"])?;
    Ok(format!(
        "{CHANGES} changes and {n_kills} kills under 30 allocations; all had the newest value {:.1} s after the last \
         change; {n_restarts} restarts, none twice for one value",
        settled.as_secs_f64()
    ))
}

fn job() -> Value {
    let group = |&(driver, mode, count): &(&str, &str, u32)| {
        let mut template = json!({
            "embeddedTmpl": "{{with secret \"conf\"}}{{.Data.value}}{{end}}", "destPath": "local/value",
            "splay": "0s", "wait": { "min": "200ms", "max": "1s" }, "changeMode": mode,
        });
        match mode {
            "signal" => template["changeSignal"] = json!("SIGHUP"),
            "script" => {
                template["changeScript"] = json!({ "command": "/bin/sh", "args": ["-c", SCRIPT], "timeout": "1m" });
            }
            _ => (),
        }
        json!({
            "name": format!("{mode}-{}", driver.replace('_', "-")), "count": count,
            "restart": { "attempts": 0, "interval": "1h", "delay": "1s", "mode": "fail" },
            "tasks": [{
                "name": "t", "driver": driver, "config": { "command": "/bin/sh", "args": ["-c", TASK] },
                "killTimeout": "1s", "resources": { "cpu": 5, "memoryMB": 16 },
                "secrets": [{ "name": "conf", "path": "conf" }], "templates": [template],
            }],
        })
    };
    json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "secrets" },
        "spec": { "groups": GROUPS.iter().map(group).collect::<Vec<_>>() },
    })
}

/// The change mode of each allocation, by its id.
fn modes(ground: &Ground) -> Result<BTreeMap<String, String>> {
    let list = ground.read(&["alloc", "-l", "drover.dev/job=secrets"])?;
    let items = list["items"].as_array().context("allocations")?;
    let mode = |item: &Value| text(item, "/spec/group").split('-').next().unwrap_or_default().to_owned();
    Ok(items.iter().map(|item| (text(item, "/metadata/uid").to_owned(), mode(item))).collect())
}

/// Changes the Secret, as soon as there is an API server that takes it.
fn change(ground: &Ground, n: u32) -> Result<()> {
    let patch = format!(r#"{{"stringData":{{"value":"{n}"}}}}"#);
    ground.eventually("the Secret takes a change", || {
        Ok(ground.kubectl(&["patch", "secret", "conf", "--type=merge", "-p", &patch]).ok())
    })?;
    Ok(())
}

/// Ends all processes of a part with SIGKILL. What runs it starts it again.
fn kill(ground: &Ground, part: &str) -> Result<()> {
    if part == KILLED[2] {
        return ground.restart_api_server();
    }
    let found = ground.eventually(part, || Ok(Some(ground.processes(part)?).filter(|found| !found.is_empty())))?;
    for process in found {
        process.signal(Signal::KILL).with_context(|| format!("killing {part}"))?;
    }
    Ok(())
}

/// What an allocation has, and what its task noted.
#[derive(Debug)]
struct Seen {
    value: u32,
    /// A word and the value that it was about, in their order.
    notes: Vec<(String, u32)>,
}

impl Seen {
    fn is_settled(&self, mode: &str) -> bool {
        let last = self.notes.last().map(|(_, value)| *value);
        self.value == CHANGES && (mode == "noop" || last == Some(CHANGES))
    }

    fn starts(&self) -> Vec<u32> {
        self.notes.iter().filter(|(word, _)| word == "start").map(|(_, value)| *value).collect()
    }
}

fn read(ground: &Ground) -> Result<BTreeMap<String, Seen>> {
    let output = ground.cluster.on_node("n1", &["sh", "-c", READ])?;
    let output = String::from_utf8(output.stdout).context("reading what tasks noted")?;
    // A note may be under way, or be of a task that found its file gone: nothing is concluded from it.
    let note = |note: &str| {
        let (word, value) = note.split_once(' ')?;
        Some((word.to_owned(), value.parse().ok()?))
    };
    let seen = |line: &str| {
        let mut parts = line.splitn(3, ',');
        let (id, value, notes) = (parts.next()?, parts.next()?, parts.next()?);
        let notes = notes.split(';').filter_map(note).collect();
        Some((id.to_owned(), Seen { value: value.parse().ok()?, notes }))
    };
    Ok(output.lines().filter_map(seen).collect())
}

/// Looks at what every task went through. Returns how often tasks restarted.
fn judge(ground: &Ground, modes: &BTreeMap<String, String>) -> Result<usize> {
    let list = ground.read(&["alloc", "-l", "drover.dev/job=secrets"])?;
    let items = list["items"].as_array().context("allocations")?;
    ensure!(items.len() == modes.len(), "{} allocations instead of {}", items.len(), modes.len());
    let all = read(ground)?;
    let mut n_restarts = 0;
    for item in items {
        let (name, id) = (text(item, "/metadata/name"), text(item, "/metadata/uid"));
        let status = text(item, "/status/clientStatus");
        ensure!(status == "running", "{name} is {status}");
        let (mode, seen) = (&modes[id], all.get(id).with_context(|| format!("what {name} noted"))?);
        let starts = seen.starts();
        ensure!(
            starts.is_sorted_by(|a, b| a < b),
            "{name} started twice for one value, or with an older one: {starts:?}"
        );
        let in_order = seen.notes.is_sorted_by_key(|(_, value)| *value);
        ensure!(in_order, "{name} was given an older value: {:?}", seen.notes);
        if mode == "restart" {
            n_restarts += starts.len() - 1;
        } else {
            ensure!(starts == [0], "{name}, of mode {mode}, started with {starts:?}");
        }
        // The status is told a moment after what the task saw for itself.
        ground.eventually(&format!("{name} says that it restarted {} times", starts.len() - 1), || {
            let counted =
                ground.read(&["alloc", name])?.pointer("/status/taskStates/t/restarts").and_then(Value::as_u64);
            Ok((counted.unwrap_or_default() == starts.len() as u64 - 1).then_some(()))
        })?;
    }
    Ok(n_restarts)
}
