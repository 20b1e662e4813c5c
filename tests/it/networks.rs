//! Allocations with networks of their own: real agents and tasks, in network namespaces that the tests make.

use std::net::Ipv4Addr;
use std::path::Path;

use drover_api::allocation::{
    AllocatedPort, AllocatedResources, CheckResult, ClientStatus, ServiceRegistration, TaskResources,
};
use drover_api::job::JobType;
use drover_api::{Allocation, ClientNode};
use drover_testkit::network_plugins;
use drover_testkit::process::{ProcessId, Signal};
use drover_testkit::progress::Progress;
use kube::Api;
use serde_json::{Value, json};

use crate::agent::{Node, eventually, messages, shared_plane, status};
use crate::network_place::{NODE, Pins, Place, SUBNET, web_answer};

fn config() -> String {
    format!("address: {NODE}\ndrivers: {{exec: {{enabled: true}}}}\nnetwork: {{bridgeSubnet: {SUBNET}}}\n")
}

/// The group of the example, as one of `Node::job`.
fn example_group() -> Value {
    let text = include_str!("../../examples/networks/bridge.yaml");
    let job: Value = serde_saphyr::from_str(text).expect("a manifest");
    let mut group = job["spec"]["groups"][0].clone();
    group["name"] = json!("g");
    group["count"] = json!(1);
    group
}

pub(crate) fn resources(port: i64, tasks: &[&str]) -> AllocatedResources {
    let task = TaskResources { cpu: 20, memory_mb: 64, ..TaskResources::default() };
    AllocatedResources {
        tasks: tasks.iter().map(|name| ((*name).to_owned(), task.clone())).collect(),
        ports: vec![AllocatedPort { label: "http".into(), value: port, to: 8080, host_ip: NODE.to_string() }],
        ..AllocatedResources::default()
    }
}

/// What the node's object says: the modes, and what does not work.
async fn offer(node: &Node<'_>) -> (Vec<String>, Value) {
    let found = Api::<ClientNode>::all(node.client.clone()).get(&node.name).await.expect("a node");
    let print = found.status.and_then(|status| status.fingerprint).expect("a fingerprint");
    (print.network_modes, json!(print.agent_problems))
}

fn address(allocation: &Allocation) -> String {
    let network = allocation.status.as_ref().and_then(|status| status.network.clone());
    network.map(|network| network.address).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_025_a_task_on_the_bridge_is_reached_from_everywhere() {
    // B-027: its end leaves nothing.
    let place = Place::new(shared_plane());
    let node = Node::start_by(shared_plane(), "bridge", &config(), place.launcher()).await;
    let _pins = Pins(node.path("state/netns"));
    assert_eq!(offer(&node).await, (vec!["bridge".to_owned()], json!({})));
    node.job("web", JobType::Service, example_group()).await;
    let first = node.place("web", 0, resources(21_000, &["server", "beside"])).await;
    let passes = |it: &Allocation| {
        it.status.as_ref().is_some_and(|status| {
            !status.checks.is_empty() && status.checks.values().all(|check| check.status == CheckResult::Success)
        })
    };
    let first_running = node.until(&first, "checked", passes).await;
    // Only now, so that addresses are given in this order.
    let second = node.place("web", 1, resources(21_001, &["server", "beside"])).await;
    let second_running = node.until(&second, "checked", passes).await;
    assert_eq!([address(&first_running), address(&second_running)], ["172.26.64.2", "172.26.64.3"]);
    for port in [21_000, 21_001] {
        for (from, namespace) in [("a pod", &place.pod), ("the node", &place.node)] {
            let answer = namespace.get((NODE, port)).unwrap_or_else(|error| format!("{port} from {from}: {error}"));
            assert!(answer.contains("200 OK"), "{answer}");
        }
    }
    // The task beside it asks over the loopback device that they share, and over the node's port.
    for (allocation, port) in [(&first_running, 21_000), (&second_running, 21_001)] {
        for wanted in ["127.0.0.1:8080 200\n".to_owned(), format!("{NODE}:{port} 200\n")] {
            eventually(&wanted, || node.log_of(allocation, "beside.stdout.0").contains(&wanted)).await;
        }
    }
    // A neighbour, over the node's port and over the bridge; and what tasks are told of it all.
    let script = format!(
        "import os, urllib.request\n\
         for where in ('{NODE}:21000', '172.26.64.2:8080'):\n    print(where, urllib.request.urlopen('http://' + where, timeout=5).status)\n\
         print(*(os.environ['NOMAD_' + name + '_http'] for name in ('PORT', 'IP', 'ADDR', 'HOST_PORT', 'ALLOC_IP', 'ALLOC_ADDR', 'ALLOC_INTERFACE')))\n"
    );
    let asks = json!({ "name": "t", "driver": "exec", "config": { "command": "python3", "args": ["-c", script] } });
    let networks = json!([{ "mode": "bridge", "ports": [{ "label": "http", "to": 8080 }] }]);
    node.job("asks", JobType::Batch, json!({ "tasks": [asks], "networks": networks })).await;
    let asks = node.place("asks", 0, resources(21_002, &["t"])).await;
    let ended = node.ended(&asks).await;
    assert_eq!(status(&ended), ClientStatus::Complete, "{}", node.log_of(&ended, "t.stderr.0"));
    assert_eq!(
        node.log_of(&ended, "t.stdout.0"),
        format!(
            "{NODE}:21000 200\n172.26.64.2:8080 200\n8080 {NODE} {NODE}:21002 21002 172.26.64.4 172.26.64.4:8080 eth0\n"
        )
    );
    for name in [&first, &second] {
        node.stop(name).await;
    }
    for name in [&first, &second] {
        node.ended(name).await;
    }
    assert!(place.pod.get((NODE, 21_000)).is_err(), "its port is closed");
    let left = place.left(node.path("state/netns"));
    assert!(left.is_empty(), "{left:?}");
}

/// The address of a Service, and its port.
const SERVICE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 96, 0, 7), 80);

/// Leads a Service to a port of the node, as kube-proxy does.
fn proxy(place: &Place, port: u16) {
    let (address, service_port) = SERVICE;
    let rule = format!("ip daddr {address} tcp dport {service_port} dnat to {NODE}:{port}");
    let table = format!(
        "table ip services {{\n\
         chain arriving {{ type nat hook prerouting priority dstnat; {rule}; }}\n\
         chain own {{ type nat hook output priority -100; {rule}; }}\n}}\n"
    );
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), table).expect("a table");
    place.node.run("nft", &["-f", &file.path().to_string_lossy()]);
    // Before its address is translated, a connection of the node needs a way.
    place.node.ip("route add 10.96.0.0/16 dev pod");
}

/// The forwarder of this state folder, if one lives.
fn forwarder(state: &Path) -> Option<ProcessId> {
    ProcessId::all().find(|id| {
        id.words().get(1).is_some_and(|word| word == "forward")
            && std::fs::read_link(format!("/proc/{}/cwd", id.pid)).is_ok_and(|cwd| cwd == state)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_leads_to_a_bridged_allocation_of_the_askers_own_node() {
    let place = Place::new(shared_plane());
    let mut node = Node::start_by(shared_plane(), "bridge-service", &config(), place.launcher()).await;
    let _pins = Pins(node.path("state/netns"));
    let state = std::fs::canonicalize(node.path("state")).expect("the state folder");
    assert_eq!(forwarder(&state), None, "there is nothing to forward");
    proxy(&place, 21_000);
    node.job("web", JobType::Service, example_group()).await;
    let name = node.place("web", 0, resources(21_000, &["server", "beside"])).await;
    node.running(&name).await;
    let ok = |answer: Result<String, String>| answer.is_ok_and(|answer| answer.contains("200 OK"));
    let from_everywhere = || [&place.pod, &place.node].iter().all(|from| ok(from.get(SERVICE)));
    eventually("an answer of the Service", from_everywhere).await;
    // A neighbour on the bridge, and the allocation itself.
    let script =
        format!("import urllib.request; print(urllib.request.urlopen('http://{}', timeout=5).status)", SERVICE.0);
    let asks = json!({ "name": "t", "driver": "exec", "config": { "command": "python3", "args": ["-c", script] } });
    node.job("asks", JobType::Batch, json!({ "tasks": [asks], "networks": [{ "mode": "bridge" }] })).await;
    let portless = AllocatedResources { ports: Vec::new(), ..resources(1, &["t"]) };
    let ended = node.ended(&node.place("asks", 0, portless).await).await;
    assert_eq!(node.log_of(&ended, "t.stdout.0"), "200\n", "{}", node.log_of(&ended, "t.stderr.0"));

    // Who breaks into the forwarder has no more than connections.
    let process = forwarder(&state).expect("a forwarder");
    let rights = std::fs::read_to_string(format!("/proc/{}/status", process.pid)).expect("a status");
    let of = |name: &str| rights.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    let words = ["Uid:", "CapEff:", "CapPrm:", "NoNewPrivs:"].map(of);
    assert_eq!(words, ["65534\t65534\t65534\t65534", "0000000000000400", "0000000000000400", "1"], "{rights}");

    // Its agent's death breaks no connection, and its own death lasts a moment.
    let connected = place.pod.within(|| std::net::TcpStream::connect(SERVICE)).expect("a connection");
    node.kill_agent();
    // As a machine that went down leaves it.
    std::fs::write(state.join("forwarder-0.sock"), "").expect("a file");
    node.start_agent();
    node.running(&name).await;
    let answer = web_answer(connected);
    assert!(answer.contains("200 OK"), "{answer}");
    eventually("an answer after the agent's death", from_everywhere).await;
    assert_eq!(forwarder(&state), Some(process), "it is the same process");
    process.signal(Signal::KILL).expect("killed");
    eventually("an answer after the forwarder's death", from_everywhere).await;

    // A port that a program of the node holds is no allocation's.
    let holder = place.node.within(|| std::net::TcpListener::bind((NODE, 21_005))).expect("a port");
    let refused = node.ended(&node.place("web", 1, resources(21_005, &["server", "beside"])).await).await;
    assert_eq!(status(&refused), ClientStatus::Failed);
    let why = messages(&refused, "server");
    assert!(why.contains("port 198.51.100.1:21005 of the node cannot be listened on"), "{why}");
    assert!(why.contains("end the program that holds it"), "{why}");
    drop(holder);
    assert!(from_everywhere(), "the others are left alone");

    node.stop(&name).await;
    node.ended(&name).await;
    eventually("the forwarder's end", || forwarder(&state).is_none()).await;
    eventually("its socket's end", || {
        let names = std::fs::read_dir(&state).expect("a folder").flatten().map(|entry| entry.file_name());
        names.into_iter().all(|name| !name.to_string_lossy().starts_with("forwarder-"))
    })
    .await;
    let left = place.left(node.path("state/netns"));
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_of_an_allocations_own_network_is_checked_and_registered_there() {
    let place = Place::new(shared_plane());
    let mut node = Node::start_by(shared_plane(), "bridge-own", &config(), place.launcher()).await;
    let _pins = Pins(node.path("state/netns"));
    let service = |name: &str, port: &str| {
        let check = json!({ "name": "up", "type": "http", "path": "/", "interval": "1s", "timeout": "1s" });
        json!({ "name": name, "portLabel": port, "addressMode": "alloc", "checks": [check] })
    };
    let mut group = example_group();
    group["services"] = json!([service("labelled", "http"), service("numbered", "8080"), service("closed", "8081")]);
    node.job("web", JobType::Service, group).await;
    let name = node.place("web", 0, resources(21_000, &["server", "beside"])).await;
    let found = |it: &Allocation| -> Vec<(String, String, bool)> {
        let status = it.status.clone().unwrap_or_default();
        let one = |known: &ServiceRegistration| {
            (known.service_name.clone(), format!("{}:{}", known.address, known.port), known.ready)
        };
        status.services.iter().map(one).collect()
    };
    let expected = |ip: &str| {
        [("labelled", 8080, true), ("numbered", 8080, true), ("closed", 8081, false)]
            .map(|(name, port, is_ready)| (name.to_owned(), format!("{ip}:{port}"), is_ready))
    };
    let is_well = |it: &Allocation| {
        let status = it.status.clone().unwrap_or_default();
        let failure = status.checks.get("group-g/closed/8081/up").map(|check| check.output.clone());
        found(it) == expected(&address(it)) && failure.is_some_and(|text| text.contains(&address(it)))
    };
    let before = node.until(&name, "found in its network", is_well).await;
    assert_eq!(address(&before), "172.26.64.2");
    // The next agent plans them before it has its networks again, and what was found holds.
    node.kill_agent();
    node.start_agent();
    let task = json!({ "name": "t", "driver": "exec", "config": { "command": "sleep", "args": ["1000"] } });
    node.job("later", JobType::Service, json!({ "tasks": [task], "networks": [{ "mode": "none" }] })).await;
    let portless = AllocatedResources { ports: Vec::new(), ..resources(1, &["t"]) };
    node.running(&node.place("later", 0, portless).await).await;
    let after = node.allocs().get(&name).await.expect("the allocation");
    let checks = |it: &Allocation| it.status.clone().unwrap_or_default().checks;
    assert_eq!((found(&after), checks(&after)), (found(&before), checks(&before)));
    let supervisor = ProcessId::of(node.supervisor_pid()).expect("a supervisor");
    let is_server = |process: &ProcessId| process.words().iter().any(|word| word == "http.server");
    let server = supervisor.descendants().into_iter().find(is_server).expect("the server");
    server.signal(Signal::KILL).expect("killed");
    let is_restarted = |it: &Allocation| {
        let status = it.status.clone().unwrap_or_default();
        is_well(it) && status.task_states.get("server").is_some_and(|task| task.restarts == 1)
    };
    node.until(&name, "found after its restart", is_restarted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_027_networks_are_there_again_after_a_crash_and_after_a_reboot() {
    let place = Place::new(shared_plane());
    let mut node = Node::start_by(shared_plane(), "bridge-again", &config(), place.launcher()).await;
    let _pins = Pins(node.path("state/netns"));
    node.job("web", JobType::Service, example_group()).await;
    let name = node.place("web", 0, resources(21_000, &["server", "beside"])).await;
    let before = node.running(&name).await;
    let ok = |answer: Result<String, String>| answer.is_ok_and(|answer| answer.contains("200 OK"));
    eventually("an answer", || ok(place.pod.get((NODE, 21_000)))).await;
    node.kill_agent();
    // While it is away, its device goes.
    let links = place.node.ip("-br link show master drover-bridge");
    let device = links.split('@').next().expect("a device");
    place.node.ip(&format!("link del {device}"));
    assert!(place.pod.get((NODE, 21_000)).is_err());
    node.start_agent();
    eventually("an answer again", || ok(place.pod.get((NODE, 21_000)))).await;
    // A machine that begins again has none of its namespaces, and other devices.
    node.kill_agent();
    node.power_off().await;
    drop(Pins(node.path("state/netns")));
    let place = Place::new(shared_plane());
    node.move_to(place.launcher());
    node.start_agent();
    eventually("an answer after the reboot", || ok(place.pod.get((NODE, 21_000)))).await;
    let after = node.running(&name).await;
    assert_eq!(address(&after), address(&before));
    node.stop(&name).await;
    node.ended(&name).await;
    let left = place.left(node.path("state/netns"));
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_028_a_node_without_nf_tables_offers_no_bridge_and_says_why() {
    let place = Place::new(shared_plane());
    let node = Node::start_by(shared_plane(), "no-bridge", &config(), place.launcher_without_netfilter()).await;
    let (modes, problems) = offer(&node).await;
    let reason = problems["network mode bridge"].as_str().unwrap_or_default().to_owned();
    assert!(modes.is_empty() && reason.contains("nf_tables"), "{modes:?} {problems}");
    assert!(reason.contains("restart the agent") && reason.contains("network.bridgeSubnet"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_030_a_job_has_its_own_name_servers_and_host_name() {
    let place = Place::new(shared_plane());
    let node = Node::start_by(shared_plane(), "bridge-names", &config(), place.launcher()).await;
    let _pins = Pins(node.path("state/netns"));
    let script = "cat /etc/resolv.conf; hostname; grep -v localhost /etc/hosts; getent hosts web-${NOMAD_ALLOC_INDEX}";
    let task = json!({ "name": "t", "driver": "exec", "config": { "command": "/bin/sh", "args": ["-c", script] } });
    let dns = json!({ "servers": ["10.0.0.53"], "searches": ["${NOMAD_NAMESPACE}.example"], "options": ["ndots:2"] });
    let networks = json!([{ "mode": "bridge", "hostname": "web-${NOMAD_ALLOC_INDEX}", "dns": dns }]);
    node.job("names", JobType::Batch, json!({ "tasks": [task], "networks": networks })).await;
    let resources = AllocatedResources { ports: Vec::new(), ..resources(1, &["t"]) };
    let ended = node.ended(&node.place("names", 0, resources).await).await;
    let log = node.log_of(&ended, "t.stdout.0");
    let lines: Vec<String> = log.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let wanted = ["nameserver 10.0.0.53", "search bridge-names.example", "options ndots:2", "web-0"];
    assert_eq!(lines[..4], wanted, "{log}{}", messages(&ended, "t"));
    assert_eq!(lines[4..], ["172.26.64.2 web-0", "172.26.64.2 web-0"], "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_029_networks_of_plugins_are_made_and_taken_back_also_when_one_fails() {
    let plugins = network_plugins::find_or_build(&Progress::silent()).expect("CNI plugins");
    let place = Place::new(shared_plane());
    let dir = tempfile::tempdir().expect("a directory");
    let (conf, bin) = (dir.path().join("conf"), dir.path().join("bin"));
    for dir in [&conf, &bin] {
        std::fs::create_dir(dir).expect("a directory");
    }
    for name in ["ptp", "host-local"] {
        std::os::unix::fs::symlink(plugins.join(name), bin.join(name)).expect("a plugin");
    }
    let log = dir.path().join("log");
    let fails = format!(
        "#!/bin/sh\necho $CNI_COMMAND >> {}\ntest $CNI_COMMAND = DEL && exit 0\necho '{{\"code\": 11, \"msg\": \"no room\"}}'\nexit 1\n",
        log.display()
    );
    std::fs::write(bin.join("fails"), fails).expect("a plugin");
    std::fs::set_permissions(bin.join("fails"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    let ipam = json!({ "type": "host-local", "dataDir": dir.path().join("ipam"), "ranges": [[{ "subnet": "10.88.0.0/24" }]],
        "routes": [{ "dst": "0.0.0.0/0" }] });
    let list =
        |name: &str, plugins: Value| json!({ "cniVersion": "1.0.0", "name": name, "plugins": plugins }).to_string();
    let ptp = json!({ "type": "ptp", "ipam": ipam });
    std::fs::write(conf.join("a.conflist"), list("mesh", json!([ptp]))).expect("a list");
    std::fs::write(conf.join("b.conflist"), list("broken", json!([ptp, { "type": "fails" }]))).expect("a list");
    let config = format!(
        "address: {NODE}\ndrivers: {{exec: {{enabled: true}}}}\nnetwork: {{cniConfigDir: {}, cniBinDir: {}}}\n",
        conf.display(),
        bin.display()
    );
    let node = Node::start_by(shared_plane(), "cni", &config, place.launcher()).await;
    let _pins = Pins(node.path("state/netns"));
    assert_eq!(offer(&node).await, (vec!["cni/broken".to_owned(), "cni/mesh".to_owned()], json!({})));
    let group = |network: &str| {
        let config = json!({ "command": "python3", "args": ["-m", "http.server", "80", "--directory", "/local"] });
        let task = json!({ "name": "t", "driver": "exec", "config": config });
        json!({ "tasks": [task], "networks": [{ "mode": "cni", "cni": { "name": network } }] })
    };
    let portless = || AllocatedResources { ports: Vec::new(), ..resources(1, &["t"]) };
    node.job("mesh", JobType::Service, group("mesh")).await;
    let mesh = node.place("mesh", 0, portless()).await;
    let running = node.running(&mesh).await;
    assert_eq!(address(&running), "10.88.0.2");
    let at = (std::net::Ipv4Addr::new(10, 88, 0, 2), 80);
    eventually("an answer", || place.node.get(at).is_ok_and(|answer| answer.contains("200 OK"))).await;
    node.job("broken", JobType::Service, group("broken")).await;
    let failed = node.ended(&node.place("broken", 0, portless()).await).await;
    assert_eq!(status(&failed), ClientStatus::Failed);
    let why = messages(&failed, "t");
    assert!(why.contains("network: CNI plugin fails, ADD: no room"), "{why}");
    assert_eq!(std::fs::read_to_string(&log).expect("a log"), "ADD\nDEL\n");
    node.stop(&mesh).await;
    node.ended(&mesh).await;
    // No address is held any more, and no namespace is left.
    let held = |network: &str| {
        let names = std::fs::read_dir(dir.path().join("ipam").join(network)).into_iter().flatten().flatten();
        names.filter(|entry| entry.file_name().to_string_lossy().starts_with("10.88.")).count()
    };
    assert_eq!((held("mesh"), held("broken")), (0, 0));
    let left = place.left(node.path("state/netns"));
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_of_the_nodes_network_is_refused_in_a_group_with_its_own() {
    let place = Place::new(shared_plane());
    let node = Node::start_by(
        shared_plane(),
        "bridge-raw",
        &config().replace("exec:", "rawExec: {enabled: true}, exec:"),
        place.launcher(),
    )
    .await;
    let _pins = Pins(node.path("state/netns"));
    let task = json!({ "name": "t", "driver": "raw_exec", "config": { "command": "/bin/true" } });
    node.job("raw", JobType::Batch, json!({ "tasks": [task], "networks": [{ "mode": "bridge" }] })).await;
    let resources = AllocatedResources { ports: Vec::new(), ..resources(1, &["t"]) };
    let ended = node.ended(&node.place("raw", 0, resources).await).await;
    let why = messages(&ended, "t");
    assert!(why.contains("driver raw_exec") && why.contains("take driver exec"), "{why}");
    let left = place.left(node.path("state/netns"));
    assert!(left.is_empty(), "{left:?}");
}
