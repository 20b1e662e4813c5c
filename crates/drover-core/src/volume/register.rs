//! What is wrong with a volume by itself, before any plugin is asked (`spec/volumes.md` 1 and 7).

use drover_api::csi_volume::CSIVolumeSpec;

use crate::ids::ObjectKey;
use crate::validate::{Violation, Violations};

/// How keys begin by which a driver is told of pods, claims and volumes of the cluster.
const RESERVED: &str = "csi.storage.k8s.io/";

/// What is wrong with a volume by itself.
pub fn violations(volume: &ObjectKey, spec: &CSIVolumeSpec) -> Vec<Violation> {
    let mut found = Violations::default();
    for (field, text) in
        [("metadata.namespace", &*volume.namespace), ("spec.id", &*volume.name), ("spec.pluginID", &spec.plugin_id)]
    {
        found.when(text.is_empty(), "Missing", format_args!("{field}"), "is missing; give it");
    }
    for (field, keys) in [("parameters", &spec.parameters), ("context", &spec.context)] {
        for key in keys.keys().filter(|key| key.starts_with(RESERVED)) {
            let message = "tells a driver for whom it acts, and only drover and the cluster say that; remove it";
            found.when(true, "ReservedKey", format_args!("spec.{field}[{key}]"), message);
        }
    }
    let has_both = !spec.clone_id.is_empty() && !spec.snapshot_id.is_empty();
    let message = "and spec.snapshotID exclude each other; remove one of them";
    found.when(has_both, "TwoSources", format_args!("spec.cloneID"), message);
    let message = "is empty; name at least one accessMode with its attachmentMode";
    found.when(spec.capabilities.is_empty(), "Capabilities", format_args!("spec.capabilities"), message);
    for (list, topologies) in spec
        .topology_request
        .iter()
        .flat_map(|request| [("required", &request.required), ("preferred", &request.preferred)])
    {
        for (n, topology) in topologies.iter().enumerate() {
            let field = format_args!("spec.topologyRequest.{list}[{n}].segments");
            found.when(topology.segments.is_empty(), "Topology", field, "is empty; name at least one, as zone: a");
        }
    }
    found.finish()
}
