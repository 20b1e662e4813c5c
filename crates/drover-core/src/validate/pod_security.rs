//! What a namespace refuses whose label `pod-security.kubernetes.io/enforce` asks for Kubernetes' Pod Security Standard
//! `baseline` or `restricted` (`spec/containers.md`, 5): whatever would give a task something of its node, although the
//! node's own settings let it. Settings that only the node could read (`${…}`) count as what they may become.

use std::collections::BTreeMap;

use drover_api::JobSpec;
use drover_api::group::Group;
use drover_api::network::NetworkMode;
use drover_api::task::Task;
use serde_json::{Map, Value};

use super::found::Violation;
use crate::task::container_config::ContainerConfig;
use crate::task::driver_config::{ExecConfig, RawExecConfig, own_names};

/// The label of a namespace that names its standard.
const LABEL: &str = "pod-security.kubernetes.io/enforce";

/// A standard that refuses something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodSecurity {
    /// `baseline`.
    Baseline,
    /// `restricted`, and any word that is none of the three: Kubernetes takes such for it.
    Restricted,
}

impl PodSecurity {
    /// The standard of a namespace with these labels; none where nothing is refused.
    pub fn of_labels(labels: &BTreeMap<String, String>) -> Option<Self> {
        match labels.get(LABEL)?.as_str() {
            "privileged" | "" => None,
            "baseline" => Some(Self::Baseline),
            _ => Some(Self::Restricted),
        }
    }

    /// What of a job the standard refuses.
    pub fn violations(self, spec: &JobSpec) -> Vec<Violation> {
        let mut found = Vec::new();
        for (n, group) in spec.groups.iter().enumerate() {
            for (m, task) in group.tasks.iter().enumerate() {
                let at = format!("spec.groups[{n}].tasks[{m}]");
                let refused = refused_of_task(task).into_iter().map(|(field, what)| (format!("{at}.{field}"), what));
                found.extend(refused);
            }
            let is_sandboxed = group.tasks.iter().any(|task| task.driver == ExecConfig::DRIVER);
            if is_sandboxed && is_in_host_network(group) {
                found.push((format!("spec.groups[{n}].networks"), "the node's network with driver exec"));
            }
        }
        let name = match self {
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        };
        let violation = |(field, what): (String, &str)| {
            let message = format!(
                "{what} is refused by the namespace, whose label {LABEL} is {name}; do without, or run the job in \
                 another namespace"
            );
            Violation { code: "PodSecurity", field, message }
        };
        found.into_iter().map(violation).collect()
    }
}

/// A group without a network is in the node's.
fn is_in_host_network(group: &Group) -> bool {
    group.networks.iter().all(|network| network.mode == NetworkMode::Host)
}

type Refused = Vec<(String, &'static str)>;

fn refused_of_task(task: &Task) -> Refused {
    let driver = task.driver.as_str();
    let of_config = match driver {
        RawExecConfig::DRIVER => return vec![("driver".to_owned(), "driver raw_exec, a process of the node,")],
        ExecConfig::DRIVER => of_sandbox,
        ContainerConfig::DRIVER | ContainerConfig::DOCKER => of_container,
        _ => return Vec::new(),
    };
    // What is wrong with the names is told by their own check.
    own_names(driver, &task.config).map_or_else(|_| Vec::new(), |config| of_config(&config))
}

fn of_sandbox(config: &Map<String, Value>) -> Refused {
    let mut refused = of_namespaces(config);
    refused.extend(unless_empty(config, "capAdd", "a capability beyond the usual ones"));
    refused.extend(unless_empty(config, "rootfs", "a directory of the node as root"));
    refused
}

fn of_container(config: &Map<String, Value>) -> Refused {
    let mut refused = of_namespaces(config);
    if config.get("privileged").is_some_and(|value| *value != Value::Bool(false)) {
        refused.push(("config.privileged".to_owned(), "a privileged container"));
    }
    for (key, what) in [
        ("capAdd", "a capability beyond the usual ones"),
        ("volumes", "a directory of the node"),
        ("devices", "a device of the node"),
        ("networkMode", "the network of the node"),
    ] {
        refused.extend(unless_empty(config, key, what));
    }
    let mounts = config.get("mounts");
    let listed = mounts.and_then(Value::as_array);
    let is_memory = |mount: &Value| mount.get("type").and_then(Value::as_str) == Some("tmpfs");
    let wrong = listed.into_iter().flatten().enumerate().filter(|(_, mount)| !is_memory(mount));
    refused.extend(wrong.map(|(n, _)| (format!("config.mounts[{n}]"), "a directory of the node")));
    if listed.is_none() {
        refused.extend(unless_empty(config, "mounts", "a directory of the node"));
    }
    refused
}

/// Processes and shared memory of the node.
fn of_namespaces(config: &Map<String, Value>) -> Refused {
    let modes = [("pidMode", "the processes of the node"), ("ipcMode", "the shared memory of the node")];
    let is_own = |value: &Value| value.as_str() == Some("private");
    let wrong = modes.into_iter().filter(|(key, _)| config.get(*key).is_some_and(|value| !is_own(value)));
    wrong.map(|(key, what)| (format!("config.{key}"), what)).collect()
}

fn unless_empty(config: &Map<String, Value>, key: &str, what: &'static str) -> Option<(String, &'static str)> {
    let is_empty = match config.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::Array(values)) => values.is_empty(),
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    };
    (!is_empty).then(|| (format!("config.{key}"), what))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(value: &str) -> BTreeMap<String, String> {
        [(LABEL.to_owned(), value.to_owned())].into()
    }

    fn fields(mode: &str, driver: &str, config: &Value) -> Vec<String> {
        let spec = json!({ "groups": [{ "name": "g", "networks": [{ "mode": mode }],
            "tasks": [{ "name": "t", "driver": driver, "config": config }] }] });
        let spec = serde_json::from_value(spec).expect("a job");
        let of = |standard: PodSecurity| {
            let found = standard.violations(&spec);
            assert!(found.iter().all(|violation| violation.code == "PodSecurity"));
            found.into_iter().map(|violation| violation.field).collect::<Vec<_>>()
        };
        assert_eq!(of(PodSecurity::Baseline), of(PodSecurity::Restricted));
        of(PodSecurity::Baseline)
    }

    #[test]
    fn a_label_names_the_standard_and_an_unknown_word_is_the_strictest() {
        assert_eq!(PodSecurity::of_labels(&BTreeMap::new()), None);
        for (value, expected) in [
            ("privileged", None),
            ("baseline", Some(PodSecurity::Baseline)),
            ("restricted", Some(PodSecurity::Restricted)),
            ("basline", Some(PodSecurity::Restricted)),
        ] {
            assert_eq!(PodSecurity::of_labels(&labels(value)), expected, "{value}");
        }
    }

    #[test]
    fn what_gives_a_task_something_of_its_node_is_refused_by_field() {
        let task = "spec.groups[0].tasks[0]";
        let of_config = |key: &str| vec![format!("{task}.config.{key}")];
        for (config, key) in [
            (json!({ "privileged": true }), "privileged"),
            (json!({ "privileged": "${meta.p}" }), "privileged"),
            (json!({ "capAdd": ["net_raw"] }), "capAdd"),
            (json!({ "volumes": ["/etc:/host"] }), "volumes"),
            (json!({ "devices": [{ "hostPath": "/dev/sda" }] }), "devices"),
            (json!({ "networkMode": "host" }), "networkMode"),
            (json!({ "networkMode": "${meta.n}" }), "networkMode"),
            (json!({ "pidMode": "host" }), "pidMode"),
            (json!({ "ipcMode": "${meta.i}" }), "ipcMode"),
            (json!({ "mounts": [{ "type": "tmpfs" }, { "type": "bind" }] }), "mounts[1]"),
            (json!({ "mounts": [{ "type": "${meta.t}" }] }), "mounts[0]"),
            (json!({ "mounts": "${meta.m}" }), "mounts"),
        ] {
            assert_eq!(fields("none", "containerd", &config), of_config(key), "{config}");
        }
        assert_eq!(fields("none", "docker", &json!({ "cap_add": ["net_raw"] })), of_config("capAdd"));
        assert_eq!(fields("none", "docker", &json!({ "mount": [{ "type": "bind" }] })), of_config("mounts[0]"));
        for (config, key) in [
            (json!({ "pidMode": "host" }), "pidMode"),
            (json!({ "capAdd": ["mknod"] }), "capAdd"),
            (json!({ "pid_mode": "host" }), "pidMode"),
            (json!({ "cap_add": ["mknod"] }), "capAdd"),
            (json!({ "rootfs": "/" }), "rootfs"),
        ] {
            assert_eq!(fields("none", "exec", &config), of_config(key), "{config}");
        }
        assert_eq!(fields("none", "raw_exec", &json!({})), [format!("{task}.driver")]);
        assert_eq!(fields("host", "exec", &json!({})), ["spec.groups[0].networks"]);
    }

    #[test]
    fn what_a_task_has_of_its_own_is_not() {
        let own = json!({ "privileged": false, "capAdd": [], "capDrop": ["all"], "volumes": [], "pidMode": "private",
            "mounts": [{ "type": "tmpfs", "target": "/tmp" }] });
        for mode in ["host", "none", "bridge"] {
            assert_eq!(fields(mode, "containerd", &own), [""; 0], "{mode}");
        }
        assert_eq!(fields("bridge", "exec", &json!({ "capDrop": ["all"] })), [""; 0]);
        assert_eq!(fields("host", "mock", &json!({})), [""; 0]);
    }
}
