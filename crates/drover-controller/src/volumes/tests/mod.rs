//! What becomes of volumes in a cluster whose agents answer for plugins as a test says.

mod accidents;
mod claims;
mod plugins;
mod provider;
mod release;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use drover_api::csi_volume::{CSIVolumeStatus, VolumeConditionType};
use drover_api::{CSIVolume, ClientNode, Job};
use drover_store::{Key, Part};
use serde_json::{Value, json};

use crate::tests::{World, group, in_default, job, node};

/// Nodes that run plugin `p`, with what their agents are asked for.
struct Cluster {
    world: World,
    /// The calls that agents were asked to make, as `controller-publish data to ext-n1 by n1`.
    calls: Vec<String>,
    /// What agents answer to the next calls of a kind; to all others, that it is done.
    answers: BTreeMap<&'static str, VecDeque<Value>>,
    /// Whether agents answer at all.
    is_answering: bool,
}

/// What a controller can do, in the words of the Container Storage Interface.
const CAPABILITIES: [&str; 5] =
    ["PUBLISH_UNPUBLISH_VOLUME", "CREATE_DELETE_VOLUME", "CREATE_DELETE_SNAPSHOT", "LIST_SNAPSHOTS", "EXPAND_VOLUME"];

/// A node on which plugin `p` runs with both of its halves, and all that a controller can do.
fn with_plugin(name: &str) -> ClientNode {
    with_info(name, &json!({}))
}

/// The same with other words of its agent about the plugin.
fn with_info(name: &str, more: &Value) -> ClientNode {
    let mut info = json!({ "controller": true, "node": true, "healthy": true, "requiresControllerPlugin": true,
        "nodeID": format!("ext-{name}"), "maxVolumes": 0, "provider": "test",
        "capabilities": CAPABILITIES });
    for (field, value) in more.as_object().unwrap() {
        info[field] = value.clone();
    }
    let mut value = serde_json::to_value(node(name)).unwrap();
    value["status"]["fingerprint"]["csi"] = json!({ "p": info });
    // Room for the plugin.
    value["status"]["fingerprint"]["resources"]["cpu"] = json!(1001);
    serde_json::from_value(value).unwrap()
}

/// The job that runs plugin `p` on all nodes.
fn plugin_job() -> Job {
    let mut of = group("g", 1);
    of["tasks"][0]["csiPlugin"] = json!({ "id": "p", "type": "monolith" });
    of["tasks"][0]["resources"] = json!({ "cpu": 1, "memoryMB": 10 });
    of["update"] = json!({ "maxParallel": 0 });
    job("plugin", &json!({ "type": "system", "groups": [of] }))
}

/// A volume of plugin `p`, registered with the id of what is there already.
fn volume(name: &str, access: &str) -> CSIVolume {
    serde_json::from_value(json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "pluginID": "p", "externalID": format!("vol-{name}"),
            "capabilities": [{ "accessMode": access, "attachmentMode": "file-system" }] },
    }))
    .unwrap()
}

/// A job of so many allocations that use a volume.
fn user(name: &str, count: i64, volume: &str, access: &str) -> Job {
    let mut of = group("g", count);
    let read_only = access.ends_with("reader-only");
    of["volumes"] = json!([{ "name": "v", "type": "csi", "source": volume, "accessMode": access,
        "attachmentMode": "file-system", "readOnly": read_only }]);
    of["update"] = json!({ "maxParallel": 0 });
    job(name, &json!({ "groups": [of] }))
}

impl Cluster {
    fn new(nodes: &[ClientNode]) -> Self {
        let mut world = World::new();
        world.create(&plugin_job());
        for node in nodes {
            world.register(node);
        }
        while {
            world.settle();
            world.agents_act()
        } {}
        world.writes();
        Self { world, calls: Vec::new(), answers: BTreeMap::new(), is_answering: true }
    }

    /// One with nodes `n1` and `n2`, and a volume `data` of this access mode that is ready.
    async fn with_data(access: &str) -> Self {
        let mut cluster = Self::new(&[with_plugin("n1"), with_plugin("n2")]);
        cluster.world.create(&volume("data", access));
        cluster.live(5).await;
        cluster.calls.clear();
        cluster
    }

    /// So many seconds pass; agents answer what they are asked for, and their allocations start and end.
    async fn live(&mut self, seconds: u64) {
        for _ in 0..seconds * 2 {
            self.world.settle();
            self.serve();
            self.world.agents_act();
            self.world.advance(Duration::from_millis(500)).await;
        }
    }

    /// So many seconds pass in which agents answer for plugins and do nothing else.
    async fn serve_for(&mut self, seconds: u64) {
        for _ in 0..seconds * 2 {
            self.world.settle();
            self.serve();
            self.world.advance(Duration::from_millis(500)).await;
        }
    }

    /// All agents answer what they are asked for, and forget what they are not asked for any more.
    fn serve(&mut self) {
        if !self.is_answering {
            return;
        }
        for node in self.world.all::<ClientNode>() {
            let name = node.metadata.name.clone().unwrap();
            let status = node.status.unwrap_or_default();
            let known = status.fingerprint.unwrap_or_default().csi_answers;
            let mut answers = json!({});
            for old in known.keys().filter(|old| !status.csi_requests.contains_key(*old)) {
                answers[old] = Value::Null;
            }
            for (id, request) in status.csi_requests.iter().filter(|(id, _)| !known.contains_key(*id)) {
                let to = if request.node_id.is_empty() { String::new() } else { format!(" to {}", request.node_id) };
                let how = if request.read_only { " read-only" } else { "" };
                self.calls.push(format!("{} {}{to}{how} by {name}", request.call, request.volume));
                let answer = self.answers.get_mut(request.call.as_str()).and_then(VecDeque::pop_front);
                answers[id] = answer.unwrap_or_else(|| json!({}));
            }
            if answers.as_object().is_some_and(|answers| !answers.is_empty()) {
                self.tell(&name, &json!({ "csiAnswers": answers }));
            }
        }
    }

    /// A node's agent changes its fingerprint.
    fn tell(&self, node: &str, fingerprint: &Value) {
        let body = json!({ "status": { "fingerprint": fingerprint } });
        self.world.merge::<ClientNode>(&Key::cluster(node), Part::Status, body);
    }

    /// The next calls of a kind are answered so.
    fn answer(&mut self, call: &'static str, answers: impl IntoIterator<Item = Value>) {
        self.answers.entry(call).or_default().extend(answers);
    }

    fn take_calls(&mut self) -> Vec<String> {
        std::mem::take(&mut self.calls)
    }

    fn status(&self, volume: &str) -> CSIVolumeStatus {
        self.world.the::<CSIVolume>(volume).status.unwrap_or_default()
    }

    /// The claims of a volume, as `write taken attached on n1`.
    fn claims(&self, volume: &str) -> Vec<String> {
        let claims = self.status(volume).claims;
        let shown = claims
            .iter()
            .map(|claim| format!("{} {} {} on {}", claim.mode, claim.state, claim.attach, claim.node_name));
        shown.collect()
    }

    /// A condition of a volume, as `True Available`.
    fn condition(&self, volume: &str, kind: VolumeConditionType) -> String {
        let conditions = self.status(volume).conditions;
        let found = conditions.iter().find(|one| one.r#type == kind);
        found.map(|one| format!("{} {}", one.status, one.reason)).unwrap_or_default()
    }

    /// A person notes something on a volume; null takes it away.
    fn annotate(&self, volume: &str, name: &str, value: &Value) {
        let body = json!({ "metadata": { "annotations": { name: value } } });
        self.world.merge::<CSIVolume>(&in_default(volume), Part::Spec, body);
    }

    /// The job is stopped by a person.
    fn stop(&self, job: &str) {
        self.world.change_job(job, &json!({ "stop": true }));
    }

    /// How many allocations of a job run and are to.
    fn running(&self, job: &str) -> usize {
        self.world.shown(job).iter().filter(|shown| shown.ends_with("run running")).count()
    }

    /// The node on which the one running allocation of a job is.
    fn node_of(&self, job: &str) -> String {
        let shown = self.world.shown(job).into_iter().find(|shown| shown.ends_with("run running")).expect("one runs");
        shown.split(" on ").nth(1).and_then(|rest| rest.split(':').next()).unwrap().to_owned()
    }
}
