//! What the `config` of a task of driver `containerd` may hold, and of `docker`, which is the same driver with Docker's
//! names of settings beside ours.
//!
//! Input: the settings as they are written or, on the node, with everything interpolated. Output: typed settings, or
//! the key that is wrong and what to write. Must never know the node: what it permits is the driver's to say.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use drover_api::GoDuration;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::common_settings::{
    Limit, NamespaceMode, camel_case, check_pids_limit, check_work_dir, limits_of, parse, renamed,
};

/// How long the download of an image may take.
const PULL_TIMEOUT: Duration = Duration::from_mins(5);
/// Parameters of the kernel that are a container's own.
const OWN_SYSCTLS: [&str; 5] = ["fs.mqueue.", "kernel.msg", "kernel.sem", "kernel.shm", "net."];

/// The settings of driver `docker`: ours, and Docker's names of those that have another there.
pub(super) const DOCKER_KEYS: [&str; 52] = [
    "image",
    "command",
    "args",
    "entrypoint",
    "ports",
    "workDir",
    "forcePull",
    "imagePullTimeout",
    "auth",
    "load",
    "capAdd",
    "capDrop",
    "privileged",
    "readonlyRootfs",
    "mounts",
    "volumes",
    "devices",
    "shmSizeMB",
    "ulimit",
    "sysctl",
    "extraHosts",
    "hostname",
    "networkMode",
    "pidsLimit",
    "memoryHardLimitMB",
    "cpuHardLimit",
    "init",
    "tty",
    "interactive",
    "labels",
    "groupAdd",
    "securityOpt",
    "pidMode",
    "ipcMode",
    "runtime",
    "work_dir",
    "force_pull",
    "image_pull_timeout",
    "cap_add",
    "cap_drop",
    "readonly_rootfs",
    "shm_size",
    "extra_hosts",
    "network_mode",
    "pids_limit",
    "memory_hard_limit",
    "cpu_hard_limit",
    "group_add",
    "security_opt",
    "pid_mode",
    "ipc_mode",
    "mount",
];

/// Settings of driver `containerd`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the task's")]
pub struct ContainerConfig {
    /// The image: a name with its registry, or a short one of Docker's.
    pub image: String,
    /// The program, in place of what the image runs.
    #[serde(default)]
    pub command: Option<String>,
    /// Its arguments; without a command, those of the image's entrypoint.
    #[serde(default)]
    pub args: Vec<String>,
    /// In place of the image's entrypoint.
    #[serde(default)]
    pub entrypoint: Option<Vec<String>>,
    /// Labels of the group's ports that lead into it.
    #[serde(default)]
    pub ports: Vec<String>,
    /// Where it starts; the image's directory when none is given.
    #[serde(default)]
    pub work_dir: Option<String>,
    /// Whether the registry is asked at each start.
    #[serde(default)]
    pub force_pull: bool,
    /// How long the download of the image may take; 5 minutes when none is given.
    #[serde(default)]
    pub image_pull_timeout: Option<GoDuration>,
    /// Credentials of the registry: not yet acted on.
    #[serde(default)]
    pub auth: Option<Value>,
    /// An archive of the image in the task's directory, in place of a registry.
    #[serde(default)]
    pub load: Option<String>,
    /// Capabilities that it gets beyond the usual ones.
    #[serde(default)]
    pub cap_add: Vec<String>,
    /// Capabilities that it does without.
    #[serde(default)]
    pub cap_drop: Vec<String>,
    /// Whether it may do on the node whatever root may.
    #[serde(default)]
    pub privileged: bool,
    /// Whether its root cannot be written.
    #[serde(default)]
    pub readonly_rootfs: bool,
    /// More of the host's directories, and memory as a directory.
    #[serde(default)]
    pub mounts: Vec<ContainerMount>,
    /// Directories of the host: `SOURCE:TARGET` or `SOURCE:TARGET:ro`.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Files of the host: not acted on.
    #[serde(default)]
    pub devices: Option<Value>,
    /// The size of its shared memory; 64 when none is given.
    #[serde(default, rename = "shmSizeMB")]
    pub shm_size_mb: Option<u64>,
    /// Limits by name: `soft:hard` or one number for both.
    #[serde(default)]
    pub ulimit: BTreeMap<String, String>,
    /// Parameters of the kernel that are its own.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// Lines of `/etc/hosts`, as `NAME:ADDRESS`.
    #[serde(default)]
    pub extra_hosts: Vec<String>,
    /// Its host name; that of the node when none is given.
    #[serde(default)]
    pub hostname: Option<String>,
    /// `host` for the network of the node.
    #[serde(default)]
    pub network_mode: Option<String>,
    /// The most processes and threads.
    #[serde(default)]
    pub pids_limit: Option<u64>,
    /// Up to this much memory it may use where the node has it, in place of `resources.memoryMaxMB`.
    #[serde(default, rename = "memoryHardLimitMB")]
    pub memory_hard_limit_mb: Option<u64>,
    /// Whether it gets no more than its share of the processor when there is more.
    #[serde(default)]
    pub cpu_hard_limit: bool,
    /// A first process that reaps: not acted on.
    #[serde(default)]
    pub init: bool,
    /// Whether its output is a terminal.
    #[serde(default)]
    pub tty: bool,
    /// An open standard input: not acted on.
    #[serde(default)]
    pub interactive: bool,
    /// Labels of the container in containerd.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// More groups of its user, by number or by the image's names.
    #[serde(default)]
    pub group_add: Vec<String>,
    /// Only `no-new-privileges`, which holds in any case.
    #[serde(default)]
    pub security_opt: Vec<String>,
    /// Whose processes it sees.
    #[serde(default)]
    pub pid_mode: NamespaceMode,
    /// Whose shared memory and queues it sees.
    #[serde(default)]
    pub ipc_mode: NamespaceMode,
    /// The runtime, where it is not that of the node.
    #[serde(default)]
    pub runtime: Option<String>,
}

/// One directory in a container.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerMount {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: ContainerMountKind,
    /// On the host; not for memory.
    #[serde(default)]
    pub source: Option<String>,
    /// In the container.
    pub target: String,
    /// Whether it cannot be written.
    #[serde(default, alias = "readonly")]
    pub read_only: bool,
    /// The most that memory holds; none: half of the node's.
    #[serde(default, rename = "sizeMB")]
    pub size_mb: Option<u64>,
}

/// The kinds of directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerMountKind {
    /// A directory or file of the host.
    Bind,
    /// Memory.
    Tmpfs,
}

/// A directory of the host, as a task wants to see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMount {
    /// The setting that asks for it.
    pub field: String,
    /// On the host, absolute.
    pub source: String,
    /// In the container, absolute.
    pub target: String,
    /// Whether it cannot be written.
    pub read_only: bool,
}

impl ContainerConfig {
    /// The driver's name.
    pub const DRIVER: &'static str = "containerd";
    /// Its other name, under which Docker's names of settings are read too.
    pub const DOCKER: &'static str = "docker";

    /// The settings of a task of the driver under either of its names.
    ///
    /// # Errors
    /// The key that is wrong, and what to write.
    pub fn read(driver: &str, config: &Map<String, Value>) -> Result<Self, String> {
        let config: Self = parse(driver, &with_own_names(driver, config)?)?;
        config.check().map(|()| config)
    }

    /// How long the download of its image may take.
    pub fn pull_timeout(&self) -> Duration {
        self.image_pull_timeout.map_or(PULL_TIMEOUT, GoDuration::to_std)
    }

    /// Whether it is in the network of the node.
    pub fn is_in_host_network(&self) -> bool {
        self.network_mode.is_some()
    }

    /// What runs: its own words before the image's.
    pub fn command_line(&self, entrypoint: &[String], cmd: &[String]) -> Vec<String> {
        let first = self.entrypoint.as_deref().unwrap_or(entrypoint);
        let own: Vec<String> = self.command.iter().chain(&self.args).cloned().collect();
        // As with Docker: the image's arguments are those of the image's entrypoint.
        let rest = match (own.is_empty(), &self.entrypoint) {
            (false, _) => own.as_slice(),
            (true, None) => cmd,
            (true, Some(_)) => &[],
        };
        first.iter().chain(rest).cloned().collect()
    }

    /// Its limits, by name.
    ///
    /// # Errors
    /// The limit that is none, and what to write.
    pub fn limits(&self) -> Result<Vec<Limit>, String> {
        limits_of(&self.ulimit)
    }

    /// What it wants of the host's files.
    ///
    /// # Errors
    /// The one that is malformed, and what to write.
    pub fn host_mounts(&self) -> Result<Vec<HostMount>, String> {
        let volumes = self.volumes.iter().enumerate().map(|(n, text)| {
            let field = format!("config.volumes[{n}]");
            let parts: Vec<&str> = text.split(':').collect();
            let (source, target, read_only) = match parts.as_slice() {
                [source, target] | [source, target, "rw"] => (*source, *target, false),
                [source, target, "ro"] => (*source, *target, true),
                _ => return Err(format!("{field} {text:?} is no volume: write SOURCE:TARGET or SOURCE:TARGET:ro")),
            };
            host_mount(field, source, target, read_only)
        });
        let binds = self.mounts.iter().enumerate().filter(|(_, mount)| mount.kind == ContainerMountKind::Bind);
        let mounts = binds.map(|(n, mount)| {
            let field = format!("config.mounts[{n}]");
            host_mount(field, mount.source.as_deref().unwrap_or_default(), &mount.target, mount.read_only)
        });
        volumes.chain(mounts).collect()
    }

    /// The lines of its `/etc/hosts`: address and name.
    ///
    /// # Errors
    /// The one that is malformed, and what to write.
    pub fn hosts(&self) -> Result<Vec<(IpAddr, &str)>, String> {
        let read = |(n, text): (usize, &'_ String)| {
            let malformed = || format!("config.extraHosts[{n}] {text:?} is no entry: write NAME:ADDRESS");
            let (name, address) = text.split_once(':').ok_or_else(malformed)?;
            let is_name = !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || "-._".contains(it));
            let address = address.trim_matches(['[', ']']).parse().map_err(|_| malformed())?;
            if is_name { Ok((address, name.len())) } else { Err(malformed()) }
        };
        let read_all: Result<Vec<(IpAddr, usize)>, String> = self.extra_hosts.iter().enumerate().map(read).collect();
        Ok(read_all?.into_iter().zip(&self.extra_hosts).map(|((address, n), text)| (address, &text[..n])).collect())
    }

    fn check(&self) -> Result<(), String> {
        if self.image.trim().is_empty() {
            return Err("config.image is empty: name an image".to_owned());
        }
        image_name(&self.image)?;
        check_work_dir(self.work_dir.as_deref())?;
        self.check_not_built()?;
        if self.network_mode.as_deref().is_some_and(|mode| mode != "host") {
            let mode = self.network_mode.as_deref().unwrap_or_default();
            return Err(format!(
                "config.networkMode {mode:?} is not acted on: write host, or leave it out and set the group's \
                 networks[].mode"
            ));
        }
        let holds = ["no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"];
        if let Some(option) = self.security_opt.iter().find(|option| !holds.contains(&option.as_str())) {
            return Err(format!(
                "config.securityOpt {option:?} is not acted on: leave it out; the filter of system calls and \
                 no-new-privileges hold for each container"
            ));
        }
        if let Some(name) = self.sysctl.keys().find(|name| !OWN_SYSCTLS.iter().any(|own| name.starts_with(own))) {
            return Err(format!(
                "config.sysctl.{name} is the whole node's: take one of a container's own, which begin with {}",
                OWN_SYSCTLS.join(", ")
            ));
        }
        if let (Some(name), true) =
            (self.sysctl.keys().find(|name| name.starts_with("net.")), self.is_in_host_network())
        {
            return Err(format!("config.sysctl.{name} is the node's with networkMode host: leave one of both out"));
        }
        for (n, mount) in self.mounts.iter().enumerate().filter(|(_, mount)| mount.kind == ContainerMountKind::Tmpfs) {
            if mount.source.is_some() {
                return Err(format!("config.mounts[{n}].source is not for type tmpfs, which is memory: leave it out"));
            }
            if !is_target(&mount.target) {
                return Err(wrong_target(&format!("config.mounts[{n}]"), &mount.target));
            }
        }
        check_pids_limit(self.pids_limit)?;
        if self.image_pull_timeout.is_some_and(|limit| limit.is_negative() || limit.to_std().is_zero()) {
            return Err("config.imagePullTimeout must be longer than 0s".to_owned());
        }
        self.hosts()?;
        self.limits()?;
        self.host_mounts().map(drop)
    }

    /// What is known and not acted on is refused by its name.
    fn check_not_built(&self) -> Result<(), String> {
        let refused =
            |key: &str, instead: &str| Err(format!("config.{key} is not acted on by this version: {instead}"));
        if self.auth.is_some() {
            return refused(
                "auth",
                "name a Secret of type kubernetes.io/dockerconfigjson in imagePullSecrets of the task",
            );
        }
        if self.devices.is_some() {
            return refused("devices", "ask for them by resources.devices");
        }
        if self.init {
            return refused("init", "take an image whose first program reaps its children");
        }
        if self.interactive {
            return refused("interactive", "nothing is attached to its input; run commands by drover alloc exec");
        }
        Ok(())
    }
}

/// The full name of an image: Docker's registry, its own repository and the tag `latest` where none is named.
///
/// # Errors
/// What is no name, and what to write.
pub fn image_name(text: &str) -> Result<String, String> {
    let refused =
        |reason: &str| Err(format!("config.image {text:?} {reason}: write REGISTRY/NAME:TAG or REGISTRY/NAME@DIGEST"));
    let text = text.trim();
    if text.is_empty()
        || text.len() > 512
        || !text.chars().all(|it| it.is_ascii_alphanumeric() || "./:@_-[]".contains(it))
    {
        return refused("is no name of an image");
    }
    let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return refused("has no digest after @");
    }
    let is_host = |part: &str| part.contains(['.', ':']) || part == "localhost";
    let (host, path) = match name.split_once('/') {
        Some((first, rest)) if is_host(first) => (first, rest.to_owned()),
        Some(_) => ("docker.io", name.to_owned()),
        None => ("docker.io", format!("library/{name}")),
    };
    let host = if host == "index.docker.io" { "docker.io" } else { host };
    let (repository, tag) = match path.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        Some(_) | None => (path.as_str(), None),
    };
    let is_part = |part: &str| !part.is_empty() && !part.starts_with(['.', '-', '_']);
    if repository.chars().any(|it| it.is_ascii_uppercase()) {
        return refused("has capital letters in its name, which no registry takes");
    }
    if !repository.split('/').all(is_part) || tag.is_some_and(|tag| !is_part(tag)) {
        return refused("has an empty part");
    }
    Ok(match (tag, digest) {
        (None, Some(digest)) => format!("{host}/{repository}@{digest}"),
        (Some(tag), Some(digest)) => format!("{host}/{repository}:{tag}@{digest}"),
        (tag, None) => format!("{host}/{repository}:{}", tag.unwrap_or("latest")),
    })
}

fn is_digest(text: &str) -> bool {
    text.split_once(':')
        .is_some_and(|(kind, hex)| kind == "sha256" && hex.len() == 64 && hex.chars().all(|it| it.is_ascii_hexdigit()))
}

fn host_mount(field: String, source: &str, target: &str, read_only: bool) -> Result<HostMount, String> {
    if !Path::new(source).is_absolute() {
        return Err(format!(
            "{field}: source {source:?} is no absolute path of the host; what is the task's own is at /local, /alloc \
             and /secrets already"
        ));
    }
    if source.split('/').any(|part| part == "..") {
        return Err(format!("{field}: source {source:?} leads upwards: write the path without .."));
    }
    if !is_target(target) {
        return Err(wrong_target(&field, target));
    }
    Ok(HostMount { field, source: source.to_owned(), target: target.to_owned(), read_only })
}

/// An absolute path that is not the root and does not lead upwards.
fn is_target(target: &str) -> bool {
    Path::new(target).is_absolute()
        && !target.trim_matches('/').is_empty()
        && !target.split('/').any(|part| part == "..")
}

fn wrong_target(field: &str, target: &str) -> String {
    format!("{field}: target {target:?} is no place in the container: write an absolute path without .., below /")
}

/// The settings under our names. Docker's are the same words in lower case with underscores, but for two that have a
/// unit here.
pub(super) fn with_own_names(driver: &str, config: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    if driver != ContainerConfig::DOCKER {
        return Ok(config.clone());
    }
    if let Some(key) = config.keys().find(|key| !DOCKER_KEYS.contains(&key.as_str())) {
        return Err(format!("config.{key} is no setting of driver docker; take one of {}", DOCKER_KEYS.join(", ")));
    }
    renamed(config, "Docker's", |key, value| {
        Ok(match key {
            "memory_hard_limit" => ("memoryHardLimitMB".to_owned(), value.clone()),
            "shm_size" => ("shmSizeMB".to_owned(), mebibytes(value)?),
            "mount" => ("mounts".to_owned(), value.clone()),
            _ => (camel_case(key), value.clone()),
        })
    })
}

/// Docker counts shared memory in bytes.
fn mebibytes(value: &Value) -> Result<Value, String> {
    let wrong = || format!("config.shm_size {value} is no number of bytes; config.shmSizeMB counts mebibytes");
    let bytes = value.as_u64().or_else(|| value.as_str()?.parse().ok()).ok_or_else(wrong)?;
    Ok(Value::from(bytes.div_ceil(1 << 20)))
}

#[cfg(test)]
mod tests {
    mod images;
    mod settings;

    use serde_json::json;

    use super::*;

    fn fault_of(driver: &str, config: &Value) -> String {
        ContainerConfig::read(driver, config.as_object().expect("an object")).err().unwrap_or_default()
    }

    fn config(config: &Value) -> ContainerConfig {
        ContainerConfig::read("containerd", config.as_object().expect("an object")).expect("good settings")
    }

    #[test]
    fn b_021_what_is_unknown_or_not_acted_on_is_refused_by_name() {
        let good = json!({
            "image": "web:1", "args": ["serve"], "workDir": "/srv", "capAdd": ["chown"], "ulimit": { "nofile": "10:20" },
            "sysctl": { "net.core.somaxconn": "16" }, "extraHosts": ["db:10.0.0.7"], "imagePullTimeout": "1m",
            "mounts": [{ "type": "tmpfs", "target": "/cache", "sizeMB": 8 }], "volumes": ["/srv/data:/data:ro"],
        });
        assert_eq!(fault_of("containerd", &good), "");
        for (key, value, wanted) in [
            ("storageOpt", json!({}), "config.storageOpt is no setting of driver containerd; take one of image,"),
            ("cap_add", json!(["chown"]), "config.cap_add is no setting of driver containerd"),
            ("image", json!(""), "config.image is empty"),
            ("image", json!("Web:1"), "capital letters"),
            ("image", json!("a b"), "is no name of an image"),
            ("image", json!("web@sha256:12"), "has no digest after @"),
            ("image", json!("a//b"), "has an empty part"),
            ("auth", json!({ "username": "u" }), "config.auth is not acted on by this version"),
            ("devices", json!([]), "resources.devices"),
            ("init", json!(true), "config.init"),
            ("pidsLimit", json!(0), "config.pidsLimit is 0"),
            ("interactive", json!(true), "config.interactive"),
            ("networkMode", json!("bridge"), "config.networkMode \"bridge\""),
            ("securityOpt", json!(["seccomp=unconfined"]), "config.securityOpt"),
            ("sysctl", json!({ "kernel.panic": "1" }), "config.sysctl.kernel.panic is the whole node's"),
            ("extraHosts", json!(["db"]), "config.extraHosts[0]"),
            ("extraHosts", json!(["d b:10.0.0.1"]), "config.extraHosts[0]"),
            ("volumes", json!(["local/x:/x"]), "config.volumes[0]: source \"local/x\" is no absolute path"),
            ("volumes", json!(["/a/../etc:/x"]), "leads upwards"),
            ("volumes", json!(["/a:/"]), "target \"/\" is no place"),
            ("volumes", json!(["/a"]), "write SOURCE:TARGET"),
            ("mounts", json!([{ "type": "volume", "target": "/x" }]), "volume"),
            ("mounts", json!([{ "type": "tmpfs", "source": "/a", "target": "/x" }]), "is not for type tmpfs"),
            ("mounts", json!([{ "type": "tmpfs", "target": "x" }]), "config.mounts[0]: target"),
            ("workDir", json!("srv"), "config.workDir"),
            ("ulimit", json!({ "nofiles": "1" }), "nofiles"),
            ("imagePullTimeout", json!("0s"), "longer than 0s"),
        ] {
            let mut wrong = good.clone();
            wrong[key] = value;
            let fault = fault_of("containerd", &wrong);
            assert!(fault.contains(wanted), "{key}: {fault:?}");
        }
        let both = json!({ "image": "a", "networkMode": "host", "sysctl": { "net.core.somaxconn": "16" } });
        assert!(fault_of("containerd", &both).contains("networkMode host"));
    }

    #[test]
    fn b_020_docker_reads_its_own_names_too() {
        let docker = json!({
            "image": "web:1", "cap_add": ["chown"], "readonly_rootfs": true, "shm_size": 16_777_217, "work_dir": "/a",
            "memory_hard_limit": 512, "pids_limit": 9, "image_pull_timeout": "2m", "networkMode": "host",
        });
        assert_eq!(fault_of("docker", &docker), "");
        let read = ContainerConfig::read("docker", docker.as_object().expect("an object")).expect("good settings");
        assert_eq!((read.cap_add.as_slice(), read.readonly_rootfs), (["chown".to_owned()].as_slice(), true));
        assert_eq!((read.shm_size_mb, read.memory_hard_limit_mb, read.pids_limit), (Some(17), Some(512), Some(9)));
        assert_eq!((read.pull_timeout(), read.is_in_host_network()), (Duration::from_mins(2), true));
        let twice = json!({ "image": "a", "cap_add": [], "capAdd": [] });
        assert!(fault_of("docker", &twice).contains("twice"), "{}", fault_of("docker", &twice));
        let unknown = json!({ "image": "a", "storage_opt": {} });
        assert!(fault_of("docker", &unknown).contains("config.storage_opt is no setting of driver docker"));
    }

    #[test]
    fn b_002_words_of_the_task_come_before_those_of_the_image() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let run = |own: Value| {
            let mut settings = json!({ "image": "a" });
            settings.as_object_mut().expect("an object").extend(own.as_object().expect("an object").clone());
            config(&settings).command_line(&words("/entry -e"), &words("cmd x")).join(" ")
        };
        for (own, wanted) in [
            (json!({}), "/entry -e cmd x"),
            (json!({ "args": ["a"] }), "/entry -e a"),
            (json!({ "command": "c" }), "/entry -e c"),
            (json!({ "command": "c", "args": ["a"] }), "/entry -e c a"),
            (json!({ "entrypoint": ["/mine"] }), "/mine"),
            (json!({ "entrypoint": ["/mine"], "args": ["a"] }), "/mine a"),
            (json!({ "entrypoint": [], "command": "/c" }), "/c"),
        ] {
            assert_eq!(run(own.clone()), wanted, "{own}");
        }
    }

    #[test]
    fn short_names_are_those_of_dockers_registry() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, wanted) in [
            ("web", "docker.io/library/web:latest".to_owned()),
            ("web:1", "docker.io/library/web:1".to_owned()),
            ("shop/web:1", "docker.io/shop/web:1".to_owned()),
            ("index.docker.io/shop/web", "docker.io/shop/web:latest".to_owned()),
            ("localhost/web", "localhost/web:latest".to_owned()),
            ("registry:5000/web", "registry:5000/web:latest".to_owned()),
            ("10.0.0.1:5000/a/b:c", "10.0.0.1:5000/a/b:c".to_owned()),
            (&format!("example.com/web@{digest}"), format!("example.com/web@{digest}")),
            (&format!("example.com/web:1@{digest}"), format!("example.com/web:1@{digest}")),
        ] {
            assert_eq!(image_name(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_the_host_gives_is_told_apart() {
        let settings = config(&json!({
            "image": "a", "volumes": ["/srv:/data:ro"], "extraHosts": ["db:10.0.0.7", "six:[fd00::1]"],
            "mounts": [{ "type": "bind", "source": "/etc/x", "target": "/x" }, { "type": "tmpfs", "target": "/t" }],
        }));
        let mount = |field: &str, source: &str, target: &str, read_only| HostMount {
            field: field.into(),
            source: source.into(),
            target: target.into(),
            read_only,
        };
        let wanted =
            [mount("config.volumes[0]", "/srv", "/data", true), mount("config.mounts[0]", "/etc/x", "/x", false)];
        assert_eq!(settings.host_mounts().expect("mounts"), wanted);
        let hosts: Vec<String> =
            settings.hosts().expect("hosts").into_iter().map(|(address, name)| format!("{address} {name}")).collect();
        assert_eq!(hosts, ["10.0.0.7 db", "fd00::1 six"]);
    }
}
