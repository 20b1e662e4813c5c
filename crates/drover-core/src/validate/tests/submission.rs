//! What this version does not act on is refused by name when it is submitted, and runs on when it is stored.

use drover_api::JobSpec;
use serde_json::{Value, json};

use super::super::*;
use super::spec;
use crate::definition::Definition;

/// What is wrong with submitting this spec.
fn refused(changes: &[(&str, Value)]) -> Vec<String> {
    let typed: JobSpec = serde_json::from_value(spec(changes)).unwrap();
    super::super::changes(None, &typed).iter().map(ToString::to_string).collect()
}

#[test]
fn what_an_own_network_has_is_for_the_modes_that_have_one() {
    for (networks, wanted) in [
        (json!([{ "mode": "bridge", "dns": { "servers": ["10.0.0.2"] }, "hostname": "web" }]), &[][..]),
        (json!([{ "mode": "cni", "cni": { "name": "a", "args": { "b": "c" } }, "hostname": "web" }]), &[]),
        (json!([{ "dns": {} }]), &["spec.groups[0].networks[0].dns: is for modes bridge and cni, not for host"]),
        (
            json!([{ "mode": "none", "hostname": "web" }]),
            &["spec.groups[0].networks[0].hostname: is for modes bridge and cni, not for none"],
        ),
        (
            json!([{ "mode": "bridge" }, { "mode": "bridge", "hostname": "web" }]),
            &["spec.groups[0].networks[1]: is for the group's first network"],
        ),
    ] {
        let found = refused(&[("groups.0.networks", networks.clone())]);
        let is_as_wanted =
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(it, wanted)| it.contains(wanted));
        assert!(is_as_wanted, "{networks}: {found:?}");
    }
}

const TASK: &str = "groups.0.tasks.0";

#[test]
fn what_no_code_acts_on_is_refused_with_what_to_do_instead() {
    let group = |field: &str| format!("groups.0.{field}");
    let task = |field: &str| format!("{TASK}.{field}");
    for (path, value, field, instead) in [
        ("region".to_owned(), json!("eu"), "spec.region", "choose nodes by datacenters, nodePool or constraints"),
        ("update.stagger".to_owned(), json!("30s"), "spec.update.stagger", "maxParallel and minHealthyTime"),
        (group("update.stagger"), json!("30s"), "spec.groups[0].update.stagger", "maxParallel and minHealthyTime"),
        (
            task("actions"),
            json!([{ "name": "a", "command": "b" }]),
            "spec.groups[0].tasks[0].actions",
            "drover alloc exec",
        ),
        (task("resources.numa.affinity"), json!("prefer"), "spec.groups[0].tasks[0].resources.numa", "any memory bank"),
        (
            task("csiPlugin"),
            json!({ "id": "p", "type": "node", "mountDir": "/csi" }),
            "spec.groups[0].tasks[0].csiPlugin.mountDir",
            "CSI_ENDPOINT",
        ),
        (
            task("csiPlugin"),
            json!({ "id": "p", "type": "node", "stagePublishBaseDir": "/a" }),
            "spec.groups[0].tasks[0].csiPlugin.stagePublishBaseDir",
            "the node's own",
        ),
    ] {
        let found = refused(&[(path.as_str(), value.clone())]);
        let [one] = found.as_slice() else { panic!("{path} {value}: {found:?}") };
        let begins = format!("{field}: is not acted on by this version: ");
        assert!(one.starts_with(&begins) && one.contains(instead) && one.ends_with("(NotSupportedYet)"), "{one}");
        let typed: JobSpec = serde_json::from_value(spec(&[(path.as_str(), value)])).unwrap();
        assert_eq!(violations(&Definition::new(&typed, "j")), [], "{path}: a stored job runs on");
    }
}

/// A group's networks with one port, and a service of it with these fields.
fn serving(fields: &Value) -> Vec<(&'static str, Value)> {
    let mut service = json!({ "name": "web", "portLabel": "http" });
    for (field, value) in fields.as_object().into_iter().flatten() {
        service[field] = value.clone();
    }
    let networks = json!([{ "ports": [{ "label": "http" }, { "label": "admin", "static": 9000 }] }]);
    vec![("groups.0.networks", networks), ("groups.0.services", json!([service]))]
}

#[test]
fn what_a_service_asks_for_and_does_not_get_is_refused_by_name() {
    let check = |field: &str, value: Value| {
        let mut check = json!({ "name": "c", "type": "tcp", "interval": "1s", "timeout": "1s" });
        check[field] = value;
        json!({ "checks": [check] })
    };
    let script = |field: &str, value: Value| {
        let mut check = json!({ "name": "c", "type": "script", "interval": "1s", "timeout": "1s", "command": "/bin/true", "task": "t" });
        check[field] = value;
        json!({ "checks": [check] })
    };
    for (fields, field, says) in [
        (json!({ "address": "10.0.0.9" }), "address", "not acted on"),
        (json!({ "addressMode": "driver" }), "addressMode", "the group has none"),
        (json!({ "addressMode": "alloc_ipv6" }), "addressMode", "the group has none"),
        (json!({ "meta": { "a": "b" } }), "meta", "not acted on"),
        (check("addressMode", json!("alloc")), "checks[0].addressMode", "the group has none"),
        (
            check("checkRestart", json!({ "limit": 1, "ignoreWarnings": true })),
            "checks[0].checkRestart.ignoreWarnings",
            "does nothing on a check of type tcp, but of script",
        ),
        (check("command", json!("/bin/true")), "checks[0].command", "does nothing on a check of type tcp"),
        (check("args", json!(["a"])), "checks[0].args", "does nothing on a check of type tcp"),
        (check("task", json!("t")), "checks[0].task", "does nothing on a check of type tcp"),
        (check("onUpdate", json!("ignore_warnings")), "checks[0].onUpdate", "does nothing on a check of type tcp"),
        (check("grpcService", json!("a.B")), "checks[0].grpcService", "does nothing on a check of type tcp"),
        (check("grpcUseTLS", json!(true)), "checks[0].grpcUseTLS", "does nothing on a check of type tcp"),
        (script("path", json!("/")), "checks[0].path", "does nothing on a check of type script, but of http"),
        (script("method", json!("GET")), "checks[0].method", "does nothing on a check of type script"),
        (script("header", json!({ "a": ["b"] })), "checks[0].header", "does nothing on a check of type script"),
        (script("body", json!("a")), "checks[0].body", "does nothing on a check of type script"),
        (script("protocol", json!("http")), "checks[0].protocol", "does nothing on a check of type script"),
        (script("tlsSkipVerify", json!(true)), "checks[0].tlsSkipVerify", "does nothing on a check of type script"),
        (script("portLabel", json!("http")), "checks[0].portLabel", "does nothing on a check of type script"),
        (script("addressMode", json!("host")), "checks[0].addressMode", "does nothing on a check of type script"),
        (script("task", json!("")), "checks[0].task", "name the task that it runs in"),
        (script("task", json!("gone")), "checks[0].task", "gone is no task of the group"),
        (script("command", json!("")), "checks[0].command", "is missing on a script check"),
        (json!({ "name": "9lives" }), "name", "begin it with a letter"),
        (json!({ "name": "${attr.kernel.name}-web" }), "name", "refers to the node"),
        (json!({ "portLabel": "other" }), "portLabel", "other is no port of the group"),
        (json!({ "portLabel": "" }), "portLabel", "it is no port of the group"),
        (json!({ "portLabel": "10250" }), "portLabel", "10250 is no port of the group"),
        (check("portLabel", json!("10250")), "checks[0].portLabel", "10250 is no port of the group"),
        (json!({ "task": "none" }), "task", "none is no task of the group"),
    ] {
        let found = refused(&serving(&fields));
        let begins = format!("spec.groups[0].services[0].{field}: ");
        assert!(found.len() == 1 && found[0].starts_with(&begins) && found[0].contains(says), "{fields}: {found:?}");
    }
    for fields in [
        json!({}),
        json!({ "addressMode": "host", "name": "${NOMAD_JOB_NAME}-web", "task": "t", "portLabel": "9000", "provider": "kubernetes" }),
        check("addressMode", json!("auto")),
        script("onUpdate", json!("ignore_warnings")),
        script("checkRestart", json!({ "limit": 1, "ignoreWarnings": true })),
        json!({ "task": "t", "checks": script("task", json!(""))["checks"] }),
        check("type", json!("grpc")),
    ] {
        assert_eq!(refused(&serving(&fields)), [""; 0], "{fields}");
    }
    let own = |fields: &Value| {
        let mut changes = serving(fields);
        changes[0].1[0]["mode"] = json!("bridge");
        refused(&changes)
    };
    for fields in [
        json!({ "addressMode": "alloc" }),
        json!({ "addressMode": "driver", "portLabel": "8080" }),
        check("addressMode", json!("alloc_ipv6")),
    ] {
        assert_eq!(own(&fields), [""; 0], "{fields}");
    }
    let found = own(&check("addressMode", json!("driver")));
    assert!(found.len() == 1 && found[0].contains("checks[0].addressMode: driver is for services"), "{found:?}");
    for port in ["0", "65536", "other"] {
        assert_eq!(own(&json!({ "addressMode": "alloc", "portLabel": port })).len(), 1, "{port}");
    }
}

#[test]
fn two_ports_of_one_service_have_two_numbers() {
    let networks = json!([{ "ports": [{ "label": "http" }, { "label": "admin" }] }]);
    let twice = |kubernetes: Value| {
        let services = json!([{ "name": "web", "portLabel": "http" }, { "name": "web", "portLabel": "admin", "kubernetes": kubernetes }]);
        refused(&[("groups.0.networks", networks.clone()), ("groups.0.services", services)])
    };
    assert_eq!(twice(json!({ "port": 81 })), [""; 0]);
    let found = twice(json!({}));
    assert!(
        found[0].starts_with("spec.groups[0].services[1].kubernetes.port: 80 is also the port of web"),
        "{found:?}"
    );
}

#[test]
fn what_says_nothing_else_than_the_default_is_accepted() {
    for (path, value) in [
        ("region", json!("global")),
        ("groups.0.services", json!([])),
        ("groups.0.scaling.enabled", json!(false)),
        ("groups.0.scaling.policy", json!({ "cooldown": "1m" })),
        ("groups.0.restart.renderTemplates", json!(true)),
        ("groups.0.networks", json!([{ "mode": "cni", "cni": { "name": "mesh" } }])),
        ("groups.0.networks", json!([{ "mode": "none" }])),
        ("groups.0.tasks.0.resources.numa.affinity", json!("none")),
    ] {
        assert_eq!(refused(&[(path, value)]), [""; 0], "{path}");
    }
}

#[test]
fn what_can_never_be_met_is_refused() {
    let none = json!([{ "mode": "none" }]);
    for (changes, wanted) in [
        (
            vec![
                ("groups.0.networks", none.clone()),
                ("groups.0.tasks.0.driver", json!("raw_exec")),
                ("groups.0.tasks.0.config.command", json!("a")),
            ],
            "spec.groups[0].networks[0].mode: none does not hold for task t with driver raw_exec, which is in the network of its node; take driver exec, or mode host (NetworkRawExec)",
        ),
        (
            vec![("groups.0.networks", json!([{}, { "mode": "none" }]))],
            "spec.groups[0].networks[1].mode: none is another one than the group's first network has, and its tasks share one; put the ports into one network (NetworkModes)",
        ),
        (
            vec![("update.maxParallel", json!(0)), ("groups.0.update.canary", json!(1))],
            "spec.groups[0].update.canary: needs a deployment, and with maxParallel 0 there is none; set maxParallel to at least 1, or canary to 0 (CanaryNoDeployment)",
        ),
        (
            vec![(
                "spreads",
                json!([{ "attribute": "${meta.rack}", "targets": [{ "value": "a" }, { "value": "b", "percent": 0 }] }]),
            )],
            "spec.spreads[0].targets: are all 0 percent, which asks for nothing; give one of them a share, or leave targets out to spread evenly (SpreadTarget)",
        ),
        (
            vec![("groups.0.tasks.0.driver", json!("podman"))],
            "spec.groups[0].tasks[0].driver: podman is no driver of this version; take containerd (or docker, which is the same) for an image, else exec (DriverUnknown)",
        ),
        (
            vec![("groups.0.tasks.0.config", json!({ "runfor": "1s" }))],
            "spec.groups[0].tasks[0].config: is refused by its driver: config.runfor is no setting of driver mock; take one of startError, startErrorRecoverable, startBlockFor, runFor, exitCode, exitSignal, exitErrMsg, killAfter, signalError, failFirst, healthyAfter, unhealthyOnNodes, failOnVersions (DriverConfig)",
        ),
        (
            vec![("groups.0.tasks.0.env", json!({ "": "1" }))],
            "spec.groups[0].tasks[0].env: has an empty name; give it one, or remove it (EnvName)",
        ),
        (
            vec![("groups.0.tasks.0.env", json!({ "A=B": "1" }))],
            "spec.groups[0].tasks[0].env: has the name \"A=B\", which contains = or NUL; correct it (EnvName)",
        ),
        (
            vec![("groups.0.tasks.0.env", json!({ "A\0": "1" }))],
            "spec.groups[0].tasks[0].env: has the name \"A\\0\", which contains = or NUL; correct it (EnvName)",
        ),
    ] {
        assert_eq!(refused(&changes), [wanted]);
    }
}

/// More canaries than the count are met: they are as many as it (S-218). A count of 0 is raised when it is scaled.
#[test]
fn canaries_above_the_count_are_accepted() {
    for (count, canary) in [(3, 7), (0, 1)] {
        let changes = [("groups.0.count", json!(count)), ("update.canary", json!(canary))];
        assert_eq!(refused(&changes), [""; 0], "{canary} of {count}");
    }
}

#[test]
fn s_206_two_spreads_of_one_attribute_are_refused_and_both_are_named() {
    let twice =
        json!([{ "attribute": "${meta.rack}" }, { "attribute": "${meta.row}" }, { "attribute": "${meta.rack}" }]);
    assert_eq!(
        refused(&[("spreads", twice.clone())]),
        [
            "spec.spreads[2].attribute: ${meta.rack} is also the attribute of spec.spreads[0]; keep one of them, with all its targets (SpreadDuplicate)"
        ]
    );
    assert_eq!(
        refused(&[("groups.0.spreads", twice)]),
        [
            "spec.groups[0].spreads[2].attribute: ${meta.rack} is also the attribute of spec.groups[0].spreads[0]; keep one of them, with all its targets (SpreadDuplicate)"
        ]
    );
    let one = json!([{ "attribute": "${meta.rack}" }]);
    assert_eq!(refused(&[("spreads", one.clone()), ("groups.0.spreads", one)]), [""; 0], "one on each level");
}

#[test]
fn an_artifact_that_can_never_be_fetched_is_refused_with_the_field() {
    let of = |artifact: Value| refused(&[("groups.0.tasks.0.artifacts", json!([artifact]))]);
    for (artifact, says) in [
        (json!({ "getterSource": "git::ssh://git@a/b.git" }), "asks for git by ssh"),
        (
            json!({ "getterSource": "https://a/b", "getterOptions": { "checksum": "sha256:1" } }),
            "getterOptions.checksum",
        ),
        (json!({ "getterSource": "https://a/b", "relativeDest": "secrets/b" }), "fetch into local/"),
        (json!({ "getterSource": "https://a/b", "getterMode": "file" }), "needs the file's name in relativeDest"),
    ] {
        let found = of(artifact);
        let begins = "spec.groups[0].tasks[0].artifacts[0]";
        assert!(found.len() == 1 && found[0].starts_with(begins) && found[0].contains(says), "{found:?}");
    }
    for artifact in [
        json!({ "getterSource": "https://a/b.tar.gz", "relativeDest": "local/b", "chown": true }),
        // What it is, its node knows.
        json!({ "getterSource": "${meta.store}/b", "relativeDest": "${NOMAD_ALLOC_DIR}/b" }),
    ] {
        assert_eq!(of(artifact), [""; 0]);
    }
}
