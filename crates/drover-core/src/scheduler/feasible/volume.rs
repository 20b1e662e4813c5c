//! Whether a node has the volumes that a group mounts (`spec/scheduler.md` 4.5).

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_api::CSIVolume;
use drover_api::csi_volume::{Claim, ClaimMode};
use drover_api::volume_request::VolumeRequest;

use super::WantedGroup;
use super::host_volume::{Slot, missing_host};
use crate::ids::ObjectKey;
use crate::scheduler::proposed::Proposed;
use crate::snapshot::NodeEntry;
use crate::volume::access::{self, Held, is_csi, source};
use crate::volume::claim;

/// The key of the first volume rule that a node breaks.
pub(super) fn missing(
    wanted: WantedGroup<'_>,
    entry: &NodeEntry,
    proposed: &Proposed<'_>,
    slot: Slot<'_>,
) -> Option<String> {
    missing_host(wanted, entry, proposed, slot).or_else(|| missing_csi(wanted, entry, proposed, slot.index))
}

fn missing_csi(wanted: WantedGroup<'_>, entry: &NodeEntry, proposed: &Proposed<'_>, index: i64) -> Option<String> {
    let requests: Vec<_> = wanted.group.volumes.iter().filter(|request| is_csi(request)).collect();
    if requests.is_empty() {
        return None;
    }
    let view = proposed.view();
    let find = |id: &str| view.volume(&ObjectKey::new(wanted.job.namespace.clone(), id));
    let ids: Vec<String> = requests.iter().map(|request| source(request, index)).collect();
    let unknown: Vec<&str> = ids.iter().filter(|id| find(id).is_none()).map(String::as_str).collect();
    if !unknown.is_empty() {
        return Some(format!("csiVolumeNotFound:{}", unknown.join(",")));
    }
    requests.iter().zip(&ids).find_map(|(request, id)| {
        let volume = find(id)?;
        plugin_failure(volume, id, wanted, entry, proposed)
            .or_else(|| topology_failure(volume, entry))
            .or_else(|| claim_failure(volume, id, request, wanted, proposed))
    })
}

fn plugin_failure(
    volume: &CSIVolume,
    id: &str,
    wanted: WantedGroup<'_>,
    entry: &NodeEntry,
    proposed: &Proposed<'_>,
) -> Option<String> {
    let (plugin, node) = (&volume.spec.plugin_id, &entry.node.name);
    let Some(info) = entry.node.csi.get(plugin).filter(|info| info.node) else {
        return Some(format!("csiPluginMissing:{plugin}:{node}"));
    };
    if !info.healthy {
        return Some(format!("csiPluginUnhealthy:{plugin}:{node}"));
    }
    if info.max_volumes <= 0 {
        return None;
    }
    let mut mounted = BTreeSet::new();
    proposed.each_on(node, wanted, |namespace, group, index| {
        for request in group.volumes.iter().filter(|request| is_csi(request)) {
            let other = source(request, index);
            let key = ObjectKey::new(Arc::clone(&namespace), other.clone());
            if proposed.view().volume(&key).is_some_and(|other| other.spec.plugin_id == *plugin) {
                mounted.insert((key.namespace, other));
            }
        }
    });
    let is_there = mounted.iter().any(|(namespace, known)| **namespace == *wanted.job.namespace && known == id);
    let n = i64::try_from(mounted.len()).unwrap_or(i64::MAX);
    (!is_there && n >= info.max_volumes).then(|| format!("csiPluginMaxVolumes:{plugin}:{node}"))
}

fn topology_failure(volume: &CSIVolume, entry: &NodeEntry) -> Option<String> {
    let topologies = &volume.status.as_ref()?.topologies;
    let own = &entry.node.csi.get(&volume.spec.plugin_id)?.topology;
    let matches = |segments: &std::collections::BTreeMap<String, String>| {
        segments.iter().all(|(key, value)| own.get(key) == Some(value))
    };
    let suits = topologies.is_empty() || topologies.iter().any(|topology| matches(&topology.segments));
    (!suits).then(|| "csiTopology".to_owned())
}

fn claim_failure(
    volume: &CSIVolume,
    id: &str,
    request: &VolumeRequest,
    wanted: WantedGroup<'_>,
    proposed: &Proposed<'_>,
) -> Option<String> {
    let (no_read, no_write) = (|| Some(format!("csiNoRead:{id}")), || Some(format!("csiNoWrite:{id}")));
    let Some(status) = &volume.status else { return if request.read_only { no_read() } else { no_write() } };
    if request.read_only {
        return if access::is_read_schedulable(status) { None } else { no_read() };
    }
    if !access::is_write_schedulable(&volume.spec, status) {
        return no_write();
    }
    if Held::by(&status.claims).has_room(status.access_mode, ClaimMode::Write) {
        return None;
    }
    let key = ObjectKey::new(wanted.job.namespace.clone(), id);
    let holders = || status.claims.iter().filter(|claim| claim.mode == ClaimMode::Write);
    let holder = |claim: &Claim| claim::holder(proposed.view(), &key, claim);
    if let Some(past) = holders().find(|claim| holder(claim).is_none()) {
        return Some(format!("csiInUseGCd:{id}:{}", past.allocation));
    }
    let is_other = |claim: &Claim| holder(claim).is_some_and(|holder| holder.job != *wanted.job);
    holders().any(is_other).then(|| format!("csiInUse:{id}"))
}
