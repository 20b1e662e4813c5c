//! Networks of containers whose groups are in the network of the node.

use std::os::unix::fs::MetadataExt as _;

use drover_api::Allocation;
use drover_api::allocation::ClientStatus;
use drover_api::job::JobType;
use drover_testkit::examples;
use drover_testkit::progress::Progress;
use serde_json::{Value, json};

use crate::agent::{eventually, messages, shared_plane, status};
use crate::containers_world::{ContainerNode, IMAGE, TestImage, import, script};
use crate::network_place::{NODE, Pins, Place, SUBNET};
use crate::networks::resources;

/// A name of the image that has a web server too.
const SERVER: &str = "example.com/server:1";

/// A group in the node's network, whose only task has these settings too.
fn group(text: &str, more: &Value) -> Value {
    let mut task = script(text);
    task["restart"] = json!({ "attempts": 3, "interval": "1h", "delay": "1s", "mode": "fail" });
    task["config"].as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({ "networks": [{ "ports": [{ "label": "http", "to": 8080 }] }], "tasks": [task] })
}

fn restarts(allocation: &Allocation) -> i64 {
    allocation.status.as_ref().map_or(0, |status| status.task_states.get("t").map_or(0, |state| state.restarts))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_026_a_container_beside_the_nodes_network_has_its_ports_mapped_or_is_in_it() {
    let place = Place::new(shared_plane());
    let network = format!("address: {NODE}\nnetwork: {{bridgeSubnet: {SUBNET}}}\n");
    let may = ", allowHostNamespaces: true";
    let mut world = ContainerNode::start_by("c-networks", may, &network, place.launcher()).await;
    let _pins = Pins(world.node.path("state/netns"));
    let program = examples::build_web_server(&Progress::silent()).expect("the example's web server");
    let mut image = TestImage::tools(SERVER);
    image.add_linked("web", &program);
    let archive = world.folder.path().join("server.tar");
    std::fs::write(&archive, image.archive()).expect("an archive");
    import(&world.containerd, &archive);

    // Its first run ends by itself: the next one is in the same network.
    let serve = "echo $NOMAD_PORT_http; export NOMAD_IP_http=0.0.0.0; \
                 if [ -e /local/again ]; then exec /bin/web; fi; /bin/web & sleep 1; echo > /local/again; exit 1";
    let with_ports = group(serve, &json!({ "image": SERVER, "ports": ["http"] }));
    world.node.job("web", JobType::Service, with_ports).await;
    let name = world.node.place("web", 0, resources(21_000, &["t"])).await;
    let again = world.node.until(&name, "started again", |it| restarts(it) == 1).await;
    let ok = || place.pod.get((NODE, 21_000)).is_ok_and(|answer| answer.contains("200 OK"));
    eventually("an answer to a pod", ok).await;
    assert!(world.node.log_of(&again, "t.stdout.0").starts_with("8080\n"), "{}", messages(&again, "t"));
    world.node.kill_agent();
    world.node.start_agent();
    eventually("an answer after the agent's death", ok).await;

    // Without `ports` nothing leads into it.
    let closed = group(&format!("echo > /local/again; {serve}"), &json!({ "image": SERVER }));
    world.node.job("closed", JobType::Service, closed).await;
    let other = world.node.place("closed", 0, resources(21_001, &["t"])).await;
    let running = world.node.running(&other).await;
    eventually("it listens", || world.node.log_of(&running, "t.stdout.0").contains("listening")).await;
    assert!(place.pod.get((NODE, 21_001)).is_err());

    let look = "ls -iL /proc/self/ns/net";
    world.node.job("host", JobType::Batch, group(look, &json!({ "image": IMAGE, "networkMode": "host" }))).await;
    let of_host = world.node.place("host", 0, resources(21_002, &["t"])).await;
    let ended = world.node.ended(&of_host).await;
    // Containerd's own: in this test it is not in the agent's place.
    let own = std::fs::metadata("/proc/self/ns/net").expect("a namespace").ino();
    assert_eq!(
        world.node.log_of(&ended, "t.stdout.0"),
        format!("{own} /proc/self/ns/net\n"),
        "{}",
        messages(&ended, "t")
    );

    world.node.job("wrong", JobType::Batch, group(look, &json!({ "image": IMAGE, "ports": ["https"] }))).await;
    let wrong = world.node.place("wrong", 0, resources(21_003, &["t"])).await;
    let wrong = world.node.ended(&wrong).await;
    assert_eq!(status(&wrong), ClientStatus::Failed);
    let reason = "config.ports: the group's networks have no port https; add it there, or correct it";
    assert!(messages(&wrong, "t").contains(reason), "{}", messages(&wrong, "t"));

    for name in [&name, &other] {
        world.node.stop(name).await;
        world.node.ended(name).await;
    }
    assert!(place.pod.get((NODE, 21_000)).is_err(), "its port is closed");
    let left = place.left(world.node.path("state/netns"));
    assert!(left.is_empty(), "{left:?}");
}
