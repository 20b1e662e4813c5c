//! CSI volumes: the stubs of lists, and the whole object. What a Secret holds is in neither.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::CSIVolume;
use drover_api::csi_volume::{AttachState, CSIVolumeStatus, Claim, ClaimMode, ClaimState, Topology};
use serde_json::{Map, Value, json};

use super::allocation::{StubParts, stub as allocation_stub};
use super::times::{created, created_nanos, date, nanos};
use crate::world::{World, namespace, version, volume_id};

/// A stub, as lists have it.
pub(crate) fn stub(volume: &CSIVolume) -> Value {
    let status = volume.status.clone().unwrap_or_default();
    let n_of = |mode: ClaimMode| claims(&status, mode).count();
    let mut stub = common(volume, &status);
    stub.insert("CurrentReaders".to_owned(), json!(n_of(ClaimMode::Read)));
    stub.insert("CurrentWriters".to_owned(), json!(n_of(ClaimMode::Write)));
    Value::Object(stub)
}

/// The whole object.
pub(crate) fn full(volume: &CSIVolume, world: &World) -> Value {
    let (spec, status) = (&volume.spec, volume.status.clone().unwrap_or_default());
    let mut full = common(volume, &status);
    let holders = |mode: ClaimMode| -> Map<String, Value> {
        claims(&status, mode).map(|claim| (claim.alloc_id.clone(), Value::Null)).collect()
    };
    let parts = StubParts { resources: false, task_states: true };
    let allocations: Vec<Value> = status
        .claims
        .iter()
        .filter(|claim| claim.state == ClaimState::Taken)
        .filter_map(|claim| world.allocations.with_uid(&claim.alloc_id))
        .map(|allocation| json!(allocation_stub(allocation, world, parts)))
        .collect();
    let capabilities: Vec<Value> = spec
        .capabilities
        .iter()
        .map(|it| json!({ "AccessMode": it.access_mode, "AttachmentMode": it.attachment_mode }))
        .collect();
    let mount = spec.mount_options.as_ref().map(|it| json!({ "FSType": it.fs_type, "MountFlags": it.mount_flags }));
    let requested = spec.topology_request.as_ref().map(
        |request| json!({ "Required": topologies(&request.required), "Preferred": topologies(&request.preferred) }),
    );
    let (least, most) = spec.capacity.as_ref().map_or(("", ""), |range| (range.min.as_str(), range.max.as_str()));
    let more = [
        ("MountOptions", json!(mount)),
        ("Secrets", json!({})),
        ("Parameters", json!(spec.parameters)),
        ("Context", json!(context(volume))),
        ("Capacity", json!(bytes(&status.capacity))),
        ("RequestedCapacityMin", json!(bytes(least))),
        ("RequestedCapacityMax", json!(bytes(most))),
        ("RequestedCapabilities", json!(capabilities)),
        ("CloneID", json!(spec.clone_id)),
        ("SnapshotID", json!(spec.snapshot_id)),
        ("RequestedTopologies", json!(requested)),
        ("ReadAllocs", json!(holders(ClaimMode::Read))),
        ("WriteAllocs", json!(holders(ClaimMode::Write))),
        ("Allocations", json!(allocations)),
        ("ProviderVersion", json!(status.provider_version)),
    ];
    full.extend(more.map(|(key, value)| (key.to_owned(), value)));
    Value::Object(full)
}

/// The provider's id of it: of a volume that drover made, else as it was registered.
pub(crate) fn external_id(volume: &CSIVolume) -> &str {
    let made = volume.status.as_ref().map(|status| status.external_id.as_str()).filter(|id| !id.is_empty());
    made.unwrap_or(&volume.spec.external_id)
}

/// What the provider calls `id`, by the volumes that are that. Its condition there is not known.
pub(crate) fn external(id: &str, volumes: &[&CSIVolume]) -> Value {
    let first = |of: fn(&CSIVolume) -> Value| volumes.first().map(|volume| of(volume));
    let statuses = volumes.iter().filter_map(|volume| volume.status.as_ref());
    let on: BTreeSet<&str> = statuses
        .flat_map(|status| &status.claims)
        .filter(|claim| claim.attach == AttachState::Attached && !claim.external_node_id.is_empty())
        .map(|claim| claim.external_node_id.as_str())
        .collect();
    json!({
        "ExternalID": id,
        "CapacityBytes": first(|it| json!(it.status.as_ref().map_or(0, |status| bytes(&status.capacity)))),
        "VolumeContext": first(|it| json!(context(it))),
        "CloneID": first(|it| json!(it.spec.clone_id)),
        "SnapshotID": first(|it| json!(it.spec.snapshot_id)),
        "PublishedExternalNodeIDs": on,
        "IsAbnormal": false,
        "Status": "",
    })
}

/// What plugins get of it with each call: as the provider made it, else as it was registered.
fn context(volume: &CSIVolume) -> &BTreeMap<String, String> {
    let made = volume.status.as_ref().map(|status| &status.context).filter(|context| !context.is_empty());
    made.unwrap_or(&volume.spec.context)
}

fn claims(status: &CSIVolumeStatus, mode: ClaimMode) -> impl Iterator<Item = &Claim> {
    status.claims.iter().filter(move |claim| claim.state == ClaimState::Taken && claim.mode == mode)
}

fn topologies(all: &[Topology]) -> Vec<Value> {
    all.iter().map(|it| json!({ "Segments": it.segments })).collect()
}

fn common(volume: &CSIVolume, status: &CSIVolumeStatus) -> Map<String, Value> {
    let (spec, meta) = (&volume.spec, &volume.metadata);
    let name = if spec.name.is_empty() { volume_id(volume) } else { &spec.name };
    let fields = [
        ("ID", json!(volume_id(volume))),
        ("Namespace", json!(namespace(meta))),
        ("Name", json!(name)),
        ("ExternalID", json!(external_id(volume))),
        ("Topologies", json!(topologies(&status.topologies))),
        ("AccessMode", json!(status.access_mode.map_or("", |mode| mode.as_str()))),
        ("AttachmentMode", json!(status.attachment_mode.map_or("", |mode| mode.as_str()))),
        ("Schedulable", json!(status.schedulable)),
        ("PluginID", json!(spec.plugin_id)),
        ("Provider", json!(status.provider)),
        ("ControllerRequired", json!(status.controller_required)),
        ("ControllersHealthy", json!(status.controllers_healthy)),
        ("ControllersExpected", json!(status.controllers_expected)),
        ("NodesHealthy", json!(status.nodes_healthy)),
        ("NodesExpected", json!(status.nodes_expected)),
        ("ResourceExhausted", date(status.resource_exhausted)),
        ("CreateIndex", json!(created(meta))),
        ("ModifyIndex", json!(version(meta))),
        ("CreateTime", json!(created_nanos(meta))),
        ("ModifyTime", json!(status.modified_at.map_or_else(|| created_nanos(meta), nanos))),
    ];
    fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

/// The bytes of a quantity, as `10Gi`; 0 where it is none.
pub(super) fn bytes(quantity: &str) -> u64 {
    const UNITS: [(&str, u64); 12] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("Pi", 1 << 50),
        ("Ei", 1 << 60),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("P", 1_000_000_000_000_000),
        ("E", 1_000_000_000_000_000_000),
    ];
    let unit = UNITS.iter().find(|(unit, _)| quantity.ends_with(unit));
    let (number, factor) = unit.map_or((quantity, 1), |(unit, factor)| (quantity.trim_end_matches(unit), *factor));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().unwrap_or(0);
    let part = fraction.chars().take(9).zip(1_u32..).filter_map(|(digit, place)| {
        let digit = u64::from(digit.to_digit(10)?);
        10_u64.checked_pow(place).map(|below| digit.saturating_mul(factor) / below)
    });
    whole.saturating_mul(factor).saturating_add(part.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_bytes() {
        for (text, wanted) in [("10Gi", 10 << 30), ("1.5Ki", 1536), ("7", 7), ("2k", 2000), ("", 0), ("20E", u64::MAX)]
        {
            assert_eq!(bytes(text), wanted, "{text}");
        }
    }
}
