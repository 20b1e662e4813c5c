//! What is known of plugins (section 2).

use drover_api::csi_volume::PluginType;
use drover_api::job::GroupSummary;
use serde_json::{Value, json};

use super::*;
use crate::definition::Definition;
use crate::ids::{JobKey, Uid};
use crate::model::Job;
use crate::volume::plugin::{Capability, Plugin};

/// A job of a type whose groups run these parts of plugin `p`, as many as they count.
pub(super) fn plugin_job(name: &str, r#type: &str, groups: &[(&str, PluginType, i64)]) -> Job {
    let groups: Vec<Value> = groups
        .iter()
        .map(|(name, part, count)| {
            json!({ "name": name, "count": count, "tasks": [
                { "name": "plugin", "driver": "mock", "csiPlugin": { "id": "p", "type": part } }] })
        })
        .collect();
    let spec = serde_json::from_value(json!({ "type": r#type, "groups": groups })).expect("a spec");
    let definition = Definition::new(&spec, name);
    Job {
        key: JobKey::new("shop", name),
        uid: Uid::from(name),
        generation: 1,
        version: 1,
        stopped: false,
        counts: definition.spec.groups.iter().map(|group| (group.name.clone(), group.count)).collect(),
        definition,
    }
}

/// Healthy and expected controllers, then healthy and expected node halves.
fn counts(plugins: &Plugins) -> Option<[i64; 4]> {
    let plugin = plugins.get("p")?;
    let controllers = [plugin.controllers_healthy(), plugin.controllers_expected()];
    Some([controllers[0], controllers[1], plugin.nodes_healthy(), plugin.nodes_expected()])
}

fn node_half(name: &str, is_healthy: bool) -> Node {
    plugin_node(name, |info| (info.controller, info.healthy) = (false, is_healthy))
}

/// V-080
#[test]
fn a_plugin_is_there_while_it_runs_or_is_to_run() {
    let mut plugins = Plugins::default();
    plugins.put_node(&node_half("n-1", false));
    assert_eq!(counts(&plugins), None, "what never worked makes no plugin");
    plugins.put_node(&node_half("n-1", true));
    assert_eq!(counts(&plugins), Some([0, 0, 1, 0]));
    plugins.put_node(&node_half("n-1", false));
    assert_eq!(counts(&plugins), Some([0, 0, 0, 0]), "known, and unhealthy");
    let job = plugin_job("disks", "service", &[("nodes", PluginType::Node, 3)]);
    plugins.put_job(&job, &BTreeMap::new());
    assert_eq!(counts(&plugins), Some([0, 0, 0, 3]));
    plugins.put_node(&node("n-1"));
    assert_eq!(counts(&plugins), Some([0, 0, 0, 3]));
    plugins.put_node(&node_half("n-1", true));
    plugins.remove_job(&job.key);
    assert_eq!(counts(&plugins), Some([0, 0, 1, 0]));
    plugins.put_node(&node("n-1"));
    assert_eq!(plugins, Plugins::default());
}

#[test]
fn expected_instances_follow_from_the_jobs() {
    let mut plugins = Plugins::default();
    let mut parts = plugin_job("parts", "service", &[("c", PluginType::Controller, 2), ("n", PluginType::Node, 5)]);
    plugins.put_job(&parts, &BTreeMap::new());
    let whole = plugin_job("whole", "system", &[("m", PluginType::Monolith, 1)]);
    let summary = GroupSummary { running: 4, queued: 1, starting: 2, failed: 9, ..GroupSummary::default() };
    plugins.put_job(&whole, &[("m".to_owned(), summary)].into());
    assert_eq!(counts(&plugins), Some([0, 2 + 7, 0, 5 + 7]));
    parts.counts.insert("c".to_owned(), 3);
    plugins.put_job(&parts, &BTreeMap::new());
    assert_eq!(counts(&plugins), Some([0, 3 + 7, 0, 5 + 7]), "scaled");
    let only_nodes = plugin_job("parts", "service", &[("n", PluginType::Node, 5)]);
    plugins.put_job(&only_nodes, &BTreeMap::new());
    assert_eq!(counts(&plugins), Some([0, 7, 0, 5 + 7]), "a group without the plugin");
    plugins.put_job(&Job { stopped: true, ..parts }, &BTreeMap::new());
    plugins.remove_job(&whole.key);
    assert_eq!(plugins, Plugins::default());
}

#[test]
fn instances_go_with_their_node_and_their_allocation() {
    let there = || {
        let mut plugins = Plugins::default();
        plugins.put_node(&plugin_node("n-1", |info| info.alloc_id = "a1".to_owned()));
        plugins.put_node(&plugin_node("n-2", |info| info.alloc_id = "a2".to_owned()));
        assert_eq!(counts(&plugins), Some([2, 0, 2, 0]));
        plugins
    };
    let mut plugins = there();
    plugins.end_alloc(&"n-1".into(), "a2");
    assert_eq!(counts(&plugins), Some([2, 0, 2, 0]), "it ran elsewhere");
    plugins.end_alloc(&"n-1".into(), "a1");
    assert_eq!(counts(&plugins), Some([1, 0, 1, 0]), "both halves of a monolith");
    plugins.end_alloc(&"n-2".into(), "a2");
    assert_eq!(plugins.get("p"), None);
    let mut plugins = there();
    plugins.put_node(&plugin_node("n-1", |info| info.controller = false));
    assert_eq!(counts(&plugins), Some([1, 0, 2, 0]), "one half is missing");
    plugins.remove_node(&"n-1".into());
    plugins.remove_node(&"n-2".into());
    assert_eq!(plugins, Plugins::default());
}

#[test]
fn volumes_can_be_used_while_their_node_halves_and_a_needed_controller_work() {
    let schedulable = |controllers: &[bool], nodes: &[bool], is_required: bool| {
        let mut plugins = Plugins::default();
        for is_healthy in [true, false] {
            // All were healthy once, so that the unhealthy ones are known.
            let halves =
                controllers.iter().map(|healthy| (true, *healthy)).chain(nodes.iter().map(|one| (false, *one)));
            for (n, (controller, healthy)) in halves.enumerate() {
                plugins.put_node(&plugin_node(&format!("n-{n}"), |info| {
                    (info.controller, info.node) = (controller, !controller);
                    info.healthy = is_healthy || healthy;
                    info.requires_controller_plugin = is_required;
                }));
            }
        }
        let status = refreshed(&CSIVolumeStatus::default(), plugins.get("p"));
        assert_eq!(status.schedulable, plugins.get("p").is_some_and(Plugin::is_schedulable));
        (status.schedulable, status.controllers_healthy, status.nodes_healthy)
    };
    assert_eq!(schedulable(&[], &[true], false), (true, 0, 1));
    assert_eq!(schedulable(&[], &[true], true), (false, 0, 1), "a node says that it needs a controller");
    assert_eq!(schedulable(&[true], &[true], true), (true, 1, 1));
    assert_eq!(schedulable(&[false], &[true, false], true), (false, 0, 1));
    assert_eq!(schedulable(&[false], &[true], false), (true, 0, 1));
    assert_eq!(schedulable(&[true], &[false], true), (false, 1, 0));
    assert_eq!(schedulable(&[true], &[], true), (false, 1, 0));
}

#[test]
fn the_last_controller_says_whether_one_is_needed() {
    let mut plugins = Plugins::default();
    let says = |name: &str, is_required| plugin_node(name, |info| info.requires_controller_plugin = is_required);
    let is_required = |plugins: &Plugins| plugins.get("p").map(Plugin::is_controller_required);
    plugins.put_node(&says("n-1", true));
    assert_eq!(is_required(&plugins), Some(true));
    plugins.put_node(&says("n-2", false));
    assert_eq!(is_required(&plugins), Some(false));
    plugins.put_node(&node_half("n-2", true));
    plugins.remove_node(&"n-1".into());
    assert_eq!(is_required(&plugins), Some(false), "what the last one said stays when it goes");
    let plugin = plugins.get("p").expect("a plugin");
    assert_eq!(plugin.can(Capability::AttachDetach), None, "nobody can say it now");
}

#[test]
fn a_plugin_that_is_away_leaves_what_was_known_of_its_volumes() {
    let stage = Stage::new(AccessMode::SingleNodeWriter);
    let before = stage.status();
    assert!(before.schedulable && before.controller_required);
    let away = refreshed(&before, None);
    assert_eq!((away.schedulable, away.controllers_healthy, away.nodes_healthy), (false, 0, 0));
    assert_eq!((away.controller_required, &*away.provider), (true, "disks"));
}
