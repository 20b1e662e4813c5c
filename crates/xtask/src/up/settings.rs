//! Writes the configuration files of controller and agent.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
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

/// Writes `agent.yaml` and returns its path.
pub(super) fn write_agent(layout: &Layout, args: &UpArgs) -> Result<PathBuf> {
    let settings = json!({
        "stateDir": layout.agent_state(),
        "allocDir": layout.agent_alloc(),
        "address": "127.0.0.1",
        "meta": {"examples": workspace::root().join("examples")},
        // Plain processes with the rights of who runs `up`: that is what people want to see first, on their own
        // machine.
        "drivers": {"rawExec": {"enabled": true}},
        "heartbeat": {"ttl": args.heartbeat_ttl},
    });
    write(layout.root.join("agent.yaml"), &settings)
}

fn write(path: PathBuf, settings: &Value) -> Result<PathBuf> {
    let text = serde_saphyr::to_string(settings).with_context(|| format!("rendering {}", path.display()))?;
    let text = format!("# Written by `cargo xtask up` at each start.\n{text}");
    workspace::write_with_mode(&path, text.as_bytes(), 0o644)?;
    Ok(path)
}
