//! What of Nomad's API drover does not serve, and what to do instead.

use http::Method;

use crate::fault::Fault;

/// What pools are.
const POOLS: &str = "a pool is there when a ClientNode names it in spec.nodePool";

/// Paths, where `*` is one part or more, and what to do instead.
const PATHS: &[(&str, &str)] = &[
    ("jobs/statuses", "list jobs and their allocations"),
    ("job/*/action", "run a command by `drover alloc exec`"),
    ("job/*/actions", "run a command by `drover alloc exec`"),
    ("deployment/unblock/*", "deployments of several regions are not built"),
    ("node/*/evaluate", "the controller evaluates jobs by itself"),
    ("node/pools/*", POOLS),
    ("client/allocation/*/snapshot", "agents hand the disks of allocations over to each other by themselves"),
    ("client/allocation/*/pause", "tasks have no schedule by which they pause"),
    ("volume/host/*", "make a HostVolume by `kubectl apply`, and delete it by `kubectl delete`"),
    ("agent/servers", "the replicas are pods: `kubectl get pods -n drover-system`"),
    ("agent/monitor", "read the logs of drover's pods by `kubectl logs`"),
    ("agent/keyring/*", "drover has no gossip and no keys of it"),
    ("agent/force-leave", "nodes leave when their ClientNode is deleted"),
    ("agent/join", "nodes join when an agent runs there"),
    ("agent/pprof/*", "see what a daemon does by its metrics"),
    ("system/gc", "the controller collects what has ended by itself"),
    ("system/reconcile/summaries", "the controller keeps summaries by itself"),
    ("operator/scheduler/configuration", "set controller.config.scheduler in the chart's values"),
    ("operator/*", "state is kept by the API server: back up etcd"),
    ("acl/*", "identities are Kubernetes' service accounts, and rights RBAC's roles"),
    ("vars", "keep values in a Secret or a ConfigMap, and list it in tasks[].secrets"),
    ("var/*", "keep values in a Secret or a ConfigMap, and list it in tasks[].secrets"),
    ("quota", "limit a namespace by a ResourceQuota"),
    ("quotas", "limit a namespace by a ResourceQuota"),
    ("quota/*", "limit a namespace by a ResourceQuota"),
    ("quota-usages", "limit a namespace by a ResourceQuota"),
    ("sentinel/*", "refuse objects by a ValidatingAdmissionPolicy"),
    ("namespace", "make a namespace by `kubectl create namespace`"),
    ("namespace/*", "read a namespace by `kubectl get namespace`"),
    ("recommendations", "drover makes none"),
    ("regions/*", "there is one region"),
];

/// Writes of paths that are served for reading, and what to do instead, where that is not above.
const WRITES: &[(&str, &str)] = &[
    ("node/pools", POOLS),
    ("node/pool/*", POOLS),
    ("evaluations", "evaluations are not objects, and go by themselves"),
    ("service/*", "a service goes with its allocations"),
];

/// The refusal of a path that is Nomad's, and not served; none: it is no such path.
pub(crate) fn refusal(path: &str) -> Option<Fault> {
    remedy(PATHS, path).map(|remedy| refuse(path, remedy))
}

/// The refusal of a write of a path that is served for reading.
pub(crate) fn refusal_of_write(method: &Method, path: &str) -> Option<Fault> {
    let is_write = [Method::PUT, Method::POST, Method::DELETE].contains(method);
    let found = remedy(WRITES, path).or_else(|| remedy(PATHS, path));
    found.filter(|_| is_write).map(|remedy| refuse(path, remedy))
}

fn refuse(path: &str, remedy: &str) -> Fault {
    Fault::bad(format!("/v1/{path} is not served by drover: {remedy}"))
}

/// Whether a path below `job/` is one of those that are not served.
pub(crate) fn is_of_job(path: &str) -> bool {
    path.starts_with("job/") && remedy(PATHS, path).is_some()
}

fn remedy(table: &[(&str, &'static str)], path: &str) -> Option<&'static str> {
    let parts: Vec<&str> = path.split('/').collect();
    table.iter().find(|(pattern, _)| fits(&pattern.split('/').collect::<Vec<_>>(), &parts)).map(|(_, remedy)| *remedy)
}

fn fits(pattern: &[&str], parts: &[&str]) -> bool {
    match (pattern, parts) {
        ([], []) => true,
        (["*", rest @ ..], [part, more @ ..]) if !part.is_empty() => fits(rest, more) || fits(pattern, more),
        ([word, rest @ ..], [part, more @ ..]) => word == part && fits(rest, more),
        ([], [_, ..]) | ([_, ..], []) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_part_or_more() {
        let is = |pattern: &str, path: &str| {
            fits(&pattern.split('/').collect::<Vec<_>>(), &path.split('/').collect::<Vec<_>>())
        };
        assert!(is("job/*/plan", "job/a/plan") && is("job/*/plan", "job/a/b/plan") && is("acl/*", "acl/a/b"));
        assert!(!is("job/*/plan", "job/plan") && !is("acl/*", "acl") && !is("acl/*", "acl/") && !is("vars", "vars/x"));
    }
}
