//! What the scheduler knows of jobs, nodes and allocations: the objects of `drover-api` without what no decision needs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use drover_api::allocation::{
    AllocatedResources, ClientStatus, DesiredStatus, DesiredTransition, FollowUp, RescheduleTracker,
};
use drover_api::client_node::{CsiInfo, DeviceGroup, NodePhase, OfferedVolume};
use drover_api::deployment::{DeploymentPhase, GroupState};
use jiff::Timestamp;

use crate::definition::Definition;
use crate::ids::{AllocKey, JobKey, NodeName, ObjectKey, Uid};

/// The priority of a job that names none.
pub const DEFAULT_PRIORITY: i64 = 50;

/// A job that is to run, or to be stopped.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Which one.
    pub key: JobKey,
    /// Its incarnation.
    pub uid: Uid,
    /// Its metadata.generation.
    pub generation: i64,
    /// The version in effect.
    pub version: i64,
    /// That version, complete.
    pub definition: Arc<Definition>,
    /// Whether nothing of it is to run: stopped, being deleted, or in a namespace that is.
    pub stopped: bool,
    /// How many allocations of each group are wanted now (scale included).
    pub counts: BTreeMap<String, i64>,
}

/// Amounts of a node, or of what is placed on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// MHz.
    pub cpu: i64,
    /// MiB.
    pub memory_mb: i64,
    /// MiB.
    pub disk_mb: i64,
}

impl Amounts {
    /// The sums of both; amounts that no machine has stay at the largest number.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory_mb: self.memory_mb.saturating_add(other.memory_mb),
            disk_mb: self.disk_mb.saturating_add(other.disk_mb),
        }
    }

    /// What is left of these without the others.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory_mb: self.memory_mb.saturating_sub(other.memory_mb),
            disk_mb: self.disk_mb.saturating_sub(other.disk_mb),
        }
    }
}

/// A driver's state on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverState {
    /// It works.
    Healthy,
    /// It is there and does not work.
    Unhealthy,
    /// It is not there.
    Undetected,
}

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Which one.
    pub name: NodeName,
    /// Where it is.
    pub datacenter: String,
    /// Its pool.
    pub pool: String,
    /// Its class, as the operator named it.
    pub class: String,
    /// Where it stands.
    pub phase: NodePhase,
    /// Whether new allocations may be placed on it.
    pub is_eligible: bool,
    /// Whether it is being drained.
    pub is_draining: bool,
    /// Facts about it.
    pub attributes: BTreeMap<String, String>,
    /// Key and value pairs, the operator's over the agent's.
    pub meta: BTreeMap<String, String>,
    /// What allocations can be given.
    pub allocatable: Amounts,
    /// Cores that allocations can be given, with the MHz of one core.
    pub cores: BTreeSet<i64>,
    /// MHz of one core.
    pub core_mhz: i64,
    /// Its drivers; one that is missing here is judged by its attribute.
    pub drivers: BTreeMap<String, DriverState>,
    /// Addresses for ports.
    pub host_networks: Vec<HostAddress>,
    /// Network modes besides host and none.
    pub network_modes: BTreeSet<String>,
    /// Ports that allocations do not get.
    pub reserved_ports: BTreeSet<u16>,
    /// First and last dynamic port.
    pub dynamic_ports: (u16, u16),
    /// Devices, as groups of equal ones.
    pub devices: Vec<DeviceGroup>,
    /// Directories that groups can mount.
    pub host_volumes: BTreeMap<String, OfferedVolume>,
    /// CSI plugins that run on it.
    pub csi: BTreeMap<String, CsiInfo>,
    /// Most allocations on it.
    pub max_allocs: Option<i64>,
}

/// An address of a node on which ports can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// The alias of its network.
    pub alias: String,
    /// It.
    pub ip: IpAddr,
    /// Ports on it that allocations do not get.
    pub reserved_ports: BTreeSet<u16>,
}

impl Node {
    /// Whether new allocations may be placed on it now.
    pub fn is_ready(&self) -> bool {
        self.phase == NodePhase::Ready && self.is_eligible && !self.is_draining
    }
}

/// One instance of a group on a node.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Alloc {
    /// Which one.
    pub key: AllocKey,
    /// Its id.
    pub uid: Uid,
    /// Its job.
    pub job: JobKey,
    /// Its job's incarnation.
    pub job_uid: Uid,
    /// The version that it runs.
    pub job_version: i64,
    /// Its group.
    pub group: String,
    /// Its slot.
    pub index: i64,
    /// Its node.
    pub node: NodeName,
    /// What is wanted of it.
    pub desired: DesiredStatus,
    /// Whether it was stopped so that another one takes its place.
    pub is_superseded: bool,
    /// How it fares.
    pub client: ClientStatus,
    /// What is to become of it next.
    pub transition: DesiredTransition,
    /// Name of the allocation that it replaced.
    pub previous: Option<Arc<str>>,
    /// The delayed evaluation that it waits for.
    pub follow_up: Option<FollowUp>,
    /// What it holds.
    pub resources: Arc<AllocatedResources>,
    /// Whether it was made as a canary and is not promoted.
    pub canary: bool,
    /// The deployment that it belongs to.
    pub deployment: Option<Arc<str>>,
    /// The verdict on its health.
    pub health: Option<Health>,
    /// When the verdict, or that it is a canary, last changed: by how many such changes its view had taken in then.
    pub health_index: u64,
    /// What the controller noted of its client status, oldest first.
    pub states: Vec<(ClientStatus, Timestamp)>,
    /// The best normalised score that its placement knew.
    pub best_score: Option<f64>,
    /// When each task last started, for those that did.
    pub task_starts: Vec<(String, Timestamp)>,
    /// Whether every task of it ended well.
    pub ran_successfully: bool,
    /// When it last ended or changed: the base of reschedule delays.
    pub last_event_at: Timestamp,
    /// The reschedules that led to it.
    pub tracker: Option<RescheduleTracker>,
    /// Whether its object is being deleted.
    pub is_deleting: bool,
    /// Whether its agent reported that nothing of it is left.
    pub has_ended: bool,
    /// The ids of those of its CSI volumes that its agent has unmounted.
    pub unmounted: BTreeSet<String>,
    /// The HostVolumes that it uses: their ids, by the names of the group's volumes.
    pub host_volumes: BTreeMap<String, String>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// The newest of the allocations that held one slot. Times of objects are whole seconds, so that the links between them
/// count first: one that another of them replaced is not the newest.
pub fn newest_of_slot<'a>(holders: &[&'a Arc<Alloc>]) -> Option<&'a Arc<Alloc>> {
    let replaced: BTreeSet<&str> = holders.iter().filter_map(|alloc| alloc.previous.as_deref()).collect();
    let is_last = |alloc: &&&Arc<Alloc>| !replaced.contains(&*alloc.key.name);
    holders.iter().filter(is_last).max_by_key(|alloc| (alloc.created_at, &alloc.key)).copied()
}

/// A verdict on an allocation's health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// It.
    pub is_healthy: bool,
    /// The deployment for which it counts.
    pub deployment: Option<Arc<str>>,
    /// When it was given, by the giver's clock.
    pub at: Timestamp,
}

/// The roll-out of one version of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// Which one.
    pub key: ObjectKey,
    /// Its id.
    pub uid: Uid,
    /// Its job.
    pub job: JobKey,
    /// Its job's incarnation.
    pub job_uid: Uid,
    /// The version that it rolls out.
    pub job_version: i64,
    /// Where it stands.
    pub phase: DeploymentPhase,
    /// Where each group stands.
    pub groups: BTreeMap<String, GroupState>,
    /// Priority of the evaluations that it causes; 0 for the job's.
    pub eval_priority: i64,
    /// What people declared of its allocations, by uid; it counts over what the agents say.
    pub judgements: BTreeMap<String, Health>,
    /// When it was made.
    pub created_at: Timestamp,
}

impl Deployment {
    /// The priority of an evaluation that it causes, in a job of that priority.
    pub const fn priority(&self, of_job: i64) -> i64 {
        if self.eval_priority > 0 { self.eval_priority } else { of_job }
    }
}

impl Alloc {
    /// The verdict on its health, whatever deployment it was given for.
    pub fn is_healthy(&self) -> bool {
        self.health.as_ref().is_some_and(|health| health.is_healthy)
    }

    /// The verdict on its health within its own deployment; none while there is none for that one.
    pub fn health_in_deployment(&self) -> Option<bool> {
        self.health.as_ref().filter(|health| health.deployment == self.deployment).map(|health| health.is_healthy)
    }

    /// Whether the newest note on its client status is `unknown`: it was disconnected and is not decided on since.
    pub fn needs_reconnect(&self) -> bool {
        self.states.last().is_some_and(|(status, _)| *status == ClientStatus::Unknown)
    }

    /// Since when it is `unknown` without a break.
    pub fn unknown_since(&self) -> Option<Timestamp> {
        self.states.iter().rev().take_while(|(status, _)| *status == ClientStatus::Unknown).last().map(|(_, at)| *at)
    }

    /// Whether it needs room on its node: its tasks have not ended.
    pub fn holds_room(&self) -> bool {
        !self.is_client_terminal() && !self.has_ended
    }

    /// Whether it is to end.
    pub fn is_server_terminal(&self) -> bool {
        self.is_deleting || matches!(self.desired, DesiredStatus::Stop | DesiredStatus::Evict)
    }

    /// Whether it has ended.
    pub fn is_client_terminal(&self) -> bool {
        self.client.is_terminal()
    }

    /// Whether it is to end or has ended.
    pub fn is_terminal(&self) -> bool {
        self.is_server_terminal() || self.is_client_terminal()
    }
}

/// Ports written as a list and ranges, as `22,80,8500-8600`. Parts that are no ports are left out.
pub fn parse_ports(text: &str) -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
            ports.extend(first..=last);
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_lists_and_ranges() {
        let ports = parse_ports("22, 80,8500-8502,x,70000");
        assert_eq!(ports.into_iter().collect::<Vec<_>>(), [22, 80, 8500, 8501, 8502]);
    }
}
