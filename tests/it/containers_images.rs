//! Images of driver `containerd`: where they come from, how long they stay, and what is reported when there is none.

use drover_api::allocation::ClientStatus;
use drover_api::job::JobType;
use serde_json::{Value, json};

use crate::agent::{eventually, messages, status};
use crate::agent_local::id;
use crate::containers_world::{ContainerNode, Manner, TestImage, TestRegistry, import, script};

/// A task that runs the image as it is.
fn of_image(image: &str) -> Value {
    let mut task = script("");
    task["config"] = json!({ "image": image });
    task
}

/// An image that says a word.
fn saying(word: &str) -> TestImage {
    TestImage::tools("example.com/x:1").with(json!({ "Cmd": ["/bin/sh", "-c", format!("echo {word}; sleep 1000")] }))
}

#[tokio::test]
async fn b_014_what_a_registry_does_not_give_is_said_with_its_name() {
    let world = ContainerNode::start("i-missing").await;
    let (serves, refuses, hangs) =
        (TestRegistry::start(Manner::Serve), TestRegistry::start(Manner::Refuse), TestRegistry::start(Manner::Hang));
    let mut other = saying("no");
    other.architecture = "s390x";
    let other = serves.push("other:1", &other);
    for (job, image, wanted) in [
        ("missing", format!("{}/none:1", serves.address), "correct config.image, or push it there"),
        ("refused", format!("{}/web:1", refuses.address), "wants credentials"),
        ("hangs", format!("{}/web:1", hangs.address), "config.imagePullTimeout gives it longer"),
        ("elsewhere", other, "s390x"),
    ] {
        let mut task = of_image(&image);
        task["config"]["imagePullTimeout"] = json!("2s");
        let name = world.run(job, JobType::Batch, json!([task])).await;
        let ended = world.node.ended(&name).await;
        assert_eq!(status(&ended), ClientStatus::Failed, "{job}");
        let said = messages(&ended, "t");
        let registry = image.split('/').next().unwrap_or_default();
        assert!(said.contains(wanted) && said.contains(registry), "{job}: {said}");
    }
    // Where another try may help the policy of restarts decides.
    let mut again = of_image(&format!("{}/later:1", serves.address));
    again["restart"] = json!({ "attempts": 1000, "interval": "24h", "delay": "200ms", "mode": "delay" });
    let name = world.run("later", JobType::Service, json!([again])).await;
    world
        .node
        .until(&name, "tried", |it| {
            it.status.as_ref().and_then(|status| status.task_states.get("t")).is_some_and(|task| task.restarts > 0)
        })
        .await;
    serves.push("later:1", &saying("here"));
    world.node.running(&name).await;
}

#[tokio::test]
async fn a_program_that_the_image_lacks_is_the_definitions_fault() {
    let world = ContainerNode::start("i-program").await;
    let mut task = script("");
    task["config"]["command"] = json!("/no/such/program");
    let name = world.run("lacks", JobType::Batch, json!([task])).await;
    let ended = world.node.ended(&name).await;
    let said = messages(&ended, "t");
    assert!(said.contains("/no/such/program") && said.contains("correct config.command"), "{said}");
    eventually("nothing is left in containerd", || world.is_empty()).await;
}

#[tokio::test]
async fn b_015_an_image_is_downloaded_once_for_all_who_wait() {
    let world = ContainerNode::start("i-once").await;
    let registry = TestRegistry::start(Manner::Serve);
    let mut own = saying("here");
    own.add("own", b"a layer that no other image has", 0o644);
    let image = registry.push("web:1", &own);
    let tasks: Vec<Value> = (0..10)
        .map(|n| {
            let mut task = of_image(&image);
            task["name"] = json!(format!("t{n}"));
            task
        })
        .collect();
    let name = world.run("ten", JobType::Service, json!(tasks)).await;
    world.node.running(&name).await;
    eventually("ten containers run", || world.pids().len() == 10).await;
    assert_eq!((registry.most_downloads(), world.containerd.shims().len()), (1, 1));
}

#[tokio::test]
async fn b_016_an_allocation_keeps_its_image_although_the_tag_moves() {
    let world = ContainerNode::start("i-keeps").await;
    let registry = TestRegistry::start(Manner::Serve);
    let image = registry.push("web:1", &saying("old"));
    let mut forced = of_image(&image);
    forced["config"]["forcePull"] = json!(true);
    let kept = world.run("kept", JobType::Service, json!([of_image(&image)])).await;
    let kept_alloc = world.node.running(&kept).await;
    let moves = world.run("moves", JobType::Service, json!([forced])).await;
    let moves_alloc = world.node.running(&moves).await;
    registry.push("web:1", &saying("new"));
    for (allocation, wanted) in [(&moves_alloc, "old\nnew\n"), (&kept_alloc, "old\nold\n")] {
        eventually("its word", || world.node.log_of(allocation, "t.stdout.0") == "old\n").await;
        let request = drover_socket::protocol::Request::Restart {
            allocation: id(allocation),
            task: Some("t".into()),
            all_tasks: false,
        };
        crate::agent_local::ask(&world.node, request).await;
        eventually("its word after the restart", || world.node.log_of(allocation, "t.stdout.0").lines().count() == 2)
            .await;
        assert_eq!(world.node.log_of(allocation, "t.stdout.0"), wanted);
    }
}

#[tokio::test]
async fn b_017_an_image_that_no_task_uses_goes_and_one_that_is_used_stays() {
    let world = ContainerNode::start_with("i-unused", ", imageDelay: 2s").await;
    let registry = TestRegistry::start(Manner::Serve);
    let (used, unused) = (registry.push("used:1", &saying("a")), registry.push("unused:1", &saying("b")));
    let stays = world.run("stays", JobType::Service, json!([of_image(&used)])).await;
    world.node.running(&stays).await;
    let goes = world.run("goes", JobType::Service, json!([of_image(&unused)])).await;
    world.node.running(&goes).await;
    world.node.stop(&goes).await;
    world.node.ended(&goes).await;
    let images = || world.containerd.ctr(&["images", "ls", "-q"]).expect("a list");
    eventually("the unused image is gone", || !images().contains(&unused)).await;
    assert!(images().contains(&used), "{}", images());
}

#[tokio::test]
async fn b_018_an_archive_that_another_task_wrote_is_taken_in() {
    let world = ContainerNode::start_with("i-load", ", allowHostNamespaces: true").await;
    let image = TestImage::tools("example.com/loaded:1").with(json!({ "Cmd": ["/bin/sh", "-c", "echo loaded"] }));
    let archive = world.folder.path().join("loaded.tar");
    std::fs::write(&archive, image.archive()).expect("an archive");
    let copy = format!("cp {} \"$NOMAD_ALLOC_DIR/data/i.tar\"", archive.display());
    let writer = json!({
        "name": "writer", "driver": "raw_exec", "lifecycle": { "hook": "prestart" },
        "config": { "command": "/bin/sh", "args": ["-c", copy] },
    });
    let mut task = of_image("example.com/loaded:1");
    task["config"]["load"] = json!("/alloc/data/i.tar");
    // The writer is in the network of the node, and so is what it writes for.
    task["config"]["networkMode"] = json!("host");
    let name = world.run_in("load", JobType::Batch, json!({ "tasks": [writer, task] })).await;
    let ended = world.node.ended(&name).await;
    assert_eq!(world.node.log_of(&ended, "t.stdout.0"), "loaded\n", "{}", messages(&ended, "t"));
    let mut wrong = of_image("example.com/other:1");
    wrong["config"]["load"] = json!("/alloc/data/none.tar");
    let name = world.run("wrong", JobType::Batch, json!([wrong])).await;
    let ended = world.node.ended(&name).await;
    assert!(messages(&ended, "t").contains("config.load"), "{}", messages(&ended, "t"));
}

#[tokio::test]
async fn a_snapshotter_that_containerd_lacks_is_named_with_the_setting() {
    let world = ContainerNode::start_with("i-layers", ", snapshotter: nosuch").await;
    let nodes: kube::Api<drover_api::ClientNode> = kube::Api::all(world.node.client.clone());
    let print = nodes.get("i-layers").await.expect("a node").status.and_then(|status| status.fingerprint);
    let driver = print.unwrap_or_default().drivers["containerd"].clone();
    assert!(!driver.healthy && driver.description.contains("drivers.containerd.snapshotter"), "{driver:?}");
}

#[tokio::test]
async fn an_image_that_was_brought_by_hand_is_not_pulled() {
    let world = ContainerNode::start("i-by-hand").await;
    let image = TestImage::tools("registry.invalid/own:1").with(json!({ "Cmd": ["/bin/sh", "-c", "echo own"] }));
    let archive = world.folder.path().join("own.tar");
    std::fs::write(&archive, image.archive()).expect("an archive");
    import(&world.containerd, &archive);
    let name = world.run("own", JobType::Batch, json!([of_image("registry.invalid/own:1")])).await;
    let ended = world.node.ended(&name).await;
    assert_eq!(world.node.log_of(&ended, "t.stdout.0"), "own\n", "{}", messages(&ended, "t"));
}

#[tokio::test]
async fn layers_that_are_not_unpacked_are_unpacked() {
    let world = ContainerNode::start_with("i-unpack", ", snapshotter: native").await;
    let image = TestImage::tools("example.com/packed:1").with(json!({ "Cmd": ["/bin/sh", "-c", "echo unpacked"] }));
    let archive = world.folder.path().join("packed.tar");
    std::fs::write(&archive, image.archive()).expect("an archive");
    world
        .containerd
        .ctr(&["images", "import", "--local", "--no-unpack", &archive.display().to_string()])
        .expect("an image");
    let name = world.run("packed", JobType::Batch, json!([of_image("example.com/packed:1")])).await;
    let ended = world.node.ended(&name).await;
    assert_eq!(world.node.log_of(&ended, "t.stdout.0"), "unpacked\n", "{}", messages(&ended, "t"));
}
