//! The agent's configuration file.
//!
//! Input: YAML. Output: a checked [`AgentConfig`]. Unknown keys, zero durations and relative folders are refused, each
//! with its field and the remedy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_api::GoDuration;
use drover_core::lifecycle::GarbageLimits;
use drover_core::service::Cidr;
use drover_daemon::config::ConfigError;
use serde::Deserialize;

use crate::networks::NetworkConfig;

/// Everything the agent is told at its start.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentConfig {
    /// The name of the ClientNode; default the host's name.
    #[serde(default)]
    pub node_name: Option<String>,
    /// drover's own namespace, which holds the Leases and the heartbeat's `ConfigMap`.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// The folder of the state file, the supervisor and its binary.
    pub state_dir: PathBuf,
    /// The folder of the allocations' directories.
    pub alloc_dir: PathBuf,
    /// The node's datacenter.
    #[serde(default = "default_datacenter")]
    pub datacenter: String,
    /// The node's pool.
    #[serde(default = "default_pool")]
    pub node_pool: String,
    /// The node's class.
    #[serde(default)]
    pub node_class: String,
    /// Static node metadata.
    #[serde(default)]
    pub meta: BTreeMap<String, String>,
    /// The host address of the node's ports; default: the address of the default route.
    #[serde(default)]
    pub address: Option<String>,
    /// Which drivers may run and how.
    #[serde(default)]
    pub drivers: DriversConfig,
    /// Variables of the agent's own environment that tasks get; `*` matches any text. None that is known to hold a
    /// secret reaches a task, whatever stands here.
    #[serde(default = "default_host_envvars")]
    pub host_envvars: Vec<String>,
    /// Totals that override what is detected.
    #[serde(default)]
    pub resources: ResourcesConfig,
    /// What is not for allocations.
    #[serde(default)]
    pub reserved: ReservedConfig,
    /// Folders of the host that allocations may mount.
    #[serde(default)]
    pub host_volumes: BTreeMap<String, HostVolumeConfig>,
    /// Folders of the host below which HostVolumes may register others by `hostPath`; default: none.
    #[serde(default)]
    pub host_volume_paths: Vec<PathBuf>,
    /// Devices that allocations may get.
    #[serde(default)]
    pub devices: DevicesConfig,
    /// The interface of the node's ports; default: that of the default route.
    #[serde(default)]
    pub network_interface: Option<String>,
    /// More addresses for ports, by the alias that a port's `hostNetwork` names.
    #[serde(default)]
    pub host_networks: BTreeMap<String, HostNetworkConfig>,
    /// Ports that are given to those who ask for any; default 20000 to 29999, below Kubernetes' node ports.
    #[serde(default)]
    pub dynamic_ports: DynamicPortsConfig,
    /// The most allocations that run on the node at a time; default: no limit.
    #[serde(default)]
    pub max_allocs: Option<u32>,
    /// Heartbeats until the controller has published a TTL.
    #[serde(default)]
    pub heartbeat: HeartbeatConfig,
    /// The longest kill timeout of a task.
    #[serde(default = "default_max_kill_timeout", deserialize_with = "duration")]
    pub max_kill_timeout: Duration,
    /// Fingerprints to take or leave.
    #[serde(default)]
    pub fingerprint: ListsConfig,
    /// Drivers to load or leave.
    #[serde(default)]
    pub driver: ListsConfig,
    /// When ended allocations are given up.
    #[serde(default)]
    pub gc: GcConfig,
    /// CSI drivers.
    #[serde(default)]
    pub csi: CsiConfig,
    /// The gateway, through which people reach this node's allocations from elsewhere.
    #[serde(default)]
    pub gateway: GatewayConfig,
    /// What artifacts may take of the node, and where they may come from.
    #[serde(default)]
    pub artifacts: ArtifactsConfig,
    /// Networks of allocations.
    #[serde(default)]
    pub network: NetworkConfig,
    /// Whether a new node takes allocations only after an operator has made it eligible.
    #[serde(default)]
    pub default_ineligible: bool,
}

/// The drivers' own settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DriversConfig {
    /// Processes without isolation.
    pub raw_exec: RawExecConfig,
    /// Processes in a sandbox.
    pub exec: ExecConfig,
    /// Containers of images.
    pub containerd: ContainerdConfig,
    /// A driver for tests that runs nothing.
    pub mock: MockConfig,
}

/// Settings of the `containerd` driver, which is `docker` too.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ContainerdConfig {
    /// `auto`: on where containerd listens. It needs an agent that is root, and control groups.
    pub enabled: Enabled,
    /// The socket of the node's containerd.
    pub address: PathBuf,
    /// Its snapshotter, which keeps the layers of images and what containers write.
    pub snapshotter: String,
    /// Its runtime.
    pub runtime: String,
    /// Runtimes that tasks may ask for beside that.
    pub allow_runtimes: Vec<String>,
    /// The program that the runtime runs; none: `runc` of containerd's own search path.
    pub runc: Option<PathBuf>,
    /// Whether tasks may ask for `privileged: true`: they are root on the node.
    pub allow_privileged: bool,
    /// Whether tasks may ask for the node's network, processes and shared memory: `networkMode`, `pidMode` and
    /// `ipcMode` `host`. A container that is root among the node's processes is root on the node.
    pub allow_host_namespaces: bool,
    /// Capabilities that tasks may ask for, with or without `CAP_`; `all` for all.
    pub allow_caps: Vec<String>,
    /// Whether tasks may mount any directory of the host.
    pub volumes: bool,
    /// The most processes and threads of a task.
    pub pids_limit: u32,
    /// How long an image is kept that no task uses.
    #[serde(deserialize_with = "duration")]
    pub image_delay: Duration,
    /// A folder with a `hosts.toml` for each registry, as of containerd; none: registries are reached as they are.
    pub registry_hosts_dir: Option<PathBuf>,
}

impl Default for ContainerdConfig {
    fn default() -> Self {
        Self {
            enabled: Enabled::Auto,
            address: PathBuf::from("/run/containerd/containerd.sock"),
            snapshotter: "overlayfs".to_owned(),
            runtime: "io.containerd.runc.v2".to_owned(),
            allow_runtimes: Vec::new(),
            runc: None,
            allow_privileged: false,
            allow_host_namespaces: false,
            allow_caps: Vec::new(),
            volumes: false,
            pids_limit: 4096,
            image_delay: Duration::from_mins(3),
            registry_hosts_dir: None,
        }
    }
}

/// Whether something is on: `true`, `false`, or `auto` for where the node has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enabled {
    /// Where the node has it.
    #[default]
    Auto,
    /// On, and ill where the node does not have it.
    Yes,
    /// Off.
    No,
}

impl<'de> Deserialize<'de> for Enabled {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Word {
            Switch(bool),
            Text(String),
        }
        match Word::deserialize(from)? {
            Word::Switch(true) => Ok(Self::Yes),
            Word::Switch(false) => Ok(Self::No),
            Word::Text(text) if text == "auto" => Ok(Self::Auto),
            Word::Text(text) => Err(serde::de::Error::custom(format!("{text:?} is neither true, false nor auto"))),
        }
    }
}

/// Settings of the `raw_exec` driver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawExecConfig {
    /// Off unless set: its tasks have the rights of the agent's user.
    pub enabled: bool,
    /// Environment variables that tasks must not get; `*` matches any text.
    pub denied_envvars: Vec<String>,
}

/// Settings of the `exec` driver.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the file")]
pub struct ExecConfig {
    /// On unless unset; it needs an agent that is root, and control groups.
    pub enabled: bool,
    /// Capabilities that tasks may ask for, with or without `CAP_`; `all` for all. Each is one against the host's
    /// files, users or devices, as far as the sandbox shows them.
    pub allow_caps: Vec<String>,
    /// Whether tasks may ask for `pidMode: host`: they see all processes of the host, and those of their own user may
    /// be read and ended.
    #[serde(rename = "allowHostPID")]
    pub allow_host_pid: bool,
    /// Whether tasks may ask for `ipcMode: host`: the host's shared memory and queues.
    #[serde(rename = "allowHostIPC")]
    pub allow_host_ipc: bool,
    /// Whether tasks may use the host's network: its ports, what listens on its loopback device only, and its abstract
    /// sockets.
    pub allow_host_network: bool,
    /// Paths of the host that tasks see read-only. `/etc` of a task has its own `passwd` and `group`, unless `/etc` is
    /// listed as a whole.
    pub host_paths: Vec<PathBuf>,
    /// The most processes and threads of a task.
    pub pids_limit: u32,
    /// Folders of the host beneath which the roots lie that tasks may ask for by `rootfs`.
    pub rootfs_dirs: Vec<PathBuf>,
    /// Numbers of users, and of groups of the same numbers, of which each allocation gets one: its tasks run as it
    /// unless they name a user. No user of the node may have one of them.
    pub uid_range: UidRange,
}

/// Programs and libraries, and of `/etc` what they need to run: names of hosts and services, certificates, the time
/// zone, and how libraries and alternatives are found.
const HOST_PATHS: [&str; 20] = [
    "/bin",
    "/etc/alternatives",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    // Where Fedora and its relatives have them; `pki` as a whole holds private keys.
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/resolv.conf",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/lib",
    "/lib32",
    "/lib64",
    "/run/resolvconf",
    "/run/systemd/resolve",
    "/sbin",
    "/usr",
];

/// Numbers of users, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UidRange {
    /// The first.
    pub min: u32,
    /// The last.
    pub max: u32,
}

impl Default for UidRange {
    fn default() -> Self {
        Self { min: 2_000_000, max: 2_999_999 }
    }
}

/// Below it are the users of the system.
const MIN_UID: u32 = 1000;
/// The kernel gives those above another meaning.
const MAX_UID: u32 = u32::MAX - 2;

impl Default for ExecConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            allow_caps: Vec::new(),
            allow_host_pid: false,
            allow_host_ipc: false,
            allow_host_network: false,
            host_paths: HOST_PATHS.map(PathBuf::from).to_vec(),
            pids_limit: 4096,
            rootfs_dirs: Vec::new(),
            uid_range: UidRange::default(),
        }
    }
}

/// Settings of the `mock` driver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MockConfig {
    /// For tests only.
    pub enabled: bool,
}

/// Totals that override detection.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ResourcesConfig {
    /// MHz.
    pub cpu: Option<u32>,
    /// Mebibytes.
    #[serde(rename = "memoryMB")]
    pub memory_mb: Option<u32>,
    /// Mebibytes.
    #[serde(rename = "diskMB")]
    pub disk_mb: Option<u32>,
    /// Whole cores that can be reserved.
    pub cores: Option<u32>,
}

/// What the node keeps for itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ReservedConfig {
    /// MHz.
    pub cpu: u32,
    /// Mebibytes.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u32,
    /// Mebibytes.
    #[serde(rename = "diskMB")]
    pub disk_mb: u32,
    /// Core metrics.
    pub cores: Vec<u32>,
    /// Ports and ranges, `22,8500-8600`.
    pub ports: String,
}

/// A static host volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostVolumeConfig {
    /// An existing folder.
    pub path: PathBuf,
    /// Whether it is mounted read-only.
    #[serde(default)]
    pub read_only: bool,
}

/// Another address for ports: one of the two says which.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HostNetworkConfig {
    /// An address of this machine.
    pub address: Option<String>,
    /// An interface, whose first address it is.
    pub interface: Option<String>,
    /// Ports and ranges of the address that allocations never get, `22,8500-8600`.
    pub reserved_ports: String,
}

/// The range of dynamic ports, both ends included.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DynamicPortsConfig {
    /// The first.
    pub min: u16,
    /// The last.
    pub max: u16,
}

impl Default for DynamicPortsConfig {
    fn default() -> Self {
        Self { min: 20_000, max: 29_999 }
    }
}

/// The devices of the node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DevicesConfig {
    /// Groups of files, special or plain.
    pub files: Vec<FileDeviceConfig>,
}

/// Files that are devices alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileDeviceConfig {
    /// Who made them.
    pub vendor: String,
    /// What they are, as `gpu`.
    pub r#type: String,
    /// Their model.
    pub name: String,
    /// The files; each is an instance with its path as id.
    pub paths: Vec<PathBuf>,
    /// What jobs may ask for.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// The agent's part of the heartbeat settings.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HeartbeatConfig {
    /// The time to live of a heartbeat until the controller has published one.
    #[serde(deserialize_with = "duration")]
    pub ttl: Duration,
}

/// Limits above which the oldest ended allocations are given up.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GcConfig {
    /// Allocations on the node, ended ones included.
    pub max_allocs: usize,
    /// Percent of the disk that holds their files.
    pub disk_usage_percent: u8,
    /// Percent of its inodes.
    pub inode_usage_percent: u8,
}

impl GcConfig {
    /// Above these something has to go.
    pub(crate) fn limits(&self) -> GarbageLimits {
        GarbageLimits {
            disk_percent: u64::from(self.disk_usage_percent),
            inode_percent: u64::from(self.inode_usage_percent),
            live: self.max_allocs,
        }
    }
}

impl Default for GcConfig {
    fn default() -> Self {
        Self { max_allocs: 50, disk_usage_percent: 80, inode_usage_percent: 70 }
    }
}

impl Default for HeartbeatConfig {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(10) }
    }
}

/// Where CSI drivers are found that the cluster runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CsiConfig {
    /// The kubelet's folder; empty: drivers of the cluster are not used. One that is not there has no drivers.
    pub kubelet_dir: PathBuf,
}

impl Default for CsiConfig {
    fn default() -> Self {
        Self { kubelet_dir: PathBuf::from("/var/lib/kubelet") }
    }
}

impl CsiConfig {
    /// The kubelet's folder, if drivers of the cluster are used.
    pub fn kubelet_dir(&self) -> Option<&Path> {
        Some(self.kubelet_dir.as_path()).filter(|dir| !dir.as_os_str().is_empty())
    }
}

/// How the gateway is reached. The agent dials it and keeps a tunnel open; nothing dials the agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// The file with a token for the audience `gateway.drover.dev` that names this node; read before each dial. None:
    /// no gateway is dialled.
    pub token_file: Option<PathBuf>,
    /// The gateway's Service in drover's namespace. `SERVICE.NAMESPACE.svc` is also the name in its certificate.
    pub service: String,
    /// The addresses of its replicas, as `10.0.0.7:8444`; none: those of the Service's `EndpointSlices`.
    pub replicas: Vec<String>,
    /// Where these answer callers of their API, as `10.0.0.7:8443`: there the requests of tasks go.
    pub users: Vec<String>,
    /// The file with the certificates of its authorities; none: the `ConfigMap` `drover-gateway-ca`.
    pub ca_file: Option<PathBuf>,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            token_file: None,
            service: "drover-gateway".to_owned(),
            replicas: Vec::new(),
            users: Vec::new(),
            ca_file: None,
        }
    }
}

/// Limits of each artifact that is fetched.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ArtifactsConfig {
    /// The most mebibytes that are downloaded, and that come out of an archive.
    #[serde(rename = "maxSizeMB")]
    pub max_size_mb: u64,
    /// The most files and directories of an archive.
    pub max_files: u64,
    /// The longest time of a download.
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
    /// Addresses that may be reached although they are this node's own (loopback), link-local ones, or those of a
    /// cloud's metadata. Who may write a Job reaches what listens there.
    #[serde(rename = "allowedCIDRs")]
    pub allowed_cidrs: Vec<Cidr>,
}

impl Default for ArtifactsConfig {
    fn default() -> Self {
        Self { max_size_mb: 100 * 1024, max_files: 4096, timeout: Duration::from_mins(30), allowed_cidrs: Vec::new() }
    }
}

/// Names to take and to leave.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ListsConfig {
    /// When not empty, only these.
    pub allowlist: BTreeSet<String>,
    /// Never these.
    pub denylist: BTreeSet<String>,
}

impl ListsConfig {
    /// Whether the name is taken.
    pub fn permits(&self, name: &str) -> bool {
        (self.allowlist.is_empty() || self.allowlist.contains(name)) && !self.denylist.contains(name)
    }
}

impl AgentConfig {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// When it cannot be read or a field is unknown, malformed or out of range.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Reads and checks the text of the file at `path`.
    ///
    /// # Errors
    /// When a field is unknown, malformed or out of range.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let config: Self = serde_saphyr::from_str(text)
            .map_err(|error| ConfigError::Parse { path: path.to_owned(), reason: error.to_string() })?;
        config.check().map_err(|(field, reason)| ConfigError::Invalid { path: path.to_owned(), field, reason })?;
        Ok(config)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        for (field, dir) in [("stateDir", &self.state_dir), ("allocDir", &self.alloc_dir)] {
            if !dir.is_absolute() {
                return Err((field, format!("{} is relative: give an absolute path", dir.display())));
            }
        }
        if let Some(dir) = self.csi.kubelet_dir().filter(|dir| !dir.is_absolute()) {
            let reason = format!("{} is relative: give an absolute path, or \"\" for none", dir.display());
            return Err(("csi.kubeletDir", reason));
        }
        let artifacts = &self.artifacts;
        for (field, value) in
            [("artifacts.maxSizeMB", artifacts.max_size_mb), ("artifacts.maxFiles", artifacts.max_files)]
        {
            if value == 0 {
                return Err((field, "is 0, with which nothing can be fetched: give at least 1".to_owned()));
            }
        }
        for (field, value) in [
            ("heartbeat.ttl", self.heartbeat.ttl),
            ("maxKillTimeout", self.max_kill_timeout),
            ("artifacts.timeout", artifacts.timeout),
        ] {
            if value.is_zero() {
                return Err((field, "must be longer than 0s".to_owned()));
            }
        }
        for (field, percent) in
            [("gc.diskUsagePercent", self.gc.disk_usage_percent), ("gc.inodeUsagePercent", self.gc.inode_usage_percent)]
        {
            if percent > 100 {
                return Err((field, format!("{percent} is no percentage: give 0 to 100")));
            }
        }
        let exec = &self.drivers.exec;
        for (field, paths) in
            [("drivers.exec.hostPaths", &exec.host_paths), ("drivers.exec.rootfsDirs", &exec.rootfs_dirs)]
        {
            if let Some(path) = paths.iter().find(|path| !path.is_absolute()) {
                return Err((field, format!("{} is relative: give an absolute path", path.display())));
            }
        }
        let (plugins, containerd) = (&self.network, &self.drivers.containerd);
        for (field, path) in [
            ("network.cniConfigDir", plugins.cni_config_dir.as_ref()),
            ("network.cniBinDir", Some(&plugins.cni_bin_dir)),
            ("drivers.containerd.address", Some(&containerd.address)),
            ("drivers.containerd.runc", containerd.runc.as_ref()),
            ("drivers.containerd.registryHostsDir", containerd.registry_hosts_dir.as_ref()),
        ] {
            if let Some(path) = path.filter(|path| !path.is_absolute()) {
                return Err((field, format!("{} is relative: give an absolute path", path.display())));
            }
        }
        for (field, name) in [
            ("drivers.containerd.snapshotter", &containerd.snapshotter),
            ("drivers.containerd.runtime", &containerd.runtime),
        ] {
            if name.trim().is_empty() {
                return Err((field, "is empty: give a name, or leave it out".to_owned()));
            }
        }
        if containerd.image_delay.is_zero() {
            return Err(("drivers.containerd.imageDelay", "must be longer than 0s".to_owned()));
        }
        if containerd.pids_limit == 0 {
            return Err(("drivers.containerd.pidsLimit", "is 0, with which nothing runs: give at least 1".to_owned()));
        }
        let files = [("gateway.tokenFile", &self.gateway.token_file), ("gateway.caFile", &self.gateway.ca_file)];
        for (field, path) in files {
            if let Some(path) = path.as_ref().filter(|path| !path.is_absolute()) {
                return Err((field, format!("{} is relative: give an absolute path", path.display())));
            }
        }
        let UidRange { min, max } = exec.uid_range;
        if min < MIN_UID || min > max || max > MAX_UID {
            let reason = format!(
                "{min} to {max} is no range of users: give min from {MIN_UID} up to max, and max up to {MAX_UID}"
            );
            return Err(("drivers.exec.uidRange", reason));
        }
        if let Some(address) = &self.address
            && address.parse::<std::net::IpAddr>().is_err()
        {
            return Err(("address", format!("{address:?} is not an IP address")));
        }
        if let Some(name) = self.node_name.as_deref()
            && name.trim().is_empty()
        {
            return Err(("nodeName", "is empty: give a name, or leave it out for the host's name".to_owned()));
        }
        self.check_networks()
    }

    fn check_networks(&self) -> Result<(), (&'static str, String)> {
        for (alias, network) in &self.host_networks {
            let refused = |reason: String| Err(("hostNetworks", format!("{alias:?} {reason}")));
            if alias.is_empty() || alias == "default" {
                return refused(
                    "is the address of the node itself: set address or networkInterface instead".to_owned(),
                );
            }
            match (&network.address, &network.interface) {
                (Some(address), None) if address.parse::<std::net::IpAddr>().is_err() => {
                    return refused(format!("has address {address:?}, which is no IP address"));
                }
                (Some(_), None) | (None, Some(_)) => {}
                (None, None) | (Some(_), Some(_)) => {
                    return refused("must have either an address or an interface".to_owned());
                }
            }
        }
        let ports = self.dynamic_ports;
        if ports.min == 0 || ports.min > ports.max {
            let reason = format!("{} to {} is no range of ports: give min from 1 up to max", ports.min, ports.max);
            return Err(("dynamicPorts", reason));
        }
        if self.max_allocs == Some(0) {
            return Err(("maxAllocs", "is 0: leave it out for no limit, or make the node ineligible".to_owned()));
        }
        Ok(())
    }
}

fn default_host_envvars() -> Vec<String> {
    let names = ["HOME", "LANG", "LANGUAGE", "LC_*", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"];
    names.map(str::to_owned).to_vec()
}

fn default_namespace() -> String {
    "drover-system".to_owned()
}

fn default_datacenter() -> String {
    "dc1".to_owned()
}

fn default_pool() -> String {
    "default".to_owned()
}

fn default_max_kill_timeout() -> Duration {
    Duration::from_secs(30)
}

/// A duration as in manifests: `300ms`, `10s`, `1m30s`, `1h`.
fn duration<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let duration: GoDuration = text.parse().map_err(serde::de::Error::custom)?;
    if duration.is_negative() {
        return Err(serde::de::Error::custom(format!("`{text}` is negative: give a span of time that lies ahead")));
    }
    Ok(duration.to_std())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<AgentConfig, String> {
        AgentConfig::parse(text, Path::new("agent.yaml")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_smallest_file_has_defaults() {
        let config =
            parse("stateDir: /var/lib/drover/state\nallocDir: /var/lib/drover/alloc\n").expect("a configuration");
        assert_eq!((config.namespace.as_str(), config.datacenter.as_str()), ("drover-system", "dc1"));
        assert_eq!((config.heartbeat.ttl, config.max_kill_timeout), (Duration::from_secs(10), Duration::from_secs(30)));
        assert!(!config.drivers.raw_exec.enabled, "raw exec is off unless configured");
        assert_eq!(config.csi.kubelet_dir(), Some(Path::new("/var/lib/kubelet")));
    }

    #[test]
    fn all_fields_are_read() {
        let text = "nodeName: n-1\nstateDir: /s\nallocDir: /a\naddress: 127.0.0.1\ndrivers: {rawExec: {enabled: true}}\n\
                    resources: {cpu: 4000, memoryMB: 8192, diskMB: 1, cores: 4}\n\
                    reserved: {cpu: 1, memoryMB: 2, diskMB: 3, cores: [0], ports: \"22\"}\n\
                    hostVolumes: {certs: {path: /etc, readOnly: true}}\nheartbeat: {ttl: 2s}\nmaxKillTimeout: 1m30s\n";
        let config = parse(text).expect("a configuration");
        assert!(config.drivers.raw_exec.enabled);
        assert_eq!(config.resources.memory_mb, Some(8192));
        assert_eq!(config.reserved.ports, "22");
        assert_eq!(config.max_kill_timeout, Duration::from_secs(90));
    }

    #[test]
    fn mistakes_are_named() {
        let unknown = parse("stateDir: /s\nallocDir: /a\nstateDirr: /x\n").expect_err("refused");
        assert!(unknown.contains("stateDirr"), "{unknown}");
        let relative = parse("stateDir: s\nallocDir: /a\n").expect_err("refused");
        assert!(relative.contains("stateDir") && relative.contains("absolute"), "{relative}");
        let relative = parse("stateDir: /s\nallocDir: /a\ncsi: {kubeletDir: kubelet}\n").expect_err("refused");
        assert!(relative.contains("csi.kubeletDir") && relative.contains("absolute"), "{relative}");
        let off = parse("stateDir: /s\nallocDir: /a\ncsi: {kubeletDir: \"\"}\n").expect("a configuration");
        assert_eq!(off.csi.kubelet_dir(), None);
        let zero = parse("stateDir: /s\nallocDir: /a\nheartbeat: {ttl: 0s}\n").expect_err("refused");
        assert!(zero.contains("heartbeat.ttl"), "{zero}");
        for (text, named) in [
            ("hostNetworks: {public: {}}", "either an address or an interface"),
            ("hostNetworks: {public: {address: here}}", "no IP address"),
            ("hostNetworks: {default: {address: 10.0.0.1}}", "set address or networkInterface"),
            ("dynamicPorts: {min: 9000, max: 8000}", "dynamicPorts"),
            ("maxAllocs: 0", "maxAllocs"),
            ("gateway: {tokenFile: token}", "gateway.tokenFile"),
            ("gateway: {caFile: ca.crt}", "gateway.caFile"),
            ("artifacts: {maxFiles: 0}", "artifacts.maxFiles"),
            ("artifacts: {timeout: 0s}", "artifacts.timeout"),
            ("network: {bridgeSubnet: 10.0.0.1/24}", "did you mean 10.0.0.0/24"),
            ("network: {bridgeSubnet: here}", "write one as 172.26.64.0/20"),
            ("network: {cniConfigDir: net.d}", "network.cniConfigDir"),
            ("network: {dns: elsewhere}", "dns"),
            ("artifacts: {allowedCIDRs: [here]}", "is no range of addresses"),
            ("drivers: {exec: {uidRange: {min: 0}}}", "drivers.exec.uidRange: 0 to 2999999 is no range"),
            ("drivers: {exec: {uidRange: {max: 1999999}}}", "drivers.exec.uidRange"),
            ("drivers: {containerd: {address: run/x.sock}}", "drivers.containerd.address"),
            ("drivers: {containerd: {imageDelay: 0s}}", "drivers.containerd.imageDelay"),
            ("drivers: {containerd: {pidsLimit: 0}}", "drivers.containerd.pidsLimit"),
            ("drivers: {containerd: {snapshotter: \"\"}}", "drivers.containerd.snapshotter"),
            ("drivers: {containerd: {enabled: maybe}}", "neither true, false nor auto"),
            ("drivers: {containerd: {storageDriver: x}}", "storageDriver"),
        ] {
            let error = parse(&format!("stateDir: /s\nallocDir: /a\n{text}\n")).expect_err("refused");
            assert!(error.contains(named), "{text}: {error}");
        }
        let duration = parse("stateDir: /s\nallocDir: /a\nmaxKillTimeout: soon\n").expect_err("refused");
        assert!(duration.contains("soon"), "{duration}");
    }
}
