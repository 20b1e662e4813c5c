//! Every command that README and `docs/` show for a cluster, run as a user would, and every manifest, given to the API
//! server.
//!
//! Blocks marked `up` are run by `tests/up`, those marked `e2e` by `tests/e2e`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use drover_testkit::control_plane::User;
use drover_testkit::documents::{self, Document};
use drover_testkit::examples;
use drover_testkit::progress::Progress;
use drover_testkit::shell::Shell;
use drover_testkit::workspace;

use crate::cluster::{Cluster, LONG, path_with, shared};

/// Where blocks run that a cluster without a kubelet is enough for.
const PLACES: [&str; 2] = ["cluster", "shell"];

/// What a document runs is not in the way of another: each has a namespace.
fn namespace(document: &Document) -> String {
    let name = Path::new(&document.path).file_stem().and_then(OsStr::to_str).expect("a name");
    format!("docs-{}", name.to_lowercase())
}

/// A kubeconfig whose namespace is the document's.
fn kubeconfig(cluster: &Cluster, home: &Path, namespace: &str) -> PathBuf {
    let path = home.join("kubeconfig");
    fs::copy(cluster.plane.kubeconfig(User::Admin), &path).expect("a kubeconfig");
    cluster.kubectl(&["create", "namespace", namespace]).expect("a namespace");
    let set = ["config", "set-context", "--current", "--namespace", namespace];
    let mut command = std::process::Command::new(cluster.plane.binaries().kubectl());
    assert!(command.arg("--kubeconfig").arg(&path).args(set).output().expect("kubectl").status.success());
    path
}

/// A terminal in the root of the tree. `HOME` is a folder that goes afterwards.
fn terminal(cluster: &Cluster, home: &Path, namespace: &str) -> Shell {
    let kubeconfig = kubeconfig(cluster, home, namespace);
    let drover = Path::new(env!("CARGO_BIN_EXE_drover")).parent().expect("a folder").to_owned();
    let path = path_with(std::iter::once(drover).chain(cluster.plane.binaries().folders()));
    let environment = [("PATH", path.as_os_str()), ("KUBECONFIG", kubeconfig.as_os_str()), ("HOME", home.as_os_str())];
    Shell::start(&workspace::root(), environment).expect("a shell")
}

/// What the API server says against a manifest.
fn refusals(shell: &mut Shell, home: &Path, document: &Document) -> Vec<String> {
    let file = home.join("manifest.yaml");
    let refusal = |documents::Manifest { line, text }| {
        fs::write(&file, text).expect("a manifest");
        let command = format!("kubectl apply --dry-run=server -f {}", file.display());
        let answer = shell.run(&command, LONG).expect("an answer");
        (answer.code != 0).then(|| format!("{}:{line}: the manifest is refused:\n{}", document.path, answer.text))
    };
    documents::manifests(&document.text).into_iter().filter_map(refusal).collect()
}

fn faults(cluster: &Cluster, document: &Document) -> Vec<String> {
    if documents::commands(&document.text, &PLACES).is_empty() && documents::manifests(&document.text).is_empty() {
        return Vec::new();
    }
    let home = tempfile::tempdir().expect("a folder");
    let mut shell = terminal(cluster, home.path(), &namespace(document));
    let mut found = refusals(&mut shell, home.path(), document);
    found.extend(document.difference(&mut shell, &PLACES, LONG));
    found
}

#[test]
fn what_the_documents_show_is_what_comes() {
    let cluster = shared();
    let program = examples::build_web_server(&Progress::silent()).expect("the example's web server");
    fs::create_dir_all(cluster.bin()).expect("a folder");
    std::os::unix::fs::symlink(program, cluster.bin().join(examples::WEB_SERVER)).expect("the program");
    let found: Vec<String> = std::thread::scope(|scope| {
        let cluster: &Cluster = &cluster;
        let started: Vec<_> = Document::read_all()
            .expect("the documents")
            .into_iter()
            .map(|document| scope.spawn(move || faults(cluster, &document)))
            .collect();
        started.into_iter().flat_map(|document| document.join().expect("its end")).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}
