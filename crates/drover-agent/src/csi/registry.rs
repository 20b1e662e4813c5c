//! The drivers of this node, and which of several of one name serves: one of the cluster before one that a task runs,
//! one that works before one that does not, and of those the newest. Must never call a driver.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::client_node::CsiInfo;
use drover_api::csi_volume::PluginSource;

use super::plugin::{Plugin, PluginFacts};

/// A driver that runs here.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) plugin: Arc<dyn Plugin>,
    pub(crate) info: CsiInfo,
    pub(crate) facts: PluginFacts,
}

/// The drivers by their names, and within a name by what runs them: a task, or the socket of one of the cluster.
#[derive(Debug, Default)]
pub(super) struct Registry {
    known: BTreeMap<(String, String), RegisteredInstance>,
    n_registered: u64,
}

#[derive(Debug)]
struct RegisteredInstance {
    instance: Instance,
    /// Its place in the order of registration.
    nth: u64,
}

impl Registry {
    /// Takes in a driver, or its new state. Returns whether it works since.
    pub(super) fn put(&mut self, id: &str, runner: &str, instance: Instance) -> bool {
        let key = (id.to_owned(), runner.to_owned());
        let before = self.known.remove(&key);
        let works = instance.info.healthy && before.as_ref().is_none_or(|before| !before.instance.info.healthy);
        let nth = before.map_or_else(|| self.next_place(), |before| before.nth);
        self.known.insert(key, RegisteredInstance { instance, nth });
        works
    }

    fn next_place(&mut self) -> u64 {
        self.n_registered += 1;
        self.n_registered
    }

    pub(super) fn remove(&mut self, id: &str, runner: &str) {
        self.known.remove(&(id.to_owned(), runner.to_owned()));
    }

    /// Whether a driver is there that nothing runs.
    pub(super) fn is_given(&self, id: &str) -> bool {
        self.known.contains_key(&(id.to_owned(), String::new()))
    }

    /// Whether this life of a driver goes on.
    pub(super) fn runs(&self, plugin: &Arc<dyn Plugin>) -> bool {
        self.known.values().any(|known| Arc::ptr_eq(&known.instance.plugin, plugin))
    }

    /// The one that serves, of those with a half.
    pub(super) fn find(&self, id: &str, has_half: impl Fn(&CsiInfo) -> bool) -> Option<&Instance> {
        let of_name = self.known.range((id.to_owned(), String::new())..).take_while(|((of, _), _)| of == id);
        let able = of_name.map(|(_, known)| known).filter(|known| has_half(&known.instance.info));
        let first = able.min_by_key(|known| {
            let info = &known.instance.info;
            (Reverse(info.source), !info.healthy, Reverse(known.nth))
        });
        first.map(|known| &known.instance)
    }

    /// What the node says of its drivers: of one whose halves run in two tasks what both are together. That of
    /// the cluster hides one that a task runs.
    pub(super) fn said(&self) -> BTreeMap<String, CsiInfo> {
        let names = self.known.keys().map(|(id, _)| id.clone());
        let said = names.filter_map(|id| {
            let first = self.find(&id, |_| true)?;
            let node = self.find(&id, |info| info.node && info.source == first.info.source);
            let controller = self.find(&id, |info| info.controller && info.source == first.info.source);
            let serves = node.or(controller).unwrap_or(first);
            let mut info = serves.info.clone();
            if let Some(other) = controller.filter(|other| !Arc::ptr_eq(&other.plugin, &serves.plugin)) {
                join(&mut info, other.info.clone());
            }
            Some((id, info))
        });
        said.collect()
    }

    /// The names of the drivers that both a task and the cluster run.
    pub(super) fn doubled(&self) -> impl Iterator<Item = &str> {
        let of_cluster = self.known.iter().filter(|(_, known)| known.instance.info.source == PluginSource::Kubelet);
        let names = of_cluster.map(|((id, _), _)| id.as_str());
        names.filter(|id| self.find(id, |info| info.source == PluginSource::Job).is_some())
    }
}

fn join(known: &mut CsiInfo, other: CsiInfo) {
    known.controller |= other.controller;
    known.node |= other.node;
    known.healthy &= other.healthy;
    known.requires_controller_plugin |= other.requires_controller_plugin;
    known.max_volumes = known.max_volumes.max(other.max_volumes);
    for (own, of_other) in [(&mut known.description, other.description), (&mut known.node_id, other.node_id)] {
        if own.is_empty() {
            *own = of_other;
        }
    }
    known.topology.extend(other.topology);
    known.capabilities.extend(other.capabilities);
    known.capabilities.sort();
    known.capabilities.dedup();
}
