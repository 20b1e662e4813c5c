//! What the `config` of a task may hold, by driver: the one definition that validation and the drivers share.
//!
//! Input: the settings as they are written or, on the node, with everything interpolated. Output: typed settings, or
//! the key that is wrong and what to write. Must never know the node: whether a driver is enabled there, which roots
//! and capabilities it permits, and whether a program exists are the driver's to say.

use std::collections::BTreeMap;
use std::path::PathBuf;

use drover_api::GoDuration;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::common_settings::{
    Limit, NamespaceMode, camel_case, check_pids_limit, check_work_dir, fields, limits_of, parse, renamed, unknown_key,
};
use super::container_config::{ContainerConfig, DOCKER_KEYS, with_own_names};

/// The drivers that have settings here: all that an agent of this version has.
pub const DRIVERS: [&str; 5] =
    [ContainerConfig::DRIVER, ContainerConfig::DOCKER, ExecConfig::DRIVER, RawExecConfig::DRIVER, MockConfig::DRIVER];

/// Settings of driver `exec`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecConfig {
    /// The program.
    pub command: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Where it starts; its directory when none is given.
    #[serde(default)]
    pub work_dir: Option<String>,
    /// A directory of the host whose files it sees in place of the host's.
    #[serde(default)]
    pub rootfs: Option<PathBuf>,
    /// Whose processes it sees.
    #[serde(default)]
    pub pid_mode: NamespaceMode,
    /// Whose shared memory and queues it sees.
    #[serde(default)]
    pub ipc_mode: NamespaceMode,
    /// Capabilities that it gets beyond the usual ones.
    #[serde(default)]
    pub cap_add: Vec<String>,
    /// Capabilities that it does without.
    #[serde(default)]
    pub cap_drop: Vec<String>,
    /// The most processes and threads.
    #[serde(default)]
    pub pids_limit: Option<u64>,
    /// Whether it gets no more than its share of the processor when there is more.
    #[serde(default)]
    pub cpu_hard_limit: bool,
    /// Limits by name: `soft:hard` or one number for both.
    #[serde(default)]
    pub ulimit: BTreeMap<String, String>,
}

/// Settings of driver `raw_exec`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawExecConfig {
    /// The program.
    pub command: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Where it starts; the task's directory when none is given.
    #[serde(default)]
    pub work_dir: Option<String>,
    /// How much sooner than others it is killed when the node runs out of memory.
    #[serde(default)]
    pub oom_score_adj: i32,
    /// Variables that it does not get; `*` matches any text.
    #[serde(default)]
    pub denied_envvars: Vec<String>,
}

/// Settings of driver `mock`, which runs nothing and behaves as they say.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MockConfig {
    /// Every start fails, with this text.
    pub start_error: String,
    /// Whether another start may help.
    pub start_error_recoverable: bool,
    /// How long a start takes.
    pub start_block_for: Option<GoDuration>,
    /// How long it runs; not at all when none is given.
    pub run_for: Option<GoDuration>,
    /// The code that it ends with.
    pub exit_code: i32,
    /// The signal that ends it; 0 for none.
    pub exit_signal: i32,
    /// Its end is unknown, for this reason.
    pub exit_err_msg: String,
    /// How long it ignores its kill signal.
    pub kill_after: Option<GoDuration>,
    /// A signal cannot be sent, for this reason.
    pub signal_error: String,
    /// So many starts of a task fail before one does not.
    pub fail_first: u32,
    /// The driver reports the task healthy so long after its start.
    pub healthy_after: Option<GoDuration>,
    /// On these nodes it never does.
    pub unhealthy_on_nodes: Vec<String>,
    /// In these versions of the job it ends with code 1 after a second.
    pub fail_on_versions: Vec<i64>,
}

/// The settings that a driver knows, in the order in which they are described; none of a driver that is not among
/// [`DRIVERS`].
pub fn keys(driver: &str) -> &'static [&'static str] {
    match driver {
        ContainerConfig::DRIVER => fields::<ContainerConfig>(),
        ContainerConfig::DOCKER => &DOCKER_KEYS,
        ExecConfig::DRIVER => fields::<ExecConfig>(),
        RawExecConfig::DRIVER => fields::<RawExecConfig>(),
        MockConfig::DRIVER => fields::<MockConfig>(),
        _ => &[],
    }
}

/// What is wrong with a task's settings as they are written. Where they refer to what only the node knows (`${…}`), the
/// keys alone are judged, and the driver judges the values. Nothing for a driver that is not among [`DRIVERS`].
pub fn fault(driver: &str, config: &Map<String, Value>) -> Option<String> {
    let is_open = config.values().any(refers);
    match driver {
        ContainerConfig::DRIVER | ContainerConfig::DOCKER if is_open => {
            unknown_name::<ContainerConfig>(driver, with_own_names(driver, config))
        }
        ContainerConfig::DRIVER | ContainerConfig::DOCKER => ContainerConfig::read(driver, config).err(),
        ExecConfig::DRIVER if is_open => unknown_name::<ExecConfig>(driver, without_underscores::<ExecConfig>(config)),
        ExecConfig::DRIVER => ExecConfig::read(config).err(),
        RawExecConfig::DRIVER if is_open => {
            unknown_name::<RawExecConfig>(driver, without_underscores::<RawExecConfig>(config))
        }
        RawExecConfig::DRIVER => RawExecConfig::read(config).err(),
        MockConfig::DRIVER if is_open => unknown_key::<MockConfig>(driver, config),
        MockConfig::DRIVER => MockConfig::read(config).err(),
        _ => None,
    }
}

/// The settings of a driver that puts tasks into something of their own, under our names however they are spelled.
///
/// # Errors
/// The setting that is there under two names, or that the driver does not know.
pub(crate) fn own_names(driver: &str, config: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    if driver == ExecConfig::DRIVER {
        without_underscores::<ExecConfig>(config)
    } else {
        with_own_names(driver, config)
    }
}

/// Settings under our names: those of Nomad's drivers are the same words in lower case with underscores.
fn without_underscores<T: DeserializeOwned>(config: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    let known = fields::<T>();
    renamed(config, "Nomad's", |key, value| {
        let name = camel_case(key);
        Ok((if known.contains(&name.as_str()) { name } else { key.to_owned() }, value.clone()))
    })
}

/// The first key that a driver does not have, or why its settings cannot be under our names.
fn unknown_name<T: DeserializeOwned>(driver: &str, config: Result<Map<String, Value>, String>) -> Option<String> {
    match config {
        Ok(config) => unknown_key::<T>(driver, &config),
        Err(fault) => Some(fault),
    }
}

impl ExecConfig {
    /// The driver's name.
    pub const DRIVER: &'static str = "exec";

    /// The settings of a task.
    ///
    /// # Errors
    /// The key that is wrong, and what to write.
    pub fn read(config: &Map<String, Value>) -> Result<Self, String> {
        let config: Self = parse(Self::DRIVER, &without_underscores::<Self>(config)?)?;
        check_command(&config.command)?;
        check_work_dir(config.work_dir.as_deref())?;
        check_pids_limit(config.pids_limit)?;
        if let Some(rootfs) = &config.rootfs
            && !rootfs.is_absolute()
        {
            return Err(format!("config.rootfs {} is relative: give an absolute path", rootfs.display()));
        }
        config.limits().map(|_| config)
    }

    /// Its limits, by name.
    ///
    /// # Errors
    /// The limit that is none, and what to write.
    pub fn limits(&self) -> Result<Vec<Limit>, String> {
        limits_of(&self.ulimit)
    }
}

impl RawExecConfig {
    /// The driver's name.
    pub const DRIVER: &'static str = "raw_exec";

    /// The settings of a task.
    ///
    /// # Errors
    /// The key that is wrong, and what to write.
    pub fn read(config: &Map<String, Value>) -> Result<Self, String> {
        let config: Self = parse(Self::DRIVER, &without_underscores::<Self>(config)?)?;
        check_command(&config.command)?;
        check_work_dir(config.work_dir.as_deref())?;
        if config.oom_score_adj < 0 {
            return Err(format!("config.oomScoreAdj {} is below 0, which tasks may not ask for", config.oom_score_adj));
        }
        Ok(config)
    }
}

impl MockConfig {
    /// The driver's name.
    pub const DRIVER: &'static str = "mock";

    /// The settings of a task.
    ///
    /// # Errors
    /// The key that is wrong, and what to write.
    pub fn read(config: &Map<String, Value>) -> Result<Self, String> {
        parse(Self::DRIVER, config)
    }
}

fn check_command(command: &str) -> Result<(), String> {
    if command.is_empty() { Err("config.command is empty: name a program".to_owned()) } else { Ok(()) }
}

fn refers(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("${"),
        Value::Array(items) => items.iter().any(refers),
        Value::Object(fields) => fields.values().any(refers),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    mod keys;

    use serde_json::json;

    use super::*;

    fn fault_of(driver: &str, config: &Value) -> String {
        fault(driver, config.as_object().unwrap()).unwrap_or_default()
    }

    #[test]
    fn a_132_wrong_settings_of_raw_exec_are_named() {
        let good =
            json!({ "command": "x", "args": ["a"], "workDir": "/tmp", "oomScoreAdj": 1, "deniedEnvvars": ["A"] });
        assert_eq!(fault_of("raw_exec", &good), "");
        for (config, wanted) in [
            (json!({}), "command"),
            (json!({ "command": "" }), "command"),
            (json!({ "command": "x", "workDir": "rel" }), "workDir"),
            (json!({ "command": "x", "oomScoreAdj": -1 }), "oomScoreAdj"),
            (json!({ "command": "x", "cgroupV2Override": "a" }), "config.cgroupV2Override is no setting"),
            (
                json!({ "command": "x", "cgroupV1Override": {}, "cgroupV2Override": "a" }),
                "config.cgroupV1Override is no",
            ),
            (
                json!({ "command": "x", "argz": [] }),
                "config.argz is no setting of driver raw_exec; take one of command,",
            ),
        ] {
            let fault = fault_of("raw_exec", &config);
            assert!(fault.contains(wanted), "{fault}");
        }
    }

    #[test]
    fn wrong_settings_of_exec_are_named() {
        let good = json!({ "command": "x", "pidMode": "host", "ulimit": { "nofile": "10:20", "core": "0" } });
        assert_eq!(fault_of("exec", &good), "");
        for (config, wanted) in [
            (json!({ "command": "" }), "command"),
            (json!({ "command": "x", "workDir": "rel" }), "workDir"),
            (json!({ "command": "x", "rootfs": "rel" }), "rootfs"),
            (json!({ "command": "x", "pidMode": "shared" }), "shared"),
            (json!({ "command": "x", "ulimit": { "nofiles": "1" } }), "nofiles"),
            (json!({ "command": "x", "ulimit": { "nofile": "20:10" } }), "SOFT:HARD"),
            (json!({ "command": "x", "privileged": true }), "config.privileged is no setting of driver exec"),
        ] {
            let fault = fault_of("exec", &config);
            assert!(fault.contains(wanted), "{fault}");
        }
    }

    #[test]
    fn settings_of_nomads_drivers_have_nomads_names_and_types_too() {
        let nomads = json!({
            "command": "x", "args": ["-p", 80, true], "work_dir": "/tmp", "pid_mode": "host", "cap_drop": ["net_raw"],
            "cpu_hard_limit": "true", "pids_limit": "9", "ulimit": [{ "nofile": 64, "core": "0" }],
        });
        let ours = json!({
            "command": "x", "args": ["-p", "80", "true"], "workDir": "/tmp", "pidMode": "host", "capDrop": ["net_raw"],
            "cpuHardLimit": true, "pidsLimit": 9, "ulimit": { "nofile": "64", "core": "0" },
        });
        let read = |config: &Value| format!("{:?}", ExecConfig::read(config.as_object().unwrap()).unwrap());
        assert_eq!(read(&nomads), read(&ours));
        let raw = json!({ "command": "x", "denied_envvars": ["A"], "oom_score_adj": 3 });
        let raw = RawExecConfig::read(raw.as_object().unwrap()).unwrap();
        assert_eq!((raw.denied_envvars, raw.oom_score_adj), (vec!["A".to_owned()], 3));
        for config in [
            json!({ "command": "x", "work_dir": "/a", "workDir": "/b" }),
            json!({ "command": "${meta.x}", "work_dir": "/a", "workDir": "/b" }),
        ] {
            assert!(fault_of("exec", &config).contains("stands there twice"), "{config}");
        }
        let open = json!({ "command": "${meta.x}", "work_dir": "/tmp" });
        assert_eq!(fault_of("exec", &open), "");
        let image = json!({ "image": "a", "labels": [{ "a": 1 }], "ulimit": [{ "nofile": "64" }], "args": [80] });
        assert_eq!(fault_of("docker", &image), "");
    }

    #[test]
    fn what_the_node_will_fill_in_is_not_judged_before_and_keys_are() {
        for driver in ["exec", "raw_exec"] {
            let open = json!({ "command": "x", "workDir": "${NOMAD_TASK_DIR}", "args": [{ "a": 1 }] });
            assert_eq!(fault_of(driver, &open), "", "{driver}");
            let wrong = json!({ "command": "${NOMAD_META_program}", "image": "x" });
            assert!(fault_of(driver, &wrong).contains("config.image"), "{driver}");
        }
        assert!(fault_of("mock", &json!({ "runFor": "${meta.span}", "runfor": "1s" })).contains("config.runfor"));
        assert!(fault_of("mock", &json!({ "runFor": "often" })).contains("config"));
        assert_eq!(fault_of("podman", &json!({ "image": "x" })), "");
    }
    #[test]
    fn b_020_and_b_021_keys_of_docker_are_judged_before_values_are_known() {
        let open = json!({ "image": "${NOMAD_META_image}", "cap_add": ["chown"] });
        assert_eq!(fault_of("docker", &open), "");
        let open = json!({ "image": "${NOMAD_META_image}", "storage_opt": {} });
        assert!(fault_of("docker", &open).contains("config.storage_opt"));
    }

    #[test]
    fn the_settings_of_docker_are_all_of_ours_and_dockers_names_of_them() {
        let own = keys("containerd");
        assert_eq!(DOCKER_KEYS[..own.len()], *own);
        for name in &DOCKER_KEYS[own.len()..] {
            let config = json!({ *name: 1 });
            let read = with_own_names("docker", config.as_object().expect("an object")).expect("names");
            let renamed = read.keys().next().expect("a key");
            assert!(own.contains(&renamed.as_str()), "{name} became {renamed}");
        }
    }
}
