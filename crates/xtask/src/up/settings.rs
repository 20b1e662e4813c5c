//! Writes the configuration files of controller and agent; the agent's with what people add to it in a file of their
//! own, which no start touches.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use drover_testkit::containerd::OwnContainerd;
use drover_testkit::workspace;
use serde_json::{Value, json};

use super::args::UpArgs;
use super::layout::Layout;

/// Writes `controller.yaml` and returns its path.
pub(super) fn write_controller(layout: &Layout, args: &UpArgs) -> Result<PathBuf> {
    let settings = json!({
        "leaderElection": {"leaseDuration": args.lease_duration, "renewDeadline": args.renew_deadline, "retryPeriod": args.retry_period},
        "heartbeat": {"minTTL": args.heartbeat_ttl, "grace": args.heartbeat_grace},
    });
    write(layout.root.join("controller.yaml"), &settings)
}

/// Writes `gateway.yaml` and returns its path.
pub(super) fn write_gateway(layout: &Layout, ports: Ports) -> Result<PathBuf> {
    let settings = json!({
        "users": format!("127.0.0.1:{}", ports.users),
        "agents": format!("127.0.0.1:{}", ports.agents),
        // The name by which the API server reaches it here.
        "names": ["localhost"],
        // There is no other replica for which its end would have to be gentle.
        "shutdown": {"unreadyFor": "0s", "streamsFor": "0s"},
    });
    write(layout.root.join("gateway.yaml"), &settings)
}

/// The name of the agent's node.
pub(super) fn node_name(layout: &Layout) -> Result<String> {
    let more = additions(&layout.agent_additions())?.unwrap_or_default();
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(more["nodeName"].as_str().unwrap_or(&own).trim().to_lowercase())
}

/// Where the gateway listens on this machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) users: u16,
    pub(super) agents: u16,
}

/// What the session runs beside the agent, and what that has to know of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Neighbours<'a> {
    /// The gateway, which the agent dials.
    pub(super) gateway: Option<Ports>,
    pub(super) containerd: Option<&'a OwnContainerd>,
}

/// Writes `agent.yaml` and returns its path.
pub(super) fn write_agent(layout: &Layout, args: &UpArgs, neighbours: Neighbours<'_>) -> Result<PathBuf> {
    let mut settings = json!({
        "stateDir": layout.agent_state(),
        "allocDir": layout.agent_alloc(),
        "address": "127.0.0.1",
        "meta": {"examples": workspace::root().join("examples")},
        // Plain processes with the rights of who runs `up`, and the network of the machine: that is what people want to
        // see first, on their own machine.
        "drivers": {"rawExec": {"enabled": true}, "exec": {"allowHostNetwork": true}},
        "heartbeat": {"ttl": args.heartbeat_ttl},
        // The only network that surely is there.
        "artifacts": {"allowedCIDRs": ["127.0.0.0/8"]},
    });
    for driver in &args.drivers {
        settings["drivers"][driver]["enabled"] = json!(true);
    }
    if let Some(containerd) = neighbours.containerd {
        settings["drivers"]["containerd"] = json!({ "enabled": true, "address": containerd.socket() });
    }
    if let Some(ports) = neighbours.gateway {
        let replica = format!("127.0.0.1:{}", ports.agents);
        settings["gateway"] = json!({ "tokenFile": layout.gateway_token(), "replicas": [replica] });
    }
    if let Some(more) = additions(&layout.agent_additions())? {
        merge(&mut settings, more);
    }
    write(layout.root.join("agent.yaml"), &settings)
}

/// What people add to the agent's settings; none where there is no such file.
fn additions(path: &Path) -> Result<Option<Value>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    let found: Value = serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    ensure!(found.is_object(), "{}: holds no settings; write fields of the agent's configuration", path.display());
    Ok(Some(found))
}

/// Fields of objects one by one; anything else replaces what was there.
fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (name, value) in more {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

fn write(path: PathBuf, settings: &Value) -> Result<PathBuf> {
    let text = serde_saphyr::to_string(settings).with_context(|| format!("rendering {}", path.display()))?;
    let text = format!("# Written by `cargo xtask up` at each start.\n{text}");
    workspace::write_with_mode(&path, text.as_bytes(), 0o644)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_add_to_the_agents_settings_survives_each_start() {
        let parent = tempfile::tempdir().unwrap();
        let layout = Layout::at(Some(parent.path())).unwrap();
        let written = |args: &UpArgs| -> Value {
            let path = write_agent(&layout, args, Neighbours::default()).unwrap();
            serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
        };
        let plain = written(&UpArgs::default());
        let own = json!({ "rawExec": { "enabled": true }, "exec": { "allowHostNetwork": true } });
        assert_eq!(plain["drivers"], own);
        let mock = UpArgs { drivers: vec!["mock".to_owned()], ..UpArgs::default() };
        fs::write(layout.agent_additions(), "nodePool: gpu\ndrivers: {rawExec: {deniedEnvvars: [A_*]}}\n").unwrap();
        for _ in 0..2 {
            let with = written(&mock);
            assert_eq!((&with["nodePool"], &with["stateDir"]), (&json!("gpu"), &plain["stateDir"]));
            let drivers = json!({
                "rawExec": { "enabled": true, "deniedEnvvars": ["A_*"] },
                "exec": { "allowHostNetwork": true },
                "mock": { "enabled": true },
            });
            assert_eq!(with["drivers"], drivers);
        }
        fs::write(layout.agent_additions(), "- a\n").unwrap();
        let error = write_agent(&layout, &mock, Neighbours::default()).unwrap_err().to_string();
        assert!(error.contains("agent.more.yaml: holds no settings"), "{error}");
    }
}
