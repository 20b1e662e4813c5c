//! A task: one process or container, and all that belongs to it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::csi_volume::PluginType;
use crate::duration::GoDuration;
use crate::placement::{Affinity, Constraint};
use crate::policy::Restart;
use crate::service::Service;
use crate::string_enum::string_enum;

string_enum! {
    /// When a helper task runs.
    pub enum LifecycleHook {
        /// Before the main tasks.
        Prestart = "prestart",
        /// After the main tasks started.
        Poststart = "poststart",
        /// After all other tasks ended.
        Poststop = "poststop",
    }
}

string_enum! {
    /// What happens to a task when something it uses has changed.
    pub enum ChangeMode default Restart {
        /// Nothing.
        Noop = "noop",
        /// It is restarted.
        Restart = "restart",
        /// It gets a signal.
        Signal = "signal",
        /// A command runs in it.
        Script = "script",
    }
}

string_enum! {
    /// How a mount's changes travel between host and task.
    pub enum PropagationMode default Private {
        /// Not at all.
        Private = "private",
        /// From the host to the task.
        HostToTask = "host-to-task",
        /// Both ways.
        Bidirectional = "bidirectional",
    }
}

string_enum! {
    /// What an artifact's source is expected to be.
    pub enum ArtifactMode default Any {
        /// A file, or an archive that is unpacked.
        Any = "any",
        /// A file.
        File = "file",
        /// A directory.
        Dir = "dir",
    }
}

string_enum! {
    /// Where a secret of a task is kept.
    pub enum SecretProvider default Kubernetes {
        /// In the Secret of this name.
        Kubernetes = "kubernetes",
        /// In the ConfigMap of this name.
        Configmap = "configmap",
        /// In the Secret that stands for a variable of Nomad: its path, with `.` for each `/`.
        Nomad = "nomad",
    }
}

/// A task: one process or container of a group's allocations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Its name, a DNS label, unique in the group; not `alloc`.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// What runs it: containerd (a container of an image; docker is the same, and reads Docker's names of settings
    /// too), exec (an isolated process), raw_exec (a plain process, off unless the node allows it), or mock (runs
    /// nothing, for tests).
    #[schemars(length(min = 1, max = 63))]
    pub driver: String,
    /// The driver's own settings, such as `command` and `args`. Values may contain `${…}`: node attributes and meta,
    /// and the task's environment.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "crate::schema::free_form_object")]
    pub config: Map<String, Value>,
    /// Environment variables; values may contain `${…}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 128))]
    pub env: BTreeMap<String, String>,
    /// The operating system user it runs as; default the driver's: that of `exec` is one that no other allocation has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub user: String,
    /// Makes it a helper of the main tasks. Absent: a main task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// Whether the group's other tasks are stopped when this one ends; at most one task of a group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leader: bool,
    /// How long it may take to end after its kill signal before it is killed; default 5s. The node may set a lower
    /// limit.
    #[serde(default = "default_kill_timeout")]
    pub kill_timeout: GoDuration,
    /// The signal that asks it to end; default the driver's, SIGINT for processes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16))]
    pub kill_signal: String,
    /// Pause between its removal from the service register and its kill signal; default 0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_delay: Option<GoDuration>,
    /// How often it is started again; overrides the group's block field by field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// Key and value pairs for the task, as `NOMAD_META_<key>`; they win over the group's and the job's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub meta: BTreeMap<String, String>,
    /// Rules that the node must satisfy for this task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub constraints: Vec<Constraint>,
    /// Preferences for nodes for this task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub affinities: Vec<Affinity>,
    /// Where the payload of a dispatched job is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_payload: Option<DispatchPayload>,
    /// What it needs of the node.
    #[serde(default)]
    pub resources: Resources,
    /// How its output is kept.
    #[serde(default)]
    pub logs: Logs,
    /// The group's volumes that it mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["volume", "destination"])
    )]
    pub volume_mounts: Vec<VolumeMount>,
    /// Files that are rendered before it starts and when what they use changes. A template looks at objects that
    /// secrets lists, and at no other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub templates: Vec<Template>,
    /// Secrets of type kubernetes.io/dockerconfigjson in the job's namespace, whose credentials the registry of its
    /// image is shown. Driver containerd only. They count as secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "set"))]
    pub image_pull_secrets: Vec<String>,
    /// Secrets and ConfigMaps of the job's namespace whose values it uses: as `${secret.<name>.<key>}` in env, meta and
    /// config. At most 16 in a job. The author of the job needs the right to get each of them, and the chart's
    /// `gateway.secretNamespaces` must name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub secrets: Vec<TaskSecret>,
    /// Files that are fetched before it starts, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub artifacts: Vec<Artifact>,
    /// Services of this task alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub services: Vec<Service>,
    /// Signed tokens that say which task it is; they need the gateway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub identities: Vec<Identity>,
    /// Named commands that users may run in it. Not acted on by this version: refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub actions: Vec<Action>,
    /// Makes the task a CSI plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csi_plugin: Option<CsiPlugin>,
}

fn default_kill_timeout() -> GoDuration {
    GoDuration::from_secs(5)
}

/// Makes a task a helper of the group's main tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// When it runs: prestart, poststart or poststop.
    pub hook: LifecycleHook,
    /// Whether it goes on beside the main tasks (prestart and poststart only); default false.
    #[serde(default)]
    pub sidecar: bool,
}

/// A Secret or ConfigMap whose values a task uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSecret {
    /// Its name in the task, as in `${secret.<name>.<key>}`: letters, digits, `_` and `-`.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Where it is kept: kubernetes (a Secret, the default), configmap, or nomad (the Secret that stands for a
    /// variable).
    #[serde(default)]
    pub provider: SecretProvider,
    /// The object's name; for nomad the variable's path, as in nomad/jobs/web, which is kept in Secret nomad.jobs.web.
    #[schemars(length(min = 1, max = 253))]
    pub path: String,
}

/// Where the payload of a dispatched job is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DispatchPayload {
    /// A path below the task's `local` directory.
    #[schemars(length(min = 1, max = 256))]
    pub file: String,
}

/// What a task needs of its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Processor share in MHz; default 100, when no cores are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub cpu: Option<i64>,
    /// Whole processor cores for this task alone; not together with cpu.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4096))]
    pub cores: Option<i64>,
    /// Memory in MiB, at least 10; default 300.
    #[serde(rename = "memoryMB")]
    #[schemars(range(min = 10, max = 100_000_000))]
    pub memory_mb: i64,
    /// Memory in MiB that it may use where the cluster allows more than is reserved; 0 for none, -1 for no limit.
    #[serde(rename = "memoryMaxMB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1, max = 100_000_000))]
    pub memory_max_mb: Option<i64>,
    /// Size of its in-memory secrets directory in MiB, part of its memory; default 1.
    #[serde(rename = "secretsMB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub secrets_mb: Option<i64>,
    /// Devices, such as GPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub devices: Vec<DeviceRequest>,
    /// Placement of cores on the node's memory banks. Not acted on by this version: refused, but for affinity none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<Numa>,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            cpu: None,
            cores: None,
            memory_mb: 300,
            memory_max_mb: None,
            secrets_mb: None,
            devices: Vec::new(),
            numa: None,
        }
    }
}

/// A request for devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceRequest {
    /// `type`, `vendor/type` or `vendor/type/name`, as in `nvidia/gpu`.
    #[schemars(length(min = 1, max = 192))]
    pub name: String,
    /// How many; default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 128))]
    pub count: i64,
    /// Rules on the device, with targets such as `${device.attr.memory}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub constraints: Vec<Constraint>,
    /// Preferences for devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub affinities: Vec<Affinity>,
}

fn one() -> i64 {
    1
}

string_enum! {
    /// How closely reserved cores must lie together.
    pub enum NumaAffinity default None {
        /// Anywhere.
        None = "none",
        /// On one memory bank where possible.
        Prefer = "prefer",
        /// On one memory bank.
        Require = "require",
    }
}

/// Placement of reserved cores on memory banks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Numa {
    /// none (default), prefer or require.
    pub affinity: NumaAffinity,
}

/// How a task's output is kept, for stdout and stderr each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Logs {
    /// How many files are kept; default 10.
    #[schemars(range(min = 1, max = 1000))]
    pub max_files: i64,
    /// Size in MiB at which a new file begins; default 10.
    #[serde(rename = "maxFileSizeMB")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_file_size_mb: i64,
    /// Whether output is thrown away; default false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
}

impl Default for Logs {
    fn default() -> Self {
        Self { max_files: 10, max_file_size_mb: 10, disabled: false }
    }
}

/// A group's volume, mounted in a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMount {
    /// The name of the group's volume.
    #[schemars(length(min = 1, max = 63))]
    pub volume: String,
    /// Where it appears in the task, an absolute path.
    #[schemars(length(min = 1, max = 256))]
    pub destination: String,
    /// Whether this task may only read it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// How mounts below it travel; default private, and any other is refused by this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagation_mode: Option<PropagationMode>,
    /// `z` or `Z`: how SELinux labels it. Not acted on by this version: refused.
    #[serde(rename = "selinuxLabel", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub selinux_label: String,
}

/// A file that is rendered before the task starts and when what it uses changes, in Go's template language with
/// consul-template's functions.
#[expect(clippy::struct_excessive_bools, reason = "the wire shape: independent choices")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Template {
    /// The template's text; this or sourcePath.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 65536))]
    pub embedded_tmpl: String,
    /// A file below the task's directory that holds the text, as an artifact may have brought it.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub source_path: String,
    /// Where the result goes: a path below the task's or the allocation's directory. May contain `${…}`, as in
    /// `${NOMAD_SECRETS_DIR}/app.env`.
    #[schemars(length(min = 1, max = 256))]
    pub dest_path: String,
    /// What happens to the task when the result changes; default restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_mode: Option<ChangeMode>,
    /// The signal for changeMode signal.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16))]
    pub change_signal: String,
    /// The command for changeMode script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_script: Option<ChangeScript>,
    /// Longest random wait before the change takes effect; default 5s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub splay: Option<GoDuration>,
    /// Mode of the file, octal and at most 0777; default 0644.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 5))]
    pub perms: String,
    /// Owner of the file by number; default the task's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4_294_967_295_i64))]
    pub uid: Option<i64>,
    /// Group of the file by number; default that of the task's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4_294_967_295_i64))]
    pub gid: Option<i64>,
    /// What begins an action in the text; default `{{`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16))]
    pub left_delimiter: String,
    /// What ends an action in the text; default `}}`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16))]
    pub right_delimiter: String,
    /// Whether the result is read as KEY=VALUE lines into the task's environment.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub envvars: bool,
    /// Whether it is rendered once and never again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
    /// Whether a key that a map has not is waited for; else `<no value>` stands for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub err_missing_key: bool,
    /// How long changes are collected before rendering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<TemplateWait>,
    /// Whether new values of what the task lists in secrets reach the group's allocations in turn: update.maxParallel
    /// at a time, the next when those are healthy with them, and none any more while one is not. A task that starts has
    /// the newest values at once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rolling: bool,
}

/// A command that runs in the task after a template changed. Not for driver containerd, whose tasks it cannot enter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChangeScript {
    /// The program.
    #[schemars(length(min = 1, max = 512))]
    pub command: String,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 1024)), extend("x-kubernetes-list-type" = "atomic"))]
    pub args: Vec<String>,
    /// Longest run; default 5s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// Whether its failure kills the task.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fail_on_error: bool,
    /// Whether it also runs after the first rendering.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub run_on_first_render: bool,
}

/// How long changes of a template's sources are collected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateWait {
    /// At least this long; default 5s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<GoDuration>,
    /// At most this long; default 4m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<GoDuration>,
}

/// A file or archive that is fetched before the task starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Artifact {
    /// An address of http or https; an object as `s3::https://s3.amazonaws.com/BUCKET/KEY` or `gs://BUCKET/KEY`; an
    /// artifact of a registry as `oci://ghcr.io/org/app:1.2`; a commit of git as
    /// `git::https://example.com/org/app.git//folder?ref=v1.2` or `github.com/org/app`, without `.git` and history.
    /// May contain `${…}`. git over ssh, links and submodules of a repository, and hg are refused.
    #[schemars(length(min = 1, max = 2048))]
    pub getter_source: String,
    /// `checksum` (`md5:`, `sha1:`, `sha256:` or `sha512:` with hexadecimal digits), `archive` (`false`, or the kind:
    /// tar, tar.gz, tar.bz2, tar.xz, tar.zst, zip, gz, bz2, xz, zst) and `filename`; of S3 `region`,
    /// `aws_access_key_id`, `aws_access_key_secret` and `aws_access_token`; of git `ref` (a branch, a tag, or the 40
    /// digits of a commit) and `depth` (accepted: one commit is fetched). Of http and https others become part of the
    /// address's query.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub getter_options: BTreeMap<String, String>,
    /// Headers of the request; a redirect does not carry them to another server.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub getter_headers: BTreeMap<String, String>,
    /// What the source is expected to be; default any, which unpacks archives. With file, relativeDest is the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub getter_mode: Option<ArtifactMode>,
    /// Where it goes, below the task's directory or `${NOMAD_ALLOC_DIR}`; default `local/`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub relative_dest: String,
    /// Whether the result belongs to the task's user.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub chown: bool,
}

/// A signed token for a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    /// Its name, of letters, digits, `-` and `_`; `default` is the one that drover's own API takes.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its intended audience.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub aud: Vec<String>,
    /// Whether it is in the environment, as `NOMAD_TOKEN` or `NOMAD_TOKEN_<name>`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub env: bool,
    /// Whether it is in a file: `secrets/nomad_token`, or `secrets/nomad_<name>.jwt`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub file: bool,
    /// Another file for it, below the task's directory; needs file.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub filepath: String,
    /// What happens to the task when it was renewed: noop (default), restart or signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_mode: Option<ChangeMode>,
    /// The signal for changeMode signal.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16))]
    pub change_signal: String,
    /// How long it is valid; 0 for as long as the allocation lives. It is renewed at half of that. Not for the default
    /// identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<GoDuration>,
    /// Further claims in the token.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub extra_claims: BTreeMap<String, String>,
    /// The token of a `ServiceAccount` instead, which the API server signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<AccountIdentity>,
}

/// A token of a `ServiceAccount` of the job's namespace, bound to the node that runs the task. The author of the job
/// needs the right to create `serviceaccounts/token` of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AccountIdentity {
    /// The account's name; `gateway.secretNamespaces[].serviceAccounts` of the chart must have it.
    #[schemars(length(min = 1, max = 253))]
    pub service_account: String,
}

/// A named command that users may run in a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Action {
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The program.
    #[schemars(length(min = 1, max = 512))]
    pub command: String,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 1024)), extend("x-kubernetes-list-type" = "atomic"))]
    pub args: Vec<String>,
}

/// Makes a task a CSI plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CsiPlugin {
    /// The plugin's id, which CSIVolumes name.
    #[schemars(length(min = 1, max = 63))]
    pub id: String,
    /// node, controller or monolith (both).
    pub r#type: PluginType,
    /// Where the plugin finds its socket directory. Not acted on by this version: refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub mount_dir: String,
    /// Where volumes are staged and published. Not acted on by this version: refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub stage_publish_base_dir: String,
    /// By when it must be healthy after its start; default 30s, and so is 0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_timeout: Option<GoDuration>,
}
