//! Driver `raw_exec`: plain processes under the supervisor, with the rights of their user and no isolation.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use drover_api::client_node::DriverInfo;
use drover_core::task::driver_config::RawExecConfig;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::driver::{FsIsolation, StartError, StartRequest};
use super::process::{self, ProcessDriver, ProcessKind};
use super::users;
use crate::glob::matches_glob;
use crate::node::beneath;
use drover_supervisor::client::Client;
use drover_supervisor::protocol::StartSpec;

/// The node's settings of the driver.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawExecSettings {
    /// Off unless the node's configuration allows it.
    pub(crate) enabled: bool,
    /// Variables that no task gets; `*` matches any text.
    pub(crate) denied_envvars: Vec<String>,
}

/// The driver.
#[derive(Debug)]
pub(crate) struct RawExec {
    settings: RawExecSettings,
}

impl RawExec {
    /// The driver over this supervisor.
    pub(crate) fn driver(settings: RawExecSettings, supervisor: Client) -> ProcessDriver<Self> {
        ProcessDriver::over(Self { settings }, supervisor)
    }

    fn spec_of(&self, config: RawExecConfig, request: StartRequest) -> Result<StartSpec, StartError> {
        let command = find_command(&config.command, &request.task_dir, request.env.get("PATH").map(String::as_str))?;
        let logs = process::log_spec(&request)?;
        let cgroup = Some(process::counting_cgroup(&request));
        let mut env = request.env;
        let named = Some(request.user.as_str()).filter(|user| !user.is_empty());
        let account = named.map(users::find).transpose().map_err(StartError::Invalid)?;
        let user = account.map(|account| {
            process::tell_user(&account, &mut env);
            let mut user = account.credentials;
            // By that group it gets into its allocation's directory, and other processes of the same user do not.
            user.groups.extend(request.own_user);
            user
        });
        let denied = |name: &str| {
            self.settings.denied_envvars.iter().chain(&config.denied_envvars).any(|pattern| matches_glob(pattern, name))
        };
        Ok(StartSpec {
            id: request.id,
            command: command.to_string_lossy().into_owned(),
            args: config.args,
            env: env.into_iter().filter(|(name, _)| !denied(name)).collect(),
            work_dir: config.work_dir.unwrap_or_else(|| request.task_dir.to_string_lossy().into_owned()),
            user,
            oom_score_adj: config.oom_score_adj,
            logs,
            kill_timeout_ms: u64::try_from(request.kill_timeout.as_millis()).unwrap_or(u64::MAX),
            cgroup,
            sandbox: None,
        })
    }
}

const DISABLED: &str =
    "driver raw_exec is disabled on this node: set drivers.rawExec.enabled in the agent's configuration";

impl ProcessKind for RawExec {
    const ISOLATION: FsIsolation = FsIsolation::None;
    const MOUNTS_VOLUMES: bool = false;

    fn fingerprint(&self) -> DriverInfo {
        let enabled = self.settings.enabled;
        let description = if enabled { String::new() } else { "disabled".to_owned() };
        DriverInfo { detected: enabled, healthy: enabled, description, attributes: BTreeMap::new() }
    }

    fn check(&self, config: &Map<String, Value>) -> Result<(), String> {
        RawExecConfig::read(config).map(drop)
    }

    fn spec(&self, request: StartRequest) -> Result<StartSpec, StartError> {
        if !self.settings.enabled {
            return Err(StartError::Invalid(DISABLED.to_owned()));
        }
        let config = RawExecConfig::read(&request.config).map_err(StartError::Invalid)?;
        self.spec_of(config, request)
    }

    fn turns(&self) -> Option<&Semaphore> {
        None
    }
}

/// Looks in the task's `local/`, its directory, and for a bare name in `PATH`. Adds the right to execute where it
/// lacks.
fn find_command(command: &str, task_dir: &Path, path: Option<&str>) -> Result<PathBuf, StartError> {
    let as_given = Path::new(command);
    let mut candidates = vec![task_dir.join("local").join(command), task_dir.join(command)];
    if as_given.is_absolute() {
        candidates = vec![as_given.to_owned()];
    } else if !command.contains('/') {
        candidates.extend(
            path.unwrap_or_default().split(':').filter(|dir| !dir.is_empty()).map(|dir| Path::new(dir).join(command)),
        );
    }
    let Some(found) = candidates.into_iter().find(|candidate| candidate.is_file()) else {
        let message = format!("command {command:?} was not found in the task's directory, nor on this node");
        return Err(StartError::Invalid(message));
    };
    let mode = std::fs::metadata(&found).map(|metadata| metadata.permissions().mode());
    if let Ok(mode) = mode
        && mode & 0o111 == 0
        && let Ok(inside) = found.strip_prefix(task_dir)
    {
        // The task may have put a link there, to a file of others.
        match beneath::add_mode(task_dir, inside, 0o555) {
            Ok(true) => {}
            Ok(false) => tracing::debug!(command, "the right to execute was not added: it is no file of the task's"),
            Err(error) => tracing::debug!(error = %error, command, "the right to execute was not added"),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::drivers::Driver as _;
    use serde_json::json;

    #[tokio::test]
    async fn a_133_a_disabled_driver_starts_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let launcher = drover_supervisor::Launcher::new(dir.path().into(), dir.path().into(), "/none".into());
        let (supervisor, _) = Client::new(launcher, tokio_util::sync::CancellationToken::new());
        let driver = RawExec::driver(RawExecSettings::default(), supervisor);
        let request = StartRequest {
            id: "a/t/1".into(),
            task: "t".into(),
            job_version: 0,
            config: json!({"command": "/bin/true"}).as_object().cloned().expect("an object"),
            env: BTreeMap::new(),
            alloc_dir: dir.path().into(),
            task_dir: dir.path().into(),
            fifo_dir: dir.path().into(),
            user: String::new(),
            own_user: None,
            logs: None,
            kill_timeout: Duration::from_secs(1),
            resources: drover_api::allocation::TaskResources::default(),
            devices: Vec::new(),
            network: crate::drivers::NetworkPlace::Host,
            mounts: Vec::new(),
            pull_secrets: crate::drivers::PullSecrets::default(),
            image: crate::drivers::ImageSlot::default(),
        };
        let error = driver.start(request).await.err().expect("refused");
        assert!(matches!(&error, StartError::Invalid(reason) if reason.contains("disabled")), "{error}");
    }

    #[test]
    fn must_survive_x_009_a_link_in_the_place_of_the_command() {
        let (dir, outside) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let shadow = outside.path().join("shadow");
        std::fs::write(&shadow, "secret").expect("a file");
        std::fs::set_permissions(&shadow, std::fs::Permissions::from_mode(0o600)).expect("a mode");
        std::os::unix::fs::symlink(&shadow, dir.path().join("run")).expect("a link");
        find_command("run", dir.path(), None).expect("found");
        assert_eq!(shadow.metadata().expect("metadata").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_missing_command_is_the_definitions_fault() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = find_command("no-such-program", dir.path(), Some("/bin:/usr/bin")).expect_err("not found");
        assert!(matches!(error, StartError::Invalid(_)));
        assert_eq!(find_command("sh", dir.path(), Some("/nowhere:/bin")).expect("found"), Path::new("/bin/sh"));
        std::fs::create_dir(dir.path().join("local")).expect("a directory");
        std::fs::write(dir.path().join("local/sh"), "#!/bin/true").expect("a file");
        let own = find_command("sh", dir.path(), Some("/bin")).expect("found");
        assert_eq!(own, dir.path().join("local/sh"), "the task's own files come first");
        assert_eq!(own.metadata().expect("metadata").permissions().mode() & 0o111, 0o111);
    }
}
