//! Which node gets a volume, what its agent is asked for, and what the object says.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_api::client_node::{NodePhase, OfferedVolume};
use drover_api::host_volume::HostVolumePhase::{self, Pending, Ready, Unavailable};
use drover_api::host_volume::{HostVolumeCall, HostVolumeClaim, HostVolumeSpec, HostVolumeStatus};
use serde_json::{Value, json};

use super::choose::{MOST_ON_NODE, choose};
use super::claims::{claim, claims};
use super::known::KnownVolume;
use super::request::requests;
use super::step::{StepFacts, VolumeStep, step};
use crate::ids::{NodeName, ObjectKey, Uid};
use crate::model::Node;
use crate::scheduler::tests::{World, node, now, spec};
use crate::snapshot::ClusterView;

/// A volume of namespace `shop` that has its finalizer, and no node.
fn volume(name: &str, more: &Value) -> KnownVolume {
    let mut spec = json!({ "plugin": "mkdir", "nodePool": "default",
        "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let spec: HostVolumeSpec = serde_json::from_value(spec).unwrap();
    KnownVolume {
        key: ObjectKey::new("shop", name),
        id: Uid::from(format!("id-{name}")),
        name: Arc::from(if spec.name.is_empty() { name } else { spec.name.as_str() }),
        spec,
        node: None,
        claims: BTreeSet::new(),
        is_deleting: false,
        is_held: true,
    }
}

/// The same on node `n-0`.
fn placed(name: &str) -> KnownVolume {
    KnownVolume { node: Some(NodeName::from("n-0")), ..volume(name, &json!({})) }
}

/// Nodes `n-0` to `n-2` with what `change` makes of them.
fn nodes(change: impl Fn(&mut Node, usize)) -> ClusterView {
    let mut view = ClusterView::default();
    for n in 0..3 {
        let mut one = node(&format!("n-{n}"));
        change(&mut one, n);
        view.put_node(one);
    }
    view
}

/// What a node says of a volume.
fn says(volume: &KnownVolume, more: &Value) -> OfferedVolume {
    let mut offered = json!({ "id": volume.id.as_str(), "namespace": &*volume.key.namespace });
    for (field, value) in more.as_object().unwrap() {
        offered[field] = value.clone();
    }
    serde_json::from_value(offered).unwrap()
}

/// A view with a volume on `n-0`, whose agent says this of it; null: nothing.
fn with_answer(volume: &KnownVolume, answer: &Value, change: impl Fn(&mut Node)) -> ClusterView {
    let mut view = nodes(|node, n| {
        if n == 0 {
            if !answer.is_null() {
                node.host_volumes.insert(volume.id.to_string(), says(volume, answer));
            }
            change(node);
        }
    });
    view.host_volumes_mut().put(volume.clone());
    view
}

fn chosen(view: &ClusterView, volume: &KnownVolume) -> String {
    choose(view, volume).map_or_else(|none| format!("{}: {}", none.reason, none.message), |node| node.to_string())
}

/// What is written of a volume that was in this phase.
fn stepped(view: &ClusterView, volume: &KnownVolume, phase: HostVolumePhase) -> String {
    let node_name = volume.node.as_ref().map(ToString::to_string).unwrap_or_default();
    let stored = HostVolumeStatus { phase, node_name, ..HostVolumeStatus::default() };
    match step(&StepFacts { view, volume, stored: &stored, generation: 1 }, now()) {
        VolumeStep::Hold => "hold".to_owned(),
        VolumeStep::Free => "free".to_owned(),
        VolumeStep::Status(status) => {
            let shown = status.conditions.iter().map(|one| format!("{}={}", one.r#type, one.status));
            let shown: Vec<String> = shown.collect();
            let first = &status.conditions[0];
            let (node, shown) = (&status.columns.node, shown.join(" "));
            format!("{} on {node}, {shown} {}: {}", status.phase, first.reason, first.message)
        }
    }
}

#[test]
fn of_nodes_that_suit_the_one_with_the_fewest_volumes_gets_it() {
    let mut view = nodes(|node, n| {
        node.meta.insert("rack".to_owned(), format!("r{n}"));
        if n == 1 {
            node.pool = "gpu".to_owned();
        }
    });
    assert_eq!(chosen(&view, &volume("data", &json!({}))), "n-0");
    view.host_volumes_mut().put(placed("other"));
    assert_eq!(chosen(&view, &volume("data", &json!({}))), "n-2", "n-1 is in another pool");
    assert_eq!(chosen(&view, &volume("data", &json!({ "nodePool": "all" }))), "n-1");
    assert_eq!(chosen(&view, &volume("data", &json!({ "nodePool": "gpu" }))), "n-1");
    let rack = |rack: &str| json!({ "constraints": [{ "lTarget": "${meta.rack}", "operand": "=", "rTarget": rack }] });
    assert_eq!(chosen(&view, &volume("data", &rack("r0"))), "n-0");
    assert_eq!(chosen(&view, &volume("data", &json!({ "nodeName": "n-1" }))), "n-1", "whatever its pool is");
    assert_eq!(chosen(&view, &volume("data", &json!({ "capacity": { "min": "500Gi" } }))), "n-2");
}

#[test]
fn why_no_node_gets_it_is_told_with_a_remedy() {
    let mut view = nodes(|node, n| {
        node.is_eligible = n != 0;
        node.allocatable.disk_mb = if n == 1 { 10 } else { 1000 };
    });
    let is_told = |view: &ClusterView, more: &Value, wanted: &str| {
        assert_eq!(chosen(view, &volume("data", more)), wanted);
    };
    is_told(
        &view,
        &json!({ "capacity": { "min": "2Gi" } }),
        "NoNode: no node of pool default gets it: not ready (1), offers less disk than 2Gi (2); change a node, or create another volume",
    );
    let plan9 = json!({ "constraints": [{ "lTarget": "${attr.kernel.name}", "operand": "=", "rTarget": "plan9" }] });
    is_told(
        &view,
        &plan9,
        "NoNode: no node of pool default gets it: breaks ${attr.kernel.name} = plan9 (2), not ready (1); change a node, or create another volume",
    );
    is_told(
        &view,
        &json!({ "nodePool": "gpu" }),
        "NoNode: pool gpu has no node: start an agent there, or create the volume in another nodePool",
    );
    is_told(
        &view,
        &json!({ "nodeName": "n-9" }),
        "NoNode: there is no ClientNode n-9: start its agent, or create the volume on another node",
    );
    view.host_volumes_mut().put(KnownVolume { name: "data".into(), ..placed("old") });
    is_told(
        &view,
        &json!({ "nodeName": "n-0" }),
        "NameInUse: volume old has the name data on node n-0: delete it, or set name",
    );
    for n in 0..MOST_ON_NODE {
        let node = Some(NodeName::from("n-2"));
        view.host_volumes_mut().put(KnownVolume { node, ..volume(&format!("v-{n}"), &json!({})) });
    }
    let full = format!("NoNode: node n-2 has {MOST_ON_NODE} volumes: delete one, or create it on another node");
    is_told(&view, &json!({ "nodeName": "n-2" }), &full);
}

#[test]
fn two_volumes_of_one_name_are_on_two_nodes() {
    let mut view = nodes(|_, _| {});
    let mut places = Vec::new();
    for n in 0..3 {
        let one = volume(&format!("data-{n}"), &json!({ "name": "data" }));
        let node = choose(&view, &one).unwrap();
        places.push(node.to_string());
        view.host_volumes_mut().put(KnownVolume { node: Some(node), ..one });
    }
    places.sort();
    assert_eq!(places, ["n-0", "n-1", "n-2"]);
    let fourth = chosen(&view, &volume("data-3", &json!({ "name": "data" })));
    assert!(fourth.contains("has a volume data of the namespace already (3)"), "{fourth}");
}

#[test]
fn what_an_object_says_follows_from_its_node_and_its_agent() {
    let data = placed("data");
    let ready = json!({ "path": "/v/data", "ready": true });
    let says = |answer: &Value, phase| stepped(&with_answer(&data, answer, |_| {}), &data, phase);
    assert_eq!(
        says(&Value::Null, Pending),
        "pending on n-0, Ready=Unknown Reconciling=True Making: node n-0 is asked for it"
    );
    assert_eq!(says(&ready, Pending), "ready on n-0, Ready=True Available: it is on node n-0");
    let refused = json!({ "ready": false, "error": "no room" });
    assert_eq!(says(&refused, Pending), "pending on n-0, Ready=False Stalled=True MakeFailed: node n-0: no room");
    assert_eq!(
        says(&Value::Null, Ready),
        "unavailable on n-0, Ready=Unknown Reconciling=True Making: node n-0 is asked for it"
    );
    let down = with_answer(&data, &ready, |node| node.phase = NodePhase::Down);
    assert_eq!(
        stepped(&down, &data, Ready),
        "unavailable on n-0, Ready=False Stalled=True NodeUnavailable: node n-0 is down: look at its agent"
    );
    let mut gone = with_answer(&data, &ready, |_| {});
    gone.remove_node(&NodeName::from("n-0"));
    let told = stepped(&gone, &data, Unavailable);
    assert!(told.starts_with("unavailable on n-0, Ready=False Stalled=True NodeUnavailable: ClientNode n-0 is gone"));
    let told = stepped(&gone, &data, Pending);
    assert!(told.starts_with("pending on n-1"), "what never was anywhere goes elsewhere: {told}");
}

#[test]
fn nothing_is_made_before_the_object_is_held() {
    let unheld = KnownVolume { is_held: false, ..placed("data") };
    let view = with_answer(&unheld, &Value::Null, |_| {});
    assert_eq!(stepped(&view, &unheld, HostVolumePhase::Pending), "hold");
    assert!(requests(&view, &NodeName::from("n-0")).is_empty());
}

#[test]
fn the_words_of_another_node_and_of_another_namespace_do_not_count() {
    let data = placed("data");
    let ready = json!({ "path": "/v/data", "ready": true });
    let mut view = nodes(|node, n| {
        if n == 1 {
            node.host_volumes.insert(data.id.to_string(), says(&data, &ready));
        }
    });
    view.host_volumes_mut().put(data.clone());
    assert!(stepped(&view, &data, HostVolumePhase::Pending).contains("Making"), "n-1 was not asked");
    let foreign = json!({ "path": "/v/data", "ready": true, "namespace": "blog" });
    let view = with_answer(&data, &foreign, |_| {});
    assert!(stepped(&view, &data, HostVolumePhase::Pending).contains("Making"));
}

#[test]
fn b_066_a_volume_that_is_deleted_waits_for_its_users_and_then_for_its_node() {
    let data = KnownVolume { is_deleting: true, ..placed("data") };
    let ready = json!({ "path": "/v/data", "ready": true });
    let node = NodeName::from("n-0");
    let with_user = |has_ended: bool, answer: &Value| {
        let mut world = World::new(&spec(1));
        world.allocs(0..1, |alloc| {
            alloc.host_volumes = [("v".to_owned(), "id-data".to_owned())].into();
            alloc.has_ended = has_ended;
        });
        let mut host = (**world.view.node(&node).unwrap()).clone();
        host.host_volumes.insert(data.id.to_string(), says(&data, answer));
        world.view.put_node(host);
        world.view.host_volumes_mut().put(data.clone());
        world.view
    };
    let used = with_user(false, &ready);
    assert_eq!(
        stepped(&used, &data, HostVolumePhase::Ready),
        "unavailable on n-0, Ready=False Reconciling=True InUse: it goes when no allocation uses it, and web-web-0-0 does; stop the job, or take the volume out of it"
    );
    assert!(requests(&used, &node).is_empty(), "nothing is asked for while it is used");
    let unused = with_user(true, &ready);
    assert!(stepped(&unused, &data, HostVolumePhase::Ready).contains("Removing: node n-0 is asked to take it away"));
    assert_eq!(requests(&unused, &node)["id-data"].call, HostVolumeCall::Remove);
    let failed = with_user(true, &json!({ "ready": false, "error": "busy" }));
    assert!(stepped(&failed, &data, HostVolumePhase::Ready).contains("Stalled=True RemoveFailed: node n-0: busy"));
    let removed = with_user(true, &json!({ "ready": false }));
    assert_eq!(stepped(&removed, &data, HostVolumePhase::Ready), "free");
    assert_eq!(requests(&removed, &node)["id-data"].call, HostVolumeCall::Remove, "until the object is gone");
    let mut gone = used;
    gone.remove_node(&node);
    assert_eq!(stepped(&gone, &data, HostVolumePhase::Ready), "free", "a node that never comes back holds nothing");
}

#[test]
fn a_node_is_asked_for_what_it_does_not_say_it_has() {
    let mut data = placed("data");
    data.spec.parameters = [("mode".to_owned(), "0750".to_owned())].into();
    let node = NodeName::from("n-0");
    let asked = requests(&with_answer(&data, &Value::Null, |_| {}), &node);
    let request = &asked["id-data"];
    assert_eq!(
        (request.call, request.namespace.as_str(), request.name.as_str(), request.parameters["mode"].as_str()),
        (HostVolumeCall::Keep, "shop", "data", "0750")
    );
    assert!(requests(&with_answer(&data, &Value::Null, |_| {}), &NodeName::from("n-1")).is_empty());
    let there = with_answer(&data, &json!({ "path": "/v/data", "ready": true }), |_| {});
    assert!(requests(&there, &node).is_empty());
    let failed = with_answer(&data, &json!({ "ready": false, "error": "no room" }), |_| {});
    assert_eq!(requests(&failed, &node).len(), 1, "it is still asked for");
}

/// The slots that keep volume `data`, in a world whose job asks for it so and whose allocation has ended, or not;
/// `change` says what else is there.
fn kept(request: &Value, data: &KnownVolume, has_ended: bool, change: impl Fn(&mut World)) -> Vec<String> {
    let mut spec = spec(2);
    spec["groups"][0]["volumes"] = json!([{ "name": "v", "type": "host", "source": "data" }]);
    for (field, value) in request.as_object().unwrap() {
        spec["groups"][0]["volumes"][0][field] = value.clone();
    }
    let mut world = World::new(&spec);
    world.allocs(0..1, |alloc| {
        alloc.host_volumes = [("v".to_owned(), "id-data".to_owned())].into();
        alloc.has_ended = has_ended;
    });
    change(&mut world);
    claims(&world.view, data).iter().map(|one| format!("{}.{}[{}]", one.job_name, one.group, one.index)).collect()
}

#[test]
fn b_067_slots_that_used_a_sticky_volume_keep_it_while_their_job_says_so() {
    let sticky = json!({ "sticky": true });
    let data = placed("data");
    assert_eq!(kept(&sticky, &data, false, |_| {}), ["web.web[0]"], "what runs");
    assert!(kept(&json!({}), &data, false, |_| {}).is_empty(), "without sticky");
    assert!(kept(&json!({ "sticky": true, "source": "logs" }), &data, false, |_| {}).is_empty(), "of another name");
    let elsewhere = KnownVolume { node: Some(NodeName::from("n-1")), ..placed("data") };
    assert!(kept(&sticky, &elsewhere, false, |_| {}).is_empty(), "an allocation of another node");

    let job = World::new(&spec(1)).job;
    let of = |claims: &[HostVolumeClaim]| KnownVolume { claims: claims.iter().cloned().collect(), ..placed("data") };
    assert!(kept(&sticky, &data, true, |_| {}).is_empty(), "what ended before it was written is no claim");
    let one = of(&[claim(&job, "web", 0)]);
    assert_eq!(kept(&sticky, &one, true, |_| {}), ["web.web[0]"], "what ended after it was");
    assert!(kept(&json!({}), &one, true, |_| {}).is_empty(), "the group has given it up");
    let foreign =
        of(&[claim(&job, "db", 0), HostVolumeClaim { job_uid: "before".to_owned(), ..claim(&job, "web", 1) }]);
    assert_eq!(kept(&sticky, &foreign, false, |_| {}), ["web.web[0]"], "a group and a job that are gone");
    let gone = |world: &mut World| drop(world.view.remove_job(&world.job.key.clone()));
    assert!(kept(&sticky, &one, true, gone).is_empty());
}

#[test]
fn volumes_are_found_by_the_slots_that_keep_them() {
    let job = World::new(&spec(1)).job;
    let mut view = nodes(|_, _| {});
    let slots = [claim(&job, "web", 0), claim(&job, "web", 1)];
    view.host_volumes_mut().put(KnownVolume { claims: slots.clone().into(), ..placed("data") });
    let mut foreign = placed("data");
    foreign.key = ObjectKey::new("blog", "data");
    view.host_volumes_mut().put(KnownVolume { claims: BTreeSet::from([slots[0].clone()]), ..foreign });
    let of_job: Vec<String> =
        view.host_volumes().claimed_by_job(&job.key).map(|volume| volume.key.to_string()).collect();
    assert_eq!(of_job, ["shop/data", "shop/data"], "once for each slot, and of the job's own namespace");
    assert_eq!(view.host_volumes().claimed(&slots[1]).count(), 1);
    view.host_volumes_mut().put(placed("data"));
    assert_eq!(view.host_volumes().claimed(&slots[1]).count(), 0, "given up");
}
