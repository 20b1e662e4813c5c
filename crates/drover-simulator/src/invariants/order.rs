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

#[cfg(test)]
mod tests {
    use drover_store::memory::{Caller, MemoryStore, Target, Unknown, kind};
    use drover_store::{Key, Part, Precondition};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_verdict_is_given_once_for_each_deployment() {
        let (store, of) = (MemoryStore::default(), |name: &str| kind(name).expect("known"));
        let kind = of("Allocation");
        let key = Key { namespace: Some("default".to_owned()), name: "a".to_owned() };
        let caller = Caller { manager: "droverd-agent", now: jiff::Timestamp::UNIX_EPOCH };
        let spec = json!({ "jobName": "j", "jobUID": "u", "jobVersion": 0, "group": "g", "index": 0, "nodeName": "n",
            "resources": { "tasks": {} } });
        let object = json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Allocation",
            "metadata": { "name": "a", "namespace": "default" }, "spec": spec });
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "default" } });
        store.create(of("Namespace"), namespace, Unknown::Refuse, caller).expect("created");
        store.create(kind, object, Unknown::Refuse, caller).expect("created");
        let judged = |is_healthy: bool, second: u8, deployment: &str, by: Client| {
            let health = json!({ "healthy": is_healthy, "timestamp": format!("2026-01-01T00:00:{second:02}Z"), "deploymentName": deployment });
            let target = Target { kind, key: &key, part: Part::Status, precondition: &Precondition::default() };
            let written = store.merge(target, &json!({ "status": { "health": health } }), caller).expect("written");
            let mut found = Vec::new();
            check(Some(by), &written.change.expect("a change"), &mut found);
            found.len()
        };
        let agent = Client::Node(0);
        assert_eq!(judged(true, 1, "d", agent), 0, "the first");
        assert_eq!(judged(true, 2, "d", agent), 1, "the same at another time");
        assert_eq!(judged(false, 2, "d", agent), 1, "another one");
        assert_eq!(judged(true, 3, "e", agent), 0, "of the next deployment");
        assert_eq!(judged(false, 4, "e", Client::User), 0, "people may judge again");
    }
}
