//! Times single evaluations on large clusters, from the evaluation to the finished plan with the view in hand, and
//! counts what they allocate. `cargo xtask bench scheduler` and `scheduler-hard` run it; each row is one JSON object on
//! stdout.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use drover_api::CSIVolume;
use drover_api::allocation::{AllocatedResources, ClientStatus, DesiredStatus, DesiredTransition};
use drover_api::client_node::{CsiInfo, DeviceGroup, DeviceInstance, NodePhase};
use drover_api::job::EvalTrigger;
use drover_core::definition::Definition;
use drover_core::ids::{JobKey, NodeName, ObjectKey, Uid};
use drover_core::model::{Alloc, Amounts, DriverState, Health, HostAddress, Job, Node};
use drover_core::scheduler;
use drover_core::scheduler::plan::Evaluation;
use drover_core::settings::{Preemption, Settings};
use drover_core::snapshot::ClusterView;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// What an allocation of the benched job asks for.
const CPU: i64 = 6_000;
const MEMORY_MB: i64 = 6_000;
/// The job's count in the rows of the hard bench.
const HARD_COUNT: i64 = 1_200;
const HARD_NODES: usize = 5_000;

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let name = args.next().unwrap_or_else(|| "scheduler".to_owned());
    let runs = args.next().and_then(|runs| runs.parse().ok()).unwrap_or(5);
    if name == "scheduler-hard" { hard(runs) } else { grid(runs) }
}

/// Every combination of nodes, allocations, racks and spread.
fn grid(runs: usize) {
    for nodes in [500, 1_000, 5_000, 10_000] {
        for racks in [25, 50, 75] {
            let mut world = World::new(nodes, racks);
            for count in [50, 300, 600, 900, 1_200] {
                for spread in [false, true] {
                    world.put_job(&job_spec(count, spread));
                    let mut row = measure(&world, runs);
                    row.insert("nodes".into(), nodes.into());
                    row.insert("allocs".into(), count.into());
                    row.insert("racks".into(), racks.into());
                    row.insert("spread".into(), spread.into());
                    print(&row);
                }
            }
        }
    }
}

/// Shapes that cost a scheduler most.
fn hard(runs: usize) {
    for (shape, prepare) in SHAPES {
        let mut world = World::new(HARD_NODES, 50);
        prepare(&mut world);
        let nodes = world.view.nodes().count();
        let allocs = world.view.job(&key()).map_or(0, |job| job.counts.values().sum::<i64>());
        let mut row = measure(&world, runs);
        row.insert("shape".into(), (*shape).into());
        row.insert("nodes".into(), nodes.into());
        row.insert("allocs".into(), allocs.into());
        print(&row);
    }
}

type Prepare = fn(&mut World);

const SHAPES: &[(&str, Prepare)] = &[
    ("affinity", |world| {
        let mut spec = job_spec(HARD_COUNT, false);
        spec["affinities"] = json!([
            { "lTarget": "${meta.rack}", "operand": "=", "rTarget": "r3", "weight": 70 },
            { "lTarget": "${node.datacenter}", "operand": "=", "rTarget": "dc-2", "weight": -20 },
            { "lTarget": "${attr.unique.serial}", "operand": "regexp", "rTarget": "7$", "weight": 30 },
        ]);
        world.put_job(&spec);
    }),
    ("distinct_hosts", |world| {
        let mut spec = job_spec(HARD_COUNT, true);
        spec["groups"][0]["constraints"] = json!([{ "operand": "distinct_hosts" }]);
        world.put_job(&spec);
    }),
    ("distinct_property", |world| {
        let mut spec = job_spec(HARD_COUNT, false);
        spec["constraints"] = json!([{ "lTarget": "${meta.rack}", "operand": "distinct_property", "rTarget": "24" }]);
        world.put_job(&spec);
    }),
    ("devices", |world| {
        world.change_nodes(|n, node| {
            let instance =
                |id: usize| DeviceInstance { id: id.to_string(), healthy: true, ..DeviceInstance::default() };
            node.devices = vec![DeviceGroup {
                vendor: "nvidia".into(),
                r#type: "gpu".into(),
                name: if n % 2 == 0 { "a100".into() } else { "h100".into() },
                attributes: BTreeMap::from([("memory".into(), "40 GiB".into())]),
                instances: (0..4).map(instance).collect(),
            }];
        });
        let mut spec = job_spec(HARD_COUNT, false);
        spec["groups"][0]["tasks"][0]["resources"]["devices"] = json!([{ "name": "nvidia/gpu", "count": 2,
            "constraints": [{ "lTarget": "${device.attr.memory}", "operand": ">=", "rTarget": "16 GiB" }],
            "affinities": [{ "lTarget": "${device.model}", "operand": "=", "rTarget": "h100", "weight": 50 }] }]);
        world.put_job(&spec);
    }),
    ("static_ports", |world| {
        let mut spec = job_spec(HARD_COUNT, false);
        spec["groups"][0]["networks"] =
            json!([{ "ports": [{ "label": "http", "static": 8080 }, { "label": "admin" }, { "label": "rpc" }] }]);
        world.put_job(&spec);
    }),
    ("csi", |world| {
        world.change_nodes(|_, node| {
            let info = CsiInfo { node: true, healthy: true, max_volumes: 20, ..CsiInfo::default() };
            node.csi = BTreeMap::from([("ebs".to_owned(), info)]);
        });
        let volume = json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume",
            "metadata": { "name": "data", "namespace": "default" },
            "spec": { "pluginID": "ebs", "capabilities": [{ "accessMode": "multi-node-multi-writer", "attachmentMode": "file-system" }] },
            "status": { "schedulable": true, "phase": "available", "accessMode": "multi-node-multi-writer" } });
        let volume: CSIVolume = serde_json::from_value(volume).expect("a volume");
        world.view.put_volume(ObjectKey::new("default", "data"), Arc::new(volume));
        let mut spec = job_spec(HARD_COUNT, false);
        spec["groups"][0]["volumes"] =
            json!([{ "name": "data", "type": "csi", "source": "data", "accessMode": "multi-node-multi-writer" }]);
        world.put_job(&spec);
    }),
    ("preemption_of_half_the_cluster", |world| {
        // Four others of low priority fill each node; the job wants a place on half of the nodes.
        world.fill(4, CPU, MEMORY_MB, 10);
        let preemption = Preemption { service: true, ..Preemption::default() };
        world.view.set_settings(Settings { preemption, ..Settings::default() });
        let mut spec = job_spec(2_500, false);
        (spec["priority"], spec["constraints"]) = (json!(90), json!([]));
        spec["groups"][0]["constraints"] = json!([{ "operand": "distinct_hosts" }]);
        world.put_job(&spec);
    }),
    ("system_on_10000_nodes", |world| {
        *world = World::new(10_000, 50);
        let mut spec = job_spec(1, false);
        (spec["type"], spec["constraints"]) = (json!("system"), json!([]));
        world.put_job(&spec);
    }),
    ("drain_of_500_nodes", |world| {
        let spec = job_spec(5_000, false);
        let spec = {
            let mut open = spec;
            open["constraints"] = json!([]);
            open
        };
        world.put_job(&spec);
        world.run_on_each(5_000, |n, alloc| alloc.transition.migrate = n < 500);
        world.change_nodes(|n, node| node.is_draining = n < 500);
    }),
    ("0_percent_full", |world| world.put_job(&small_job())),
    ("50_percent_full", |world| {
        world.fill(10, 1_200, 1_500, 50);
        world.put_job(&small_job());
    }),
    ("95_percent_full_of_100000", |world| {
        world.fill(20, 1_140, 1_500, 50);
        world.put_job(&small_job());
    }),
];

/// A job that finds room on a nearly full cluster.
fn small_job() -> Value {
    let mut spec = job_spec(HARD_COUNT, false);
    spec["groups"][0]["tasks"][0]["resources"] = json!({ "cpu": 400, "memoryMB": 400 });
    spec
}

fn key() -> JobKey {
    JobKey::new("default", "bench")
}

/// The job of Nomad's scheduler benchmark.
fn job_spec(count: i64, spread: bool) -> Value {
    let racks: Vec<String> = (0..25).map(|n| format!("r{n}")).collect();
    let mut spec = json!({
        "datacenters": ["dc-1", "dc-2"],
        "constraints": [{ "lTarget": "${meta.rack}", "operand": "set_contains_any", "rTarget": racks.join(",") }],
        "groups": [{ "name": "web", "count": count, "tasks": [
            { "name": "web", "driver": "exec", "resources": { "cpu": CPU, "memoryMB": MEMORY_MB } }] }],
    });
    if spread {
        spec["spreads"] = json!([{ "attribute": "${meta.rack}", "weight": 50 }]);
    }
    spec
}

struct World {
    view: ClusterView,
}

impl World {
    fn new(nodes: usize, racks: usize) -> Self {
        let mut view = ClusterView::default();
        for n in 0..nodes {
            view.put_node(node(n, racks));
        }
        Self { view }
    }

    fn put_job(&mut self, spec: &Value) {
        let definition = Definition::new(&serde_json::from_value(spec.clone()).expect("a job"), "bench");
        let uid = Uid::from("job");
        self.view.put_version(key(), uid.clone(), 1, Arc::clone(&definition));
        self.view.put_job(Job {
            key: key(),
            uid,
            generation: 1,
            version: 1,
            stopped: false,
            counts: definition.spec.groups.iter().map(|group| (group.name.clone(), group.count)).collect(),
            definition,
        });
    }

    fn change_nodes(&mut self, change: impl Fn(usize, &mut Node)) {
        let nodes: Vec<Arc<Node>> = self.view.nodes().cloned().collect();
        for (n, node) in nodes.into_iter().enumerate() {
            let mut node = (*node).clone();
            change(n, &mut node);
            self.view.put_node(node);
        }
    }

    /// Puts so many allocations of other jobs on each node; a job for every hundred nodes.
    fn fill(&mut self, on_each: usize, cpu: i64, memory_mb: i64, priority: i64) {
        let held = json!({ "tasks": { "t": { "cpu": cpu, "memoryMB": memory_mb } }, "diskMB": 300 });
        let held: Arc<AllocatedResources> = Arc::new(serde_json::from_value(held).expect("resources"));
        let names: Vec<NodeName> = self.view.nodes().map(|node| node.name.clone()).collect();
        for (n, node) in names.into_iter().enumerate() {
            let job = JobKey::new("default", format!("other-{}", n / 100));
            let uid = Uid::from(format!("other-{}", n / 100));
            if n % 100 == 0 {
                let spec = json!({ "priority": priority, "groups": [{ "name": "g", "tasks": [{ "name": "t", "driver": "exec" }] }] });
                let definition = Definition::new(&serde_json::from_value(spec).expect("a job"), "other");
                self.view.put_version(job.clone(), uid.clone(), 1, definition);
            }
            for at in 0..on_each {
                let mut alloc = alloc(&format!("other-{n}-{at}"), job.clone(), uid.clone(), node.clone());
                (alloc.group, alloc.resources) = ("g".into(), Arc::clone(&held));
                self.view.put_alloc(alloc);
            }
        }
    }

    /// Runs the job on each of the first nodes.
    fn run_on_each(&mut self, n_nodes: usize, change: impl Fn(usize, &mut Alloc)) {
        let held = json!({ "tasks": { "web": { "cpu": CPU, "memoryMB": MEMORY_MB } }, "diskMB": 300 });
        let held: Arc<AllocatedResources> = Arc::new(serde_json::from_value(held).expect("resources"));
        let names: Vec<NodeName> = self.view.nodes().take(n_nodes).map(|node| node.name.clone()).collect();
        for (n, node) in names.into_iter().enumerate() {
            let mut alloc = alloc(&format!("bench-{n}"), key(), Uid::from("job"), node);
            alloc.index = i64::try_from(n).unwrap_or(0);
            alloc.resources = Arc::clone(&held);
            change(n, &mut alloc);
            self.view.put_alloc(alloc);
        }
    }
}

fn node(n: usize, racks: usize) -> Node {
    Node {
        name: NodeName::from(format!("node-{n:05}")),
        datacenter: if n.is_multiple_of(2) { "dc-1".into() } else { "dc-2".into() },
        pool: "default".into(),
        class: String::new(),
        phase: NodePhase::Ready,
        is_eligible: true,
        is_draining: false,
        attributes: BTreeMap::from([
            ("kernel.name".into(), "linux".into()),
            ("cpu.arch".into(), "amd64".into()),
            ("os.name".into(), "debian".into()),
            ("unique.hostname".into(), format!("host-{n}")),
            ("unique.serial".into(), n.to_string()),
            ("unique.network.ip-address".into(), format!("10.0.{}.{}", n / 256, n % 256)),
        ]),
        meta: BTreeMap::from([("rack".into(), format!("r{}", n % racks))]),
        allocatable: Amounts { cpu: 4 * CPU, memory_mb: 32_000, disk_mb: 100 * 1024 },
        cores: (0..16).collect(),
        core_mhz: 1_500,
        drivers: BTreeMap::from([("exec".into(), DriverState::Healthy)]),
        host_networks: vec![HostAddress {
            alias: "default".into(),
            ip: std::net::IpAddr::from([10, 0, u8::try_from(n / 256).unwrap_or(0), u8::try_from(n % 256).unwrap_or(0)]),
            reserved_ports: [22].into(),
        }],
        network_modes: ["bridge".to_owned()].into(),
        reserved_ports: [].into(),
        dynamic_ports: (20_000, 29_999),
        devices: Vec::new(),
        host_volumes: BTreeMap::new(),
        csi: BTreeMap::new(),
        max_allocs: None,
    }
}

fn alloc(name: &str, job: JobKey, job_uid: Uid, node: NodeName) -> Alloc {
    Alloc {
        key: JobKey::new("default", name),
        uid: Uid::from(name),
        job,
        job_uid,
        job_version: 1,
        group: "web".into(),
        index: 0,
        node,
        desired: DesiredStatus::Run,
        is_superseded: false,
        client: ClientStatus::Running,
        transition: DesiredTransition::default(),
        previous: None,
        follow_up: None,
        resources: Arc::default(),
        canary: false,
        deployment: None,
        health: Some(Health { is_healthy: true, deployment: None, at: Timestamp::UNIX_EPOCH }),
        health_index: 0,
        states: Vec::new(),
        best_score: None,
        task_starts: Vec::new(),
        ran_successfully: false,
        last_event_at: Timestamp::UNIX_EPOCH,
        tracker: None,
        is_deleting: false,
        has_ended: false,
        unmounted: std::collections::BTreeSet::new(),
        host_volumes: std::collections::BTreeMap::new(),
        created_at: Timestamp::UNIX_EPOCH,
    }
}

/// The median of several plans on the same picture, and what one of them allocates.
fn measure(world: &World, runs: usize) -> Map<String, Value> {
    let eval = Evaluation {
        id: "bench".into(),
        job: key(),
        trigger: EvalTrigger::JobRegister,
        priority: 50,
        now: Timestamp::UNIX_EPOCH,
        wait_until: None,
    };
    let plan = |seed: u64| scheduler::plan(&world.view, &eval, &mut fastrand::Rng::with_seed(seed));
    let mut n_placements = 0_u32;
    let heap = allocation_counter::measure(|| {
        n_placements = u32::try_from(black_box(plan(0)).placements.len()).unwrap_or(u32::MAX);
    });
    let mut seconds: Vec<f64> = (0..runs.max(1))
        .map(|seed| {
            let began = Instant::now();
            let made = black_box(plan(seed as u64 + 1));
            let seconds = began.elapsed().as_secs_f64();
            drop(made);
            seconds
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let median = seconds[(seconds.len() - 1) / 2];
    let row = json!({
        "seconds": median,
        "placements": n_placements,
        "placementsPerSecond": (f64::from(n_placements) / median).round(),
        "heapBytes": heap.bytes_total,
        "heapPeakBytes": heap.bytes_max,
        "heapAllocations": heap.count_total,
    });
    row.as_object().cloned().unwrap_or_default()
}

fn print(row: &Map<String, Value>) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", Value::Object(row.clone())).expect("stdout takes the row");
}
