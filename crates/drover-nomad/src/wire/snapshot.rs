//! Snapshots of CSI volumes.

use drover_api::CSIVolume;
use drover_api::csi_volume::VolumeSnapshot;
use serde_json::{Value, json};

use super::volume::external_id;
use crate::world::volume_id;

/// A snapshot of a volume.
pub(crate) fn wire(volume: &CSIVolume, snapshot: &VolumeSnapshot) -> Value {
    json!({
        "ID": snapshot.id,
        "Name": snapshot.name,
        "SourceVolumeID": volume_id(volume),
        "ExternalSourceVolumeID": external_id(volume),
        "PluginID": volume.spec.plugin_id,
        "SizeBytes": snapshot.size_bytes.unwrap_or(0),
        "CreateTime": snapshot.created_at.map_or(0, jiff::Timestamp::as_second),
        "IsReady": snapshot.ready_to_use,
        "Secrets": {},
        "Parameters": {},
    })
}
