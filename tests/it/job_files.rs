//! Job files as people bring them, held against Nomad's own reader: what `nomad job run` would send of a file is the
//! job that drover makes of it (`spec/gateway.md` 7, G-050).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use drover_api::Job;
use drover_testkit::nomad_cli;
use drover_testkit::progress::Progress;
use serde_json::{Value, json};

use crate::cluster::{Cluster, shared};
use crate::gateway::Ran;

/// Those whose names begin so ask for what is not carried over.
const REFUSED: &str = "refused-";

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/job-files");
    let all = std::fs::read_dir(folder).expect("the files").map(|entry| entry.expect("a file").path());
    let mut all: Vec<PathBuf> = all.filter(|path| path.extension().is_some_and(|kind| kind == "hcl")).collect();
    all.sort();
    all
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
fn sent(cluster: &Cluster, nomad: &Path, file: &str) -> String {
    let path = cluster.path(&format!("{}.json", Path::new(file).file_name().expect("a name").display()));
    std::fs::write(&path, run(nomad, &["job", "run", "-output", file]).text()).expect("written");
    path.display().to_string()
}

/// The plan of a manifest, in a cluster of this one node.
fn planned(cluster: &Cluster, node: &Value, manifest: &Value) -> Value {
    let mut job = manifest.clone();
    job["metadata"]["namespace"] = json!("default");
    let name = job["metadata"]["name"].as_str().expect("a name").to_owned();
    let state = cluster.path("state.jsonl");
    std::fs::write(&state, format!("{node}\n{job}\n")).expect("written");
    let of = format!("default/{name}");
    let state = state.display().to_string();
    let ran = drover(&["plan", "--state", &state, "--eval", &of, "--now", "2026-01-01T00:00:00Z", "-o", "json"]);
    assert!((0..=2).contains(&ran.code), "{name}: {}", ran.err);
    serde_json::from_slice(&ran.out).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_050_what_nomads_command_would_send_of_a_file_is_the_job_that_drover_makes_of_it() {
    let cluster = shared();
    let nomad = nomad_cli::find_or_build(&Progress::silent()).expect("the program");
    let node: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "cnode", "n-1", "-o", "json"]).expect("a node")).expect("JSON");
    let (mut manifests, mut n_refused) = (Vec::new(), 0);
    for path in files() {
        let (name, file) = (path.file_name().expect("a name").display().to_string(), path.display().to_string());
        let json = sent(&cluster, &nomad, &file);
        if name.starts_with(REFUSED) {
            n_refused += 1;
            // Each place is named, in the file as in what would be sent of it.
            for (asked, place) in [(&file, &file), (&json, &json)] {
                let ran = drover(&["job", "import", asked]);
                let is_placed = ran.err.lines().next().is_some_and(|line| {
                    let rest = line.strip_prefix(place.as_str()).and_then(|rest| rest.strip_prefix(':'));
                    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
                });
                assert!(ran.code == 1 && is_placed && ran.out.is_empty(), "{asked}: {} {}", ran.code, ran.err);
            }
            continue;
        }
        let (own, other) = (imported(&file), imported(&json));
        same(&name, &meant(&own), &meant(&other));
        same(&name, &planned(&cluster, &node, &own), &planned(&cluster, &node, &other));
        manifests.push(own);
    }
    assert!(manifests.len() >= 40 && n_refused >= 3, "{} and {n_refused} files", manifests.len());
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": manifests }).to_string();
    let accepted = cluster.kubectl_with(&["apply", "--dry-run=server", "-n", "default", "-f", "-"], Some(&list));
    assert_eq!(accepted.expect("accepted").lines().count(), manifests.len());
}

/// Compares whatever the order of keys; the first line that differs stands first.
fn same(name: &str, one: &Value, other: &Value) {
    let (lines, others) = (format!("{one:#}"), format!("{other:#}"));
    let differs = lines.lines().zip(others.lines()).find(|(one, other)| one != other);
    assert!(one == other, "{name}: {differs:?}\n{lines}\n---\n{others}");
}
