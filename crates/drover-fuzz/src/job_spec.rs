//! A job's spec from its JSON to a plan: its defaults, what validation says of it, and where it would be placed.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::JobSpec;
use drover_api::client_node::{CsiInfo, DeviceGroup, DeviceInstance, NodePhase, OfferedVolume};
use drover_api::job::EvalTrigger;
use drover_core::definition::{Definition, is_same_version};
use drover_core::difference::JobDiff;
use drover_core::ids::{JobKey, NodeName, Uid};
use drover_core::model::{Amounts, DriverState, HostAddress, Job, Node};
use drover_core::scheduler::plan::Evaluation;
use drover_core::snapshot::ClusterView;
use drover_core::{advice, scheduler, validate};
use jiff::Timestamp;

/// Allocations of a job beyond which it is validated and not planned: how long that takes is a bench's question.
const MOST_PLANNED: i64 = 200;

/// Reads a spec and sees it through.
pub(crate) fn run(data: &[u8]) {
    let Ok(object) = serde_json::from_slice::<serde_json::Value>(data) else { return };
    let job = serde_json::json!({ "apiVersion": drover_api::API_VERSION, "kind": "Job",
        "metadata": { "name": "web", "namespace": "shop" }, "spec": object });
    drop(validate::shape("Job", &job));
    let Ok(spec) = serde_json::from_slice::<JobSpec>(data) else { return };
    let definition = Definition::new(&spec, "web");
    let again = Definition::new(&definition.spec, "web");
    assert_eq!(definition, again, "defaults complete what is complete already");
    assert!(is_same_version(&definition.spec, &again.spec), "a version differs from itself");
    let wrong = validate::violations(&definition);
    drop((validate::warnings(&definition), validate::changes(None, &spec), validate::changes(Some(&spec), &spec)));
    drop(JobDiff::between(None, &definition));
    let total = definition.spec.groups.iter().map(|group| group.count.max(0)).fold(0, i64::saturating_add);
    if wrong.is_empty() && total <= MOST_PLANNED {
        plan(&definition);
    }
}

fn plan(definition: &Arc<Definition>) {
    let (key, uid) = (JobKey::new("shop", "web"), Uid::from("u-web"));
    let mut view = ClusterView::default();
    for n in 0..5 {
        view.put_node(node(n));
    }
    let counts = definition.spec.groups.iter().map(|group| (group.name.clone(), group.count)).collect();
    view.put_version(key.clone(), uid.clone(), 0, Arc::clone(definition));
    view.put_job(Job {
        key: key.clone(),
        uid,
        generation: 1,
        version: 0,
        stopped: false,
        counts,
        definition: Arc::clone(definition),
    });
    let evaluation = Evaluation {
        id: "e".into(),
        job: key,
        trigger: EvalTrigger::JobRegister,
        priority: definition.spec.priority,
        now: Timestamp::UNIX_EPOCH,
        wait_until: None,
    };
    let made = scheduler::plan(&view, &evaluation, &mut fastrand::Rng::with_seed(7));
    for group in definition.spec.groups.iter().take(3) {
        drop(advice::advice(&view, &evaluation, 7, &made, &group.name));
    }
    assert!(made.placements.iter().all(|placed| view.node(&placed.node).is_some()), "placed where there is no node");
}

/// Nodes that differ in what jobs may ask for.
fn node(n: u8) -> Node {
    let text = |value: &str| value.to_owned();
    let instance = |id: u8| DeviceInstance { id: format!("gpu-{id}"), healthy: true, ..DeviceInstance::default() };
    let gpu = DeviceGroup {
        vendor: "nvidia".into(),
        r#type: "gpu".into(),
        name: "a100".into(),
        attributes: BTreeMap::from([("memory".into(), "40 GiB".into())]),
        instances: (0..2).map(instance).collect(),
    };
    let csi = CsiInfo { node: true, healthy: true, max_volumes: 2, ..CsiInfo::default() };
    Node {
        name: NodeName::from(format!("n-{n}")),
        datacenter: format!("dc{}", 1 + n % 2),
        pool: text("default"),
        class: text("web"),
        phase: NodePhase::Ready,
        is_eligible: true,
        is_draining: false,
        attributes: BTreeMap::from([
            (text("kernel.name"), text("linux")),
            (text("cpu.arch"), text("amd64")),
            (text("os.version"), text("12.4")),
            (text("driver.exec"), text("1")),
        ]),
        meta: BTreeMap::from([(text("rack"), format!("r{}", n % 3))]),
        allocatable: Amounts { cpu: 4000, memory_mb: 8192, disk_mb: 50_000 },
        cores: (0..4).collect(),
        core_mhz: 1000,
        drivers: ["exec", "raw_exec", "mock"].map(|name| (text(name), DriverState::Healthy)).into(),
        host_networks: vec![HostAddress {
            alias: text("default"),
            ip: std::net::Ipv4Addr::new(10, 0, 0, n).into(),
            reserved_ports: [22].into(),
        }],
        network_modes: [].into(),
        reserved_ports: [22].into(),
        dynamic_ports: (20_000, 20_010),
        devices: if n.is_multiple_of(2) { vec![gpu] } else { Vec::new() },
        host_volumes: BTreeMap::from([(text("data"), OfferedVolume::default())]),
        csi: BTreeMap::from([(text("disks"), csi)]),
        max_allocs: Some(20),
    }
}
