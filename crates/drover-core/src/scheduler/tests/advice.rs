//! Each piece of advice that an explanation gives, followed: the placement succeeds then.

use drover_api::client_node::{CsiInfo, DeviceGroup, DeviceInstance, OfferedVolume};

use super::feasible::{host_volume, put_host_volume, volume};
use super::*;
use crate::host_volume::known::KnownVolume;
use crate::scheduler::explain::explain;

/// What keeps a job from its only node, what is advised, and the advice carried out.
struct Followed {
    what: &'static str,
    /// Changes the group before it is planned.
    spec: Value,
    node: fn(&mut Node),
    advice: &'static [&'static str],
    /// One for each piece of advice.
    follow: &'static [fn(&mut World)],
}

fn small_group() -> Value {
    spec(1)["groups"][0].clone()
}

fn group_with(field: &str, value: Value) -> Value {
    let mut group = small_group();
    group[field] = value;
    group
}

fn resources(value: Value) -> Value {
    let mut group = small_group();
    group["tasks"][0]["resources"] = value;
    group
}

fn world_of(group: &Value, change: fn(&mut Node)) -> World {
    let mut world = World::without_nodes(&json!({ "datacenters": ["dc1"], "groups": [group] }));
    let mut one = node("n-0");
    change(&mut one);
    world.view.put_node(one);
    world
}

/// Changes the node as its operator would.
fn on_node(world: &mut World, change: impl FnOnce(&mut Node)) {
    let mut one = (*world.view.node_entry(&NodeName::from("n-0")).unwrap().node).clone();
    change(&mut one);
    world.view.put_node(one);
}

/// Changes the job's group as its user would.
fn in_group(world: &mut World, change: impl FnOnce(&mut Value)) {
    in_spec(world, |spec| change(&mut spec["groups"][0]));
}

/// Changes the job as its user would.
fn in_spec(world: &mut World, change: impl FnOnce(&mut Value)) {
    let mut spec = serde_json::to_value(&world.job.definition.spec).unwrap();
    change(&mut spec);
    let definition = Definition::new(&serde_json::from_value(spec).unwrap(), "web");
    world.job.version += 1;
    world.job.definition = Arc::clone(&definition);
    world.job.counts = definition.spec.groups.iter().map(|group| (group.name.clone(), group.count)).collect();
    world.view.put_version(key(), world.job.uid.clone(), world.job.version, definition);
    world.put_job();
}

fn gpu(id: &str) -> DeviceGroup {
    DeviceGroup {
        vendor: "v".into(),
        r#type: "gpu".into(),
        name: "g".into(),
        instances: vec![DeviceInstance { id: id.into(), healthy: true, ..DeviceInstance::default() }],
        ..DeviceGroup::default()
    }
}

/// An allocation of another job that holds what is given here.
fn held(world: &mut World, resources: &Value) {
    let resources: AllocatedResources = serde_json::from_value(resources.clone()).unwrap();
    let (job, uid) = (JobKey::new("shop", "other"), Uid::from("other"));
    let definition = Definition::new(&serde_json::from_value(spec(1)).unwrap(), "other");
    world.view.put_version(job.clone(), uid.clone(), 1, definition);
    world.allocs([0], |alloc| {
        (alloc.key, alloc.job, alloc.job_uid) = (JobKey::new("shop", "other-0"), job.clone(), uid.clone());
        alloc.resources = Arc::new(resources.clone());
    });
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<Followed> {
    let ports = |port: Value| group_with("networks", json!([{ "ports": [port] }]));
    let no_change: fn(&mut Node) = |_| {};
    vec![
        Followed {
            what: "a host network",
            spec: ports(json!({ "label": "http", "hostNetwork": "public" })),
            node: no_change,
            advice: &["hostNetworks of an agent's configuration", "remove hostNetwork from the port"],
            follow: &[
                |world| {
                    on_node(world, |node| {
                        let public = HostAddress { alias: "public".into(), ..node.host_networks[0].clone() };
                        node.host_networks.push(public);
                    });
                },
                |world| in_group(world, |group| group["networks"][0]["ports"] = json!([{ "label": "http" }])),
            ],
        },
        Followed {
            what: "a network mode",
            spec: group_with("networks", json!([{ "mode": "bridge" }])),
            node: no_change,
            advice: &["network mode bridge is missing", "set network.bridgeSubnet", "use mode host"],
            follow: &[
                |world| on_node(world, |node| node.network_modes = ["bridge".into()].into()),
                |world| on_node(world, |node| node.network_modes = ["bridge".into()].into()),
                |world| in_group(world, |group| group["networks"] = json!([{ "mode": "host" }])),
            ],
        },
        Followed {
            what: "dynamic ports",
            spec: ports(json!({ "label": "http" })),
            node: |node| {
                node.dynamic_ports = (20_000, 20_000);
                node.reserved_ports = [20_000].into();
            },
            advice: &["dynamicPorts of the agents' configuration"],
            follow: &[|world| on_node(world, |node| node.dynamic_ports = (20_000, 20_001))],
        },
        Followed {
            what: "a static port",
            spec: ports(json!({ "label": "http", "static": 80 })),
            node: |node| node.reserved_ports = [80].into(),
            advice: &["take a dynamic one", "set ignoreCollision"],
            follow: &[
                |world| in_group(world, |group| group["networks"][0]["ports"] = json!([{ "label": "http" }])),
                |world| in_group(world, |group| group["networks"][0]["ports"][0]["ignoreCollision"] = json!(true)),
            ],
        },
        Followed {
            what: "the limit of allocations",
            spec: small_group(),
            node: |node| node.max_allocs = Some(0),
            advice: &["maxAllocs of the agents' configuration"],
            follow: &[|world| on_node(world, |node| node.max_allocs = Some(1))],
        },
        Followed {
            what: "a driver",
            spec: small_group(),
            node: |node| {
                node.drivers.insert("mock".into(), DriverState::Undetected);
            },
            advice: &["enable the driver", "use another"],
            follow: &[
                |world| {
                    on_node(world, |node| {
                        node.drivers.insert("mock".into(), DriverState::Healthy);
                    });
                },
                |world| {
                    on_node(world, |node| node.drivers.extend([("exec".into(), DriverState::Healthy)]));
                    in_group(world, |group| group["tasks"][0]["driver"] = json!("exec"));
                },
            ],
        },
        Followed {
            what: "a device",
            spec: resources(json!({ "cpu": 100, "memoryMB": 100, "devices": [{ "name": "gpu" }] })),
            node: no_change,
            advice: &["relax resources.devices", "add such devices"],
            follow: &[
                |world| in_group(world, |group| group["tasks"][0]["resources"]["devices"] = json!([])),
                |world| on_node(world, |node| node.devices = vec![gpu("0")]),
            ],
        },
        Followed {
            what: "a host volume",
            spec: group_with("volumes", json!([{ "name": "v", "type": "host", "source": "certs" }])),
            node: no_change,
            advice: &["hostVolumes of an agent's configuration", "create a HostVolume", "relax the request"],
            follow: &[
                |world| {
                    on_node(world, |node| {
                        let volume: OfferedVolume = serde_json::from_value(json!({ "path": "/etc" })).unwrap();
                        node.host_volumes.insert("certs".into(), volume);
                    });
                },
                |world| {
                    let made = host_volume("shop", "certs", "n-0", "single-node-writer");
                    put_host_volume(world, KnownVolume { name: "certs".into(), ..made });
                },
                |world| in_group(world, |group| group["volumes"] = json!([])),
            ],
        },
        Followed {
            what: "a CSI volume",
            spec: group_with(
                "volumes",
                json!([{ "name": "v", "type": "csi", "source": "v1", "accessMode": "single-node-writer" }]),
            ),
            node: |node| {
                node.csi.insert("ebs".into(), CsiInfo { node: true, healthy: true, ..CsiInfo::default() });
            },
            advice: &["create it (kubectl apply a CSIVolume with id v1)"],
            follow: &[|world| {
                let (key, made) = volume("v1", |_| {});
                world.view.put_volume(key, made);
            }],
        },
        Followed {
            what: "cores",
            spec: resources(json!({ "cores": 3, "memoryMB": 100 })),
            node: |node| node.cores = (0..2).collect(),
            advice: &["ask for fewer cores"],
            follow: &[|world| in_group(world, |group| group["tasks"][0]["resources"]["cores"] = json!(2))],
        },
        Followed {
            what: "memory",
            spec: resources(json!({ "cpu": 100, "memoryMB": 500 })),
            node: |node| node.allocatable.memory_mb = 400,
            advice: &["n-0 comes closest and lacks 100 MiB of memory: ask for less", "add nodes"],
            follow: &[
                |world| in_group(world, |group| group["tasks"][0]["resources"]["memoryMB"] = json!(400)),
                |world| world.view.put_node(node("n-1")),
            ],
        },
        Followed {
            what: "the processor",
            spec: resources(json!({ "cpu": 300, "memoryMB": 100 })),
            node: |node| node.allocatable.cpu = 200,
            advice: &["n-0 comes closest and lacks 100 MHz of cpu: ask for less"],
            follow: &[|world| in_group(world, |group| group["tasks"][0]["resources"]["cpu"] = json!(200))],
        },
        Followed {
            what: "the disk",
            spec: group_with("ephemeralDisk", json!({ "sizeMB": 500 })),
            node: |node| node.allocatable.disk_mb = 400,
            advice: &["n-0 comes closest and lacks 100 MiB of disk: ask for less"],
            follow: &[|world| in_group(world, |group| group["ephemeralDisk"]["sizeMB"] = json!(400))],
        },
        Followed {
            what: "a pool",
            spec: small_group(),
            node: |node| node.pool = "gpu".into(),
            advice: &["pool default has no node; start an agent there", "change spec.nodePool"],
            follow: &[
                |world| world.view.put_node(node("n-1")),
                |world| in_spec(world, |spec| spec["nodePool"] = json!("gpu")),
            ],
        },
        Followed {
            what: "a datacenter",
            spec: small_group(),
            node: |node| node.datacenter = "west".into(),
            advice: &["(1 ready in west); add one of these to spec.datacenters", "start an agent in the job's"],
            follow: &[
                |world| in_spec(world, |spec| spec["datacenters"] = json!(["dc1", "west"])),
                |world| world.view.put_node(node("n-1")),
            ],
        },
        Followed {
            what: "eligibility",
            spec: small_group(),
            node: |node| node.is_eligible = false,
            advice: &["set spec.eligibility of one to eligible", "start another agent"],
            follow: &[|world| on_node(world, |node| node.is_eligible = true), |world| world.view.put_node(node("n-1"))],
        },
        Followed {
            what: "a constraint",
            spec: group_with("constraints", json!([{ "lTarget": "${meta.rack}", "operand": "=", "rTarget": "r1" }])),
            node: no_change,
            advice: &["relax this rule", "change a node so that it holds"],
            follow: &[
                |world| in_group(world, |group| group["constraints"] = json!([])),
                |world| on_node(world, |node| drop(node.meta.insert("rack".into(), "r1".into()))),
            ],
        },
        Followed {
            what: "distinct hosts",
            spec: {
                let mut group = group_with("constraints", json!([{ "operand": "distinct_hosts" }]));
                group["count"] = json!(2);
                group
            },
            node: no_change,
            advice: &["lower the count", "add nodes", "remove distinct_hosts"],
            follow: &[
                |world| in_group(world, |group| group["count"] = json!(1)),
                |world| world.view.put_node(node("n-1")),
                |world| in_group(world, |group| group["constraints"] = json!([])),
            ],
        },
        Followed {
            what: "distinct property",
            spec: {
                let rule = json!({ "operand": "distinct_property", "lTarget": "${meta.rack}", "rTarget": "1" });
                let mut group = group_with("constraints", json!([rule]));
                group["count"] = json!(2);
                group
            },
            node: |node| drop(node.meta.insert("rack".into(), "r1".into())),
            advice: &["lower the count", "raise the limit", "add nodes with other values"],
            follow: &[
                |world| in_group(world, |group| group["count"] = json!(1)),
                |world| in_group(world, |group| group["constraints"][0]["rTarget"] = json!("2")),
                |world| {
                    let mut other = node("n-1");
                    other.meta.insert("rack".into(), "r2".into());
                    world.view.put_node(other);
                },
            ],
        },
    ]
}

#[test]
fn advice_that_is_followed_finds_a_place() {
    for case in cases() {
        let world = || world_of(&case.spec, case.node);
        let plan = world().plan();
        let text = plan.failed.get("web").map(explain).unwrap_or_default();
        for (advice, follow) in case.advice.iter().zip(case.follow) {
            assert!(text.contains(advice), "{}: no {advice:?} in {text:?}", case.what);
            let mut world = world();
            follow(&mut world);
            let plan = world.plan();
            let left: Vec<String> = plan.failed.values().map(explain).collect();
            assert!(left.is_empty() && !plan.placements.is_empty(), "{}, {advice}: {left:?}", case.what);
        }
        assert_eq!(case.advice.len(), case.follow.len(), "{}", case.what);
    }
}

#[test]
fn room_that_another_job_gives_up_is_found() {
    let group = resources(json!({ "cpu": 100, "memoryMB": 100, "devices": [{ "name": "gpu" }] }));
    let mut world = world_of(&group, |node| node.devices = vec![gpu("0")]);
    let holder = json!({ "tasks": { "t": { "cpu": 1, "memoryMB": 1,
        "devices": [{ "vendor": "v", "type": "gpu", "name": "g", "ids": ["0"] }] } } });
    held(&mut world, &holder);
    let text = explain(&world.plan().failed["web"]);
    assert!(text.contains("stop jobs that hold such devices"), "{text}");
    world.view.remove_alloc(&JobKey::new("shop", "other-0"));
    assert_eq!(world.plan().placements.len(), 1);
}
