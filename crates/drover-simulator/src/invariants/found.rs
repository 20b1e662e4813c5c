//! What should be found of an allocation by name, worked out the slow and plain way: from what is stored, and with
//! nothing of the controller's own code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::client_node::NodePhase;
use drover_api::{Allocation, ClientNode, JobVersion, label, names};
use drover_store::Key;
use drover_store::memory::{Stored, StoredChange};
use serde_json::Value;

/// Ports, and whether requests may come, by Service and address.
pub(super) type Found = BTreeMap<(String, String), (BTreeSet<i64>, bool)>;

/// The objects from which it follows what should be found, and those by which it is.
#[derive(Debug, Default)]
pub(super) struct Sources {
    allocs: BTreeMap<String, Arc<Stored>>,
    versions: BTreeMap<Key, Arc<Stored>>,
    nodes: BTreeMap<String, Arc<Stored>>,
    core_nodes: BTreeMap<String, Arc<Stored>>,
    slices: BTreeMap<String, BTreeMap<Key, Arc<Stored>>>,
}

impl Sources {
    /// Takes in a change, and says of which allocations something else may be found now, by uid.
    pub(super) fn take(&mut self, change: &StoredChange) -> Vec<String> {
        let object = change.object();
        let (name, key) = (object.key.name.clone(), object.key.clone());
        match object.kind.name.as_str() {
            "Allocation" => {
                let uid = object.uid().to_owned();
                // The others are of no concern, whatever number of them there is.
                let is_kept = |alloc: &Allocation| has_registrations(alloc) || self.slices.contains_key(&uid);
                let kept = change.after.as_ref().filter(|after| after.typed::<Allocation>().is_ok_and(is_kept));
                put(&mut self.allocs, uid.clone(), kept);
                vec![uid]
            }
            "JobVersion" => {
                put(&mut self.versions, key, change.after.as_ref());
                self.with_services(|_| true)
            }
            "ClientNode" => {
                put(&mut self.nodes, name.clone(), change.after.as_ref());
                self.with_services(|alloc| alloc.spec.node_name == name)
            }
            "Node" => {
                put(&mut self.core_nodes, name.clone(), change.after.as_ref());
                self.with_services(|alloc| alloc.spec.node_name == name)
            }
            "EndpointSlice" => {
                let uid = owner(object);
                let of_owner = self.slices.entry(uid.clone()).or_default();
                put(of_owner, key, change.after.as_ref());
                if of_owner.is_empty() {
                    self.slices.remove(&uid);
                }
                vec![uid]
            }
            _ => Vec::new(),
        }
    }

    fn with_services(&self, is_meant: impl Fn(&Allocation) -> bool) -> Vec<String> {
        let has_services = |stored: &Stored| {
            let alloc = stored.typed::<Allocation>();
            alloc.is_ok_and(|alloc| is_meant(alloc) && has_registrations(alloc))
        };
        self.allocs.iter().filter(|(_, stored)| has_services(stored)).map(|(uid, _)| uid.clone()).collect()
    }

    /// An allocation's slices.
    pub(super) fn slices_of(&self, uid: &str) -> impl Iterator<Item = (&Key, &Arc<Stored>)> {
        self.slices.get(uid).into_iter().flatten()
    }

    /// An allocation.
    pub(super) fn alloc(&self, uid: &str) -> Option<&Arc<Stored>> {
        self.allocs.get(uid)
    }

    /// What is found of an allocation, and whether it stands there more than once.
    pub(super) fn found(&self, uid: &str) -> (Found, bool) {
        let mut found = Found::new();
        let mut is_double = false;
        for (_, slice) in self.slices_of(uid) {
            let service = slice.value["metadata"]["labels"][label::SERVICE_NAME].as_str().unwrap_or_default();
            let ports = slice.value["ports"].as_array().into_iter().flatten();
            let ports: BTreeSet<i64> = ports.filter_map(|port| port["port"].as_i64()).collect();
            for endpoint in slice.value["endpoints"].as_array().into_iter().flatten() {
                let is_ready = endpoint["conditions"]["ready"] == true;
                for address in endpoint["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                    let place = (service.to_owned(), address.to_owned());
                    is_double |= found.insert(place, (ports.clone(), is_ready)).is_some();
                }
            }
        }
        (found, is_double)
    }

    /// What should be found of it.
    pub(super) fn wanted(&self, uid: &str) -> Found {
        let mut wanted = Found::new();
        let alloc = self.allocs.get(uid).and_then(|stored| stored.typed::<Allocation>().ok());
        let Some(alloc) = alloc.filter(|alloc| is_to_run(alloc)) else { return wanted };
        let status = alloc.status.clone().unwrap_or_default();
        let version = Key {
            namespace: alloc.metadata.namespace.clone(),
            name: names::job_version_name(&alloc.spec.job_name, alloc.spec.job_version),
        };
        let version = self.versions.get(&version).and_then(|stored| stored.typed::<JobVersion>().ok());
        let version = version.filter(|version| version.spec.job_uid == alloc.spec.job_uid);
        let Some(group) = version.and_then(|version| version.spec.job.group(&alloc.spec.group)) else { return wanted };
        let of_group = group.services.iter().map(|service| (format!("group-{}", group.name), service));
        let of_tasks =
            group.tasks.iter().flat_map(|task| task.services.iter().map(|service| (task.name.clone(), service)));
        let addresses =
            self.core_nodes.get(&alloc.spec.node_name).map(|node| node.value["status"]["addresses"].clone());
        let addresses: Vec<Value> = addresses.and_then(|all| all.as_array().cloned()).unwrap_or_default();
        for (owner, service) in of_group.chain(of_tasks) {
            let id = format!("_nomad-task-{uid}-{owner}-{}-{}", service.name, service.port_label);
            let Some(known) = status.services.iter().find(|known| known.id == id) else { continue };
            let ports = &alloc.spec.resources.ports;
            let Some(port) = ports.iter().find(|port| port.label == service.port_label) else { continue };
            if !addresses.iter().any(|address| address["address"] == port.host_ip.as_str()) {
                continue;
            }
            let is_ready = known.ready && status.client_status != ClientStatus::Unknown;
            let place = (known.service_name.clone(), port.host_ip.clone());
            let (numbers, all_ready) = wanted.entry(place).or_insert_with(|| (BTreeSet::new(), true));
            numbers.insert(port.value);
            *all_ready &= is_ready;
        }
        wanted
    }

    /// Whether the node of an allocation is known to be away.
    pub(super) fn is_away(&self, uid: &str) -> bool {
        let alloc = self.allocs.get(uid).and_then(|stored| stored.typed::<Allocation>().ok());
        let node = alloc.and_then(|alloc| self.nodes.get(&alloc.spec.node_name)?.typed::<ClientNode>().ok());
        let phase = node.and_then(|node| node.status.as_ref()).map(|status| status.phase);
        matches!(phase, Some(NodePhase::Down | NodePhase::Disconnected))
    }
}

fn put<K: Ord>(into: &mut BTreeMap<K, Arc<Stored>>, key: K, object: Option<&Arc<Stored>>) {
    match object {
        Some(object) => drop(into.insert(key, Arc::clone(object))),
        None => drop(into.remove(&key)),
    }
}

/// The uid of the allocation that a slice belongs to.
pub(super) fn owner(slice: &Stored) -> String {
    let owners = slice.value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let mut uids = owners.filter(|owner| owner["kind"] == "Allocation").filter_map(|owner| owner["uid"].as_str());
    uids.next().unwrap_or_default().to_owned()
}

fn has_registrations(alloc: &Allocation) -> bool {
    alloc.status.as_ref().is_some_and(|status| !status.services.is_empty())
}

/// Whether an allocation is to run and may still do so.
pub(super) fn is_to_run(alloc: &Allocation) -> bool {
    let client = alloc.status.as_ref().map(|status| status.client_status).unwrap_or_default();
    alloc.spec.desired_status == DesiredStatus::Run
        && alloc.metadata.deletion_timestamp.is_none()
        && !client.is_terminal()
}
