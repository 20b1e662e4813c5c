//! The configuration files of a node's programs. The folder's layout is [`NodePlan`]'s.

use serde_json::{Value, json};

use super::plan::{NodePlan, ProxyPlan};

/// The address of the Service `kube-dns`.
pub(super) const DNS_SERVICE: &str = "10.96.0.10";
/// The image that holds a pod open.
pub(super) const PAUSE_IMAGE: &str = "drover.dev/pause:1";

/// containerd's: everything in the node's own folder, layers copied (no file system of the machine is asked for more),
/// no registry.
pub(super) fn containerd(plan: &NodePlan) -> String {
    let (data, programs) = (plan.data.display(), plan.programs.display());
    format!(
        r#"version = 3
root = "{data}/containerd/root"
state = "{data}/containerd/state"

[grpc]
address = "{socket}"

[plugins.'io.containerd.cri.v1.images']
snapshotter = "native"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
disable_apparmor = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{programs}"]
conf_dir = "{data}/cni"

[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
snapshotter = "native"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{programs}/runc"
SystemdCgroup = false
"#,
        socket = plan.socket().display(),
    )
}

/// Pods on wires of their own; the node routes, and nothing is translated.
pub(super) fn network(plan: &NodePlan) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "drover",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": plan.pods() }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    })
}

/// The kubelet's: a node that is never short of anything, on a machine that keeps some rights for itself.
pub(super) fn kubelet(plan: &NodePlan) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", plan.socket().display()),
        // The network that leads here is this test's alone.
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "address": "0.0.0.0",
        "healthzBindAddress": "127.0.0.1",
        "failSwapOn": false,
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "featureGates": { "KubeletInUserNamespace": true },
        "localStorageCapacityIsolation": false,
        "enforceNodeAllocatable": [],
        "evictionHard": {
            "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "makeIPTablesUtilChains": false,
        "nodeStatusUpdateFrequency": "5s",
        "nodeLeaseDurationSeconds": 20,
        // Tests kill a pod's container often, and do not come to see how long the kubelet then waits.
        "crashLoopBackOff": { "maxContainerRestartPeriod": "1s" },
        "shutdownGracePeriod": "0s",
        "enableServer": true,
        "registerNode": true,
        "maxPods": 60,
        "clusterDomain": "cluster.local",
        "clusterDNS": plan.proxy.iter().map(|_| DNS_SERVICE).collect::<Vec<_>>(),
    })
}

/// That of `kube-proxy`, which has nothing of the machine's changed: its sysctls are not the node's alone.
pub(super) fn proxy(plan: &NodePlan, proxy: &ProxyPlan) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": { "kubeconfig": proxy.kubeconfig },
        "hostnameOverride": plan.name,
        "clusterCIDR": "10.244.0.0/16",
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "conntrack": { "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
    })
}
