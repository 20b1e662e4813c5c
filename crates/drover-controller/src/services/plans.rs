//! The services of allocations, planned once for each state of what they are planned from: reports of readiness, which
//! come often, change neither an allocation's spec nor its network nor its version of the job.

use std::collections::HashMap;
use std::sync::Arc;

use drover_api::allocation::NetworkStatus;
use drover_api::{Allocation, JobVersion};
use drover_core::service::{self, PlannedService};

/// What was planned last for each allocation, by its uid.
#[derive(Debug, Default)]
pub(super) struct ServicePlans(HashMap<String, KnownPlan>);

#[derive(Debug)]
struct KnownPlan {
    /// The generation of the allocation, the uid of the version, and the allocation's own network.
    of: (Option<i64>, Option<String>, Option<NetworkStatus>),
    services: Arc<[PlannedService]>,
}

impl ServicePlans {
    /// The services of an allocation that runs this version.
    pub(super) fn of(&mut self, allocation: &Allocation, version: &JobVersion) -> Arc<[PlannedService]> {
        let network = allocation.status.as_ref().and_then(|status| status.network.clone());
        let of = (allocation.metadata.generation, version.metadata.uid.clone(), network);
        let uid = allocation.metadata.uid.clone().unwrap_or_default();
        if let Some(known) = self.0.get(&uid).filter(|known| known.of == of) {
            return Arc::clone(&known.services);
        }
        let job = &version.spec.job;
        let group = job.group(&allocation.spec.group);
        let planned = group.map(|group| service::planned(allocation, job, group));
        // An allocation with services that cannot be registered fails on its node, which says why.
        let services: Arc<[PlannedService]> = planned.and_then(Result::ok).unwrap_or_default().into();
        self.0.insert(uid, KnownPlan { of, services: Arc::clone(&services) });
        services
    }

    /// An allocation is gone.
    pub(super) fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use drover_api::allocation::AllocationStatus;
    use drover_api::service::AddressMode;
    use serde_json::json;

    use super::*;

    fn allocation(generation: i64, canary: bool) -> Allocation {
        let port = json!({ "label": "http", "value": 21000, "hostIP": "10.0.0.7" });
        serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Allocation",
            "metadata": { "name": "web-g-0-1", "namespace": "shop", "uid": "u-1", "generation": generation },
            "spec": { "jobName": "web", "jobUID": "j-1", "jobVersion": 0, "group": "g", "index": 0, "nodeName": "n-1",
                "canary": canary, "resources": { "diskMB": 1, "ports": [port] } },
        }))
        .unwrap()
    }

    fn version(uid: &str, tag: &str) -> JobVersion {
        let service = json!({ "name": "api", "portLabel": "http", "tags": [tag], "canaryTags": ["new"] });
        serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "JobVersion", "metadata": { "name": "web-v0", "uid": uid },
            "spec": { "jobName": "web", "jobUID": "j-1", "version": 0, "submittedAt": "2026-01-01T00:00:00Z",
                "groupNames": "g", "jobGeneration": 1,
                "job": { "groups": [{ "name": "g", "services": [service], "tasks": [{ "name": "t", "driver": "mock" }] }] } },
        }))
        .unwrap()
    }

    #[test]
    fn services_are_planned_once_for_each_spec_and_version() {
        let mut it = ServicePlans::default();
        let first = it.of(&allocation(1, true), &version("v-1", "old"));
        assert_eq!(first[0].tags, ["new"]);
        let mut reported = allocation(1, true);
        reported.metadata.resource_version = Some("7".to_owned());
        assert!(Arc::ptr_eq(&first, &it.of(&reported, &version("v-1", "old"))), "a report changes nothing of it");
        assert_eq!(it.of(&allocation(2, false), &version("v-1", "old"))[0].tags, ["old"]);
        assert_eq!(it.of(&allocation(2, false), &version("v-2", "newer"))[0].tags, ["newer"]);
        let mut at_home = allocation(2, false);
        let network = NetworkStatus { address: "172.26.64.9".to_owned(), ..NetworkStatus::default() };
        at_home.status = Some(AllocationStatus { network: Some(network), ..AllocationStatus::default() });
        let mut own = version("v-3", "own");
        own.spec.job.groups[0].services[0].address_mode = Some(AddressMode::Alloc);
        assert_eq!(it.of(&allocation(2, false), &own)[0].port.ip, "");
        assert_eq!(it.of(&at_home, &own)[0].port.ip, "172.26.64.9", "it is known later");
        it.forget("u-1");
        assert!(it.0.is_empty());
    }
}
