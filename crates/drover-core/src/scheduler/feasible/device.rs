//! Which devices of a node a group gets (`spec/scheduler.md` 4.2, 4.5, 5.3).

use drover_api::allocation::AllocatedDevice;
use drover_api::client_node::DeviceGroup;
use drover_api::group::Group;
use drover_api::placement::Operand;
use drover_api::task::DeviceRequest;

use crate::arithmetic::{ratio, total};
use crate::model::Node;
use crate::scheduler::typed::{self, Typed};
use crate::usage::DeviceKey;

/// The devices that each task gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assigned {
    /// By task, in the order of the group.
    pub tasks: Vec<(String, Vec<AllocatedDevice>)>,
    /// Matched weights over all weights of the requests with affinities; none without any.
    pub score: Option<f64>,
}

/// Finds free, healthy devices for every request of a group.
///
/// # Errors
/// The first request that cannot be met.
pub fn assign<'a>(node: &Node, taken: &[DeviceKey], group: &'a Group) -> Result<Assigned, &'a DeviceRequest> {
    let mut taken: Vec<DeviceKey> = taken.to_vec();
    let mut assigned = Assigned::default();
    let (mut matched, mut all) = (0_i64, 0_i64);
    for task in group.tasks.iter().filter(|task| !task.resources.devices.is_empty()) {
        let mut devices = Vec::new();
        for request in &task.resources.devices {
            let (device, weight) = best(node, &taken, request).ok_or(request)?;
            matched = matched.saturating_add(weight);
            all = all.saturating_add(total(request.affinities.iter().map(|affinity| affinity.weight.saturating_abs())));
            taken.extend(
                device
                    .ids
                    .iter()
                    .map(|id| (device.vendor.clone(), device.r#type.clone(), device.name.clone(), id.clone())),
            );
            devices.push(device);
        }
        assigned.tasks.push((task.name.clone(), devices));
    }
    assigned.score = (all > 0).then(|| ratio(matched, all));
    Ok(assigned)
}

/// The group of devices that suits a request best, with the matched weight; of equals the later one.
fn best(node: &Node, taken: &[DeviceKey], request: &DeviceRequest) -> Option<(AllocatedDevice, i64)> {
    let wanted = usize::try_from(request.count).unwrap_or(usize::MAX);
    let mut found: Option<(AllocatedDevice, i64)> = None;
    for group in node.devices.iter().filter(|group| is_asked_for(group, request)) {
        let free: Vec<String> = group
            .instances
            .iter()
            .filter(|instance| instance.healthy && may_be_used(&instance.id, request))
            .filter(|instance| !taken.iter().any(|held| is_held(held, group, &instance.id)))
            .take(wanted)
            .map(|instance| instance.id.clone())
            .collect();
        if free.len() < wanted {
            continue;
        }
        let weight = weight(group, request);
        if found.as_ref().is_none_or(|(_, best)| weight >= *best) {
            let device = AllocatedDevice {
                vendor: group.vendor.clone(),
                r#type: group.r#type.clone(),
                name: group.name.clone(),
                ids: free,
            };
            found = Some((device, weight));
        }
    }
    found
}

fn is_held(held: &DeviceKey, group: &DeviceGroup, id: &str) -> bool {
    held.3 == id && held.2 == group.name && held.1 == group.r#type && held.0 == group.vendor
}

/// Whether a request names a group of devices: by type, vendor/type or vendor/type/name.
fn matches_name(group: &DeviceGroup, name: &str) -> bool {
    let mut parts = name.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(kind), None, _) => group.r#type == kind,
        (Some(vendor), Some(kind), None) => group.vendor == vendor && group.r#type == kind,
        (Some(vendor), Some(kind), Some(name)) => group.vendor == vendor && group.r#type == kind && group.name == name,
        (None, _, _) => false,
    }
}

/// Whether a group of devices is what a request names, and satisfies its constraints.
pub fn is_asked_for(group: &DeviceGroup, request: &DeviceRequest) -> bool {
    matches_name(group, &request.name)
        && request.constraints.iter().all(|one| holds(group, &one.l_target, one.operand, &one.r_target))
}

fn weight(group: &DeviceGroup, request: &DeviceRequest) -> i64 {
    let matched = request.affinities.iter().filter(|one| holds(group, &one.l_target, one.operand, &one.r_target));
    total(matched.map(|one| one.weight))
}

fn holds(group: &DeviceGroup, left: &str, operand: Operand, right: &str) -> bool {
    let (left, right) = (value(group, left), value(group, right));
    typed::holds(operand, left.as_ref(), right.as_ref())
}

/// The value of a target on a group of devices.
fn value(group: &DeviceGroup, target: &str) -> Option<Typed> {
    let Some(name) = target.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) else {
        return Some(typed::parse(target));
    };
    match name {
        "device.ids" => {
            let ids: Vec<&str> = group.instances.iter().map(|instance| instance.id.as_str()).collect();
            Some(typed::parse(&ids.join(",")))
        }
        "device.model" => Some(typed::parse(&group.name)),
        "device.vendor" => Some(typed::parse(&group.vendor)),
        "device.type" => Some(typed::parse(&group.r#type)),
        _ => group.attributes.get(name.strip_prefix("device.attr.")?).map(|text| typed::parse(text)),
    }
}

/// Whether one instance satisfies the rules on ids.
fn may_be_used(id: &str, request: &DeviceRequest) -> bool {
    request.constraints.iter().filter(|rule| rule.l_target == "${device.ids}").all(|rule| {
        let is_named = rule.r_target.split(',').any(|name| name.trim() == id);
        match rule.operand {
            Operand::Equal
            | Operand::DoubleEqual
            | Operand::Is
            | Operand::SetContains
            | Operand::SetContainsAll
            | Operand::SetContainsAny => is_named,
            Operand::NotEqual | Operand::Not => !is_named,
            _ => true,
        }
    })
}
