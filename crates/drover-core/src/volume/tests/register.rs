//! What may be registered, and what becomes of a volume that is registered again (sections 1 and 7).

use drover_api::csi_volume::{CapacityRange, MountOptions, SecretRef, Topology, TopologyRequest};
use expect_test::{Expect, expect};
use jiff::SignedDuration;

use super::*;
use crate::validate::Violation;
use crate::volume::expand::{Expand, Expanded, Mount, expanded};
use crate::volume::plugin::Plugin;
use crate::volume::register::{Creation, Registered, Registration, Stored, create, register, violations};

fn text(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Registers a spec in the place of the stage's volume.
fn again(stage: &Stage, spec: &CSIVolumeSpec) -> Result<Registered, Vec<Violation>> {
    let (stored, status) = (stage.spec(), stage.status());
    let wish = Registration { volume: &v1(), spec, plugin: stage.plugins.get(&spec.plugin_id) };
    register(Some(Stored { spec: &stored, status: &status }), wish, now() + SignedDuration::from_mins(1))
}

/// Registers a volume that was not there.
fn anew(spec: &CSIVolumeSpec, plugin: Option<&Plugin>) -> Result<Registered, Vec<Violation>> {
    register(None, Registration { volume: &v1(), spec, plugin }, now())
}

/// A stage on which `change` was made to the stored spec and status.
fn stored(change: impl FnOnce(&mut CSIVolumeSpec, &mut CSIVolumeStatus)) -> Stage {
    let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
    let (mut spec, mut status) = (stage.spec(), stage.status());
    change(&mut spec, &mut status);
    stage.put_volume(&v1(), spec, status);
    stage
}

/// What is wrong with a change of the stored spec.
fn refused(stage: &Stage, change: impl FnOnce(&mut CSIVolumeSpec), wanted: &Expect) {
    let mut spec = stage.spec();
    change(&mut spec);
    wanted.assert_eq(&again(stage, &spec).err().map(|found| text(&found)).unwrap_or_default());
}

/// What a change of the stored spec makes of it.
fn accepted(stage: &Stage, change: impl FnOnce(&mut CSIVolumeSpec)) -> Registered {
    let mut spec = stage.spec();
    change(&mut spec);
    again(stage, &spec).unwrap_or_else(|found| panic!("{}", text(&found)))
}

fn zones(names: &[&str]) -> Vec<Topology> {
    names.iter().map(|name| Topology { segments: [("zone".to_owned(), (*name).to_owned())].into() }).collect()
}

fn mount(flags: &[&str]) -> MountOptions {
    MountOptions { fs_type: "ext4".to_owned(), mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect() }
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

/// V-056
#[test]
fn registering_the_same_twice_changes_the_time_alone() {
    let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    let registered = accepted(&stage, |_| {});
    let later = Some(now() + SignedDuration::from_mins(1));
    let status = crate::volume::shown::shown(&CSIVolumeStatus { modified_at: later, ..stage.status() });
    assert_eq!(registered, Registered { spec: stage.spec(), status, expand: None });
    assert_eq!(registered.status.claims, stage.status().claims);
}

/// V-057
#[test]
fn what_makes_a_volume_this_one_cannot_be_changed() {
    let stage = stored(|spec, _| {
        spec.name = "data".to_owned();
        spec.parameters = [("type".to_owned(), "ssd".to_owned())].into();
    });
    let other = |spec: &mut CSIVolumeSpec| {
        spec.name = "other".to_owned();
        spec.external_id = "vol-2".to_owned();
        spec.plugin_id = "q".to_owned();
        spec.parameters = [("type".to_owned(), "disk".to_owned())].into();
        spec.clone_id = "vol-0".to_owned();
    };
    refused(
        &stage,
        other,
        &expect![[r#"
            spec.pluginID: q is not known; run a job with this csiPlugin, or correct the id (PluginUnknown)
            spec.name: is "data" and cannot become "other"; leave it out, or register another volume (Identity)
            spec.externalID: is "vol-1" and cannot become "vol-2"; leave it out, or register another volume (Identity)
            spec.cloneID: is "" and cannot become "vol-0"; leave it out, or register another volume (Identity)
            spec.pluginID: is "p" and cannot become "q"; register another volume (Identity)
            spec.parameters: take effect when the volume is made and cannot be changed; create another volume (Parameters)"#]],
    );
    let emptied = accepted(&stage, |spec| {
        spec.name.clear();
        spec.external_id.clear();
        spec.parameters.clear();
    });
    assert_eq!(emptied.spec, stage.spec(), "what is left out is kept");
}

#[test]
fn another_provider_under_the_plugins_id_is_refused() {
    let stage = stored(|_, status| status.provider = "other-disks".to_owned());
    refused(
        &stage,
        |_| {},
        &expect![[
            r#"spec.pluginID: is now served by "disks", and the volume is of "other-disks"; run the plugin that made it under this id (Identity)"#
        ]],
    );
}

/// V-058
#[test]
fn a_context_is_kept_until_another_one_comes() {
    let context = |value: &str| BTreeMap::from([("key".to_owned(), value.to_owned())]);
    let stage = stored(|spec, _| spec.context = context("old"));
    assert_eq!(accepted(&stage, |spec| spec.context.clear()).spec.context, context("old"));
    assert_eq!(accepted(&stage, |spec| spec.context = context("new")).spec.context, context("new"));
}

/// V-059
#[test]
fn mount_options_are_those_of_who_uses_it() {
    let mut stage = stored(|spec, _| spec.mount_options = Some(mount(&["noatime", "secret=hush"])));
    let free = accepted(&stage, |spec| spec.mount_options = Some(mount(&["ro"])));
    assert_eq!(free.spec.mount_options, Some(mount(&["ro"])));
    stage.holder("a1", "n-1", ClaimMode::Write);
    refused(
        &stage,
        |spec| spec.mount_options = Some(mount(&["ro"])),
        &expect![
            "spec.mountOptions: cannot be changed while the volume is claimed; stop its users first, or leave them as they were (MountOptions)"
        ],
    );
    let reordered = accepted(&stage, |spec| spec.mount_options = Some(mount(&["secret=hush", "noatime"])));
    assert_eq!(reordered.spec, stage.spec());
}

/// V-060
#[test]
fn a_claimed_volume_keeps_the_capability_in_use() {
    let mut stage = stored(|spec, _| spec.capabilities = vec![capability(AccessMode::MultiNodeReaderOnly)]);
    stage.holder("a1", "n-1", ClaimMode::Read);
    let more = [AccessMode::SingleNodeWriter, AccessMode::MultiNodeReaderOnly].map(capability).to_vec();
    assert_eq!(accepted(&stage, |spec| spec.capabilities.clone_from(&more)).spec.capabilities, more);
    let without = vec![capability(AccessMode::SingleNodeWriter)];
    refused(
        &stage,
        |spec| spec.capabilities.clone_from(&without),
        &expect![
            "spec.capabilities: lacks multi-node-reader-only with file-system, as which the volume is in use; add that pair, or stop its users first (Capabilities)"
        ],
    );
    stage.end("a1");
    stage.release("a1");
    assert_eq!(accepted(&stage, |spec| spec.capabilities.clone_from(&without)).spec.capabilities, without);
}

/// V-061
#[test]
fn a_volume_that_is_somewhere_stays_there() {
    let request = |names: &[&str]| Some(TopologyRequest { required: zones(names), preferred: Vec::new() });
    for (before, after) in [(request(&["a"]), None), (None, request(&["a"])), (request(&["a"]), request(&["a", "b"]))] {
        let stage = stored(|spec, status| {
            spec.topology_request.clone_from(&before);
            status.topologies = zones(&["a"]);
        });
        refused(
            &stage,
            |spec| spec.topology_request.clone_from(&after),
            &expect![
                "spec.topologyRequest: cannot be added, removed or changed once the volume is somewhere; leave it as it was registered (Topology)"
            ],
        );
        let nowhere = stored(|spec, _| spec.topology_request.clone_from(&before));
        let kept = accepted(&nowhere, |spec| spec.topology_request.clone_from(&after));
        assert_eq!(kept.spec.topology_request, before, "ignored");
    }
}

/// V-063
#[test]
fn a_new_volume_is_where_it_is_required_to_be() {
    let stage = Stage::new(AccessMode::SingleNodeWriter);
    let spec = CSIVolumeSpec {
        topology_request: Some(TopologyRequest { required: zones(&["a", "b"]), preferred: zones(&["a"]) }),
        ..stage.spec()
    };
    let registered = anew(&spec, stage.plugins.get("p")).expect("a volume");
    assert_eq!(registered.status.topologies, zones(&["a", "b"]));
    assert_eq!((registered.status.phase.as_str(), registered.status.schedulable), ("available", true));
    assert_eq!(registered.status.external_id, "vol-1");
}

/// V-064
#[test]
fn a_volume_needs_its_plugin() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    let spec = stage.spec();
    let of = |found: Result<Registered, Vec<Violation>>| found.err().map(|found| text(&found)).unwrap_or_default();
    expect!["spec.pluginID: p is not known; run a job with this csiPlugin, or correct the id (PluginUnknown)"]
        .assert_eq(&of(anew(&spec, None)));
    for name in ["n-1", "n-2"] {
        stage.put_node(plugin_node(name, |info| info.healthy = false));
    }
    expect!["spec.pluginID: p needs a controller, and none is healthy; look at the job that runs it (NoController)"]
        .assert_eq(&of(anew(&spec, stage.plugins.get("p"))));
}

/// V-065
#[test]
fn a_volume_is_made_once() {
    let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
    let spec = CSIVolumeSpec { external_id: String::new(), ..stage.spec() };
    let wish = |stage: &Stage, stored: Option<(&CSIVolumeSpec, &CSIVolumeStatus)>| {
        let wish = Registration { volume: &v1(), spec: &spec, plugin: stage.plugins.get("p") };
        create(stored.map(|(spec, status)| Stored { spec, status }), wish, now())
    };
    assert_eq!(wish(&stage, None), Ok(Creation::Call));
    let (known, status) = (stage.spec(), stage.status());
    let merged = wish(&stage, Some((&known, &status)));
    assert_eq!(
        merged,
        again(&stage, &spec).map(|_| Creation::Store(Box::new(Registered {
            status: crate::volume::shown::shown(&CSIVolumeStatus { modified_at: Some(now()), ..status.clone() }),
            spec: known.clone(),
            expand: None,
        })))
    );
    for name in ["n-1", "n-2"] {
        stage.put_node(plugin_node(name, |info| info.capabilities = vec!["PUBLISH_UNPUBLISH_VOLUME".to_owned()]));
    }
    let refused = wish(&stage, None).expect_err("a plugin that makes none");
    expect!["spec.pluginID: p cannot make volumes; make it at the provider and register it with its externalID, or take another plugin (Create)"]
        .assert_eq(&text(&refused));
}

/// V-066
#[test]
fn a_volume_grows_at_its_controller_and_then_on_the_nodes() {
    let mut stage = stored(|spec, status| {
        spec.capacity = Some(capacity("10Gi", ""));
        status.capacity = "10Gi".to_owned();
    });
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.holder("a2", "n-2", ClaimMode::Write);
    let grown = accepted(&stage, |spec| spec.capacity = Some(capacity("20Gi", "30Gi")));
    assert_eq!(grown.expand, Some(Expand { required: 20 << 30, limit: Some(30 << 30) }));
    assert_eq!((grown.spec.capacity, &*grown.status.capacity), (Some(capacity("20Gi", "30Gi")), "10Gi"));
    let answer = |capacity_bytes, needs_nodes| {
        let (status, mounts) = expanded(&stage.status(), Expanded { capacity_bytes, needs_nodes }, now());
        (status.capacity, mounts)
    };
    let mount = |alloc: &str, node: &str| Mount { node: node.into(), alloc_id: alloc.to_owned() };
    let both = vec![mount("a1", "n-1"), mount("a2", "n-2")];
    assert_eq!(answer(21 << 30, true), ("22548578304".to_owned(), both));
    assert_eq!(answer(21 << 30, false), ("22548578304".to_owned(), Vec::new()));
    assert_eq!(answer(1 << 30, false), ("10Gi".to_owned(), Vec::new()), "it never shrinks");
    assert_eq!(accepted(&stage, |spec| spec.capacity = Some(capacity("5Gi", ""))).expand, None, "it is that large");
    for name in ["n-1", "n-2"] {
        stage.put_node(plugin_node(name, |info| info.capabilities = vec!["PUBLISH_UNPUBLISH_VOLUME".to_owned()]));
    }
    refused(
        &stage,
        |spec| spec.capacity = Some(capacity("20Gi", "")),
        &expect![
            "spec.capacity.min: 20Gi is above the volume's size 10Gi, and no controller of plugin p can make volumes larger; lower it (Capacity)"
        ],
    );
}

/// V-067
#[test]
fn a_volume_never_shrinks() {
    let stage = stored(|spec, status| {
        spec.capacity = Some(capacity("10Gi", "20Gi"));
        status.capacity = "10Gi".to_owned();
    });
    refused(
        &stage,
        |spec| spec.capacity = Some(capacity("", "5Gi")),
        &expect![
            "spec.capacity.max: 5Gi is below the volume's size 10Gi, and a volume never shrinks; raise it (Capacity)"
        ],
    );
    refused(
        &stage,
        |spec| spec.capacity = Some(capacity("15Gi", "12Gi")),
        &expect!["spec.capacity.max: 12Gi is below min 15Gi; raise it, or leave it out (Capacity)"],
    );
    refused(
        &stage,
        |spec| spec.capacity = Some(capacity("15GB", "")),
        &expect!["spec.capacity.min: is no size; write it as 10Gi (Capacity)"],
    );
    for ignored in [None, Some(capacity("", "")), Some(capacity("0", "0"))] {
        assert_eq!(accepted(&stage, |spec| spec.capacity = ignored).spec.capacity, stage.spec().capacity);
    }
}

#[test]
fn secrets_are_always_replaced() {
    let secrets = |name: &str| Some(SecretRef { name: name.to_owned() });
    let stage = stored(|spec, _| spec.secrets_ref = secrets("old"));
    for new in [secrets("new"), None] {
        assert_eq!(accepted(&stage, |spec| spec.secrets_ref.clone_from(&new)).spec.secrets_ref, new);
    }
}
