//! Which nodes are of one class, and of one shape (`spec/scheduler.md` 4.6), beside what the table puts into the hash,
//! written out.

use drover_api::client_node::DeviceGroup;
use fastrand::Rng;

use super::*;
use crate::scheduler::class::{NodeClass, NodeShape, escapes};

/// A node that differs from others in few things, so that many are of one class.
fn random(rng: &mut Rng) -> Node {
    let text = |rng: &mut Rng| ["", "a", "ab"][rng.usize(..3)].to_owned();
    let key = |rng: &mut Rng| ["", "a", "ab", "unique.a", "unique", "uniq.a"][rng.usize(..6)].to_owned();
    let map = |rng: &mut Rng| -> BTreeMap<String, String> {
        let n = [0, 0, 1, 1, 2][rng.usize(..5)];
        (0..n).map(|_| (key(rng), text(rng))).collect()
    };
    let (attributes, meta) = (map(rng), map(rng));
    let devices: Vec<DeviceGroup> = (0..rng.usize(..2))
        .map(|_| {
            let instances = json!([{ "id": text(rng), "healthy": rng.bool() }]);
            let mut group: DeviceGroup = serde_json::from_value(
                json!({ "vendor": text(rng), "type": "gpu", "name": text(rng), "instances": instances }),
            )
            .unwrap();
            group.attributes = map(rng);
            group
        })
        .collect();
    Node {
        datacenter: text(rng),
        class: ["", "a"][rng.usize(..2)].into(),
        pool: "default".into(),
        is_eligible: rng.bool(),
        attributes,
        meta,
        devices,
        allocatable: Amounts { cpu: rng.i64(0..3), ..Amounts::default() },
        drivers: [("mock".to_owned(), [DriverState::Healthy, DriverState::Unhealthy][rng.usize(..2)])].into(),
        network_modes: rng.bool().then(|| "bridge".to_owned()).into_iter().collect(),
        ..node(["n-0", "n-1"][rng.usize(..2)])
    }
}

/// What the table puts into the hash.
fn shared(node: &Node) -> Value {
    let shared_of = |map: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        map.iter().filter(|(key, _)| !key.starts_with("unique.")).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    let devices: Vec<Value> = node
        .devices
        .iter()
        .map(|group| json!([group.vendor, group.r#type, group.name, shared_of(&group.attributes)]))
        .collect();
    json!([node.datacenter, node.class, node.pool, shared_of(&node.attributes), shared_of(&node.meta), devices])
}

/// What else rules without a unique target can see.
fn seen(node: &Node) -> Value {
    let drivers: Vec<String> = node.drivers.iter().map(|(name, state)| format!("{name} {state:?}")).collect();
    let devices: Vec<Value> = node.devices.iter().map(|group| json!([group.attributes, group.instances])).collect();
    json!([shared(node), drivers, node.network_modes, devices])
}

#[test]
fn nodes_are_of_one_class_exactly_when_they_share_what_the_table_names() {
    let mut rng = Rng::with_seed(46);
    let nodes: Vec<(Node, NodeClass, NodeShape)> = (0..600)
        .map(|_| {
            let node = random(&mut rng);
            let class = NodeClass::of(&node);
            let shape = NodeShape::of(&node, class);
            (node, class, shape)
        })
        .collect();
    let (mut alike, mut of_one_shape) = (0, 0);
    for (at, (one, class, shape)) in nodes.iter().enumerate() {
        for (other, other_class, other_shape) in &nodes[at + 1..] {
            let (is_shared, is_seen) = (shared(one) == shared(other), seen(one) == seen(other));
            assert_eq!(class == other_class, is_shared, "{one:?}\n{other:?}");
            assert_eq!(shape == other_shape, is_seen, "{one:?}\n{other:?}");
            alike += usize::from(is_shared);
            of_one_shape += usize::from(is_seen);
        }
    }
    assert!(alike > 300 && of_one_shape > 80, "{alike} pairs of one class, {of_one_shape} of one shape");
}

#[test]
fn a_class_is_the_same_in_every_process() {
    // What waits for a class must find it again after another controller took over: this text must never change.
    assert_eq!(NodeClass::of(&node("n-0")).to_string(), NodeClass::of(&node("n-9")).to_string());
    let class = NodeClass::of(&node("n-0")).to_string();
    assert!(class.starts_with("v1:") && class.len() == 19, "{class}");
}

#[test]
fn only_the_beginning_of_a_target_makes_it_escape() {
    for (target, wanted) in [
        ("${unique.a}", true),
        ("${node.unique.name}", true),
        ("${attr.unique.a}", true),
        ("${meta.unique.a}", true),
        ("${meta.unique.", true),
        ("${meta.unique}", false),
        ("${attr.a.unique.b}", false),
        (" ${unique.a}", false),
        ("x${unique.a}", false),
        ("${device.unique.a}", false),
        ("${node.name}", false),
    ] {
        assert_eq!(escapes(target), wanted, "{target:?}");
    }
}
