//! Which devices a group gets (`spec/scheduler.md` 4.2, 4.5 and 5.3), beside an oracle that takes one request after the
//! other from a plain list of instances.

use drover_api::client_node::DeviceGroup;
use drover_api::group::Group;
use drover_api::task::DeviceRequest;
use fastrand::Rng;

use super::*;
use crate::scheduler::feasible::device::{assign, is_asked_for};
use crate::usage::DeviceKey;

fn group_of(vendor: &str, kind: &str, name: &str, instances: &[(&str, bool)]) -> DeviceGroup {
    let instances: Vec<Value> = instances.iter().map(|(id, healthy)| json!({ "id": id, "healthy": healthy })).collect();
    serde_json::from_value(json!({ "vendor": vendor, "type": kind, "name": name, "instances": instances })).unwrap()
}

fn request(written: &Value) -> DeviceRequest {
    serde_json::from_value(written.clone()).unwrap()
}

/// A group with one task for each list of requests.
fn asking(tasks: &[Vec<Value>]) -> Group {
    let tasks: Vec<Value> = tasks
        .iter()
        .enumerate()
        .map(|(n, devices)| json!({ "name": format!("t{n}"), "driver": "mock", "resources": { "devices": devices } }))
        .collect();
    serde_json::from_value(json!({ "name": "g", "tasks": tasks })).unwrap()
}

#[test]
fn a_name_is_a_type_or_a_vendor_and_type_or_all_three() {
    let a100 = group_of("nvidia", "gpu", "a100", &[]);
    let slashed = group_of("acme", "fpga", "x/y", &[]);
    for (group, name, wanted) in [
        (&a100, "gpu", true),
        (&a100, "nvidia/gpu", true),
        (&a100, "nvidia/gpu/a100", true),
        (&a100, "nvidia", false),
        (&a100, "a100", false),
        (&a100, "gpu/a100", false),
        (&a100, "amd/gpu", false),
        (&a100, "nvidia/gpu/", false),
        (&a100, "nvidia/gpu/a100/0", false),
        (&a100, "/gpu", false),
        (&a100, "GPU", false),
        (&a100, "", false),
        // A model may have a slash in it.
        (&slashed, "acme/fpga/x/y", true),
        (&slashed, "acme/fpga/x", false),
    ] {
        assert_eq!(is_asked_for(group, &request(&json!({ "name": name }))), wanted, "{name:?}");
    }
}

#[test]
fn rules_on_devices_see_vendor_type_model_ids_and_attributes() {
    let mut group = group_of("nvidia", "gpu", "a100", &[("id-1", true), ("id-2", false)]);
    group.attributes.extend([("memory".into(), "40 GiB".into()), ("ecc".into(), "true".into())]);
    for (left, operand, right, wanted) in [
        ("${device.vendor}", "=", "nvidia", true),
        ("${device.type}", "=", "gpu", true),
        ("${device.model}", "regexp", "^a1", true),
        ("${device.model}", "=", "h100", false),
        ("${device.ids}", "set_contains", "id-2", true),
        ("${device.ids}", "set_contains", "id-3", false),
        ("${device.attr.memory}", ">=", "40960 MiB", true),
        ("${device.attr.memory}", ">", "40 GiB", false),
        ("${device.attr.ecc}", "is", "true", true),
        ("${device.attr.cuda}", "is_not_set", "", true),
        ("${device.attr.cuda}", "!=", "x", true),
        ("${device.attr.cuda}", "=", "x", false),
        ("${device.memory}", "is_set", "", false),
        ("${attr.memory}", "is_set", "", false),
        ("${device.attr.memory", "=", "${device.attr.memory", true),
        ("40 GiB", "=", "${device.attr.memory}", true),
    ] {
        let one = json!({ "name": "gpu", "constraints": [{ "lTarget": left, "operand": operand, "rTarget": right }] });
        assert_eq!(is_asked_for(&group, &request(&one)), wanted, "{left} {operand} {right}");
    }
}

#[test]
fn a_rule_on_ids_leaves_out_instances_and_not_their_group() {
    let node = Node {
        devices: vec![group_of("nvidia", "gpu", "a100", &[("a", true), ("b", true), ("c", true)])],
        ..node("n-0")
    };
    for (operand, right, wanted) in [
        ("set_contains_any", "b, c", Some("b")),
        ("set_contains_any", "c,x", Some("c")),
        ("set_contains", "c", Some("c")),
        ("set_contains_all", "b", Some("b")),
        ("set_contains_all", "b,x", None),
        ("set_contains_any", "x", None),
        // The list of all ids is `a,b,c`: a rule that compares it whole holds of the group or does not.
        ("!=", "a", Some("b")),
        ("not", "a", Some("b")),
        ("!=", "a,b", Some("c")),
        ("!=", "a,b,c", None),
        ("=", "a", None),
        ("=", "a,b,c", Some("a")),
        ("regexp", "c", Some("a")),
        ("is_set", "", Some("a")),
    ] {
        let rule = json!({ "lTarget": "${device.ids}", "operand": operand, "rTarget": right });
        let group = asking(&[vec![json!({ "name": "gpu", "constraints": [rule] })]]);
        let got = assign(&node, &[], &group).ok().map(|assigned| assigned.tasks[0].1[0].ids[0].clone());
        assert_eq!(got.as_deref(), wanted, "{operand} {right}");
    }
}

/// Groups of devices of two vendors, with one instance in use or broken here and there.
fn some_devices(rng: &mut Rng) -> (Vec<DeviceGroup>, Vec<DeviceKey>) {
    let kinds = [("nvidia", "gpu", "a100"), ("nvidia", "gpu", "t4"), ("amd", "gpu", "mi50"), ("acme", "fpga", "f1")];
    let mut taken = Vec::new();
    let mut groups = Vec::new();
    for (vendor, kind, name) in kinds.into_iter().filter(|_| rng.u8(..4) > 0).collect::<Vec<_>>() {
        let n = rng.usize(..5);
        let instances: Vec<(String, bool)> = (0..n).map(|at| (format!("{at}"), rng.u8(..5) > 0)).collect();
        for (id, _) in instances.iter().filter(|_| rng.u8(..4) == 0).collect::<Vec<_>>() {
            taken.push((vendor.to_owned(), kind.to_owned(), name.to_owned(), id.clone()));
        }
        let instances: Vec<(&str, bool)> = instances.iter().map(|(id, healthy)| (id.as_str(), *healthy)).collect();
        groups.push(group_of(vendor, kind, name, &instances));
    }
    (groups, taken)
}

/// A request by name, with a weight for models that it likes or dislikes.
#[derive(Clone, Debug)]
struct Liking {
    name: &'static str,
    count: usize,
    weights: Vec<(&'static str, i64)>,
}

impl Liking {
    fn random(rng: &mut Rng) -> Self {
        let names = ["gpu", "gpu", "nvidia/gpu", "amd/gpu", "fpga", "nvidia/gpu/t4"];
        let weights =
            (0..rng.usize(..3)).map(|_| (["a100", "t4", "mi50"][rng.usize(..3)], [50, 20, -30][rng.usize(..3)]));
        let weights = weights.collect();
        Self { name: names[rng.usize(..names.len())], count: rng.usize(1..4), weights }
    }

    fn written(&self) -> Value {
        let affinity = |(model, weight): &(&str, i64)| json!({ "lTarget": "${device.model}", "operand": "=", "rTarget": model, "weight": weight });
        let affinities: Vec<Value> = self.weights.iter().map(affinity).collect();
        json!({ "name": self.name, "count": self.count, "affinities": affinities })
    }

    fn names(&self, group: &DeviceGroup) -> bool {
        let whole = format!("{}/{}/{}", group.vendor, group.r#type, group.name);
        [group.r#type.clone(), format!("{}/{}", group.vendor, group.r#type), whole].contains(&self.name.to_owned())
    }

    fn weight(&self, group: &DeviceGroup) -> i64 {
        self.weights.iter().filter(|(model, _)| *model == group.name).map(|(_, weight)| weight).sum()
    }

    /// The free and healthy instances of the group that suits best, of equals the later examined.
    fn given(&self, groups: &[DeviceGroup], taken: &[DeviceKey]) -> Option<(Vec<DeviceKey>, i64)> {
        let mut options = Vec::new();
        for group in groups.iter().filter(|group| self.names(group)) {
            let of = |id: &str| (group.vendor.clone(), group.r#type.clone(), group.name.clone(), id.to_owned());
            let healthy = group.instances.iter().filter(|instance| instance.healthy);
            let free: Vec<DeviceKey> =
                healthy.map(|instance| of(&instance.id)).filter(|key| !taken.contains(key)).collect();
            if free.len() >= self.count {
                options.push((self.weight(group), free[..self.count].to_vec()));
            }
        }
        let best = options.iter().map(|(weight, _)| *weight).max()?;
        let (weight, keys) = options.into_iter().rfind(|(weight, _)| *weight == best)?;
        Some((keys, weight))
    }
}

/// What each request gets with the score of all, or the name of the first that gets nothing.
type GivenDevices = Result<(Vec<Vec<DeviceKey>>, Option<f64>), &'static str>;

fn by_hand(groups: &[DeviceGroup], taken: &[DeviceKey], tasks: &[Vec<Liking>]) -> GivenDevices {
    let (mut taken, mut all) = (taken.to_vec(), Vec::new());
    let (mut matched, mut weights) = (0, 0);
    for liking in tasks.iter().flatten() {
        let (keys, weight) = liking.given(groups, &taken).ok_or(liking.name)?;
        matched += weight;
        weights += liking.weights.iter().map(|(_, weight)| weight.abs()).sum::<i64>();
        taken.extend(keys.clone());
        all.push(keys);
    }
    let ratio = || f64::from(i32::try_from(matched).unwrap()) / f64::from(i32::try_from(weights).unwrap());
    Ok((all, (weights > 0).then(ratio)))
}

#[test]
fn each_request_takes_the_devices_that_suit_it_best_of_what_those_before_left() {
    let mut rng = Rng::with_seed(53);
    let (mut met, mut unmet) = (0, 0);
    for _ in 0..5_000 {
        let (groups, taken) = some_devices(&mut rng);
        let tasks: Vec<Vec<Liking>> =
            (0..rng.usize(1..4)).map(|_| (0..rng.usize(..3)).map(|_| Liking::random(&mut rng)).collect()).collect();
        let written: Vec<Vec<Value>> = tasks.iter().map(|task| task.iter().map(Liking::written).collect()).collect();
        let group = asking(&written);
        let node = Node { devices: groups.clone(), ..node("n-0") };
        let wanted = by_hand(&groups, &taken, &tasks);
        let got = assign(&node, &taken, &group);
        match (&got, &wanted) {
            (Ok(got), Ok((keys, score))) => {
                let names: Vec<String> = got.tasks.iter().map(|(task, _)| task.clone()).collect();
                let asking = tasks.iter().enumerate().filter(|(_, task)| !task.is_empty());
                assert_eq!(names, asking.map(|(n, _)| format!("t{n}")).collect::<Vec<_>>());
                let devices = got.tasks.iter().flat_map(|(_, devices)| devices).map(|one| {
                    let key = |id: &String| (one.vendor.clone(), one.r#type.clone(), one.name.clone(), id.clone());
                    one.ids.iter().map(key).collect::<Vec<_>>()
                });
                assert_eq!((devices.collect::<Vec<_>>(), got.score), (keys.clone(), *score), "{tasks:?} of {groups:?}");
                met += 1;
            }
            (Err(request), Err(name)) => {
                assert_eq!(request.name, *name, "{tasks:?} of {groups:?} beside {taken:?}");
                unmet += 1;
            }
            (got, wanted) => panic!("{got:?}, not {wanted:?}: {tasks:?} of {groups:?} beside {taken:?}"),
        }
    }
    assert!(met > 1_000 && unmet > 1_000, "{met} met and {unmet} not");
}
