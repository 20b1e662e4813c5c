//! Driver `containerd` on this machine: what runs, how it ends, and what goes on while something is down.

use drover_api::ClientNode;
use drover_api::allocation::{ClientStatus, TaskEventType as E};
use drover_api::job::JobType;
use drover_socket::client::Reply;
use drover_socket::protocol::{Answer, Input, Request, TtySize};
use drover_testkit::process::{ProcessId, Signal};
use kube::Api;
use serde_json::{Value, json};

use crate::agent::{Node, events, eventually, messages, shared_plane, signal, status};
use crate::agent_local::{ask, begin, exec, finish, id};
use crate::containers_world::{COUNTER, ContainerNode, IMAGE, TestImage, assert_counts_on, import, script};

fn task(config: Value) -> Value {
    let mut task = script("");
    task["config"] = config;
    task
}

#[tokio::test]
async fn b_001_and_b_002_and_b_003_an_image_runs_as_it_says_and_as_the_task_says() {
    // B-002: its words are replaced. B-003: how it ended is known.
    let world = ContainerNode::start("c-image").await;
    let image = TestImage::tools("example.com/own:1").with(json!({
        "Entrypoint": ["/bin/sh", "-c"], "Cmd": ["echo $A $B; id -u; id -g; pwd; hostname >/dev/null && echo named"],
        "Env": ["A=image", "B=image", "PATH=/bin"], "User": "web", "WorkingDir": "/srv",
    }));
    let archive = world.folder.path().join("own.tar");
    std::fs::write(&archive, image.archive()).expect("an archive");
    import(&world.containerd, &archive);
    let mut own = task(json!({ "image": "example.com/own:1" }));
    own["env"] = json!({ "B": "task" });
    let replaced = task(json!({ "image": "example.com/own:1", "args": ["echo args"] }));
    let both = task(json!({ "image": "example.com/own:1", "entrypoint": ["/bin/ls"], "args": ["-d", "/alloc"] }));
    for (job, task, wanted) in [
        ("own", own, "image task\n101\n102\n/srv\nnamed\n"),
        ("replaced", replaced, "args\n"),
        ("both", both, "/alloc\n"),
    ] {
        let name = world.run(job, JobType::Batch, json!([task])).await;
        let ended = world.node.ended(&name).await;
        assert_eq!(status(&ended), ClientStatus::Complete, "{job}: {}", messages(&ended, "t"));
        assert_eq!(world.node.log_of(&ended, "t.stdout.0"), wanted, "{job}");
    }
    let name = world.run("three", JobType::Batch, json!([script("exit 3")])).await;
    let ended = world.node.ended(&name).await;
    assert!(messages(&ended, "t").contains("exit=3"), "{}", messages(&ended, "t"));
    let name = world.run("killed", JobType::Batch, json!([script("echo begun; sleep 1000")])).await;
    let running = world.node.running(&name).await;
    eventually("output", || world.node.log_of(&running, "t.stdout.0") == "begun\n").await;
    signal(world.pid(), rustix::process::Signal::KILL);
    let ended = world.node.ended(&name).await;
    assert_eq!(status(&ended), ClientStatus::Failed);
    assert!(messages(&ended, "t").contains("137"), "{}", messages(&ended, "t"));
    eventually("nothing is left in containerd", || world.is_empty()).await;
}

#[tokio::test]
async fn b_004_and_b_005_a_container_outlives_agent_and_supervisor() {
    let mut world = ContainerNode::start("c-survive").await;
    let counting = script(&format!("trap 'exit 7' TERM; ({COUNTER}) & wait"));
    let name = world.run("web", JobType::Service, json!([counting])).await;
    let running = world.node.running(&name).await;
    let pid = world.pid();
    for _ in 0..20 {
        world.node.kill_agent();
        world.node.start_agent();
        world.node.registered().await;
    }
    assert_eq!(world.pid(), pid, "the same process");
    let lines = || world.node.log_of(&running, "t.stdout.0").lines().count();
    let before = lines();
    eventually("more output", || lines() > before).await;
    // B-005: also without the supervisor, which another one replaces.
    let supervisor = world.node.supervisor_pid();
    signal(supervisor, rustix::process::Signal::KILL);
    eventually("another supervisor", || {
        std::fs::read_to_string(world.node.path("state/supervisor.pid"))
            .is_ok_and(|text| text.trim().parse() != Ok(supervisor) && !text.is_empty())
    })
    .await;
    let before = lines();
    eventually("more output", || lines() > before).await;
    assert_eq!(world.pid(), pid, "the same process");
    signal(pid, rustix::process::Signal::TERM);
    let ended = world.node.until(&name, "ended once", |it| events(it, "t").contains(&E::Terminated)).await;
    assert!(messages(&ended, "t").contains("exit=7"), "{}", messages(&ended, "t"));
    assert_counts_on(&world.node.log_of(&running, "t.stdout.0"));
}

#[tokio::test]
async fn b_006_and_b_007_ends_and_stops_are_right_while_containerd_is_down() {
    let mut world = ContainerNode::start("c-down").await;
    let wait = "echo begun; while [ ! -e /alloc/data/go ]; do sleep 0.01; done; echo last; exit 5";
    let ends = world.run("ends", JobType::Batch, json!([script(wait)])).await;
    let ending = world.node.running(&ends).await;
    let stops =
        world.run("stops", JobType::Service, json!([script("trap '' TERM; echo up; while :; do sleep 1; done")])).await;
    let stopping = world.node.running(&stops).await;
    eventually("output", || world.node.log_of(&stopping, "t.stdout.0") == "up\n").await;
    assert_eq!(world.containers().len(), 2);
    world.containerd.kill().expect("killed");
    std::fs::write(world.node.path("allocs").join(id(&ending)).join("alloc/data/go"), "").expect("a file");
    let ended = world.node.ended(&ends).await;
    assert!(messages(&ended, "t").contains("exit=5"), "{}", messages(&ended, "t"));
    assert_eq!(world.node.log_of(&ended, "t.stdout.0"), "begun\nlast\n", "to its last line");
    // B-007: it ignores its signal, and is ended after its grace.
    world.node.stop(&stops).await;
    let stopped = world.node.ended(&stops).await;
    assert!(messages(&stopped, "t").contains("137"), "{}", messages(&stopped, "t"));
    let node: Api<ClientNode> = Api::all(world.node.client.clone());
    let driver = async || {
        let found = node.get("c-down").await.expect("a node");
        let print = found.status.and_then(|status| status.fingerprint).unwrap_or_default();
        print.drivers.get("containerd").cloned().unwrap_or_default()
    };
    let mut ill = driver().await;
    while ill.healthy {
        tokio::task::yield_now().await;
        ill = driver().await;
    }
    assert!(ill.detected && ill.description.contains("containerd does not answer at"), "{}", ill.description);
    world.containerd.start_again().expect("a containerd");
    eventually("what was left is taken away", || world.is_empty()).await;
}

#[tokio::test]
async fn b_008_and_b_010_one_shim_looks_after_an_allocation_and_its_end_is_that_of_its_containers() {
    let world = ContainerNode::start("c-shims").await;
    let mut second = script("sleep 1000");
    second["name"] = json!("u");
    let both = world.run("both", JobType::Service, json!([script("sleep 1000"), second])).await;
    world.node.running(&both).await;
    assert_eq!((world.containers().len(), world.containerd.shims().len()), (2, 1));
    let mut again = script("sleep 1000");
    again["restart"] = json!({ "attempts": 1, "interval": "1m", "delay": "100ms", "mode": "fail" });
    let other = world.run("other", JobType::Service, json!([again])).await;
    let uid = id(&world.node.running(&other).await);
    let shims = world.containerd.shims();
    assert_eq!(shims.len(), 2, "another allocation has another");
    let its = shims.into_iter().find(|shim| {
        std::fs::read_to_string(format!("/proc/{}/cmdline", shim.pid)).is_ok_and(|line| line.contains(&uid))
    });
    its.expect("its shim").signal(Signal::KILL).expect("killed");
    let restarted = world
        .node
        .until(&other, "restarted", |it| {
            it.status.as_ref().is_some_and(|status| status.task_states["t"].restarts == 1)
                && status(it) == ClientStatus::Running
                && events(it, "t").last() == Some(&E::Started)
        })
        .await;
    assert!(messages(&restarted, "t").contains("137"), "{}", messages(&restarted, "t"));
}

#[tokio::test]
async fn b_009_a_start_that_is_broken_off_leaves_one_container_and_nothing_else() {
    let mut world = ContainerNode::start("c-crash").await;
    for n in 0..12_u64 {
        let job = format!("job{n}");
        let name = world.run(&job, JobType::Service, json!([script("echo begun; sleep 1000")])).await;
        let begun = std::time::Instant::now();
        let moment = std::time::Duration::from_millis(25 * n);
        eventually("a moment of the start", || begun.elapsed() >= moment).await;
        world.node.kill_agent();
        world.node.start_agent();
        world.node.registered().await;
        let running = world.node.running(&name).await;
        eventually("its output", || world.node.log_of(&running, "t.stdout.0").contains("begun")).await;
        eventually("one container and no other", || {
            let found = world.containers();
            found.len() == 1 && found[0].starts_with(&id(&running)) && world.containerd.shims().len() == 1
        })
        .await;
        world.node.stop(&name).await;
        world.node.ended(&name).await;
        eventually("nothing is left", || world.is_empty()).await;
    }
}

/// A runtime that waits in the middle of making a container.
fn waiting_runc(dir: &std::path::Path) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = dir.join("waiting-runc");
    let wait = format!("echo made >> {0}/made; while [ ! -e {0}/go ]; do sleep 0.02; done", dir.display());
    let text = format!("#!/bin/sh\ncase \" $* \" in *' create '*) {wait};; esac\nexec runc \"$@\"\n");
    std::fs::write(&path, text).expect("a runtime");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it runs");
    path
}

/// Processes of the agent that make containers.
fn helpers(agent: u32) -> Vec<ProcessId> {
    let agent = ProcessId::of(i32::try_from(agent).expect("a pid"));
    let below = agent.map(ProcessId::descendants).unwrap_or_default();
    below.into_iter().filter(|process| process.words().iter().any(|word| word == "make-container")).collect()
}

#[tokio::test]
async fn b_009_a_container_that_is_being_made_when_the_agent_dies_is_made_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = format!(", runc: {}", waiting_runc(dir.path()).display());
    let mut world = ContainerNode::start_with("c-making", &settings).await;
    let (made, go) = (dir.path().join("made"), dir.path().join("go"));
    let n_made = || std::fs::read_to_string(&made).unwrap_or_default().lines().count();
    // The first one's helper begins with it, the other's has waited for it.
    for has_waited in [false, true] {
        if has_waited {
            let name = world.run("before", JobType::Service, json!([script("sleep 1000")])).await;
            world.node.running(&name).await;
            world.node.stop(&name).await;
            world.node.ended(&name).await;
            let agent = world.node.agent_pid();
            eventually("a helper waits", || helpers(agent).len() == 1).await;
            eventually("nothing is left", || world.is_empty()).await;
            std::fs::remove_file(&go).expect("removed");
        }
        let (job, n_before) = (format!("web-{has_waited}"), n_made());
        let waiting = helpers(world.node.agent_pid());
        let name = world.run(&job, JobType::Service, json!([script("echo begun; sleep 1000")])).await;
        eventually("a container on its way", || n_made() > n_before).await;
        let making = helpers(world.node.agent_pid());
        assert!(waiting.is_empty() || making == waiting, "{making:?} after {waiting:?}");
        world.node.kill_agent();
        world.node.start_agent();
        world.node.registered().await;
        std::fs::write(&go, "").expect("a word");
        let running = world.node.running(&name).await;
        eventually("its output", || world.node.log_of(&running, "t.stdout.0").contains("begun")).await;
        assert_eq!((n_made(), world.containers().len(), world.containerd.shims().len()), (n_before + 1, 1, 1));
        world.node.stop(&name).await;
        world.node.ended(&name).await;
        eventually("nothing is left", || world.is_empty()).await;
    }
}

#[tokio::test]
async fn a_helper_that_waits_ends_with_its_agent() {
    let mut world = ContainerNode::start("c-helper").await;
    let name = world.run("web", JobType::Service, json!([script("sleep 1000")])).await;
    world.node.running(&name).await;
    let agent = world.node.agent_pid();
    eventually("a helper waits", || helpers(agent).len() == 1).await;
    let helper = helpers(agent)[0];
    world.node.kill_agent();
    eventually("it has ended", || !helper.is_alive()).await;
    world.node.start_agent();
    world.node.registered().await;
}

#[tokio::test]
async fn b_011_too_much_memory_ends_a_container_and_usage_is_counted() {
    let world = ContainerNode::start("c-oom").await;
    let name = world.run("hog", JobType::Batch, json!([script("exec tail /dev/zero")])).await;
    let ended = world.node.ended(&name).await;
    let state = &ended.status.as_ref().expect("a status").task_states["t"];
    let end = state.events.iter().find(|event| event.r#type == E::Terminated).expect("an end");
    assert!(end.oom_killed && end.message.contains("memory limit 48 MiB"), "{end:?}");
    let name = world.run("busy", JobType::Service, json!([script("while :; do :; done")])).await;
    let uid = id(&world.node.running(&name).await);
    let mut samples = begin(&world.node, &Request::Stats { allocation: uid, every_ms: Some(300) }).await;
    loop {
        let Some(Reply::Answer(Answer::Stats(sample))) = samples.replies.next().await.expect("a reply") else {
            panic!("no sample");
        };
        let task = sample.tasks.get("t").copied().unwrap_or_default();
        if task.cpu_fraction > 0.1 && task.memory_bytes > 0 && task.pids == 1 {
            break;
        }
    }
}

#[tokio::test]
async fn b_012_commands_run_in_a_container_with_a_terminal_and_without() {
    let world = ContainerNode::start("c-exec").await;
    let mut task = script("echo begun; sleep 1000");
    task["config"]["hostname"] = json!("boxed");
    let name = world.run("web", JobType::Service, json!([task])).await;
    let running = world.node.running(&name).await;
    let uid = id(&running);
    let got = ask(&world.node, exec(&uid, &["/bin/sh", "-c", "echo $NOMAD_TASK_NAME; id -u; hostname; exit 7"])).await;
    assert_eq!((got.out.as_str(), &got.answers[..]), ("t\n0\nboxed\n", &[Answer::Exited { exit_code: 7 }][..]));
    let request = Request::Exec {
        allocation: uid.clone(),
        task: "t".into(),
        command: ["/bin/sh", "-c", "stty size; while [ \"$(stty size)\" != '44 99' ]; do sleep 0.05; done; exit 7"]
            .map(str::to_owned)
            .to_vec(),
        tty: true,
        size: Some(TtySize { height: 33, width: 111 }),
    };
    let mut sized = begin(&world.node, &request).await;
    let Some(Reply::Data(first)) = sized.replies.next().await.expect("a reply") else { panic!("no output") };
    assert_eq!(String::from_utf8_lossy(&first), "33 111\r\n");
    sized.inputs.tell(Input::Resize(TtySize { height: 44, width: 99 })).await.expect("sent");
    assert_eq!(finish(&mut sized).await.answers, [Answer::Exited { exit_code: 7 }]);
    world.node.stop(&name).await;
    world.node.ended(&name).await;
    assert_eq!(ask(&world.node, exec(&uid, &["/bin/true"])).await.code(), 404);
}

#[tokio::test]
async fn b_019_and_b_020_what_the_node_does_not_give_is_refused_and_docker_is_the_same_driver() {
    let world = ContainerNode::start("c-refused").await;
    for (job, more, named) in [
        ("privileged", json!({ "privileged": true }), "drivers.containerd.allowPrivileged"),
        ("path", json!({ "volumes": ["/etc:/host"] }), "drivers.containerd.volumes"),
        ("raw", json!({ "capAdd": ["net_raw"] }), "drivers.containerd.allowCaps"),
    ] {
        let mut task = script("echo no");
        task["config"].as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let name = world.run(job, JobType::Batch, json!([task])).await;
        let ended = world.node.ended(&name).await;
        assert_eq!(status(&ended), ClientStatus::Failed, "{job}");
        assert!(messages(&ended, "t").contains(named), "{job}: {}", messages(&ended, "t"));
    }
    let name = world.run_in("host", JobType::Batch, json!({ "tasks": [script("echo no")] })).await;
    let ended = world.node.ended(&name).await;
    assert!(messages(&ended, "t").contains("networks: [{mode: none}]"), "{}", messages(&ended, "t"));
    // B-020
    let mut docker = script("echo docker");
    docker["driver"] = json!("docker");
    docker["config"]["cap_add"] = json!(["chown"]);
    docker["config"]["readonly_rootfs"] = json!(true);
    let name = world.run("docker", JobType::Batch, json!([docker])).await;
    let ended = world.node.ended(&name).await;
    assert_eq!(world.node.log_of(&ended, "t.stdout.0"), "docker\n", "{}", messages(&ended, "t"));
    let nodes: Api<ClientNode> = Api::all(world.node.client.clone());
    let print = nodes.get("c-refused").await.expect("a node").status.and_then(|status| status.fingerprint);
    let attributes = print.unwrap_or_default().attributes;
    assert_eq!(attributes.get("driver.docker").map(String::as_str), Some("1"));
    assert_eq!(attributes.get("driver.containerd").map(String::as_str), Some("1"));
}

#[tokio::test]
async fn b_022_containers_of_others_are_left_alone() {
    let mut world = ContainerNode::start("c-others").await;
    let archive = world.folder.path().join("tools.tar");
    let archive = archive.display().to_string();
    world.containerd.ctr_in("k8s.io", &["images", "import", "--local", &archive]).expect("an image");
    world.containerd.ctr_in("k8s.io", &["containers", "create", IMAGE, "other"]).expect("a container");
    world.containerd.ctr(&["containers", "create", IMAGE, "by-hand"]).expect("a container");
    let name = world.run("web", JobType::Service, json!([script("sleep 1000")])).await;
    world.node.running(&name).await;
    world.node.kill_agent();
    world.node.start_agent();
    world.node.registered().await;
    world.node.stop(&name).await;
    world.node.ended(&name).await;
    eventually("its container is gone", || world.containers() == ["by-hand"]).await;
    assert_eq!(world.containerd.ctr_in("k8s.io", &["containers", "ls", "-q"]).expect("a list"), "other\n");
}

#[tokio::test]
async fn b_023_a_node_without_containerd_says_so() {
    let config = "drivers: {containerd: {address: /no/such/containerd.sock}}\n";
    let node = Node::start_with(shared_plane(), "c-none", config).await;
    let nodes: Api<ClientNode> = Api::all(node.client.clone());
    let print = nodes.get("c-none").await.expect("a node").status.and_then(|status| status.fingerprint);
    let print = print.unwrap_or_default();
    for name in ["containerd", "docker"] {
        let driver = &print.drivers[name];
        assert!(!driver.detected && driver.description.contains("/no/such/containerd.sock"), "{driver:?}");
        assert!(!print.attributes.contains_key(&format!("driver.{name}")));
    }
}

#[tokio::test]
async fn b_024_root_memory_limits_and_parameters_are_as_asked() {
    let world = ContainerNode::start("c-asked").await;
    let text = "mkdir /x 2>/dev/null || echo readonly; echo y > /cache/y && cat /cache/y; ulimit -n; \
                cat /proc/sys/net/core/somaxconn; cat /proc/mounts";
    let mut task = script(text);
    task["config"].as_object_mut().expect("an object").extend(
        json!({
            "readonlyRootfs": true, "mounts": [{ "type": "tmpfs", "target": "/cache", "sizeMB": 4 }],
            "ulimit": { "nofile": "77:88" }, "sysctl": { "net.core.somaxconn": "16" }, "shmSizeMB": 8,
        })
        .as_object()
        .expect("an object")
        .clone(),
    );
    let name = world.run("asked", JobType::Batch, json!([task])).await;
    let ended = world.node.ended(&name).await;
    let log = world.node.log_of(&ended, "t.stdout.0");
    assert_eq!(log.lines().take(4).collect::<Vec<_>>(), ["readonly", "y", "77", "16"], "{}", messages(&ended, "t"));
    let mounted = |target: &str| log.lines().find(|line| line.split(' ').nth(1) == Some(target)).unwrap_or_default();
    assert!(mounted("/dev/shm").contains("size=8192k"), "{log}");
    assert!(mounted("/cache").contains("size=4096k"), "{log}");
    for shared in ["/alloc", "/local", "/secrets"] {
        assert!(mounted(shared).contains("nosuid,nodev"), "{shared}: {log}");
    }
    assert!(mounted("/").contains("ro,") || mounted("/").contains(" ro"), "{log}");
}

#[tokio::test]
async fn must_survive_what_a_container_tries_against_the_node() {
    let world = ContainerNode::start("c-escape").await;
    let text = "(echo x > /proc/sys/kernel/hostname) 2>/dev/null || echo parameters; \
                (echo x > /sys/kernel/mm/ksm/run) 2>/dev/null || echo sysfs; \
                while read -r name value; do case $name in \
                Seccomp:|NoNewPrivs:|CapEff:) echo $name $value;; esac; done < /proc/self/status";
    let name = world.run("tries", JobType::Batch, json!([script(text)])).await;
    let ended = world.node.ended(&name).await;
    let log = world.node.log_of(&ended, "t.stdout.0");
    assert_eq!(status(&ended), ClientStatus::Complete, "{}", messages(&ended, "t"));
    // CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE
    let wanted = ["parameters", "sysfs", "CapEff: 00000000000005fb", "NoNewPrivs: 1", "Seccomp: 2"];
    assert_eq!(log.lines().collect::<Vec<_>>(), wanted, "{log}");
}

#[tokio::test]
async fn the_example_of_a_container_runs() {
    let world = ContainerNode::start("c-example").await;
    let text = std::fs::read_to_string(drover_testkit::workspace::root().join("examples/container.yaml"));
    let job: Value = serde_saphyr::from_str(&text.expect("the example")).expect("a manifest");
    let group = job["spec"]["groups"][0].clone();
    let image = group["tasks"][0]["config"]["image"].as_str().expect("an image").to_owned();
    let mut tools = TestImage::tools(&image);
    tools.add_program("tee");
    let archive = world.folder.path().join("busybox.tar");
    std::fs::write(&archive, tools.archive()).expect("an archive");
    import(&world.containerd, &archive);
    let name = world
        .run_in("container", JobType::Batch, json!({ "networks": group["networks"], "tasks": group["tasks"] }))
        .await;
    let ended = world.node.ended(&name).await;
    assert_eq!(world.node.log_of(&ended, "greet.stdout.0"), "hello from greet\n", "{}", messages(&ended, "greet"));
}
