//! What drover tells of itself.

use drover_core::settings::{Algorithm, Settings};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::fault::Fault;

/// What answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentFacts {
    /// The name of the replica.
    pub name: String,
    /// The version of drover.
    pub version: String,
    /// What the operator has set for the scheduler.
    pub settings: Settings,
    /// The controllers, where they were asked for.
    pub servers: Vec<ServerFacts>,
    /// What it has counted, where that was asked for.
    pub counted: Counted,
}

/// What a replica has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// As it is scraped.
    pub text: String,
    /// When.
    pub at: Timestamp,
}

/// A replica of the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerFacts {
    /// The name of its pod.
    pub name: String,
    /// Its address; empty where it is not known.
    pub addr: String,
    /// Its port.
    pub port: u16,
    /// Whether it is ready.
    pub is_ready: bool,
    /// Whether it decides.
    pub leads: bool,
}

impl ServerFacts {
    /// By what clients find the leader among the members.
    fn address(&self) -> String {
        let addr = if self.addr.contains(':') { format!("[{}]", self.addr) } else { self.addr.clone() };
        format!("{addr}:{}", self.port)
    }
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

/// The controllers, as members of a region.
pub(super) fn members(facts: &AgentFacts) -> Value {
    let member = |server: &ServerFacts| {
        json!({
            "Name": server.name, "Addr": server.addr, "Port": server.port,
            "Status": if server.is_ready { "alive" } else { "failed" },
            "ProtocolMin": 1, "ProtocolMax": 5, "ProtocolCur": 2, "DelegateMin": 2, "DelegateMax": 5, "DelegateCur": 4,
            "Tags": {
                "region": REGION, "dc": "dc1", "port": server.port.to_string(), "build": facts.version,
                "role": "nomad", "raft_vsn": "3", "id": server.name,
            },
        })
    };
    json!({
        "ServerName": facts.name, "ServerRegion": REGION, "ServerDC": "dc1",
        "Members": facts.servers.iter().map(member).collect::<Vec<_>>(),
    })
}

/// The address of the one that decides.
pub(super) fn leader(facts: &AgentFacts) -> Result<Value, Fault> {
    let leader = facts.servers.iter().find(|server| server.leads);
    leader.map(|server| json!(server.address())).ok_or_else(|| Fault::new(500, "No cluster leader"))
}

/// The addresses of all.
pub(super) fn peers(facts: &AgentFacts) -> Value {
    facts.servers.iter().map(ServerFacts::address).collect()
}

/// What the operator has set for the scheduler.
pub(super) fn scheduler(facts: &AgentFacts) -> Value {
    let Settings { algorithm, preemption, memory_oversubscription, .. } = &facts.settings;
    json!({
        "SchedulerConfig": {
            "SchedulerAlgorithm": match algorithm { Algorithm::Binpack => "binpack", Algorithm::Spread => "spread" },
            "PreemptionConfig": {
                "SystemSchedulerEnabled": preemption.system, "SysBatchSchedulerEnabled": preemption.sysbatch,
                "BatchSchedulerEnabled": preemption.batch, "ServiceSchedulerEnabled": preemption.service,
            },
            "MemoryOversubscriptionEnabled": memory_oversubscription,
            "RejectJobRegistration": false, "PauseEvalBroker": false, "NodeLimitForFeasibilityChecks": 0,
            "CreateIndex": 1, "ModifyIndex": 1,
        },
        "LastIndex": 1, "LastContact": 0, "KnownLeader": true, "NextToken": "",
    })
}
