//! That the daemons have no right that no code uses, and none too few: a table names the code behind each right, and a
//! cluster runs with these rights alone.

use std::collections::BTreeSet;
use std::path::Path;

use drover_api::job::JobConditionType;
use drover_testkit::control_plane::User;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Settings, job};

/// Role, group, resource and verbs; then the file that uses them, and the words by which it does.
type Use = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

const DROVER: &str = "drover.dev";
const LOOP: &str = "crates/drover-controller/src/leader_loop.rs";
const WRITER: &str = "crates/drover-controller/src/writer.rs";
const VERSIONS: &str = "crates/drover-controller/src/jobs/versions.rs";
const LAUNCH: &str = "crates/drover-controller/src/jobs/launch.rs";
const PLANS: &str = "crates/drover-controller/src/plan_writes.rs";
const DEPLOYMENTS: &str = "crates/drover-controller/src/deployments/writes.rs";
const SERVICES: &str = "crates/drover-controller/src/services/write.rs";
const LEADER: &str = "crates/drover-controller/src/leader.rs";
const HEARTBEAT: &str = "crates/drover-controller/src/heartbeat_config.rs";
const POLICIES: &str = "crates/drover-daemon/src/monitor/policies.rs";
const REGISTRATION: &str = "crates/drover-agent/src/node/registration.rs";
const BEATS: &str = "crates/drover-agent/src/node/heartbeat.rs";
const SYNC: &str = "crates/drover-agent/src/reporting/sync.rs";
const REPLICAS: &str = "crates/drover-agent/src/gateway/replicas.rs";
const REVIEWS: &str = "crates/drover-gateway/src/reviews.rs";
const FLEET: &str = "crates/drover-gateway/src/tunnels/replicas.rs";
const KEEPER: &str = "crates/drover-gateway/src/certificates/keeper.rs";
const KEYS: &str = "crates/drover-gateway/src/identities/keeper.rs";
const CACHES: &str = "crates/drover-gateway/src/nomad/caches.rs";
const CONTROLLERS: &str = "crates/drover-gateway/src/nomad/controllers.rs";
const WRITING: &str = "crates/drover-gateway/src/nomad/writing.rs";
const OBJECTS: &str = "crates/drover-agent/src/csi/objects.rs";

#[rustfmt::skip]
const USES: &[Use] = &[
    ("controller", DROVER, "jobs", "list watch", LOOP, "watch::<Job>"),
    ("controller", DROVER, "jobs", "get create", LAUNCH, "store.create(&child)"),
    ("controller", DROVER, "jobs", "patch", VERSIONS, "store.merge::<Job>"),
    ("controller", DROVER, "jobs", "delete", WRITER, "store.delete::<Job>"),
    ("controller", DROVER, "jobs/csiplugin", "update", LAUNCH, "store.create(&child)"),
    ("controller", DROVER, "jobs/secrets", "update", LAUNCH, "store.create(&child)"),
    ("controller", DROVER, "jobs/priority", "update", LAUNCH, "store.create(&child)"),
    ("controller", DROVER, "jobs/status", "patch", "crates/drover-controller/src/jobs/status.rs", "store.apply_status"),
    ("controller", DROVER, "jobversions", "list watch", LOOP, "watch::<JobVersion>"),
    ("controller", DROVER, "jobversions", "get create", VERSIONS, "store.create(&version)"),
    ("controller", DROVER, "jobversions", "delete", VERSIONS, "store.delete::<JobVersion>"),
    ("controller", DROVER, "jobversions/status", "patch", VERSIONS, "store.merge::<JobVersion>"),
    ("controller", DROVER, "deployments", "list watch", LOOP, "watch::<Deployment>"),
    ("controller", DROVER, "deployments", "get create", DEPLOYMENTS, "store.get::<Deployment>"),
    ("controller", DROVER, "deployments", "delete", WRITER, "store.delete::<Deployment>"),
    ("controller", DROVER, "deployments/status", "patch", DEPLOYMENTS, "store.apply_status"),
    ("controller", DROVER, "allocations", "list watch", LOOP, "watch::<Allocation>"),
    ("controller", DROVER, "allocations", "get create", PLANS, "store.get::<Allocation>"),
    ("controller", DROVER, "allocations", "patch", PLANS, "store.merge::<Allocation>"),
    ("controller", DROVER, "allocations", "delete", WRITER, "store.delete::<Allocation>"),
    ("controller", DROVER, "allocations/status", "patch", PLANS, "store.merge(&self.key, Part::Status"),
    ("controller", DROVER, "csivolumes", "list watch", LOOP, "watch::<CSIVolume>"),
    ("controller", DROVER, "csivolumes", "patch", WRITER, "store.merge::<CSIVolume>"),
    ("controller", DROVER, "csivolumes/status", "patch", WRITER, "Done::VolumeStatus"),
    ("controller", DROVER, "hostvolumes", "list watch", LOOP, "watch::<HostVolume>"),
    ("controller", DROVER, "hostvolumes", "patch", WRITER, "store.merge::<HostVolume>"),
    ("controller", DROVER, "hostvolumes/status", "patch", WRITER, "Action::HostVolumeStatus"),
    ("controller", DROVER, "clientnodes", "list watch", LOOP, "watch::<ClientNode>"),
    ("controller", DROVER, "clientnodes", "patch", WRITER, "store.merge::<ClientNode>"),
    ("controller", DROVER, "clientnodes", "delete", WRITER, "store.delete::<ClientNode>"),
    ("controller", DROVER, "clientnodes/status", "patch", WRITER, "Done::NodeStatus"),
    ("controller", "", "namespaces", "list watch", LOOP, "watch::<Namespace>"),
    ("controller", "storage.k8s.io", "volumeattachments", "list watch", LOOP, "watch::<VolumeAttachment>"),
    ("controller", "storage.k8s.io", "volumeattachments", "create", WRITER, "store.create(&*attachment)"),
    ("controller", "storage.k8s.io", "volumeattachments", "delete", WRITER, "store.delete::<VolumeAttachment>"),
    ("controller", "", "services", "list watch", LOOP, "watch::<Service>"),
    ("controller", "", "services", "get create patch", SERVICES, "store.merge::<Service>"),
    ("controller", "discovery.k8s.io", "endpointslices", "list watch", LOOP, "watch::<EndpointSlice>"),
    ("controller", "discovery.k8s.io", "endpointslices", "get create patch", SERVICES, "store.create(&*slice)"),
    ("controller", "discovery.k8s.io", "endpointslices", "delete", SERVICES, "store.delete::<EndpointSlice>"),
    ("controller", "", "nodes", "list watch", LOOP, "watch::<Node>"),
    ("controller", "storage.k8s.io", "csidrivers", "list watch", LOOP, "watch::<CSIDriver>"),
    ("controller", "storage.k8s.io", "csinodes", "list watch", LOOP, "watch::<CSINode>"),
    ("controller", "admissionregistration.k8s.io", "validatingadmissionpolicies", "list watch", POLICIES, "watched::follow(policies, policy.name, judge_policy"),
    ("controller", "admissionregistration.k8s.io", "validatingadmissionpolicybindings", "list watch", POLICIES, "watched::follow(bindings, policy.name, judge_binding"),
    ("controller", "events.k8s.io", "events", "create", WRITER, "store.create(event)"),
    ("controller", "coordination.k8s.io", "leases", "get", LEADER, "store.get::<Lease>"),
    ("controller", "coordination.k8s.io", "leases", "create", LEADER, "store.create(&fresh)"),
    ("controller", "coordination.k8s.io", "leases", "update", LEADER, "store.replace(&renewed)"),
    ("controller", "coordination.k8s.io", "leases", "list watch", LOOP, "watch::<Lease>"),
    ("controller", "", "configmaps", "create", HEARTBEAT, "store.create(&map)"),
    ("controller", "", "configmaps=drover-heartbeat", "get", HEARTBEAT, "store.get::<ConfigMap>"),
    ("controller", "", "configmaps=drover-heartbeat", "patch", HEARTBEAT, "store.merge::<ConfigMap>"),
    ("controller", "", "configmaps=drover-config", "list watch", LOOP, "watch::<ConfigMap>"),
    ("agent", DROVER, "allocations", "list watch", "crates/drover-agent/src/allocations/allocs.rs", "watch::<Allocation>"),
    ("agent", DROVER, "allocations", "get", SYNC, "store.get::<Allocation>"),
    ("agent", DROVER, "allocations/status", "patch", SYNC, "store.apply_status"),
    ("agent", DROVER, "csivolumes", "list", OBJECTS, "store.list::<CSIVolume>"),
    ("agent", DROVER, "csivolumes", "get", OBJECTS, "store.get::<CSIVolume>"),
    ("agent", DROVER, "csivolumes", "watch", OBJECTS, "watch::<CSIVolume>"),
    ("agent", DROVER, "clientnodes", "list watch", REGISTRATION, "watch::<ClientNode>"),
    ("agent", DROVER, "clientnodes", "get", REGISTRATION, "store.get::<ClientNode>"),
    ("agent", DROVER, "clientnodes", "create", REGISTRATION, "store.create(&self.new_node())"),
    ("agent", DROVER, "clientnodes/status", "patch", REGISTRATION, "store.apply_status"),
    ("agent", DROVER, "jobversions", "get", "crates/drover-agent/src/allocations/job_versions.rs", "store.get::<JobVersion>"),
    ("agent", "events.k8s.io", "events", "create", "crates/drover-agent/src/reporting/events.rs", "store.create(&event)"),
    ("agent", "coordination.k8s.io", "leases", "get", BEATS, "store.get(&key)"),
    ("agent", "coordination.k8s.io", "leases", "create", BEATS, "store.create(&Lease"),
    ("agent", "coordination.k8s.io", "leases", "update", BEATS, "store.replace(&lease)"),
    ("agent", "", "configmaps=drover-heartbeat", "list watch", BEATS, "watch::<ConfigMap>"),
    ("agent", "", "configmaps=drover-gateway-ca", "get", REPLICAS, "store.get::<ConfigMap>"),
    ("agent", "discovery.k8s.io", "endpointslices", "list", REPLICAS, "store.list::<EndpointSlice>"),
    ("gateway", "authentication.k8s.io", "tokenreviews", "create", REVIEWS, "self.tokens.create("),
    ("gateway", "authorization.k8s.io", "subjectaccessreviews", "create", REVIEWS, "self.accesses.create("),
    ("gateway", DROVER, "allocations", "get", "crates/drover-gateway/src/api/allocations.rs", "allocations.get_opt("),
    ("gateway", DROVER, "jobversions", "get", "crates/drover-gateway/src/placed.rs", "versions.get_opt("),
    ("gateway", "apiregistration.k8s.io", "apiservices=v1alpha1.subresources.drover.dev", "get", KEEPER, "services.get_opt(API_SERVICE)"),
    ("gateway", "apiregistration.k8s.io", "apiservices=v1alpha1.subresources.drover.dev", "list watch", KEEPER, "watch_object(services, API_SERVICE)"),
    ("gateway", "apiregistration.k8s.io", "apiservices=v1alpha1.subresources.drover.dev", "patch", KEEPER, "services.patch(API_SERVICE"),
    ("gateway", "apiregistration.k8s.io", "apiservices=v1alpha1.subresources.drover.dev", "delete", KEEPER, "services.delete(API_SERVICE"),
    ("gateway", "", "namespaces", "get", KEEPER, "namespaces.get_opt("),
    ("gateway", "", "secrets=drover-gateway-tls", "get", KEEPER, "self.secrets.get_opt(SECRET)"),
    ("gateway", "", "secrets=drover-gateway-tls", "list watch", KEEPER, "watch_object(self.secrets.clone(), SECRET)"),
    ("gateway", "", "secrets=drover-gateway-tls", "update", KEEPER, "self.secrets.replace(SECRET"),
    ("gateway", "", "secrets=drover-identity", "get", KEYS, "self.secrets.get_opt(SECRET)"),
    ("gateway", "", "secrets=drover-identity", "list watch", KEYS, "watch_object(self.secrets.clone(), SECRET)"),
    ("gateway", "", "secrets=drover-identity", "update", KEYS, "self.secrets.replace(SECRET"),
    ("gateway", DROVER, "allocations", "list", KEYS, "self.allocations.list("),
    ("gateway", DROVER, "allocations", "watch", CACHES, "changes::<Allocation>"),
    ("gateway", DROVER, "jobs", "list watch", CACHES, "changes::<Job>"),
    ("gateway", DROVER, "jobversions", "list watch", CACHES, "changes::<JobVersion>"),
    ("gateway", DROVER, "deployments", "list watch", CACHES, "changes::<Deployment>"),
    ("gateway", DROVER, "clientnodes", "list watch", CACHES, "changes::<ClientNode>"),
    ("gateway", DROVER, "csivolumes", "list watch", CACHES, "changes::<CSIVolume>"),
    ("gateway", DROVER, "jobs", "create", WRITING, "store.create::<Job>"),
    ("gateway", DROVER, "jobs", "update", WRITING, "store.replace::<Job>"),
    ("gateway", DROVER, "jobs", "patch", WRITING, "merge::<Job>"),
    ("gateway", DROVER, "jobs", "delete", WRITING, "store.delete::<Job>"),
    ("gateway", DROVER, "jobs/priority", "update", WRITING, "store.replace::<Job>"),
    ("gateway", DROVER, "jobs/csiplugin", "update", WRITING, "store.replace::<Job>"),
    ("gateway", DROVER, "jobs/secrets", "update", WRITING, "store.replace::<Job>"),
    ("gateway", DROVER, "allocations", "patch", WRITING, "merge::<Allocation>"),
    ("gateway", DROVER, "jobversions/status", "patch", WRITING, "merge::<JobVersion>"),
    ("gateway", DROVER, "deployments", "patch", WRITING, "merge::<Deployment>"),
    ("gateway", DROVER, "deployments/promote", "update", WRITING, "merge::<Deployment>"),
    ("gateway", DROVER, "deployments/pause", "update", WRITING, "merge::<Deployment>"),
    ("gateway", DROVER, "deployments/fail", "update", WRITING, "merge::<Deployment>"),
    ("gateway", DROVER, "clientnodes", "patch", WRITING, "merge::<ClientNode>"),
    ("gateway", DROVER, "clientnodes", "delete", WRITING, "store.delete::<ClientNode>"),
    ("gateway", DROVER, "csivolumes", "create", WRITING, "store.create::<CSIVolume>"),
    ("gateway", DROVER, "csivolumes", "update", WRITING, "store.replace::<CSIVolume>"),
    ("gateway", DROVER, "csivolumes", "patch", WRITING, "merge::<CSIVolume>"),
    ("gateway", DROVER, "csivolumes", "delete", WRITING, "store.delete::<CSIVolume>"),
    ("gateway", "", "namespaces", "list watch", CACHES, "changes::<Namespace>"),
    ("gateway", DROVER, "hostvolumes", "list watch", CACHES, "changes::<HostVolume>"),
    ("gateway", "coordination.k8s.io", "leases=drover-controller", "get", CONTROLLERS, "leases.get_opt(LEADER_LEASE)"),
    ("gateway", "", "configmaps=drover-gateway-ca", "get", KEEPER, "self.published.get_opt(PUBLISHED)"),
    ("gateway", "discovery.k8s.io", "endpointslices", "list watch", FLEET, "watcher(slices, selection)"),
    ("gateway", "", "configmaps=drover-gateway-ca", "patch", KEEPER, "self.published.patch(PUBLISHED"),
];

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a file of the tree")
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// What a role's file grants: role, group, resource and verb.
fn granted(role: &str) -> BTreeSet<String> {
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&read(&format!("charts/drover/files/rbac/{role}.yaml"))).expect("YAML");
    let mut found = BTreeSet::new();
    for rule in objects.iter().flat_map(|object| object["rules"].as_array().into_iter().flatten()) {
        let names = texts(&rule["resourceNames"]);
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    let of =
                        if names.is_empty() { resource.clone() } else { format!("{resource}={}", names.join(",")) };
                    found.insert(format!("{role}: {verb} {of} of {group:?}"));
                }
            }
        }
    }
    found
}

/// a right without code, and code without a right, are both named.
#[test]
fn must_survive_x_027_a_role_names_nothing_that_no_code_uses() {
    let mut used = BTreeSet::new();
    for (role, group, resource, verbs, file, words) in USES {
        // However the line is broken.
        let code: String = read(file).split_whitespace().collect();
        let words: String = words.split_whitespace().collect();
        assert!(
            code.contains(&words),
            "{file} does not say `{words}` any more: which code uses {verbs} on {resource} now?"
        );
        used.extend(verbs.split(' ').map(|verb| format!("{role}: {verb} {resource} of {group:?}")));
    }
    let granted: BTreeSet<String> = ["controller", "agent", "gateway"].into_iter().flat_map(granted).collect();
    let unused: Vec<&String> = granted.difference(&used).collect();
    let missing: Vec<&String> = used.difference(&granted).collect();
    assert!(unused.is_empty(), "no code uses these rights; take them out of charts/drover/files/rbac: {unused:#?}");
    assert!(missing.is_empty(), "code uses these rights, and no role grants them: {missing:#?}");
}

/// a cluster lives with what is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_027_daemons_with_their_roles_alone_are_refused_nothing() {
    let cluster = Cluster::start("roles", Settings::default()).await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/drover/files/rbac");
    cluster.kubectl(&["apply", "-f", &folder.display().to_string()]).expect("the roles");
    for (role, user) in [("drover-controller", User::Controller), ("drover-agent", User::Agent)] {
        let user = format!("--user={}", user.name());
        cluster.kubectl(&["create", "clusterrolebinding", role, "--clusterrole", role, &user]).expect("a binding");
        let own = ["create", "rolebinding", role, "--role", role, &user, "-n", "drover-system"];
        cluster.kubectl(&own).expect("a binding");
    }
    let may = |user: User| {
        let args =
            ["auth", "can-i", "create", "leases.coordination.k8s.io", "-n", "drover-system", "--as", user.name()];
        cluster.kubectl(&args).is_ok()
    };
    cluster.eventually("the rights are in force", async || may(User::Controller) && may(User::Agent)).await;
    let mut audit = cluster.plane.audit_log().expect("an audit log");
    let _controller = cluster.controller_by("controller", &cluster.plane.kubeconfig(User::Controller), "");
    let _agent = cluster.agent_by("n-1", &cluster.plane.kubeconfig(User::Agent));
    cluster.namespace("shop").await;
    let mut web = job("web", 1, &json!({ "update": { "minHealthyTime": "0s" } }), "exec sleep 1000");
    cluster.apply("shop", &web);
    cluster.condition("shop", "web", JobConditionType::Ready, "True").await;
    web["spec"]["groups"][0]["tasks"][0]["env"] = json!({ "RELEASE": "2" });
    cluster.apply("shop", &web);
    cluster
        .eventually("the next version runs", async || {
            let job = cluster.jobs("shop").get("web").await.expect("a job");
            job.status.is_some_and(|status| status.version == Some(1))
        })
        .await;
    cluster.condition("shop", "web", JobConditionType::Ready, "True").await;
    cluster.kubectl(&["delete", "djob", "web", "-n", "shop", "--timeout=60s"]).expect("deleted");
    let refused = |log: &str| {
        log.lines().filter(|line| line.to_lowercase().contains("forbidden")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(refused(&cluster.log("controller")), Vec::<String>::new());
    assert_eq!(refused(&cluster.log("n-1")), Vec::<String>::new());
    let names = [User::Controller.name(), User::Agent.name()];
    let events = audit.read_new().expect("the audit log");
    let own: Vec<_> = events.iter().filter(|event| names.contains(&event.user.as_str())).collect();
    assert!(own.len() > 10, "both have written: {}", own.len());
    let refused: Vec<_> = own.iter().filter(|event| event.code == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
}
