//! Driver `exec`: processes shut into a sandbox. They see their own directory as the root, some of the host's
//! read-only, no process but their own, and get the memory, the CPU and the number of processes that were given to
//! them.
//!
//! The task is process 1 of its PID namespace: a signal that it has no handler for is ignored, so a program without one
//! ends only after its kill timeout. A user other than root has no capability that the task does not ask for by name.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use drover_api::client_node::DriverInfo;
use drover_core::task::common_settings::{Limit, NamespaceMode};
use drover_core::task::driver_config::ExecConfig;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::driver::{FsIsolation, NetworkPlace, StartError, StartRequest};
use super::process::{self, ProcessDriver, ProcessKind};
use super::resources::{capabilities, cpu_quota_us, cpu_shares, memory_limits};
use super::users::{self, Account};
use crate::networks::TaskNetwork;
use drover_supervisor::client::Client;
use drover_supervisor::protocol::{CgroupSpec, SandboxSpec, StartSpec, ViewFile};

/// The user of tasks that name none, of allocations without a user of their own.
const DEFAULT_USER: &str = "nobody";
/// Where a bare command name is looked for, after the task's own files.
const SEARCH: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Sandboxes that are made at the same time on each core.
const SANDBOXES_PER_CORE: usize = 3;

/// The node's settings of the driver.
#[derive(Clone, Debug)]
pub(crate) struct ExecSettings {
    /// Whether tasks may have it.
    pub(crate) enabled: bool,
    /// Capabilities that tasks may ask for.
    pub(crate) allow_caps: Vec<String>,
    /// What of the host tasks may share.
    pub(crate) shared: SharedNamespaces,
    /// The numbers of allocations' own users.
    pub(crate) own_users: RangeInclusive<u32>,
    /// Paths of the host that tasks see.
    pub(crate) host_paths: Vec<String>,
    /// The most processes and threads of a task that names no number.
    pub(crate) pids_limit: u64,
    /// Folders beneath which given roots lie.
    pub(crate) rootfs_dirs: Vec<PathBuf>,
    /// MHz of all cores together.
    pub(crate) total_mhz: u64,
    /// Cores.
    pub(crate) cores: u64,
    /// Why there can be no limits or no sandboxes; none: there can.
    pub(crate) unfit: Option<String>,
}

/// The host's namespaces that tasks may ask for, as the node's configuration says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedNamespaces {
    /// All processes of the host.
    pub(crate) pid: bool,
    /// Its shared memory and queues.
    pub(crate) ipc: bool,
    /// Its network devices, ports and abstract sockets.
    pub(crate) network: bool,
}

impl SharedNamespaces {
    /// Refuses what the task wants of the host and the node does not share.
    fn check(self, config: &ExecConfig, private_network: bool) -> Result<(), StartError> {
        let refused = |what: &str, instead: &str, setting: &str| {
            Err(StartError::Invalid(format!(
                "{what}, which this node shares with no task: {instead}, or let the administrator of the node set \
                 drivers.exec.{setting} in the agent's configuration"
            )))
        };
        if config.pid_mode == NamespaceMode::Host && !self.pid {
            return refused("config.pidMode host is the host's list of processes", "leave it out", "allowHostPID");
        }
        if config.ipc_mode == NamespaceMode::Host && !self.ipc {
            return refused("config.ipcMode host is the host's shared memory", "leave it out", "allowHostIPC");
        }
        if !private_network && !self.network {
            return refused(
                "the group's network is the host's",
                "give the group networks: [{mode: bridge}], or [{mode: none}]",
                "allowHostNetwork",
            );
        }
        Ok(())
    }
}

/// The driver.
#[derive(Debug)]
pub(crate) struct Exec {
    settings: ExecSettings,
    /// Sandboxes that may be made at the same time: each computes, and more of them only make each other late.
    turns: Semaphore,
}

impl Exec {
    /// The driver over this supervisor.
    pub(crate) fn driver(settings: ExecSettings, supervisor: Client) -> ProcessDriver<Self> {
        let turns = usize::try_from(settings.cores).unwrap_or(1).max(1) * SANDBOXES_PER_CORE;
        ProcessDriver::over(Self { settings, turns: Semaphore::new(turns) }, supervisor)
    }

    fn unusable(&self) -> Option<String> {
        if !self.settings.enabled {
            return Some("driver exec is disabled on this node: set drivers.exec.enabled".to_owned());
        }
        self.settings.unfit.clone()
    }

    fn spec_of(&self, config: &ExecConfig, request: StartRequest) -> Result<StartSpec, StartError> {
        let caps =
            capabilities(&self.settings.allow_caps, &config.cap_add, &config.cap_drop).map_err(StartError::Invalid)?;
        let asked = capabilities(&self.settings.allow_caps, &config.cap_add, &["all".to_owned()])
            .map_err(StartError::Invalid)?;
        let has_own = request.network != NetworkPlace::Host;
        let network = match &request.network {
            NetworkPlace::At(network) => Some(network),
            NetworkPlace::Host | NetworkPlace::Own => None,
        };
        self.settings.shared.check(config, has_own)?;
        let mut shown = self.shown(config.rootfs.as_deref())?;
        let command = shown.find_command(&config.command, &request.task_dir)?;
        let logs = process::log_spec(&request)?;
        let cgroup = self.cgroup(config, &request);
        let limits = config.limits().map_err(StartError::Invalid)?;
        let own = &self.settings.own_users;
        let account = match (request.user.as_str(), request.own_user) {
            ("", Some(number)) => Account::of_allocation(number),
            ("", None) => users::find_unprivileged(DEFAULT_USER, own).map_err(StartError::Invalid)?,
            (name, _) => users::find_unprivileged(name, own).map_err(StartError::Invalid)?,
        };
        let mut env = request.env;
        process::tell_user(&account, &mut env);
        let sandbox = SandboxSpec {
            root: request.task_dir.to_string_lossy().into_owned(),
            shared: request.alloc_dir.join("alloc").to_string_lossy().into_owned(),
            files: shown.files(&account, network),
            host_paths: shown.paths,
            rootfs: shown.rootfs.map(|rootfs| rootfs.to_string_lossy().into_owned()),
            mounts: request.devices.iter().map(|path| process::device_mount(path)).chain(request.mounts).collect(),
            private_pids: config.pid_mode == NamespaceMode::Private,
            private_ipc: config.ipc_mode == NamespaceMode::Private,
            private_network: has_own,
            network_namespace: network.map(|it| it.path.to_string_lossy().into_owned()),
            hostname: network.map(|it| it.hostname.clone()).unwrap_or_default(),
            bounding: caps.into_iter().collect(),
            ambient: asked.into_iter().collect(),
            limits: limits.into_iter().map(|Limit { name, soft, hard }| (name, soft, hard)).collect(),
        };
        Ok(StartSpec {
            id: request.id,
            command: command.to_string_lossy().into_owned(),
            args: config.args.clone(),
            env: env.into_iter().collect(),
            work_dir: config.work_dir.clone().unwrap_or_else(|| "/".to_owned()),
            user: Some(account.credentials),
            oom_score_adj: 0,
            logs,
            kill_timeout_ms: u64::try_from(request.kill_timeout.as_millis()).unwrap_or(u64::MAX),
            cgroup: Some(cgroup),
            sandbox: Some(sandbox),
        })
    }

    fn cgroup(&self, config: &ExecConfig, request: &StartRequest) -> CgroupSpec {
        let resources = &request.resources;
        let memory = memory_limits(resources);
        let mhz = u64::try_from(resources.cpu).unwrap_or(0);
        let (total, cores) = (self.settings.total_mhz, self.settings.cores);
        CgroupSpec {
            cpu_shares: Some(cpu_shares(mhz, total)),
            cpu_quota_us: config.cpu_hard_limit.then(|| cpu_quota_us(mhz, total, cores)),
            memory_hard_bytes: memory.hard,
            memory_soft_bytes: memory.soft,
            cores: drover_core::task::environment::core_list(&resources.cores),
            pids_max: Some(config.pids_limit.unwrap_or(self.settings.pids_limit).min(self.settings.pids_limit)),
            restrict_devices: true,
            devices: request.devices.iter().filter_map(|path| process::device_rule(path)).collect(),
            ..process::counting_cgroup(request)
        }
    }

    /// What a task sees read-only: the host's paths, or a root that it asks for and that lies where roots may lie.
    fn shown(&self, rootfs: Option<&Path>) -> Result<ReadOnlyPath, StartError> {
        let Some(rootfs) = rootfs else {
            return Ok(ReadOnlyPath { rootfs: None, paths: self.settings.host_paths.clone() });
        };
        let refused = |reason: String| StartError::Invalid(format!("config.rootfs {}: {reason}", rootfs.display()));
        // Links are followed here and once: what is mounted is what was checked.
        let found = rootfs.canonicalize().map_err(|error| refused(error.to_string()))?;
        let is_permitted = self
            .settings
            .rootfs_dirs
            .iter()
            .filter_map(|dir| dir.canonicalize().ok())
            .any(|dir| found.starts_with(&dir) && found != dir);
        if !is_permitted {
            return Err(refused("it lies in none of the agent's drivers.exec.rootfsDirs: put it there".to_owned()));
        }
        let entries = std::fs::read_dir(&found).map_err(|error| refused(error.to_string()))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let paths = names.filter(|name| !OWN.contains(&name.as_str())).map(|name| format!("/{name}")).collect();
        Ok(ReadOnlyPath { rootfs: Some(found), paths })
    }
}

/// The top of a root is the task's own here, whatever the given one has.
const OWN: [&str; 8] = ["alloc", "dev", "local", "private", "proc", "secrets", "sys", "tmp"];

/// What a task sees read-only.
#[derive(Debug)]
struct ReadOnlyPath {
    rootfs: Option<PathBuf>,
    paths: Vec<String>,
}

impl ReadOnlyPath {
    /// The files of the task's own `/etc`: none where it is shown one as a whole. In a network of its own it does not
    /// see the node's names and name servers.
    fn files(&mut self, account: &Account, network: Option<&TaskNetwork>) -> Vec<ViewFile> {
        if self.rootfs.is_some() || self.paths.iter().any(|path| path.trim_end_matches('/') == "/etc") {
            return Vec::new();
        }
        let of_users = users::account_files(account).into_iter();
        let own = |it: &TaskNetwork| [("hosts", it.hosts.clone()), ("resolv.conf", it.resolv_conf.clone())];
        let of_network = network.map(own).into_iter().flatten();
        let files = of_users.chain(of_network).map(|(name, text)| ViewFile { name: name.to_owned(), text });
        let files: Vec<ViewFile> = files.collect();
        self.paths.retain(|path| !files.iter().any(|file| path.strip_prefix("/etc/") == Some(&*file.name)));
        files
    }

    /// The command as the task will see it: among its own files, or among what it is shown.
    fn find_command(&self, command: &str, task_dir: &Path) -> Result<PathBuf, StartError> {
        let is_shown = |path: &Path| {
            let beneath = self.paths.iter().any(|shown| path.starts_with(shown));
            let relative = path.strip_prefix("/").unwrap_or(path);
            // A link in a given root leads elsewhere than it would on the host.
            beneath
                && self
                    .rootfs
                    .as_ref()
                    .map_or_else(|| path.is_file(), |it| it.join(relative).symlink_metadata().is_ok())
        };
        let inside = |path: &Path| task_dir.join(path.strip_prefix("/").unwrap_or(path)).is_file();
        let mut candidates = vec![Path::new("/local").join(command), Path::new("/").join(command)];
        if Path::new(command).is_absolute() {
            candidates = vec![PathBuf::from(command)];
        } else if !command.contains('/') {
            candidates.extend(SEARCH.map(|dir| Path::new(dir).join(command)));
        }
        let found = candidates.into_iter().find(|path| inside(path) || is_shown(path));
        found.ok_or_else(|| {
            StartError::Invalid(format!(
                "command {command:?} was not found in the task's directory, nor in what it sees of the node"
            ))
        })
    }
}

impl ProcessKind for Exec {
    const ISOLATION: FsIsolation = FsIsolation::Chroot;
    const MOUNTS_VOLUMES: bool = true;

    fn fingerprint(&self) -> DriverInfo {
        let is_root = rustix::process::geteuid().is_root();
        let detected = self.settings.enabled && is_root;
        let reason = if is_root { self.unusable() } else { Some("the agent is not root".to_owned()) };
        DriverInfo {
            detected,
            healthy: detected && reason.is_none(),
            description: reason.unwrap_or_default(),
            attributes: BTreeMap::new(),
        }
    }

    fn check(&self, config: &Map<String, Value>) -> Result<(), String> {
        ExecConfig::read(config).map(drop)
    }

    fn spec(&self, request: StartRequest) -> Result<StartSpec, StartError> {
        if let Some(reason) = self.unusable() {
            return Err(StartError::Invalid(reason));
        }
        let config = ExecConfig::read(&request.config).map_err(StartError::Invalid)?;
        self.spec_of(&config, request)
    }

    fn turns(&self) -> Option<&Semaphore> {
        Some(&self.turns)
    }
}

#[cfg(test)]
mod tests {
    use drover_core::task::common_settings::LIMITS;

    #[test]
    fn the_supervisor_can_set_every_limit_that_a_task_may_ask_for() {
        let unknown: Vec<&str> = LIMITS.into_iter().filter(|name| !drover_supervisor::is_limit(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
