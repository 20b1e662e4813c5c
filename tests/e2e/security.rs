//! What an editor of one namespace tries against an installation with the chart's own values.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ground::{Ground, SYSTEM, chart, said, text};

/// The editor's namespace.
const NAMESPACE: &str = "shop";
/// So many things are tried at least.
const LEAST: usize = 60;

/// A call of kubectl.
#[derive(Deserialize)]
struct Call {
    /// What it would be.
    what: String,
    /// The arguments.
    args: Vec<String>,
    /// A word of the refusal.
    word: String,
    /// What is given on standard input.
    #[serde(default)]
    object: Option<Value>,
}

/// A job: what it would be, its task, and a word of the refusal.
type Try = (String, Value, String);

/// The list.
#[derive(Deserialize)]
struct Attempts {
    #[serde(default)]
    calls: Vec<Call>,
    jobs: Vec<Try>,
    tasks: Vec<(String, String)>,
}

/// An editor with a kubeconfig of its own.
struct Editor<'a> {
    ground: &'a Ground,
    kubeconfig: PathBuf,
}

impl<'a> Editor<'a> {
    fn new(ground: &'a Ground, folder: &Path) -> Result<Self> {
        ground.kubectl(&["create", "namespace", NAMESPACE])?;
        ground.kubectl(&["create", "serviceaccount", "editor", "-n", NAMESPACE])?;
        let account = format!("--serviceaccount={NAMESPACE}:editor");
        ground.kubectl(&["create", "rolebinding", "editor", "-n", NAMESPACE, "--clusterrole=edit", &account])?;
        let token = ground.kubectl(&["create", "token", "editor", "-n", NAMESPACE, "--duration=2h"])?;
        let text = fs::read_to_string(ground.cluster.kubeconfig()).context("reading the administrator's kubeconfig")?;
        let mut config: Value = serde_saphyr::from_str(&text).context("reading the administrator's kubeconfig")?;
        config["users"][0]["user"] = json!({ "token": token.trim() });
        config["contexts"][0]["context"]["namespace"] = json!(NAMESPACE);
        let kubeconfig = folder.join("editor");
        fs::write(&kubeconfig, config.to_string()).context("writing the editor's kubeconfig")?;
        Ok(Self { ground, kubeconfig })
    }

    /// Whether it succeeded, and what was said.
    fn kubectl(&self, args: &[&str], object: Option<&Value>) -> Result<(bool, String)> {
        let mut command: Command = self.ground.cluster.kubectl(args);
        command.env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting kubectl")?;
        let mut input = child.stdin.take().context("kubectl takes input")?;
        std::io::Write::write_all(&mut input, object.map(Value::to_string).unwrap_or_default().as_bytes())
            .context("giving kubectl an object")?;
        drop(input);
        let output = child.wait_with_output().context("waiting for kubectl")?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    }

    fn apply(&self, job: &Value) -> Result<(bool, String)> {
        self.kubectl(&["apply", "-f", "-"], Some(job))
    }
}

/// What tasks of a driver are unless a try says otherwise.
#[derive(Clone, Copy, Debug)]
enum Driver {
    Exec,
    Containerd,
}

impl Driver {
    /// The programs that a task uses to try.
    fn tools(self) -> &'static [&'static str] {
        match self {
            Self::Exec => &["cat", "ls", "python3", "mount", "mknod", "unshare", "nsenter", "grep", "date", "hostname"],
            Self::Containerd => TOOLS,
        }
    }
}

/// What is in the image.
const TOOLS: &[&str] = &[
    "sh", "sleep", "cat", "ls", "head", "true", "mkdir", "mount", "mknod", "unshare", "nsenter", "chroot", "grep",
    "date", "hostname", "perl",
];
const IMAGE: &str = "drover.dev/test-escapes:1";

/// A job of this task, which runs until it is ended unless the task is otherwise.
fn job(driver: Driver, name: &str, kind: &str, more: &Value) -> Value {
    let mut task = json!({ "name": "t", "killTimeout": "1s", "resources": { "cpu": 20, "memoryMB": 32 } });
    let (of_driver, networks) = match driver {
        Driver::Exec => {
            (json!({ "driver": "exec", "config": { "command": "/bin/sleep", "args": ["infinity"] } }), json!([]))
        }
        Driver::Containerd => {
            let config = json!({ "image": IMAGE, "command": "/bin/sleep", "args": ["infinity"] });
            (json!({ "driver": "containerd", "config": config }), json!([{ "mode": "none" }]))
        }
    };
    merge(&mut task, &of_driver);
    merge(&mut task, more);
    let restart = json!({ "attempts": 0, "mode": "fail" });
    let group = json!({ "name": "g", "restart": restart, "networks": networks,
        "reschedule": { "attempts": 0, "unlimited": false }, "tasks": [task] });
    json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": name }, "spec": { "type": kind, "groups": [group] } })
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (name, value) in more {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// Sixty things and more; none works, and each refusal says why.
pub(crate) fn an_editor_tries(ground: &Ground) -> Result<String> {
    let attempts: Attempts =
        serde_saphyr::from_str(include_str!("security.yaml")).context("reading the list of attempts")?;
    let n_all = attempts.calls.len() + attempts.jobs.len() + attempts.tasks.len();
    ensure!(n_all >= LEAST, "{n_all} attempts are too few");
    ground.uninstall_if_installed()?;
    let install = ["install", "drover", &chart(), "-n", SYSTEM, "--create-namespace", "--wait", "--timeout", "180s"];
    said(ground.cluster.helm(&install), &install)?;
    let folder = tempfile::tempdir().context("a folder for the kubeconfig")?;
    let editor = Editor::new(ground, folder.path())?;
    let volume = json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": "data", "namespace": NAMESPACE },
        "spec": { "pluginID": "p", "externalID": "e", "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] } });
    ground.apply(&volume.to_string())?;
    let mut through = Vec::new();
    for Call { what, args, word, object } in &attempts.calls {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (is_done, text) = editor.kubectl(&args, object.as_ref())?;
        if is_done || !text.contains(word.as_str()) {
            through.push(format!("{what}: {}", text.trim()));
        }
    }
    for (n, (what, task, word)) in attempts.jobs.iter().enumerate() {
        try_job((&editor, Driver::Exec), &format!("try-{n}"), task, (word, what), &mut through)?;
    }
    through.extend(try_in_a_task(&editor, Driver::Exec, &attempts.tasks)?);
    ensure!(
        through.is_empty(),
        "{} of {n_all} came through or were refused without a word:\n{}",
        through.len(),
        through.join("\n")
    );
    editor.kubectl(&["delete", "djob", "--all", "--timeout=60s"], None)?;
    ground.kubectl(&["delete", "csivol", "data", "-n", NAMESPACE, "--timeout=60s"])?;
    ground.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=60s"])?;
    ground.uninstall()?;
    Ok(format!("{n_all} attempts, none came through"))
}

/// The same with containers; and where a node gives all of it, a namespace that enforces a Pod Security Standard holds.
pub(crate) fn an_editor_tries_with_containers(ground: &Ground) -> Result<String> {
    let attempts: Attempts =
        serde_saphyr::from_str(include_str!("security_containers.yaml")).context("reading the list of attempts")?;
    let n_all = attempts.jobs.len() + attempts.tasks.len();
    ensure!(n_all >= LEAST, "{n_all} attempts are too few");
    ground.installed()?;
    ground.offer_containers()?;
    ground.give_tools(IMAGE, TOOLS)?;
    let folder = tempfile::tempdir().context("a folder for the kubeconfig")?;
    let editor = Editor::new(ground, folder.path())?;
    let mut through = Vec::new();
    for (n, (what, task, word)) in attempts.jobs.iter().enumerate() {
        try_job((&editor, Driver::Containerd), &format!("try-{n}"), task, (word, what), &mut through)?;
    }
    through.extend(try_in_a_task(&editor, Driver::Containerd, &attempts.tasks)?);

    let given = ["allowPrivileged=true", "allowHostNamespaces=true", "volumes=true", "allowCaps={all}"];
    let given = given.map(|setting| format!("agent.containerd.{setting}"));
    ground.upgrade(&given.each_ref().map(String::as_str))?;
    let is_of_node = |word: &str| {
        ["allowPrivileged", "allowHostNamespaces", "drivers.containerd.volumes", "allowCaps"].contains(&word)
    };
    let of_node: Vec<&Try> = attempts.jobs.iter().filter(|(_, _, word)| is_of_node(word)).collect();
    for standard in ["baseline", "restricted"] {
        let label = format!("pod-security.kubernetes.io/enforce={standard}");
        ground.kubectl(&["label", "namespace", NAMESPACE, &label, "--overwrite"])?;
        for (n, (what, task, _)) in of_node.iter().enumerate() {
            let name = format!("{standard}-{n}");
            let what = format!("{what} under {standard}");
            try_job((&editor, Driver::Containerd), &name, task, ("PodSecurity", &what), &mut through)?;
        }
    }
    ensure!(
        through.is_empty(),
        "{} came through or were refused without a word:\n{}",
        through.len(),
        through.join("\n")
    );
    // Without the label the node's word counts.
    ground.kubectl(&["label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce-"])?;
    let given = json!({ "config": { "volumes": ["/var/lib:/host:ro"] } });
    let mut runs = Vec::new();
    try_job((&editor, Driver::Containerd), "given", &given, ("PodSecurity", "given"), &mut runs)?;
    ensure!(runs == ["given: it runs"], "what a node gives does not run: {runs:?}");
    editor.kubectl(&["delete", "djob", "--all", "--timeout=60s"], None)?;
    ground.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=60s"])?;
    ground.uninstall()?;
    Ok(format!("{n_all} attempts and {} in each of two namespaces of standards, none came through", of_node.len()))
}

/// A job that is refused when it is applied, or of which no task ever runs.
fn try_job(
    (editor, driver): (&Editor<'_>, Driver),
    name: &str,
    task: &Value,
    (word, what): (&str, &str),
    through: &mut Vec<String>,
) -> Result<()> {
    let (is_taken, text) = editor.apply(&job(driver, name, "service", task))?;
    if !is_taken {
        if !text.contains(word) {
            through.push(format!("{what}: {}", text.trim()));
        }
        return Ok(());
    }
    let mut last = String::new();
    let told = editor.ground.eventually(&format!("{what}: a word on {name}"), || {
        let (_, job) = editor.kubectl(&["get", "djob", name, "-o", "json"], None)?;
        let (_, allocations) = editor.kubectl(&["get", "alloc", "-o", "json"], None)?;
        let allocations: Value = serde_json::from_str(&allocations).context("reading allocations")?;
        let own: Vec<&Value> = allocations["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|allocation| allocation["spec"]["jobName"] == name)
            .collect();
        let runs = own.iter().any(|allocation| allocation["status"]["clientStatus"] == "running");
        last = [status_of(&job), status_of(&json!(own).to_string())].concat();
        let is_told = job.contains("\"status\"")
            && [job, json!(own).to_string()].iter().any(|text| status_of(text).contains(word));
        Ok((runs || is_told).then_some(runs))
    });
    match told {
        Ok(false) => {}
        Ok(true) => through.push(format!("{what}: it runs")),
        Err(error) => through.push(format!("{what}: {error:#}; it says {last}")),
    }
    Ok(())
}

/// What is said of an object, without what it asks for.
fn status_of(text: &str) -> String {
    let object: Value = serde_json::from_str(text).unwrap_or_default();
    let objects = object.as_array().cloned().unwrap_or_else(|| vec![object]);
    objects.iter().map(|object| object["status"].to_string()).collect()
}

/// The code of a task whose first attempt got through, from which the others are counted: no shell ends with these by
/// itself.
const GOT_THROUGH: usize = 50;

/// All of them in one task, which counts those that came through.
fn try_in_a_task(editor: &Editor<'_>, driver: Driver, tasks: &[(String, String)]) -> Result<Vec<String>> {
    let mut script =
        format!("for tool in {}; do command -v $tool >/dev/null || exit 99; done\n", driver.tools().join(" "));
    for (n, (_, attempt)) in tasks.iter().enumerate() {
        // Writing to a String cannot fail.
        writeln!(script, "if ( {attempt} ) >/dev/null 2>&1; then exit {}; fi", n + GOT_THROUGH).ok();
    }
    let task = json!({ "config": { "command": "/bin/sh", "args": ["-c", script] } });
    let (is_taken, answer) = editor.apply(&job(driver, "escape", "batch", &task))?;
    ensure!(is_taken, "the job that tries is refused: {answer}");
    let (code, alloc) = editor.ground.eventually("the task has tried all", || {
        let (_, listed) = editor.kubectl(&["get", "alloc", "-o", "json"], None)?;
        let allocations: Value = serde_json::from_str(&listed).context("reading allocations")?;
        let own = allocations["items"].as_array().into_iter().flatten().find(|it| it["spec"]["jobName"] == "escape");
        let Some(state) = own.and_then(|it| it.pointer("/status/taskStates/t")) else { return Ok(None) };
        if state["state"] != "dead" {
            return Ok(None);
        }
        let events = state["events"].as_array().cloned().unwrap_or_default();
        let ended = events.iter().rev().find(|event| event["type"] == "Terminated");
        let code = ended.and_then(|event| event["exitCode"].as_i64()).unwrap_or(-1);
        Ok(Some((code, own.map(|own| text(own, "/metadata/name").to_owned()).unwrap_or_default())))
    })?;
    if code == 0 {
        return Ok(Vec::new());
    }
    let first = usize::try_from(code).ok().and_then(|code| code.checked_sub(GOT_THROUGH)).and_then(|n| tasks.get(n));
    let Some((what, _)) = first else {
        let log = editor.ground.drover(&["alloc", "logs", &alloc, "-n", NAMESPACE, "--stderr"])?;
        bail!("the task ended with {code}, which says nothing of what it tried: {log}");
    };
    Ok(vec![format!("{what}: the task got through")])
}
