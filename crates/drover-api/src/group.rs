//! A group: the tasks that run together on one node, and how many times.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::duration::GoDuration;
use crate::network::Network;
use crate::placement::{Affinity, Constraint, Spread};
use crate::policy::{Disconnect, Migrate, Reschedule, Restart, Update};
use crate::service::Service;
use crate::task::Task;
use crate::volume_request::VolumeRequest;

/// A group of tasks. Each of its allocations runs all of them on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Its name, a DNS label, unique in the job.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// How many allocations; default 1. On system jobs 0 or 1 for each node, on sysbatch jobs for each node.
    /// `spec.scale.count`, while set, wins over it.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 50000))]
    pub count: i64,
    /// The tasks; at least one without a lifecycle block.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub tasks: Vec<Task>,
    /// How a new version replaces the old one; overrides the job's block field by field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Update>,
    /// How often its tasks are started again on the same node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// How a failed allocation is placed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reschedule: Option<Reschedule>,
    /// How its allocations leave a draining node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrate: Option<Migrate>,
    /// What happens when their node loses its connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disconnect: Option<Disconnect>,
    /// Disk space for each allocation, and whether a replacement gets it.
    #[serde(default)]
    pub ephemeral_disk: EphemeralDisk,
    /// Networks; one is usual, with all ports in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "atomic"))]
    pub networks: Vec<Network>,
    /// Volumes that its tasks can mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub volumes: Vec<VolumeRequest>,
    /// Services that its allocations offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub services: Vec<Service>,
    /// Rules that the node must satisfy for this group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub constraints: Vec<Constraint>,
    /// Preferences for nodes for this group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub affinities: Vec<Affinity>,
    /// How this group's allocations are distributed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub spreads: Vec<Spread>,
    /// Limits of scaling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// Pause between the removal of its services from the register and the end of its tasks; default 0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_delay: Option<GoDuration>,
    /// The longest an allocation may run (batch and sysbatch); default no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run_duration: Option<GoDuration>,
    /// Key and value pairs, as `NOMAD_META_<key>` for all its tasks; they win over the job's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub meta: BTreeMap<String, String>,
    /// Deprecated: write disconnect.lostAfter. Accepted with a warning and ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_client_disconnect: Option<GoDuration>,
    /// Deprecated: write disconnect.stopOnClientAfter, which wins. Accepted with a warning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_after_client_disconnect: Option<GoDuration>,
    /// Deprecated: write disconnect.replace. Accepted with a warning and ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prevent_reschedule_on_lost: Option<bool>,
}

impl Group {
    /// How few and how many allocations it may be scaled to.
    pub fn count_limits(&self) -> RangeInclusive<i64> {
        let limits = self.scaling.as_ref();
        let (least, most) = (limits.and_then(|limits| limits.min), limits.and_then(|limits| limits.max));
        least.unwrap_or(0)..=most.unwrap_or(i64::MAX)
    }
}

fn one() -> i64 {
    1
}

/// Disk space of an allocation, shared by its tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralDisk {
    /// Size in MiB, at least 10; default 300. It must hold the tasks' logs.
    #[serde(rename = "sizeMB")]
    #[schemars(range(min = 10, max = 1_000_000_000_i64))]
    pub size_mb: i64,
    /// Whether a replacement on the same node gets the data, and that node is preferred; default false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
    /// Whether a replacement on another node gets the data too, through the gateway; default false. It implies
    /// `sticky`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub migrate: bool,
}

impl Default for EphemeralDisk {
    fn default() -> Self {
        Self { size_mb: 300, sticky: false, migrate: false }
    }
}

/// Limits within which a group may be scaled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Scaling {
    /// Fewest allocations; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 50000))]
    pub min: Option<i64>,
    /// Most allocations; default the cluster's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 50000))]
    pub max: Option<i64>,
    /// Whether an autoscaler may act; default true. It is told so as a client of Nomad; drover scales by itself never,
    /// and `jobs/scale` is written whatever stands here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Settings for the autoscaler, which reads them as a client of Nomad, by `scaling/policy`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "crate::schema::free_form_object")]
    pub policy: Map<String, Value>,
}
