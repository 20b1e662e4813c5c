//! Networks of many allocations that begin and end while their agent dies again and again: nothing of them is left.

use drover_api::allocation::{AllocatedPort, AllocatedResources, TaskResources};
use drover_api::job::JobType;
use serde_json::json;

use crate::agent::{Node, shared_plane};
use crate::network_place::{NODE, Pins, Place, SUBNET};

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
        "address: {NODE}\ndrivers: {{exec: {{enabled: true}}}}\nnetwork: {{bridgeSubnet: {SUBNET}}}\n\
         gc: {{maxAllocs: 2000, diskUsagePercent: 100, inodeUsagePercent: 100}}\n"
    );
    let mut node = Node::start_by(shared_plane(), "network-lives", &config, place.launcher()).await;
    let _pins = Pins(node.path("state/netns"));
    let task = json!({ "name": "t", "driver": "exec", "config": { "command": "/bin/sleep", "args": ["100000"] } });
    let networks = json!([{ "mode": "bridge", "ports": [{ "label": "http", "to": 8080 }] }]);
    node.job("many", JobType::Service, json!({ "tasks": [task], "networks": networks })).await;
    let mut deaths = 0;
    for time in 0..times {
        let mut names = Vec::new();
        for n in 0..allocations {
            names.push(node.place("many", time * allocations + n, resources(20_000 + n)).await);
            if rng.u8(..10) == 0 {
                deaths += 1;
                node.kill_agent();
                node.start_agent();
            }
        }
        // Some are stopped before they run.
        let early = rng.usize(..=names.len() / 4);
        for name in names.iter().skip(early) {
            node.running(name).await;
        }
        rng.shuffle(&mut names);
        for name in &names {
            node.stop(name).await;
            if rng.u8(..10) == 0 {
                deaths += 1;
                node.kill_agent();
                node.start_agent();
            }
        }
        for name in &names {
            node.ended(name).await;
        }
        let left = place.left(node.path("state/netns"));
        assert!(left.is_empty(), "seed {seed}, time {time}, after {deaths} deaths: {left:?}\n{}", node.agent_log());
    }
}
