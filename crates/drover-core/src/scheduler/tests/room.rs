//! What a group gets on a node (`spec/scheduler.md` 5.1 to 5.3): ports, cores, devices and sums, beside oracles that
//! try everything.

use std::collections::BTreeSet;
use std::net::IpAddr;

use drover_api::client_node::{DeviceGroup, DeviceInstance};
use fastrand::Rng;

use super::*;
use crate::scheduler::place::fit::Need;
use crate::settings::Settings;
use crate::snapshot::NodeEntry;
use crate::usage::{EVERY_ADDRESS, Usage};

/// The job of a group with these fields.
fn definition(group: &Value) -> Arc<Definition> {
    let mut whole = json!({ "name": "g", "tasks": [{ "name": "t", "driver": "mock" }] });
    for (field, value) in group.as_object().unwrap() {
        whole[field] = value.clone();
    }
    Definition::new(&serde_json::from_value(json!({ "groups": [whole] })).unwrap(), "j")
}

fn entry(node: Node) -> NodeEntry {
    let mut view = ClusterView::default();
    let name = node.name.clone();
    view.put_node(node);
    (**view.node_entry(&name).unwrap()).clone()
}

/// What a group gets on a node beside what is in use, or which dimension is exhausted. Looking says the same as taking.
fn given(group: &Value, node: &Node, usage: &Usage, seed: u64) -> Result<AllocatedResources, String> {
    let definition = definition(group);
    let need = Need::new(&Settings::default(), &definition, &definition.spec.groups[0]);
    let (looked, taken) = (
        need.check(&entry(node.clone()), usage),
        need.assign(node, usage, &mut Rng::with_seed(seed)).map(|all| (*all).clone()),
    );
    match looked {
        Ok(_) => Ok(taken.expect("what fits can be had")),
        Err(dimension) => Err(dimension),
    }
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn address(alias: &str, last: u8, reserved: &[u16]) -> HostAddress {
    HostAddress { alias: alias.into(), ip: ip(last), reserved_ports: reserved.iter().copied().collect() }
}

fn with_ports(ports: &Value) -> Value {
    json!({ "networks": [{ "ports": ports }] })
}

/// Ports as `label=address:value>to`.
fn written(resources: &AllocatedResources) -> Vec<String> {
    let port = |port: &drover_api::allocation::AllocatedPort| {
        format!("{}={}:{}>{}", port.label, port.host_ip, port.value, port.to)
    };
    resources.ports.iter().map(port).collect()
}

#[test]
fn static_ports_are_had_on_an_address_of_their_network_where_they_are_free() {
    let one = Node {
        host_networks: vec![address("default", 1, &[443]), address("default", 2, &[]), address("public", 3, &[])],
        reserved_ports: [22].into(),
        ..node("n-0")
    };
    let none = Usage::default();
    let used = |ports: &[(IpAddr, u16)]| Usage { ports: ports.to_vec(), ..Usage::default() };
    let collision = |label: &str, port: u16| Err(format!("network: reserved port collision {label}={port}"));
    let got = |ports: &[&str]| Ok(ports.iter().map(|port| (*port).to_owned()).collect::<Vec<_>>());
    for (ports, usage, wanted) in [
        (json!([{ "label": "a", "static": 80 }]), none.clone(), got(&["a=10.0.0.1:80>0"])),
        (json!([{ "label": "a", "static": 80, "to": 8080 }]), none.clone(), got(&["a=10.0.0.1:80>8080"])),
        (json!([{ "label": "a", "static": 80, "to": -1 }]), none.clone(), got(&["a=10.0.0.1:80>80"])),
        // The second address of the network has room where the first has none.
        (json!([{ "label": "a", "static": 80 }]), used(&[(ip(1), 80)]), got(&["a=10.0.0.2:80>0"])),
        (json!([{ "label": "a", "static": 443 }]), none.clone(), got(&["a=10.0.0.2:443>0"])),
        (json!([{ "label": "a", "static": 80 }]), used(&[(ip(1), 80), (ip(2), 80)]), collision("a", 80)),
        (json!([{ "label": "a", "static": 80 }]), used(&[(EVERY_ADDRESS, 80)]), collision("a", 80)),
        // What the node reserves nobody gets, on whatever address.
        (json!([{ "label": "a", "static": 22 }]), none.clone(), collision("a", 22)),
        (json!([{ "label": "a", "static": 22, "ignoreCollision": true }]), none.clone(), got(&["a=10.0.0.1:22>0"])),
        (
            json!([{ "label": "a", "static": 80, "ignoreCollision": true }]),
            used(&[(ip(1), 80)]),
            got(&["a=10.0.0.1:80>0"]),
        ),
        // Each network has its own addresses.
        (
            json!([{ "label": "a", "static": 80, "hostNetwork": "public" }]),
            used(&[(ip(1), 80)]),
            got(&["a=10.0.0.3:80>0"]),
        ),
        (json!([{ "label": "a", "static": 80, "hostNetwork": "public" }]), used(&[(ip(3), 80)]), collision("a", 80)),
        // One group's own ports stand in each other's way too.
        (
            json!([{ "label": "a", "static": 80 }, { "label": "b", "static": 80 }]),
            none.clone(),
            got(&["a=10.0.0.1:80>0", "b=10.0.0.2:80>0"]),
        ),
        (
            json!([{ "label": "a", "static": 80 }, { "label": "b", "static": 80 }, { "label": "c", "static": 80 }]),
            none,
            collision("c", 80),
        ),
    ] {
        let got = given(&with_ports(&ports), &one, &usage, 1).map(|resources| written(&resources));
        assert_eq!(got, wanted, "{ports} beside {:?}", usage.ports);
    }
}

#[test]
fn a_dynamic_port_is_the_last_free_one_however_the_dice_fall() {
    let one = Node {
        host_networks: vec![address("default", 1, &[20_001])],
        reserved_ports: [20_000].into(),
        dynamic_ports: (20_000, 20_004),
        ..node("n-0")
    };
    let usage = Usage { ports: vec![(ip(1), 20_002), (EVERY_ADDRESS, 20_004)], ..Usage::default() };
    for seed in 0..50 {
        let got = given(&with_ports(&json!([{ "label": "a", "to": -1 }])), &one, &usage, seed).unwrap();
        assert_eq!(written(&got), ["a=10.0.0.1:20003>20003"]);
        // A static port of the same ask is taken before.
        let both = json!([{ "label": "a" }, { "label": "b", "static": 20_003 }]);
        let got = given(&with_ports(&both), &one, &usage, seed);
        assert_eq!(got, Err("network: dynamic port selection failed".to_owned()));
    }
}

/// A random node, with what is in use and a group that asks for ports.
fn random_ports(rng: &mut Rng) -> (Node, Usage, Vec<Value>) {
    let aliases = ["default", "public"];
    let networks: Vec<HostAddress> = (0..rng.u8(1..4))
        .map(|n| {
            let reserved: Vec<u16> = (0..rng.u16(..2)).map(|_| rng.u16(100..108)).collect();
            address(aliases[rng.usize(..2)], n + 1, &reserved)
        })
        .collect();
    let first = rng.u16(100..106);
    let last = rng.u16(first..107);
    let usage = Usage {
        ports: (0..rng.usize(..5))
            .map(|_| {
                let at = networks[rng.usize(..networks.len())].ip;
                (if rng.u8(..8) == 0 { EVERY_ADDRESS } else { at }, rng.u16(100..108))
            })
            .collect(),
        ..Usage::default()
    };
    let node = Node {
        host_networks: networks,
        dynamic_ports: (first, last),
        reserved_ports: (0..rng.u16(..2)).map(|_| rng.u16(100..108)).collect(),
        ..node("n-0")
    };
    let ask = (0..rng.usize(1..5))
        .map(|n| {
            let mut port = json!({ "label": format!("p{n}"), "hostNetwork": aliases[rng.usize(..2)] });
            if rng.bool() {
                port["static"] = json!(rng.u16(100..108));
                port["ignoreCollision"] = json!(rng.u8(..5) == 0);
            }
            if rng.bool() {
                port["to"] = json!([-1, 8080][rng.usize(..2)]);
            }
            port
        })
        .collect();
    (node, usage, ask)
}

/// Whether a port is free on an address, beside what the same group was given.
fn is_free(node: &Node, usage: &Usage, given: &[(IpAddr, u16)], at: &HostAddress, port: u16) -> bool {
    let in_use = usage.ports.iter().any(|(ip, held)| *held == port && (*ip == at.ip || *ip == EVERY_ADDRESS));
    !in_use
        && !node.reserved_ports.contains(&port)
        && !at.reserved_ports.contains(&port)
        && !given.contains(&(at.ip, port))
}

/// Static ports in the order of the ask, then dynamic ones, each on the first address with room. Says how many ports of
/// each address are left to choose from, or what is exhausted.
fn tried(node: &Node, usage: &Usage, ask: &[Value]) -> Result<(), String> {
    let on = |port: &Value| {
        let alias = port["hostNetwork"].as_str().unwrap().to_owned();
        node.host_networks.iter().filter(move |address| address.alias == alias)
    };
    let mut given: Vec<(IpAddr, u16)> = Vec::new();
    for port in ask {
        let Some(value) = port["static"].as_u64() else { continue };
        let value = u16::try_from(value).unwrap();
        let ignores = port["ignoreCollision"] == true;
        let found = on(port).find(|at| ignores || is_free(node, usage, &given, at, value));
        let label = port["label"].as_str().unwrap();
        given.push((found.ok_or(format!("network: reserved port collision {label}={value}"))?.ip, value));
    }
    for port in ask.iter().filter(|port| port["static"].is_null()) {
        let range = node.dynamic_ports.0..=node.dynamic_ports.1;
        let free = |at: &&HostAddress| range.clone().find(|port| is_free(node, usage, &given, at, *port));
        let found = on(port).find_map(|at| Some((at.ip, free(&at)?)));
        given.push(found.ok_or("network: dynamic port selection failed")?);
    }
    Ok(())
}

#[test]
fn ports_are_found_exactly_where_there_are_any() {
    let mut rng = Rng::with_seed(52);
    let (mut found, mut not_found) = (0, 0);
    for seed in 0..5_000 {
        let (node, usage, ask) = random_ports(&mut rng);
        let got = given(&with_ports(&json!(ask)), &node, &usage, seed);
        let wanted = tried(&node, &usage, &ask);
        assert_eq!(got.as_ref().map(|_| ()).map_err(Clone::clone), wanted, "{ask:?} on {node:?} beside {usage:?}");
        let Ok(got) = got else {
            not_found += 1;
            continue;
        };
        found += 1;
        assert_eq!(got.ports.len(), ask.len());
        let mut given: Vec<(IpAddr, u16)> = Vec::new();
        for (port, asked) in got.ports.iter().zip(&ask) {
            assert_eq!(port.label, asked["label"]);
            let at = node.host_networks.iter().find(|at| at.ip.to_string() == port.host_ip).unwrap();
            assert_eq!(at.alias, asked["hostNetwork"]);
            let value = u16::try_from(port.value).unwrap();
            match asked["static"].as_i64() {
                Some(fixed) => assert_eq!(port.value, fixed),
                None => assert!((node.dynamic_ports.0..=node.dynamic_ports.1).contains(&value), "{value}"),
            }
            if asked["ignoreCollision"] != true {
                assert!(is_free(&node, &usage, &given, at, value), "{ask:?}: {port:?} is not free");
                given.push((at.ip, value));
            }
            let to = asked["to"].as_i64().unwrap_or(0);
            assert_eq!(port.to, if to == -1 { port.value } else { to });
        }
    }
    assert!(found > 1_000 && not_found > 1_000, "{found} found, {not_found} not");
}

fn cores_of(resources: &AllocatedResources) -> Vec<(&str, &[i64], i64)> {
    resources.tasks.iter().map(|(name, task)| (name.as_str(), task.cores.as_slice(), task.cpu)).collect()
}

#[test]
fn cores_are_given_in_the_order_of_their_numbers_and_bring_their_mhz() {
    let group = json!({ "tasks": [
        { "name": "a", "driver": "mock", "resources": { "cores": 2 } },
        { "name": "b", "driver": "mock", "resources": { "cpu": 150 } },
        { "name": "c", "driver": "mock", "resources": { "cores": 1 } },
    ] });
    let one = Node { cores: [1, 2, 5, 7, 9].into(), core_mhz: 1500, ..node("n-0") };
    let beside = |cores: &[i64]| given(&group, &one, &Usage { cores: cores.to_vec(), ..Usage::default() }, 1);
    assert_eq!(cores_of(&beside(&[]).unwrap()), [("a", &[1, 2][..], 3000), ("b", &[], 150), ("c", &[5], 1500)]);
    assert_eq!(cores_of(&beside(&[2, 7]).unwrap()), [("a", &[1, 5][..], 3000), ("b", &[], 150), ("c", &[9], 1500)]);
    assert_eq!(beside(&[1, 2, 9]), Err("cores".to_owned()));
}

#[test]
fn the_first_dimension_without_room_is_named_and_the_last_unit_fits() {
    let group = json!({
        "ephemeralDisk": { "sizeMB": 500 },
        "tasks": [{ "name": "t", "driver": "mock", "resources": { "cpu": 300, "memoryMB": 200, "secretsMB": 50 } }],
    });
    let one =
        Node { allocatable: Amounts { cpu: 1000, memory_mb: 1000, disk_mb: 1000 }, max_allocs: Some(3), ..node("n-0") };
    let beside = |cpu, memory_mb, disk_mb, n_allocs| {
        let amounts = Amounts { cpu, memory_mb, disk_mb };
        given(&group, &one, &Usage { amounts, n_allocs, ..Usage::default() }, 1).map(|_| ())
    };
    let full = |dimension: &str| Err(dimension.to_owned());
    for (cpu, memory, disk, n_allocs, wanted) in [
        (700, 750, 500, 2, Ok(())),
        (701, 750, 500, 2, full("cpu")),
        (700, 751, 500, 2, full("memory")),
        (700, 750, 501, 2, full("disk")),
        (700, 750, 500, 3, full("maxAllocs")),
        (701, 751, 501, 2, full("cpu")),
        (700, 751, 501, 2, full("memory")),
        (701, 750, 500, 3, full("maxAllocs")),
    ] {
        assert_eq!(beside(cpu, memory, disk, n_allocs), wanted, "cpu {cpu} memory {memory} disk {disk} n {n_allocs}");
    }
}

/// What the tasks of a group need together, as `cpu memory`.
fn need(tasks: &[(&str, Option<&str>, bool, Value)]) -> (i64, i64) {
    let tasks: Vec<Value> = tasks
        .iter()
        .map(|(name, hook, sidecar, resources)| {
            let mut task = json!({ "name": name, "driver": "mock", "resources": resources });
            if let Some(hook) = hook {
                task["lifecycle"] = json!({ "hook": hook, "sidecar": sidecar });
            }
            task
        })
        .collect();
    let definition = definition(&json!({ "tasks": tasks }));
    let amounts = Need::new(&Settings::default(), &definition, &definition.spec.groups[0]).amounts(&entry(node("n-0")));
    (amounts.cpu, amounts.memory_mb)
}

#[test]
fn a_group_needs_what_its_most_demanding_stage_does() {
    let ask = |cpu: i64, memory_mb: i64| json!({ "cpu": cpu, "memoryMB": memory_mb });
    let main = ("m", None, false, ask(300, 100));
    for (others, wanted) in [
        (vec![], (300, 100)),
        // Before: init tasks together with sidecars; the main stage has the sidecars too.
        (vec![("i", Some("prestart"), false, ask(200, 400))], (300, 400)),
        (vec![("i", Some("prestart"), false, ask(500, 50)), ("s", Some("prestart"), true, ask(100, 10))], (600, 110)),
        (vec![("s", Some("prestart"), true, ask(100, 10))], (400, 110)),
        // Beside: poststart tasks, whether they end or not.
        (vec![("p", Some("poststart"), false, ask(50, 5))], (350, 105)),
        (vec![("p", Some("poststart"), true, ask(50, 5))], (350, 105)),
        // After: poststop tasks alone.
        (vec![("x", Some("poststop"), false, ask(250, 250))], (300, 250)),
        (vec![("x", Some("poststop"), false, ask(200, 50)), ("y", Some("poststop"), false, ask(200, 50))], (400, 100)),
        // Each dimension by itself; own cores (1000 MHz each) always add.
        (vec![("i", Some("prestart"), false, ask(900, 10)), ("x", Some("poststop"), false, ask(10, 900))], (900, 900)),
        (vec![("x", Some("poststop"), false, json!({ "cores": 2, "memoryMB": 10 }))], (2300, 100)),
        // A maximum above what is asked for is no need; secrets are.
        (vec![("n", None, false, json!({ "cpu": 1, "memoryMB": 10, "memoryMaxMB": 900 }))], (301, 110)),
        (vec![("n", None, false, json!({ "cpu": 1, "memoryMB": 10, "secretsMB": 7 }))], (301, 117)),
    ] {
        let mut tasks = vec![main.clone()];
        tasks.extend(others.clone());
        assert_eq!(need(&tasks), wanted, "{others:?}");
    }
}

fn devices(vendor: &str, name: &str, memory: &str, healthy: &[bool]) -> DeviceGroup {
    DeviceGroup {
        vendor: vendor.into(),
        r#type: "gpu".into(),
        name: name.into(),
        attributes: BTreeMap::from([("memory".to_owned(), memory.to_owned())]),
        instances: healthy
            .iter()
            .enumerate()
            .map(|(n, healthy)| DeviceInstance {
                id: format!("{name}-{n}"),
                healthy: *healthy,
                ..DeviceInstance::default()
            })
            .collect(),
    }
}

/// A node with three groups of devices, and what a request gets there.
fn device_ids(request: &Value, taken: &[&str]) -> Result<Vec<String>, String> {
    let one = Node {
        devices: vec![
            devices("nvidia", "t4", "16 GiB", &[true, false, true]),
            devices("nvidia", "a100", "40 GiB", &[true, true]),
            devices("amd", "mi50", "32 GiB", &[true, true, true]),
        ],
        ..node("n-0")
    };
    let group = json!({ "tasks": [{ "name": "t", "driver": "mock", "resources": { "devices": [request] } }] });
    let held = |id: &&str| {
        let name = id.split('-').next().unwrap();
        let vendor = if name == "mi50" { "amd" } else { "nvidia" };
        (vendor.to_owned(), "gpu".to_owned(), name.to_owned(), (*id).to_owned())
    };
    let usage = Usage { devices: taken.iter().map(held).collect(), ..Usage::default() };
    let got = given(&group, &one, &usage, 1)?;
    Ok(got.tasks["t"].devices.iter().flat_map(|device| device.ids.clone()).collect())
}

#[test]
fn a_request_gets_free_and_healthy_devices_of_the_group_that_suits_it_best() {
    let none_left = || Err("devices: no devices left".to_owned());
    let got = |ids: &[&str]| Ok(ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
    let at_least = |memory: &str| json!([{ "lTarget": "${device.attr.memory}", "operand": ">=", "rTarget": memory }]);
    let likes = |model: &str, weight: i64| json!([{ "lTarget": "${device.model}", "operand": "=", "rTarget": model, "weight": weight }]);
    for (request, taken, wanted) in [
        // Of equals the later examined.
        (json!({ "name": "gpu" }), &[][..], got(&["mi50-0"])),
        (json!({ "name": "nvidia/gpu" }), &[], got(&["a100-0"])),
        (json!({ "name": "nvidia/gpu/t4", "count": 2 }), &[], got(&["t4-0", "t4-2"])),
        (json!({ "name": "nvidia/gpu/t4", "count": 3 }), &[], none_left()),
        (json!({ "name": "nvidia/gpu/t4" }), &["t4-0"], got(&["t4-2"])),
        (json!({ "name": "nvidia/gpu/t4" }), &["t4-0", "t4-2"], none_left()),
        (json!({ "name": "gpu", "count": 3 }), &["mi50-1"], none_left()),
        (json!({ "name": "gpu", "constraints": at_least("33 GiB") }), &[], got(&["a100-0"])),
        (json!({ "name": "gpu", "constraints": at_least("33 GiB") }), &["a100-0", "a100-1"], none_left()),
        (json!({ "name": "gpu", "affinities": likes("t4", 50) }), &[], got(&["t4-0"])),
        (json!({ "name": "gpu", "affinities": likes("mi50", -50) }), &[], got(&["a100-0"])),
        (json!({ "name": "gpu", "affinities": likes("t4", 50), "count": 2 }), &["t4-0"], got(&["mi50-0", "mi50-1"])),
        (
            json!({ "name": "gpu", "constraints": [{ "lTarget": "${device.ids}", "operand": "set_contains_any", "rTarget": "mi50-2,a100-1" }] }),
            &[],
            got(&["mi50-2"]),
        ),
        (json!({ "name": "fpga" }), &[], none_left()),
        (json!({ "name": "amd/gpu/t4" }), &[], none_left()),
    ] {
        assert_eq!(device_ids(&request, taken), wanted, "{request} beside {taken:?}");
    }
}

#[test]
fn what_stays_on_its_node_keeps_its_ports_cores_and_devices() {
    let held: AllocatedResources = serde_json::from_value(json!({
        "tasks": { "t": { "cpu": 2000, "memoryMB": 10, "cores": [4, 6],
            "devices": [{ "vendor": "v", "type": "gpu", "name": "g", "ids": ["1"] }] } },
        "diskMB": 300, "ports": [{ "label": "http", "value": 20_000, "hostIP": "10.0.0.1" }],
    }))
    .unwrap();
    let group = json!({ "networks": [{ "ports": [{ "label": "http" }] }], "ephemeralDisk": { "sizeMB": 400 },
        "tasks": [{ "name": "t", "driver": "mock", "resources": { "cores": 2, "memoryMB": 99 } }] });
    let definition = definition(&group);
    let need = Need::new(&Settings::default(), &definition, &definition.spec.groups[0]);
    let kept = need.keep(&node("n-0"), &held);
    assert_eq!((&kept.ports, &kept.tasks["t"].devices), (&held.ports, &held.tasks["t"].devices));
    assert_eq!((kept.tasks["t"].cores.as_slice(), kept.tasks["t"].cpu), (&[4, 6][..], 2000));
    assert_eq!((kept.tasks["t"].memory_mb, kept.disk_mb), (99, 400), "what is only a number is the new one");
    assert_eq!(kept.tasks.keys().collect::<BTreeSet<_>>(), BTreeSet::from([&"t".to_owned()]));
}
