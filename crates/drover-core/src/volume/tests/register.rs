//! What is wrong with a volume by itself, and how one grows (sections 1 and 7).

use drover_api::csi_volume::{CapacityRange, Topology, TopologyRequest};
use expect_test::expect;

use super::*;
use crate::validate::Violation;
use crate::volume::expand::{Expand, Expanded, Mount, expanded};
use crate::volume::provision::is_to_grow;
use crate::volume::register::violations;

fn text(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn zones(names: &[&str]) -> Vec<Topology> {
    names.iter().map(|name| Topology { segments: [("zone".to_owned(), (*name).to_owned())].into() }).collect()
}

fn capacity(min: &str, max: &str) -> CapacityRange {
    CapacityRange { min: min.to_owned(), max: max.to_owned() }
}

#[test]
fn everything_that_is_wrong_with_a_volume_is_told_at_once() {
    let spec = CSIVolumeSpec {
        clone_id: "c".to_owned(),
        snapshot_id: "s".to_owned(),
        topology_request: Some(TopologyRequest { required: vec![Topology::default()], preferred: zones(&["a"]) }),
        ..CSIVolumeSpec::default()
    };
    expect![[r"
        metadata.namespace: is missing; give it (Missing)
        spec.id: is missing; give it (Missing)
        spec.pluginID: is missing; give it (Missing)
        spec.cloneID: and spec.snapshotID exclude each other; remove one of them (TwoSources)
        spec.capabilities: is empty; name at least one accessMode with its attachmentMode (Capabilities)
        spec.topologyRequest.required[0].segments: is empty; name at least one, as zone: a (Topology)"]]
    .assert_eq(&text(&violations(&ObjectKey::new("", ""), &spec)));
}

#[test]
fn a_volume_grows_only_to_more_than_it_has_and_only_where_its_plugin_can() {
    let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
    let status = CSIVolumeStatus { capacity: "10Gi".to_owned(), ..stage.status() };
    let grows = |stage: &Stage, range: Option<CapacityRange>| {
        let spec = CSIVolumeSpec { capacity: range, ..stage.spec() };
        is_to_grow(&spec, &status, stage.plugins.get("p"))
    };
    let to = |gib: i64, limit: Option<i64>| Some(Expand { required: gib << 30, limit: limit.map(|gib| gib << 30) });
    for (range, wanted) in [
        (None, None),
        (Some(capacity("0", "0")), None),
        (Some(capacity("5Gi", "")), None),
        (Some(capacity("10Gi", "")), None),
        (Some(capacity("11Gi", "")), to(11, None)),
        (Some(capacity("20Gi", "30Gi")), to(20, Some(30))),
    ] {
        assert_eq!(grows(&stage, range.clone()), wanted, "{range:?}");
    }
    for name in ["n-1", "n-2"] {
        stage.put_node(plugin_node(name, |info| info.capabilities = vec!["PUBLISH_UNPUBLISH_VOLUME".to_owned()]));
    }
    assert_eq!(grows(&stage, Some(capacity("20Gi", ""))), None, "no controller can make it larger");
}

#[test]
fn a_volume_that_grew_is_made_larger_where_it_is_mounted_and_never_shrinks() {
    let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
    stage.change_status(|status| status.capacity = "10Gi".to_owned());
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.holder("a2", "n-2", ClaimMode::Write);
    let answer = |capacity_bytes, needs_nodes| {
        let (status, mounts) = expanded(&stage.status(), Expanded { capacity_bytes, needs_nodes }, now());
        (status.capacity, mounts)
    };
    let mount = |alloc: &str, node: &str| Mount { node: node.into(), alloc_id: alloc.to_owned() };
    let both = vec![mount("a1", "n-1"), mount("a2", "n-2")];
    assert_eq!(answer(21 << 30, true), ("22548578304".to_owned(), both));
    assert_eq!(answer(21 << 30, false), ("22548578304".to_owned(), Vec::new()));
    assert_eq!(answer(1 << 30, false), ("10Gi".to_owned(), Vec::new()), "it never shrinks");
}
