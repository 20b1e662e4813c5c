//! `examples/canary` as its README tells it: a roll-out that no client notices, and one that fails and is taken back.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::deployment::{DeploymentDescription, DeploymentPhase};
use drover_api::job::JobConditionType;
use drover_api::{Allocation, Deployment};
use drover_testkit::documents::scrubbed;
use drover_testkit::examples;
use drover_testkit::progress::Progress;
use futures::StreamExt;
use kube::api::ListParams;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cli::person;
use crate::cluster::{Cluster, example, shared};

const NS: &str = "canary";
const COUNT: usize = 6;
const MAX_PARALLEL: usize = 2;

/// The allocations that may be asked, and the least number of them since the last look.
#[derive(Default)]
struct Serving {
    ports: BTreeMap<String, i64>,
    least: Option<usize>,
}

impl Serving {
    fn see(&mut self, alloc: &Allocation, is_there: bool) {
        let (spec, status) = (&alloc.spec, alloc.status.clone().unwrap_or_default());
        let serves = is_there
            && spec.desired_status == DesiredStatus::Run
            && alloc.metadata.deletion_timestamp.is_none()
            && status.client_status == ClientStatus::Running
            && status.health.is_some_and(|health| health.healthy);
        let name = alloc.metadata.name.clone().unwrap_or_default();
        let port = spec.resources.ports.first().map(|port| port.value);
        match port.filter(|_| serves) {
            Some(port) => drop(self.ports.insert(name, port)),
            None => drop(self.ports.remove(&name)),
        }
        if self.ports.len() >= COUNT || self.least.is_some() {
            self.least = Some(self.least.unwrap_or(COUNT).min(self.ports.len()));
        }
    }
}

/// Keeps what may be asked as the API server tells it, event by event.
async fn watch(client: Client, serving: Arc<Mutex<Serving>>) {
    let api: Api<Allocation> = Api::namespaced(client, NS);
    let mut events = watcher::watcher(api, watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        let mut serving = serving.lock().expect("no panic");
        match event.expect("an event") {
            Event::Apply(alloc) | Event::InitApply(alloc) => serving.see(&alloc, true),
            Event::Delete(alloc) => serving.see(&alloc, false),
            Event::Init | Event::InitDone => {}
        }
    }
}

#[derive(Default)]
struct Tally {
    answered: usize,
    failures: Vec<String>,
}

/// Sends 50 requests per second, in turn to those that may be asked.
async fn ask(serving: Arc<Mutex<Serving>>, tally: Arc<Mutex<Tally>>) {
    let mut beat = tokio::time::interval(Duration::from_millis(20));
    for turn in 0_usize.. {
        beat.tick().await;
        let port = {
            let serving = serving.lock().expect("no panic");
            serving.ports.values().nth(turn % serving.ports.len().max(1)).copied()
        };
        let Some(port) = port else { continue };
        let answer = tokio::time::timeout(Duration::from_secs(1), get(port)).await;
        let mut tally = tally.lock().expect("no panic");
        match answer {
            Ok(Ok(text)) if text.starts_with("HTTP/1.1 200") => tally.answered += 1,
            other => tally.failures.push(format!("port {port}: {other:?}")),
        }
    }
}

async fn get(port: i64) -> std::io::Result<String> {
    let port = u16::try_from(port).expect("a port");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: greeter\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// A manifest whose program is found wherever it was built.
fn manifest(version: u8) -> String {
    static PROGRAM: LazyLock<PathBuf> =
        LazyLock::new(|| examples::build_web_server(&Progress::silent()).expect("the example's web server"));
    example(&format!("canary/v{version}.yaml")).replace("drover-example-web}", &format!("{}}}", PROGRAM.display()))
}

async fn wait_for(cluster: &Cluster, version: i64, what: &str, check: impl Fn(&Deployment) -> bool) {
    let api: Api<Deployment> = Api::namespaced(cluster.client.clone(), NS);
    cluster
        .eventually(&format!("the deployment of version {version} is {what}"), async || {
            let all = api.list(&ListParams::default()).await.expect("deployments").items;
            all.iter().any(|one| one.spec.job_version == version && check(one))
        })
        .await;
}

/// Fails unless the README shows this output; of such blocks the user sees what really comes.
fn readme_shows(output: &str) {
    let readme = scrubbed(&example("canary/README.md"));
    let output = scrubbed(output.trim_end());
    assert!(readme.contains(&output), "examples/canary/README.md does not show\n{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_canary_example_goes_as_its_readme_says() {
    let cluster = shared();
    cluster.namespace(NS).await;
    let (serving, tally) = (Arc::new(Mutex::new(Serving::default())), Arc::new(Mutex::new(Tally::default())));
    let mut clients = tokio::task::JoinSet::new();
    clients.spawn(watch(cluster.client.clone(), Arc::clone(&serving)));

    let first = person(&cluster, NS, "job run - --timeout 1m", manifest(1)).await;
    assert_eq!(first.code, 0, "{}", first.err);
    clients.spawn(ask(Arc::clone(&serving), Arc::clone(&tally)));

    let mut terminal = tokio::task::JoinSet::new();
    terminal.spawn(async { person(&shared(), NS, "job run - --timeout 1m", manifest(2)).await });
    wait_for(&cluster, 1, "ready to be promoted", |one| {
        let status = one.status.clone().unwrap_or_default();
        status.description == DeploymentDescription::NeedsPromotion && status.columns.healthy == "1"
    })
    .await;
    readme_shows(&person(&cluster, NS, "job status greeter", String::new()).await.out);
    let promoted = person(&cluster, NS, "deployment promote greeter", String::new()).await;
    assert_eq!(promoted.code, 0, "{}", promoted.err);
    readme_shows(&promoted.err);
    let rolled = terminal.join_next().await.expect("a command").expect("its end");
    assert_eq!(rolled.code, 0, "{}", rolled.err);
    readme_shows(rolled.err.lines().last().unwrap_or_default());
    let status = person(&cluster, NS, "job status greeter", String::new()).await.out;
    readme_shows(&status.lines().take(3).collect::<Vec<_>>().join("\n"));

    let failed = person(&cluster, NS, "job run - --timeout 1m", manifest(3)).await;
    assert_eq!(failed.code, 2, "{}", failed.err);
    wait_for(&cluster, 2, "failed", |one| {
        one.status.as_ref().is_some_and(|status| status.phase == DeploymentPhase::Failed)
    })
    .await;
    let report: Vec<&str> = failed.err.lines().skip_while(|line| !line.contains(" failed: ")).collect();
    readme_shows(&report.join("\n"));
    cluster.condition(NS, "greeter", JobConditionType::Reverted, "True").await;
    let history = person(&cluster, NS, "job history greeter", String::new()).await.out;
    readme_shows(&history);

    clients.abort_all();
    let (serving, tally) = (serving.lock().expect("no panic"), tally.lock().expect("no panic"));
    assert_eq!(tally.failures, [] as [String; 0], "{} were answered", tally.answered);
    assert!(tally.answered > 200, "{} requests are too few to mean anything", tally.answered);
    let least = serving.least.expect("a time with all of them");
    assert!(least >= COUNT - MAX_PARALLEL, "at one time only {least} of {COUNT} served");
}
