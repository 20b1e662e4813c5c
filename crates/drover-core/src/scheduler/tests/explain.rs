//! What is told of a group that found no place: each thing in the way in words, and what would help.

use drover_api::metric::AllocMetric;

use super::*;
use crate::scheduler::explain::explain;

/// What is told when rules left out that many of ten nodes.
fn filtered(rules: &[(&str, i64)]) -> String {
    explain(&AllocMetric { nodes_evaluated: 10, constraint_filtered: counts(rules), ..AllocMetric::default() })
}

/// What is told when something ran out on that many of ten nodes.
fn exhausted(dimensions: &[(&str, i64)]) -> String {
    explain(&AllocMetric { nodes_evaluated: 10, dimension_exhausted: counts(dimensions), ..AllocMetric::default() })
}

#[test]
fn what_a_node_lacks_is_told_with_what_would_bring_it() {
    for (rule, cause, remedy) in [
        (
            "missingDrivers:docker",
            "driver docker is missing or unhealthy",
            "enable the driver there (kubectl get cnode -o wide shows them), or use another",
        ),
        (
            "missingDevices:nvidia/gpu",
            "the devices nvidia/gpu that a task asks for are missing",
            "relax resources.devices of the task, or add such devices",
        ),
        (
            "missingHostVolumes:data[1]",
            "host volume data[1] is missing or cannot be used as asked",
            "create a HostVolume, add the volume to hostVolumes of an agent's configuration, or relax the request",
        ),
        (
            "missingHostVolumes:data has no node yet",
            "host volume data has no node yet",
            "see the HostVolume (kubectl describe hvol) and its node (kubectl get cnode), or relax the request",
        ),
        (
            "missingNetwork:cni/web",
            "network mode cni/web is missing",
            "set network.bridgeSubnet or network.cniConfigDir in an agent's configuration, or use mode host",
        ),
        (
            "missingHostNetwork:public:http",
            "host network public for port http is missing",
            "add it to hostNetworks of an agent's configuration, or remove hostNetwork from the port",
        ),
        (
            "distinctHosts",
            "another allocation of the job is there already (distinct_hosts)",
            "lower the count, add nodes, or remove distinct_hosts",
        ),
        (
            "distinctProperty:${meta.rack}=r1",
            "the limit of distinct_property is reached for ${meta.rack}=r1",
            "lower the count, raise the limit, or add nodes with other values",
        ),
        (
            "${meta.rack} = r1",
            "filtered by ${meta.rack} = r1",
            "relax this rule, or change a node so that it holds: that alone opens up to 4",
        ),
    ] {
        assert_eq!(filtered(&[(rule, 4)]), format!("{cause} on 4 of 10 nodes; {remedy}"), "{rule}");
    }
}

#[test]
fn what_is_wrong_with_a_csi_volume_is_told_with_what_to_do() {
    for (rule, cause, remedy) in [
        ("csiVolumeNotFound:v1", "CSI volume v1 does not exist", "create it (kubectl apply a CSIVolume with id v1)"),
        ("csiPluginMissing:ebs:n-0", "CSI plugin ebs is missing", "install or mend the plugin ebs on a node"),
        ("csiPluginUnhealthy:ebs:n-0", "CSI plugin ebs is unhealthy", "install or mend the plugin ebs on a node"),
        (
            "csiPluginMaxVolumes:ebs:n-0",
            "CSI plugin ebs mounts as many volumes as it can",
            "stop jobs that mount its volumes, or add nodes",
        ),
        (
            "csiTopology",
            "its CSI volume cannot be reached (topology)",
            "add a node where the volume is, or create the volume elsewhere",
        ),
        (
            "csiNoRead:v1",
            "CSI volume v1 cannot be read from now",
            "see the conditions of the CSIVolume (kubectl describe csivol)",
        ),
        (
            "csiNoWrite:v1",
            "CSI volume v1 cannot be written to now",
            "see the conditions of the CSIVolume (kubectl describe csivol)",
        ),
        (
            "csiInUse:v1",
            "CSI volume v1 is in use by another job",
            "stop the job that holds it, or use a volume for several writers",
        ),
        (
            "csiInUseGCd:v1:holder",
            "CSI volume v1 is still claimed by an allocation that is gone",
            "wait for its release (kubectl describe csivol shows it)",
        ),
    ] {
        assert_eq!(filtered(&[(rule, 4)]), format!("{cause} on 4 of 10 nodes; {remedy}"), "{rule}");
    }
}

#[test]
fn what_ran_out_is_told_with_what_would_make_room() {
    for (dimension, shortage, remedy) in [
        ("cpu", "cpu exhausted", "ask for less, stop other jobs, or add nodes"),
        ("memory", "memory exhausted", "ask for less, stop other jobs, or add nodes"),
        ("disk", "disk exhausted", "ask for less, stop other jobs, or add nodes"),
        ("cores", "cores exhausted", "ask for fewer cores, stop other jobs, or add nodes"),
        (
            "maxAllocs",
            "maxAllocs exhausted",
            "stop other allocations, raise maxAllocs of the agents' configuration, or add nodes",
        ),
        (
            "network: reserved port collision http=80",
            "network exhausted (reserved port collision http=80)",
            "free the static port, take a dynamic one, or set ignoreCollision",
        ),
        (
            "network: dynamic port selection failed",
            "network exhausted (dynamic port selection failed)",
            "stop jobs that hold ports, widen dynamicPorts of the agents' configuration, or add nodes",
        ),
        (
            "devices: no devices left",
            "devices exhausted (no devices left)",
            "stop jobs that hold such devices, ask for fewer, or add some",
        ),
    ] {
        assert_eq!(exhausted(&[(dimension, 4)]), format!("{shortage} on 4 of 10 nodes; {remedy}"), "{dimension}");
    }
}

#[test]
fn what_is_the_same_on_several_nodes_is_told_once() {
    assert_eq!(
        filtered(&[("csiPluginMissing:ebs:n-0", 1), ("csiPluginMissing:ebs:n-1", 1), ("csiTopology", 3)]),
        "its CSI volume cannot be reached (topology) on 3 of 10 nodes, CSI plugin ebs is missing on 2 of 10 nodes; \
         add a node where the volume is, or create the volume elsewhere"
    );
}

#[test]
fn six_reasons_are_told_and_the_rest_is_counted() {
    let told = "filtered by a on 9 of 10 nodes, filtered by b on 8 of 10 nodes, filtered by c on 7 of 10 nodes, \
                filtered by d on 6 of 10 nodes, filtered by e on 5 of 10 nodes, filtered by f on 4 of 10 nodes";
    let remedy = "relax this rule, or change a node so that it holds: that alone opens up to 9";
    let rules = [("a", 9), ("b", 8), ("c", 7), ("d", 6), ("e", 5), ("f", 4), ("g", 3), ("h", 2)];
    assert_eq!(filtered(&rules[..6]), format!("{told}; {remedy}"));
    assert_eq!(filtered(&rules[..7]), format!("{told}, 1 further reason; {remedy}"));
    assert_eq!(filtered(&rules), format!("{told}, 2 further reasons; {remedy}"));
}

#[test]
fn where_no_node_is_even_looked_at_it_is_told_where_the_nodes_are() {
    let nowhere = |available: &[(&str, i64)], unavailable: &[(&str, i64)]| {
        explain(&AllocMetric {
            node_pool: "gpu".into(),
            nodes_available: counts(available),
            nodes_unavailable: counts(unavailable),
            ..AllocMetric::default()
        })
    };
    assert_eq!(
        nowhere(&[("dc1", 2), ("dc3", 1)], &[("down", 1)]),
        "no ready node of pool gpu is in the job's datacenters (3 ready in dc1, dc3); add one of these to \
         spec.datacenters, or start an agent in the job's"
    );
    let no_node = "pool gpu has no node; start an agent there, or change spec.nodePool";
    assert_eq!(nowhere(&[], &[]), no_node);
    assert_eq!(
        nowhere(&[], &[("down", 2), ("draining", 1)]),
        "pool gpu has no ready node (2 down, 1 draining); bring one back (kubectl get cnode shows them), or start \
         another agent"
    );
    assert_eq!(
        nowhere(&[], &[("down", 2), ("ineligible", 1)]),
        "pool gpu has no ready node (2 down, 1 ineligible); set spec.eligibility of one to eligible, or start another \
         agent"
    );
}
