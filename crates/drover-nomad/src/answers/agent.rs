//! What drover tells of itself.

use serde_json::{Value, json};

/// What answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentFacts {
    /// The name of the replica.
    pub name: String,
    /// The version of drover.
    pub version: String,
}

/// The region: there is one.
pub(super) const REGION: &str = "global";

/// What clients look for in the agent that they talk to: its region, and which hints to show.
pub(super) fn about(facts: &AgentFacts) -> Value {
    let version = json!({ "Version": facts.version, "VersionPrerelease": "", "VersionMetadata": "drover" });
    json!({
        "config": {
            "Region": REGION, "Datacenter": "dc1", "Name": facts.name, "Version": version,
            "ACL": { "Enabled": true }, "Server": { "Enabled": true }, "Client": { "Enabled": false },
            // There is no web interface whose addresses could be hinted at.
            "UI": { "Enabled": false, "ShowCLIHints": false },
        },
        "member": {
            "Name": facts.name, "Addr": "", "Port": 0, "Status": "alive",
            "ProtocolMin": 0, "ProtocolMax": 0, "ProtocolCur": 0, "DelegateMin": 0, "DelegateMax": 0, "DelegateCur": 0,
            "Tags": { "region": REGION, "dc": "dc1", "build": facts.version, "role": "drover" },
        },
        "stats": { "drover": { "version": facts.version } },
    })
}
