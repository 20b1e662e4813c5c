//! The node's settings of the driver, and what of a task they permit.

use std::path::PathBuf;
use std::time::Duration;

use drover_core::task::common_settings::NamespaceMode;
use drover_core::task::container_config::ContainerConfig;

use crate::config::Enabled;
use crate::drivers::driver::{NetworkPlace, StartError};

/// The node's settings of the driver.
#[derive(Clone, Debug)]
pub(crate) struct ContainerSettings {
    /// Whether tasks may have it.
    pub(crate) enabled: Enabled,
    /// containerd's socket.
    pub(crate) address: PathBuf,
    /// Its snapshotter.
    pub(crate) snapshotter: String,
    /// Its runtime, and those that tasks may ask for.
    pub(crate) runtimes: Vec<String>,
    /// The program that the runtime runs.
    pub(crate) runc: Option<PathBuf>,
    /// Which rights of the node tasks may ask for.
    pub(crate) rights: ContainerRights,
    /// The most processes and threads of a task that names no number.
    pub(crate) pids_limit: u64,
    /// How long an image is kept that no task uses.
    pub(crate) image_delay: Duration,
    /// A folder with a `hosts.toml` for each registry.
    pub(crate) hosts_dir: Option<PathBuf>,
    /// The name of the supervisor's control groups.
    pub(crate) cgroup_base: String,
    /// The folder of the orders of containers that are being made.
    pub(crate) orders: PathBuf,
    /// MHz of all cores together, and their number.
    pub(crate) cpu: (u64, u64),
    /// Why there can be no containers; none: there can.
    pub(crate) unfit: Option<String>,
}

/// What of the node tasks may ask for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerRights {
    /// All of root's.
    pub(crate) privileged: bool,
    /// Its network, processes and shared memory.
    pub(crate) host_namespaces: bool,
    /// Capabilities.
    pub(crate) caps: Vec<String>,
    /// Its directories.
    pub(crate) volumes: bool,
}

impl ContainerSettings {
    /// Refuses what the task wants of the node and the node does not give.
    ///
    /// # Errors
    /// The setting of the task, and that of the node which would permit it.
    pub(super) fn check(&self, config: &ContainerConfig, network: &NetworkPlace) -> Result<(), StartError> {
        let refused = |what: &str, setting: &str| {
            Err(StartError::Invalid(format!(
                "{what}, which this node gives to no task: leave it out, or let the administrator of the node set \
                 drivers.containerd.{setting} in the agent's configuration"
            )))
        };
        if config.privileged && !self.rights.privileged {
            return refused("config.privileged is all that root may do on the node", "allowPrivileged");
        }
        for (is_asked, what) in [
            (config.is_in_host_network(), "config.networkMode host is the node's network"),
            (config.pid_mode == NamespaceMode::Host, "config.pidMode host is the node's list of processes"),
            (config.ipc_mode == NamespaceMode::Host, "config.ipcMode host is the node's shared memory"),
        ] {
            if is_asked && !self.rights.host_namespaces {
                return refused(what, "allowHostNamespaces");
            }
        }
        let mounts = config.host_mounts().map_err(StartError::Invalid)?;
        if let (Some(mount), false) = (mounts.first(), self.rights.volumes) {
            return refused(&format!("{} is a path of the node ({})", mount.field, mount.source), "volumes");
        }
        if let Some(runtime) = config.runtime.as_ref().filter(|runtime| !self.runtimes.contains(runtime)) {
            return refused(&format!("config.runtime {runtime}"), "allowRuntimes");
        }
        check_network(config, network)
    }
}

fn check_network(config: &ContainerConfig, network: &NetworkPlace) -> Result<(), StartError> {
    let refused = |reason: &str| Err(StartError::Invalid(reason.to_owned()));
    match network {
        NetworkPlace::Own | NetworkPlace::At(_) if config.is_in_host_network() => {
            refused("config.networkMode host is not for a group with a network of its own: leave one of both out")
        }
        NetworkPlace::Host | NetworkPlace::Own if !config.ports.is_empty() => refused(
            "config.ports leads ports into a container with a network of its own: leave it out; in the node's network \
             the task listens on the ports of the group itself",
        ),
        NetworkPlace::Host | NetworkPlace::Own | NetworkPlace::At(_) => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::networks::TaskNetwork;

    /// A node that permits nothing.
    pub(in crate::drivers::containerd) fn settings() -> ContainerSettings {
        ContainerSettings {
            enabled: Enabled::Auto,
            address: "/run/containerd/containerd.sock".into(),
            snapshotter: "overlayfs".into(),
            runtimes: vec!["io.containerd.runc.v2".into()],
            runc: None,
            rights: ContainerRights::default(),
            pids_limit: 4096,
            image_delay: Duration::from_mins(3),
            hosts_dir: None,
            cgroup_base: "drover.t".into(),
            orders: "/none".into(),
            cpu: (4000, 4),
            unfit: None,
        }
    }

    fn config(more: &Value) -> ContainerConfig {
        let mut config = json!({ "image": "web" });
        config.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        ContainerConfig::read("containerd", config.as_object().expect("an object")).expect("settings")
    }

    #[test]
    fn b_019_what_the_node_does_not_give_is_refused_with_the_setting_that_gives_it() {
        let own = NetworkPlace::Own;
        for (asked, network, setting) in [
            (json!({ "privileged": true }), &own, "drivers.containerd.allowPrivileged"),
            (json!({ "pidMode": "host" }), &own, "drivers.containerd.allowHostNamespaces"),
            (json!({ "ipcMode": "host" }), &own, "drivers.containerd.allowHostNamespaces"),
            (json!({ "networkMode": "host" }), &NetworkPlace::Host, "drivers.containerd.allowHostNamespaces"),
            (json!({ "volumes": ["/etc:/x"] }), &own, "drivers.containerd.volumes"),
            (
                json!({ "mounts": [{ "type": "bind", "source": "/etc", "target": "/x" }] }),
                &own,
                "drivers.containerd.volumes",
            ),
            (json!({ "runtime": "io.containerd.runsc.v1" }), &own, "drivers.containerd.allowRuntimes"),
        ] {
            let error = settings().check(&config(&asked), network).expect_err("refused").to_string();
            assert!(error.contains(setting), "{asked}: {error}");
            let mut generous = settings();
            generous.rights =
                ContainerRights { privileged: true, host_namespaces: true, caps: vec!["all".into()], volumes: true };
            generous.runtimes.push("io.containerd.runsc.v1".into());
            generous.check(&config(&asked), network).expect("permitted");
        }
    }

    #[test]
    fn a_network_that_there_is_not_is_refused_with_what_to_write() {
        let mut generous = settings();
        generous.rights.host_namespaces = true;
        let at = NetworkPlace::At(TaskNetwork { path: "/run/netns/a".into(), ..TaskNetwork::default() });
        for (asked, network, wanted) in [
            (json!({ "networkMode": "host" }), &NetworkPlace::Own, "leave one of both out"),
            (json!({ "networkMode": "host" }), &at, "leave one of both out"),
            (json!({ "ports": ["http"] }), &NetworkPlace::Own, "config.ports"),
        ] {
            let error = generous.check(&config(&asked), network).expect_err("refused").to_string();
            assert!(error.contains(wanted), "{asked}: {error}");
        }
        generous.check(&config(&json!({ "ports": ["http"] })), &at).expect("the group maps them");
        generous.check(&config(&json!({})), &NetworkPlace::Own).expect("a network of its own");
    }
}
