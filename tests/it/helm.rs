//! Whether Helm sees a roll-out as it is: the chart of `examples/gitops/helm` on a real API server, with a real
//! controller and agent.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use drover_api::job::JobConditionType;
use drover_testkit::control_plane::User;
use drover_testkit::progress::Progress;

use crate::cli::person;
use crate::cluster::{Cluster, shared};

const NS: &str = "helmed";

/// Runs Helm as the administrator, with folders of its own.
pub(crate) fn helm(cluster: &Cluster, namespace: &str, args: &[&str]) -> Command {
    static HELM: LazyLock<PathBuf> =
        LazyLock::new(|| drover_testkit::helm::find_or_build(&Progress::silent()).expect("a build of Helm"));
    let mut command = drover_testkit::helm::command(&HELM, &cluster.path("helm"));
    command
        .args(["-n", namespace, "--kubeconfig"])
        .arg(cluster.plane.kubeconfig(User::Admin))
        .args(args)
        .stdin(Stdio::null());
    command
}

/// `helm upgrade --install` of the example's chart with these values.
fn upgrade(cluster: &Cluster, timeout: &str, values: &[&str]) -> Command {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/gitops/helm");
    let mut command = helm(cluster, NS, &["upgrade", "--install", "greeter"]);
    command.arg(chart).args(["--wait", "--timeout", timeout, "--set", "minHealthyTime=500ms,healthyDeadline=30s"]);
    for value in values {
        command.args(["--set", value]);
    }
    command
}

/// Runs a command beside the other tests.
pub(crate) async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().expect("a command")).await.expect("its end")
}

/// What a command said; it must have ended well, or badly.
pub(crate) fn said(output: &Output, is_good: bool) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.success(), is_good, "{text}");
    text
}

fn is_ready_to_kubectl(cluster: &Cluster) -> bool {
    cluster.kubectl(&["wait", "-n", NS, "--for=condition=Ready", "djob/greeter", "--timeout=0s"]).is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn helm_waits_until_the_job_is_there_and_tells_how_it_ended() {
    let cluster = shared();
    cluster.namespace(NS).await;

    said(&run(upgrade(&cluster, "60s", &[])).await, true);
    assert!(is_ready_to_kubectl(&cluster));
    assert_eq!(cluster.running(NS).await, [0, 1, 2]);

    // A canary that nobody promotes is no failure, and no success.
    let second = ["canary=1", "args={-c,echo two; sleep 1000}"];
    let waited = said(&run(upgrade(&cluster, "4s", &second)).await, false);
    assert!(waited.contains("InProgress"), "{waited}");
    assert!(!is_ready_to_kubectl(&cluster));
    let mut waiting = upgrade(&cluster, "60s", &second);
    let waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("helm");
    let promoted = person(&cluster, NS, "job promote greeter", String::new()).await;
    assert_eq!(promoted.code, 0, "{}", promoted.err);
    let ended = tokio::task::spawn_blocking(move || waiting.wait_with_output().expect("helm")).await.expect("its end");
    said(&ended, true);
    assert!(is_ready_to_kubectl(&cluster));

    // What crashes is reverted, and the release has failed all the same: what runs is not what was asked for.
    let failed = said(&run(upgrade(&cluster, "60s", &["canary=1", "command=/bin/false"])).await, false);
    assert!(failed.contains("Failed"), "{failed}");
    assert!(!is_ready_to_kubectl(&cluster));
    let why = cluster.condition(NS, "greeter", JobConditionType::Stalled, "True").await;
    assert!(
        why.contains("runs stable version 1 again and is healthy, because the roll-out of the spec failed"),
        "{why}"
    );
    let table = cluster.kubectl(&["get", "djob", "greeter", "-n", NS, "-o", "wide"]).expect("a table");
    assert!(table.contains("AutoReverted") && table.contains("runs stable version 1 again and is healthy"), "{table}");

    // A job that is to stand still is there when nothing of it runs.
    said(&run(upgrade(&cluster, "60s", &["stop=true"])).await, true);
    assert_eq!(cluster.running(NS).await, [0; 0]);
    assert!(is_ready_to_kubectl(&cluster));
    let followed = person(&cluster, NS, "job status greeter -w --timeout 10s", String::new()).await;
    assert_eq!(followed.code, 0, "{}", followed.err);
    assert!(followed.err.contains("djob/greeter is stopped"), "{}", followed.err);

    said(&run(helm(&cluster, NS, &["uninstall", "greeter", "--wait", "--timeout", "60s"])).await, true);
    assert!(cluster.jobs(NS).get_opt("greeter").await.expect("an answer").is_none());
}
