//! Which of the plugins that a node says it runs count.

use std::collections::BTreeSet;

use drover_api::client_node::CsiInfo;
use drover_api::csi_volume::{PluginSource, PluginType};

use super::plugin::plugin_job;
use super::*;
use crate::volume::instances::{CountedPlugins, DriverWord, Records, counted};

/// A view with an allocation on node `n-1` whose task is this part of plugin `p`.
fn running(part: PluginType) -> Stage {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    let job = plugin_job("disks", "service", &[("g", part, 1)]);
    stage.alloc("a1", "n-1");
    stage.change_alloc("a1", |alloc| {
        (alloc.job, alloc.job_uid, alloc.job_version) = (job.key.clone(), job.uid.clone(), 1);
        "g".clone_into(&mut alloc.group);
    });
    stage.world.view.put_version(job.key, job.uid, 1, job.definition);
    stage
}

fn said(source: PluginSource) -> CsiInfo {
    CsiInfo { controller: source == PluginSource::Job, node: true, healthy: true, source, ..CsiInfo::default() }
}

fn look(stage: &Stage, info: CsiInfo, word: DriverWord, namespaces: &[&str]) -> CountedPlugins {
    let namespaces: BTreeSet<String> = namespaces.iter().map(|name| (*name).to_owned()).collect();
    let driver = |_: &str| word;
    let records = Records { view: &stage.world.view, node: &"n-1".into(), namespaces: &namespaces };
    counted(&records, driver, &BTreeMap::from([("p".to_owned(), info)]))
}

fn halves(found: &CountedPlugins) -> Option<(bool, bool)> {
    found.csi.get("p").map(|info| (info.controller, info.node))
}

#[test]
fn what_a_task_runs_counts_with_the_halves_of_the_task() {
    let nothing = DriverWord::default();
    for (part, counts) in [
        (PluginType::Monolith, (true, true)),
        (PluginType::Node, (false, true)),
        (PluginType::Controller, (true, false)),
    ] {
        let found = look(&running(part), said(PluginSource::Job), nothing, &[]);
        assert_eq!(halves(&found), Some(counts), "{part}");
        assert_eq!(found.ignored.is_empty(), part == PluginType::Monolith, "{found:?}");
    }
    let stage = Stage::new(AccessMode::SingleNodeWriter);
    let found = look(&stage, said(PluginSource::Job), nothing, &[]);
    assert_eq!(halves(&found), None);
    assert!(found.ignored[0].contains("no allocation of this node runs a task"), "{found:?}");
}

#[test]
fn an_allocation_that_is_over_or_of_another_namespace_runs_nothing() {
    let nothing = DriverWord::default();
    let mut stage = running(PluginType::Monolith);
    assert_eq!(halves(&look(&stage, said(PluginSource::Job), nothing, &["shop"])), Some((true, true)));
    let found = look(&stage, said(PluginSource::Job), nothing, &["storage"]);
    assert_eq!(halves(&found), None);
    assert!(found.ignored[0].contains("volumes.pluginNamespaces"), "{found:?}");
    stage.end("a1");
    assert_eq!(halves(&look(&stage, said(PluginSource::Job), nothing, &[])), None);
}

#[test]
fn a_driver_of_the_cluster_is_one_that_the_cluster_names_and_no_job_takes_its_place() {
    let stage = running(PluginType::Monolith);
    let word = |has_object, is_on_node| DriverWord { has_object, is_on_node };
    for (has_object, is_on_node) in [(false, false), (true, false), (false, true), (true, true)] {
        let word = word(has_object, is_on_node);
        let found = look(&stage, said(PluginSource::Kubelet), word, &[]);
        assert_eq!(halves(&found), (has_object && is_on_node).then_some((false, true)), "{word:?}");
        let found = look(&stage, said(PluginSource::Job), word, &[]);
        assert_eq!(halves(&found), (!has_object && !is_on_node).then_some((true, true)), "{word:?}");
        let is_told = found.ignored.iter().any(|why| why.contains("a job never replaces"));
        assert_eq!(is_told, has_object || is_on_node, "{found:?}");
    }
}
