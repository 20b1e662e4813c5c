//! I7 and I8: what never goes back, and what was written and acknowledged and no other writer may undo.

use drover_api::Allocation;
use drover_api::deployment::DeploymentPhase;
use drover_store::memory::StoredChange;
use serde_json::Value;

use crate::link::Client;

/// Checks one change.
pub(super) fn check(by: Option<Client>, change: &StoredChange, found: &mut Vec<String>) {
    let (Some(before), Some(after)) = (&change.before, &change.after) else { return };
    let (kind, key) = (after.kind.name.as_str(), &after.key);
    let (old, new) = (&before.value["status"], &after.value["status"]);
    for field in ["observedGeneration", "version"] {
        if let (Some(was), Some(is)) = (old[field].as_i64(), new[field].as_i64())
            && is < was
        {
            found.push(format!("I7: {kind} {key}: status.{field} goes back from {was} to {is}"));
        }
    }
    match kind {
        "Allocation" => {
            let client = |stored: &drover_store::memory::Stored| {
                let alloc = stored.typed::<Allocation>().ok();
                alloc.and_then(|alloc| alloc.status.as_ref()).map(|status| status.client_status).unwrap_or_default()
            };
            let (was, is) = (client(before), client(after));
            if was.is_terminal() && !is.is_terminal() {
                found.push(format!("I7: Allocation {key}: clientStatus goes back from {was} to {is}"));
            }
            if matches!(by, Some(Client::Node(_)))
                && let Some(name) = old["health"]["deploymentName"].as_str().filter(|name| !name.is_empty())
                && new["health"]["deploymentName"] == name
                && old["health"] != new["health"]
            {
                found.push(format!("I7: Allocation {key}: the verdict for deployment {name} is given again"));
            }
        }
        "Deployment" => {
            let phase = |status: &Value| serde_json::from_value::<DeploymentPhase>(status["phase"].clone()).ok();
            if let (Some(was), Some(is)) = (phase(old), phase(new))
                && !was.is_active()
                && was != is
            {
                found.push(format!("I7: Deployment {key}: phase goes back from {was} to {is}"));
            }
        }
        _ => {}
    }
    match by {
        Some(Client::Controller(_)) => {
            let fields: &[&str] = match kind {
                "Job" | "JobVersion" | "Deployment" | "CSIVolume" => &["/spec"],
                "Allocation" => {
                    &["/status/taskStates", "/status/endedAt", "/status/health", "/status/services", "/status/checks"]
                }
                "ClientNode" => &["/spec/meta", "/spec/nodePool", "/spec/datacenter", "/status/fingerprint"],
                _ => &[],
            };
            check_kept("the controller", fields, before, after, found);
        }
        Some(Client::Node(_)) => {
            let fields: &[&str] = match kind {
                "Allocation" => &["/spec", "/status/allocStates"],
                "ClientNode" => &[
                    "/spec",
                    "/status/phase",
                    "/status/events",
                    "/status/csiRequests",
                    "/status/volumeRequests",
                    "/status/drain",
                ],
                _ => &["/spec", "/status"],
            };
            check_kept("an agent", fields, before, after, found);
        }
        Some(Client::User) | None => {}
    }
}

/// A field of another writer must stay as that one left it.
fn check_kept(
    who: &str,
    fields: &[&str],
    before: &drover_store::memory::Stored,
    after: &drover_store::memory::Stored,
    found: &mut Vec<String>,
) {
    if after.kind.name == "Lease" || after.kind.name == "ConfigMap" {
        return;
    }
    for field in fields {
        if before.value.pointer(field) != after.value.pointer(field) {
            found.push(format!("I8: {} {}: {who} undid what was written to {field}", after.kind.name, after.key));
        }
    }
}
