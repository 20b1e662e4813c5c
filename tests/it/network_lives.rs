//! Networks of many allocations, every other one of a container, that begin and end while their agent dies again and
//! again: nothing of them is left.

use drover_api::allocation::{AllocatedPort, AllocatedResources, TaskResources};
use drover_api::job::JobType;
use kube::api::DeleteParams;
use serde_json::json;

use crate::agent::{eventually, shared_plane};
use crate::cluster::mounts_below;
use crate::containers_world::{ContainerNode, IMAGE};
use crate::network_place::{NODE, Pins, Place, SUBNET};

/// Of processes, and of containers.
const JOBS: [&str; 2] = ["many", "boxes"];

/// `DROVER_NETWORK_LIVES=100x10`: so many allocations, so many times over.
fn asked() -> (i64, i64) {
    let asked = std::env::var("DROVER_NETWORK_LIVES").unwrap_or_else(|_| "8x2".to_owned());
    let (allocations, times) = asked.split_once('x').expect("two numbers, as 100x10");
    (allocations.parse().expect("a number"), times.parse().expect("a number"))
}

/// `DROVER_SEED=n` replays a run.
fn seed() -> u64 {
    std::env::var("DROVER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..10_000))
}

fn resources(port: i64) -> AllocatedResources {
    let task = TaskResources { cpu: 1, memory_mb: 10, ..TaskResources::default() };
    AllocatedResources {
        tasks: [("t".to_owned(), task)].into(),
        ports: vec![AllocatedPort { label: "http".into(), value: port, to: 8080, host_ip: NODE.to_string() }],
        ..AllocatedResources::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_027_many_networks_leave_nothing_however_often_their_agent_dies() {
    let ((allocations, times), seed) = (asked(), seed());
    let mut rng = fastrand::Rng::with_seed(seed);
    let place = Place::new(shared_plane());
    let config = format!(
        "address: {NODE}\nnetwork: {{bridgeSubnet: {SUBNET}}}\n\
         gc: {{maxAllocs: 2000, diskUsagePercent: 100, inodeUsagePercent: 100}}\n"
    );
    let mut world = ContainerNode::start_by("network-lives", "", &config, place.launcher()).await;
    let _pins = Pins(world.node.path("state/netns"));
    let networks = json!([{ "mode": "bridge", "ports": [{ "label": "http", "to": 8080 }] }]);
    let config = json!({ "command": "/bin/sleep", "args": ["100000"] });
    let mut of_container = config.clone();
    of_container["image"] = json!(IMAGE);
    let tasks = [("exec", config), ("containerd", of_container)]
        .map(|(driver, config)| json!({ "name": "t", "driver": driver, "config": config }));
    for (job, task) in JOBS.iter().zip(tasks) {
        world.node.job(job, JobType::Service, json!({ "tasks": [task], "networks": networks })).await;
    }
    let mut deaths = 0;
    for time in 0..times {
        let mut names = Vec::new();
        for n in 0..allocations {
            let job = JOBS[usize::from(n % 2 == 1)];
            names.push(world.node.place(job, time * allocations + n, resources(20_000 + n)).await);
            if rng.u8(..10) == 0 {
                deaths += 1;
                world.node.kill_agent();
                world.node.start_agent();
            }
        }
        // Some are stopped before they run.
        let early = rng.usize(..=names.len() / 4);
        for name in names.iter().skip(early) {
            world.node.running(name).await;
        }
        rng.shuffle(&mut names);
        for name in &names {
            world.node.stop(name).await;
            if rng.u8(..10) == 0 {
                deaths += 1;
                world.node.kill_agent();
                world.node.start_agent();
            }
        }
        for name in &names {
            world.node.ended(name).await;
        }
        let left = place.left(world.node.path("state/netns"));
        let when = format!("seed {seed}, time {time}, after {deaths} deaths");
        assert!(left.is_empty(), "{when}: {left:?}\n{}", world.node.agent_log());
        eventually(&format!("nothing of its containers, {when}"), || world.is_empty()).await;
        // Files of allocations that have ended are kept, and with them the memory that holds their secrets.
        for name in &names {
            world.node.allocs().delete(name, &DeleteParams::default()).await.expect("deleted");
        }
        let folders = [&world.node.path(""), world.folder.path()];
        let is_free = || folders.iter().all(|folder| mounts_below(folder).is_empty());
        eventually(&format!("no mount, {when}"), is_free).await;
    }
}
