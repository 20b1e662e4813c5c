//! What must survive: a controller that is killed again and again, and outages of the API server and of etcd.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::job::JobConditionType;
use drover_api::{Allocation, ClientNode};
use drover_testkit::control_plane::Role;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::cluster::{Cluster, Settings, client_status, job, logged};

const NS: &str = "default";

/// No slot of a job is held by two allocations that are to run.
fn assert_single_holders(allocs: &[Allocation]) {
    let mut holders: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for alloc in allocs {
        let is_live = alloc.spec.desired_status == DesiredStatus::Run
            && alloc.metadata.deletion_timestamp.is_none()
            && !client_status(alloc).is_terminal();
        if is_live {
            let slot = (alloc.spec.job_uid.as_str(), alloc.spec.group.as_str(), alloc.spec.index);
            holders.entry(slot).or_default().push(alloc.metadata.name.as_deref().unwrap_or_default());
        }
    }
    let double: Vec<_> = holders.iter().filter(|(_, names)| names.len() > 1).collect();
    assert!(double.is_empty(), "slots held twice: {double:?}");
}

/// Allocations of each job that are to run and do.
fn running(allocs: &[Allocation]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for alloc in allocs {
        let runs = alloc.spec.desired_status == DesiredStatus::Run && client_status(alloc) == ClientStatus::Running;
        if runs && alloc.metadata.deletion_timestamp.is_none() {
            *counts.entry(alloc.spec.job_name.clone()).or_default() += 1;
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_killed_twenty_times_converges_each_time() {
    const KILLS: usize = 20;
    const JOBS: usize = 50;
    let cluster = Cluster::start("kills", Settings::default()).await;
    let mut controller = cluster.controller();
    let _agent = cluster.agent("n-1").await;
    let mut rng = fastrand::Rng::with_seed(8);
    let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..KILLS {
        // Three in four are created or scaled, one in four is deleted.
        for _ in 0..JOBS / KILLS * 4 {
            let name = format!("job-{}", rng.usize(..JOBS));
            if wanted.contains_key(&name) && rng.u8(..4) == 0 {
                wanted.remove(&name);
                cluster.kubectl(&["delete", &format!("djob/{name}"), "--wait=false"]).expect("deleted");
            } else if cluster
                .jobs(NS)
                .get_opt(&name)
                .await
                .expect("an answer")
                .is_none_or(|job| job.metadata.deletion_timestamp.is_none())
            {
                let count = rng.usize(1..4);
                wanted.insert(name.clone(), count);
                cluster.apply(NS, &job(&name, i64::try_from(count).expect("a count"), &json!({}), "exec sleep 1000"));
            }
        }
        controller.kill();
        controller = cluster.controller();
        cluster
            .eventually(&format!("round {round} converges to {wanted:?}"), async || {
                let allocs = cluster.allocs(NS).await;
                assert_single_holders(&allocs);
                running(&allocs) == wanted
            })
            .await;
    }
    let jobs = cluster.jobs(NS);
    cluster
        .eventually("deleted jobs are gone", async || {
            jobs.list(&ListParams::default()).await.expect("jobs").items.len() == wanted.len()
        })
        .await;
}

/// Takes parts of the control plane away for a minute each, by their end and by freezing them.
async fn survives_outages(settings: Settings) {
    const OUTAGE: Duration = Duration::from_mins(1);
    let cluster = Cluster::start("outage", settings).await;
    let _controller = cluster.controller();
    let _agent = cluster.agent("n-1").await;
    cluster.apply(NS, &job("web", 3, &json!({}), "echo $$; exec sleep 10000"));
    cluster.condition(NS, "web", JobConditionType::Ready, "True").await;
    let before = cluster.allocs(NS).await;
    let pids: Vec<String> = before.iter().map(|alloc| logged(&cluster, "n-1", alloc, "t").trim().to_owned()).collect();

    for (n, (role, is_frozen)) in
        [(Role::KubeApiserver, false), (Role::Etcd, false), (Role::KubeApiserver, true), (Role::Etcd, true)]
            .into_iter()
            .enumerate()
    {
        let name = format!("ends-{n}");
        let mut ends = job(&name, 1, &json!({}), "sleep 20");
        ends["spec"]["type"] = json!("batch");
        cluster.apply(NS, &ends);
        cluster.condition(NS, &name, JobConditionType::Placed, "True").await;
        cluster
            .eventually("it runs", async || {
                let allocs = cluster.allocs(NS).await;
                allocs.iter().any(|alloc| alloc.spec.job_name == name && client_status(alloc) == ClientStatus::Running)
            })
            .await;
        if is_frozen {
            cluster.plane.pause(role).expect("frozen");
        } else {
            cluster.plane.terminate(role).await.expect("terminated");
        }
        let over = Instant::now() + OUTAGE;
        while Instant::now() < over {
            for pid in &pids {
                assert!(std::path::Path::new("/proc").join(pid).exists(), "a task ended while {role:?} was away");
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        if is_frozen {
            cluster.plane.resume(role).await.expect("going on");
        } else {
            cluster.plane.restart(role).await.expect("started again");
        }
        cluster.condition(NS, &name, JobConditionType::Complete, "True").await;
        cluster.condition(NS, "web", JobConditionType::Ready, "True").await;
    }

    let after = cluster.allocs(NS).await;
    for alloc in &before {
        let now = after.iter().find(|now| now.metadata.uid == alloc.metadata.uid).expect("the same allocation");
        let status = now.status.clone().expect("a status");
        assert_eq!((status.client_status, status.task_states["t"].restarts), (ClientStatus::Running, 0));
        assert!(status.alloc_states.is_empty(), "nobody marked it");
    }
    assert_eq!(after.iter().filter(|alloc| alloc.spec.job_name == "web").count(), 3);
    let node =
        Api::<ClientNode>::all(cluster.client.clone()).get("n-1").await.expect("the node").status.expect("a status");
    let phases: Vec<String> = node.events.iter().map(|event| event.message.clone()).collect();
    assert_eq!(node.phase.as_str(), "ready");
    assert!(phases.iter().all(|message| !message.starts_with("down")), "{phases:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_of_the_control_plane_touch_no_task() {
    survives_outages(Settings::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_much_longer_than_ttl_and_grace_touch_no_task_where_no_lists_are_streamed() {
    // As Kubernetes 1.33 is by default.
    let api_server = Some("--feature-gates=WatchList=false");
    survives_outages(Settings { ttl_and_grace: 2, api_server, ..Settings::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_away_within_ttl_and_grace_finds_its_tasks_and_nobody_noticed() {
    const AWAY: Duration = Duration::from_secs(15);
    // The last beat may be a whole TTL old when the agent dies, so that the grace alone must outlast its absence.
    let cluster = Cluster::start("away", Settings { ttl_and_grace: 30, ..Settings::default() }).await;
    let _controller = cluster.controller();
    let agent = cluster.agent("n-1").await;
    let counting = "echo $$; n=0; while true; do n=$((n + 1)); echo $n; sleep 0.05; done";
    cluster.apply(NS, &job("counter", 1, &json!({}), counting));
    cluster.condition(NS, "counter", JobConditionType::Ready, "True").await;
    let before = cluster.allocs(NS).await.remove(0);
    agent.abandon();
    tokio::time::sleep(AWAY).await;
    let _agent = cluster.agent("n-1").await;
    let lines = logged(&cluster, "n-1", &before, "t").lines().count();
    cluster
        .eventually("it counts on", async || logged(&cluster, "n-1", &before, "t").lines().count() > lines + 20)
        .await;

    let log = logged(&cluster, "n-1", &before, "t");
    let numbers: Vec<usize> = log.lines().skip(1).map(|line| line.parse().expect("a number")).collect();
    let whole: Vec<usize> = (1..=numbers.len()).collect();
    assert_eq!(numbers, whole, "a gap or a repeat");
    let after = cluster.allocs(NS).await;
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].metadata.uid, before.metadata.uid);
    assert_eq!(after[0].metadata.resource_version, before.metadata.resource_version, "nobody wrote it");
    let node =
        Api::<ClientNode>::all(cluster.client.clone()).get("n-1").await.expect("the node").status.expect("a status");
    assert!(node.events.iter().all(|event| !event.message.starts_with("down")), "{:?}", node.events);
}
