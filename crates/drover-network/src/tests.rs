//! Networks in the real kernel: each test in a network and mount namespace of its own, so that nothing of the machine
//! is touched and nothing is left.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountPropagationFlags, mount_change};
use serde_json::{Value, json};

use crate::attachment::{Attachment, PortMapping};
use crate::bridge::{Bridge, BridgeSettings};
use crate::cni::{CniDirs, CniNetworks};
use crate::links::Links;
use crate::network_error::NetworkError;
use crate::{mac, plugin, port_table};

/// An address of the node that is not its loopback one.
const NODE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

fn on_a_machine_of_its_own<T: Send>(test: impl FnOnce(&Path) -> T + Send) -> T {
    let run = || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("namespaces (are you root?)");
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("private mounts");
        let mut links = Links::open();
        links.raise_loopback().expect("a loopback device");
        let lo = links.find("lo").expect("an answer").expect("a device");
        links.add_address(lo, NODE, 32).expect("an address");
        let dir = tempfile::tempdir().expect("a directory");
        let result = test(dir.path());
        for entry in std::fs::read_dir(dir.path().join("netns")).into_iter().flatten().flatten() {
            rustix::mount::unmount(entry.path(), rustix::mount::UnmountFlags::DETACH).ok();
        }
        result
    };
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|broken| std::panic::resume_unwind(broken))
}

fn bridge(dir: &Path) -> Bridge {
    let subnet = "10.77.0.0/24".parse().expect("a subnet");
    Bridge::new(BridgeSettings { name: "br-test".to_owned(), subnet, namespaces: dir.join("netns") })
}

/// The network that ends in this number: one port leads to its port 80.
fn attachment(n: u8, host_ip: Ipv4Addr) -> Attachment {
    let port = PortMapping { host_ip, host_port: 20_000 + u16::from(n), port: 80 };
    Attachment { address: Ipv4Addr::new(10, 77, 0, n), ports: vec![port] }
}

fn listen(bridge: &Bridge, id: &str) -> TcpListener {
    bridge
        .namespaces()
        .within(id, || TcpListener::bind("0.0.0.0:80").map_err(NetworkError::because("listening")))
        .expect("a listener")
}

fn connect(to: (Ipv4Addr, u16)) -> Result<TcpStream, NetworkError> {
    TcpStream::connect_timeout(&SocketAddr::from(to), Duration::from_secs(5))
        .map_err(NetworkError::because("connecting"))
}

/// Sends a byte and gets it back; says who asked.
fn talks(listener: &TcpListener, mut out: TcpStream) -> Ipv4Addr {
    let (mut inside, from) = listener.accept().expect("a connection");
    out.write_all(b"x").expect("sent");
    let mut byte = [0];
    inside.read_exact(&mut byte).expect("received");
    inside.write_all(&byte).expect("sent back");
    out.read_exact(&mut byte).expect("received back");
    let SocketAddr::V4(from) = from else { return Ipv4Addr::UNSPECIFIED };
    *from.ip()
}

#[test]
fn a_trial_goes_all_the_way_and_leaves_nothing() {
    on_a_machine_of_its_own(|dir| {
        let bridge = bridge(dir);
        bridge.trial().expect("a packet that comes back");
        // Again, and over what an agent that died in it has left.
        let left = Attachment { address: bridge.subnet().trial(), ports: Vec::new() };
        bridge.attach("trial", &left).expect("a network");
        bridge.trial().expect("a packet that comes back");
        let todo = bridge.repair(&BTreeMap::new(), &BTreeSet::new()).expect("a look");
        assert!(todo.is_empty(), "{todo:?}");
        assert_eq!(port_table::all().expect("elements"), BTreeMap::new());
    });
}

#[test]
fn a_trial_says_what_of_the_kernel_cannot_be_set() {
    on_a_machine_of_its_own(|dir| {
        let bridge = bridge(dir);
        // As a node whose agent may not switch forwarding on.
        rustix::mount::mount_bind("/proc/sys/net", "/proc/sys/net").expect("a mount");
        let flags = rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY;
        rustix::mount::mount_remount("/proc/sys/net", flags, "").expect("a read-only mount");
        let error = bridge.trial().expect_err("refused").to_string();
        assert!(error.contains("/proc/sys/net/ipv4/ip_forward") && error.contains("Read-only"), "{error}");
    });
}

#[test]
fn b_025_a_port_answers_to_the_node_to_itself_to_neighbours_and_over_loopback() {
    on_a_machine_of_its_own(|dir| {
        let bridge = bridge(dir);
        bridge.prepare().expect("a bridge");
        for (id, n, host_ip) in [("a", 2, NODE), ("b", 3, NODE), ("c", 4, Ipv4Addr::LOCALHOST)] {
            bridge.attach(id, &attachment(n, host_ip)).expect("a network");
        }
        let listener = listen(&bridge, "a");
        let within = |id: &str, to: (Ipv4Addr, u16)| bridge.namespaces().within(id, || connect(to)).expect("connected");
        let (port, direct) = ((NODE, 20_002), (Ipv4Addr::new(10, 77, 0, 2), 80));
        assert_eq!(talks(&listener, connect(port).expect("the node")), NODE);
        assert_eq!(talks(&listener, within("a", port)), bridge.subnet().gateway(), "itself over the node");
        assert_eq!(talks(&listener, within("b", port)), bridge.subnet().gateway(), "a neighbour over the node");
        assert_eq!(talks(&listener, within("b", direct)), Ipv4Addr::new(10, 77, 0, 3), "a neighbour");
        let local = listen(&bridge, "c");
        assert_eq!(talks(&local, connect((Ipv4Addr::LOCALHOST, 20_004)).expect("loopback")), bridge.subnet().gateway());
        // A network that is taken back answers no more, and its neighbours do.
        bridge.detach("a", &attachment(2, NODE)).expect("taken back");
        assert!(connect(port).is_err());
        bridge.detach("a", &attachment(2, NODE)).expect("nothing is there to be taken back");
        let neighbour = listen(&bridge, "b");
        assert_eq!(talks(&neighbour, connect((NODE, 20_003)).expect("the node")), NODE);
    });
}

#[test]
fn b_027_whatever_is_lost_or_left_the_kernel_is_made_as_it_is_to_be() {
    on_a_machine_of_its_own(|dir| {
        let bridge = bridge(dir);
        bridge.prepare().expect("a bridge");
        let all: BTreeMap<String, Attachment> = (2..=5).map(|n| (format!("net{n}"), attachment(n, NODE))).collect();
        for (id, attachment) in &all {
            bridge.attach(id, attachment).expect("a network");
        }
        assert_eq!(bridge.found(), all, "the kernel alone tells what there is");
        let none = BTreeSet::new();
        assert!(bridge.repair(&all, &none).expect("a look").is_empty());
        // A lost device, a lost pin, a lost port, and a network that is not to be any more.
        let mut links = Links::open();
        links.remove(&mac::device("net2")).expect("removed");
        bridge.namespaces().remove("net3").expect("removed");
        port_table::take_out(&port_table::elements(all["net4"].address, &all["net4"].ports)).expect("taken out");
        let mut wanted = all.clone();
        wanted.remove("net5");
        let todo = bridge.repair(&wanted, &none).expect("mended");
        // The device of the network without a pin has gone with its namespace.
        assert_eq!(todo.counts(), [1, 1, 2, 3], "{todo:?}");
        assert!(bridge.repair(&wanted, &none).expect("a look").is_empty());
        assert_eq!(bridge.found(), wanted);
        for n in 2..=4_u8 {
            let listener = listen(&bridge, &format!("net{n}"));
            talks(&listener, connect((NODE, 20_000 + u16::from(n))).expect("the node"));
        }
    });
}

#[test]
fn the_table_is_made_anew_over_the_ports_that_it_has() {
    on_a_machine_of_its_own(|dir| {
        let bridge = bridge(dir);
        bridge.prepare().expect("a bridge");
        let (old, new) = (attachment(2, NODE), attachment(3, NODE));
        let elements = port_table::elements(old.address, &old.ports);
        port_table::put(&elements).expect("added");
        port_table::put(&elements).expect("added once more");
        bridge.prepare().expect("a bridge again");
        assert_eq!(port_table::all().expect("elements"), elements);
        // The port has got another holder: the old one's end takes nothing from it.
        let taken_over = port_table::elements(new.address, &old.ports);
        port_table::put(&taken_over).expect("replaced");
        port_table::take_out(&elements).expect("nothing of it is left");
        assert_eq!(port_table::all().expect("elements"), taken_over);
        let many: Vec<PortMapping> =
            (1..=1500).map(|host_port| PortMapping { host_ip: NODE, host_port, port: host_port }).collect();
        let many = port_table::elements(new.address, &many);
        port_table::put(&many).expect("three thousand");
        assert_eq!(port_table::all().expect("elements").len(), many.len() + taken_over.len());
        port_table::take_out(&many).expect("and out again");
        assert_eq!(port_table::all().expect("elements"), taken_over);
    });
}

/// A plugin that notes what it is asked, and answers `$1.json`.
fn noting_plugin(dirs: &CniDirs, name: &str, answer: &Value) {
    let log = dirs.bin.join("log");
    let text = format!(
        "#!/bin/sh\necho {name} $CNI_COMMAND $CNI_IFNAME $CNI_CONTAINERID $CNI_ARGS $(cat) >> {}\n\
         test $CNI_COMMAND = DEL && exit 0\ncat <<'END'\n{answer}\nEND\n{}\n",
        log.display(),
        if answer.get("code").is_some() { "exit 1" } else { "test -e $CNI_NETNS" },
    );
    program(&dirs.bin.join(name), &text);
}

fn program(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a program");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
}

fn dirs(dir: &Path) -> CniDirs {
    let dirs = CniDirs { config: dir.join("conf"), bin: dir.join("bin"), namespaces: dir.join("netns") };
    for dir in [&dirs.config, &dirs.bin] {
        std::fs::create_dir(dir).expect("a directory");
    }
    dirs
}

fn log(dirs: &CniDirs) -> Vec<String> {
    let text = std::fs::read_to_string(dirs.bin.join("log")).unwrap_or_default();
    std::fs::remove_file(dirs.bin.join("log")).ok();
    text.lines().map(str::to_owned).collect()
}

const LIST: &str = r#"{"cniVersion": "1.0.0", "name": "mesh", "plugins": [
    {"type": "first"}, {"type": "second", "capabilities": {"portMappings": true}}]}"#;

#[test]
fn plugins_are_asked_in_order_and_taken_back_in_the_other() {
    on_a_machine_of_its_own(|dir| {
        let dirs = dirs(dir);
        std::fs::write(dirs.config.join("10-mesh.conflist"), LIST).expect("a list");
        let result = json!({ "ips": [{ "address": "10.88.0.5/24" }], "dns": { "nameservers": ["10.88.0.1"] } });
        noting_plugin(&dirs, "first", &json!({ "ips": [] }));
        noting_plugin(&dirs, "second", &result);
        let (networks, problems) = CniNetworks::read(&dirs);
        assert_eq!((networks.names().collect::<Vec<_>>(), problems), (vec!["mesh"], vec![]));
        let args = BTreeMap::from([("IP".to_owned(), "10.88.0.5".to_owned())]);
        let ports = attachment(2, NODE).ports;
        let order = networks.order("mesh", args, ports).expect("an order");
        let (order, made) = order.add(&dirs, "uid").expect("a network");
        assert_eq!(made.address.expect("an address").to_string(), "10.88.0.5");
        assert_eq!((made.dns[0].as_slice(), made.namespace.exists()), (&["10.88.0.1".to_owned()][..], true));
        let asked = log(&dirs);
        assert!(asked[0].starts_with("first ADD eth0 uid IgnoreUnknown=1;IP=10.88.0.5 {"), "{asked:?}");
        assert!(asked[1].starts_with("second ADD") && asked[1].contains(r#""prevResult":{"ips":[]}"#), "{asked:?}");
        assert!(asked[1].contains(r#""hostPort":20002"#) && asked[1].contains(r#""protocol":"udp""#), "{asked:?}");
        assert!(!asked[0].contains("runtimeConfig") && asked[0].contains(r#""name":"mesh""#), "{asked:?}");
        // The next life of the agent has it already.
        let (order, again) = order.add(&dirs, "uid").expect("the network");
        assert_eq!((again, log(&dirs)), (made, vec![]));
        order.delete(&dirs, "uid").expect("taken back");
        let asked = log(&dirs);
        assert!(asked[0].starts_with("second DEL") && asked[1].starts_with("first DEL"), "{asked:?}");
        assert!(asked[0].contains("10.88.0.5/24") && !again_exists(&dirs), "{asked:?}");
    });
}

/// More than a pipe would hold is given to one that does not look.
#[test]
fn b_029_a_plugin_that_ends_without_reading_its_configuration_is_heard() {
    on_a_machine_of_its_own(|dir| {
        let deaf = dir.join("deaf");
        program(&deaf, "#!/bin/sh\necho '{\"code\": 11, \"msg\": \"no room\"}'\nexit 1\n");
        let answer = plugin::run(&deaf, &[], &json!({ "name": "x".repeat(1 << 20) }));
        assert_eq!(answer, Err("no room".to_owned()));
    });
}

fn again_exists(dirs: &CniDirs) -> bool {
    dirs.namespaces.join("uid").exists()
}

#[test]
fn b_029_a_plugin_that_fails_is_named_and_all_are_asked_to_take_back() {
    on_a_machine_of_its_own(|dir| {
        let dirs = dirs(dir);
        std::fs::write(dirs.config.join("10-mesh.conflist"), LIST).expect("a list");
        noting_plugin(&dirs, "first", &json!({ "ips": [] }));
        noting_plugin(&dirs, "second", &json!({ "code": 11, "msg": "no room", "details": "10.88.0.0/24" }));
        let (networks, _) = CniNetworks::read(&dirs);
        let order = networks.order("mesh", BTreeMap::new(), Vec::new()).expect("an order");
        let error = order.clone().add(&dirs, "uid").expect_err("refused").to_string();
        assert_eq!(error, "CNI plugin second, ADD: no room: 10.88.0.0/24");
        log(&dirs);
        // As a life that was cut off in the middle finds it.
        let error = order.clone().add(&dirs, "uid").expect_err("refused").to_string();
        assert!(error.contains("no room"), "{error}");
        let verbs = |asked: Vec<String>| {
            asked.iter().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(verbs(log(&dirs)), ["second DEL", "first DEL", "first ADD", "second ADD"]);
        order.delete(&dirs, "uid").expect("taken back");
        assert_eq!(verbs(log(&dirs)), ["second DEL", "first DEL"]);
        assert!(!again_exists(&dirs));
    });
}

#[test]
fn what_cannot_be_run_as_a_network_is_named_with_its_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let dirs = dirs(dir.path());
    noting_plugin(&dirs, "first", &json!({}));
    for (name, text) in [
        ("1.conflist", LIST),
        ("2.conf", r#"{"name": "plain", "type": "first"}"#),
        ("3.conflist", r#"{"name": "empty", "plugins": []}"#),
        ("4.conflist", r#"{"plugins": [{"type": "first"}]}"#),
        ("5.conflist", r#"{"name": "up", "plugins": [{"type": "../first"}]}"#),
        ("6.conf", r#"{"name": "a b", "type": "first"}"#),
        ("6b.conf", "{"),
        ("7.txt", "not read"),
    ] {
        std::fs::write(dirs.config.join(name), text).expect("a file");
    }
    let (networks, problems) = CniNetworks::read(&dirs);
    assert_eq!(networks.names().collect::<Vec<_>>(), ["plain"]);
    for (problem, reason) in problems.iter().zip([
        "plugin second is not in",
        "has no plugins",
        "name is missing",
        "no type",
        "no name",
        "EOF",
    ]) {
        assert!(problem.contains(reason), "{problem}");
    }
    assert_eq!(problems.len(), 6, "{problems:?}");
    let refused = |args: &[(&str, &str)], ports: Vec<PortMapping>| {
        let args = args.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        networks.order("plain", args, ports).expect_err("refused").to_string()
    };
    assert!(refused(&[], attachment(2, NODE).ports).contains("capability portMappings"));
    assert!(refused(&[("a", "b;c=d")], Vec::new()).contains("cni.args"));
    let error = networks.order("none", BTreeMap::new(), Vec::new()).expect_err("refused").to_string();
    assert_eq!(error, "this node has no CNI network none");
}
