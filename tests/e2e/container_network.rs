//! Who reaches whom on two nodes: pods, tasks in the node's network, containers on a bridge, the nodes themselves; by
//! their addresses, by those of Services, and by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::ground::{Ground, named, text};

const IMAGE: &str = "drover.dev/test-network:1";
/// The nodes that are looked at.
const NODES: [&str; 2] = ["n1", "n2"];
/// Before pods, tasks in the nodes' network, and containers on bridges.
const SERVICES: [&str; 3] = ["reach-pods", "reach-host", "reach-bridge"];
/// How long a node's proxy may take until it knows an endpoint.
const PROXIES: Duration = Duration::from_secs(3);
/// The server that pods and tasks run.
const SERVER: &str = "drover-example-web";

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Pod,
    HostTask,
    BridgeTask,
    Node,
}

impl From {
    const ALL: [Self; 4] = [Self::Pod, Self::HostTask, Self::BridgeTask, Self::Node];

    /// Whether names of Services mean something there: a node and what is in its network asks the node's own name
    /// servers.
    fn knows_names(self) -> bool {
        matches!(self, Self::Pod | Self::BridgeTask)
    }
}

/// Row 6 of the table for containers.
pub(crate) fn everyone_reaches_everyone(ground: &Ground) -> Result<String> {
    ground.installed()?;
    ground.offer_containers()?;
    let server = named("DROVER_E2E_BIN")?.join(SERVER);
    let server = server.to_str().context("a path of no text")?;
    ground.give_tools(IMAGE, &["bash", "sh", "head", "sleep", server])?;
    for (number, node) in NODES.iter().enumerate() {
        ground.apply(&pod(number, node).to_string())?;
    }
    ground.apply(&pods_service().to_string())?;
    ground.apply(&job().to_string())?;
    ground.kubectl(&["wait", "--for=condition=Ready", "djob/reach", "--timeout", "120s"])?;
    for number in 0..NODES.len() {
        ground.kubectl(&["wait", "--for=condition=Ready", &format!("pod/reach-{number}"), "--timeout", "60s"])?;
    }

    for service in SERVICES {
        ground.eventually(&format!("{service} leads to both nodes"), || {
            let slices = ground.read(&["endpointslice", "-l", &format!("kubernetes.io/service-name={service}")])?;
            let endpoints = slices["items"].as_array().into_iter().flatten();
            let endpoints = endpoints.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
            let n_ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true).count();
            Ok((n_ready == NODES.len()).then_some(()))
        })?;
    }
    ground.through(PROXIES, || Ok(()))?;

    let places = places(ground)?;
    let (mut table, mut silent) = (Vec::new(), Vec::new());
    let mut n_asked = 0;
    for from in From::ALL {
        let mut row = Vec::new();
        for place in &places {
            for (what, at) in targets(&places, from, ground)? {
                // A Service leads to one of its two ends at random.
                let n_times = if what.contains(' ') { 6 } else { 1 };
                let n_answers = (0..n_times).filter(|_| ask(ground, from, place, &at).unwrap_or(false)).count();
                if n_answers < n_times {
                    silent.push(format!("{from:?} of {} -> {what} at {at}: {n_answers} of {n_times}", place.node));
                }
                n_asked += n_times;
                if !row.contains(&what) {
                    row.push(what);
                }
            }
        }
        table.push(format!("{from:?} -> {}", row.join(", ")));
    }
    ensure!(silent.is_empty(), "no answer on these ways:\n{}", silent.join("\n"));
    ground.kubectl(&["delete", "djob/reach", "--wait=true", "--timeout", "60s"])?;
    ground.kubectl(&["delete", "pod/reach-0", "pod/reach-1", "svc/reach-pods", "--wait=true", "--grace-period=1"])?;
    Ok(format!("{n_asked} requests on two nodes, each answered: {}", table.join("; ")))
}

/// A node, and what is on it.
struct Place {
    node: &'static str,
    pod: String,
    /// Addresses with ports, by what answers there.
    at: BTreeMap<&'static str, String>,
    host_task: String,
    bridge_task: String,
}

fn places(ground: &Ground) -> Result<Vec<Place>> {
    let allocations = ground.read(&["alloc", "-l", "drover.dev/job=reach"])?;
    let allocations = allocations["items"].as_array().context("allocations")?;
    let place = |(number, node): (usize, &&'static str)| {
        let of_group = |group: &str| {
            let is_it = |it: &&Value| text(it, "/spec/nodeName") == *node && text(it, "/spec/group") == group;
            allocations.iter().find(is_it).with_context(|| format!("no allocation of {group} on {node}"))
        };
        let (host, bridge) = (of_group("host")?, of_group("bridge")?);
        let pod = format!("reach-{number}");
        let of_pod = ground.read(&["pod", &pod])?;
        let of_node = ground.read(&["node", node])?;
        let addresses = of_node["status"]["addresses"].as_array().context("addresses of a node")?;
        let internal = addresses.iter().find(|it| it["type"] == "InternalIP").context("an address of a node")?;
        let internal = text(internal, "/address");
        let port = |alloc: &Value| alloc["spec"]["resources"]["ports"][0]["value"].to_string();
        let at = [
            ("pod", format!("{}/8080", text(&of_pod, "/status/podIP"))),
            ("host task", format!("{internal}/{}", port(host))),
            ("bridge task", format!("{internal}/{}", port(bridge))),
            // The kubelet, which answers in the node's own network.
            ("node", format!("{internal}/10250")),
        ];
        let name = |alloc: &Value| text(alloc, "/metadata/name").to_owned();
        Ok(Place { node, pod, at: at.into(), host_task: name(host), bridge_task: name(bridge) })
    };
    NODES.iter().enumerate().map(place).collect()
}

/// Everything that is asked from there.
fn targets(places: &[Place], from: From, ground: &Ground) -> Result<Vec<(String, String)>> {
    let each = places.iter().flat_map(|place| place.at.iter());
    let mut targets: Vec<(String, String)> = each.map(|(what, at)| ((*what).to_owned(), at.clone())).collect();
    for service in SERVICES {
        let address = text(&ground.read(&["svc", service])?, "/spec/clusterIP").to_owned();
        targets.push((format!("Service {service}"), format!("{address}/80")));
        if from.knows_names() {
            targets.push((format!("name {service}"), format!("{service}/80")));
        }
    }
    if from.knows_names() {
        targets.push(("name kubernetes.default".to_owned(), "kubernetes.default/443".to_owned()));
    }
    Ok(targets)
}

/// Whether a web server answers; of what speaks TLS, whether it takes the connection.
fn ask(ground: &Ground, from: From, place: &Place, at: &str) -> Result<bool> {
    let request = "printf 'GET / HTTP/1.0\\r\\nConnection: close\\r\\n\\r\\n' >&3 && head -n 1 <&3";
    let speaks_tls = ["/443", "/10250"].iter().any(|port| at.ends_with(port));
    let then = if speaks_tls { "echo HTTP/1.1" } else { request };
    let script = format!("exec 3<>/dev/tcp/{at} && {then}");
    let command = ["bash", "-c", &script];
    let said = match from {
        From::Pod => ground.kubectl(&[&["exec", &place.pod, "--"], &command[..]].concat())?,
        From::HostTask => ground.drover(&[&["alloc", "exec", &place.host_task, "--"], &command[..]].concat())?,
        From::BridgeTask => ground.drover(&[&["alloc", "exec", &place.bridge_task, "--"], &command[..]].concat())?,
        From::Node => {
            let output = ground.cluster.on_node(place.node, &command)?;
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
    };
    Ok(said.starts_with("HTTP/1."))
}

fn pod(number: usize, node: &str) -> Value {
    let variables = [
        ("NOMAD_IP_http", "0.0.0.0"),
        ("NOMAD_PORT_http", "8080"),
        ("NOMAD_ALLOC_INDEX", "0"),
        ("NOMAD_JOB_NAME", "pod"),
    ];
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("reach-{number}"), "labels": { "app": "reach-pods" } },
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "server", "image": IMAGE, "imagePullPolicy": "Never",
                "command": [Path::new("/bin").join(SERVER)],
                "env": variables.map(|(name, value)| json!({ "name": name, "value": value })),
            }],
        },
    })
}

fn pods_service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "reach-pods" },
        "spec": { "selector": { "app": "reach-pods" }, "ports": [{ "port": 80, "targetPort": 8080 }] },
    })
}

fn job() -> Value {
    let group = |name: &str, network: Value, task: Value| {
        json!({
            "name": name, "count": NODES.len(), "networks": [network],
            "constraints": [
                { "lTarget": "${node.unique.name}", "operand": "regexp", "rTarget": "^n[12]$" },
                { "operand": "distinct_hosts" },
            ],
            "services": [{ "name": format!("reach-{name}"), "portLabel": "http", "kubernetes": { "port": 80 } }],
            "tasks": [task],
        })
    };
    let everywhere = format!("NOMAD_IP_http=0.0.0.0 exec /bin/{SERVER}");
    json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "reach" },
        "spec": { "groups": [
            group("host", json!({ "mode": "host", "ports": [{ "label": "http" }] }), json!({
                "name": "t", "driver": "raw_exec", "resources": { "cpu": 20, "memoryMB": 32 },
                "config": { "command": format!("/usr/local/sbin/{SERVER}") },
            })),
            group("bridge", json!({ "mode": "bridge", "ports": [{ "label": "http", "to": 8080 }] }), json!({
                "name": "t", "driver": "containerd", "resources": { "cpu": 20, "memoryMB": 32 },
                "config": { "image": IMAGE, "command": "/bin/sh", "args": ["-c", everywhere] },
            })),
        ] },
    })
}
