//! Which of the plugins that a node says it runs count (`spec/security.md`, rule 11): a half that a task runs, by the
//! controller's own records, and a driver of the cluster that the cluster names itself.
//!
//! Input: what the node's agent says, the view, what the cluster says of its drivers. Output: the plugins that count,
//! and for people what does not and why. A node is believed in nothing but how a plugin fares that is there: who holds
//! its token would otherwise be asked for other tenants' volumes, with their Secrets. Must never know how an
//! agent is asked.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::client_node::CsiInfo;
use drover_api::csi_volume::{PluginSource, PluginType};

use crate::ids::NodeName;
use crate::snapshot::ClusterView;

/// What the cluster says of the driver that has a plugin's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverWord {
    /// There is a `CSIDriver` of this name.
    pub has_object: bool,
    /// The node's `CSINode` names it.
    pub is_on_node: bool,
}

impl DriverWord {
    /// Whether jobs have to leave the name to the cluster.
    const fn is_of_cluster(self) -> bool {
        self.has_object || self.is_on_node
    }
}

/// What is known of a node and its plugins, besides its own words.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    /// Allocations and the definitions of their jobs.
    pub view: &'a ClusterView,
    /// The node.
    pub node: &'a NodeName,
    /// The namespaces whose jobs may run plugins; all where there are none.
    pub namespaces: &'a BTreeSet<String>,
}

/// What counts of a node's plugins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CountedPlugins {
    /// The plugins.
    pub csi: BTreeMap<String, CsiInfo>,
    /// What does not count, each as a sentence for people.
    pub ignored: Vec<String>,
}

/// The halves of a plugin that tasks on a node run.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    controller: bool,
    node: bool,
}

/// Says what counts; `driver` says what the cluster does of the driver of a name. O(allocations on the node + plugins).
pub fn counted(
    records: &Records<'_>,
    driver: impl Fn(&str) -> DriverWord,
    said: &BTreeMap<String, CsiInfo>,
) -> CountedPlugins {
    let mut found = CountedPlugins::default();
    let mut run: BTreeMap<&str, Run> = BTreeMap::new();
    for alloc in records.view.allocs_on_node(records.node).filter(|alloc| !alloc.is_client_terminal()) {
        let group = records.view.definition_of(alloc).and_then(|definition| definition.group(&alloc.group));
        for plugin in group.into_iter().flat_map(|group| &group.tasks).filter_map(|task| task.csi_plugin.as_ref()) {
            let id = plugin.id.as_str();
            if driver(id).is_of_cluster() {
                found.ignored.push(format!(
                    "plugin {id} of allocation {}/{}: the cluster has a driver of this name, which a job never replaces; give csiPlugin.id another name, or stop the job",
                    alloc.key.namespace, alloc.key.name
                ));
            } else if !records.namespaces.is_empty() && !records.namespaces.contains(&*alloc.key.namespace) {
                found.ignored.push(format!(
                    "plugin {id} of allocation {0}/{1}: jobs of namespace {0} may run no plugins; the controller's operator allows it in volumes.pluginNamespaces",
                    alloc.key.namespace, alloc.key.name
                ));
            } else {
                let half = run.entry(id).or_default();
                half.controller |= plugin.r#type != PluginType::Node;
                half.node |= plugin.r#type != PluginType::Controller;
            }
        }
    }
    for (id, info) in said {
        let word = driver(id);
        let run = run.get(id.as_str()).copied().unwrap_or_default();
        let kept = match info.source {
            PluginSource::Kubelet if word.has_object && word.is_on_node => Run { controller: false, node: true },
            PluginSource::Kubelet => Run::default(),
            PluginSource::Job => run,
        };
        let counts =
            CsiInfo { controller: info.controller && kept.controller, node: info.node && kept.node, ..info.clone() };
        if let Some(why) = why_not(id, info, &counts, word) {
            found.ignored.push(why);
        }
        if counts.controller || counts.node {
            found.csi.insert(id.clone(), counts);
        }
    }
    found
}

/// Why not all counts that a node says of a plugin, if anything does not.
fn why_not(id: &str, said: &CsiInfo, counts: &CsiInfo, word: DriverWord) -> Option<String> {
    let half = match (said.controller && !counts.controller, said.node && !counts.node) {
        (false, false) => return None,
        (true, false) => "controller of plugin",
        (false, true) => "node half of plugin",
        (true, true) => "plugin",
    };
    let why = match (said.source, word.has_object, word.is_on_node) {
        (PluginSource::Kubelet, false, _) => {
            "the cluster has no CSIDriver of this name; the driver's installation makes one".to_owned()
        }
        (PluginSource::Kubelet, true, _) => {
            "the node's CSINode does not name it; the node's kubelet writes that when the driver registers".to_owned()
        }
        (PluginSource::Job, false, false) => format!(
            "no allocation of this node runs a task with this csiPlugin.id and half; who has the role drover-volume-admin can run one with csiPlugin.id {id}"
        ),
        (PluginSource::Job, _, _) => "the cluster has a driver of this name, which a job never replaces".to_owned(),
    };
    Some(format!("{half} {id}: {why}"))
}
