//! Who holds which ports, cores, devices and how much memory on this node: the last word on overcommitment.
//!
//! Two leaders may place more on a node than it has. What is held here ends it: an allocation waits for a holder that
//! is stopping, and else fails with the holder's name, to be placed elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use drover_api::Allocation;
use drover_api::allocation::AllocatedDevice;
use drover_api::group::Group;
use drover_core::usage::may_collide;

use crate::watch;

/// What an allocation needs for itself alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    ports: BTreeSet<(String, i64)>,
    cores: BTreeSet<i64>,
    /// By vendor, type, name and id.
    devices: BTreeSet<[String; 4]>,
    memory_mb: i64,
}

impl Need {
    /// The need of this allocation. Ports that may collide (`ignoreCollision`) belong to no allocation alone.
    pub(crate) fn of(allocation: &Allocation, group: &Group) -> Self {
        let resources = &allocation.spec.resources;
        let alone = resources.ports.iter().filter(|port| !may_collide(group, &port.label));
        Self {
            ports: alone.map(|port| (port.host_ip.clone(), port.value)).collect(),
            cores: resources.tasks.values().flat_map(|task| task.cores.iter().copied()).collect(),
            devices: resources.tasks.values().flat_map(|task| &task.devices).flat_map(instances).collect(),
            memory_mb: resources.tasks.values().map(|task| task.memory_mb).sum(),
        }
    }
}

/// Why an allocation is not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotAdmitted {
    /// Who holds it.
    pub(crate) holder: String,
    /// What is held, for people.
    pub(crate) what: String,
    /// Whether the holder is stopping, so that waiting helps.
    pub(crate) is_stopping: bool,
}

#[derive(Clone, Debug)]
struct Holder {
    name: String,
    need: Need,
    is_stopping: bool,
}

/// The node's holders; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    holders: Arc<Mutex<BTreeMap<String, Holder>>>,
    memory_mb: i64,
    changed: watch::Sender<u64>,
}

impl Admission {
    /// A node with this much memory for allocations.
    pub(crate) fn new(memory_mb: i64) -> Self {
        Self { holders: Arc::default(), memory_mb, changed: watch::Sender::new(0) }
    }

    /// Takes what the allocation needs, all or nothing. What it holds already is its own.
    pub(crate) fn claim(&self, uid: &str, name: &str, need: Need) -> Result<(), NotAdmitted> {
        let mut holders = self.lock();
        let others = || holders.iter().filter(|(holder, _)| *holder != uid).map(|(_, holder)| holder);
        for other in others() {
            if let Some(what) = overlap(&need, &other.need) {
                return Err(NotAdmitted { holder: other.name.clone(), what, is_stopping: other.is_stopping });
            }
        }
        let held: i64 = others().map(|other| other.need.memory_mb).sum();
        if held + need.memory_mb > self.memory_mb {
            let largest = others().max_by_key(|other| (other.is_stopping, other.need.memory_mb));
            let what = format!("{held} of {} MB memory", self.memory_mb);
            let (holder, is_stopping) =
                largest.map_or((String::from("the node"), false), |it| (it.name.clone(), it.is_stopping));
            return Err(NotAdmitted { holder, what, is_stopping });
        }
        holders.insert(uid.to_owned(), Holder { name: name.to_owned(), need, is_stopping: false });
        Ok(())
    }

    /// Takes without asking: the tasks run already.
    pub(crate) fn restore(&self, uid: &str, name: &str, need: Need) {
        self.lock().insert(uid.to_owned(), Holder { name: name.to_owned(), need, is_stopping: false });
    }

    /// Others may now wait for what it holds.
    pub(crate) fn mark_stopping(&self, uid: &str) {
        if let Some(holder) = self.lock().get_mut(uid) {
            holder.is_stopping = true;
        }
        self.changed.send_modify(|n| *n += 1);
    }

    /// Gives back what it holds.
    pub(crate) fn release(&self, uid: &str) {
        self.lock().remove(uid);
        self.changed.send_modify(|n| *n += 1);
    }

    /// Sees every change of the holders.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Holder>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overlap(need: &Need, held: &Need) -> Option<String> {
    if let Some((ip, port)) = need.ports.intersection(&held.ports).next() {
        return Some(format!("port {port} of {ip}"));
    }
    if let Some(core) = need.cores.intersection(&held.cores).next() {
        return Some(format!("core {core}"));
    }
    need.devices
        .intersection(&held.devices)
        .next()
        .map(|[vendor, r#type, name, id]| format!("device {id} of {vendor}/{type}/{name}"))
}

fn instances(device: &AllocatedDevice) -> impl Iterator<Item = [String; 4]> {
    let AllocatedDevice { vendor, r#type, name, ids } = device;
    ids.iter().map(|id| [vendor.clone(), r#type.clone(), name.clone(), id.clone()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn port(value: i64) -> Need {
        Need { ports: [("10.0.0.1".to_owned(), value)].into(), memory_mb: 100, ..Need::default() }
    }

    #[test]
    fn a_held_port_is_refused_with_the_holders_name() {
        let admission = Admission::new(1000);
        admission.claim("a", "web-0", port(80)).expect("free");
        let refused = admission.claim("b", "web-1", port(80)).expect_err("held");
        assert_eq!(
            refused,
            NotAdmitted { holder: "web-0".into(), what: "port 80 of 10.0.0.1".into(), is_stopping: false }
        );
        admission.claim("b", "web-1", port(81)).expect("another port");
        admission.claim("a", "web-0", port(80)).expect("its own");
    }

    #[test]
    fn a_stopping_holder_is_waited_for() {
        let admission = Admission::new(1000);
        admission.claim("a", "web-0", port(80)).expect("free");
        let mut changes = admission.changes();
        admission.mark_stopping("a");
        assert!(admission.claim("b", "web-1", port(80)).expect_err("held").is_stopping);
        admission.release("a");
        assert_eq!(changes.changed().now_or_never(), Some(Ok(())));
        admission.claim("b", "web-1", port(80)).expect("free again");
    }

    #[test]
    fn cores_and_devices_are_one_allocations_alone() {
        let admission = Admission::new(1000);
        let device = |id: &str| ["acme", "tpu", "t1", id].map(str::to_owned);
        let need = |core, id| Need { cores: [core].into(), devices: [device(id)].into(), ..Need::default() };
        admission.claim("a", "web-0", need(1, "x")).expect("free");
        let what = |need| admission.claim("b", "web-1", need).expect_err("held").what;
        assert_eq!(what(need(1, "y")), "core 1");
        assert_eq!(what(need(2, "x")), "device x of acme/tpu/t1");
        admission.claim("b", "web-1", need(2, "y")).expect("free");
    }

    #[test]
    fn memory_is_not_given_twice() {
        let admission = Admission::new(150);
        admission.claim("a", "web-0", port(80)).expect("free");
        let refused = admission.claim("b", "web-1", port(81)).expect_err("too much");
        assert_eq!((refused.holder.as_str(), refused.what.as_str()), ("web-0", "100 of 150 MB memory"));
    }
}
