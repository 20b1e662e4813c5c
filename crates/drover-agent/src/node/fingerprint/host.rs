//! Operating system, cgroups, and the agent itself.

use std::fs;
use std::path::Path;

use drover_api::client_node::Fingerprint;

use super::attribute::put;
use crate::config::AgentConfig;

/// Kernel, distribution and the host's name.
#[expect(clippy::unnecessary_wraps, reason = "all detectors have one signature")]
pub(super) fn host(_: &AgentConfig, found: &mut Fingerprint) -> Result<(), String> {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    put(found, "kernel.name", text(name.sysname()).to_lowercase());
    put(found, "kernel.version", text(name.release()));
    put(found, "kernel.arch", text(name.machine()));
    put(found, "unique.hostname", text(name.nodename()));
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    put(found, "os.name", release_field(&release, "ID"));
    put(found, "os.version", release_field(&release, "VERSION_ID"));
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    put(found, "unique.host_id", id.trim().to_owned());
    Ok(())
}

fn release_field(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')));
    value.unwrap_or_default().trim_matches('"').to_owned()
}

/// The version of the cgroup interface, where there is one, and the group that holds the tasks of this agent.
#[expect(clippy::unnecessary_wraps, reason = "all detectors have one signature")]
pub(super) fn cgroup(config: &AgentConfig, found: &mut Fingerprint) -> Result<(), String> {
    let version = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        "2"
    } else if Path::new("/sys/fs/cgroup/memory").exists() || Path::new("/sys/fs/cgroup/cpu").exists() {
        "1"
    } else {
        ""
    };
    put(found, "os.cgroups.version", version.to_owned());
    if drover_supervisor::missing_cgroups().is_none() {
        found.cgroup_parent = drover_supervisor::cgroup_name(&config.state_dir);
    }
    Ok(())
}

/// This agent.
#[expect(clippy::unnecessary_wraps, reason = "all detectors have one signature")]
pub(super) fn agent(_: &AgentConfig, found: &mut Fingerprint) -> Result<(), String> {
    put(found, "drover.version", env!("CARGO_PKG_VERSION").to_owned());
    put(found, "drover.service_discovery", "true".to_owned());
    Ok(())
}
