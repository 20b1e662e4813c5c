//! Job files as people bring them, held against Nomad's own reader: what `nomad job run` would send of a file is the
//! job that drover makes of it (`spec/gateway.md` 7, G-050). Run on a node, each ends as its first lines say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use drover_api::allocation::ClientStatus;
use drover_api::job::{JobConditionType, JobPhase};
use drover_api::{Allocation, Job};
use drover_testkit::nomad_cli;
use drover_testkit::progress::Progress;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Settings, client_status, condition, shared};
use crate::gateway::Ran;

/// Those whose names begin so hold what the oldest of Nomad's commands do not know.
const NEWER: &str = "newer-";
/// Jobs that run at a time.
const AT_A_TIME: usize = 40;
const NODE: &str = "n-1";

/// A job file, and what its first lines say of it.
struct JobFile {
    path: String,
    name: String,
    ends: End,
    /// Lines that its tasks print.
    prints: Vec<String>,
    /// Fields that are denied.
    names: BTreeSet<String>,
}

/// What becomes of a job.
#[derive(Debug)]
enum End {
    /// All that it has to do is done.
    Complete,
    /// It failed, and nothing is tried any more.
    Failed,
    /// All that it wants runs and is healthy.
    Running,
    /// It has no place; why.
    Blocked(String),
    /// It has a place, and waits there; for what.
    Pending(String),
    /// It waits for its time, or to be dispatched, or is switched off.
    Waits,
    /// It asks for what no job may have, in these fields.
    Denied,
    /// It asks for what is not carried over, in these lines.
    Refused(Vec<u64>),
}

impl End {
    fn read(text: &str) -> Option<Self> {
        let (kind, more) = text.split_once(": ").unwrap_or((text, ""));
        Some(match kind {
            "complete" => Self::Complete,
            "failed" => Self::Failed,
            "running" => Self::Running,
            "blocked" => Self::Blocked(more.to_owned()),
            "pending" => Self::Pending(more.to_owned()),
            "waits" => Self::Waits,
            "denied" => Self::Denied,
            "refused" => Self::Refused(more.split(", ").map(str::parse).collect::<Result<_, _>>().ok()?),
            _ => return None,
        })
    }

    /// Whether a job and its allocations have come to it.
    fn is_of(&self, job: &Job, allocs: &[Allocation]) -> bool {
        let status = job.status.clone().unwrap_or_default();
        let is = |kind| condition(job, kind).is_some_and(|(status, _)| status == "True");
        let all = |wanted: ClientStatus| !allocs.is_empty() && allocs.iter().all(|it| client_status(it) == wanted);
        match self {
            Self::Complete => {
                status.phase == JobPhase::Dead && is(JobConditionType::Complete) && all(ClientStatus::Complete)
            }
            Self::Failed => status.phase == JobPhase::Dead && is(JobConditionType::Failed),
            Self::Running => {
                is(JobConditionType::Ready) && allocs.iter().any(|it| client_status(it) == ClientStatus::Running)
            }
            Self::Blocked(why) => {
                let placed = condition(job, JobConditionType::Placed);
                placed.is_some_and(|(status, message)| status == "False" && message.contains(why))
            }
            Self::Pending(why) => allocs.iter().any(|it| json!(it.status).to_string().contains(why)),
            Self::Waits => condition(job, JobConditionType::Armed).is_some() && allocs.is_empty(),
            Self::Denied | Self::Refused(_) => false,
        }
    }
}

impl JobFile {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a file");
        let text = text.trim_start_matches('\u{feff}');
        let said = |what: &'static str| {
            let lines = text.lines().take_while(|line| line.starts_with('#'));
            lines.filter_map(move |line| line.strip_prefix("# ")?.strip_prefix(what)?.strip_prefix(": "))
        };
        let path = path.display().to_string();
        let ends = said("Ends").next().and_then(End::read).unwrap_or_else(|| unreachable!("{path} says no end"));
        let (prints, names) = (said("Prints").map(str::to_owned).collect(), said("Names").map(str::to_owned).collect());
        let name = Path::new(&path).file_name().expect("a name").display().to_string();
        Self { path, name, ends, prints, names }
    }

    /// What keeps it from its end; nothing: it is there.
    fn lacks(&self, cluster: &Cluster, job: &Job, allocs: &[Allocation]) -> Option<String> {
        if !self.ends.is_of(job, allocs) {
            let tasks: Vec<Value> = allocs.iter().map(|it| json!(it.status)).collect();
            return Some(format!("{} is not {:?}: {} {}", self.name, self.ends, json!(job.status), json!(tasks)));
        }
        let logs: String = allocs.iter().map(|alloc| printed(cluster, alloc)).collect();
        let missing: Vec<_> = self.prints.iter().filter(|line| !logs.lines().any(|it| it == line.as_str())).collect();
        (!missing.is_empty()).then(|| format!("{} does not print {missing:?}: {logs}", self.name))
    }
}

/// All that an allocation's tasks have printed.
fn printed(cluster: &Cluster, alloc: &Allocation) -> String {
    let uid = alloc.metadata.uid.as_deref().expect("a uid");
    let folder = cluster.path(&format!("{NODE}/allocs/{uid}/alloc/logs"));
    let files = std::fs::read_dir(folder).into_iter().flatten();
    files
        .filter_map(|file| std::fs::read(file.ok()?.path()).ok())
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .collect()
}

fn files() -> Vec<JobFile> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/job-files");
    let all = std::fs::read_dir(folder).expect("the files").map(|entry| entry.expect("a file").path());
    let mut all: Vec<PathBuf> = all.filter(|path| path.extension().is_some_and(|kind| kind == "hcl")).collect();
    all.sort();
    all.iter().map(|path| JobFile::read(path)).collect()
}

fn run(program: &Path, args: &[&str]) -> Ran {
    Ran::of(Command::new(program).args(args).stdin(Stdio::null()).output().expect("ran"))
}

fn drover(args: &[&str]) -> Ran {
    run(Path::new(env!("CARGO_BIN_EXE_drover")), args)
}

/// The manifest that a file becomes.
fn imported(file: &str) -> Value {
    serde_json::from_str(&drover(&["job", "import", file, "-o", "json"]).text()).expect("JSON")
}

/// What a manifest means, whatever it writes out of what is usual.
fn meant(manifest: &Value) -> Value {
    let job: Job = serde_json::from_value(manifest.clone()).expect("a job");
    drover_jobspec::wire_job(&job)
}

/// What Nomad's command would send of a file, in a file of its own.
fn sent(cluster: &Cluster, nomad: &Path, file: &JobFile) -> String {
    let path = cluster.path(&format!("{}.json", file.name));
    std::fs::write(&path, run(nomad, &["job", "run", "-output", &file.path]).text()).expect("written");
    path.display().to_string()
}

/// The plan of a manifest, in a cluster of this one node.
fn planned(cluster: &Cluster, node: &Value, manifest: &Value) -> Value {
    let mut job = manifest.clone();
    job["metadata"]["namespace"] = json!("default");
    let name = job["metadata"]["name"].as_str().expect("a name").to_owned();
    let state = cluster.path(&format!("{name}.jsonl"));
    std::fs::write(&state, format!("{node}\n{job}\n")).expect("written");
    let of = format!("default/{name}");
    let state = state.display().to_string();
    let ran = drover(&["plan", "--state", &state, "--eval", &of, "--now", "2026-01-01T00:00:00Z", "-o", "json"]);
    assert!((0..=2).contains(&ran.code), "{name}: {}", ran.err);
    serde_json::from_slice(&ran.out).expect("JSON")
}

/// Each line that an import complains about, in a file or in what would be sent of it.
fn refused_lines(asked: &str) -> Vec<u64> {
    let ran = drover(&["job", "import", asked]);
    assert!(ran.code == 1 && ran.out.is_empty(), "{asked}: {} {}", ran.code, ran.err);
    let place = |line: &str| line.strip_prefix(asked)?.strip_prefix(':')?.split(':').next()?.parse().ok();
    let mut lines: Vec<u64> = ran.err.lines().filter_map(place).collect();
    lines.dedup();
    assert!(!lines.is_empty(), "{asked}: {}", ran.err);
    lines
}

/// Holds a file against what Nomad's command would send of it; its manifest.
fn compared(cluster: &Cluster, nomad: &Path, node: &Value, file: &JobFile) -> Option<Value> {
    let is_newer = file.name.starts_with(NEWER);
    if let End::Refused(lines) = &file.ends {
        assert_eq!(&refused_lines(&file.path), lines, "{}", file.name);
        // What cannot be read at all is refused by both.
        let known = run(nomad, &["job", "run", "-output", &file.path]);
        if !is_newer && known.code == 0 {
            refused_lines(&sent(cluster, nomad, file));
        }
        return None;
    }
    let own = imported(&file.path);
    if matches!(file.ends, End::Denied) {
        let ran = drover(&["job", "validate", &file.path]);
        let said = [String::from_utf8_lossy(&ran.out).into_owned(), ran.err].concat();
        let field = |line: &str| Some(line.split_once(": djob/")?.1.split_once(": ")?.1.split_once(':')?.0.to_owned());
        let denied: BTreeSet<String> = said.lines().filter_map(field).collect();
        assert_eq!((ran.code, &denied), (1, &file.names), "{}: {said}", file.name);
        return None;
    }
    if !is_newer {
        let other = imported(&sent(cluster, nomad, file));
        same(&file.name, &meant(&own), &meant(&other));
        same(&file.name, &planned(cluster, node, &own), &planned(cluster, node, &other));
    }
    Some(own)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_050_what_nomads_command_would_send_of_a_file_is_the_job_that_drover_makes_of_it() {
    let cluster = shared();
    let nomad = nomad_cli::find_or_build(&Progress::silent()).expect("the program");
    let node: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "cnode", NODE, "-o", "json"]).expect("a node")).expect("JSON");
    let files = files();
    let halves = files.split_at(files.len() / 2);
    let half = |files: &[JobFile]| -> Vec<Value> {
        files.iter().filter_map(|file| compared(&cluster, &nomad, &node, file)).collect()
    };
    let manifests = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(halves.1));
        [half(halves.0), other.join().expect("compared")].concat()
    });
    assert!(files.len() >= 150 && files.len() - manifests.len() >= 3, "{} of {}", manifests.len(), files.len());
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": manifests }).to_string();
    let accepted = cluster.kubectl_with(&["apply", "--dry-run=server", "-n", "default", "-f", "-"], Some(&list));
    assert_eq!(accepted.expect("accepted").lines().count(), manifests.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_050_each_job_file_ends_as_it_says() {
    let cluster = Cluster::start("job-files", Settings::default()).await;
    let _controller = cluster.controller();
    let _agent = cluster.agent(NODE).await;
    let files: Vec<JobFile> =
        files().into_iter().filter(|file| !matches!(file.ends, End::Denied | End::Refused(_))).collect();
    for some in files.chunks(AT_A_TIME) {
        let manifests: Vec<Value> = some.iter().map(|file| imported(&file.path)).collect();
        let mut open: BTreeMap<String, &JobFile> = BTreeMap::new();
        for (manifest, file) in manifests.iter().zip(some) {
            let name = manifest["metadata"]["name"].as_str().expect("a name").to_owned();
            assert!(open.insert(name, file).is_none(), "{}: another file has a job of its name", file.name);
        }
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": manifests }).to_string();
        cluster.kubectl_with(&["apply", "-n", "default", "-f", "-"], Some(&list)).expect("applied");
        let open = std::sync::Mutex::new(open);
        // One that has come to its end may be collected while others run.
        let left = async || {
            let jobs = cluster.jobs("default").list(&ListParams::default()).await.expect("a list").items;
            let allocs = cluster.allocs("default").await;
            let mut open = open.lock().expect("no panic");
            let mut left = Vec::new();
            open.retain(|name, file| {
                let job = jobs.iter().find(|job| job.metadata.name.as_deref() == Some(name));
                let own: Vec<Allocation> = allocs.iter().filter(|it| it.spec.job_name == *name).cloned().collect();
                let lacks =
                    job.map_or_else(|| Some(format!("{name} is not there")), |job| file.lacks(&cluster, job, &own));
                left.extend(lacks.clone());
                lacks.is_some()
            });
            left
        };
        cluster.eventually_none("each job ends as its file says", left).await;
        cluster.kubectl(&["delete", "djob", "--all", "-n", "default", "--timeout=90s"]).expect("deleted");
    }
}

/// Compares whatever the order of keys; the first line that differs stands first.
fn same(name: &str, one: &Value, other: &Value) {
    let (lines, others) = (format!("{one:#}"), format!("{other:#}"));
    let differs = lines.lines().zip(others.lines()).find(|(one, other)| one != other);
    assert!(one == other, "{name}: {differs:?}\n{lines}\n---\n{others}");
}
