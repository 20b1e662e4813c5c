//! What the components of a leader decide to have written, and what became of it.
//!
//! An [`Action`] holds all that its write needs, with its precondition. Each is idempotent, and safe to lose. Knows
//! nothing of how it is carried out.

use std::sync::Arc;
use std::time::Duration;

use drover_api::deployment::DeploymentStatus;
use drover_api::job::EvalTrigger;
use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, HostVolume, Job, JobVersion};
use drover_core::ids::{AllocKey, JobKey, NodeName, ObjectKey};
use drover_core::volume::plugin_lock::Caller;
use drover_store::{Key, Precondition, StoreError};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::Value;

use crate::deployments::{Acted, Restore};
use crate::jobs::{Preparation, Prepared};
use crate::plan_writes::{Writes, Written};
use crate::services::{EndpointsError, EndpointsWrite};

/// A write that was decided.
#[derive(Debug)]
pub(crate) enum Action {
    /// Reports something to people.
    Report(Box<Event>),
    /// Writes what a job needs before it can be planned, for an evaluation with this trigger.
    Prepare(Box<Preparation>, EvalTrigger),
    /// Writes a plan, which creates these allocations.
    Plan(Box<Writes>, Vec<AllocKey>),
    JobStatus(JobKey, Precondition, Arc<Value>),
    /// Reads a version of a job that the watch has not brought.
    FetchVersion(JobKey, i64),
    /// Takes the finalizer off a job of which nothing is left.
    FreeJob(JobKey, Arc<Job>),
    /// Creates the job of a launch.
    Launch(JobKey, Timestamp, Box<Job>),
    /// Takes the finalizer off an allocation of which nothing is left.
    Settle(AllocKey, Arc<Allocation>),
    /// Changes the spec of an allocation on a node that is drained.
    Mark(AllocKey, Precondition, Value),
    NodeStatus(NodeName, Precondition, Arc<Value>),
    NodeSpec(NodeName, Precondition, Value),
    /// Publishes the TTL of heartbeats in drover's namespace.
    Ttl(String, Duration),
    /// Tells what became of the configuration in the cluster.
    ConfigOutcome(Key, String),
    DeploymentStatus(DeploymentStatusWrite),
    /// Does what follows from a deployment's status.
    Act(Box<DeploymentAct>),
    VolumeSpec(ObjectKey, Key, Precondition, Value),
    VolumeStatus(ObjectKey, Key, Precondition, Value),
    HostVolumeSpec(ObjectKey, Precondition, Value),
    HostVolumeStatus(ObjectKey, Precondition, Value),
    MakeAttachment(Caller, Box<VolumeAttachment>),
    DeleteAttachment(Option<Caller>, String, Precondition),
    /// Writes a slice of an allocation.
    Endpoints(AllocKey, Key, Box<EndpointsWrite>),
    /// Deletes what is not needed any more.
    Collect(GarbageKind, Key, Precondition),
}

/// The status of a deployment.
#[derive(Debug)]
pub(crate) struct DeploymentStatusWrite {
    pub(crate) key: ObjectKey,
    pub(crate) precondition: Precondition,
    pub(crate) status: Box<DeploymentStatus>,
    /// Whether its job is evaluated when that is written.
    pub(crate) evaluate: bool,
    /// Changes of the allocations that it promotes, which follow at once: to clients a promotion is one write.
    pub(crate) promoted: Vec<(AllocKey, Precondition, Value)>,
}

/// What follows from a deployment's status.
#[derive(Debug)]
pub(crate) struct DeploymentAct {
    pub(crate) key: ObjectKey,
    /// Versions that become the newest ones.
    pub(crate) restores: Vec<Restore>,
    /// Changes of allocations.
    pub(crate) changes: Vec<(AllocKey, Precondition, Value)>,
}

/// Kinds that are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GarbageKind {
    Allocation,
    Deployment,
    Node,
    Job,
    Version,
}

/// An action that ended.
pub(crate) enum Done {
    Prepared(JobKey, EvalTrigger, Box<Prepared>),
    Applied(JobKey, Vec<AllocKey>, Written),
    JobStatus(JobKey, Box<Result<Job, StoreError>>),
    VersionFetched(JobKey, i64, Box<Result<Option<JobVersion>, StoreError>>),
    NodeStatus(NodeName, Box<Result<ClientNode, StoreError>>),
    DeploymentStatus(ObjectKey, bool, Box<(Result<Deployment, StoreError>, Acted)>),
    DeploymentActed(ObjectKey, Box<Acted>),
    Launched(JobKey, Timestamp, Box<Result<Job, StoreError>>),
    Settled(AllocKey, Box<Result<Option<Allocation>, StoreError>>),
    JobFreed(JobKey, Box<Result<Option<Job>, StoreError>>),
    Ttl(Box<Result<ConfigMap, StoreError>>),
    Marked(AllocKey, Box<Result<Allocation, StoreError>>),
    VolumeStatus(ObjectKey, Box<Result<CSIVolume, StoreError>>),
    VolumeSpec(ObjectKey, Box<Result<Option<CSIVolume>, StoreError>>),
    HostVolume(ObjectKey, Box<Result<Option<HostVolume>, StoreError>>),
    NodeSpec(NodeName, Box<Result<ClientNode, StoreError>>),
    AttachmentMade(Caller, String, Box<Result<VolumeAttachment, StoreError>>),
    AttachmentDeleted(Option<Caller>, String, Result<(), StoreError>),
    Endpoints(AllocKey, Key, Box<Result<Option<EndpointSlice>, EndpointsError>>),
    Other(&'static str, Result<(), StoreError>),
}
