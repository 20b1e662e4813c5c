//! Partition, drain and the death of leaders on a real API server, with three agents on one machine: the outcomes are
//! those of the scenarios of the same names in `examples/scenarios`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::client_node::NodePhase;
use drover_api::job::JobConditionType;
use drover_api::{Allocation, ClientNode};
use drover_testkit::control_plane::User;
use kube::Api;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cli::{Answer, drover};
use crate::cluster::{Cluster, Process, Settings, client_status, job, logged};

const NS: &str = "default";
const NODES: [&str; 3] = ["n-1", "n-2", "n-3"];

/// The way from one agent to the API server, which can be cut.
struct Line {
    address: SocketAddr,
    is_open: watch::Sender<bool>,
    /// What carries the bytes; ends with this value.
    _carriers: JoinSet<()>,
}

impl Line {
    async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let is_open = watch::Sender::new(true);
        let state = is_open.subscribe();
        let mut carriers = JoinSet::new();
        carriers.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                connections.spawn(carry(near, server.clone(), state.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, is_open, _carriers: carriers }
    }

    fn cut(&self) {
        self.is_open.send_replace(false);
    }

    fn heal(&self) {
        self.is_open.send_replace(true);
    }
}

/// Carries bytes both ways until the line is cut. A connection that is made meanwhile ends at once.
async fn carry(mut near: TcpStream, server: String, mut state: watch::Receiver<bool>) {
    let Ok(mut far) = TcpStream::connect(&server).await else { return };
    tokio::select! {
        biased;
        _ = state.wait_for(|is_open| !is_open) => {}
        // Either side may end it: that is the end of a connection.
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
    }
}

/// Three agents, each with its own folders and its own way to the API server.
async fn three(cluster: &Cluster) -> (Vec<Process>, BTreeMap<&'static str, Line>) {
    let url = cluster.plane.url();
    let server = url.trim_start_matches("https://").to_owned();
    let (mut agents, mut lines) = (Vec::new(), BTreeMap::new());
    for node in NODES {
        let line = Line::to(server.clone()).await;
        let original = cluster.plane.kubeconfig(User::Admin);
        let text = std::fs::read_to_string(original).expect("a kubeconfig");
        let kubeconfig = cluster.path(&format!("{node}.kubeconfig"));
        std::fs::write(&kubeconfig, text.replace(&server, &line.address.to_string())).expect("a kubeconfig");
        agents.push(cluster.agent_by(node, &kubeconfig));
        lines.insert(node, line);
    }
    for node in NODES {
        phase(cluster, node, NodePhase::Ready).await;
    }
    (agents, lines)
}

async fn node(cluster: &Cluster, name: &str) -> ClientNode {
    Api::<ClientNode>::all(cluster.client.clone()).get(name).await.expect("the node")
}

async fn phase(cluster: &Cluster, name: &str, wanted: NodePhase) {
    let nodes = Api::<ClientNode>::all(cluster.client.clone());
    cluster
        .eventually(&format!("node {name} is {wanted}"), async || {
            let found = nodes.get_opt(name).await.expect("an answer");
            found.and_then(|node| node.status).is_some_and(|status| status.phase == wanted)
        })
        .await;
}

/// Runs the command on the cluster.
fn run(cluster: &Cluster, args: &[&str]) -> Answer {
    let kubeconfig = cluster.plane.kubeconfig(User::Admin).display().to_string();
    drover(&[args, &["--kubeconfig", &kubeconfig]].concat(), "")
}

/// A service of which each allocation has a node of its own.
fn spread(name: &str, count: i64, group: &Value) -> Value {
    let mut whole = job(name, count, group, "echo $$; exec sleep 10000");
    whole["spec"]["constraints"] = json!([{ "operand": "distinct_hosts" }]);
    whole["spec"]["update"] = json!({ "maxParallel": 0 });
    whole
}

/// The allocations of a job that are to run and do, with their nodes.
async fn running(cluster: &Cluster, job: &str) -> BTreeMap<String, Allocation> {
    let allocs = cluster.allocs(NS).await.into_iter();
    let runs = |alloc: &Allocation| {
        alloc.spec.job_name == job
            && alloc.spec.desired_status == DesiredStatus::Run
            && client_status(alloc) == ClientStatus::Running
    };
    allocs.filter(runs).map(|alloc| (alloc.spec.node_name.clone(), alloc)).collect()
}

async fn runs_on(cluster: &Cluster, job: &str, count: usize) -> BTreeMap<String, Allocation> {
    cluster.eventually(&format!("{count} of {job} run"), async || running(cluster, job).await.len() == count).await;
    running(cluster, job).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_off_node_comes_back_with_its_task_and_the_replacement_goes() {
    let cluster = Cluster::start("partition", Settings::SOON).await;
    let _controller = cluster.controller();
    let (_agents, lines) = three(&cluster).await;
    let disconnect = json!({ "disconnect": { "lostAfter": "10m", "replace": true, "reconcile": "keep_original" } });
    cluster.apply(NS, &spread("kept", 2, &disconnect));
    cluster.apply(NS, &spread("lost", 3, &json!({})));
    let kept = runs_on(&cluster, "kept", 2).await;
    let lost = runs_on(&cluster, "lost", 3).await;
    let (cut, original) = kept.first_key_value().map(|(node, alloc)| (node.clone(), alloc.clone())).expect("one");
    let pid = logged(&cluster, &cut, &original, "t").trim().to_owned();

    lines[&*cut].cut();
    phase(&cluster, &cut, NodePhase::Disconnected).await;
    cluster
        .eventually("the replacement runs elsewhere", async || {
            let now = running(&cluster, "kept").await;
            now.len() == 2 && !now.contains_key(&cut)
        })
        .await;
    cluster
        .eventually("the original is unknown, and the other job's is lost", async || {
            let allocs = cluster.allocs(NS).await;
            let status =
                |uid: &Option<String>| allocs.iter().find(|alloc| alloc.metadata.uid == *uid).map(client_status);
            status(&original.metadata.uid) == Some(ClientStatus::Unknown)
                && status(&lost[&cut].metadata.uid) == Some(ClientStatus::Lost)
        })
        .await;
    assert!(std::path::Path::new("/proc").join(&pid).exists(), "the task goes on while its node is cut off");

    lines[&*cut].heal();
    phase(&cluster, &cut, NodePhase::Ready).await;
    cluster
        .eventually("the original stays and its replacement is stopped", async || {
            let now = running(&cluster, "kept").await;
            now.len() == 2 && now.get(&cut).is_some_and(|alloc| alloc.metadata.uid == original.metadata.uid)
        })
        .await;
    let now = running(&cluster, "kept").await;
    let status = now[&cut].status.clone().expect("a status");
    assert_eq!(status.task_states["t"].restarts, 0);
    assert!(std::path::Path::new("/proc").join(&pid).exists(), "it was the same process all the time");
    // What was given up runs anew on the node, and what ran there before is ended.
    let again = runs_on(&cluster, "lost", 3).await;
    assert_ne!(again[&cut].metadata.uid, lost[&cut].metadata.uid);
    cluster
        .eventually("the lost one has ended", async || {
            let old = lost[&cut].metadata.uid.clone().unwrap_or_default();
            let pid = std::fs::read_to_string(cluster.path(&format!("{cut}/allocs/{old}/alloc/logs/t.stdout.0")));
            pid.is_err() || !std::path::Path::new("/proc").join(pid.unwrap_or_default().trim()).exists()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_drained_one_allocation_at_a_time_and_made_eligible_again_by_command() {
    let cluster = Cluster::start("drained", Settings::default()).await;
    let _controller = cluster.controller();
    let (_agents, _lines) = three(&cluster).await;
    let migrate = json!({ "migrate": { "maxParallel": 1, "healthCheck": "task_states", "minHealthyTime": "1s" } });
    let mut web = job("web", 4, &migrate, "exec sleep 10000");
    web["spec"]["update"] = json!({ "maxParallel": 0 });
    cluster.apply(NS, &web);
    cluster.condition(NS, "web", JobConditionType::Ready, "True").await;
    let allocs = cluster.allocs(NS).await;
    let drained = allocs[0].spec.node_name.clone();

    let status = run(&cluster, &["node", "status"]);
    assert_eq!(status.code, 0, "{}", status.err);
    assert!(NODES.iter().all(|node| status.out.contains(node)) && status.out.contains("eligible"), "{}", status.out);
    let drain = run(&cluster, &["node", "drain", &drained, "--deadline", "5m", "-o", "name"]);
    assert_eq!((drain.code, drain.out.trim()), (0, format!("cnode/{drained}").as_str()), "{}", drain.err);
    let refused = run(&cluster, &["node", "eligibility", &drained, "--enable"]);
    let is_over = node(&cluster, &drained).await.spec.drain.is_none();
    assert!(refused.code == 1 || is_over, "{}", refused.err);
    let watched = ["node", "drain", &drained, "--deadline", "5m", "-w", "--timeout", "3m"];
    let watched = tokio::task::block_in_place(|| run(&cluster, &watched));
    assert!(watched.code == 0 && watched.err.contains("is drained"), "{}", watched.err);
    let over = node(&cluster, &drained).await;
    let state = over.status.and_then(|status| status.drain).map(|drain| drain.status);
    assert_eq!((over.spec.drain, state), (None, Some(drover_api::client_node::DrainStatus::Complete)));
    let after: Vec<Allocation> = cluster.allocs(NS).await;
    let live = after.iter().filter(|alloc| {
        alloc.spec.desired_status == DesiredStatus::Run && client_status(alloc) == ClientStatus::Running
    });
    let nodes: Vec<&str> = live.map(|alloc| alloc.spec.node_name.as_str()).collect();
    assert!(nodes.len() == 4 && !nodes.contains(&drained.as_str()), "{nodes:?}");
    assert_eq!(node(&cluster, &drained).await.spec.eligibility.to_string(), "ineligible");

    let enabled = run(&cluster, &["node", "eligibility", &drained, "--enable"]);
    assert_eq!(enabled.code, 0, "{}", enabled.err);
    assert_eq!(node(&cluster, &drained).await.spec.eligibility.to_string(), "eligible");
    let unknown = run(&cluster, &["node", "drain", "nobody"]);
    assert!(unknown.code == 1 && unknown.err.contains("nobody"), "{}", unknown.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_that_die_while_they_place_leave_nothing_double_and_nothing_out() {
    const JOBS: usize = 6;
    let cluster = Cluster::start("leaders", Settings::default()).await;
    let mut leader = cluster.controller();
    let (_agents, _lines) = three(&cluster).await;
    for round in 0..JOBS {
        let follower = cluster.controller();
        cluster.apply(NS, &job(&format!("job-{round}"), 5, &json!({}), "echo $$; exec sleep 10000"));
        // In the middle of its plan, or of what leads to it.
        cluster
            .eventually("something of the job is there", async || {
                let versions = cluster.versions(NS).list(&kube::api::ListParams::default()).await.expect("versions");
                versions.items.iter().any(|version| version.spec.job_name == format!("job-{round}"))
            })
            .await;
        leader.kill();
        leader = follower;
    }
    cluster
        .eventually("every slot runs once", async || {
            let mut slots: BTreeMap<(String, i64), usize> = BTreeMap::new();
            for alloc in cluster.allocs(NS).await {
                if alloc.spec.desired_status == DesiredStatus::Run && !client_status(&alloc).is_terminal() {
                    *slots.entry((alloc.spec.job_name.clone(), alloc.spec.index)).or_default() += 1;
                }
            }
            assert!(slots.values().all(|holders| *holders == 1), "a slot is held twice: {slots:?}");
            let mut running = 0;
            for round in 0..JOBS {
                let name = format!("job-{round}");
                let of_job = cluster.allocs(NS).await.into_iter().filter(|alloc| alloc.spec.job_name == name);
                running += of_job.filter(|alloc| client_status(alloc) == ClientStatus::Running).count();
            }
            slots.len() == JOBS * 5 && running == JOBS * 5
        })
        .await;
}

/// Names and resourceVersions of what a controller writes, of this job and of the nodes.
async fn written(cluster: &Cluster, job: &str) -> BTreeMap<String, Option<String>> {
    let all = kube::api::ListParams::default();
    let of_job = |name: &str| name == job || name.starts_with(&format!("{job}-"));
    let mut found = BTreeMap::new();
    let mut note = |kind: &str, meta: kube::core::ObjectMeta| {
        found.insert(format!("{kind} {}", meta.name.unwrap_or_default()), meta.resource_version);
    };
    for node in Api::<ClientNode>::all(cluster.client.clone()).list(&all).await.expect("nodes") {
        note("node", node.metadata);
    }
    for alloc in cluster.allocs(NS).await.into_iter().filter(|alloc| of_job(&alloc.spec.job_name)) {
        note("alloc", alloc.metadata);
    }
    for version in cluster.versions(NS).list(&all).await.expect("versions") {
        if of_job(&version.spec.job_name) {
            note("version", version.metadata);
        }
    }
    note("job", cluster.jobs(NS).get(job).await.expect("the job").metadata);
    found
}

/// Applies a job that finds no place, and waits until a leader has said so.
async fn refused(cluster: &Cluster, name: &str) {
    let mut nowhere = job(name, 1, &json!({}), "exit 0");
    nowhere["spec"]["nodePool"] = json!("nowhere");
    cluster.apply(NS, &nowhere);
    cluster
        .eventually(&format!("{name} finds no place"), async || {
            let job = cluster.jobs(NS).get(name).await.expect("the job");
            job.status.is_some_and(|status| status.blocked.is_some())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_of_a_quiet_cluster_writes_nothing() {
    let cluster = Cluster::start("quiet", Settings { lease: 2, ..Settings::default() }).await;
    let leader = cluster.controller();
    let (_agents, _lines) = three(&cluster).await;
    cluster.apply(NS, &spread("web", 3, &json!({})));
    runs_on(&cluster, "web", 3).await;
    cluster.condition(NS, "web", JobConditionType::Ready, "True").await;
    cluster
        .eventually("each node tells of its allocation", async || {
            let mut told = Vec::new();
            for name in NODES {
                told.push(node(&cluster, name).await.status.unwrap_or_default().columns.allocs);
            }
            told.iter().all(|allocs| allocs == "1")
        })
        .await;
    // What was under way when the nodes were asked is written when this is.
    refused(&cluster, "before").await;
    let before = written(&cluster, "web").await;

    let _follower = cluster.controller();
    leader.kill();
    refused(&cluster, "after").await;
    refused(&cluster, "at-last").await;
    assert_eq!(written(&cluster, "web").await, before);
}
